//! Parses quotas from text: `100/s`, `5/10s`, `1000/h burst 50`, `100/min strict`.

use crate::error::Refused;
use std::time::Duration;

/// The names of the units as written by `Display`, and their lengths in nanoseconds, shortest
/// first.
pub(super) const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 24 * 3_600 * 1_000_000_000),
];

/// The parts of a quota's text.
pub(super) struct Parts {
    pub(super) tokens: u64,
    pub(super) period: Duration,
    pub(super) burst: Option<u64>,
    pub(super) is_strict: bool,
}

impl Parts {
    /// Returns the strings that may follow these parts, for an error message.
    const fn next(&self) -> &'static str {
        match (self.burst, self.is_strict) {
            (_, true) => "the end",
            (Some(_), false) => "strict or the end",
            (None, false) => "burst, strict or the end",
        }
    }
}

/// Parses exactly one quota.
pub(super) fn parse(text: &str) -> Result<Parts, Refused> {
    let mut rest = QuotaReader { text, offset: 0, quota: None };
    let parts = rest.parts()?;
    match rest.peek() {
        None => Ok(parts),
        Some(_) => Err(rest.unexpected(parts.next())),
    }
}

/// Parses one or more quotas, separated by commas.
pub(super) fn parse_list(text: &str) -> Result<Vec<Parts>, Refused> {
    let mut rest = QuotaReader { text, offset: 0, quota: Some(1) };
    let mut list = vec![rest.parts()?];
    while let Some(next) = rest.peek() {
        if next != ',' {
            return Err(rest.unexpected("a comma or the end"));
        }
        rest.offset += 1;
        rest.quota = Some(list.len() + 1);
        list.push(rest.parts()?);
    }
    Ok(list)
}

/// A text, and the offset of the first unread character.
struct QuotaReader<'t> {
    text: &'t str,
    offset: usize,
    /// The number of the current quota in a list, from 1; `None` if the text is a single quota.
    quota: Option<usize>,
}

impl<'t> QuotaReader<'t> {
    /// Skips spaces and returns the next character without consuming it.
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.offset..];
        self.offset += rest.len() - rest.trim_start().len();
        self.text[self.offset..].chars().next()
    }

    /// Parses `tokens / [count] unit [burst n] [strict]`, with optional spaces in between.
    fn parts(&mut self) -> Result<Parts, Refused> {
        let tokens = self.number("a whole number of tokens", false)?;
        self.slash()?;
        let count = match self.peek() {
            Some(c) if c.is_ascii_digit() => self.number("a whole number of units", false)?,
            _ => 1,
        };
        let period = self.period(count)?;
        let mut parts = Parts { tokens, period, burst: None, is_strict: false };
        loop {
            match self.word() {
                (_, "") => return Ok(parts),
                (at, word) if word.eq_ignore_ascii_case("strict") && !parts.is_strict => {
                    if let Some(burst) = parts.burst.filter(|&burst| burst >= tokens.max(2)) {
                        let wrong =
                            format!("a burst of {burst} leaves no rate for a strict quota of {tokens}");
                        return Err(self.error(at, wrong, "a burst below the tokens, or 1 for one token"));
                    }
                    parts.is_strict = true;
                }
                (_, word)
                    if word.eq_ignore_ascii_case("burst") && parts.burst.is_none() && !parts.is_strict =>
                {
                    parts.burst = Some(self.number("a whole number of tokens", self.quota.is_some())?);
                }
                (at, word) => return Err(self.error(at, format!("{word:?} is unexpected"), parts.next())),
            }
        }
    }

    /// Consumes the characters for which `belongs` returns true. Returns their offset and text.
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

    /// Parses a number. `may_end` specifies whether a comma may follow, as it does at the end of a
    /// quota in a list.
    fn number(&mut self, allowed: &'static str, may_end: bool) -> Result<u64, Refused> {
        let (at, digits) = self.take(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.unexpected(allowed));
        }
        let next = self.text[self.offset..].chars().next();
        if next == Some('.') || next == Some(',') && !may_end {
            let wrong = "the number is not whole, or has separators".to_owned();
            let allowed = "digits (1000 for 1,000; half a token a second is 1/2s)";
            return Err(self.error(self.offset, wrong, allowed));
        }
        digits
            .parse()
            .map_err(|_| self.error(at, format!("{digits} is too large"), "0 to 18446744073709551615"))
    }

    fn slash(&mut self) -> Result<(), Refused> {
        match self.peek() {
            Some('/') => {
                self.offset += 1;
                Ok(())
            }
            _ => Err(self.unexpected("a slash and a period")),
        }
    }

    fn period(&mut self, count: u64) -> Result<Duration, Refused> {
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
            return Err(self.error(at, format!("unknown unit {word:?}"), ALLOWED));
        };
        let nanos = u128::from(count) * u128::from(unit);
        match u64::try_from(nanos) {
            Ok(nanos) => Ok(Duration::from_nanos(nanos)),
            Err(_) => Err(self.error(at, format!("a period of {count}{word} is too long"), "up to 213503d")),
        }
    }

    /// Returns the error for a wrong or missing next character.
    fn unexpected(&mut self, allowed: &'static str) -> Refused {
        let wrong = match self.peek() {
            Some(c) => format!("{c:?} is unexpected"),
            None => "the text ends".to_owned(),
        };
        self.error(self.offset, wrong, allowed)
    }

    fn error(&self, offset: usize, wrong: String, allowed: &'static str) -> Refused {
        let wrong = match self.quota {
            Some(quota) => format!("in quota {quota}, {wrong}"),
            None => wrong,
        };
        Refused::InvalidQuota { text: self.text.to_owned(), offset, wrong, allowed }
    }
}
