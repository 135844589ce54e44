//! The error returned when text cannot be parsed.

use thiserror::Error;

/// The error for text that cannot be parsed. The message describes the mistake and the expected
/// form.
///
/// The message is safe to print. Because it does not name the source of the text, print the source
/// first.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct TextError {
    message: String,
}

impl TextError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
