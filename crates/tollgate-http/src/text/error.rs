//! The error of parsing a text.

use thiserror::Error;

/// A text that cannot be parsed. The message describes the mistake and what is expected.
///
/// The message is safe to print. It does not name the source of the text, so add the source in
/// front of the message.
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
