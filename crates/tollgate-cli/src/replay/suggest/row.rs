//! Builds one row of a suggestion: a quota, and the figures from replaying it.

use std::collections::HashMap;
use std::time::Duration;

use foldhash::fast::RandomState;
use tollgate::{Algorithm, Chargeable, ConfigError, Quota};

use super::client::Client;
use super::search::limiter;
use super::trace::Trace;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The smallest sufficient quota for an algorithm and a burst, with a replay of this quota.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) algorithm: Algorithm,
    /// The burst, as the number of seconds in which the rate refills it.
    pub(crate) seconds: u64,
    pub(crate) found: Result<Replayed, ConfigError>,
}

/// A quota and the results of its replay.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub(crate) quota: Quota,
    pub(crate) figures: Figures,
    /// Each client's number of denied requests, indexed by the id of the client's key.
    pub(crate) denied: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
    pub(crate) clients_denied: u64,
    pub(crate) longest_wait: Duration,
    /// The maximum number of requests from all clients that pass in the same clock second.
    pub(crate) peak: u64,
    /// The maximum number of requests from a single client that pass in the same clock second.
    pub(crate) peak_of_one: u64,
}

impl Row {
    pub(crate) fn new(
        algorithm: Algorithm,
        seconds: u64,
        quota: Result<Quota, ConfigError>,
        trace: &Trace,
    ) -> Self {
        Self { algorithm, seconds, found: quota.and_then(|quota| Replayed::new(algorithm, quota, trace)) }
    }
}

impl Replayed {
    fn new(algorithm: Algorithm, quota: Quota, trace: &Trace) -> Result<Self, ConfigError> {
        let mut load = Load::default();
        let mut figures = Figures::default();
        let mut denied = vec![0; trace.clients.len()];
        for (id, Client { times, .. }) in trace.clients.iter().enumerate() {
            let limiter = limiter(algorithm, quota)?;
            for &at in times {
                let decision = limiter.at(at).check_n(1);
                if decision.is_allowed() {
                    figures.passed += 1;
                    load.add(at.as_nanos() / NANOS_PER_SECOND);
                } else {
                    denied[id] += 1;
                    let wait = decision.retry_after().unwrap_or_default();
                    figures.longest_wait = figures.longest_wait.max(wait);
                }
            }
            load.end_client();
        }
        figures.denied = denied.iter().sum();
        figures.clients_denied = denied.iter().filter(|&&denied| denied > 0).count() as u64;
        (figures.peak, figures.peak_of_one) = load.peaks();
        Ok(Self { quota, figures, denied })
    }
}

/// Returns the maximum number of requests in one clock second: the first number is for all clients
/// together, and the second is for a single client.
pub(crate) fn peaks_of_log(clients: &[Client]) -> (u64, u64) {
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

    fn peaks(&self) -> (u64, u64) {
        (self.by_second.values().copied().max().unwrap_or(0), self.most_of_one)
    }
}
