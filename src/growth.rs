//! The sizing rules shared by the table and the store of exact keys.
//!
//! A store has a *capacity*, the number of keys that it expects. The store grows when the capacity
//! is reached, and shrinks after it has been mostly empty for a long time.

use crate::time::Tick;
use std::time::Duration;

/// The first capacity, unless the cap is lower. (Models explore all schedules, so their first
/// capacity is small.)
pub(crate) const FIRST: u64 = if cfg!(tollgate_loom) { 2 } else { 40 };

/// A store is too large if it has been mostly empty for longer than this duration.
pub(crate) const CALM: Duration = Duration::from_secs(60);

/// A capacity was too small if it was reached in less than this duration.
const QUICK: Duration = Duration::from_secs(10);

/// A capacity was far too small if it was reached in less than this duration.
const RUSH: Duration = Duration::from_secs(1);

/// The growth factor after a [`RUSH`]. During a flood of new keys, a factor of 2 moves each key
/// once on average, whereas a factor of 4 moves it only 1/3 times. (Models have small tables.)
const RUSH_GROWTH: u64 = if cfg!(tollgate_loom) { 2 } else { 4 };

/// Returns true if the store contains fewer than a quarter of the expected keys.
#[inline]
pub(crate) const fn is_hardly_used(capacity: u64, used: u64) -> bool {
    used < capacity / 4
}

/// Returns the next capacity of a store that contains `used` keys and has had the given `capacity`
/// since `began`.
///
/// A store that was mostly empty shrinks. Any other capacity that was not reached is kept. A
/// capacity that was reached quickly, or by keys that stay, is doubled. A capacity that was reached
/// in less than a [`RUSH`] grows even more. In the remaining cases, most keys were used only once,
/// so the next capacity is just the number of keys.
pub(crate) fn next_capacity(capacity: u64, used: u64, began: Tick, now: Tick, keys_stay: bool) -> u64 {
    if is_hardly_used(capacity, used) {
        2 * used
    } else if used < capacity {
        capacity
    } else if !now.is_apart(began, RUSH) {
        RUSH_GROWTH * used
    } else if !now.is_apart(began, QUICK) || keys_stay {
        2 * used
    } else {
        used
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_next_capacity_follows_use_and_haste() {
        let just_before = |age: Duration| Tick::ZERO + (age - Duration::from_nanos(1));
        let (rush, quick, slow) = (just_before(RUSH), just_before(QUICK), Tick::ZERO + QUICK);
        for (used, now, keys_stay, expected) in [
            (9, rush, true, 18),
            (10, rush, true, 40),
            (39, slow, false, 40),
            (40, rush, false, 160),
            (40, Tick::ZERO + RUSH, false, 80),
            (40, quick, false, 80),
            (40, slow, false, 40),
            (40, slow, true, 80),
        ] {
            let next = next_capacity(40, used, Tick::ZERO, now, keys_stay);
            assert_eq!(next, expected, "{used} keys at {now:?}, {keys_stay}");
        }
    }
}
