//! The text of a quota: `100/s`, `5/10s`, `1000/h burst 50`.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Names of the units that `Display` writes, with their nanoseconds, shortest first.
pub(super) const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 24 * 3_600 * 1_000_000_000),
];

/// A text that is no quota: where it went wrong, and what is allowed there.
///
/// ```
/// use tollgate::Quota;
///
/// let wrong = "100/fortnight".parse::<Quota>().unwrap_err();
/// assert_eq!(wrong.offset(), 4);
/// assert_eq!(
///     wrong.to_string(),
///     "bad quota \"100/fortnight\": at character 5, \"fortnight\" is no unit; \
///      allowed: ns, us, ms, s, min, h, d, as in 100/s, 5/10s or 1000/h burst 50"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaParseError {
    text: String,
    offset: usize,
    wrong: String,
    allowed: &'static str,
}

impl QuotaParseError {
    /// Where the text goes wrong, in bytes from its start; its length if something is missing at the end.
    ///
    /// ```
    /// assert_eq!("100".parse::<tollgate::Quota>().unwrap_err().offset(), 3);
    /// ```
    pub fn offset(&self) -> usize {
        self.offset
    }
}

impl fmt::Display for QuotaParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, offset, wrong, allowed } = self;
        let character = text[..*offset].chars().count() + 1;
        write!(
            f,
            "bad quota {text:?}: at character {character}, {wrong}; allowed: {allowed}, \
             as in 100/s, 5/10s or 1000/h burst 50"
        )
    }
}

impl Error for QuotaParseError {}

/// What a quota's text says.
pub(super) struct Parts {
    pub(super) limit: u64,
    pub(super) period: Duration,
    pub(super) burst: Option<u64>,
}

/// `limit / [count] unit [burst n]`, with spaces where one likes.
pub(super) fn parse(text: &str) -> Result<Parts, QuotaParseError> {
    let mut rest = Reader { text, offset: 0 };
    let limit = rest.number("a whole number of tokens")?;
    rest.slash()?;
    let count = match rest.peek() {
        Some(c) if c.is_ascii_digit() => rest.number("a whole number of units")?,
        _ => 1,
    };
    let period = rest.period(count)?;
    let burst = match rest.word() {
        (_, "") => None,
        (_, word) if word.eq_ignore_ascii_case("burst") => Some(rest.number("a whole number of tokens")?),
        (at, word) => {
            return Err(rest.error(at, format!("{word:?} is unexpected"), "burst or the end"));
        }
    };
    rest.end()?;
    Ok(Parts { limit, period, burst })
}

/// What is left of the text.
struct Reader<'t> {
    text: &'t str,
    offset: usize,
}

impl<'t> Reader<'t> {
    /// The next character that is no space, without taking it.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.offset..];
        self.offset += rest.len() - rest.trim_start().len();
        self.text[self.offset..].chars().next()
    }

    /// Takes the characters that `belongs` holds for; where they begin, and what they are.
    fn take(&mut self, belongs: impl Fn(char) -> bool) -> (usize, &'t str) {
        self.peek();
        let at = self.offset;
        let rest = &self.text[at..];
        let taken = &rest[..rest.find(|c| !belongs(c)).unwrap_or(rest.len())];
        self.offset += taken.len();
        (at, taken)
    }

    fn word(&mut self) -> (usize, &'t str) {
        self.take(char::is_alphabetic)
    }

    fn number(&mut self, allowed: &'static str) -> Result<u64, QuotaParseError> {
        let (at, digits) = self.take(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.unexpected(allowed));
        }
        if self.text[self.offset..].starts_with(['.', ',']) {
            let wrong = "the number is no whole one, or has separators".to_owned();
            let allowed = "digits (1000 for 1,000; half a token a second is 1/2s)";
            return Err(self.error(self.offset, wrong, allowed));
        }
        digits
            .parse()
            .map_err(|_| self.error(at, format!("{digits} is too large"), "0 to 18446744073709551615"))
    }

    fn slash(&mut self) -> Result<(), QuotaParseError> {
        match self.peek() {
            Some('/') => {
                self.offset += 1;
                Ok(())
            }
            _ => Err(self.unexpected("a slash and a period")),
        }
    }

    fn period(&mut self, count: u64) -> Result<Duration, QuotaParseError> {
        const ALLOWED: &str = "ns, us, ms, s, min, h, d";
        let (at, word) = self.word();
        if word.is_empty() {
            return Err(self.unexpected(ALLOWED));
        }
        let lower = word.to_lowercase();
        let name = match lower.as_str() {
            // The micro sign and the Greek letter look the same.
            "µs" | "μs" => "us",
            "sec" | "secs" | "second" | "seconds" => "s",
            "m" | "mins" | "minute" | "minutes" => "min",
            "hr" | "hrs" | "hour" | "hours" => "h",
            "day" | "days" => "d",
            other => other,
        };
        let Some(&(_, unit)) = UNITS.iter().find(|(unit, _)| *unit == name) else {
            return Err(self.error(at, format!("{word:?} is no unit"), ALLOWED));
        };
        let nanos = u128::from(count) * u128::from(unit);
        match u64::try_from(nanos) {
            Ok(nanos) => Ok(Duration::from_nanos(nanos)),
            Err(_) => Err(self.error(at, format!("a period of {count}{word} is too long"), "up to 213503d")),
        }
    }

    fn end(&mut self) -> Result<(), QuotaParseError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("burst or the end")),
        }
    }

    /// The next character is wrong, or missing.
    fn unexpected(&mut self, allowed: &'static str) -> QuotaParseError {
        let wrong = match self.peek() {
            Some(c) => format!("{c:?} is unexpected"),
            None => "the text ends".to_owned(),
        };
        self.error(self.offset, wrong, allowed)
    }

    fn error(&self, offset: usize, wrong: String, allowed: &'static str) -> QuotaParseError {
        QuotaParseError { text: self.text.to_owned(), offset, wrong, allowed }
    }
}
