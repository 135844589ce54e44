//! Why a text is refused.

use std::error::Error;
use std::fmt;

/// A text that means nothing. The message names what was refused and what is allowed there.
///
/// The message is safe to print: see [`printable`](crate::text::printable). It does not say where
/// the text comes from; a program puts that in front of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    message: String,
}

impl TextError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for TextError {}
