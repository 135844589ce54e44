//! Writes the access log in formats that `tollgate replay` can read.
//!
//! Requests send their log lines to a separate thread and never wait for that thread. If the thread
//! falls behind, lines are discarded and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use super::entry::LogFormat;
use crate::failure::Failure;
use crate::printable::printable_path;
use crate::proxy::log_line::{self, Level, RareLine};

/// The maximum number of lines in the queue.
const WAITING: usize = 16_384;
/// How long the output may accept no lines while the proxy shuts down.
const PATIENCE: Duration = Duration::from_secs(2);
/// The maximum number of bytes in a single write, unless one line is longer.
const BUFFER: usize = 1 << 16;

/// A file or standard output.
pub(crate) type LogOutput = Box<dyn Write + Send>;

/// A message to the [`Writer`].
enum Order {
    Write(Vec<u8>),
    /// Write all later lines to this output.
    WriteTo(LogOutput),
    End,
}

/// Sends lines to the [`Writer`].
#[derive(Clone)]
pub(crate) struct AccessLog {
    orders: SyncSender<Order>,
    path: Arc<Path>,
    pub(crate) format: LogFormat,
    lost: Counter,
}

/// The thread that writes the log.
pub(crate) struct Writer {
    orders: SyncSender<Order>,
    /// Receives a message when the thread has carried out an order, and is disconnected when the
    /// thread has ended.
    moved: Receiver<()>,
}

impl AccessLog {
    /// Opens a log for appending. The path '-' means standard output.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened.
    pub(crate) fn open(path: &Path, format: LogFormat, lost: Counter) -> Result<(Self, Writer), Failure> {
        let output = output(path)?;
        let (orders, waiting) = sync_channel(WAITING);
        let (moves, moved) = sync_channel(1);
        let counter = lost.clone();
        thread::Builder::new()
            .name("access log".to_owned())
            .spawn(move || write_all(&waiting, &moves, output, counter))
            .map_err(|error| Failure::refused(format!("no thread for the access log: {error}")))?;
        Ok((Self { orders: orders.clone(), path: path.into(), format, lost }, Writer { orders, moved }))
    }

    /// Queues a line.
    pub(crate) fn write(&self, line: Vec<u8>) {
        if self.orders.try_send(Order::Write(line)).is_err() {
            self.lost.inc();
        }
    }

    /// Opens the log's file again. If the old file was renamed, this creates a new file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened.
    pub(crate) fn output(&self) -> Result<LogOutput, Failure> {
        output(&self.path)
    }

    /// Checks whether the log can be opened, without leaving a file behind.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        check(&self.path)
    }

    /// Switches to this output once the queued lines have been written. Waits if the queue is full.
    pub(crate) fn write_to(&self, output: LogOutput) {
        // This call fails only if the thread has already ended.
        let _ = self.orders.send(Order::WriteTo(output));
    }
}

fn output(path: &Path) -> Result<LogOutput, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let file: io::Result<File> = OpenOptions::new().append(true).create(true).open(path);
    Ok(Box::new(file.map_err(|error| unwritable(path, &error))?))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let path = printable_path(path);
    Failure::refused(format!("--access-log '{path}' cannot be written ({error}); name a file that can be"))
}

/// Checks whether a log can be opened, without leaving a file behind.
///
/// # Errors
///
/// Returns an error if the file cannot be opened.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return Ok(());
    }
    let opened = match OpenOptions::new().append(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            tempfile::tempfile_in(folder.unwrap_or(Path::new("."))).map(drop)
        }
        opened => opened.map(drop),
    };
    opened.map_err(|error| unwritable(path, &error))
}

impl Writer {
    /// Writes the queued lines, and ends the thread. If the output accepts no lines for
    /// [`PATIENCE`], the remaining lines are lost.
    pub(crate) fn finish(self) {
        loop {
            // If the queue is full, the order is sent again after the thread has taken a line from
            // the queue. The thread ends at the first of these orders, so further orders do no
            // harm.
            let _ = self.orders.try_send(Order::End);
            match self.moved.recv_timeout(PATIENCE) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let line = "the access log takes no lines, and its last lines are lost";
                    log_line::last(Level::Warn, line.to_owned());
                    return;
                }
            }
        }
    }
}

fn write_all(orders: &Receiver<Order>, moves: &SyncSender<()>, output: LogOutput, lost: Counter) {
    let mut lines = PendingLines::new(output, lost);
    loop {
        let order = match orders.try_recv() {
            Ok(order) => order,
            Err(TryRecvError::Disconnected) => Order::End,
            Err(TryRecvError::Empty) => {
                // Lines are flushed whenever the queue is empty, which keeps the log up to date.
                lines.flush();
                orders.recv().unwrap_or(Order::End)
            }
        };
        match order {
            Order::Write(line) => lines.add(&line),
            Order::WriteTo(output) => lines.write_to(output),
            Order::End => return lines.flush(),
        }
        // One message is enough, so it does not matter if the channel is full.
        let _ = moves.try_send(());
    }
}

/// Lines that were taken from the queue but not yet written to the output.
struct PendingLines {
    output: LogOutput,
    waiting: Vec<u8>,
    /// Whether the output ends in the middle of a line.
    is_torn: bool,
    lost: Counter,
    /// Warns that the output accepts no lines.
    notice: RareLine,
}

impl PendingLines {
    fn new(output: LogOutput, lost: Counter) -> Self {
        let waiting = Vec::with_capacity(BUFFER);
        Self { output, waiting, is_torn: false, lost, notice: RareLine::new() }
    }

    fn add(&mut self, line: &[u8]) {
        if self.waiting.len() + line.len() > BUFFER {
            self.flush();
        }
        self.waiting.extend_from_slice(line);
    }

    /// Writes the lines. Lines that the output does not accept are discarded, so memory usage does
    /// not grow while a disk is full. If part of a line has been written, the rest of it is kept,
    /// so that the next line does not begin in the middle of an unfinished line.
    fn flush(&mut self) {
        let (written, done) = write_some(&mut self.output, &self.waiting);
        if let Some(&last) = self.waiting[..written].last() {
            self.is_torn = last != b'\n';
        }
        self.waiting.drain(..written);
        if let Err(error) = done {
            let end = self.waiting.iter().position(|&byte| byte == b'\n').filter(|_| self.is_torn);
            self.drop_after(end.map_or(0, |end| end + 1));
            self.notice.log(format_args!("the access log cannot be written, and lines are lost: {error}"));
        }
    }

    /// Writes all later lines to this output.
    fn write_to(&mut self, output: LogOutput) {
        self.flush();
        self.drop_after(0);
        self.output = output;
        self.is_torn = false;
    }

    /// Discards the lines after the first `kept` bytes, and counts the discarded lines.
    fn drop_after(&mut self, kept: usize) {
        let lost = self.waiting[kept..].iter().filter(|&&byte| byte == b'\n').count();
        self.lost.inc_by(lost as u64);
        self.waiting.truncate(kept);
    }
}

/// Writes bytes until the output accepts no more, and returns the number of bytes written.
fn write_some(output: &mut LogOutput, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        match output.write(&bytes[written..]) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (written, Err(error)),
        }
    }
    (written, output.flush())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// A file on a disk with limited space. Stores the file's content and the number of free bytes.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Disk {
        fn make_room(&self, bytes: usize) {
            self.0.lock().expect("no thread has panicked").1 = bytes;
        }

        fn content(&self) -> String {
            String::from_utf8_lossy(&self.0.lock().expect("no thread has panicked").0).into_owned()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.0.lock().expect("no thread has panicked");
            let taken = bytes.len().min(disk.1);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            disk.0.extend_from_slice(&bytes[..taken]);
            disk.1 -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted_and_none_is_torn() {
        let (disk, lost) = (Disk::default(), Counter::default());
        let mut lines = PendingLines::new(Box::new(disk.clone()), lost.clone());
        disk.make_room(6);
        for line in ["one\n", "two\n", "three\n"] {
            lines.add(line.as_bytes());
        }
        lines.flush();
        assert_eq!((disk.content().as_str(), lost.get()), ("one\ntw", 1));
        // The disk stays full.
        lines.add(b"four\n");
        lines.flush();
        assert_eq!((disk.content().as_str(), lost.get()), ("one\ntw", 2));
        disk.make_room(100);
        lines.add(b"five\n");
        lines.flush();
        assert_eq!((disk.content().as_str(), lost.get()), ("one\ntwo\nfive\n", 2));
        // The rest of a partly written line is not written to another file.
        disk.make_room(2);
        lines.add(b"six\n");
        let other = Disk::default();
        other.make_room(100);
        lines.write_to(Box::new(other.clone()));
        lines.add(b"seven\n");
        lines.flush();
        assert_eq!((other.content().as_str(), lost.get()), ("seven\n", 3));
    }

    #[test]
    fn a_log_that_is_full_of_long_lines_takes_no_more_memory() {
        let lost = Counter::default();
        let mut lines = PendingLines::new(Box::new(Disk::default()), lost.clone());
        for _ in 0..1000 {
            lines.add(format!("{:1000}\n", "").as_bytes());
        }
        lines.flush();
        assert_eq!((lost.get(), lines.waiting.len()), (1000, 0));
        assert!(lines.waiting.capacity() <= 2 * BUFFER);
    }
}
