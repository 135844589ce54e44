//! Simulates one algorithm: runs its limiter and a compliant client's limiter, and collects the
//! results.

use std::time::{Duration, Instant};

use tollgate::{Algorithm, ConfigError, Decision, DecisionSource, Outcome, Quota, QuotaError, Tick};

use super::decisions::Decisions;
use super::keys::KeyId;
use super::limiter::{LimiterSettings, ReplayLimiter};
use super::position::Position;
use super::timeline::Timeline;
use crate::failure::Failure;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// A batch of requests. The whole batch is parsed, then decided, and then counted, so that the time
/// spent in the limiter can be measured without reading a clock for every check.
#[derive(Default)]
pub(crate) struct Batch {
    keys: Vec<u8>,
    requests: Vec<Asked>,
}

/// A request in a batch; its key is `keys[key_start..key_end]`.
struct Asked {
    key_start: usize,
    key_end: usize,
    id: KeyId,
    at: Tick,
    cost: u64,
    position: Position,
}

impl Batch {
    const SIZE: usize = 256;
    /// A batch is full when its keys have this total size in bytes. A single key may be as long as
    /// a line.
    const KEY_BYTES: usize = 1 << 20;

    #[inline]
    pub(crate) fn push(&mut self, key: &[u8], id: KeyId, at: Tick, cost: u64, position: Position) {
        let key_start = self.keys.len();
        self.keys.extend_from_slice(key);
        let key_end = self.keys.len();
        self.requests.push(Asked { key_start, key_end, id, at, cost, position });
    }

    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= Self::SIZE || self.keys.len() >= Self::KEY_BYTES
    }

    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.requests.clear();
    }

    fn key(&self, asked: &Asked) -> &[u8] {
        &self.keys[asked.key_start..asked.key_end]
    }
}

/// A request in a batch, and the decision on it.
pub(crate) struct Decided<'b> {
    #[cfg(feature = "html")]
    pub(crate) id: KeyId,
    pub(crate) key: &'b [u8],
    pub(crate) at: Tick,
    pub(crate) decision: &'b Decision,
}

/// The longest wait of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) time: Duration,
    pub(crate) id: KeyId,
    pub(crate) position: Position,
}

impl Wait {
    /// Keeps the longer wait, or the first of two equal waits.
    fn raise(longest: &mut Option<Self>, time: Duration, asked: &Asked) {
        if time > longest.map_or(Duration::ZERO, |wait| wait.time) {
            *longest = Some(Self { time, id: asked.id, position: asked.position });
        }
    }
}

/// Sums over the requests in a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
    pub(crate) cost_passed: u128,
    pub(crate) cost_denied: u128,
    /// Requests that can never pass, because they cost more than the capacity.
    pub(crate) too_costly: u64,
    /// Requests with a new key, answered by the policy itself because the table was full.
    pub(crate) answered_by_full_policy: u64,
    /// Requests with a new key, charged to the shared overflow bucket because the table was full.
    pub(crate) charged_to_shared_overflow: u64,
    pub(crate) longest_wait: Option<Wait>,
    /// Requests that a queue admitted with a later start.
    pub(crate) delayed: u64,
    pub(crate) longest_delay: Option<Wait>,
}

/// The results for a client that waits out the retry-after of each denial.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compliant {
    pub(crate) passed: u64,
    pub(crate) denied: u64,
    /// Requests in the log that the client would not have sent because it was waiting.
    pub(crate) withheld: u64,
    /// Requests that can never pass, however long the client waits.
    pub(crate) too_costly: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PerKey {
    denied: u64,
    /// The time until which the compliant client sends nothing.
    waits_until: Tick,
}

/// One algorithm and the results of its decisions.
pub(crate) struct Simulation {
    pub(crate) algorithm: Algorithm,
    pub(crate) quota: Quota,
    limiter: ReplayLimiter,
    compliant_limiter: ReplayLimiter,
    decisions: Vec<Decision>,
    per_key: Vec<PerKey>,
    pub(crate) totals: Totals,
    pub(crate) compliant: Compliant,
    pub(crate) timeline: Timeline,
    /// The number of checks made by the main limiter, and their total time.
    pub(crate) checks: u64,
    pub(crate) checking: Duration,
}

impl Simulation {
    /// # Errors
    ///
    /// Returns an error if the algorithm cannot enforce this quota.
    pub(crate) fn new(
        algorithm: Algorithm,
        quota: Quota,
        settings: LimiterSettings,
    ) -> Result<Self, ConfigError> {
        let build = || ReplayLimiter::new(algorithm, quota, settings);
        Ok(Self {
            algorithm,
            quota,
            limiter: build()?,
            compliant_limiter: build()?,
            decisions: Vec::with_capacity(Batch::SIZE),
            per_key: Vec::new(),
            totals: Totals::default(),
            compliant: Compliant::default(),
            timeline: Timeline::new(),
            checks: 0,
            checking: Duration::ZERO,
        })
    }

    /// Sets the quotas of individual keys, which replace the common quota.
    ///
    /// # Errors
    ///
    /// See [`ReplayLimiter::set_key_quotas`].
    pub(crate) fn set_key_quotas<'k>(
        &self,
        quotas: impl Iterator<Item = (&'k [u8], Quota)> + Clone,
    ) -> Result<(), QuotaError> {
        self.limiter.set_key_quotas(quotas.clone())?;
        self.compliant_limiter.set_key_quotas(quotas)
    }

    /// Decides the requests in a batch in order, and counts the results. `keys` is the number of
    /// keys seen so far.
    pub(crate) fn judge(
        &mut self,
        batch: &Batch,
        keys: usize,
        mut log: Option<&mut Decisions>,
    ) -> Result<(), Failure> {
        self.decisions.clear();
        let start = Instant::now();
        for asked in &batch.requests {
            let decision = self.limiter.check_at(asked.id, batch.key(asked), asked.cost, asked.at);
            self.decisions.push(decision);
        }
        self.checking += start.elapsed();
        self.checks += batch.requests.len() as u64;

        self.per_key.resize(keys, PerKey::default());
        for (asked, decision) in batch.requests.iter().zip(&self.decisions) {
            self.totals.add(asked, decision);
            self.per_key[asked.id].denied += u64::from(!decision.is_allowed());
            self.timeline.count(asked.at.as_nanos() / NANOS_PER_SECOND, decision.is_allowed());
            if let Some(log) = log.as_deref_mut() {
                log.write(asked.position, asked.id, batch.key(asked), decision)?;
            }
            let waits_until = &mut self.per_key[asked.id].waits_until;
            if asked.at < *waits_until {
                self.compliant.withheld += 1;
                continue;
            }
            let answer = self.compliant_limiter.check_at(asked.id, batch.key(asked), asked.cost, asked.at);
            if answer.is_allowed() {
                self.compliant.passed += 1;
            } else if answer.outcome() == Outcome::TooCostly {
                self.compliant.too_costly += 1;
            } else {
                self.compliant.denied += 1;
                *waits_until = asked.at + answer.retry_after().unwrap_or_default();
            }
        }
        Ok(())
    }

    /// Returns the requests in the last decided batch, each with its decision. `batch` must be that
    /// batch.
    pub(crate) fn decided<'b>(&'b self, batch: &'b Batch) -> impl Iterator<Item = Decided<'b>> {
        batch.requests.iter().zip(&self.decisions).map(|(asked, decision)| Decided {
            #[cfg(feature = "html")]
            id: asked.id,
            key: batch.key(asked),
            at: asked.at,
            decision,
        })
    }

    /// Returns the number of denials of this key.
    pub(crate) fn denied(&self, id: KeyId) -> u64 {
        self.per_key[id].denied
    }

    /// Returns the number of keys whose state the replay stores.
    pub(crate) fn keys_tracked(&self) -> usize {
        self.limiter.len()
    }

    /// Returns the size of the states in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.limiter.bytes()
    }
}

impl Totals {
    #[inline]
    fn add(&mut self, asked: &Asked, decision: &Decision) {
        let cost = u128::from(asked.cost);
        if decision.is_allowed() {
            self.passed += 1;
            self.cost_passed += cost;
            let delay = decision.start_after();
            self.delayed += u64::from(!delay.is_zero());
            Wait::raise(&mut self.longest_delay, delay, asked);
        } else {
            self.denied += 1;
            self.cost_denied += cost;
            self.too_costly += u64::from(decision.outcome() == Outcome::TooCostly);
            let wait = decision.retry_after().unwrap_or_default();
            Wait::raise(&mut self.longest_wait, wait, asked);
        }
        match decision.source() {
            DecisionSource::Policy => self.answered_by_full_policy += 1,
            DecisionSource::Overflow => self.charged_to_shared_overflow += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_ends_by_requests_or_by_the_bytes_of_their_keys() {
        for (length, requests) in [(0, 256), (9, 256), (1 << 18, 4), (1 << 20, 1)] {
            let mut batch = Batch::default();
            let mut pushed = 0;
            while !batch.is_full() {
                batch.push(&vec![b'x'; length], 0, Tick::from_nanos(0), 1, Position { file: 0, line: 1 });
                pushed += 1;
            }
            assert_eq!(pushed, requests, "{length}");
        }
    }
}
