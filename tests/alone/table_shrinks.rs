//! The conditions under which the table becomes smaller.

use std::time::Duration;
use tollgate::{Algorithm, Charge, Limiter, ManualClock, Quota, check_all};

/// Each algorithm is tested both with a quota of the key's own and without one, because new keys
/// enter the table in several ways.
#[test]
fn a_table_that_is_far_too_large_shrinks_with_the_next_new_key() {
    let _alone = crate::alone();
    for (algorithm, has_own_quota) in
        Algorithm::PACKED.into_iter().flat_map(|one| [(one, false), (one, true)])
    {
        let clock = ManualClock::new();
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
        let flooded = limiter.stats().room;
        for (key, later, shrinks) in [(20_000, 0, false), (20_001, 65, true)] {
            clock.advance(Duration::from_secs(later));
            assert!(limiter.check(&key).is_allowed());
            let capacity = limiter.stats().room;
            let case = format!("{algorithm}, a key with a quota of its own: {has_own_quota}");
            assert_eq!(capacity < flooded, shrinks, "{case}: {capacity} of {flooded} after {later} s");
        }
    }
}

/// Charges of known keys do the upkeep that new keys would otherwise do: one charge in 2048 does
/// it. Charges of several limits together also do it, although they find their keys in another way.
#[test]
fn a_table_that_is_far_too_large_shrinks_while_only_a_known_key_comes() {
    let _alone = crate::alone();
    for algorithm in Algorithm::PACKED {
        let clock = ManualClock::new();
        let quota = Quota::new(10_000, Duration::from_secs(1));
        let limiter: Limiter<u64> =
            Limiter::builder(quota).algorithm(algorithm).clock(&clock).build().unwrap();
        for key in 0..10_000 {
            assert!(limiter.check(&key).is_allowed());
        }
        clock.advance(Duration::from_secs(5));
        while limiter.sweep(usize::MAX) {}
        while limiter.sweep(usize::MAX) {}
        let flooded = limiter.stats().room;
        assert!(limiter.check(&20_000).is_allowed());
        clock.advance(Duration::from_secs(65));
        let key = limiter.for_key(&20_000);
        for _ in 0..2048 {
            assert!(check_all(&mut [Charge::new(&key, 1)]).is_ok());
            // Upkeep counts time in units of about a millisecond.
            clock.advance(Duration::from_nanos(1 << 20));
        }
        let capacity = limiter.stats().room;
        assert!(capacity < flooded, "{algorithm}: {capacity} of {flooded}");
    }
}
