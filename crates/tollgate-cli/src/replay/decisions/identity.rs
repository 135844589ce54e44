//! Determines whether two names refer to the same regular file, even if one is a link, another path
//! or a redirection.

use std::fs;
use std::path::Path;

use same_file::Handle;

/// The identity of a regular file, shared by all names of the file. Terminals, pipes and devices
/// have no identity, because opening a pipe could block until a writer appears, and because a
/// terminal may be read and written at the same time.
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
