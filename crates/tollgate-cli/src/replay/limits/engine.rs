//! Enforces the limits with the proxy's layer, whose clock follows the times in a log.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{Request, Response};
use tollgate::{Algorithm, Clock, ManualClock, Quota, Tick};
use tollgate_http::program::{self, Checked, Fact, Held};
use tollgate_http::settings::{Allowance, LayerSettings, LimitPart};
use tollgate_http::{LayerError, RateLimitLayer};

use super::tally::{Refusal, Tally};
use crate::failure::Failure;
use crate::layer_error::refused;

/// The limits, which decide on requests at given times.
pub(crate) struct Engine {
    layer: RateLimitLayer,
    clock: ManualClock,
    tally: Arc<Mutex<Tally>>,
    /// The admitted requests that occupy places. The request that ends first is at the top of the
    /// heap.
    in_flight: BinaryHeap<Reverse<InFlight>>,
    pub(crate) passed: u64,
    pub(crate) refused: u64,
}

/// A request in flight.
struct InFlight {
    ends: Tick,
    _held: Held,
}

impl PartialEq for InFlight {
    fn eq(&self, other: &Self) -> bool {
        self.ends == other.ends
    }
}

impl Eq for InFlight {}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ends.cmp(&other.ends)
    }
}

/// Checks all settings, and returns the limit parts that together enforce these settings.
///
/// # Errors
///
/// Returns an error if the proxy would refuse the settings.
pub(crate) fn parts(settings: &LayerSettings) -> Result<Vec<LimitPart>, Failure> {
    let mut parts = Vec::new();
    let builder = settings.builder_with(|part| {
        parts.push(part.clone());
        program::local(settings, part, None)
    });
    // If all limits are in shadow mode, the builder accepts them only with a listener.
    let built = builder.and_then(|builder| builder.on_decision(|_| {}).build());
    built.map_err(|error| refused(&error))?;
    Ok(parts)
}

impl Engine {
    /// Builds the limits. If `goes_by_record` is set, a limit that needs a header or a query
    /// parameter uses the key and the class recorded for the request.
    ///
    /// # Errors
    ///
    /// Returns an error if the proxy would refuse the settings.
    pub(crate) fn new(
        settings: &LayerSettings,
        parts: &[LimitPart],
        goes_by_record: bool,
    ) -> Result<Self, Failure> {
        Self::built(settings, parts, goes_by_record, LimitPart::clone)
    }

    /// Builds the limits under another algorithm. Windows and logs take no burst, and run without.
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm does not accept a quota.
    pub(crate) fn beside(
        settings: &LayerSettings,
        algorithm: Algorithm,
        parts: &[LimitPart],
        goes_by_record: bool,
    ) -> Result<Self, Failure> {
        let settings = LayerSettings { algorithm, ..settings.clone() };
        Self::built(&settings, parts, goes_by_record, |part| match algorithm.has_burst() {
            true => part.clone(),
            false => without_burst(part),
        })
    }

    fn built(
        settings: &LayerSettings,
        parts: &[LimitPart],
        goes_by_record: bool,
        tried: impl Fn(&LimitPart) -> LimitPart,
    ) -> Result<Self, Failure> {
        let is_shadow = |part: &LimitPart| settings.shadows.contains(&part.text_name);
        let limits = parts.iter().map(|part| (part.name.clone(), is_shadow(part)));
        let tally = Arc::new(Mutex::new(Tally::new(limits, settings.ipv6_prefix)));
        let clock = ManualClock::new();
        let time = Clock::from(&clock);
        let build = || -> Result<RateLimitLayer, LayerError> {
            let make = |part: &LimitPart| program::local(settings, &tried(part), Some(&time));
            let lacking = |fact: &Fact| goes_by_record && fact.is_of_few_logs();
            let (decided, unknown) = (Arc::clone(&tally), Arc::clone(&tally));
            program::builder_recorded(settings, make, lacking)?
                .without_fields()
                .respond(|_| Response::default())
                .on_decision(move |event| locked(&decided).add(event))
                .on_unknown_class(move |limit, class| locked(&unknown).add_unknown(limit, class))
                .build()
        };
        let layer = build().map_err(|error| refused(&error))?;
        Ok(Self { layer, clock, tally, in_flight: BinaryHeap::new(), passed: 0, refused: 0 })
    }

    /// Decides on a request that arrives at `at` and lasts for `duration_ns`. The request is judged
    /// at `at` or at the latest time seen so far, whichever is later. Returns the time at which the
    /// request was judged and, if it was refused, the refusal.
    pub(crate) fn judge(
        &mut self,
        request: &Request<()>,
        at: Tick,
        duration_ns: u64,
    ) -> (Tick, Option<Refusal>) {
        let now = at.max(self.clock.now());
        self.clock.set(now);
        while self.in_flight.peek().is_some_and(|Reverse(first)| first.ends <= now) {
            self.in_flight.pop();
        }
        let checked = program::check_request(&self.layer, request);
        let refusal = locked(&self.tally).end();
        match checked {
            Checked::Passed(held) => {
                if !held.is_empty() {
                    let ends = Tick::from_nanos(now.as_nanos().saturating_add(duration_ns));
                    self.in_flight.push(Reverse(InFlight { ends, _held: held }));
                }
                self.passed += 1;
                (now, None)
            }
            // Process-local limits never make a request wait.
            Checked::Refused(_) | Checked::Waits => {
                self.refused += 1;
                (now, refusal)
            }
        }
    }

    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        locked(&self.tally)
    }
}

fn without_burst(part: &LimitPart) -> LimitPart {
    let mut part = part.clone();
    let classes = part.classes.iter_mut().map(|(_, allowance)| allowance);
    for allowance in std::iter::once(&mut part.allowance).chain(classes) {
        if let Allowance::Rate(quota) = allowance {
            *quota = Quota::new(quota.tokens(), quota.period());
        }
    }
    part
}

fn locked(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}
