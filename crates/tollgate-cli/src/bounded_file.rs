//! Reads files whose size has a bound, because a path may also name a device without an end.

use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::failure::Failure;

/// Reads a file of at most `most` bytes. `what` names the file in errors that concern its size, and
/// `source` in errors of the system.
///
/// # Errors
///
/// Returns an error if the file cannot be read or is larger.
pub(crate) fn read(
    path: &Path,
    most: u64,
    what: impl Display,
    source: impl Display,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    let length = read.map_err(|error| Failure::reading(source, &error))?;
    if length as u64 > most {
        return Err(Failure::refused(format!(
            "{what} has more than {most} bytes, which is the most allowed; name another file, or make it smaller"
        )));
    }
    Ok(bytes)
}
