//! Parses the lines of a log on several threads, and passes the results on in order.
//!
//! The reading thread splits the log into chunks of whole lines, and sends the chunks to the
//! parsers in turn. Only a few chunks exist at a time, so memory does not grow with the log. If a
//! line is longer than [`MAX_LINE`], a single thread reads the rest of the log.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use memchr::memrchr;

use crate::failure::Failure;
use crate::replay::log::lines::{LineCounts, Lines, MAX_LINE};
use crate::replay::log::request::Parsed;
use crate::replay::source::Requests;

/// The number of lines that a single thread reads before the other threads start. For a short log,
/// starting threads costs more time than it saves.
pub(crate) const LINES_ALONE: u64 = 4096;
const CHUNK: usize = 256 << 10;
/// For each parser, the maximum number of chunks that wait to be parsed, and of parsed chunks that
/// wait to be received.
const WAITING: usize = 2;

/// A part of a log that consists of whole lines, with the results of parsing them. Chunks are
/// reused, which saves an allocation for each chunk.
#[derive(Default)]
struct Chunk {
    /// The first `length` bytes of this buffer are the lines.
    text: Vec<u8>,
    length: usize,
    values: Vec<u8>,
    /// For each line: its outcome, the end of its values in `values`, and its number in the chunk.
    lines: Vec<(Parsed, usize, u64)>,
    counts: LineCounts,
}

impl Chunk {
    fn parse(&mut self, requests: &mut Requests, line_end: u8) {
        self.values.clear();
        let mut cut = Lines::of(std::mem::take(&mut self.text), self.length, line_end);
        let mut of_line = Vec::new();
        // Reading from memory never fails.
        while let Ok(Some(line)) = cut.next_line() {
            of_line.clear();
            let parsed = requests.parse(&line, &mut of_line);
            self.values.extend_from_slice(&of_line);
            let number = cut.number();
            self.lines.push((parsed, self.values.len(), number));
        }
        self.counts = cut.counts();
        self.text = cut.into_text();
    }
}

/// The rest of a log after the last chunk: nothing, or lines that could not be split into chunks.
type Rest<R> = Lines<io::Chain<Cursor<Vec<u8>>, R>>;

/// A parser on its own thread.
struct Worker {
    chunks: SyncSender<Chunk>,
    parsed: Receiver<Chunk>,
    thread: JoinHandle<Requests>,
}

impl Worker {
    fn new(mut requests: Requests, line_end: u8) -> Self {
        let (chunks, to_parse) = sync_channel::<Chunk>(WAITING);
        let (done, parsed) = sync_channel(WAITING);
        let thread = thread::spawn(move || {
            while let Ok(mut chunk) = to_parse.recv() {
                chunk.parse(&mut requests, line_end);
                if done.send(chunk).is_err() {
                    break;
                }
            }
            requests
        });
        Self { chunks, parsed, thread }
    }
}

/// Parses the rest of a log whose first lines have already been read, with one thread for each of
/// the `parsers`. Calls `take` for each line in order, with the line's outcome, values and number.
/// Returns the parsers, and the part of the log that is still unread. This part is empty unless a
/// line is too long.
///
/// # Errors
///
/// Returns the first error returned by `take`, or a read error converted by `unreadable`.
pub(crate) fn read<R: Read>(
    lines: Lines<R>,
    parsers: Vec<Requests>,
    unreadable: impl Fn(io::Error) -> Failure,
    mut take: impl FnMut(Parsed, &[u8], u64) -> Result<(), Failure>,
) -> Result<(Vec<Requests>, Rest<R>), Failure> {
    let line_end = lines.line_end();
    let workers: Vec<Worker> = parsers.into_iter().map(|requests| Worker::new(requests, line_end)).collect();
    let mut counts = lines.counts();
    let (mut kept, mut from) = lines.into_rest();
    let (mut sent, mut taken) = (0_usize, 0_usize);
    let mut spare: Vec<Chunk> = Vec::new();
    let mut outcome = Ok(());
    let mut reads = true;
    while outcome.is_ok() && (reads || taken < sent) {
        if reads && sent - taken < workers.len() * WAITING {
            let mut chunk = spare.pop().unwrap_or_default();
            match fill(&mut chunk, &mut from, &mut kept, line_end) {
                Ok(true) => {
                    // A worker ends early only if it panicked. The join below resumes its panic.
                    if workers[sent % workers.len()].chunks.send(chunk).is_err() {
                        break;
                    }
                    sent += 1;
                }
                Ok(false) => reads = false,
                Err(error) => outcome = Err(unreadable(error)),
            }
            continue;
        }
        let Ok(mut chunk) = workers[taken % workers.len()].parsed.recv() else { break };
        taken += 1;
        let mut from = 0;
        for (line, end, number) in chunk.lines.drain(..) {
            outcome = take(line, &chunk.values[from..end], counts.line_ends + number);
            if outcome.is_err() {
                break;
            }
            from = end;
        }
        counts.add(chunk.counts);
        spare.push(chunk);
    }
    let parsers = workers.into_iter().map(|Worker { chunks, parsed, thread }| {
        drop((chunks, parsed));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let parsers = parsers.collect();
    outcome?;
    let lines = Lines::continued(Cursor::new(kept).chain(from), counts, line_end);
    Ok((parsers, lines))
}

/// Fills a chunk with whole lines. On entry, `kept` contains the bytes that have been read but do
/// not belong to a chunk yet. On return, it contains the bytes after the last whole line.
///
/// Returns `false` at the end of the log or at a line that is too long. A line that is too long is
/// left in `kept`.
fn fill(chunk: &mut Chunk, from: &mut impl Read, kept: &mut Vec<u8>, line_end: u8) -> io::Result<bool> {
    let Chunk { text, length, .. } = chunk;
    let mut searched = 0;
    *length = kept.len();
    text.resize(text.len().max(CHUNK + kept.len()), 0);
    text[..kept.len()].copy_from_slice(kept);
    kept.clear();
    loop {
        let has_ended = read_all(from, text, length)?;
        if let Some(end) = memrchr(line_end, &text[searched..*length])
            && !has_ended
        {
            let end = searched + end + 1;
            kept.extend_from_slice(&text[end..*length]);
            *length = end;
            return Ok(true);
        }
        if has_ended {
            return Ok(*length > 0);
        }
        searched = *length;
        if searched > MAX_LINE {
            kept.extend_from_slice(&text[..*length]);
            return Ok(false);
        }
        text.resize(text.len() + CHUNK, 0);
    }
}

/// Reads until `text` is full. Returns whether the log ended first.
fn read_all(from: &mut impl Read, text: &mut [u8], length: &mut usize) -> io::Result<bool> {
    while *length < text.len() {
        match from.read(&mut text[*length..]) {
            Ok(0) => return Ok(true),
            Ok(count) => *length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
