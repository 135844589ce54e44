//! A quota from an argument or a file, and where it goes wrong.

use std::fmt::Display;

use tollgate::Quota;
use tollgate_http::text::parse_quota;

use crate::failure::Failure;

/// The quota, or a message that names the `place` of the text and points at the character where it
/// goes wrong.
pub(crate) fn parse_limit(text: &str, place: impl Display) -> Result<Quota, Failure> {
    parse_quota(text).map_err(|error| Failure::refused(format!("{place}: {error}")))
}
