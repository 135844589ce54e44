//! Builds one row of a suggestion: a quota, and the figures from replaying it.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use serde::Serialize;
use tollgate::{Algorithm, Chargeable, ConfigError, Quota};

use super::client::Client;
use super::search::limiter;
use super::trace::Trace;
use crate::replay::report::quantity::nanos;
use crate::replay::timeline::NANOS_PER_SECOND;

/// The smallest sufficient quota for an algorithm and a burst, with the results of its replay.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) algorithm: Algorithm,
    /// The burst, as the number of seconds in which the rate refills it.
    pub(crate) burst_seconds: u64,
    /// Why the algorithm accepts no quota that is large enough. Absent if the algorithm accepts
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    pub(crate) limit: Option<Quota>,
    /// The number of requests that a client may send at once, which is the burst.
    pub(crate) at_once: Option<u64>,
    pub(crate) rate_per_second: Option<f64>,
    #[serde(flatten)]
    pub(crate) counts: Option<RowCounts>,
    /// Each client's number of denied requests, indexed by the id of the client's key.
    #[serde(skip)]
    pub(crate) denied: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RowCounts {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
    pub(crate) clients_denied: u64,
    pub(crate) longest_wait_ns: u64,
    #[serde(flatten)]
    pub(crate) peaks: Peaks,
}

/// The maximum numbers of requests in the same clock second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Peaks {
    /// The number for all clients together.
    pub(crate) peak_per_second: u64,
    /// The number for a single client.
    pub(crate) peak_per_second_of_one_client: u64,
}

impl Row {
    pub(crate) fn new(
        algorithm: Algorithm,
        seconds: u64,
        quota: Result<Quota, ConfigError>,
        trace: &Trace,
    ) -> Self {
        let found = quota.and_then(|quota| Ok((quota, replayed(algorithm, quota, trace)?)));
        let (refused, found) = match found {
            Ok(found) => (None, Some(found)),
            Err(error) => (Some(error.to_string()), None),
        };
        let (limit, results) = found.unzip();
        let (counts, denied) = results.unzip();
        let at_once = limit.map(Quota::tokens);
        let rate_per_second = at_once.map(|tokens| tokens as f64 / seconds as f64);
        let denied = denied.unwrap_or_default();
        Self { algorithm, burst_seconds: seconds, refused, limit, at_once, rate_per_second, counts, denied }
    }
}

/// Replays a quota. Returns the counts, and each client's number of denied requests.
fn replayed(algorithm: Algorithm, quota: Quota, trace: &Trace) -> Result<(RowCounts, Vec<u64>), ConfigError> {
    let mut load = Load::default();
    let mut counts = RowCounts::default();
    let mut denied = vec![0; trace.clients.len()];
    for (Client { times, .. }, denied) in trace.clients.iter().zip(&mut denied) {
        let limiter = limiter(algorithm, quota)?;
        for &at in times {
            let decision = limiter.at(at).check_n(1);
            if decision.is_allowed() {
                counts.passed += 1;
                load.add(at.as_nanos() / NANOS_PER_SECOND);
            } else {
                *denied += 1;
                let wait = nanos(decision.retry_after().unwrap_or_default());
                counts.longest_wait_ns = counts.longest_wait_ns.max(wait);
            }
        }
        load.end_client();
    }
    counts.denied = denied.iter().sum();
    counts.clients_denied = denied.iter().filter(|&&denied| denied > 0).count() as u64;
    counts.peaks = load.peaks();
    Ok((counts, denied))
}

/// Returns the maximum numbers of requests in the log.
pub(crate) fn peaks_of_log(clients: &[Client]) -> Peaks {
    let mut load = Load::default();
    for client in clients {
        client.times.iter().for_each(|at| load.add(at.as_nanos() / NANOS_PER_SECOND));
        load.end_client();
    }
    load.peaks()
}

/// Counts the requests in each second. The clients are added one after the other.
#[derive(Default)]
struct Load {
    by_second: HashMap<u64, u64, RandomState>,
    /// The latest second in which the current client sent requests, and the number of these
    /// requests.
    latest: Option<(u64, u64)>,
    most_of_one: u64,
}

impl Load {
    fn add(&mut self, second: u64) {
        match &mut self.latest {
            Some((latest, count)) if *latest == second => *count += 1,
            _ => {
                self.end_client();
                self.latest = Some((second, 1));
            }
        }
    }

    /// Ends the current client's latest second.
    fn end_client(&mut self) {
        if let Some((second, count)) = self.latest.take() {
            *self.by_second.entry(second).or_default() += count;
            self.most_of_one = self.most_of_one.max(count);
        }
    }

    fn peaks(&self) -> Peaks {
        let peak_per_second = self.by_second.values().copied().max().unwrap_or(0);
        Peaks { peak_per_second, peak_per_second_of_one_client: self.most_of_one }
    }
}
