//! Defines the figures of a report as plain data, which is serialized as JSON.
//!
//! Every replay of the same log produces the same figures, except for `run`.

use std::time::Duration;

use serde::Serialize;

use super::changes::ChangesReport;
use super::log::Log;
use super::notes;
use super::quantity;
use crate::printable::printable;
use crate::replay::entry::Entry;
use crate::replay::key_quotas::{KeyQuota, KeyQuotas};
use crate::replay::keys::Keys;
use crate::replay::log::key::KeyShape;
use crate::replay::log::schema::Cost;
use crate::replay::log::summary::LogSummary;
use crate::replay::settings::Settings;
use crate::replay::simulation::{Simulation, Wait};
use crate::replay::timeline::{Count, Timeline};

/// The maximum number of rows in the timeline.
const TIMELINE_ROWS: usize = 24;

/// The results of a replay.
#[derive(Debug, Serialize)]
pub struct Report {
    pub(crate) limit: String,
    /// Absent if no key has its own quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_quotas: Option<KeysWithQuotas>,
    pub(crate) key: String,
    pub(crate) cost: &'static str,
    pub(crate) order: &'static str,
    pub(crate) log: Log<OfKeys>,
    /// One outcome per algorithm.
    pub(crate) results: Vec<Outcome>,
    /// Absent if the limit is not compared with another one.
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

/// The facts about the keys in the logs.
#[derive(Debug, Serialize)]
pub(crate) struct OfKeys {
    pub(crate) keys: usize,
    pub(crate) missing_key_fields: Vec<MissingField>,
}

/// The number of requests in which a field of the key has no value.
#[derive(Debug, Serialize)]
pub(crate) struct MissingField {
    pub(crate) field: String,
    pub(crate) requests: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) algorithm: String,
    pub(crate) limit: String,
    /// The number of keys whose own quotas have a burst. The algorithm ran without these bursts.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) key_quotas_without_burst: usize,
    /// Why the algorithm refused a limit. If this reason is present, there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    #[serde(flatten)]
    pub(crate) figures: Option<Figures>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
    pub(crate) cost_passed: u128,
    pub(crate) cost_denied: u128,
    pub(crate) too_costly: u64,
    pub(crate) answered_by_full_policy: u64,
    pub(crate) charged_to_shared_overflow: u64,
    pub(crate) keys_denied: usize,
    pub(crate) longest_wait: Option<LongestWait>,
    pub(crate) delayed: u64,
    pub(crate) longest_delay: Option<LongestWait>,
    pub(crate) compliant: Compliant,
    pub(crate) top_denied: Vec<DeniedKey>,
    pub(crate) timeline: TimelineRows,
}

#[derive(Debug, Serialize)]
pub(crate) struct LongestWait {
    pub(crate) ns: u64,
    pub(crate) key: String,
    pub(crate) file: String,
    pub(crate) line: u64,
}

/// The results for a client that waits out the retry-after of each denial.
#[derive(Debug, Serialize)]
pub(crate) struct Compliant {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
    pub(crate) withheld: u64,
    pub(crate) too_costly: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct DeniedKey {
    pub(crate) key: String,
    pub(crate) denied: u64,
    pub(crate) requests: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct TimelineRows {
    pub(crate) seconds_per_row: u64,
    pub(crate) rows: Vec<TimelineRow>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TimelineRow {
    #[serde(skip)]
    pub(crate) second: u64,
    pub(crate) start: String,
    pub(crate) passed: u64,
    pub(crate) denied: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) seconds: f64,
    pub(crate) lines_per_second: f64,
    pub(crate) limiters: Vec<LimiterRun>,
}

#[derive(Debug, Serialize)]
pub(crate) struct LimiterRun {
    pub(crate) algorithm: String,
    pub(crate) checks: u64,
    pub(crate) checks_per_second: f64,
    pub(crate) keys_tracked: usize,
    pub(crate) memory_bytes: usize,
}

impl Report {
    pub(crate) fn new(
        settings: &Settings,
        is_sorted: bool,
        log: &LogSummary,
        keys: &Keys,
        key_quotas: Option<&KeyQuotas>,
        entries: &[Entry],
        elapsed: Duration,
    ) -> Self {
        let names = Names { log, keys: keys.by_id(), shape: KeyShape::new(settings.wanted.key.len()) };
        let tried = entries.iter().filter_map(|entry| match entry {
            Entry::Simulated(simulation) => Some(&**simulation),
            Entry::Refused { .. } => None,
        });
        let own = key_quotas.map_or(&[][..], |own| &own.quotas);
        let outcome = |entry| Outcome::new(entry, keys, &names, settings, own);
        Self {
            limit: settings.quota.to_string(),
            key_quotas: key_quotas.map(|own| KeysWithQuotas {
                file: own.name(),
                keys: own.quotas.len(),
                seen: own.quotas.iter().filter(|own| keys.contains(&own.key)).count(),
            }),
            key: printable(settings.wanted.key.join("+").as_bytes()),
            cost: match settings.wanted.cost {
                Cost::One => "1",
                Cost::Bytes => "bytes",
            },
            order: if is_sorted { "time" } else { "arrival" },
            log: of_log(log, keys.len(), settings, is_sorted),
            results: entries.iter().map(outcome).collect(),
            changes: None,
            run: Run {
                seconds: elapsed.as_secs_f64(),
                lines_per_second: quantity::per_second(log.lines(), elapsed),
                limiters: tried.map(LimiterRun::new).collect(),
            },
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.log.requests == 0
    }
}

/// Returns the facts about the logs.
fn of_log(log: &LogSummary, keys: usize, settings: &Settings, is_sorted: bool) -> Log<OfKeys> {
    let notes = notes::on_log(log, is_sorted, "request of its key", Some(settings.quota));
    let missing = settings.wanted.key.iter().zip(&log.missing).filter(|&(_, &requests)| requests > 0);
    let missing =
        missing.map(|(field, &requests)| MissingField { field: printable(field.as_bytes()), requests });
    Log::new(log, notes, OfKeys { keys, missing_key_fields: missing.collect() })
}

/// The names of keys and files in a report.
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
            file: self.log.files[wait.position.file].name.clone(),
            line: wait.position.line,
        })
    }
}

impl Outcome {
    fn new(entry: &Entry, keys: &Keys, names: &Names<'_>, settings: &Settings, own: &[KeyQuota]) -> Self {
        let without_burst =
            |algorithm| own.iter().filter(|own| settings.tried(own.quota, algorithm) != own.quota).count();
        match entry {
            Entry::Simulated(simulation) => Self {
                algorithm: simulation.algorithm.to_string(),
                limit: simulation.quota.to_string(),
                key_quotas_without_burst: without_burst(simulation.algorithm),
                refused: None,
                figures: Some(Figures::new(simulation, keys, names, settings.top)),
            },
            Entry::Refused { algorithm, quota, refusal } => Self {
                algorithm: algorithm.to_string(),
                limit: quota.to_string(),
                key_quotas_without_burst: without_burst(*algorithm),
                refused: Some(refusal.to_string()),
                figures: None,
            },
        }
    }
}

impl Figures {
    fn new(simulation: &Simulation, keys: &Keys, names: &Names<'_>, top: usize) -> Self {
        let mut denied: Vec<(u64, &[u8], u64)> = (0..keys.len())
            .map(|id| (simulation.denied(id), names.keys[id], keys.requests(id)))
            .filter(|&(denied, ..)| denied > 0)
            .collect();
        let keys_denied = denied.len();
        denied.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let top_denied = denied
            .into_iter()
            .take(top)
            .map(|(denied, key, requests)| DeniedKey { key: names.shape.show(key), denied, requests })
            .collect();
        let totals = &simulation.totals;
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
            compliant: Compliant {
                passed: simulation.compliant.passed,
                denied: simulation.compliant.denied,
                withheld: simulation.compliant.withheld,
                too_costly: simulation.compliant.too_costly,
            },
            top_denied,
            timeline: TimelineRows::new(&simulation.timeline),
        }
    }
}

impl TimelineRows {
    fn new(timeline: &Timeline) -> Self {
        let timeline = timeline.at_most(TIMELINE_ROWS);
        let row = |(second, count): (u64, Count)| TimelineRow {
            second,
            start: quantity::rfc3339(second.saturating_mul(1_000_000_000)),
            passed: count.passed,
            denied: count.denied,
        };
        Self { seconds_per_row: timeline.width(), rows: timeline.stretches().map(row).collect() }
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl LimiterRun {
    fn new(simulation: &Simulation) -> Self {
        Self {
            algorithm: simulation.algorithm.to_string(),
            checks: simulation.checks,
            checks_per_second: quantity::per_second(simulation.checks, simulation.checking),
            keys_tracked: simulation.keys_tracked(),
            memory_bytes: simulation.bytes(),
        }
    }
}
