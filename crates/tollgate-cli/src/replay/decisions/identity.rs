//! Whether two names are one regular file: by links, by other paths, by redirection.

use std::path::Path;

#[cfg(unix)]
mod system {
    use std::fs::{self, File, Metadata};
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    /// The device and the inode.
    pub(crate) type Id = (u64, u64);

    fn of(metadata: &Metadata) -> Option<Id> {
        metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
    }

    fn of_stream(stream: BorrowedFd<'_>) -> Option<Id> {
        let file = File::from(stream.try_clone_to_owned().ok()?);
        of(&file.metadata().ok()?)
    }

    pub(crate) fn of_path(path: &Path) -> Option<Id> {
        of(&fs::metadata(path).ok()?)
    }

    pub(crate) fn of_stdin() -> Option<Id> {
        of_stream(io::stdin().as_fd())
    }

    pub(crate) fn of_stdout() -> Option<Id> {
        of_stream(io::stdout().as_fd())
    }
}

#[cfg(not(unix))]
mod system {
    use std::path::{Path, PathBuf};

    /// The canonical path, which follows links; redirections are unknown on this system.
    pub(crate) type Id = PathBuf;

    pub(crate) fn of_path(path: &Path) -> Option<Id> {
        path.is_file().then(|| path.canonicalize().ok()).flatten()
    }

    pub(crate) fn of_stdin() -> Option<Id> {
        None
    }

    pub(crate) fn of_stdout() -> Option<Id> {
        None
    }
}

/// The identity of a regular file, whatever its name. Other files have none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity(system::Id);

impl Identity {
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        system::of_path(path).map(Self)
    }

    pub(crate) fn of_stdin() -> Option<Self> {
        system::of_stdin().map(Self)
    }

    pub(crate) fn of_stdout() -> Option<Self> {
        system::of_stdout().map(Self)
    }
}
