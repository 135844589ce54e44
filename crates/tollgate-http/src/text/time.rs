//! Times in the settings of a program.

use super::error::TextError;
use jiff::SignedDuration;
use std::time::Duration;

/// The longest time.
const MOST: Duration = Duration::from_secs(24 * 60 * 60);

/// Parses a time of a program's settings: more than 0 s and up to 24 h, such as `500ms`, `1.5s` or
/// `1m30s`.
///
/// ```
/// # use std::time::Duration;
/// use tollgate_http::program::parse_time;
///
/// assert_eq!(parse_time("1m30s").unwrap(), Duration::from_secs(90));
/// let refused = parse_time("5").unwrap_err().to_string();
/// assert_eq!(refused, "expected more than 0s, up to 24h, as in 500ms, 5s or 1m30s");
/// ```
///
/// # Errors
///
/// Returns an error if the text is not a time in this range. The message does not repeat the text.
pub fn parse_time(text: &str) -> Result<Duration, TextError> {
    let parsed: Option<SignedDuration> = text.parse().ok();
    let positive = parsed.and_then(|time| Duration::try_from(time).ok()).filter(|time| !time.is_zero());
    positive
        .filter(|&time| time <= MOST)
        .ok_or_else(|| TextError::new("expected more than 0s, up to 24h, as in 500ms, 5s or 1m30s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_a_range() {
        for (text, millis) in [("500ms", 500), ("1.5s", 1_500), ("1m30s", 90_000), ("24h", 86_400_000)] {
            assert_eq!(parse_time(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for text in ["", "5", "s", "0s", "-1s", "25h", "1s burst 5", "soon"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
