//! Tries the limits under one algorithm: decides all requests of the log, and also the requests of
//! a compliant client, which waits out the retry-after of each denial.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tollgate::{Algorithm, Charge, Decision, DecisionSource, ManualClock, Outcome, Permit, Tick, check_all};

use super::limit::Limit;
use super::limiter::{ClassLimiter, ToCharge};
use crate::replay::keys::KeyId;
use crate::replay::position::Position;

/// A limit that applies to a request, with the request's class and key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    pub(crate) limit: usize,
    pub(crate) class: usize,
    pub(crate) id: KeyId,
    /// The position of the key in the bytes of all keys of the request.
    pub(crate) key_start: usize,
    pub(crate) key_end: usize,
}

/// A request, and the limits that apply to it.
pub(crate) struct Asked<'r> {
    /// The limits that count the request. There are none if it [is refused](Self::is_refused).
    pub(crate) applied: &'r [Applied],
    /// The limits that refuse the request without counting it, or would without shadow mode.
    pub(crate) refusing: &'r [Applied],
    /// Whether the last of the `refusing` limits refuses the request.
    pub(crate) is_refused: bool,
    pub(crate) now: Tick,
    pub(crate) duration_ns: u64,
    pub(crate) cost: u64,
    pub(crate) position: Position,
}

/// The limiters of all limits and classes.
pub(crate) struct Limiters {
    pub(crate) by_limit: Vec<Vec<ClassLimiter>>,
    /// The clock of the limits on requests in flight.
    clock: ManualClock,
    has_in_flight: bool,
    /// The places of the admitted requests that end at each time.
    held: BTreeMap<Tick, Vec<Permit>>,
    /// The decisions on the last request, one for each limit that applied.
    decisions: Vec<Option<Decision>>,
}

impl Limiters {
    pub(crate) fn new(by_limit: Vec<Vec<ClassLimiter>>, clock: ManualClock) -> Self {
        let has_in_flight = by_limit.iter().flatten().any(|it| matches!(it, ClassLimiter::InFlight(_)));
        Self { by_limit, clock, has_in_flight, held: BTreeMap::new(), decisions: Vec::new() }
    }

    /// Tells the limiters that the log begins at this time.
    fn begin(&self, at: Tick) {
        self.clock.set(at);
        self.by_limit.iter().flatten().for_each(|limiter| limiter.begin(at));
    }

    /// Checks a request. Returns the index, among the limits that apply, of the limit that refuses
    /// the request, or `None` if it passes.
    #[inline]
    fn check(&mut self, limits: &[Limit], asked: &Asked<'_>) -> Option<usize> {
        self.decisions.clear();
        if let [only] = asked.applied {
            let limiter = &self.by_limit[only.limit][only.class];
            if let Some(decision) = limiter.check(only.id, asked.cost, asked.now) {
                self.decisions.push(Some(decision));
                return (!decision.is_allowed() && !limits[only.limit].is_shadow).then_some(0);
            }
        }
        self.check_together(limits, asked)
    }

    /// Checks a request that several limits count, or a limit on requests in flight.
    fn check_together(&mut self, limits: &[Limit], asked: &Asked<'_>) -> Option<usize> {
        if self.has_in_flight {
            self.clock.set(asked.now);
            while let Some(first) = self.held.first_entry()
                && *first.key() <= asked.now
            {
                first.remove();
            }
        }
        let of = |it: &Applied| &self.by_limit[it.limit][it.class];
        let to_charge: Vec<ToCharge<'_>> =
            asked.applied.iter().map(|it| of(it).charge(&it.id, asked.now)).collect();
        let mut charges: Vec<Charge<'_>> = Vec::with_capacity(to_charge.len());
        for (to_charge, it) in to_charge.iter().zip(asked.applied) {
            let charge = match to_charge {
                ToCharge::Key(key) => Charge::new(&**key, asked.cost),
                // A request holds one place, whatever it costs.
                ToCharge::Permit(permit) => Charge::new(permit, 1),
                ToCharge::Nothing => continue,
            };
            charges.push(if limits[it.limit].is_shadow { charge.shadow() } else { charge });
        }
        let binding = check_all(&mut charges).err().and_then(|denied| denied.index());
        self.decisions.extend(charges.iter().map(|charge| charge.decision().copied()));
        drop(charges);
        if binding.is_none() {
            let ends = Tick::from_nanos(asked.now.as_nanos().saturating_add(asked.duration_ns));
            for it in to_charge {
                if let ToCharge::Permit(permit) = it
                    && permit.count() > 0
                {
                    self.held.entry(ends).or_default().push(permit);
                }
            }
        }
        binding
    }
}

/// The longest wait of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) time: Duration,
    pub(crate) limit: usize,
    pub(crate) id: KeyId,
    pub(crate) position: Position,
}

impl Wait {
    /// Keeps the longer wait, or the first of two equal waits.
    fn raise(longest: &mut Option<Self>, time: Duration, of: &Applied, position: Position) {
        if time > longest.map_or(Duration::ZERO, |wait| wait.time) {
            *longest = Some(Self { time, limit: of.limit, id: of.id, position });
        }
    }
}

/// Sums over the requests in a log.
#[derive(Clone, Debug, Default, Serialize)]
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
    #[serde(skip)]
    pub(crate) longest_wait: Option<Wait>,
    /// Requests that a queue admitted with a later start.
    pub(crate) delayed: u64,
    #[serde(skip)]
    pub(crate) longest_delay: Option<Wait>,
}

/// The results for a client that waits out the retry-after of each denial.
#[derive(Clone, Copy, Debug, Default, Serialize)]
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

/// One algorithm, and the results of its decisions.
pub(crate) struct Trial {
    pub(crate) algorithm: Algorithm,
    limiters: Limiters,
    /// The limiters of the compliant client, or `None` if their states would be those of
    /// `limiters`: while the client waits, `limiters` deny all its requests, and a denial changes
    /// no state.
    of_compliant: Option<Limiters>,
    /// For each limit, its keys.
    keys: Vec<Vec<PerKey>>,
    pub(crate) totals: Totals,
    pub(crate) compliant: Compliant,
}

impl Trial {
    /// `of_compliant` contains the limiters of the compliant client, if their states may differ
    /// from those of `limiters`.
    pub(crate) fn new(algorithm: Algorithm, limiters: Limiters, of_compliant: Option<Limiters>) -> Self {
        let keys = limiters.by_limit.iter().map(|_| Vec::new()).collect();
        let (totals, compliant) = (Totals::default(), Compliant::default());
        Self { algorithm, limiters, of_compliant, keys, totals, compliant }
    }

    /// Tells the limiters that the log begins at this time.
    pub(crate) fn begin(&self, at: Tick) {
        self.limiters.begin(at);
        self.of_compliant.iter().for_each(|limiters| limiters.begin(at));
    }

    /// Decides a request, and counts the result. Returns the index, among the limits that apply, of
    /// the limit that refuses the request, or `None` if it passes or [is
    /// refused](Asked::is_refused).
    #[inline]
    pub(crate) fn judge(&mut self, limits: &[Limit], asked: &Asked<'_>) -> Option<usize> {
        for it in asked.refusing {
            key(&mut self.keys, it).denied += 1;
        }
        if asked.is_refused {
            self.totals.denied += 1;
            self.totals.cost_denied += u128::from(asked.cost);
            self.compliant.too_costly += 1;
            return None;
        }
        let binding = self.limiters.check(limits, asked);
        self.count(asked, binding);
        self.judge_compliant(limits, asked, binding);
        binding
    }

    #[inline]
    fn count(&mut self, asked: &Asked<'_>, binding: Option<usize>) {
        let Asked { applied, position, .. } = *asked;
        let cost = u128::from(asked.cost);
        let Self { limiters, keys, totals, algorithm, .. } = self;
        for (place, (it, decision)) in applied.iter().zip(&limiters.decisions).enumerate() {
            let Some(decision) = decision else { continue };
            match decision.source() {
                DecisionSource::Policy => totals.answered_by_full_policy += 1,
                DecisionSource::Overflow => totals.charged_to_shared_overflow += 1,
                _ => {}
            }
            if decision.is_allowed() {
                continue;
            }
            key(keys, it).denied += 1;
            if binding == Some(place) {
                totals.too_costly += u64::from(decision.outcome() == Outcome::TooCostly);
                let wait = decision.retry_after().unwrap_or_default();
                Wait::raise(&mut totals.longest_wait, wait, it, position);
            }
        }
        if binding.is_some() {
            totals.denied += 1;
            totals.cost_denied += cost;
            return;
        }
        totals.passed += 1;
        totals.cost_passed += cost;
        // Only a queue admits requests with a later start.
        if *algorithm != Algorithm::LeakyQueue {
            return;
        }
        let delays = applied.iter().zip(&limiters.decisions);
        let delays = delays.filter_map(|(it, decision)| Some((decision.as_ref()?.start_after(), it)));
        if let Some((delay, it)) =
            delays.max_by_key(|(delay, _)| *delay).filter(|(delay, _)| !delay.is_zero())
        {
            totals.delayed += 1;
            Wait::raise(&mut totals.longest_delay, delay, it, position);
        }
    }

    #[inline]
    fn judge_compliant(&mut self, limits: &[Limit], asked: &Asked<'_>, binding: Option<usize>) {
        let Self { limiters, of_compliant, keys, compliant, .. } = self;
        if asked.applied.iter().any(|it| asked.now < key(keys, it).waits_until) {
            compliant.withheld += 1;
            return;
        }
        let (binding, decisions) = match of_compliant {
            Some(limiters) => (limiters.check(limits, asked), &limiters.decisions),
            None => (binding, &limiters.decisions),
        };
        let Some(binding) = binding else {
            compliant.passed += 1;
            return;
        };
        let decision = decisions.get(binding).and_then(Option::as_ref);
        if decision.is_some_and(|it| it.outcome() == Outcome::TooCostly) {
            compliant.too_costly += 1;
            return;
        }
        compliant.denied += 1;
        let wait = decision.and_then(Decision::retry_after).unwrap_or_default();
        key(keys, &asked.applied[binding]).waits_until = asked.now + wait;
    }

    /// Returns the decisions on the last request, one for each limit that applied.
    pub(crate) fn decisions(&self) -> &[Option<Decision>] {
        &self.limiters.decisions
    }

    /// Returns how often this limit has refused a request of this key, or would have without shadow
    /// mode.
    pub(crate) fn denied(&self, limit: usize, id: KeyId) -> u64 {
        self.keys[limit].get(id).map_or(0, |key| key.denied)
    }

    /// Returns the number of keys with a refused request.
    pub(crate) fn keys_denied(&self) -> usize {
        self.keys.iter().flatten().filter(|key| key.denied > 0).count()
    }
}

#[inline]
fn key<'k>(keys: &'k mut [Vec<PerKey>], of: &Applied) -> &'k mut PerKey {
    let keys = &mut keys[of.limit];
    if of.id >= keys.len() {
        keys.resize(of.id + 1, PerKey::default());
    }
    &mut keys[of.id]
}
