//! A path as it is given to a program: `/health`.

use super::error::TextError;
use super::printable::printable;
use std::str::FromStr;

/// The path of a request, such as one that no limit counts for.
///
/// ```
/// use tollgate_http::text::PathText;
///
/// let path: PathText = "/health".parse()?;
/// assert_eq!(path.as_str(), "/health");
/// assert!("health".parse::<PathText>().is_err());
/// assert!("/health?deep=1".parse::<PathText>().is_err());
/// # Ok::<(), tollgate_http::text::TextError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathText(String);

impl PathText {
    /// The path, without a query.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PathText {
    type Err = TextError;

    /// # Errors
    ///
    /// A text that does not begin with `/`, or has a query or a fragment.
    fn from_str(text: &str) -> Result<Self, TextError> {
        if text.starts_with('/') && !text.contains(['?', '#']) {
            return Ok(Self(text.to_owned()));
        }
        Err(TextError::new(format!(
            "'{}' is no path; allowed: what begins with '/' and has no query, as in /health",
            printable(text.as_bytes())
        )))
    }
}
