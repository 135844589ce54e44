//! Why a replay ended early.

use std::fmt::Display;
use std::io;

/// What ends a replay before its report.
#[derive(Debug)]
pub enum Failure {
    /// It cannot go on; the message says what was refused and what is allowed. Exit code 2.
    Refused(String),
    /// Whoever read our standard output has gone, as `head` does. Nobody is left to tell: exit code 0.
    ReaderLeft,
}

impl Failure {
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }

    /// A write to `place` that failed.
    pub fn writing(place: impl Display, error: &io::Error) -> Self {
        Self::Refused(format!("cannot write to {place}: {error}"))
    }

    /// A write to standard output that failed.
    pub fn writing_stdout(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderLeft
        } else {
            Self::writing("standard output", error)
        }
    }

    /// A read of `place` that failed.
    pub fn reading(place: impl Display, error: &io::Error) -> Self {
        Self::Refused(format!("cannot read {place}: {error}"))
    }
}
