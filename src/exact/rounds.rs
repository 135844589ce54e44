//! When idle keys are looked for, and how far the looking has come.
//!
//! A *round* goes once over all places, a few at a time, by whoever has something to do in the store. A round
//! begins when as many keys are there as the store expects (its *capacity*, which follows the keys: twice as
//! large if it was reached quickly or by keys that stay, smaller if hardly used), so that keys which come back
//! again and again are not evicted and inserted for ever; at the cap, by sweeps and by clearing.
//!
//! # State
//!
//! `hand`: the next place to be visited, and the first that is not of this round. Equal: no round is under
//! way. Changed by compare-and-swap only: a thread claims the places that it visits. `believed`:
//! the time by which all places of the round are judged, less the grace. `forgotten`: the mark of
//! all that was forgotten (see `forgetting`).
//!
//! A thread that stops after it has claimed places leaves these few to the next round, and stops nobody. A
//! claim that was made from a value out of date, and succeeds because the hand came to the same value again,
//! claims places of the new round, which is as good.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! All relaxed: the hand says which places are visited, and nothing of what is found there. The others are
//! estimates.

use crate::forgetting::{Evidence, Mark};
use crate::growth::{self, is_hardly_used};
use crate::sync::{Atomic, Ordering::Relaxed};
use crate::time::Tick;
use std::ops::Range;
use std::time::Duration;

/// How many places one step visits.
pub(super) const STEP: u32 = if cfg!(tollgate_loom) { 1 } else { 8 };

/// How far a round has come. It is over when `at` has reached `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hand {
    at: u32,
    end: u32,
}

impl Hand {
    const fn is_over(self) -> bool {
        self.at >= self.end
    }

    /// `at` in the low half, `end` in the high one.
    const fn bits(self) -> u64 {
        (self.end as u64) << 32 | self.at as u64
    }

    #[allow(clippy::cast_possible_truncation)]
    const fn of(bits: u64) -> Self {
        Self { at: bits as u32, end: (bits >> 32) as u32 }
    }
}

/// The rounds of a store. On cache lines of its own, because it is written while keys are inserted.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Rounds {
    /// The bits of a [`Hand`].
    hand: Atomic<u64>,
    capacity: Atomic<u64>,
    /// When the last round began.
    began: Atomic<u64>,
    /// The time by which its keys are judged to be idle, but for the grace.
    believed: Atomic<u64>,
    /// New keys that got a place.
    inserted: Atomic<u64>,
    evidence: Evidence,
    /// No key that was forgotten is throttled from then on.
    forgotten: Mark,
    /// How many keys were there when the last round was over.
    stayed: Atomic<u64>,
    done: Atomic<u64>,
    most: u64,
    grace: Duration,
}

/// The places that a step is to visit.
pub(super) struct Claim {
    pub(super) places: Range<u32>,
    /// Is the round over with this step?
    pub(super) is_last: bool,
}

impl Rounds {
    pub(super) fn new(most: u64, grace: Duration) -> Self {
        let count = |value| Atomic::new(value);
        Self {
            hand: count(Hand { at: 0, end: 0 }.bits()),
            capacity: count(growth::FIRST.min(most)),
            began: count(0),
            believed: count(0),
            inserted: count(0),
            evidence: Evidence::none(),
            forgotten: Mark::at(Tick::ZERO),
            stayed: count(0),
            done: count(0),
            most,
            grace,
        }
    }

    /// What is idle then is forgotten by the round that is under way.
    pub(super) fn judged_at(&self) -> Tick {
        self.believed().before(self.grace)
    }

    /// The mark of what was forgotten.
    pub(super) fn forgotten(&self) -> &Mark {
        &self.forgotten
    }

    /// Notes the time of a key that is inserted.
    pub(super) fn note_insertion(&self, now: Tick) {
        // ORDERING: relaxed; a count.
        self.evidence.note_insertion(self.inserted.fetch_add(1, Relaxed), now);
    }

    fn inserted(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.inserted.load(Relaxed)
    }

    /// Notes the time of a sweep, or of a new key for which there is no place.
    pub(super) fn note(&self, now: Tick) {
        self.evidence.note(now, || self.inserted());
    }

    /// See [`Evidence::lets_sweep`].
    pub(super) fn lets_sweep(&self, now: Tick, first: Tick) -> bool {
        self.evidence.lets_sweep(now, first, || self.inserted())
    }

    /// See [`Evidence::believed`].
    fn believes(&self, now: Tick) -> Tick {
        self.evidence.believed(now, || self.inserted())
    }

    /// The time by which the keys of the last round were judged, but for the grace.
    fn believed(&self) -> Tick {
        // ORDERING: relaxed; any that was believed will do, for the mark is raised before a key is
        // forgotten.
        Tick::from_nanos(self.believed.load(Relaxed))
    }

    pub(super) fn capacity(&self) -> u64 {
        // ORDERING: relaxed; see the module's ledger.
        self.capacity.load(Relaxed)
    }

    /// How many rounds are over.
    pub(super) fn done(&self) -> u64 {
        // ORDERING: relaxed; a statistic.
        self.done.load(Relaxed)
    }

    pub(super) fn is_under_way(&self) -> bool {
        // ORDERING: relaxed; see the module's ledger.
        !Hand::of(self.hand.load(Relaxed)).is_over()
    }

    /// Did the last round begin a grace ago, or longer, or judge by a time so long before that
    /// which is believed now?
    pub(super) fn is_past(&self, now: Tick) -> bool {
        now.is_apart(self.began(), self.grace) || self.believes(now).is_apart(self.believed(), self.grace)
    }

    /// See [`Evidence::is_due`].
    pub(super) fn is_due(&self, now: Tick) -> bool {
        // ORDERING: relaxed; see the module's ledger.
        let places = Hand::of(self.hand.load(Relaxed)).end;
        let steps = u64::from(places.div_ceil(STEP));
        self.evidence.is_due(self.believes(now), self.believed(), self.grace, steps)
    }

    /// Is a round to begin, because `taken` keys are there and one more comes? Below the cap always, at the
    /// cap not more often than keys can become old enough.
    pub(super) fn is_full(&self, taken: u64, now: Tick) -> bool {
        let capacity = self.capacity();
        taken >= capacity && (capacity < self.most || self.is_due(now))
    }

    /// Is there far more room than `taken` keys need, and has been for long?
    pub(super) fn is_too_large(&self, taken: u64, now: Tick) -> bool {
        self.is_large() && is_hardly_used(self.capacity(), taken) && now.is_apart(self.began(), growth::CALM)
    }

    /// Is there more room than in the beginning?
    pub(super) fn is_large(&self) -> bool {
        self.capacity() > growth::FIRST
    }

    /// Begins a round over `fresh` places, of which `taken` are in use, unless one is under way.
    pub(super) fn begin(&self, taken: u64, fresh: u64, now: Tick) {
        // ORDERING: relaxed; see the module's ledger.
        let before = Hand::of(self.hand.load(Relaxed));
        if !before.is_over() {
            return;
        }
        // At most `most`, which is no more than a u32 can say.
        #[allow(clippy::cast_possible_truncation)]
        let hand = Hand { at: 0, end: fresh as u32 };
        let capacity = self.capacity_after(taken, now);
        // Before the round begins: if another thread begins it, both are times that were believed.
        // ORDERING: relaxed; see `believed`.
        self.believed.store(self.believes(now).as_nanos(), Relaxed);
        // ORDERING: relaxed twice; see the module's ledger.
        if self.hand.compare_exchange(before.bits(), hand.bits(), Relaxed, Relaxed).is_ok() {
            self.evidence.begin();
            // ORDERING: relaxed, these two; estimates.
            self.capacity.store(capacity, Relaxed);
            self.began.store(now.as_nanos(), Relaxed);
        }
    }

    /// Takes the next places of a round that is under way.
    pub(super) fn claim(&self) -> Option<Claim> {
        // ORDERING: relaxed; see the module's ledger.
        let mut hand = Hand::of(self.hand.load(Relaxed));
        while !hand.is_over() {
            let next = Hand { at: hand.at.saturating_add(STEP).min(hand.end), ..hand };
            // ORDERING: relaxed twice; see the module's ledger.
            match self.hand.compare_exchange_weak(hand.bits(), next.bits(), Relaxed, Relaxed) {
                Ok(_) => return Some(Claim { places: hand.at..next.at, is_last: next.is_over() }),
                Err(found) => hand = Hand::of(found),
            }
        }
        None
    }

    /// Notes that the last places of a round were visited, and that `taken` keys are left.
    pub(super) fn finish(&self, taken: u64) {
        // ORDERING: relaxed, both; statistics.
        self.done.fetch_add(1, Relaxed);
        self.stayed.store(taken, Relaxed);
    }

    fn capacity_after(&self, taken: u64, now: Tick) -> u64 {
        let capacity = self.capacity();
        // ORDERING: relaxed; an estimate.
        let keys_stay = self.stayed.load(Relaxed) > capacity / 2;
        let next = growth::next_capacity(capacity, taken, self.began(), now, keys_stay);
        next.max(growth::FIRST).min(self.most)
    }

    /// When the last round began, by the clock of the thread that did it.
    fn began(&self) -> Tick {
        // ORDERING: relaxed; an estimate.
        Tick::from_nanos(self.began.load(Relaxed))
    }
}
