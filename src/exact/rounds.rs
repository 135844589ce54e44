//! Rounds, which search for idle keys. This module decides when a round starts, and tracks its
//! progress.
//!
//! A *round* visits all places once, a few at a time, during insertions, charges and maintenance
//! calls. A round starts when the store reaches its expected number of keys (its *capacity*), or
//! when a new key needs a place at the cap. Callers also start rounds when they sweep or clear the
//! store.
//!
//! The capacity follows the number of keys. With a fixed capacity, keys that return again and again
//! might be evicted and inserted forever. The capacity doubles if it was reached quickly, or if
//! many keys remained after the last round. It shrinks if it was hardly used.
//!
//! # State
//!
//! `hand` contains the next place to visit and the end of the current round. If the two are equal,
//! no round is under way. A thread claims the places that it will visit by a compare-and-swap on
//! the hand, which never changes otherwise.
//!
//! `believed` is the time at which all places of the round are judged, before the grace is
//! subtracted. `forgotten` is the mark of all forgotten keys (see `forgetting`).
//!
//! If a thread stops after it has claimed places, these few places are not visited until the next
//! round, while other threads continue. A claim based on an outdated hand succeeds if the hand has
//! reached the same value again. The thread then claims places in a newer round, which does no
//! harm.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! All operations are relaxed. The hand determines which places are visited, but publishes nothing
//! about the contents of these places. The other fields are estimates.

use crate::forgetting::{Evidence, Mark};
use crate::growth::{self, is_hardly_used};
use crate::sync::{Atomic, Ordering::Relaxed};
use crate::time::Tick;
use std::ops::Range;
use std::time::Duration;

/// How many places one step visits.
pub(super) const STEP: u32 = if cfg!(tollgate_loom) { 1 } else { 8 };

/// The position of a round. The round has ended when `at` has reached `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hand {
    at: u32,
    end: u32,
}

impl Hand {
    const fn is_over(self) -> bool {
        self.at >= self.end
    }

    /// Returns the hand after the next step, or `None` if the round has ended.
    fn next(self) -> Option<Self> {
        (!self.is_over()).then(|| Self { at: self.at.saturating_add(STEP).min(self.end), ..self })
    }

    /// Packs `at` into the low half and `end` into the high half.
    const fn bits(self) -> u64 {
        (self.end as u64) << 32 | self.at as u64
    }

    #[allow(clippy::cast_possible_truncation)]
    const fn of(bits: u64) -> Self {
        Self { at: bits as u32, end: (bits >> 32) as u32 }
    }
}

/// The rounds of a store. This struct has its own cache lines, because insertions write to its
/// fields.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Rounds {
    /// The bits of a [`Hand`].
    hand: Atomic<u64>,
    capacity: Atomic<u64>,
    /// When the last round started.
    began: Atomic<u64>,
    /// The time at which the last round judges its keys, before the grace is subtracted.
    believed: Atomic<u64>,
    /// The number of new keys that have received a place.
    inserted: Atomic<u64>,
    evidence: Evidence,
    /// The mark. Every forgotten key is idle from this time on.
    forgotten: Mark,
    /// How many keys remained when the last round ended.
    stayed: Atomic<u64>,
    done: Atomic<u64>,
    most: u64,
    grace: Duration,
}

/// The places that one step visits.
pub(super) struct Claim {
    pub(super) places: Range<u32>,
    /// Whether this is the last step of the round.
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

    /// Returns the time at which the round judges its keys. The round forgets the keys that are
    /// idle at this time.
    pub(super) fn judged_at(&self) -> Tick {
        self.believed().before(self.grace)
    }

    /// Returns the mark of all forgotten keys.
    pub(super) fn forgotten(&self) -> &Mark {
        &self.forgotten
    }

    /// Records the time of an insertion.
    pub(super) fn note_insertion(&self, now: Tick) {
        // ORDERING: relaxed; a count.
        self.evidence.note_insertion(self.inserted.fetch_add(1, Relaxed), now);
    }

    fn inserted(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.inserted.load(Relaxed)
    }

    /// Records the time of a sweep, or of a request whose new key found no place.
    pub(super) fn note(&self, now: Tick) {
        self.evidence.note(now, || self.inserted());
    }

    /// Returns whether the evidence allows a sweep to start: see [`Evidence::lets_sweep`].
    pub(super) fn lets_sweep(&self, now: Tick, first: Tick) -> bool {
        self.evidence.lets_sweep(now, first, || self.inserted())
    }

    /// Returns the time that the evidence supports: see [`Evidence::believed`].
    fn believes(&self, now: Tick) -> Tick {
        self.evidence.believed(now, || self.inserted())
    }

    pub(super) const fn grace(&self) -> Duration {
        self.grace
    }

    /// Returns the time at which the last round judged its keys, before the grace is subtracted.
    fn believed(&self) -> Tick {
        // ORDERING: relaxed. Any time that has ever been believed is good enough, because the mark
        // is raised before a key is forgotten.
        Tick::from_nanos(self.believed.load(Relaxed))
    }

    pub(super) fn capacity(&self) -> u64 {
        // ORDERING: relaxed; see the module's ledger.
        self.capacity.load(Relaxed)
    }

    /// Returns the number of finished rounds.
    pub(super) fn done(&self) -> u64 {
        // ORDERING: relaxed; a statistic.
        self.done.load(Relaxed)
    }

    pub(super) fn is_under_way(&self) -> bool {
        // ORDERING: relaxed; see the module's ledger.
        !Hand::of(self.hand.load(Relaxed)).is_over()
    }

    /// Returns true if the last round started at least a grace ago, or if the time now believed
    /// differs by at least a grace from the time that the last round believed.
    pub(super) fn is_past(&self, now: Tick) -> bool {
        now.is_apart(self.began(), self.grace) || self.believes(now).is_apart(self.believed(), self.grace)
    }

    /// Returns whether a new round at the cap is due: see [`Evidence::is_due`].
    pub(super) fn is_due(&self, now: Tick) -> bool {
        // ORDERING: relaxed; see the module's ledger.
        let places = Hand::of(self.hand.load(Relaxed)).end;
        let steps = u64::from(places.div_ceil(STEP));
        self.evidence.is_due(self.believes(now), self.believed(), self.grace, steps)
    }

    /// Returns whether a round must start before another key is added to the `taken` keys. Below
    /// the cap, a round must start whenever the capacity is reached. At the cap, a round starts
    /// only as often as keys can become idle.
    pub(super) fn is_full(&self, taken: u64, now: Tick) -> bool {
        let capacity = self.capacity();
        taken >= capacity && (capacity < self.most || self.is_due(now))
    }

    /// Returns whether the store has long had far more room than `taken` keys require.
    pub(super) fn is_too_large(&self, taken: u64, now: Tick) -> bool {
        self.is_large() && is_hardly_used(self.capacity(), taken) && now.is_apart(self.began(), growth::CALM)
    }

    /// Returns whether the capacity is above the first capacity.
    pub(super) fn is_large(&self) -> bool {
        self.capacity() > growth::FIRST
    }

    /// Starts a round over `fresh` places, of which `taken` are in use. Does nothing if a round is
    /// already under way.
    pub(super) fn begin(&self, taken: u64, fresh: u64, now: Tick) {
        // ORDERING: relaxed; see the module's ledger.
        let before = Hand::of(self.hand.load(Relaxed));
        if !before.is_over() {
            return;
        }
        // This is at most `most`, which fits into a `u32`.
        #[allow(clippy::cast_possible_truncation)]
        let hand = Hand { at: 0, end: fresh as u32 };
        let capacity = self.capacity_after(taken, now);
        // Store the time before the round starts. Another thread may start the round instead, and
        // either thread may store its time last, but both times were believed.
        // ORDERING: relaxed; see `believed`.
        self.believed.store(self.believes(now).as_nanos(), Relaxed);
        // ORDERING: both accesses are relaxed; see the module's ledger.
        if self.hand.compare_exchange(before.bits(), hand.bits(), Relaxed, Relaxed).is_ok() {
            self.evidence.begin();
            // ORDERING: both stores are relaxed, because the values are estimates.
            self.capacity.store(capacity, Relaxed);
            self.began.store(now.as_nanos(), Relaxed);
        }
    }

    /// Claims the next places of the current round, if a round is under way.
    pub(super) fn claim(&self) -> Option<Claim> {
        let step = |bits: u64| Some(Hand::of(bits).next()?.bits());
        // ORDERING: both accesses are relaxed; see the module's ledger.
        let hand = Hand::of(self.hand.fetch_update(Relaxed, Relaxed, step).ok()?);
        let next = hand.next()?;
        Some(Claim { places: hand.at..next.at, is_last: next.is_over() })
    }

    /// Records that the last places of a round were visited, and that `taken` keys remain.
    pub(super) fn finish(&self, taken: u64) {
        // ORDERING: both accesses are relaxed, because the values are statistics.
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

    /// Returns when the last round started, according to the clock of the thread that started it.
    fn began(&self) -> Tick {
        // ORDERING: relaxed; an estimate.
        Tick::from_nanos(self.began.load(Relaxed))
    }
}
