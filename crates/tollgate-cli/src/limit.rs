//! Parses quotas from arguments and files, and parts of limits from arguments.

use std::fmt::Display;

use tollgate::Quota;
use tollgate_http::program::parse_quota;
use tollgate_http::settings::{LimitText, PathTemplate, Scope};

use crate::failure::Failure;
use crate::printable::printable;

/// Parses a quota found at `place`. An error message starts with `place` and points at the invalid
/// character.
pub(crate) fn parse_limit(text: &str, place: impl Display) -> Result<Quota, Failure> {
    parse_quota(text).map_err(|error| Failure::refused(format!("{place}: {error}")))
}

/// Parses a named limit.
///
/// # Errors
///
/// Returns an error if the text is invalid. The message names the invalid part and lists the values
/// that are allowed there.
pub fn parse_named_limit(text: &str) -> Result<LimitText, Failure> {
    let shown = printable(text.as_bytes());
    text.parse().map_err(|error| Failure::refused(format!("--limit '{shown}': {error}")))
}

/// Parses the values of `--except`.
pub(crate) fn parse_except(texts: &[String]) -> Result<Vec<Scope>, Failure> {
    let except = texts.iter().map(|text| {
        let shown = printable(text.as_bytes());
        text.parse().map_err(|error| Failure::refused(format!("--except '{shown}': {error}")))
    });
    except.collect()
}

/// Parses the values of `--path-template`.
pub(crate) fn parse_path_templates(texts: &[String]) -> Result<Vec<PathTemplate>, Failure> {
    let parsed = texts
        .iter()
        .map(|path| path.parse().map_err(|error| Failure::refused(format!("--path-template: {error}"))));
    parsed.collect()
}
