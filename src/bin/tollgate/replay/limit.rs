//! A limit as people write it, and where it goes wrong.

use std::fmt::Display;

use tollgate::{Quota, QuotaParseError};

use super::failure::Failure;
use super::printable::printable;

/// The quota, or a message that names the `place` of the text and points at the character where it goes wrong.
pub(crate) fn parse_limit(text: &str, place: impl Display) -> Result<Quota, Failure> {
    text.parse().map_err(|error: QuotaParseError| {
        let shown = printable(text.as_bytes());
        let before = text.get(..error.offset()).unwrap_or(text);
        let column = printable(before.as_bytes()).chars().count();
        Failure::refused(format!("{place}: {error}\n  {shown}\n  {:column$}^", ""))
    })
}
