//! Parses the lines of a log on several threads, and passes them on in their order.
//!
//! The reading thread cuts the log into chunks of whole lines, and sends these to the parsers in
//! turn. Few chunks exist at a time, so memory does not grow with the log. A line that is longer
//! than [`MAX_LINE`] ends the parallel part: one thread reads the rest of the log.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use memchr::memrchr;

use super::lines::{Counts, Line, Lines, MAX_LINE};

/// The number of lines that one thread reads before the other threads start. A short log is not
/// worth their start.
pub(crate) const LINES_ALONE: u64 = 4096;
const CHUNK: usize = 256 << 10;
/// The number of chunks that may wait for each parser, and of parsed chunks that may wait behind
/// it.
const WAITING: usize = 2;

/// Parses lines.
pub(crate) trait Parser: Send + 'static {
    /// The result of parsing a line, besides its values.
    type Outcome: Send + 'static;

    /// Parses a line, and writes its values into `values`, which must be empty.
    fn parse(&mut self, line: &Line<'_>, values: &mut Vec<u8>) -> Self::Outcome;
}

/// The lines of a chunk.
struct Chunk<O> {
    values: Vec<u8>,
    /// For each line, its outcome, the end of its values, and its number in the chunk.
    lines: Vec<(O, usize, u64)>,
    counts: Counts,
}

/// What is left of a log after its chunks: nothing, or lines that could not be cut into chunks.
type Rest<R> = Lines<io::Chain<Cursor<Vec<u8>>, R>>;

/// A parser on its own thread.
struct Worker<P: Parser> {
    chunks: SyncSender<Vec<u8>>,
    parsed: Receiver<Chunk<P::Outcome>>,
    thread: JoinHandle<P>,
}

impl<P: Parser> Worker<P> {
    fn new(mut parser: P) -> Self {
        let (chunks, to_parse) = sync_channel::<Vec<u8>>(WAITING);
        let (done, parsed) = sync_channel(WAITING);
        let thread = thread::spawn(move || {
            while let Ok(chunk) = to_parse.recv() {
                if done.send(parse(&mut parser, chunk)).is_err() {
                    break;
                }
            }
            parser
        });
        Self { chunks, parsed, thread }
    }
}

fn parse<P: Parser>(parser: &mut P, chunk: Vec<u8>) -> Chunk<P::Outcome> {
    let mut cut = Lines::of(chunk);
    let (mut values, mut lines, mut of_line) = (Vec::new(), Vec::new(), Vec::new());
    // Memory cannot fail to be read.
    while let Ok(Some(line)) = cut.next_line() {
        of_line.clear();
        let outcome = parser.parse(&line, &mut of_line);
        values.extend_from_slice(&of_line);
        let number = cut.number();
        lines.push((outcome, values.len(), number));
    }
    Chunk { values, lines, counts: cut.counts() }
}

/// Parses the rest of a log, whose first lines were read. `take` gets each line in order: what it
/// says, its values and its number. Returns the parsers, and what is left if it has a line that is
/// too long.
///
/// # Errors
///
/// An error of `take`, or an error of reading, converted by `unreadable`.
pub(crate) fn read<P: Parser, R: Read, E>(
    lines: Lines<R>,
    parsers: Vec<P>,
    unreadable: impl Fn(io::Error) -> E,
    mut take: impl FnMut(P::Outcome, &[u8], u64) -> Result<(), E>,
) -> Result<(Vec<P>, Rest<R>), E> {
    let workers: Vec<Worker<P>> = parsers.into_iter().map(Worker::new).collect();
    let mut counts = lines.counts();
    let (mut kept, mut from) = lines.into_rest();
    let (mut sent, mut taken) = (0_usize, 0_usize);
    let mut outcome = Ok(());
    let mut reads = true;
    while outcome.is_ok() && (reads || taken < sent) {
        if reads && sent - taken < workers.len() * WAITING {
            match cut(&mut from, &mut kept) {
                Ok(Some(chunk)) => {
                    // A worker that ended has panicked, and its thread says so below.
                    if workers[sent % workers.len()].chunks.send(chunk).is_err() {
                        break;
                    }
                    sent += 1;
                }
                Ok(None) => reads = false,
                Err(error) => outcome = Err(unreadable(error)),
            }
            continue;
        }
        let Ok(chunk) = workers[taken % workers.len()].parsed.recv() else { break };
        taken += 1;
        let mut from = 0;
        for (line, end, number) in chunk.lines {
            outcome = take(line, &chunk.values[from..end], counts.line_ends + number);
            if outcome.is_err() {
                break;
            }
            from = end;
        }
        counts.line_ends += chunk.counts.line_ends;
        counts.skipped += chunk.counts.skipped;
        counts.is_open |= chunk.counts.is_open;
    }
    let parsers = workers.into_iter().map(|Worker { chunks, parsed, thread }| {
        drop((chunks, parsed));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let parsers = parsers.collect();
    outcome?;
    let lines = Lines::continued(Cursor::new(kept).chain(from), counts);
    Ok((parsers, lines))
}

/// Returns the next chunk of whole lines. `kept` has what was read and is no whole line. `None` is
/// the end of the log, or a line that is too long, which stays in `kept`.
fn cut(from: &mut impl Read, kept: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut chunk = std::mem::take(kept);
    let mut searched = 0;
    loop {
        let length = chunk.len();
        chunk.reserve(CHUNK);
        let count = from.take(CHUNK as u64).read_to_end(&mut chunk)?;
        if count == 0 && length == 0 {
            return Ok(None);
        }
        if count == 0 {
            return Ok(Some(chunk));
        }
        if let Some(end) = memrchr(b'\n', &chunk[searched..]) {
            kept.extend_from_slice(&chunk[searched + end + 1..]);
            chunk.truncate(searched + end + 1);
            return Ok(Some(chunk));
        }
        searched = chunk.len();
        if searched > MAX_LINE {
            *kept = chunk;
            return Ok(None);
        }
    }
}
