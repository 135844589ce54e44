//! What the log itself was like, whatever the limit: its files, its times, its bad lines.

use std::time::Duration;

use tollgate::Tick;

use super::Failure;
use super::record::{Format, Reason};
use super::trial::Place;

/// So many bad lines are shown; all are counted.
const BAD_LINES_SHOWN: usize = 5;

/// Counts of one file. `lines` is the sum of its requests and the others.
#[derive(Clone, Debug)]
pub(crate) struct FileSummary {
    /// As it is safe to print.
    pub(crate) name: String,
    /// `None` until a line told.
    pub(crate) format: Option<Format>,
    pub(crate) lines: u64,
    pub(crate) requests: u64,
    pub(crate) unparsable: u64,
    pub(crate) blank: u64,
    /// One if the first line names columns.
    pub(crate) header: u64,
}

/// A line that did not parse.
#[derive(Clone, Debug)]
pub(crate) struct BadLine {
    pub(crate) place: Place,
    pub(crate) reason: Reason,
}

/// What all logs of a replay were like.
#[derive(Clone, Debug)]
pub(crate) struct LogSummary {
    strict: bool,
    pub(crate) files: Vec<FileSummary>,
    /// The first few.
    pub(crate) bad_lines: Vec<BadLine>,
    /// The earliest and the latest stamp.
    pub(crate) span: Option<(Tick, Tick)>,
    previous: Tick,
    /// Requests with a stamp before that of the request in the line above.
    pub(crate) stepped_back: u64,
    /// The largest such step.
    pub(crate) largest_step: Duration,
    /// Requests judged at a later time than their own, that of their key.
    pub(crate) raised: u64,
}

impl LogSummary {
    pub(crate) fn new(names: Vec<String>, strict: bool) -> Self {
        let empty = |name| FileSummary {
            name,
            format: None,
            lines: 0,
            requests: 0,
            unparsable: 0,
            blank: 0,
            header: 0,
        };
        Self {
            strict,
            files: names.into_iter().map(empty).collect(),
            bad_lines: Vec::new(),
            span: None,
            previous: Tick::from_nanos(0),
            stepped_back: 0,
            largest_step: Duration::ZERO,
            raised: 0,
        }
    }

    /// Counts a request with this stamp.
    #[inline]
    pub(crate) fn arrived(&mut self, file: usize, at: Tick) {
        self.files[file].requests += 1;
        let (first, last) = self.span.unwrap_or((at, at));
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
    /// In a strict replay, the line ends it.
    pub(crate) fn bad_line(&mut self, place: Place, reason: Reason) -> Result<(), Failure> {
        self.files[place.file].unparsable += 1;
        if self.bad_lines.len() < BAD_LINES_SHOWN {
            self.bad_lines.push(BadLine { place, reason });
        }
        match self.bad_lines.last() {
            Some(bad) if self.strict => Err(Failure::Refused(self.describe(bad))),
            _ => Ok(()),
        }
    }

    /// `access.log:7: reason`
    pub(crate) fn describe(&self, bad: &BadLine) -> String {
        format!("{}: {}", self.describe_place(bad.place), bad.reason)
    }

    /// `access.log:7`
    pub(crate) fn describe_place(&self, place: Place) -> String {
        format!("{}:{}", self.files[place.file].name, place.line)
    }

    pub(crate) fn lines(&self) -> u64 {
        self.files.iter().map(|file| file.lines).sum()
    }

    pub(crate) fn requests(&self) -> u64 {
        self.files.iter().map(|file| file.requests).sum()
    }

    pub(crate) fn unparsable(&self) -> u64 {
        self.files.iter().map(|file| file.unparsable).sum()
    }

    pub(crate) fn blank(&self) -> u64 {
        self.files.iter().map(|file| file.blank).sum()
    }

    /// The message for a log that has lines, none of which is a request.
    pub(crate) fn nothing_parses(&self) -> String {
        let mut message = format!("no line of the log parses; the first of {}:", self.unparsable());
        for bad in &self.bad_lines {
            message.push_str("\n  ");
            message.push_str(&self.describe(bad));
        }
        message.push_str("\nallowed: Common and Combined Log Format, JSON lines, CSV with a header; ");
        message.push_str("--log-format says which, --fields maps names");
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_back_are_measured_from_the_line_before() {
        let mut log = LogSummary::new(vec!["a".into()], false);
        for nanos in [50, 40, 45, 10, 10, 60] {
            log.arrived(0, Tick::from_nanos(nanos));
        }
        assert_eq!((log.stepped_back, log.largest_step), (2, Duration::from_nanos(35)));
        assert_eq!(log.span, Some((Tick::from_nanos(10), Tick::from_nanos(60))));
    }

    #[test]
    fn the_first_bad_lines_are_kept_and_all_are_counted() {
        let mut log = LogSummary::new(vec!["a".into()], false);
        for line in 1..=9 {
            let kept = log.bad_line(Place { file: 0, line }, "why".into());
            assert!(kept.is_ok());
        }
        assert_eq!((log.unparsable(), log.bad_lines.len()), (9, BAD_LINES_SHOWN));
        assert!(log.nothing_parses().contains("a:5: why"));
        let mut strict = LogSummary::new(vec!["a".into()], true);
        assert!(strict.bad_line(Place { file: 0, line: 1 }, "why".into()).is_err());
    }
}
