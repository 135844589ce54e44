//! The size of the table.

use std::time::Duration;
use tollgate::{Limiter, ManualClock, Quota, Tick};

/// Keys that are used once do not make the table grow, and the room of a flood is given back.
#[test]
fn a_table_keeps_the_size_of_what_is_in_use() {
    let _alone = crate::alone();
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_second(1)).max_keys(100_000).clock(ManualClock::new()).build().unwrap();
    let mut now = Tick::ZERO;
    let small = limiter.stats().bytes;
    for key in 0..50_000 {
        now = now + Duration::from_secs(1);
        assert!(limiter.at(now).check(&key).is_allowed());
    }
    assert!(limiter.stats().bytes < 100 * small, "{} bytes after a trickle", limiter.stats().bytes);
    for key in 100_000..200_000 {
        let _ = limiter.at(now).check(&key);
    }
    let flooded = limiter.stats().bytes;
    assert!(flooded > 24 * 100_000, "{flooded} bytes");
    // All places are taken until the keys have been idle for the grace.
    now = now + Duration::from_secs(3);
    for key in 300_000..600_000 {
        now = now + Duration::from_millis(100);
        assert!(limiter.at(now).check(&key).is_allowed());
    }
    assert!(limiter.stats().bytes < flooded / 10, "{} bytes of {flooded}", limiter.stats().bytes);
}
