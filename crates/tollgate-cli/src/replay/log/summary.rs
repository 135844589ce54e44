//! Collects the facts about a log that do not depend on the limit, such as its files, its times and
//! its bad lines.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use tollgate::Tick;

use super::formats::Format;
use super::request::Reason;
use crate::failure::Failure;
use crate::replay::position::Position;

/// A timestamp that is ahead of all earlier timestamps by more than this either follows a pause or
/// is wrong.
const LEAP: Duration = Duration::from_secs(86_400);

/// The maximum number of bad lines to show. Every bad line is counted.
const BAD_LINES_SHOWN: usize = 5;

/// The counts for one file. `lines` counts all lines, whether or not they contain a request.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct FileSummary {
    /// The name of the file, safe to print.
    pub(crate) name: String,
    /// `None` until a line parses.
    pub(crate) format: Option<Format>,
    pub(crate) lines: u64,
    pub(crate) requests: u64,
    pub(crate) unparsable: u64,
    pub(crate) blank: u64,
    /// Lines that name columns, and all but the last part of each split line.
    pub(crate) header: u64,
    /// The number of skipped NUL bytes in holes.
    #[serde(skip)]
    pub(crate) skipped_nuls: u64,
    /// Whether the last line has no line end.
    #[serde(skip)]
    pub(crate) is_open: bool,
    /// The timestamp of the first request, and the latest timestamp in the file.
    #[serde(skip)]
    pub(crate) span: Option<(Tick, Tick)>,
}

impl FileSummary {
    pub(crate) fn format_name(&self) -> &'static str {
        self.format.map_or("unknown", Format::name)
    }
}

/// A line that did not parse. If the file's format is known, the reason names it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct BadLine {
    /// The name of the file, safe to print.
    pub(crate) file: String,
    pub(crate) line: u64,
    pub(crate) reason: Reason,
}

/// `access.log:7: reason`
impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.reason)
    }
}

/// The summary of all logs in a replay.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogSummary {
    strict: bool,
    pub(crate) files: Vec<FileSummary>,
    /// The first few bad lines.
    pub(crate) bad_lines: Vec<BadLine>,
    /// The number of lines that parse, but contain no request.
    pub(crate) no_requests: u64,
    /// The earliest and the latest timestamp.
    pub(crate) span: Option<(Tick, Tick)>,
    previous: Tick,
    /// The number of requests with an earlier timestamp than the previous request.
    pub(crate) stepped_back: u64,
    /// The largest step back between two adjacent requests.
    pub(crate) largest_step: Duration,
    /// Requests that were judged later than their own timestamp, because an earlier line with the
    /// same key has a later timestamp.
    pub(crate) judged_later_than_stamped: Shifts,
    /// For each field of the key, the number of requests in which the field has no value.
    pub(crate) missing: Vec<u64>,
    /// The largest leap after which the timestamps returned to their earlier range.
    pub(crate) leap: Option<Leap>,
    /// The last leap of more than [`LEAP`], unless the timestamps have returned to their earlier
    /// range since.
    suspect: Option<Leap>,
}

/// How many requests were judged later than their timestamps, and by how much.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shifts {
    pub(crate) requests: u64,
    total_ns: u128,
    pub(crate) largest: Duration,
}

impl Shifts {
    #[inline]
    pub(crate) fn add(&mut self, stamp: Tick, judged: Tick) {
        if judged > stamp {
            let nanos = judged.as_nanos() - stamp.as_nanos();
            self.requests += 1;
            self.total_ns += u128::from(nanos);
            self.largest = self.largest.max(Duration::from_nanos(nanos));
        }
    }

    pub(crate) fn mean(&self) -> Duration {
        let mean = self.total_ns.checked_div(u128::from(self.requests)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

/// A timestamp far ahead of all earlier timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leap {
    pub(crate) position: Position,
    pub(crate) ahead: Duration,
    /// The latest timestamp before the leap.
    from: Tick,
}

impl LogSummary {
    pub(crate) fn new(names: Vec<String>, key_fields: usize, strict: bool) -> Self {
        let file = |name| FileSummary { name, ..FileSummary::default() };
        let files = names.into_iter().map(file).collect();
        Self { strict, files, missing: vec![0; key_fields], ..Self::default() }
    }

    /// Counts a request with this timestamp.
    #[inline]
    pub(crate) fn arrived(&mut self, position: Position, at: Tick) {
        let file = &mut self.files[position.file];
        file.requests += 1;
        file.span = Some(file.span.map_or((at, at), |(first, last)| (first, last.max(at))));
        let (first, last) = self.span.unwrap_or((at, at));
        if at > last + LEAP {
            let ahead = Duration::from_nanos(at.as_nanos() - last.as_nanos());
            self.suspect = Some(Leap { position, ahead, from: last });
        } else if let Some(suspect) = self.suspect
            && at < suspect.from + LEAP
        {
            self.suspect = None;
            if self.leap.is_none_or(|leap| leap.ahead < suspect.ahead) {
                self.leap = Some(suspect);
            }
        }
        self.span = Some((first.min(at), last.max(at)));
        if at < self.previous {
            self.stepped_back += 1;
            let step = Duration::from_nanos(self.previous.as_nanos() - at.as_nanos());
            self.largest_step = self.largest_step.max(step);
        }
        self.previous = at;
    }

    /// Counts a line that does not parse.
    ///
    /// # Errors
    ///
    /// In a strict replay, returns an error at the first line that does not parse.
    pub(crate) fn bad_line(&mut self, position: Position, reason: Reason) -> Result<(), Failure> {
        self.files[position.file].unparsable += 1;
        if self.bad_lines.len() < BAD_LINES_SHOWN {
            let reason = match self.files[position.file].format {
                Some(format) => format!("as {format}: {reason}").into(),
                None => reason,
            };
            let file = self.files[position.file].name.clone();
            self.bad_lines.push(BadLine { file, line: position.line, reason });
        }
        match self.bad_lines.last() {
            Some(bad) if self.strict => Err(Failure::Refused(bad.to_string())),
            _ => Ok(()),
        }
    }

    /// `access.log:7`
    pub(crate) fn describe_position(&self, position: Position) -> String {
        format!("{}:{}", self.files[position.file].name, position.line)
    }

    /// Returns the sum of a count over all files.
    pub(crate) fn all(&self, count: impl Fn(&FileSummary) -> u64) -> u64 {
        self.files.iter().map(count).sum()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.all(|file| file.requests)
    }

    pub(crate) fn unparsable(&self) -> u64 {
        self.all(|file| file.unparsable)
    }

    /// Returns the error message for logs that have lines but no request.
    pub(crate) fn nothing_parses(&self) -> String {
        let mut message = format!("no line of the log parses; the first of {}:", self.unparsable());
        for bad in &self.bad_lines {
            message.push_str(&format!("\n  {bad}"));
        }
        message.push_str("\nexpected a format of --log-format (");
        message.push_str(&Format::ALL.map(|(_, name)| name).join(", "));
        message.push_str("); --fields maps names");
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_back_are_measured_from_the_line_before() {
        let mut log = LogSummary::new(vec!["a".into()], 1, false);
        for (nanos, line) in [50, 40, 45, 10, 10, 60].into_iter().zip(1..) {
            log.arrived(Position { file: 0, line }, Tick::from_nanos(nanos));
        }
        assert_eq!((log.stepped_back, log.largest_step), (2, Duration::from_nanos(35)));
        assert_eq!(log.span, Some((Tick::from_nanos(10), Tick::from_nanos(60))));
    }

    #[test]
    fn a_stamp_that_leaps_is_told_from_a_pause() {
        const DAY: u64 = 86_400_000_000_000;
        // The timestamps, and the expected leap's line and its length in days.
        type Row = (&'static [u64], Option<(u64, u64)>);
        let table: &[Row] = &[
            (&[0, DAY, 2 * DAY], None),
            (&[0, 5 * DAY, 6 * DAY, 5 * DAY], None),
            (&[0, 5 * DAY, 1], Some((2, 5))),
            (&[0, 5 * DAY, 5 * DAY, 2, 9 * DAY, 3], Some((2, 5))),
            (&[0, 5 * DAY, 1, 50 * DAY, 2], Some((4, 45))),
            (&[0, 5 * DAY], None),
        ];
        for &(stamps, leap) in table {
            let mut log = LogSummary::new(vec!["a".into()], 1, false);
            for (&nanos, line) in stamps.iter().zip(1..) {
                log.arrived(Position { file: 0, line }, Tick::from_nanos(nanos));
            }
            let found = log.leap.map(|leap| (leap.position.line, leap.ahead.as_secs() / 86_400));
            assert_eq!(found, leap, "{stamps:?}");
        }
    }
}
