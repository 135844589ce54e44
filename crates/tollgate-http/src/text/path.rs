//! A path as text: `/health`.

use super::error::TextError;
use super::printable::printable;
use crate::path::canonical::canonical_path;
use std::fmt;
use std::str::FromStr;

/// The path of a request, for example one that no limit applies to, in its
/// [canonical form](crate::RequestHead::path).
///
/// ```
/// use tollgate_http::settings::PathText;
///
/// let path: PathText = "/health".parse()?;
/// assert_eq!(path.as_str(), "/health");
/// assert_eq!("//%68ealth".parse::<PathText>()?, path);
/// assert!("health".parse::<PathText>().is_err());
/// assert!("/health?deep=1".parse::<PathText>().is_err());
/// # Ok::<(), tollgate_http::settings::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathText(String);

impl PathText {
    /// Returns the path.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PathText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for PathText {
    type Err = TextError;

    /// # Errors
    ///
    /// A [`TextError`] if the text does not begin with `/`, or has a query or a fragment.
    fn from_str(text: &str) -> Result<Self, TextError> {
        if text.starts_with('/') && !text.contains(['?', '#']) {
            let path = canonical_path(text.as_bytes());
            return Ok(Self(String::from_utf8_lossy(&path).into_owned()));
        }
        Err(TextError::new(format!(
            "invalid path `{}`: expected a path that begins with `/` and has no query, as in `/health`",
            printable(text.as_bytes())
        )))
    }
}
