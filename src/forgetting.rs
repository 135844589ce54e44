//! The mark that a store keeps for the keys it has forgotten, and the evidence by which it believes
//! a time.
//!
//! A store forgets a key that is idle, which means that it decides as a fresh key does. A key is
//! idle only from some time on, and a request may have an earlier time: its thread was stopped
//! after it had read the clock, or the clock was set back. That request would find a fresh key
//! where a map that never forgets has a throttled one. So a store keeps one time for all keys that
//! it has forgotten, the [`Mark`]. It charges a key that it does not have at no earlier time.
//!
//! The mark must cover what was forgotten, and should be no later than that, because it delays new
//! keys. So it is raised to the time from which the forgotten key is idle, and not to the time by
//! which that was judged. Then a time that is far ahead delays a new key only until some key of the
//! store would have been idle. If the last charge takes an hour to refill, that is an hour and not
//! a year.
//!
//! A time that is far ahead would still make a store forget keys that are throttled for all other
//! requests. So a store judges by a time more than [`FAR`] ahead only if the last few insertions
//! have reached it, too: see [`Witnesses`]. A time less far ahead is believed immediately, because
//! the store may have been unused for that long. The first new key after a pause must find the
//! places of keys that have become idle.
//!
//! Why the mark alone is not enough: a key that was charged a burst may be idle only in years, and
//! a key may have a quota of its own that is slower than all others. If one request from far ahead
//! was believed, the mark would rise to when such a key is idle, and all new keys would wait for
//! that: 390 days for the next token of a quota of one in 30 days with a burst of 12, instead of
//! 30.
//!
//! # Orderings
//!
//! All operations are relaxed. A thread that forgets a key raises the mark first. It publishes both
//! by the edge by which others learn that the key is forgotten: *closed* and *link* of `table`,
//! scc's locks in `exact`. The mark never falls, so a thread that reads it once it covers a key
//! reads no less.

use crate::sync::{Atomic, Counter, Ordering::Relaxed};
use crate::time::Tick;
use std::time::Duration;

/// A time further ahead than this, 30 days, needs evidence.
const FAR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How many insertions have to reach a time that is far ahead before keys are forgotten by it.
/// (Models have none and believe each time, to keep the number of schedules small.)
pub(crate) const WITNESSES: usize = if cfg!(tollgate_loom) { 0 } else { 4 };

/// Insertion `n` is noted at index `n` modulo this, if times are noted at all.
const PLACES: u64 = 4;

/// How many sweeps and refusals are noted before a sweep is let through although its time is not
/// believed. Keys are then judged by the time that the store believes.
const SWEEPS_AT_MOST: u64 = 16;

/// The least number of new keys that a full store refuses before it looks for idle keys again
/// within a grace. That many refusals share the cost of a turnover.
const REFUSALS: u64 = if cfg!(tollgate_loom) { 1 } else { 4_096 };

/// How an attempt to begin a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    /// There is nothing to do.
    Nothing,
    /// The time is noted, and not believed yet.
    NotBelieved,
    /// There is something to do now.
    UnderWay,
}

/// A time that only rises. Every key that was forgotten is idle from then on.
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

    /// Is the mark later than `now`?
    #[inline(always)]
    pub(crate) fn is_after(&self, now: Tick) -> bool {
        // ORDERING: relaxed; see the module's page.
        now.as_nanos() < self.0.load(Relaxed)
    }

    /// Raises the mark to the time from which a key is idle that is about to be forgotten.
    pub(crate) fn raise(&self, to: Tick) {
        let later = |mark: u64| (mark < to.as_nanos()).then_some(to.as_nanos());
        // ORDERING: relaxed twice; see the module's page.
        let _ = self.0.fetch_update(Relaxed, Relaxed, later);
    }
}

/// The times of the last few insertions, or of other events that are numbered in sequence.
#[derive(Debug)]
pub(crate) struct Witnesses([Atomic<u64>; WITNESSES]);

impl Witnesses {
    pub(crate) fn none() -> Self {
        Self(std::array::from_fn(|_| Atomic::new(0)))
    }

    /// A copy for a count that begins again. The latest time had the number before `count`.
    pub(crate) fn copied(&self, count: impl FnOnce() -> u64) -> Self {
        if WITNESSES == 0 {
            return Self::none();
        }
        let count = count();
        // ORDERING: relaxed; evidence, which may lack the latest.
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

    /// Notes the time of a request, the `nth` by some count.
    #[inline(always)]
    pub(crate) fn note(&self, nth: u64, now: Tick) {
        if let Some(time) = self.0.get(Self::place(nth)) {
            // ORDERING: relaxed; evidence, which publishes nothing.
            time.store(now.as_nanos(), Relaxed);
        }
    }

    /// The time noted as the `nth`, which must be one of the last few.
    fn time(&self, nth: u64) -> Tick {
        // ORDERING: relaxed, as in `note`.
        Tick::from_nanos(self.0[Self::place(nth)].load(Relaxed))
    }

    /// The time that all noted times have reached.
    pub(crate) fn earliest(&self) -> Tick {
        // ORDERING: relaxed, as in `note`.
        let times = self.0.iter().map(|time| Tick::from_nanos(time.load(Relaxed)));
        times.fold(Tick::MAX, Tick::min)
    }
}

/// The evidence by which a store judges times: the times of its last few insertions, and of the
/// last few sweeps and refused new keys. The latter count for a store that is full, or to which no
/// new keys come.
///
/// The methods take the number of insertions as a function, because models never ask for it.
#[derive(Debug)]
pub(crate) struct Evidence {
    insertions: Witnesses,
    refused: Witnesses,
    /// How many times of `refused` were noted.
    noted: Atomic<u64>,
    /// How many insertions there were when the last time of `refused` was noted.
    inserted: Atomic<u64>,
    /// How many sweeps and refusals there were since the last turnover or round began.
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

    /// A copy of the times, whose counts begin again.
    pub(crate) fn copied(&self, inserted: impl FnOnce() -> u64) -> Self {
        // ORDERING: relaxed, as in `Witnesses`.
        Self::of(self.insertions.copied(inserted), self.refused.copied(|| self.noted.load(Relaxed)))
    }

    /// Notes the time of an insertion, the `nth` by the store's count.
    #[inline(always)]
    pub(crate) fn note_insertion(&self, nth: u64, now: Tick) {
        self.insertions.note(nth, now);
    }

    /// Notes the time of a sweep, or of a new key that was refused. If there were insertions since
    /// the last such note, the time of one of them is noted first, because it may contradict.
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

    /// The earliest time of the last few insertions since `note`, if there were any.
    fn since(&self, inserted: u64) -> Option<Tick> {
        // ORDERING: relaxed, as in `note`.
        let new = inserted.saturating_sub(self.inserted.load(Relaxed)).min(WITNESSES as u64);
        (1..=new).map(|nth| self.insertions.time(inserted - nth)).min()
    }

    /// Starts the count of refusals again.
    pub(crate) fn begin(&self) {
        self.count.reset();
    }

    /// The time to judge by: `now`, unless it is far ahead of the evidence. The evidence is the
    /// latest time that the last few insertions have reached, or that the last few refusals and all
    /// insertions since have reached. If `now` is far ahead of that, this returns it instead.
    pub(crate) fn believed(&self, now: Tick, inserted: impl FnOnce() -> u64) -> Tick {
        if WITNESSES == 0 {
            return now;
        }
        let since = self.since(inserted()).unwrap_or(Tick::MAX);
        let reached = self.refused.earliest().min(since).max(self.insertions.earliest());
        if now > reached + FAR { reached } else { now }
    }

    /// At the cap, can keys have become old enough to be forgotten since they were last judged, by
    /// `last`? They can a grace after that. They also can as soon as they would be judged by
    /// another time, and a new key was refused for each of the `steps` of a turnover, but no fewer
    /// than [`REFUSALS`].
    pub(crate) fn is_due(&self, believed: Tick, last: Tick, grace: Duration, steps: u64) -> bool {
        believed.is_apart(last, grace)
            || believed.before(grace) != last.before(grace) && self.count.get() >= steps.max(REFUSALS)
    }

    /// Notes the time of a sweep that began at `first`. Returns whether it may begin to forget
    /// keys: when that time is believed, or after enough such calls.
    pub(crate) fn lets_sweep(&self, now: Tick, first: Tick, inserted: impl Fn() -> u64) -> bool {
        self.note(now, &inserted);
        self.believed(now, &inserted) >= first || self.count.get() >= SWEEPS_AT_MOST
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// Years are far apart.
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
        // A time that is far ahead does not count for the others.
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
