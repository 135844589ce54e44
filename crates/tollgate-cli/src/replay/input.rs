//! The inputs of a replay: files and standard input.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::printable::printable_path;

/// One log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    Stdin,
    File(PathBuf),
}

/// The name, safe to print.
impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdin => f.write_str("standard input"),
            Self::File(path) => f.write_str(&printable_path(path)),
        }
    }
}

impl Input {
    /// Returns the input that an argument names; `-` is standard input.
    pub(crate) fn named(argument: PathBuf) -> Self {
        if argument == Path::new("-") { Self::Stdin } else { Self::File(argument) }
    }

    pub(crate) fn open(&self) -> Result<Box<dyn Read>, Failure> {
        Ok(match self {
            Self::Stdin => Box::new(io::stdin().lock()),
            Self::File(path) => Box::new(File::open(path).map_err(|error| Failure::reading(self, &error))?),
        })
    }
}

/// Checks that all files can be read, so that a replay does not fail hours into the run. Returns
/// the total size of the inputs, if it is known.
pub(crate) fn check(inputs: &[Input]) -> Result<Option<u64>, Failure> {
    let mut length = Some(0);
    for input in inputs {
        let Input::File(path) = input else {
            length = None;
            continue;
        };
        let unreadable = |error: io::Error| Failure::reading(input, &error);
        let metadata = fs::metadata(path).map_err(unreadable)?;
        if metadata.is_file() {
            // This check opens only regular files, because opening and closing a pipe would break
            // its writer.
            File::open(path).map_err(unreadable)?;
            length = length.map(|length| length + metadata.len());
        } else {
            length = None;
        }
    }
    Ok(length)
}
