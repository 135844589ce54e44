//! Keeps the counts of a filter's limits in the file of the setting `state`, so that a restart of
//! Envoy forgives no key.
//!
//! # Contents
//!
//! Several configurations may use a file: those of several listeners, and those of a listener that
//! drains. The file contains each limit once, with its counts in the newest configuration that has
//! the limit. Envoy discards its configurations one after the other when it ends, so a discarded
//! configuration stays in the file until the next one is created. Counts that no configuration has
//! continued yet stay in the file for [`REST_KEPT`], because the listener that has the limit may
//! arrive later, or in a later process.
//!
//! # Threads
//!
//! Each file has a thread, which writes the file every few seconds, and once more when the last
//! configuration that uses the file ends. Each file has its own thread so that the thread ends
//! together with its file, and a slow disk delays no other file. No worker waits for a write. Only
//! Envoy's main thread waits, and only for the last write, because Envoy may be about to exit, or
//! because the next configuration reads the file. It waits for at most [`PATIENCE`].
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
use std::mem;
use std::path::{self, Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};
use tollgate::{LoadError, StateFile};
use tollgate_http::RateLimitLayer;
use tollgate_http::program::{self, printable};
use tollgate_http::settings::SavedLimits;

/// How often the file is written.
const INTERVAL: Duration = Duration::from_secs(5);

/// How long a process keeps counts that no configuration has continued, since the first
/// configuration with the file was created. A process that ends earlier leaves them in the file.
const REST_KEPT: Duration = Duration::from_secs(3_600);

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
    /// Returns an error if the path is not that of a file, or if the file cannot be read. The
    /// counts in such a file may be good.
    pub(crate) fn open(filter: &str, path: PathBuf, is_serving: bool) -> Result<(Self, SavedLimits), String> {
        let shown = shown(&path);
        // Only a regular file may be replaced or moved aside.
        if let Some(found) = fs::symlink_metadata(&path).ok().filter(|found| !found.is_file()) {
            let what = if found.is_symlink() { "a symbolic link" } else { "not a file" };
            return Err(format!(
                "state `{shown}` is {what}: expected the name of a file, which need not exist"
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
            from => from.map_err(LoadError::Read).and_then(SavedLimits::read),
        };
        match saved {
            Ok(saved) => Ok((file, saved)),
            Err(LoadError::Read(error)) => {
                let why = printable(error.to_string().as_bytes());
                Err(format!("state `{shown}` cannot be read: {why}; let Envoy's user read it, or remove it"))
            }
            Err(error) => {
                let why = printable(error.to_string().as_bytes());
                file.log(WARN, format_args!("state `{shown}`: {why}; all limits begin without counts"));
                file.is_unusable = true;
                Ok((file, SavedLimits::default()))
            }
        }
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

    /// Replaces the contents of the file.
    fn replace(&mut self, contents: &Contents) -> io::Result<()> {
        self.lock()?;
        self.set_aside()?;
        let layers = contents.layers.iter().chain(&contents.ended);
        self.lock()?.write(|to| program::save_all(layers, &contents.rest, to))
    }

    /// Writes the file. Logs the first of several failures, and the first success after them.
    fn write(&mut self, contents: &Contents) {
        let shown = shown(&self.path);
        let before = self.last;
        match self.replace(contents) {
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

/// The contents of a file.
#[derive(Clone)]
struct Contents {
    /// The layers of the configurations in force, newest first.
    layers: Vec<RateLimitLayer>,
    /// The layers of the configurations that have ended since the newest one was created, which may
    /// be all configurations if Envoy is about to exit. The last one to end is the first.
    ended: Vec<RateLimitLayer>,
    /// The counts that no configuration has continued.
    rest: SavedLimits,
}

/// Writes the counts of a filter's configurations to a file until it is dropped.
pub(crate) struct StateWriter {
    path: PathBuf,
    filter: String,
    contents: Arc<Mutex<Contents>>,
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
pub(crate) enum Request {
    Write(Sender<()>),
    /// The thread first drops the counts that no configuration has continued.
    DropRest(Sender<()>),
    /// The thread unlocks the file after this write, and ends.
    End(Sender<()>),
}

impl StateWriter {
    /// Starts the thread that writes a file for its first configuration, unless `is_serving` is
    /// false. `rest` contains the counts that this configuration does not continue.
    pub(crate) fn start(
        mut file: CountsFile,
        layers: Vec<RateLimitLayer>,
        rest: SavedLimits,
        is_serving: bool,
    ) -> Self {
        let contents = Arc::new(Mutex::new(Contents { layers, ended: Vec::new(), rest }));
        let (path, filter) = (file.path.clone(), file.filter.clone());
        if !is_serving {
            return Self { path, filter, contents, thread: None };
        }
        // If this fails, the first write fails for the same reason.
        let _ = file.set_aside();
        let (requests, requested) = channel();
        let (newest, thread_log) = (Arc::clone(&contents), file.log.clone());
        let write_all = move || {
            let begun = Instant::now();
            loop {
                let request = requested.recv_timeout(INTERVAL);
                if begun.elapsed() >= REST_KEPT || matches!(request, Ok(Request::DropRest(_))) {
                    let rest = mem::take(&mut locked(&newest).rest);
                    program::not_continued(rest)
                        .iter()
                        .for_each(|line| file.log(INFO, format_args!("{line}")));
                }
                let contents = locked(&newest).clone();
                file.write(&contents);
                match request {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(Request::Write(done) | Request::DropRest(done)) => drop(done),
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
        Self { path, filter, contents, thread }
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the counts that no configuration has continued.
    pub(crate) fn rest(&self) -> SavedLimits {
        locked(&self.contents).rest.clone()
    }

    /// Adds a configuration. `layers` contains the layers of all configurations in force, newest
    /// first, and `rest` the counts that no configuration continues.
    pub(crate) fn add(&self, layers: Vec<RateLimitLayer>, rest: SavedLimits) {
        *locked(&self.contents) = Contents { layers, ended: Vec::new(), rest };
    }

    /// Keeps the layer of a configuration that ends, in case all others end as well. `layers`
    /// contains the layers of the remaining configurations, newest first.
    pub(crate) fn remove(&self, ended: Option<RateLimitLayer>, layers: Vec<RateLimitLayer>) {
        let mut contents = locked(&self.contents);
        contents.layers = layers;
        contents.ended.splice(..0, ended);
    }

    /// Returns whether the current thread is Envoy's main thread, which waits for the last write.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.main == thread::current().id())
    }

    /// Requests a write now. The receiver is disconnected when the write has ended.
    pub(crate) fn request_write(&self, request: fn(Sender<()>) -> Request) -> Receiver<()> {
        let (done, is_done) = channel();
        if let Some(thread) = &self.thread {
            // A thread that has panicked receives nothing, and drops the request.
            let _ = thread.requests.send(request(done));
        }
        is_done
    }
}

impl Drop for StateWriter {
    fn drop(&mut self) {
        let Some(thread) = &self.thread else { return };
        let (done, is_done) = channel();
        let _ = thread.requests.send(Request::End(done));
        let mut all = locked(&LAST_WRITES);
        all.retain(|it| it.is_done.try_recv() == Err(TryRecvError::Empty));
        let (filter, path, log) = (self.filter.clone(), self.path.clone(), thread.log.clone());
        all.push(LastWrite { filter, path, is_done, log });
    }
}

/// The last write of a file, which may be under way.
struct LastWrite {
    filter: String,
    path: PathBuf,
    is_done: Receiver<()>,
    log: ThreadLog,
}

static LAST_WRITES: Mutex<Vec<LastWrite>> = Mutex::new(Vec::new());

/// Waits for the last write of a file, if it is under way, on Envoy's main thread. A worker that
/// destroys a configuration does not wait. Its last write is incomplete only if Envoy exits at the
/// same moment.
pub(crate) fn wait_for_last_write(path: &Path) {
    let mut all = locked(&LAST_WRITES);
    let (of_file, others) = mem::take(&mut *all).into_iter().partition(|it| it.path == path);
    *all = others;
    drop(all);
    let of_file: Vec<LastWrite> = of_file;
    for LastWrite { filter, path, is_done, log: of_thread } in of_file {
        if is_done.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            // Envoy may destroy its log next.
            of_thread.close();
            let path = shown(&path);
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
