//! Parses quotas, and points at the mistake in an invalid one.

use super::error::TextError;
use super::printable::printable;
use tollgate::{ParseError, Quota};

/// Parses a quota, such as `100/s burst 20`.
///
/// ```
/// let refused = tollgate_http::program::parse_quota("100/fortnight").unwrap_err().to_string();
/// let lines: Vec<&str> = refused.lines().skip(1).collect();
/// assert_eq!(lines, ["  100/fortnight", "      ^"]);
/// ```
///
/// # Errors
///
/// Creates a [`TextError`] with two more lines in its message, which point at the character where
/// parsing failed.
pub fn parse_quota(text: &str) -> Result<Quota, TextError> {
    text.parse().map_err(|error: ParseError| {
        let shown = printable(text.as_bytes());
        let before = error.offset().and_then(|offset| text.get(..offset)).unwrap_or(text);
        let column = printable(before.as_bytes()).chars().count();
        TextError::new(format!("{error}\n  {shown}\n  {:column$}^", ""))
    })
}
