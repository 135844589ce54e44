//! Reads logs line by line, for every kind of replay.
//!
//! The first line of a log that can be a record opens the log's [`Requests`], which find the
//! request in each line. Other threads may parse the lines of a long log ([`parallel`]). A
//! [`Reader`] receives the requests in the order of their lines, whichever thread has parsed them.

mod parallel;

use std::io::{self, Read};

use super::input::Input;
use super::log::formats::Format;
use super::log::lines::{self, Line, Lines};
use super::log::request::{Arrived, Parsed};
use super::log::schema::Unopened;
use super::log::summary::LogSummary;
use super::position::Position;
use super::progress::Progress;
use super::settings::LogSettings;
use super::source::{self, Requests};
use crate::failure::Failure;
use parallel::LINES_ALONE;

/// The logs of a replay.
pub(super) struct Logs {
    pub(super) summary: LogSummary,
    /// The requests of each log, or `None` until the log is opened.
    pub(super) requests: Vec<Option<Requests>>,
}

impl Logs {
    pub(super) fn new(settings: &LogSettings) -> Self {
        let LogSettings { inputs, wanted, strict, .. } = settings;
        let names = inputs.iter().map(Input::to_string).collect();
        let summary = LogSummary::new(names, wanted.key.len(), *strict);
        Self { summary, requests: inputs.iter().map(|_| None).collect() }
    }
}

/// Receives the requests of all logs.
pub(super) trait Reader {
    fn logs(&mut self) -> &mut Logs;

    /// Recognizes the format of a log from its first line.
    fn recognize(&self, first: &[u8]) -> Result<(Format, Requests), Unopened>;

    /// Called before a log is opened.
    fn opening(&mut self, _file: usize, _requests: &Requests) -> Result<(), Failure> {
        Ok(())
    }

    /// Receives the request of a line.
    fn take(&mut self, request: Arrived, values: &[u8], position: Position) -> Result<(), Failure>;
}

/// Reads all logs to their ends.
pub(super) fn read_all(
    reader: &mut impl Reader,
    settings: &LogSettings,
    progress: &mut Progress,
) -> Result<(), Failure> {
    for (file, input) in settings.inputs.iter().enumerate() {
        // The bytes are counted before decompression.
        let from = progress.counted(input.open()?);
        read(reader, settings, file, from, progress)?;
    }
    Ok(())
}

/// Reads one log to its end. `file` is the index of the log among the inputs.
pub(super) fn read(
    reader: &mut impl Reader,
    settings: &LogSettings,
    file: usize,
    from: impl Read,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let input = &settings.inputs[file];
    let unreadable = |error: io::Error| Failure::reading(input, &error);
    let mut lines = Lines::new(lines::unpacked(from).map_err(unreadable)?);
    read_lines(reader, (file, input), &mut lines, LINES_ALONE, progress)?;
    let opened = reader.logs().requests[file].as_ref();
    let parsers: Vec<Requests> = (1..settings.threads).map_while(|_| opened?.again()).collect();
    let (counts, number) = if parsers.is_empty() {
        read_lines(reader, (file, input), &mut lines, u64::MAX, progress)?;
        (lines.counts(), lines.number())
    } else {
        let take = |parsed, values: &[u8], line| {
            progress.tick();
            count(reader, parsed, values, Position { file, line })
        };
        let (parsers, mut lines) = parallel::read(lines, parsers, unreadable, take)?;
        for requests in &parsers {
            add_missing(&mut reader.logs().summary, requests.missing());
        }
        read_lines(reader, (file, input), &mut lines, u64::MAX, progress)?;
        (lines.counts(), lines.number())
    };
    let Logs { summary, requests } = reader.logs();
    add_missing(summary, requests[file].as_ref().map_or(&[], Requests::missing));
    // The last part of each incomplete line has been counted as a header.
    for _ in 0..requests[file].as_ref().map_or(0, Requests::incomplete) {
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
fn count(reader: &mut impl Reader, parsed: Parsed, values: &[u8], position: Position) -> Result<(), Failure> {
    let LogSummary { files, no_requests, .. } = &mut reader.logs().summary;
    let file = &mut files[position.file];
    file.lines += 1;
    match parsed {
        Parsed::Request(request) => reader.take(request, values, position)?,
        Parsed::NoRequest => *no_requests += 1,
        Parsed::Header => file.header += 1,
        Parsed::Blank => file.blank += 1,
        Parsed::Bad(reason) => reader.logs().summary.bad_line(position, reason)?,
    }
    Ok(())
}

/// Parses a line. The first line that can be a record opens the log.
#[inline]
fn parse(
    reader: &mut impl Reader,
    (file, input): (usize, &Input),
    line: &Line<'_>,
    values: &mut Vec<u8>,
) -> Result<Parsed, Failure> {
    if let Some(requests) = &mut reader.logs().requests[file] {
        return Ok(requests.parse(line, values));
    }
    let text = match source::text(line) {
        Ok(text) => text,
        Err(parsed) => return Ok(parsed),
    };
    match reader.recognize(text) {
        Ok((format, mut requests)) => {
            reader.opening(file, &requests)?;
            let parsed = match format {
                Format::Csv => Parsed::Header,
                _ => requests.parse(line, values),
            };
            let Logs { summary, requests: all } = reader.logs();
            summary.files[file].format = Some(format);
            all[file] = Some(requests);
            Ok(parsed)
        }
        Err(Unopened::NotARecord(reason)) => Ok(Parsed::Bad(reason)),
        Err(Unopened::Directive) => Ok(Parsed::Header),
        Err(Unopened::Refused(message)) => Err(Failure::refused(format!("{input}: {message}"))),
    }
}
