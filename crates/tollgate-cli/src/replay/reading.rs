//! Reads logs line by line, for every kind of replay.
//!
//! The first line of a log that can be a record opens the log's [`Source`], which finds the request
//! in each line. Other threads may parse the lines of a long log ([`parallel`]). A [`Reader`]
//! receives the requests in the order of their lines, whichever thread has parsed them.

use std::io::{self, Read};

use super::input::Input;
use super::log::formats::Format;
use super::log::lines::{self, Line, Lines};
use super::log::parallel::{self, LINES_ALONE};
use super::log::request::Reason;
use super::log::schema::Unopened;
use super::log::summary::LogSummary;
use super::position::Position;
use super::progress::Progress;
use crate::failure::Failure;

/// Finds the requests in the lines of one log.
pub(super) trait Source: Sized + Send + 'static {
    /// What a line contains besides its values.
    type Request: Send + 'static;

    /// Reads one line, and writes its values into `values`, which must be empty. Returns `None` if
    /// the line describes the log, or is part of a split line that is still incomplete.
    fn read(&mut self, text: &[u8], values: &mut Vec<u8>) -> Result<Option<Self::Request>, Reason>;

    /// Returns a source for the same log on another thread, or `None` if lines in the log depend on
    /// earlier lines.
    fn again(&self) -> Option<Self>;

    /// Returns the number of split lines whose last part has not been read.
    fn incomplete(&self) -> usize;

    /// Returns, for each field of the key, the number of requests in which the field has no value.
    fn missing(&self) -> &[u64];
}

/// The logs of a replay.
pub(super) struct Logs<S> {
    pub(super) summary: LogSummary,
    /// The source of each log, or `None` until the log is opened.
    pub(super) sources: Vec<Option<S>>,
}

impl<S> Logs<S> {
    pub(super) fn new(inputs: &[Input], key_fields: usize, strict: bool) -> Self {
        let summary = LogSummary::new(inputs.iter().map(Input::to_string).collect(), key_fields, strict);
        Self { summary, sources: inputs.iter().map(|_| None).collect() }
    }
}

/// Receives the requests of all logs.
pub(super) trait Reader {
    type Source: Source;

    fn logs(&mut self) -> &mut Logs<Self::Source>;

    /// Recognises the format of a log from its first line.
    fn recognise(&self, first: &[u8]) -> Result<(Format, Self::Source), Unopened>;

    /// Called before a log is opened.
    fn opening(&mut self, _file: usize, _source: &Self::Source) -> Result<(), Failure> {
        Ok(())
    }

    /// Receives the request of a line.
    fn take(
        &mut self,
        request: <Self::Source as Source>::Request,
        values: &[u8],
        position: Position,
    ) -> Result<(), Failure>;
}

/// The result of parsing a line.
enum Parsed<R> {
    Request(R),
    /// The line describes the log, or is part of a split line that is still incomplete.
    Header,
    Blank,
    Bad(Reason),
}

/// Reads all logs to their ends, with this many threads.
pub(super) fn read_all(
    reader: &mut impl Reader,
    inputs: &[Input],
    threads: usize,
    progress: &mut Progress,
) -> Result<(), Failure> {
    for (file, input) in inputs.iter().enumerate() {
        // The bytes are counted before decompression.
        let from = progress.counted(input.open()?);
        read(reader, (file, input), from, threads, progress)?;
    }
    Ok(())
}

/// Reads one log to its end, with this many threads. `file` is the index of the log among the
/// inputs.
pub(super) fn read<R: Reader>(
    reader: &mut R,
    (file, input): (usize, &Input),
    from: impl Read,
    threads: usize,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let unreadable = |error: io::Error| Failure::reading(input, &error);
    let mut lines = Lines::new(lines::unpacked(from).map_err(unreadable)?);
    read_lines(reader, (file, input), &mut lines, LINES_ALONE, progress)?;
    let opened = reader.logs().sources[file].as_ref();
    let parsers: Vec<R::Source> = (1..threads).map_while(|_| opened?.again()).collect();
    let (counts, number) = if parsers.is_empty() {
        read_lines(reader, (file, input), &mut lines, u64::MAX, progress)?;
        (lines.counts(), lines.number())
    } else {
        let take = |parsed, values: &[u8], line| {
            progress.tick();
            count(reader, parsed, values, Position { file, line })
        };
        let (parsers, mut lines) = parallel::read(lines, parsers, parse_on_thread, unreadable, take)?;
        for source in &parsers {
            add_missing(&mut reader.logs().summary, source.missing());
        }
        read_lines(reader, (file, input), &mut lines, u64::MAX, progress)?;
        (lines.counts(), lines.number())
    };
    let Logs { summary, sources } = reader.logs();
    add_missing(summary, sources[file].as_ref().map_or(&[], Source::missing));
    // The last part of each incomplete line has been counted as a header.
    for _ in 0..sources[file].as_ref().map_or(0, Source::incomplete) {
        summary.files[file].header -= 1;
        let reason = "the log ends here, but the rest of a split line is missing";
        summary.bad_line(Position { file, line: number }, reason.into())?;
    }
    summary.files[file].skipped_nuls = counts.skipped;
    summary.files[file].is_open = counts.is_open;
    Ok(())
}

fn add_missing(summary: &mut LogSummary, missing: &[u64]) {
    summary.missing.iter_mut().zip(missing).for_each(|(all, missing)| *all += missing);
}

/// Reads at most `most` lines of a log.
fn read_lines(
    reader: &mut impl Reader,
    (file, input): (usize, &Input),
    lines: &mut Lines<impl Read>,
    most: u64,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut values = Vec::new();
    let mut read = 0;
    while read < most
        && let Some(line) = lines.next_line().map_err(|error| Failure::reading(input, &error))?
    {
        read += 1;
        values.clear();
        let parsed = parse(reader, (file, input), &line, &mut values)?;
        count(reader, parsed, &values, Position { file, line: lines.number() })?;
        progress.tick();
    }
    Ok(())
}

/// Counts a line, and passes its request on.
#[inline]
fn count<R: Reader>(
    reader: &mut R,
    parsed: Parsed<<R::Source as Source>::Request>,
    values: &[u8],
    position: Position,
) -> Result<(), Failure> {
    let file = &mut reader.logs().summary.files[position.file];
    file.lines += 1;
    match parsed {
        Parsed::Request(request) => reader.take(request, values, position)?,
        Parsed::Header => file.header += 1,
        Parsed::Blank => file.blank += 1,
        Parsed::Bad(reason) => reader.logs().summary.bad_line(position, reason)?,
    }
    Ok(())
}

/// Parses a line. The first line that can be a record opens the log.
#[inline]
fn parse<R: Reader>(
    reader: &mut R,
    (file, input): (usize, &Input),
    line: &Line<'_>,
    values: &mut Vec<u8>,
) -> Result<Parsed<<R::Source as Source>::Request>, Failure> {
    let text = match text(line) {
        Ok(text) => text,
        Err(parsed) => return Ok(parsed),
    };
    if reader.logs().sources[file].is_none() {
        match reader.recognise(text) {
            Ok((format, source)) => {
                reader.opening(file, &source)?;
                let Logs { summary, sources } = reader.logs();
                summary.files[file].format = Some(format);
                sources[file] = Some(source);
                if format == Format::Csv {
                    return Ok(Parsed::Header);
                }
            }
            Err(Unopened::NotARecord(reason)) => return Ok(Parsed::Bad(reason)),
            Err(Unopened::Directive) => return Ok(Parsed::Header),
            Err(Unopened::Refused(message)) => return Err(Failure::refused(format!("{input}: {message}"))),
        }
    }
    let of_no_format = || Parsed::Bad("it is of no format".into());
    let source = reader.logs().sources[file].as_mut();
    Ok(source.map_or_else(of_no_format, |source| parse_with(source, text, values)))
}

/// Returns the text of a line, or the result of parsing a line without text.
#[inline]
fn text<'l, R>(line: &Line<'l>) -> Result<&'l [u8], Parsed<R>> {
    match *line {
        Line::Text(text) => {
            let is_blank = text.first().is_none_or(u8::is_ascii_whitespace) && text.trim_ascii().is_empty();
            if is_blank { Err(Parsed::Blank) } else { Ok(text) }
        }
        Line::TooLong => Err(Parsed::Bad(format!("it is longer than {} bytes", lines::MAX_LINE).into())),
    }
}

#[inline]
fn parse_with<S: Source>(source: &mut S, text: &[u8], values: &mut Vec<u8>) -> Parsed<S::Request> {
    match source.read(text, values) {
        Ok(Some(request)) => Parsed::Request(request),
        Ok(None) => Parsed::Header,
        Err(reason) => Parsed::Bad(reason),
    }
}

/// Parses a line of an open log, on another thread.
fn parse_on_thread<S: Source>(source: &mut S, line: &Line<'_>, values: &mut Vec<u8>) -> Parsed<S::Request> {
    text(line).map_or_else(|parsed| parsed, |text| parse_with(source, text, values))
}
