//! The report of a replay: its figures as plain data, which are JSON as they stand.
//!
//! Everything but `run` is the same whenever the same log is replayed.

mod compare;
mod notes;
mod quantity;
mod text;

use std::time::Duration;

use serde::Serialize;

use super::key::KeyShape;
use super::keys::Keys;
use super::log::LogSummary;
use super::printable::printable;
use super::timeline::Timeline;
use super::trial::{Trial, Wait};
use super::{Cost, Entry, Settings};

pub(crate) use text::write_text;

/// Rows of the timeline.
const TIMELINE_ROWS: usize = 24;

/// What came of a replay.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    limit: String,
    key: String,
    cost: &'static str,
    order: &'static str,
    log: Log,
    /// One per algorithm.
    results: Vec<Outcome>,
    /// What varies from run to run.
    run: Run,
}

#[derive(Debug, Serialize)]
struct Log {
    files: Vec<File>,
    lines: u64,
    requests: u64,
    unparsable: u64,
    blank: u64,
    keys: usize,
    /// The earliest and the latest stamp, RFC 3339.
    first: Option<String>,
    last: Option<String>,
    #[serde(skip)]
    first_nanos: Option<u64>,
    #[serde(skip)]
    last_nanos: Option<u64>,
    #[serde(skip)]
    span: Option<Duration>,
    stepped_back: u64,
    largest_step_ns: u64,
    judged_later_than_stamped: u64,
    /// By how much those were.
    mean_shift_ns: u64,
    largest_shift_ns: u64,
    missing_key_fields: Vec<MissingField>,
    /// What a reader should know before believing the figures.
    notes: Vec<String>,
    /// The first few lines that do not parse.
    bad_lines: Vec<BadLine>,
}

#[derive(Debug, Serialize)]
struct File {
    name: String,
    /// `null` if no line told.
    format: Option<String>,
    lines: u64,
    requests: u64,
    unparsable: u64,
    blank: u64,
    header: u64,
}

/// Requests without a value of a field of the key.
#[derive(Debug, Serialize)]
struct MissingField {
    field: String,
    requests: u64,
}

#[derive(Debug, Serialize)]
struct BadLine {
    file: String,
    line: u64,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Outcome {
    algorithm: String,
    limit: String,
    /// Why the algorithm does not accept the limit; then there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(flatten)]
    figures: Option<Figures>,
}

#[derive(Debug, Serialize)]
struct Figures {
    passed: u64,
    denied: u64,
    cost_passed: u128,
    cost_denied: u128,
    too_costly: u64,
    answered_by_full_policy: u64,
    charged_to_shared_overflow: u64,
    keys_denied: usize,
    longest_wait: Option<LongestWait>,
    delayed: u64,
    longest_delay: Option<LongestWait>,
    polite: Polite,
    top_denied: Vec<DeniedKey>,
    timeline: TimelineRows,
}

#[derive(Debug, Serialize)]
struct LongestWait {
    ns: u64,
    key: String,
    file: String,
    line: u64,
}

/// A client that sends nothing until retry-after has passed.
#[derive(Debug, Serialize)]
struct Polite {
    passed: u64,
    denied: u64,
    withheld: u64,
    too_costly: u64,
}

#[derive(Debug, Serialize)]
struct DeniedKey {
    key: String,
    denied: u64,
    requests: u64,
}

#[derive(Debug, Serialize)]
struct TimelineRows {
    seconds_per_row: u64,
    rows: Vec<TimelineRow>,
}

#[derive(Debug, Serialize)]
struct TimelineRow {
    #[serde(skip)]
    second: u64,
    start: String,
    passed: u64,
    denied: u64,
}

#[derive(Debug, Serialize)]
struct Run {
    seconds: f64,
    lines_per_second: f64,
    limiters: Vec<LimiterRun>,
}

#[derive(Debug, Serialize)]
struct LimiterRun {
    algorithm: String,
    checks: u64,
    checks_per_second: f64,
    keys_tracked: usize,
    memory_bytes: usize,
}

impl Report {
    pub(super) fn new(
        settings: &Settings,
        log: &LogSummary,
        keys: &Keys,
        entries: &[Entry],
        elapsed: Duration,
    ) -> Self {
        let names = Names { log, keys: keys.by_id(), shape: KeyShape::new(settings.wanted.key.len()) };
        let tried = entries.iter().filter_map(|entry| match entry {
            Entry::Tried(trial) => Some(&**trial),
            Entry::Refused { .. } => None,
        });
        Self {
            limit: settings.quota.to_string(),
            key: printable(settings.wanted.key.join("+").as_bytes()),
            cost: match settings.wanted.cost {
                Cost::One => "1",
                Cost::Bytes => "bytes",
            },
            order: if settings.sort { "time" } else { "arrival" },
            log: Log::new(log, keys.len(), settings),
            results: entries.iter().map(|entry| Outcome::new(entry, keys, &names, settings.top)).collect(),
            run: Run {
                seconds: elapsed.as_secs_f64(),
                lines_per_second: quantity::per_second(log.lines(), elapsed),
                limiters: tried.map(LimiterRun::new).collect(),
            },
        }
    }

    fn is_empty(&self) -> bool {
        self.log.requests == 0
    }
}

impl Log {
    fn new(log: &LogSummary, keys: usize, settings: &Settings) -> Self {
        let first = log.span.map(|(first, _)| first.as_nanos());
        let last = log.span.map(|(_, last)| last.as_nanos());
        Self {
            files: log
                .files
                .iter()
                .map(|file| File {
                    name: file.name.clone(),
                    format: file.format.map(|format| format.to_string()),
                    lines: file.lines,
                    requests: file.requests,
                    unparsable: file.unparsable,
                    blank: file.blank,
                    header: file.header,
                })
                .collect(),
            lines: log.lines(),
            requests: log.requests(),
            unparsable: log.unparsable(),
            blank: log.blank(),
            keys,
            first: first.map(quantity::rfc3339),
            last: last.map(quantity::rfc3339),
            first_nanos: first,
            last_nanos: last,
            span: first.zip(last).map(|(first, last)| Duration::from_nanos(last - first)),
            stepped_back: log.stepped_back,
            largest_step_ns: quantity::nanos(log.largest_step),
            judged_later_than_stamped: log.judged_later_than_stamped.requests,
            mean_shift_ns: quantity::nanos(log.judged_later_than_stamped.mean()),
            largest_shift_ns: quantity::nanos(log.judged_later_than_stamped.largest),
            missing_key_fields: settings
                .wanted
                .key
                .iter()
                .zip(&log.missing)
                .filter(|&(_, &requests)| requests > 0)
                .map(|(field, &requests)| MissingField { field: printable(field.as_bytes()), requests })
                .collect(),
            notes: if settings.sort { Vec::new() } else { notes::on_order(log, settings.quota) },
            bad_lines: log
                .bad_lines
                .iter()
                .map(|bad| BadLine {
                    file: log.files[bad.place.file].name.clone(),
                    line: bad.place.line,
                    reason: bad.reason.to_string(),
                })
                .collect(),
        }
    }
}

/// What a report calls keys and files.
struct Names<'r> {
    log: &'r LogSummary,
    keys: Vec<&'r [u8]>,
    shape: KeyShape,
}

impl Names<'_> {
    fn wait(&self, wait: Option<Wait>) -> Option<LongestWait> {
        wait.map(|wait| LongestWait {
            ns: quantity::nanos(wait.time),
            key: self.shape.show(self.keys[wait.id]),
            file: self.log.files[wait.place.file].name.clone(),
            line: wait.place.line,
        })
    }
}

impl Outcome {
    fn new(entry: &Entry, keys: &Keys, names: &Names<'_>, top: usize) -> Self {
        match entry {
            Entry::Tried(trial) => Self {
                algorithm: trial.algorithm.to_string(),
                limit: trial.quota.to_string(),
                refused: None,
                figures: Some(Figures::new(trial, keys, names, top)),
            },
            Entry::Refused { algorithm, quota, error } => Self {
                algorithm: algorithm.to_string(),
                limit: quota.to_string(),
                refused: Some(error.to_string()),
                figures: None,
            },
        }
    }
}

impl Figures {
    fn new(trial: &Trial, keys: &Keys, names: &Names<'_>, top: usize) -> Self {
        let mut denied: Vec<(u64, &[u8], u64)> = (0..keys.len())
            .map(|id| (trial.denied(id), names.keys[id], keys.requests(id)))
            .filter(|&(denied, ..)| denied > 0)
            .collect();
        let keys_denied = denied.len();
        denied.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let top_denied = denied
            .into_iter()
            .take(top)
            .map(|(denied, key, requests)| DeniedKey { key: names.shape.show(key), denied, requests })
            .collect();
        let totals = &trial.totals;
        Self {
            passed: totals.passed,
            denied: totals.denied,
            cost_passed: totals.cost_passed,
            cost_denied: totals.cost_denied,
            too_costly: totals.too_costly,
            answered_by_full_policy: totals.answered_by_full_policy,
            charged_to_shared_overflow: totals.charged_to_shared_overflow,
            keys_denied,
            longest_wait: names.wait(totals.longest_wait),
            delayed: totals.delayed,
            longest_delay: names.wait(totals.longest_delay),
            polite: Polite {
                passed: trial.polite.passed,
                denied: trial.polite.denied,
                withheld: trial.polite.withheld,
                too_costly: trial.polite.too_costly,
            },
            top_denied,
            timeline: TimelineRows::new(&trial.timeline),
        }
    }
}

impl TimelineRows {
    fn new(timeline: &Timeline) -> Self {
        let timeline = timeline.at_most(TIMELINE_ROWS);
        let row = |(second, count): (u64, super::timeline::Count)| TimelineRow {
            second,
            start: quantity::rfc3339(second.saturating_mul(1_000_000_000)),
            passed: count.passed,
            denied: count.denied,
        };
        Self { seconds_per_row: timeline.width(), rows: timeline.stretches().map(row).collect() }
    }
}

impl LimiterRun {
    fn new(trial: &Trial) -> Self {
        Self {
            algorithm: trial.algorithm.to_string(),
            checks: trial.checks,
            checks_per_second: quantity::per_second(trial.checks, trial.checking),
            keys_tracked: trial.keys_tracked(),
            memory_bytes: trial.memory(),
        }
    }
}
