//! A thread that stalls while pinned. In a program of its own, because the epoch is the process's.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use tollgate::{Clock, Limiter, Quota, Source};

/// A thread that stalls while it may still see retired eras keeps them from being freed. Then no turnover
/// starts beyond the bound on memory: new keys get the full policy, and known keys notice nothing.
#[test]
fn a_thread_parked_while_pinned_stops_growth_and_nobody_else() {
    let (parked, is_parked) = channel();
    let (wake, woken) = channel::<()>();
    let sleeper = thread::spawn(move || {
        let guard = crossbeam_epoch::pin();
        parked.send(()).unwrap();
        woken.recv().unwrap();
        drop(guard);
    });
    is_parked.recv().unwrap();

    let max_keys = 10_000;
    let clock = Clock::manual();
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(max_keys);
    let limiter: Limiter<u64> = builder.clock(&clock).build().unwrap();
    assert!(limiter.check(&0).allowed());
    // Four eras at the cap, as the page of `table` says; an era has two thirds of its slots for keys.
    let bound = (4 * (max_keys * 24 + 1_000)).max(1 << 20) + 1_000;
    let mut refused = false;
    for key in 1..200_000 {
        // Every key is idle soon, so nothing but the stalled epoch is in the way.
        clock.advance(Duration::from_millis(1));
        if key % 400 == 0 {
            // A known key in use, which is never idle for as long as the grace.
            assert_eq!(limiter.check(&0).source(), Source::Key);
        }
        refused |= limiter.check(&key).source() == Source::Policy;
        assert!(limiter.memory() <= bound, "{} bytes at key {key}", limiter.memory());
    }
    assert!(refused, "the bound was never reached, so this test shows nothing");
    clock.advance(Duration::from_secs(1));
    let known = limiter.check(&0);
    assert_eq!((known.allowed(), known.source()), (true, Source::Key));
    assert!(!limiter.check(&0).allowed());

    wake.send(()).unwrap();
    sleeper.join().unwrap();
    // The epoch moves on, and there is room again within a few calls.
    let admitted = (1_000_000..1_010_000).filter(|key| limiter.check(key).source() == Source::Key).count();
    assert!(admitted > 1_000, "{admitted}");
}
