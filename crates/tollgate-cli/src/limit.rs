//! Parses a quota from an argument or a file.

use std::fmt::Display;

use tollgate::Quota;
use tollgate_http::program::parse_quota;

use crate::failure::Failure;

/// Parses a quota. The error names the `place` of the text and points at the wrong character.
pub(crate) fn parse_limit(text: &str, place: impl Display) -> Result<Quota, Failure> {
    parse_quota(text).map_err(|error| Failure::refused(format!("{place}: {error}")))
}
