//! When the table becomes smaller. In a program of its own, as `table_size` is: a guard of another
//! test would delay it.

use std::time::Duration;
use tollgate::{Algorithm, Clock, Limiter, Quota};

/// Each algorithm is tested with and without a quota of a key's own, because new keys enter the
/// table in several ways.
#[test]
fn a_table_that_is_far_too_large_shrinks_with_the_next_new_key() {
    for (algorithm, has_own_quota) in
        Algorithm::PACKED.into_iter().flat_map(|one| [(one, false), (one, true)])
    {
        let clock = Clock::manual();
        let limiter: Limiter<u64> =
            Limiter::builder(Quota::per_second(1)).algorithm(algorithm).clock(&clock).build().unwrap();
        if has_own_quota {
            limiter.set_key_quota(&u64::MAX, Quota::per_second(2)).unwrap();
        }
        for key in 0..10_000 {
            assert!(limiter.check(&key).is_allowed());
        }
        clock.advance(Duration::from_secs(5));
        while limiter.sweep(usize::MAX) {}
        while limiter.sweep(usize::MAX) {}
        let flooded = limiter.stats().capacity;
        for (key, later, shrinks) in [(20_000, 0, false), (20_001, 65, true)] {
            clock.advance(Duration::from_secs(later));
            assert!(limiter.check(&key).is_allowed());
            let capacity = limiter.stats().capacity;
            let case = format!("{algorithm}, a key with a quota of its own: {has_own_quota}");
            assert_eq!(capacity < flooded, shrinks, "{case}: {capacity} of {flooded} after {later} s");
        }
    }
}
