//! What a store remembers of the keys it has forgotten, and which times it believes when it
//! forgets.
//!
//! A store forgets a key that is idle: one that decides as a fresh key does. But it is idle only
//! from some time on, and a request may have an earlier time: its thread was stopped after it had
//! read the clock, or the clock was set back. That request would find a fresh key where a map that
//! never forgets has a throttled one. So a store keeps one time for all keys that it has forgotten,
//! the [`Mark`]: a key that it does not have is charged at no earlier time.
//!
//! The mark must cover what was forgotten, and should be no later than that: it delays new keys. So
//! it is raised to the time from which on the forgotten key is idle, and not to the time by which
//! that was judged. Then a time that is far ahead delays no new key for longer than until some key
//! of the store would have been idle: an hour, where what was charged last takes an hour to come
//! back, and not a year.
//!
//! A time that is far ahead would still make a store forget keys that are throttled for everybody
//! else. So a store judges by a time that is more than [`FAR`] ahead only when the last few
//! insertions have reached it, too: see [`Witnesses`]. Any time that is less far ahead is believed
//! at once, for a store may have rested as long: the first new key that comes after a pause must
//! find the places of those that have become idle.
//!
//! # Orderings
//!
//! All relaxed. Who forgets a key raises the mark first, and publishes both by the edge by which
//! others learn that the key is forgotten: *closed* and *link* of `table`, scc's locks in `exact`.
//! The mark never falls, so who reads it once it is covered reads no less.

use crate::sync::{Atomic, Counter, Ordering::Relaxed};
use crate::time::Tick;
use std::time::Duration;

/// A time that is further ahead than that, 30 days, is not believed at once.
const FAR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How many insertions have to reach a time that is far ahead before keys are forgotten by it.
/// (Models have none, and believe each time, or there is too much to try.)
pub(crate) const WITNESSES: usize = if cfg!(tollgate_loom) { 0 } else { 4 };

/// An insertion is noted at its number modulo this, where times are noted at all.
const PLACES: u64 = 4;

/// How often a sweep's time is noted before the store goes on with what it believes, whoever
/// contradicts.
const SWEEPS_AT_MOST: u64 = 16;

/// So many new keys are refused, at the least, before a full store looks for idle keys again although
/// no grace has passed: what a turnover costs is shared by as many.
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

/// A time that only rises: every key that was forgotten is idle from then on.
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

    /// Is it later than `now`?
    #[inline(always)]
    pub(crate) fn is_after(&self, now: Tick) -> bool {
        // ORDERING: relaxed; see the module's page.
        now.as_nanos() < self.0.load(Relaxed)
    }

    /// Raises it to a time from which on a key is idle that is about to be forgotten.
    pub(crate) fn raise(&self, to: Tick) {
        let later = |mark: u64| (mark < to.as_nanos()).then_some(to.as_nanos());
        // ORDERING: relaxed twice; see the module's page.
        let _ = self.0.fetch_update(Relaxed, Relaxed, later);
    }
}

/// The times of the last few insertions, or of others that are numbered one after the other.
#[derive(Debug)]
pub(crate) struct Witnesses([Atomic<u64>; WITNESSES]);

impl Witnesses {
    pub(crate) fn none() -> Self {
        Self(std::array::from_fn(|_| Atomic::new(0)))
    }

    /// The same times, of which the latest had the number before `count`, for a count that begins
    /// again.
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

    /// Notes the time of a request, which is the `nth` by some count.
    #[inline(always)]
    pub(crate) fn note(&self, nth: u64, now: Tick) {
        if let Some(time) = self.0.get(Self::place(nth)) {
            // ORDERING: relaxed; evidence, which publishes nothing.
            time.store(now.as_nanos(), Relaxed);
        }
    }

    /// The time of one of the last few.
    fn time(&self, nth: u64) -> Tick {
        // ORDERING: relaxed, as in `note`.
        Tick::from_nanos(self.0[Self::place(nth)].load(Relaxed))
    }

    /// The time that all of them have reached.
    pub(crate) fn earliest(&self) -> Tick {
        // ORDERING: relaxed, as in `note`.
        let times = self.0.iter().map(|time| Tick::from_nanos(time.load(Relaxed)));
        times.fold(Tick::MAX, Tick::min)
    }
}

/// What a store has to judge times by: those of its last few insertions, and of the last few
/// sweeps and new keys that got no place. A store that is full, or to which no new key comes,
/// believes the latter.
///
/// Its methods are given how many insertions there were, as a function: models ask for nothing.
#[derive(Debug)]
pub(crate) struct Evidence {
    insertions: Witnesses,
    refused: Witnesses,
    /// How many times of `refused` were noted.
    noted: Atomic<u64>,
    /// How many insertions there were when the last of them was noted.
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

    /// The same times, where all counts begin again.
    pub(crate) fn copied(&self, inserted: impl FnOnce() -> u64) -> Self {
        // ORDERING: relaxed, as in `Witnesses`.
        Self::of(self.insertions.copied(inserted), self.refused.copied(|| self.noted.load(Relaxed)))
    }

    /// Notes the time of an insertion, the `nth` by the store's count.
    #[inline(always)]
    pub(crate) fn note_insertion(&self, nth: u64, now: Tick) {
        self.insertions.note(nth, now);
    }

    /// Notes the time of a sweep, or of a new key that got no place. If there were insertions since
    /// the last one, one of those is noted before: it may contradict.
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

    /// Begins to count refusals again.
    pub(crate) fn begin(&self) {
        self.count.reset();
    }

    /// `now`, unless it is far ahead of what the last few insertions have reached, and of what the
    /// last few refusals and all insertions since have reached; else that.
    pub(crate) fn believed(&self, now: Tick, inserted: impl FnOnce() -> u64) -> Tick {
        if WITNESSES == 0 {
            return now;
        }
        let since = self.since(inserted()).unwrap_or(Tick::MAX);
        let reached = self.refused.earliest().min(since).max(self.insertions.earliest());
        if now > reached + FAR { reached } else { now }
    }

    /// At the cap, can keys have become old enough to be forgotten since they were last judged, by
    /// `last`? A grace after that; or as soon as they would be judged by another time, and a new key
    /// was refused for each of the `steps` of a turnover, and no fewer than [`REFUSALS`].
    pub(crate) fn is_due(&self, believed: Tick, last: Tick, grace: Duration, steps: u64) -> bool {
        believed.is_apart(last, grace)
            || believed.before(grace) != last.before(grace) && self.count.get() >= steps.max(REFUSALS)
    }

    /// Notes the time of a sweep that began at `first`. May it begin to forget keys? It may when
    /// that time is believed, or it has said so often enough.
    pub(crate) fn lets_sweep(&self, now: Tick, first: Tick, inserted: impl Fn() -> u64) -> bool {
        self.note(now, &inserted);
        self.believed(now, &inserted) >= first || self.count.get() >= SWEEPS_AT_MOST
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// They are far apart.
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
        // One that is far ahead is none of the others.
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
