//! Defines the figures of a report as plain data, which is serialized as JSON.
//!
//! Every replay of the same log produces the same figures, except for `run`.

use std::time::Duration;

use serde::Serialize;

use super::changes::ChangesReport;
use super::log::Log;
use super::notes;
use super::quantity;
use super::stretch::Stretch;
use crate::printable::{listed, printable};
use crate::replay::engine::limit::{Counts, Limit, RefusedKey};
use crate::replay::engine::trial::{Compliant, Totals, Trial, Wait};
use crate::replay::engine::{Engine, Entry};
use crate::replay::key_quotas::KeyQuotas;
use crate::replay::log::schema::Cost;
use crate::replay::log::summary::LogSummary;
use crate::replay::settings::Settings;
use crate::replay::timeline::{Count, Timeline};

/// The maximum number of rows in the timeline.
const TIMELINE_ROWS: usize = 24;

/// The results of a replay besides the decisions.
#[derive(Default)]
pub(crate) struct Findings {
    /// Whether the log is the JSON log of tollgate proxy, and limits with names are replayed.
    pub(crate) is_of_proxy: bool,
    /// Whether the requests were sorted by time.
    pub(crate) is_sorted: bool,
    /// The number of requests that pass in the replay, but that the proxy refused before it had
    /// computed all limits' keys.
    pub(crate) passed_without_record: u64,
    /// Whether each OPTIONS request counts as a preflight.
    pub(crate) guesses_preflights: bool,
    /// The limits that read their keys from the log, but are never named in it.
    pub(crate) never_named: Vec<String>,
}

/// The results of a replay.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Absent if no key has its own quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_quotas: Option<KeysWithQuotas>,
    /// The fields by which limits without a name count. `null` if every limit has a name.
    pub(crate) key: Option<String>,
    pub(crate) cost: Cost,
    pub(crate) order: &'static str,
    pub(crate) log: Log<OfRequests>,
    /// The limits, and their answers under the first algorithm that accepts them.
    pub(crate) limits: Vec<LimitReport>,
    /// The algorithm of `limits`, or all algorithms of a comparison.
    pub(crate) results: Vec<AlgorithmResult>,
    pub(crate) timeline: TimelineRows,
    /// Absent if the limits are not compared with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) changes: Option<ChangesReport>,
    /// The figures that vary from run to run.
    pub(crate) run: Run,
}

/// Keys that have their own quota.
#[derive(Debug, Serialize)]
pub(crate) struct KeysWithQuotas {
    pub(crate) file: String,
    pub(crate) keys: usize,
    /// The number of these keys that occur in the log.
    pub(crate) seen: usize,
}

/// The facts about the requests in the logs.
#[derive(Debug, Serialize)]
pub(crate) struct OfRequests {
    /// The number of lines that describe no request.
    pub(crate) no_requests: u64,
    pub(crate) missing_key_fields: Vec<MissingField>,
}

/// The number of requests in which a field of the key has no value.
#[derive(Debug, Serialize)]
pub(crate) struct MissingField {
    pub(crate) field: String,
    pub(crate) requests: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct LimitReport {
    pub(crate) limit: String,
    pub(crate) shadow: bool,
    pub(crate) classes: Vec<Class>,
    pub(crate) keys: usize,
    pub(crate) keys_refused: usize,
    pub(crate) top_refused: Vec<RefusedKey>,
    /// Whether the limit counts by fields of the log.
    #[serde(skip)]
    pub(crate) is_by_fields: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Class {
    /// `null` for a limit without classes, and for the requests without a key.
    pub(crate) class: Option<String>,
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// The results of one algorithm.
#[derive(Debug, Serialize)]
pub(crate) struct AlgorithmResult {
    pub(crate) algorithm: String,
    /// Why the algorithm refused a limit. If this reason is present, there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    #[serde(flatten)]
    pub(crate) figures: Option<Figures>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    #[serde(flatten)]
    pub(crate) totals: Totals,
    /// The number of keys with a refused request, over all limits.
    pub(crate) keys_denied: usize,
    pub(crate) longest_wait: Option<LongestWait>,
    pub(crate) longest_delay: Option<LongestWait>,
    /// The results for a client that waits out the retry-after of each denial.
    pub(crate) compliant: Compliant,
}

#[derive(Debug, Serialize)]
pub(crate) struct LongestWait {
    pub(crate) ns: u64,
    pub(crate) key: String,
    pub(crate) file: String,
    pub(crate) line: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct TimelineRows {
    pub(crate) seconds_per_row: u64,
    pub(crate) rows: Vec<Stretch<Count>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) seconds: f64,
    pub(crate) lines_per_second: f64,
}

impl Report {
    pub(crate) fn new(
        settings: &Settings,
        log: &LogSummary,
        findings: &Findings,
        engine: &Engine,
        key_quotas: Option<&KeyQuotas>,
        timeline: &Timeline,
        elapsed: Duration,
    ) -> Self {
        let fields = &settings.log.wanted.key;
        let missing = fields.iter().zip(&log.missing).filter(|&(_, &requests)| requests > 0);
        let missing =
            missing.map(|(field, &requests)| MissingField { field: printable(field.as_bytes()), requests });
        let is_reported =
            |entry: &&Entry| settings.compare || entry.algorithm == engine.algorithm() && entry.trial.is_ok();
        let by_fields = engine.limits.iter().find(|limit| limit.fields.is_some());
        Self {
            key_quotas: key_quotas.zip(by_fields).map(|(own, limit)| KeysWithQuotas {
                file: own.name(),
                keys: own.quotas.len(),
                seen: (0..own.quotas.len()).filter(|&id| limit.keys.requests()[id] > 0).count(),
            }),
            key: (!fields.is_empty()).then(|| printable(fields.join("+").as_bytes())),
            cost: settings.log.wanted.cost,
            order: if findings.is_sorted { "time" } else { "arrival" },
            log: Log::new(
                log,
                notes_on(settings, log, findings, engine),
                OfRequests { no_requests: log.no_requests, missing_key_fields: missing.collect() },
            ),
            limits: limits(engine, settings.top),
            results: engine
                .entries
                .iter()
                .filter(is_reported)
                .map(|entry| AlgorithmResult::new(entry, engine, log))
                .collect(),
            timeline: TimelineRows::new(timeline),
            changes: None,
            run: Run {
                seconds: elapsed.as_secs_f64(),
                lines_per_second: quantity::per_second(log.all(|file| file.lines), elapsed),
            },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.log.requests == 0
    }

    /// Returns the figures of the algorithm whose decisions are reported.
    pub(crate) fn main(&self) -> Option<&Figures> {
        self.results.iter().find_map(|outcome| outcome.figures.as_ref())
    }
}

fn notes_on(settings: &Settings, log: &LogSummary, findings: &Findings, engine: &Engine) -> Vec<String> {
    let quota = match &engine.limits[..] {
        [only] => only.part.allowance.rate(),
        _ => None,
    };
    let mut notes = notes::on_log(log, findings.is_sorted, quota);
    if findings.guesses_preflights {
        notes.push(
            "the log does not have the headers origin and access-control-request-method: each OPTIONS request \
             counts as a preflight."
                .to_owned(),
        );
    }
    for (name, statuses) in &settings.limits.layer.charge_if {
        notes.push(format!(
            "in the proxy, limit {} counts only requests that are answered with {statuses} (charge-if). In this replay \
             it counts every request, so it refuses more.",
            printable(name.as_bytes())
        ));
    }
    for name in &findings.never_named {
        notes.push(format!(
            "no line names the limit {}, which looks at a header or a query parameter: it applied to no request, or \
             the proxy did not have it. In this replay it applies to no request.",
            printable(name.as_bytes())
        ));
    }
    if findings.passed_without_record > 0 {
        notes.push(format!(
            "{} that the proxy refused for a missing key or a blocked client would pass in this replay. The log has \
             no keys of them for limits by a header or a query parameter, so these limits have not counted them.",
            quantity::plural(findings.passed_without_record, "request")
        ));
    }
    for (limit, classes) in &*engine.unknown_classes() {
        notes.push(format!(
            "{} of classes that limit {} does not have: they count in the default class. The classes are {}.",
            quantity::plural(classes.values().sum(), "request"),
            printable(limit.as_bytes()),
            listed(classes.keys().map(String::as_bytes)),
        ));
    }
    notes
}

fn limits(engine: &Engine, top: usize) -> Vec<LimitReport> {
    let limit = |(number, limit): (usize, &Limit)| {
        let denied = |id| engine.main().map_or(0, |trial| trial.denied(number, id));
        let (keys_refused, top_refused) = limit.most_refused(top, denied);
        let class = |(class, counts): (Option<&str>, _)| Class { class: class.map(str::to_owned), counts };
        LimitReport {
            limit: limit.part.name.clone(),
            shadow: limit.is_shadow,
            classes: limit.counts().into_iter().map(class).collect(),
            keys: limit.keys.seen(),
            keys_refused,
            top_refused,
            is_by_fields: limit.fields.is_some(),
        }
    };
    engine.limits.iter().enumerate().map(limit).collect()
}

impl LimitReport {
    pub(crate) fn shown(&self) -> String {
        printable(self.limit.as_bytes())
    }
}

impl AlgorithmResult {
    pub(crate) fn new(entry: &Entry, engine: &Engine, log: &LogSummary) -> Self {
        Self {
            algorithm: entry.algorithm.to_string(),
            refused: entry.trial.as_ref().err().cloned(),
            figures: entry.trial.as_ref().ok().map(|trial| Figures::new(trial, engine, log)),
        }
    }
}

impl Figures {
    fn new(trial: &Trial, engine: &Engine, log: &LogSummary) -> Self {
        let totals = &trial.totals;
        let wait = |wait: Wait| {
            let limit = &engine.limits[wait.limit];
            LongestWait {
                ns: quantity::nanos(wait.time),
                key: limit.shown(limit.keys.by_id()[wait.id]),
                file: log.files[wait.position.file].name.clone(),
                line: wait.position.line,
            }
        };
        Self {
            totals: totals.clone(),
            keys_denied: trial.keys_denied(),
            longest_wait: totals.longest_wait.map(wait),
            longest_delay: totals.longest_delay.map(wait),
            compliant: trial.compliant,
        }
    }
}

impl TimelineRows {
    fn new(timeline: &Timeline) -> Self {
        let timeline = timeline.at_most(TIMELINE_ROWS);
        Self { seconds_per_row: timeline.width(), rows: Stretch::all(&timeline).collect() }
    }
}
