//! The mark that a store keeps for its forgotten keys, and the evidence by which the store believes
//! a time.
//!
//! A store forgets a key that is idle, which means that the key gives the same answers as a fresh
//! key. A key is idle only from some time on, and a request may have an earlier time: its thread
//! was stopped after it had read the clock, or the clock was set back. That request would find a
//! fresh key where a map that never forgets has a throttled key. A store therefore keeps one time
//! for all forgotten keys, the [`Mark`], and charges a key that it does not have at this time or
//! later.
//!
//! The mark must cover all forgotten keys, and should be no later than necessary, because it delays
//! new keys. It is therefore raised to the time from which the forgotten key is idle, and not to
//! the time by which the key was judged. Thus a time that is far ahead delays a new key only until
//! some key of the store would have been idle. If the last charge takes an hour to refill, the
//! delay is an hour and not a year.
//!
//! A time that is far ahead would still make a store forget keys that are throttled for all other
//! requests. A store therefore judges keys by a time more than [`FAR`] ahead only if the times of
//! the last few insertions have also reached it: see [`Witnesses`]. A time less far ahead is
//! believed immediately, because the store may have been unused for that long, and the first new
//! key after a pause must find the places of keys that have become idle.
//!
//! The mark alone is not enough, because a key that was charged a whole burst may become idle only
//! after years, and a key may have its own quota that is slower than all others. If one request
//! with a time far ahead was believed, the mark would rise to the time at which such a key becomes
//! idle, and all new keys would wait until then: 390 days instead of 30 for the next token of a
//! quota of one token in 30 days with a burst of 12.
//!
//! # Orderings
//!
//! All operations are relaxed. A thread raises the mark before it forgets a key. The edge that
//! publishes the forgetting to other threads also publishes the mark: *closed* and *link* of
//! `table`, and scc's locks in `exact`. The mark never falls, so a thread that reads it after it
//! was raised for a key reads that time or a later one.

use crate::sync::{Atomic, Counter, Ordering::Relaxed};
use crate::time::Tick;
use std::time::Duration;

/// A time further ahead than this, 30 days, needs evidence.
const FAR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// The number of insertions whose times must reach a time that is far ahead before keys are
/// forgotten by that time. (Models have no witnesses and believe every time, to keep the number of
/// schedules small.)
pub(crate) const WITNESSES: usize = if cfg!(tollgate_loom) { 0 } else { 4 };

/// The time of insertion `n` is recorded at index `n` modulo this number, if times are recorded.
const PLACES: u64 = 4;

/// The number of recorded sweeps and refusals after which a sweep may begin although its time is
/// not believed. It then judges keys by the time that the store believes.
const SWEEPS_AT_MOST: u64 = 16;

/// The least number of new keys that a full store refuses before it searches for idle keys again
/// within a grace. This number of refusals shares the cost of a turnover.
const REFUSALS: u64 = if cfg!(tollgate_loom) { 1 } else { 4_096 };

/// How an attempt to begin a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// There is no work to do.
    Nothing,
    /// The time was recorded, and is not believed yet.
    NotBelieved,
    /// The sweep has work to do now.
    UnderWay,
}

/// A time that only rises. Every forgotten key is idle from this time on.
#[derive(Debug)]
pub(crate) struct Mark(Atomic<u64>);

impl Mark {
    pub(crate) fn at(time: Tick) -> Self {
        Self(Atomic::new(time.as_nanos()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Tick {
        // ORDERING: relaxed; see the module's page.
        Tick::from_nanos(self.0.load(Relaxed))
    }

    /// Whether the mark is later than `now`.
    #[inline(always)]
    pub(crate) fn is_after(&self, now: Tick) -> bool {
        // ORDERING: relaxed; see the module's page.
        now.as_nanos() < self.0.load(Relaxed)
    }

    /// Raises the mark to the time from which a key that is about to be forgotten is idle.
    pub(crate) fn raise(&self, to: Tick) {
        let later = |mark: u64| (mark < to.as_nanos()).then_some(to.as_nanos());
        // ORDERING: relaxed twice; see the module's page.
        let _ = self.0.fetch_update(Relaxed, Relaxed, later);
    }
}

/// The times of the last few insertions, or of the last few other events that are numbered in
/// sequence.
#[derive(Debug)]
pub(crate) struct Witnesses([Atomic<u64>; WITNESSES]);

impl Witnesses {
    pub(crate) fn none() -> Self {
        Self(std::array::from_fn(|_| Atomic::new(0)))
    }

    /// A copy for a count that begins again at 0. `count` is the number after that of the latest
    /// time.
    pub(crate) fn copied(&self, count: impl FnOnce() -> u64) -> Self {
        if WITNESSES == 0 {
            return Self::none();
        }
        let count = count();
        // ORDERING: relaxed; evidence, which may lack the latest time.
        let time = |nth: usize| self.0[Self::place(count.wrapping_add(nth as u64))].load(Relaxed);
        Self(std::array::from_fn(|nth| Atomic::new(time(nth))))
    }

    #[inline(always)]
    fn place(nth: u64) -> usize {
        // The remainder is below the number of times.
        #[allow(clippy::cast_possible_truncation)]
        let place = (nth % PLACES) as usize;
        place
    }

    /// Records the time of a request, which is the `nth` of its count.
    #[inline(always)]
    pub(crate) fn note(&self, nth: u64, now: Tick) {
        if let Some(time) = self.0.get(Self::place(nth)) {
            // ORDERING: relaxed; evidence, which publishes no other data.
            time.store(now.as_nanos(), Relaxed);
        }
    }

    /// The time that was recorded as the `nth`, which must be one of the last few.
    fn time(&self, nth: u64) -> Tick {
        // ORDERING: relaxed, as in `note`.
        Tick::from_nanos(self.0[Self::place(nth)].load(Relaxed))
    }

    /// The earliest of the recorded times, which all of them have reached.
    pub(crate) fn earliest(&self) -> Tick {
        // ORDERING: relaxed, as in `note`.
        let times = self.0.iter().map(|time| Tick::from_nanos(time.load(Relaxed)));
        times.fold(Tick::MAX, Tick::min)
    }
}

/// The evidence by which a store judges times: the times of its last few insertions, and of its
/// last few sweeps and refused new keys. Sweeps and refusals serve a store that is full, or that
/// gets no new keys.
///
/// The methods take the number of insertions as a function, because models never need it.
#[derive(Debug)]
pub(crate) struct Evidence {
    insertions: Witnesses,
    refused: Witnesses,
    /// The number of times that were recorded in `refused`.
    noted: Atomic<u64>,
    /// The number of insertions when the last time was recorded in `refused`.
    inserted: Atomic<u64>,
    /// The number of sweeps and refusals since the last turnover or round began.
    count: Counter,
}

impl Evidence {
    pub(crate) fn none() -> Self {
        Self::of(Witnesses::none(), Witnesses::none())
    }

    fn of(insertions: Witnesses, refused: Witnesses) -> Self {
        let [noted, inserted] = [(); 2].map(|()| Atomic::new(0));
        Self { insertions, refused, noted, inserted, count: Counter::new() }
    }

    /// A copy of the times, with counts that begin again.
    pub(crate) fn copied(&self, inserted: impl FnOnce() -> u64) -> Self {
        // ORDERING: relaxed, as in `Witnesses`.
        Self::of(self.insertions.copied(inserted), self.refused.copied(|| self.noted.load(Relaxed)))
    }

    /// Records the time of an insertion, which is the `nth` by the count of the store.
    #[inline(always)]
    pub(crate) fn note_insertion(&self, nth: u64, now: Tick) {
        self.insertions.note(nth, now);
    }

    /// Records the time of a sweep, or of a new key that was refused. If keys were inserted since
    /// the last such record, the earliest time of the last few insertions is recorded first,
    /// because it may contradict the other evidence.
    pub(crate) fn note(&self, now: Tick, inserted: impl FnOnce() -> u64) {
        self.count.add(1);
        if WITNESSES == 0 {
            return;
        }
        let inserted = inserted();
        let since = self.since(inserted);
        // ORDERING: relaxed; evidence, as in `Witnesses`.
        self.inserted.store(inserted, Relaxed);
        for time in [since, Some(now)].into_iter().flatten() {
            // ORDERING: relaxed; a count.
            let nth = self.noted.fetch_add(1, Relaxed);
            self.refused.note(nth, time);
        }
    }

    /// The earliest time of the last few insertions since the last `note`, if there were any.
    fn since(&self, inserted: u64) -> Option<Tick> {
        // ORDERING: relaxed, as in `note`.
        let new = inserted.saturating_sub(self.inserted.load(Relaxed)).min(WITNESSES as u64);
        (1..=new).map(|nth| self.insertions.time(inserted - nth)).min()
    }

    /// Resets the count of sweeps and refusals.
    pub(crate) fn begin(&self) {
        self.count.reset();
    }

    /// The time by which to judge keys: `now`, unless it is far ahead of the evidence. The evidence
    /// is the latest time that either the last few insertions have reached, or the last few
    /// refusals and all insertions since. If `now` is far ahead of the evidence, this method
    /// returns the evidence.
    pub(crate) fn believed(&self, now: Tick, inserted: impl FnOnce() -> u64) -> Tick {
        if WITNESSES == 0 {
            return now;
        }
        let since = self.since(inserted()).unwrap_or(Tick::MAX);
        let reached = self.refused.earliest().min(since).max(self.insertions.earliest());
        if now > reached + FAR { reached } else { now }
    }

    /// Whether keys of a store at its cap can have become old enough to be forgotten since they
    /// were last judged, by the time `last`. They can once a grace has passed since `last`. Before
    /// that, they can as soon as they would be judged by another time and enough new keys were
    /// refused: one for each of the `steps` of a turnover, and at least [`REFUSALS`].
    pub(crate) fn is_due(&self, believed: Tick, last: Tick, grace: Duration, steps: u64) -> bool {
        believed.is_apart(last, grace)
            || believed.before(grace) != last.before(grace) && self.count.get() >= steps.max(REFUSALS)
    }

    /// Records the time of a sweep that began at `first`. Returns whether the sweep may begin to
    /// forget keys: when `first` is believed, or after enough such calls.
    pub(crate) fn lets_sweep(&self, now: Tick, first: Tick, inserted: impl Fn() -> u64) -> bool {
        self.note(now, &inserted);
        self.believed(now, &inserted) >= first || self.count.get() >= SWEEPS_AT_MOST
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// The `n`-th year. Years are further apart than [`FAR`].
    fn year(n: u64) -> Tick {
        Tick::from_nanos(n * 365 * 24 * 3_600 * 1_000_000_000)
    }

    #[test]
    fn a_mark_only_rises() {
        let mark = Mark::at(year(5));
        for (to, expected) in [(3, 5), (7, 7), (6, 7)] {
            mark.raise(year(to));
            assert_eq!(mark.get(), year(expected));
        }
    }

    #[test]
    fn a_time_is_believed_once_the_last_insertions_have_reached_it() {
        let witnesses = Witnesses::none();
        for nth in 0..4 {
            assert_eq!(witnesses.earliest(), Tick::ZERO, "{nth}");
            witnesses.note(nth, year(10));
        }
        assert_eq!(witnesses.earliest(), year(10));
        // A single time that is far ahead is no evidence.
        witnesses.note(4, Tick::MAX);
        assert_eq!(witnesses.earliest(), year(10));
    }

    #[test]
    fn an_insertion_contradicts_those_that_were_refused() {
        let evidence = Evidence::none();
        let believed = |inserted| evidence.believed(Tick::MAX, || inserted);
        (0..4).for_each(|nth| evidence.note_insertion(nth, year(1)));
        for _ in 0..3 {
            evidence.note(year(9), || 4);
            assert_eq!(believed(4), year(1));
        }
        evidence.note_insertion(4, year(2));
        assert_eq!(believed(5), year(1));
        for expected in [2, 2, 2, 9] {
            evidence.note(year(9), || 5);
            assert_eq!(believed(5), year(expected));
        }
        let next = evidence.copied(|| 5);
        assert_eq!((evidence.count.get(), next.count.get()), (7, 0));
        assert_eq!(evidence.believed(year(3), || 5), year(3), "nor later than its own");
        assert_eq!(next.believed(Tick::MAX, || 0), year(9));
        next.note_insertion(0, year(4));
        assert_eq!(next.believed(Tick::MAX, || 1), year(4));
    }

    #[test]
    fn a_time_that_is_not_far_ahead_is_believed_at_once() {
        let evidence = Evidence::none();
        (0..4).for_each(|nth| evidence.note_insertion(nth, year(1)));
        let believed = |now| evidence.believed(now, || 4);
        let month = year(1) + FAR;
        assert_eq!([month, month + Duration::from_nanos(1)].map(believed), [month, year(1)]);
        assert_eq!(believed(Tick::ZERO), Tick::ZERO);
    }

    #[test]
    fn keys_are_judged_again_after_a_grace_or_many_refusals_at_another_time() {
        let (evidence, second) = (Evidence::none(), Duration::from_secs(1));
        let is_due = |now, last, grace| evidence.is_due(now, last, grace, 2);
        let [early, late] = [1, 2].map(|n| Tick::ZERO + n * second);
        assert!(is_due(late, early, second) && is_due(early, late, second));
        assert!(!is_due(late, early, 2 * second));
        (0..REFUSALS).for_each(|_| evidence.note(late, || 0));
        assert!(is_due(late + second, late, 2 * second));
        assert!(!is_due(late, late, second), "by the same time as the last");
        assert!(!is_due(late, early, 2 * second), "no key can be idle so long");
        evidence.begin();
        assert!(!is_due(late + second, late, 2 * second));
    }

    #[test]
    fn the_last_times_are_the_last_when_the_count_begins_again() {
        let witnesses = Witnesses::none();
        for nth in 0..6 {
            witnesses.note(nth, year(nth));
        }
        let copied = witnesses.copied(|| 6);
        for nth in 0..4 {
            assert_eq!(copied.earliest(), year(2 + nth));
            copied.note(nth, Tick::MAX);
        }
    }
}
