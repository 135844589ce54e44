//! Keeps the counts of a filter's limits in the file of the setting `state`, so that a restart of
//! Envoy forgives no key.
//!
//! # Threads
//!
//! Each file has a thread, which writes the file every few seconds, and once more when the last
//! configuration that uses the file ends. Each file has its own thread so that the thread ends
//! together with its file, and a slow disk delays no other file. No worker waits for a write. Only
//! Envoy's main thread waits, and only for the last write, because Envoy may be about to exit. It
//! waits for at most [`PATIENCE`].
//!
//! # Hot restart
//!
//! In a hot restart, the new process starts while the old process still holds the lock of the file.
//! The new process loads the counts that the old one wrote last, and tries to lock the file before
//! each write. Until then, it writes nothing. The last write of the old process therefore never
//! replaces a write of the new process.

use crate::abi::{INFO, LogLevel, WARN};
use crate::log::{ThreadLog, log};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{self, Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;
use tollgate::StateFile;
use tollgate_http::RateLimitLayer;
use tollgate_http::program::printable;
use tollgate_http::settings::SavedLimits;

/// How often the file is written.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long Envoy's main thread waits for the last write.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns a path that is the same for all spellings of a file's folder.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    let absolute = path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (Some(folder), Some(name)) = (absolute.parent(), absolute.file_name()) else { return absolute };
    // The folder may be created later.
    fs::canonicalize(folder).map_or_else(|_| absolute.clone(), |folder| folder.join(name))
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of the last attempt to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Written,
    /// Another process uses the file.
    InUse,
    Failed,
}

/// A file, and the attempts to write it.
pub(crate) struct CountsFile {
    filter: String,
    path: PathBuf,
    /// The file, if this process has locked it.
    file: Option<StateFile>,
    /// Whether the file must be moved aside before it is written.
    is_unusable: bool,
    last: Outcome,
    log: ThreadLog,
}

impl CountsFile {
    /// Locks a file, unless another process uses it, and reads it. Logs what prevents either. If
    /// `is_serving` is false, only reads the file.
    ///
    /// # Errors
    ///
    /// Returns an error if the path is not that of a file.
    pub(crate) fn open(filter: &str, path: PathBuf, is_serving: bool) -> Result<(Self, SavedLimits), String> {
        let shown = shown(&path);
        // Only a regular file may be replaced or moved aside.
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(format!(
                "state `{shown}` is not a file: expected the name of a file, which need not exist"
            ));
        }
        let filter = printable(filter.as_bytes());
        let mut file = Self {
            filter,
            path,
            file: None,
            is_unusable: false,
            last: Outcome::Written,
            log: ThreadLog::default(),
        };
        // The file is locked before it is read, so that a process that is about to end writes it
        // either before the read or not at all.
        if is_serving && let Err(error) = file.lock() {
            let (outcome, line) = file.failure(&error);
            file.last = outcome;
            file.log(WARN, format_args!("{line}"));
        }
        let saved = match File::open(&file.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(SavedLimits::default()),
            Err(error) => Err(error.to_string()),
            Ok(from) => SavedLimits::read(from).map_err(|error| error.to_string()),
        };
        let saved = saved.unwrap_or_else(|why| {
            let why = printable(why.as_bytes());
            file.log(WARN, format_args!("state `{shown}`: {why}; all limits begin without counts"));
            file.is_unusable = true;
            SavedLimits::default()
        });
        Ok((file, saved))
    }

    /// Locks the file for this process.
    fn lock(&mut self) -> io::Result<&StateFile> {
        let file = match self.file.take() {
            Some(file) => file,
            None => StateFile::open(&self.path)?,
        };
        Ok(self.file.insert(file))
    }

    /// Moves the file aside if it is unusable. Does nothing before the file is locked.
    fn set_aside(&mut self) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.is_unusable) else { return Ok(()) };
        match file.set_aside() {
            Ok(aside) => {
                let (from, to) = (shown(&self.path), shown(&aside));
                self.log(INFO, format_args!("state `{from}` is moved aside to `{to}`"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.is_unusable = false;
        Ok(())
    }

    /// Replaces the file with the counts of a layer.
    fn replace(&mut self, layer: &RateLimitLayer) -> io::Result<()> {
        self.lock()?;
        self.set_aside()?;
        self.lock()?.write(|to| layer.save(to))
    }

    /// Writes the counts of a layer. Logs the first of several failures, and the first success
    /// after them.
    fn write(&mut self, layer: &RateLimitLayer) {
        let shown = shown(&self.path);
        let before = self.last;
        match self.replace(layer) {
            Ok(()) => {
                self.last = Outcome::Written;
                match before {
                    Outcome::Written => {}
                    Outcome::InUse => {
                        self.log(INFO, format_args!("state `{shown}` belongs to this process now"))
                    }
                    Outcome::Failed => self.log(INFO, format_args!("state `{shown}` is written again")),
                }
            }
            Err(error) => {
                let (outcome, line) = self.failure(&error);
                self.last = outcome;
                if before != outcome {
                    self.log(WARN, format_args!("{line}"));
                }
            }
        }
    }

    fn failure(&self, error: &io::Error) -> (Outcome, String) {
        let shown = shown(&self.path);
        if error.kind() == io::ErrorKind::WouldBlock {
            let line = format!(
                "state `{shown}` is in use by another process, as in a hot restart: the limits begin with the counts that \
                 it has written, and this process writes the file as soon as the other one has ended; Envoys that run \
                 side by side need a file each"
            );
            return (Outcome::InUse, line);
        }
        let why = printable(error.to_string().as_bytes());
        let line = format!(
            "state `{shown}` cannot be written: {why}; a restart would lose the counts since the last write"
        );
        (Outcome::Failed, line)
    }

    fn log(&self, level: LogLevel, line: fmt::Arguments<'_>) {
        self.log.log(level, format_args!("filter {}: {line}", self.filter));
    }
}

/// Writes the counts of a filter's newest configuration to a file until it is dropped.
pub(crate) struct StateWriter {
    path: PathBuf,
    filter: String,
    /// The layer of the newest configuration.
    layer: Arc<Mutex<RateLimitLayer>>,
    /// `None` if Envoy only validates its configuration, or if the thread could not be started.
    thread: Option<WriterThread>,
}

struct WriterThread {
    requests: Sender<Request>,
    log: ThreadLog,
    /// The thread that started this one, which is Envoy's main thread.
    main: ThreadId,
}

/// A request to write before the next interval ends. The thread drops the sender afterwards.
enum Request {
    Write(Sender<()>),
    /// The thread unlocks the file after this write, and ends.
    End(Sender<()>),
}

impl StateWriter {
    /// Starts the thread that writes a file, unless `is_serving` is false.
    pub(crate) fn start(mut file: CountsFile, layer: &RateLimitLayer, is_serving: bool) -> Self {
        let layer = Arc::new(Mutex::new(layer.clone()));
        let (path, filter) = (file.path.clone(), file.filter.clone());
        if !is_serving {
            return Self { path, filter, layer, thread: None };
        }
        // If this fails, the first write fails for the same reason.
        let _ = file.set_aside();
        let (requests, requested) = channel();
        let (newest, thread_log) = (Arc::clone(&layer), file.log.clone());
        let write_all = move || {
            loop {
                let request = requested.recv_timeout(INTERVAL);
                let layer = locked(&newest).clone();
                file.write(&layer);
                match request {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(Request::Write(done)) => drop(done),
                    Ok(Request::End(done)) => {
                        // The next configuration may lock the file as soon as this one has ended.
                        drop(file);
                        return drop(done);
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let started = thread::Builder::new().name("tollgate-state".to_owned()).spawn(write_all);
        if let Err(error) = &started {
            let path = shown(&path);
            log(
                WARN,
                format_args!("filter {filter}: state `{path}` is not written, for lack of a thread: {error}"),
            );
        }
        let main = thread::current().id();
        let thread = started.ok().map(|_| WriterThread { requests, log: thread_log, main });
        Self { path, filter, layer, thread }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the layer whose counts are written.
    pub(crate) fn set_layer(&self, layer: &RateLimitLayer) {
        *locked(&self.layer) = layer.clone();
    }

    /// Requests a write now. The receiver is disconnected when the write has ended.
    pub(crate) fn request_write(&self) -> Receiver<()> {
        let (done, is_done) = channel();
        if let Some(thread) = &self.thread {
            // A thread that has panicked receives nothing, and drops the request.
            let _ = thread.requests.send(Request::Write(done));
        }
        is_done
    }
}

impl Drop for StateWriter {
    fn drop(&mut self) {
        let Some(thread) = &self.thread else { return };
        let (done, is_done) = channel();
        let _ = thread.requests.send(Request::End(done));
        // A worker that destroys a configuration does not wait. Its last write is incomplete only
        // if Envoy exits at the same moment.
        let is_main = thread::current().id() == thread.main;
        if is_main && is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            thread.log.close();
            let (filter, path) = (&self.filter, shown(&self.path));
            log(
                WARN,
                format_args!(
                    "filter {filter}: state `{path}` is not written after {PATIENCE:?}, and the counts since the last \
                     write may be lost"
                ),
            );
        }
    }
}

fn shown(path: &Path) -> String {
    printable(path.to_string_lossy().as_bytes())
}
