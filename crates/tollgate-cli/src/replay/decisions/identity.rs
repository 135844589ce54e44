//! Whether two names are one regular file: by links, by other paths, by redirection.

use std::fs;
use std::path::Path;

use same_file::Handle;

/// A regular file, equal to itself whatever its name. Terminals, pipes and devices are not asked
/// for: opening a pipe could wait for its writer, and a terminal may be read and written at once.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity(Handle);

impl Identity {
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Handle::from_path(path).ok().map(Self)
    }

    pub(crate) fn of_stdin() -> Option<Self> {
        Self::of_stream(Handle::stdin().ok()?)
    }

    pub(crate) fn of_stdout() -> Option<Self> {
        Self::of_stream(Handle::stdout().ok()?)
    }

    fn of_stream(stream: Handle) -> Option<Self> {
        stream.as_file().metadata().ok()?.is_file().then_some(Self(stream))
    }
}
