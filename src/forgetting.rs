//! What a store remembers about its forgotten keys, and how the store decides whether to believe a
//! time.
//!
//! A store forgets idle keys, which give the same answers as fresh keys. A key becomes idle at a
//! certain time, but a later request may still carry an earlier time, because its thread was
//! stopped after reading the clock, or because the clock was set back. That request would find a
//! fresh key, whereas a map that never forgets would find a throttled key. A store therefore keeps
//! one time for all forgotten keys, the [`Mark`]. A key that the store does not contain is charged
//! at the mark or later. (The store of pauses keeps its mark at zero; see `limiter/pauses.rs`.)
//!
//! The mark must cover all forgotten keys, but should be no later than necessary, because it delays
//! new keys. The mark is therefore raised to the time at which the forgotten key becomes idle, not
//! to the time used to judge the key. A time in the far future thus delays a new key only until
//! some key in the store would have become idle. If the last charge takes an hour to refill, the
//! delay is an hour rather than a year.
//!
//! A time in the far future would still make a store forget keys that are throttled for all other
//! requests. A store therefore does not immediately believe a time more than [`FAR`] ahead. It
//! judges keys at such a time only if the last few insertions have also reached that time: see
//! [`Witnesses`]. A time less far ahead is believed immediately, because the store may have been
//! unused for that long. The first new key after such a pause must be able to replace keys that
//! have become idle.
//!
//! The mark alone is not enough. A key charged with a whole burst may become idle only after years.
//! A key may also have its own quota, slower than all others. If a store believed a single request
//! from the far future, the mark would rise to the time at which such a key becomes idle. All new
//! keys would then wait until that time. With a quota of one token in 30 days and a burst of 12,
//! for example, they would wait 390 days for their next token, rather than 30.
//!
//! # Orderings
//!
//! All operations are relaxed. A thread raises the mark before it forgets a key. The edge that
//! publishes the eviction to other threads also publishes the mark. In `table`, this edge is
//! *closed* or *link*. In `exact`, scc's locks provide it. The mark never falls, so a thread that
//! reads the mark after it was raised for a key finds the raised time or a later time.

use crate::sync::{Atomic, Counter, Ordering::Relaxed};
use crate::time::Tick;
use std::time::Duration;

/// How far ahead a time may lie and still be believed without evidence: 30 days.
const FAR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How many of the last insertions must have reached a time in the far future before keys are
/// judged at that time. (Models use no witnesses and believe every time, to keep the number of
/// schedules small.)
pub(crate) const WITNESSES: usize = if cfg!(tollgate_loom) { 0 } else { 4 };

/// How many times are recorded. The time of insertion `n` is recorded at index `n` modulo this
/// number.
const PLACES: u64 = 4;

/// How many sweeps and refusals must be recorded before a sweep may start even though its time is
/// not believed. Such a sweep judges keys at the time that the store believes.
const SWEEPS_AT_MOST: u64 = 16;

/// How many new keys a full store must refuse before it searches again for idle keys within one
/// grace. The cost of a turnover is thus spread over these refusals.
const REFUSALS: u64 = if cfg!(tollgate_loom) { 1 } else { 4_096 };

/// The result of an attempt to start a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// There is no work to do.
    Nothing,
    /// The time was recorded, but is not believed yet.
    NotBelieved,
    /// The sweep has work to do now.
    UnderWay,
}

/// A time that never decreases. Every forgotten key is idle at and after this time.
#[derive(Debug)]
pub(crate) struct Mark(Atomic<u64>);

impl Mark {
    pub(crate) fn at(time: Tick) -> Self {
        Self(Atomic::new(time.as_nanos()))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Tick {
        // ORDERING: relaxed, because the edge that publishes an eviction also publishes the mark.
        Tick::from_nanos(self.0.load(Relaxed))
    }

    /// Returns true if the mark is later than `now`.
    #[inline(always)]
    pub(crate) fn is_after(&self, now: Tick) -> bool {
        // ORDERING: relaxed, because the edge that publishes an eviction also publishes the mark.
        now.as_nanos() < self.0.load(Relaxed)
    }

    /// Raises the mark to the time at which a key becomes idle. This method is called before that
    /// key is forgotten.
    pub(crate) fn raise(&self, to: Tick) {
        let later = |mark: u64| (mark < to.as_nanos()).then_some(to.as_nanos());
        // ORDERING: both accesses are relaxed, because the edge that publishes the eviction later
        // also publishes the mark.
        let _ = self.0.fetch_update(Relaxed, Relaxed, later);
    }
}

/// The times of the last few insertions, or of other events with consecutive numbers.
#[derive(Debug)]
pub(crate) struct Witnesses([Atomic<u64>; WITNESSES]);

impl Witnesses {
    pub(crate) fn none() -> Self {
        Self(std::array::from_fn(|_| Atomic::new(0)))
    }

    /// Returns a copy for use with a count that restarts at 0. `count` returns the current count,
    /// which is one more than the number under which the latest time was recorded.
    pub(crate) fn copied(&self, count: impl FnOnce() -> u64) -> Self {
        if WITNESSES == 0 {
            return Self::none();
        }
        let count = count();
        // ORDERING: relaxed; this is evidence, which may lack the latest time.
        let time = |nth: usize| self.0[Self::place(count.wrapping_add(nth as u64))].load(Relaxed);
        Self(std::array::from_fn(|nth| Atomic::new(time(nth))))
    }

    #[inline(always)]
    fn place(nth: u64) -> usize {
        // The remainder is less than the number of recorded times.
        #[allow(clippy::cast_possible_truncation)]
        let place = (nth % PLACES) as usize;
        place
    }

    /// Records the time of a request. `nth` is the number of the request.
    #[inline(always)]
    pub(crate) fn note(&self, nth: u64, now: Tick) {
        if let Some(time) = self.0.get(Self::place(nth)) {
            // ORDERING: relaxed; this is evidence, and publishes no other data.
            time.store(now.as_nanos(), Relaxed);
        }
    }

    /// Returns the time of event `nth`. Only the times of the last `WITNESSES` events are kept.
    fn time(&self, nth: u64) -> Tick {
        // ORDERING: relaxed, as in `note`.
        Tick::from_nanos(self.0[Self::place(nth)].load(Relaxed))
    }

    /// Returns the earliest recorded time. All recorded times have reached it.
    pub(crate) fn earliest(&self) -> Tick {
        // ORDERING: relaxed, as in `note`.
        let times = self.0.iter().map(|time| Tick::from_nanos(time.load(Relaxed)));
        times.fold(Tick::MAX, Tick::min)
    }
}

/// The evidence that a store uses to judge times. It consists of the times of the last few
/// insertions, and of the last few sweeps and refused new keys. If a store is full or receives no
/// new keys, sweeps and refusals provide its evidence.
///
/// The methods accept the number of insertions as a function, because models never need the number.
#[derive(Debug)]
pub(crate) struct Evidence {
    insertions: Witnesses,
    refused: Witnesses,
    /// How many times were recorded in `refused`.
    noted: Atomic<u64>,
    /// The number of insertions when `refused` last recorded a time.
    inserted: Atomic<u64>,
    /// The number of sweeps and refusals since the start of the last turnover or round.
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

    /// Returns a copy of the times, with counts that restart at 0.
    pub(crate) fn copied(&self, inserted: impl FnOnce() -> u64) -> Self {
        // ORDERING: relaxed, as in `Witnesses`.
        Self::of(self.insertions.copied(inserted), self.refused.copied(|| self.noted.load(Relaxed)))
    }

    /// Records the time of the `nth` insertion, according to the store's count.
    #[inline(always)]
    pub(crate) fn note_insertion(&self, nth: u64, now: Tick) {
        self.insertions.note(nth, now);
    }

    /// Records the time of a sweep, or of a refused new key. If keys have been inserted since the
    /// last such record, this method first records the earliest time of the last few insertions,
    /// because that time may contradict the other evidence.
    pub(crate) fn note(&self, now: Tick, inserted: impl FnOnce() -> u64) {
        self.count.add(1);
        if WITNESSES == 0 {
            return;
        }
        let inserted = inserted();
        let since = self.since(inserted);
        // ORDERING: relaxed; this is evidence, as in `Witnesses`.
        self.inserted.store(inserted, Relaxed);
        for time in [since, Some(now)].into_iter().flatten() {
            // ORDERING: relaxed; this is only a count.
            let nth = self.noted.fetch_add(1, Relaxed);
            self.refused.note(nth, time);
        }
    }

    /// Returns the earliest time of the insertions since the last `note`, or `None` if no key was
    /// inserted since then. Only the last few insertions are considered, because no other times are
    /// kept.
    fn since(&self, inserted: u64) -> Option<Tick> {
        // ORDERING: relaxed, as in `note`.
        let new = inserted.saturating_sub(self.inserted.load(Relaxed)).min(WITNESSES as u64);
        (1..=new).map(|nth| self.insertions.time(inserted - nth)).min()
    }

    /// Resets the count of sweeps and refusals.
    pub(crate) fn begin(&self) {
        self.count.reset();
    }

    /// Returns the time at which to judge keys: `now`, or the time that the evidence supports if
    /// `now` is far ahead of that time. The evidence supports the later of two times:
    ///
    /// - the time that the last few insertions have all reached
    /// - the time that the last few sweeps and refusals, and all insertions since then, have
    ///   reached
    pub(crate) fn believed(&self, now: Tick, inserted: impl FnOnce() -> u64) -> Tick {
        if WITNESSES == 0 {
            return now;
        }
        let since = self.since(inserted()).unwrap_or(Tick::MAX);
        let reached = self.refused.earliest().min(since).max(self.insertions.earliest());
        if now > reached + FAR { reached } else { now }
    }

    /// Returns whether a store at its cap should judge its keys again, because some of them may
    /// have become old enough to be forgotten. Returns true once a grace has passed since `last`,
    /// the time at which the keys were last judged.
    ///
    /// Within that grace, this method returns true only if the keys would now be judged at a
    /// different time and if enough new keys have been refused: at least [`REFUSALS`], and at least
    /// one for each of a turnover's `steps`.
    pub(crate) fn is_due(&self, believed: Tick, last: Tick, grace: Duration, steps: u64) -> bool {
        believed.is_apart(last, grace)
            || believed.before(grace) != last.before(grace) && self.count.get() >= steps.max(REFUSALS)
    }

    /// Records `now` for a sweep that started at `first`. Returns true if the sweep may start to
    /// forget keys, that is, if `first` is believed or [`SWEEPS_AT_MOST`] sweeps and refusals have
    /// been counted.
    pub(crate) fn lets_sweep(&self, now: Tick, first: Tick, inserted: impl Fn() -> u64) -> bool {
        self.note(now, &inserted);
        self.believed(now, &inserted) >= first || self.count.get() >= SWEEPS_AT_MOST
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// The start of the `n`-th year. Years are further apart than [`FAR`].
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
        // A single time in the far future is not evidence.
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
