//! [`Cell`]: the state of a key on this machine. It consists of the leased tokens, the denials that
//! are repeated without a request to the store, and the size of the next lease.
//!
//! # Orderings
//!
//! Each of the atomics here is relaxed: a heuristic, a figure of a decision, or a word that is the
//! whole state of a denial. The pool of tokens has an ordering of its own (`words/pool.rs`).

use super::demand::Demand;
use crate::scripts::rule::{Answer, Settled, Settlement};
use crate::words::atomics::{AtomicBool, AtomicU64, Relaxed};
use crate::words::pool::{Closed, LAST, TICK, TokenPool};
use std::time::Duration;
use tokio::sync::Notify;
use tollgate::{Decision, DecisionParts, DecisionSource, Outcome, Tick};

/// The maximum time for which a denial is remembered, in ticks.
const DENIED: u64 = 1_000;
/// A denial of a higher cost is not remembered.
const MOST_COST: u64 = (1 << COST_BITS) - 1;
const COST_BITS: u32 = 24;
/// A key without tokens is idle if it has not asked the store for this many ticks.
pub(super) const IDLE: u64 = 1_000;
/// The next lease is requested when the tokens that are left last for at most this many ticks, or
/// for twice the time that the store took for its last answer. The answer then usually arrives
/// before they are spent.
const EARLY: u64 = 25;

/// The state of a key on this machine.
#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) pool: TokenPool,
    /// Notified when the store has answered.
    pub(super) answered: Notify,
    /// The cost that this machine denies without a request to the store, and the end of this
    /// denial: `until << COST_BITS | cost`, or 0 if there is no denial.
    denied: AtomicU64,
    /// The retry time reported by the store, which may be much later than `until`.
    retry_at: AtomicU64,
    /// Whether the store has denied the cost because the key is paused.
    is_paused: AtomicBool,
    /// The size of the last lease that was requested, and the time of that request.
    size: AtomicU64,
    asked: AtomicU64,
    /// The number of unspent tokens after the last request.
    leased: AtomicU64,
    /// The next lease is requested when at most this many tokens are left.
    early: AtomicU64,
    /// How long the store took for the last answer, in ticks.
    took: AtomicU64,
    /// The leases that the store has granted for the places of the pool. Only the owner of the
    /// right to ask uses them.
    granted: [Granted; 2],
    /// The figures of the last answer: the remaining tokens, and the time of the full reset.
    remaining: AtomicU64,
    reset_at: AtomicU64,
}

/// A lease as the store knows it: the number that identifies its charge, and its tokens. A lease of
/// 0 tokens needs no settlement.
#[derive(Debug, Default)]
struct Granted {
    charge: AtomicU64,
    tokens: AtomicU64,
}

/// The closed leases of both places.
pub(super) type ClosedLeases = [Option<ClosedLease>; 2];

/// A closed lease: its end, and what the store must be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClosedLease {
    until: u64,
    settlement: Settlement,
}

/// Returns the settlements of closed leases. An empty place needs none.
pub(super) fn settled(closed: &ClosedLeases) -> Settled {
    closed.map(|lease| lease.map(|it| it.settlement).filter(|it| it.granted > 0))
}

/// Returns `time` in whole ticks, capped at the maximum that a lease can represent.
pub(super) fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_nanos() / u128::from(TICK)).unwrap_or(LAST).min(LAST)
}

impl Cell {
    /// Fills the place of a closed lease with `unspent` tokens of a lease of `granted` tokens.
    /// Requires the right to ask.
    pub(super) fn fill(&self, place: usize, until: u64, settlement: Settlement) {
        let Settlement { charge, granted, unspent } = settlement;
        // ORDERING: relaxed, as in `close`.
        self.granted[place].charge.store(charge, Relaxed);
        // ORDERING: relaxed, as in `close`.
        self.granted[place].tokens.store(granted, Relaxed);
        self.pool.fill(place, unspent, until);
    }

    /// Closes the leases without tokens that can be spent, or `all` leases. Requires the right to
    /// ask.
    pub(super) fn close(&self, all: bool, clock: impl Fn() -> u64) -> ClosedLeases {
        let mut places = self.granted.iter();
        self.pool.close(all, clock).map(|closed| {
            let (granted, Closed { until, unspent }) = (places.next()?, closed?);
            // ORDERING: relaxed, here and in `fill`; the right to ask orders its owners.
            let (charge, granted) = (granted.charge.load(Relaxed), granted.tokens.swap(0, Relaxed));
            Some(ClosedLease { until, settlement: Settlement { charge, granted, unspent } })
        })
    }

    /// Opens closed leases again, which the store has not settled. Requires the right to ask.
    pub(super) fn reopen(&self, closed: &ClosedLeases) {
        for (place, lease) in closed.iter().enumerate() {
            if let Some(ClosedLease { until, settlement }) = *lease {
                self.fill(place, until, settlement);
            }
        }
    }

    /// If the store has denied `cost`, returns how many ticks must pass before `cost` may be
    /// requested again.
    pub(super) fn denied_for(&self, cost: u64, now: u64) -> Option<u64> {
        // ORDERING: relaxed; the word is the whole state.
        let word = self.denied.load(Relaxed);
        let (until, denied) = (word >> COST_BITS, word & MOST_COST);
        // ORDERING: relaxed, as in `record`.
        let wait = || self.retry_at.load(Relaxed).max(until) - now;
        (until > now && cost >= denied && (denied > 0 || cost == 0)).then(wait)
    }

    /// Returns whether it is time to request the next lease, when `left` tokens are left.
    pub(super) fn is_due(&self, left: u64, now: u64) -> bool {
        // ORDERING: relaxed, because these numbers only decide how early the next lease is
        // requested.
        let (size, early) = (self.size.load(Relaxed), self.early.load(Relaxed));
        // A key with the smallest lease may be a rarely used key.
        left <= early && size >= 2 && self.pool.has_room(now) && !self.has_nothing_to_lease(now)
    }

    /// Records how many ticks a request took. `is_lost` is true if a lease may be lost; the next
    /// one then starts small.
    pub(super) fn note_answer(&self, took: u64, is_lost: bool) {
        if is_lost {
            // ORDERING: relaxed, as in `next_lease`.
            self.size.store(0, Relaxed);
        }
        // ORDERING: relaxed, as in `next_lease`.
        self.took.store(took, Relaxed);
        // ORDERING: relaxed, as in `next_lease`.
        self.leased.store(self.pool.unspent(), Relaxed);
    }

    /// Forgets a denial.
    pub(super) fn forget_denial(&self) {
        // ORDERING: relaxed, as in `denied_for`.
        self.denied.store(0, Relaxed);
    }

    /// Returns true if the store had no tokens left a moment ago.
    fn has_nothing_to_lease(&self, now: u64) -> bool {
        // ORDERING: relaxed, as in `denied_for`.
        let word = self.denied.load(Relaxed);
        word >> COST_BITS > now && word & MOST_COST <= 1
    }

    /// Records that `cost` tokens, at most [`MOST_COST`], are denied until `until`. A cost of 0
    /// means that the store had nothing to lease.
    pub(super) fn deny(&self, cost: u64, until: u64) {
        // ORDERING: relaxed, as in `denied_for`.
        self.denied.store(until.min(LAST) << COST_BITS | cost, Relaxed);
    }

    /// Stores the figures of an answer to a request for `cost` tokens. A denial is remembered for
    /// at least `rest`. If `denies_empty` is true, the fact that no token is left counts as a
    /// denial of any cost.
    pub(super) fn record(&self, answer: &Answer, cost: u64, rest: u64, denies_empty: bool, now: u64) {
        let decision = &answer.decision;
        let remaining = decision.remaining().saturating_sub(answer.lease);
        // ORDERING: relaxed, because a decision may mix the figures of two answers. The leased
        // tokens themselves are in the pool.
        self.remaining.store(remaining, Relaxed);
        // ORDERING: relaxed, as above.
        self.reset_at.store(now.saturating_add(ticks(decision.reset_after())), Relaxed);
        let (cost, wait) = match (decision.outcome(), decision.retry_after()) {
            (Outcome::Denied, Some(wait)) if cost <= MOST_COST => (cost, ticks(wait)),
            // The next request would be denied, unless the leased tokens pay it.
            (Outcome::Allowed, _) if remaining == 0 && denies_empty => (1, ticks(decision.refill_after())),
            _ => return,
        };
        // ORDERING: relaxed, as above.
        self.retry_at.store(now.saturating_add(wait), Relaxed);
        // ORDERING: relaxed, as above.
        self.is_paused.store(decision.source() == DecisionSource::Pause, Relaxed);
        self.deny(cost, now + wait.max(rest).min(DENIED));
    }

    /// Returns the tokens of the next lease, which can be kept for `hold` ticks, for a request that
    /// costs `cost` tokens. Requires the right to ask.
    pub(super) fn next_lease(&self, cost: u64, most: u64, hold: u64, now: u64) -> u64 {
        // ORDERING: relaxed, here and below, because these numbers are heuristics, and only the
        // caller with the right to ask reaches this code.
        let (size, asked) = (self.size.load(Relaxed), self.asked.swap(now, Relaxed));
        if asked == 0 {
            return 0;
        }
        // ORDERING: relaxed, as above.
        let spent = self.leased.load(Relaxed).saturating_sub(self.pool.unspent()).saturating_add(cost);
        let demand = Demand { spent, time: now.saturating_sub(asked).max(1) };
        let tokens = demand.next(size, most, hold);
        // ORDERING: relaxed, as above.
        self.size.store(tokens, Relaxed);
        // ORDERING: relaxed, as above.
        let lead = EARLY.max(2 * self.took.load(Relaxed));
        // ORDERING: relaxed, as above.
        self.early.store(demand.within(lead).min(tokens / 2), Relaxed);
        tokens
    }

    pub(super) fn is_idle(&self, now: u64) -> bool {
        // ORDERING: relaxed, as in `next_lease`.
        let asked = self.asked.load(Relaxed);
        // ORDERING: relaxed, as in `denied_for`.
        let denied = self.denied.load(Relaxed) >> COST_BITS;
        self.pool.held(now) == 0 && denied <= now && asked + IDLE < now
    }

    /// Returns a decision made on this machine. `wait` is in ticks.
    pub(super) fn decision(&self, outcome: Outcome, cost: u64, limit: u64, wait: u64, now: u64) -> Decision {
        let duration = |ticks: u64| Duration::from_nanos(ticks.saturating_mul(TICK));
        // ORDERING: relaxed, as in `record`.
        let (remaining, reset_at) = (self.remaining.load(Relaxed), self.reset_at.load(Relaxed));
        let remaining = remaining.saturating_add(self.pool.held(now)).min(limit);
        // A denial that was remembered may be older than the time of the reset.
        let reset = duration(reset_at.saturating_sub(now).max(wait));
        // ORDERING: relaxed, as in `record`.
        let is_paused = outcome == Outcome::Denied && self.is_paused.load(Relaxed);
        Decision::from(DecisionParts {
            outcome,
            cost,
            capacity: limit,
            remaining: if outcome == Outcome::Allowed {
                remaining
            } else {
                remaining.min(cost.saturating_sub(1))
            },
            wait: Some(duration(wait)),
            reset_after: reset,
            refill_after: if outcome == Outcome::Allowed { reset } else { duration(wait).min(reset) },
            at: Tick::from_nanos(now.saturating_mul(TICK)),
            source: if is_paused { DecisionSource::Pause } else { DecisionSource::Lease },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_that_is_too_large_to_remember_changes_no_other() {
        let denial = |cost: u64, wait: u64, source| {
            let wait = Duration::from_millis(wait);
            let decision = Decision::from(DecisionParts {
                outcome: Outcome::Denied,
                cost,
                capacity: u64::MAX,
                remaining: 0,
                wait: Some(wait),
                reset_after: wait,
                refill_after: wait,
                at: Tick::ZERO,
                source,
            });
            Answer { decision, lease: 0, hold: Duration::ZERO, charge: 0 }
        };
        let cell = Cell::default();
        cell.record(&denial(5, 100, DecisionSource::Store), 5, 0, true, 1);
        cell.record(&denial(MOST_COST + 1, 700, DecisionSource::Pause), MOST_COST + 1, 0, true, 1);
        assert_eq!(cell.denied_for(5, 1), Some(100));
        let decision = cell.decision(Outcome::Denied, 5, u64::MAX, 100, 1);
        assert_eq!(decision.source(), DecisionSource::Lease);
    }
}
