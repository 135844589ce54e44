//! The file in which a process stores the state of its limiters.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A file for the [saved](crate::Limiter::save) state of limiters. Only one process at a time can
/// use the file.
///
/// A write replaces the whole file atomically. If the process is killed during a write, the earlier
/// file remains. On Unix, only the owner of the file can read and write it, because its contents
/// are [secret](crate::Limiter::save).
///
/// Two other files are created in the same folder: a lock file with the suffix `.lock`, which is
/// never removed, and a file with the suffix `.new`, which exists only during a write. If the
/// process is killed during a write, the next write removes the remaining `.new` file.
///
/// After a fork, parent and child share the lock, until both have ended. Only one of the two may
/// write.
///
/// ```
/// use tollgate::{Limiter, Quota, StateFile};
///
/// let builder = || Limiter::<str>::builder(Quota::per_hour(100));
/// # let folder = std::env::temp_dir().join(format!("tollgate-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("limiter.state");
/// let file = StateFile::open(path)?;
/// let limiter = match file.read()? {
///     Some(saved) => builder().load(saved)?,
///     None => builder().build()?,
/// };
/// // ... and at the end, or every few seconds:
/// file.write(|file| limiter.save(file))?;
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// The lock file, which is locked for as long as it is open. The mutex is held during a write.
    lock: Mutex<File>,
}

impl StateFile {
    /// Reserves the file for this process. The file itself does not have to exist. A relative path
    /// means the same file even if the process later changes its working directory.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`WouldBlock`](io::ErrorKind::WouldBlock) if another process
    /// uses the file, or if this process has already opened it. Returns an error of the kind
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) if the path is empty, or if it leads to
    /// something other than a regular file, such as a folder, a symbolic link or a device, because
    /// a write would replace it. Also returns the errors of creating and locking the lock file.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = std::path::absolute(path.into())?;
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
            let other = "not a regular file, which a write would replace; choose another path";
            return Err(of(&path, io::Error::new(io::ErrorKind::InvalidInput, other)));
        }
        let lock_path = with_suffix(&path, ".lock");
        let lock =
            private().append(true).create(true).open(&lock_path).map_err(|error| of(&lock_path, error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, lock: Mutex::new(lock) }),
            Err(TryLockError::WouldBlock) => {
                let used = "another process uses this state; each process needs a file of its own";
                Err(of(&path, io::Error::new(io::ErrorKind::WouldBlock, used)))
            }
            Err(TryLockError::Error(error)) => Err(of(&lock_path, error)),
        }
    }

    /// Returns the absolute path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for reading. Returns `None` if the file does not exist.
    ///
    /// # Errors
    ///
    /// Returns the errors of opening the file.
    pub fn read(&self) -> io::Result<Option<File>> {
        match File::open(&self.path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(of(&self.path, error)),
        }
    }

    /// Replaces the contents of the file with the bytes that `write` writes. If `write` returns an
    /// error, the earlier file remains.
    ///
    /// The new contents are on the disk before they replace the earlier contents, so the file is
    /// complete even after a power failure. This method therefore waits for the disk. Threads that
    /// write at the same time wait for each other.
    ///
    /// # Errors
    ///
    /// Returns the errors of `write`, and of creating, writing and renaming the file. On Unix, the
    /// folder is written to the disk last; if only this step fails, the file has already been
    /// replaced.
    pub fn write(&self, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        let new = with_suffix(&self.path, ".new");
        // An earlier write that panicked leaves at most an incomplete new file, which is removed.
        let _one_at_a_time = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let written = self.write_to(&new, write);
        if written.is_err() {
            // The error of the write matters more than that of the removal.
            let _ = fs::remove_file(&new);
        }
        written.map_err(|error| of(&self.path, error))
    }

    fn write_to(&self, new: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
        // A file that an earlier process has left may have another owner or other permissions.
        match fs::remove_file(new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private().write(true).create_new(true).open(new)?;
        write(&mut file)?;
        file.sync_all()?;
        fs::rename(new, &self.path)?;
        sync_folder(&self.path)
    }

    /// Renames a file whose state is unusable, so that the file can be examined, and returns the
    /// new path, which has the suffix `.unusable`. An earlier file of that name is replaced.
    ///
    /// # Errors
    ///
    /// Returns the errors of renaming the file.
    pub fn set_aside(&self) -> io::Result<PathBuf> {
        let aside = with_suffix(&self.path, ".unusable");
        fs::rename(&self.path, &aside).map_err(|error| of(&self.path, error))?;
        Ok(aside)
    }
}

/// Returns options that create a file. On Unix, only the owner can read and write this file.
fn private() -> OpenOptions {
    let options = OpenOptions::new();
    #[cfg(unix)]
    let options = {
        let mut options = options;
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options
    };
    options
}

/// Makes a renamed file survive a power failure.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// On other systems, a folder cannot be opened, and a rename is enough.
#[cfg(not(unix))]
fn sync_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Names the file in an error.
fn of(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
