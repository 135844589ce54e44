//! Where the root's lines lie, for prefetching: a hint that needs no guard, for nothing is read through it.
//!
//! A check asks for its key's line before it reads the clock, and pins the epoch after that: the processor waits for
//! the clock (the time stamp counter's instruction lets nothing younger begin), and meanwhile the line comes. At a
//! million keys that is a third of a check's time. Prefetching under the guard, so with the pin before the clock,
//! made a check of a hot key nine nanoseconds slower: the clock waited for the pin's locked instruction.
//!
//! What the hint says may be old, or half of it new: then a line is fetched that nobody needs, or nothing. The
//! instruction reads nothing as far as the program can see, and never faults.

use super::slot::Fingerprint;
use super::space::Space;
#[cfg(not(tollgate_loom))]
use crate::sync::{Atomic, Ordering::Relaxed};

/// Models have none: it would only be more for them to try.
#[cfg(tollgate_loom)]
#[derive(Debug)]
pub(super) struct Hint;

#[cfg(tollgate_loom)]
impl Hint {
    pub(super) fn at(_space: &Space) -> Self {
        Self
    }

    pub(super) fn point_to(&self, _space: &Space) {}

    pub(super) fn prefetch(&self, _key: Fingerprint) {}
}

/// The address of the first line, and how many there are.
#[cfg(not(tollgate_loom))]
#[derive(Debug)]
pub(super) struct Hint {
    first: Atomic<usize>,
    lines: Atomic<usize>,
}

#[cfg(not(tollgate_loom))]
impl Hint {
    pub(super) fn at(space: &Space) -> Self {
        Self { first: Atomic::new(space.address()), lines: Atomic::new(space.lines()) }
    }

    /// Points to a space from now on; writes only if that is news.
    pub(super) fn point_to(&self, space: &Space) {
        for (field, value) in [(&self.first, space.address()), (&self.lines, space.lines())] {
            // ORDERING: relaxed twice; a hint.
            if field.load(Relaxed) != value {
                field.store(value, Relaxed);
            }
        }
    }

    /// Asks the processor to load the line where the probe run of `key` begins.
    #[inline]
    pub(super) fn prefetch(&self, key: Fingerprint) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // ORDERING: relaxed twice; a hint.
            let (first, lines) = (self.first.load(Relaxed), self.lines.load(Relaxed));
            let line = first.wrapping_add(key.home(lines).wrapping_mul(Space::LINE));
            // SAFETY: a prefetch reads nothing as far as the program can see, and never faults: any address will do.
            #[allow(unsafe_code)]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(line));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (key, &self.first, &self.lines);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::Table;
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::quota::{Enforced, Quota};
    use crate::rule::AnyRule;
    use crate::sync::pin;
    use crate::time::Tick;
    use std::time::Duration;

    fn points_to_root(table: &Table) -> bool {
        let guard = pin();
        let space = &table.root(&guard).space;
        (table.hint.first.load(Relaxed), table.hint.lines.load(Relaxed)) == (space.address(), space.lines())
    }

    /// Who asks for lines of an old space is only slower, so nothing else would show it.
    #[test]
    fn the_hint_follows_the_root_through_every_turnover() {
        let quota = Quota::per_second(1);
        let rule = AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap();
        let table = Table::new(20_000, Duration::from_secs(1), Enforced { rule, quota }).unwrap();
        assert!(points_to_root(&table));
        let now = Tick::from_nanos(1);
        for key in 0..20_000_u64 {
            let key = Fingerprint::of_hash(key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            super::super::insert(&table, key, now, &pin());
            assert!(points_to_root(&table), "after {} turnovers", table.turnovers());
        }
        assert!(table.turnovers() >= 5, "{} turnovers", table.turnovers());
        // Of two promotions the older one may be the last to say so; upkeep sets that right.
        table.hint.point_to(&Space::new(3).unwrap());
        assert!(!points_to_root(&table));
        table.tend(1, now, &pin());
        assert!(points_to_root(&table));
    }

    #[test]
    fn a_hint_points_to_the_last_space_and_any_other_does_no_harm() {
        let (small, large) = (Space::new(3).unwrap(), Space::new(300).unwrap());
        let hint = Hint::at(&small);
        hint.point_to(&large);
        assert_eq!((hint.first.load(Relaxed), hint.lines.load(Relaxed)), (large.address(), 300));
        // Half of it old, half of it freed, none of it ever true.
        drop(large);
        for (first, lines) in [(small.address(), 300), (small.address(), 0), (usize::MAX, usize::MAX), (0, 1)]
        {
            hint.first.store(first, Relaxed);
            hint.lines.store(lines, Relaxed);
            for key in [2, 1 << 40, u64::MAX] {
                hint.prefetch(Fingerprint::of_hash(key));
            }
        }
    }
}
