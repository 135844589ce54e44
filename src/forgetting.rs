//! What a store remembers of the keys it has forgotten, and which times it believes when it forgets.
//!
//! A store forgets a key that is idle: one that decides as a fresh key does. But it is idle only from
//! some time on, and a request may have an earlier time: its thread was stopped after it had read the
//! clock, or the clock was set back. That request would find a fresh key where a map that never forgets
//! has a throttled one. So a store keeps one time for all keys that it has forgotten, the [`Mark`]: a
//! key that it does not have is charged at no earlier time.
//!
//! The mark must cover what was forgotten, and should be no later than that: it delays new keys. So it
//! is raised to the time from which on the forgotten key is idle, and not to the time by which that was
//! judged. Then no time that a caller passes, however far ahead it is, delays a new key for longer than
//! until some key of the store would have been idle.
//!
//! A time that is far ahead would still make a store forget keys that are throttled for everybody else.
//! So a store judges by a time that the last few insertions have reached, too: see [`Witnesses`].
//!
//! # Orderings
//!
//! All relaxed. Who forgets a key raises the mark first, and publishes both by the edge by which others
//! learn that the key is forgotten: *closed* and *link* of `table`, scc's locks in `exact`. The mark
//! never falls, so who reads it once it is covered reads no less.

use crate::sync::{Atomic, Ordering::Relaxed};
use crate::time::Tick;

/// How many insertions have to reach a time before keys are forgotten by it. (Models have one, or there
/// is too much to try.)
pub(crate) const WITNESSES: usize = if cfg!(tollgate_loom) { 1 } else { 4 };

/// How often a sweep's time is noted before the store goes on with what it believes, whoever contradicts.
pub(crate) const SWEEPS_AT_MOST: u64 = 16;

/// How an attempt to begin a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
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

/// The times of the last few requests that wanted a place for a new key, and of sweeps. In any order.
#[derive(Debug)]
pub(crate) struct Witnesses([Atomic<u64>; WITNESSES]);

impl Witnesses {
    pub(crate) fn none() -> Self {
        Self(std::array::from_fn(|_| Atomic::new(0)))
    }

    /// The same times, for the store's next part.
    pub(crate) fn copied(&self) -> Self {
        // ORDERING: relaxed; evidence, which may lack the latest.
        Self(self.0.each_ref().map(|time| Atomic::new(time.load(Relaxed))))
    }

    /// Notes the time of a request, which is the `nth` by some count.
    #[inline(always)]
    pub(crate) fn note(&self, nth: u64, now: Tick) {
        // The remainder is below the number of times.
        #[allow(clippy::cast_possible_truncation)]
        let place = (nth % WITNESSES as u64) as usize;
        // ORDERING: relaxed; evidence, which publishes nothing.
        self.0[place].store(now.as_nanos(), Relaxed);
    }

    /// `now`, or the earliest of the times that were noted if one is earlier.
    pub(crate) fn believed(&self, now: Tick) -> Tick {
        // ORDERING: relaxed, as in `note`.
        let times = self.0.iter().map(|time| Tick::from_nanos(time.load(Relaxed)));
        times.fold(now, Tick::min)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn second(n: u64) -> Tick {
        Tick::from_nanos(n * 1_000_000_000)
    }

    #[test]
    fn a_mark_only_rises() {
        let mark = Mark::at(second(5));
        for (to, expected) in [(3, 5), (7, 7), (6, 7)] {
            mark.raise(second(to));
            assert_eq!(mark.get(), second(expected));
        }
    }

    #[test]
    fn a_time_is_believed_once_the_last_insertions_have_reached_it() {
        let witnesses = Witnesses::none();
        for nth in 0..4 {
            assert_eq!(witnesses.believed(second(10)), Tick::ZERO, "{nth}");
            witnesses.note(nth, second(10));
        }
        assert_eq!(witnesses.believed(second(10)), second(10));
        // One that is far ahead is none of the others.
        witnesses.note(4, Tick::MAX);
        for believed in [witnesses.believed(Tick::MAX), witnesses.copied().believed(Tick::MAX)] {
            assert_eq!(believed, second(10));
        }
        assert_eq!(witnesses.believed(second(3)), second(3), "nor later than its own");
    }
}
