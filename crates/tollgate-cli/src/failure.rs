//! The reasons why the program ends early.

use std::fmt::Display;
use std::io;

use thiserror::Error;

/// Why the program ends early.
#[derive(Debug, Error)]
pub enum Failure {
    /// The program cannot continue. The message names the refused value and the allowed values. The
    /// exit code is 2.
    #[error("{0}")]
    Refused(String),
    /// The program cannot continue, and its log contains the reason. The program prints no message
    /// and exits with code 2.
    #[error("the log says why")]
    Logged,
    /// The reader of standard output has closed the pipe, as `head` does. The program prints no
    /// message and exits with code 0.
    #[error("the reader of standard output has closed it")]
    ReaderLeft,
}

impl Failure {
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }

    /// Returns the failure for an unsuccessful write to `target`.
    pub fn writing(target: impl Display, error: &io::Error) -> Self {
        Self::Refused(format!("cannot write to {target}: {error}"))
    }

    /// Returns the failure for an unsuccessful write to standard output.
    pub fn writing_stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderLeft
        } else {
            Self::writing("standard output", error)
        }
    }

    /// Returns the failure for an unsuccessful read from `source`.
    pub fn reading(source: impl Display, error: &io::Error) -> Self {
        Self::Refused(format!("cannot read {source}: {error}"))
    }
}
