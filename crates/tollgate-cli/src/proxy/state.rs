//! Keeps the counts of local limits in the file of `--state`, so that a restart forgives no key.
//!
//! A thread writes the file every few seconds, and once more at the end, when no request is open
//! any more. A proxy that is killed therefore loses the counts of the last few seconds.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::metrics::counter::Counter;
use tollgate::{LoadError, StateFile};
use tollgate_http::program::of_classes;
use tollgate_http::settings::SavedLimits;

use super::limits::Limits;
use super::log_line::{self, Level};
use super::settings::ProxySettings;
use crate::failure::Failure;
use crate::printable::{printable, printable_path};

/// How often the file is written.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long the last write may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Takes the file for this process, and reads it. A file that cannot be used is moved aside.
///
/// # Errors
///
/// Returns an error if another process uses the file, if the path is not that of a file, or if the
/// file cannot be locked or read.
pub(crate) fn open(path: &Path) -> Result<(StateFile, SavedLimits), Failure> {
    check_kind(path)?;
    let file = StateFile::open(path).map_err(|error| refused(&error))?;
    let saved = read(path)?.unwrap_or_else(|why| {
        let aside = file.set_aside();
        let aside = aside.map_or_else(
            |error| format!("it cannot be moved aside: {}", printable(error.to_string().as_bytes())),
            |aside| format!("it is moved to {}", printable_path(&aside)),
        );
        log_line::warn(format_args!("{why}; {aside}; all limits begin without counts"));
        SavedLimits::default()
    });
    Ok((file, saved))
}

/// Checks whether [`open`] would succeed, apart from other processes, and reads the file. Leaves no
/// file behind, and moves none.
///
/// # Errors
///
/// Returns an error if the path is not that of a file, if no file can be created in its folder, or
/// if the file or its lock file cannot be opened.
pub(crate) fn check(path: &Path) -> Result<SavedLimits, Failure> {
    check_kind(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map_err(|error| of_file(path, &error))?;
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    // The start creates a lock file that does not exist, and opens an existing one.
    match fs::OpenOptions::new().append(true).open(&lock) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(of_file(lock.as_ref(), &error)),
        _ => {}
    }
    Ok(read(path)?.unwrap_or_else(|why| {
        log_line::warn(format_args!("{why}; the start would move it aside, and begin without counts"));
        SavedLimits::default()
    }))
}

/// Only a regular file may be replaced or moved aside.
fn check_kind(path: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(Failure::refused(format!(
            "--state '{}' is {}: expected the name of a file, which need not exist",
            printable_path(path),
            if found.is_symlink() { "a symbolic link" } else { "not a file" }
        ))),
        _ => Ok(()),
    }
}

/// Reads the file, if it exists. The inner error is the beginning of a sentence that says why the
/// contents are unusable.
///
/// # Errors
///
/// Returns an error if the file cannot be read. Its contents may then be good.
fn read(path: &Path) -> Result<Result<SavedLimits, String>, Failure> {
    let saved = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(SavedLimits::default())),
        file => file.map_err(LoadError::Read).and_then(SavedLimits::read),
    };
    match saved {
        Ok(saved) => Ok(Ok(saved)),
        Err(LoadError::Read(error)) => Err(of_file(path, &error)),
        Err(error) => {
            let why = printable(error.to_string().as_bytes());
            Ok(Err(format!("--state '{}': {why}", printable_path(path))))
        }
    }
}

/// Names the file in an error.
fn of_file(path: &Path, error: &io::Error) -> Failure {
    refused(&io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

fn refused(error: &io::Error) -> Failure {
    Failure::refused(format!("--state: {}", printable(error.to_string().as_bytes())))
}

/// Returns a warning if no limit has counts that the file could contain.
pub(crate) fn warning(settings: &ProxySettings, limits: &Limits) -> Option<&'static str> {
    let mut local = limits.local().flat_map(|(limit, limiter)| of_classes(limit, limiter));
    (settings.state.is_some() && !local.any(|(_, allowance)| allowance.rate().is_some())).then_some(
        "--state keeps nothing, because no limit counts a rate in this proxy: limits that are shared through \
         --redis keep their counts there, and requests at once end with the proxy",
    )
}

/// The thread that writes the file.
pub(crate) struct StateWriter {
    end: SyncSender<()>,
    /// Is disconnected when the thread has ended.
    ended: Receiver<()>,
}

impl StateWriter {
    /// # Errors
    ///
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start(
        file: StateFile,
        limits: Arc<ArcSwap<Limits>>,
        failures: Counter,
    ) -> Result<Self, Failure> {
        let (end, ending) = sync_channel::<()>(0);
        let (ends, ended) = sync_channel::<()>(0);
        let mut state = State { file, limits, failures, is_written: true };
        let write_all = move || {
            while ending.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                state.write();
            }
            state.write();
            drop(ends);
        };
        thread::Builder::new()
            .name("state".to_owned())
            .spawn(write_all)
            .map_err(|error| Failure::refused(format!("no thread for the file of --state: {error}")))?;
        Ok(Self { end, ended })
    }

    /// Writes the file for the last time. No request may be open any more.
    pub(crate) fn finish(self) {
        let Self { end, ended } = self;
        drop(end);
        if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            let line = format!("the state is not written after {PATIENCE:?}, and the last counts are lost");
            log_line::last(Level::Warn, line);
        }
    }
}

/// The file, and the limits that it belongs to.
struct State {
    file: StateFile,
    limits: Arc<ArcSwap<Limits>>,
    failures: Counter,
    /// Whether the last write succeeded.
    is_written: bool,
}

impl State {
    /// Writes the counts of the limits in force. Only the first of several errors is logged.
    fn write(&mut self) {
        let limits = self.limits.load_full();
        let Some(layer) = &limits.layer else { return };
        let written = self.file.write(|file| layer.save(file));
        let (was_written, is_written) = (self.is_written, written.is_ok());
        self.is_written = is_written;
        match written {
            Ok(()) if was_written => {}
            Ok(()) => log_line::info(format_args!("the state is written again")),
            Err(error) => {
                self.failures.inc();
                if was_written {
                    log_line::warn(format_args!(
                        "the state cannot be written: {}; a restart would lose the counts since the last write",
                        printable(error.to_string().as_bytes())
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_contents_make_a_file_unusable() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        assert!(matches!(read(&path("none")), Ok(Ok(_))));
        fs::write(path("damaged"), "tollgate-http").expect("a file");
        let Ok(Err(why)) = read(&path("damaged")) else { panic!("it is truncated") };
        assert!(why.ends_with("it is truncated"), "{why}");
        // The first of these paths can be opened and not read, and the second cannot be opened.
        for path in [folder.path().to_owned(), path(&"n".repeat(300))] {
            let Err(Failure::Refused(why)) = read(&path) else { panic!("it cannot be read") };
            assert!(why.starts_with(&format!("--state: {}: ", path.display())), "{why}");
        }
    }
}
