//! The reasons why the program ends early.

use std::fmt::Display;
use std::io;

/// The reason why the program ends early.
#[derive(Debug)]
pub enum Failure {
    /// The program cannot continue; the message says what was refused and what is allowed. Exit
    /// code 2.
    Refused(String),
    /// The reader of standard output has closed it, as `head` does. Exit code 0, without a message.
    ReaderLeft,
}

impl Failure {
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }

    /// A failed write to `place`.
    pub fn writing(place: impl Display, error: &io::Error) -> Self {
        Self::Refused(format!("cannot write to {place}: {error}"))
    }

    /// A failed write to standard output.
    pub fn writing_stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderLeft
        } else {
            Self::writing("standard output", error)
        }
    }

    /// A failed read of `place`.
    pub fn reading(place: impl Display, error: &io::Error) -> Self {
        Self::Refused(format!("cannot read {place}: {error}"))
    }
}
