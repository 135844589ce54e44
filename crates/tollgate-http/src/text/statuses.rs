//! Sets of response statuses as text: `401, 403` or `5xx`.

use super::error::TextError;
use super::printable::printable;
use http::StatusCode;
use std::fmt;
use std::str::FromStr;

/// Statuses of responses: single ones and whole hundreds, as in `401, 403` or `2xx, 304`.
///
/// ```
/// use http::StatusCode;
/// use tollgate_http::settings::Statuses;
///
/// let failures: Statuses = "401, 5xx".parse()?;
/// assert!(failures.contain(StatusCode::UNAUTHORIZED));
/// assert!(failures.contain(StatusCode::BAD_GATEWAY));
/// assert!(!failures.contain(StatusCode::FORBIDDEN));
/// # Ok::<(), tollgate_http::settings::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<Range>);

/// Consecutive statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
}

impl Statuses {
    /// Returns whether this is one of the statuses.
    pub fn contain(&self, status: StatusCode) -> bool {
        self.0.iter().any(|range| (range.first..=range.last).contains(&status.as_u16()))
    }
}

impl FromStr for Range {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str, length: usize| {
            let is_number = text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u16>().ok().filter(|_| is_number).ok_or(())
        };
        let (first, last) = match text.strip_suffix("xx") {
            Some(hundreds) => number(hundreds, 1).map(|hundreds| (hundreds * 100, hundreds * 100 + 99))?,
            None => number(text, 3).map(|status| (status, status))?,
        };
        if (100..600).contains(&first) { Ok(Self { first, last }) } else { Err(()) }
    }
}

impl FromStr for Statuses {
    type Err = TextError;

    /// # Errors
    ///
    /// Returns an error if a part between two commas is neither a status from 100 to 599 nor a
    /// hundred, such as `4xx`.
    fn from_str(text: &str) -> Result<Self, TextError> {
        let ranges: Result<_, ()> = text.split(',').map(|part| part.trim().parse()).collect();
        ranges.map(Self).map_err(|()| {
            TextError::new(format!(
                "invalid statuses `{}`: expected statuses from 100 to 599, or hundreds, as in \"401, 403\" or \
                 \"2xx, 304\"",
                printable(text.as_bytes())
            ))
        })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last - self.first {
            0 => write!(f, "{}", self.first),
            _ => write!(f, "{}xx", self.first / 100),
        }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, range) in self.0.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_numbers_or_hundreds_and_are_written_as_they_are_read() {
        let read = |text: &str| text.parse::<Statuses>().map(|it| it.to_string());
        assert_eq!(read("401,403 , 5xx").as_deref(), Ok("401, 403, 5xx"));
        let failures: Statuses = "401, 5xx".parse().unwrap();
        let contained: Vec<u16> = [400, 401, 402, 499, 500, 599]
            .into_iter()
            .filter(|&status| failures.contain(StatusCode::from_u16(status).unwrap()))
            .collect();
        assert_eq!(contained, [401, 500, 599]);
        for text in [
            "", "6xx", "0xx", "99", "600", "+401", "401,", "4 xx", "xx", "11xx", "04xx", "0401", "4XX",
            "401 403",
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("invalid statuses `{text}`: expected statuses from")),
                "{error}"
            );
        }
    }
}
