//! A thread stalls while it reads the index of exact keys, under a guard of scc. scc reclaims
//! memory using a process-wide epoch.

use crate::with_exact_keys::store::{Gate, IntoGate};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use tollgate::{DecisionSource, Limiter, ManualClock, Quota, Tick, WhenFull};

/// A thread that is stopped within a lookup of scc keeps unlinked cells from being freed. New keys
/// are then handled by the policy before memory grows without a bound, and known keys are not
/// affected. The store recovers when the thread resumes.
#[test]
fn a_thread_that_stalls_in_a_lookup_costs_bounded_memory() {
    let _alone = crate::alone();
    let builder = Limiter::builder(Quota::per_second(1_000)).max_keys(1_000).when_full(WhenFull::Deny);
    let limiter: Gate<u64> = builder.grace(Duration::ZERO).clock(ManualClock::new()).gate();
    let at = |key: u64| Tick::from_nanos(key * 100_000);
    assert!(limiter.at(at(0)).check_n(&u64::MAX, 1_000).is_allowed());
    let stalled = scc::Guard::new();
    let (mut refused, mut most) = (0, 0);
    for key in 0..200_000 {
        if key % 1_000 == 0 && key > 0 {
            // This is a known key in use. A tenth of a second refills the cost of one check.
            assert_eq!(limiter.at(at(key)).check_n(&u64::MAX, 100).source(), DecisionSource::Key);
        }
        refused += u64::from(limiter.at(at(key)).check(&key).source() == DecisionSource::Policy);
        most = most.max(limiter.stats().bytes);
    }
    println!("{most} bytes at the most");
    // The bound allows 69,536 cells of 80 bytes, and a tenth of this memory for the index and the
    // places.
    assert!(most < 6_200_000, "{most} bytes");
    assert!(refused > 100_000, "{refused}: else this test shows nothing");
    let known = limiter.at(at(200_000)).check_n(&u64::MAX, 100);
    assert_eq!((known.is_allowed(), known.source()), (true, DecisionSource::Key));
    drop(stalled);
    let admitted =
        (200_000..300_000).filter(|&key| limiter.at(at(key)).check(&key).source() == DecisionSource::Key);
    assert!(admitted.count() > 90_000);
}

fn limiter() -> Gate<u64> {
    Limiter::builder(Quota::per_second(10)).max_keys(100).clock(ManualClock::new()).gate()
}

fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}

/// Terms of a quota are replaced in place, so nothing waits for scc.
#[test]
fn quotas_that_come_and_go_beside_a_stalled_lookup_stay_small() {
    let _alone = crate::alone();
    let limiter = limiter();
    let change = |times: u64| {
        for n in 0..times {
            limiter.set_key_quota(&(n % 10), Quota::per_second(11)).unwrap();
            limiter.set_key_quota(&(n % 10), None).unwrap();
        }
    };
    change(1_000);
    let before = limiter.stats().bytes;
    let stalled = scc::Guard::new();
    change(100_000);
    drop(stalled);
    let stats = limiter.stats();
    assert_eq!(stats.own_quotas, 0);
    assert!(stats.bytes < before + 100_000, "{before} bytes, then {}", stats.bytes);
}

/// Each of a million keys gets a quota and loses it. Few entries without a quota stay.
#[test]
fn a_million_keys_that_get_and_lose_a_quota_leave_nothing_behind() {
    let _alone = crate::alone();
    let limiter = limiter();
    let mut most = 0;
    let mut before = 0;
    for key in 0..1_000_000 {
        limiter.set_key_quota(&key, Quota::per_second(11)).unwrap();
        limiter.set_key_quota(&key, None).unwrap();
        if key == 100_000 {
            before = resident();
        }
        if key % 10_000 == 0 {
            most = most.max(limiter.stats().bytes);
        }
    }
    let after = resident();
    println!("{most} bytes at the most, resident {before}, then {after}");
    assert!(most < 1_000_000, "{most} bytes");
    assert!(after < before + 4_000_000, "resident {before}, then {after}");
}

/// Entries of keys that have lost their quotas are not freed meanwhile, so their number has a
/// bound.
#[test]
fn quotas_of_ever_new_keys_beside_a_stalled_lookup_are_refused_at_a_bound() {
    let _alone = crate::alone();
    let limiter = limiter();
    limiter.set_key_quota(&u64::MAX, Quota::per_second(12)).unwrap();
    let stalled = scc::Guard::new();
    let mut set = 0;
    let refused = loop {
        if let Err(error) = limiter.set_key_quota(&set, Quota::per_second(11)) {
            break error;
        }
        limiter.set_key_quota(&set, None).unwrap();
        set += 1;
        assert!(set < 1_000_000, "it is never refused");
    };
    assert!(refused.is_temporary(), "{refused}");
    let stats = limiter.stats();
    println!("{set} keys, {} bytes", stats.bytes);
    // The bound allows 65,540 entries, of which one has a rule, and the last of the terms waits.
    assert!((65_000..66_000).contains(&set), "{set}");
    assert!(stats.bytes < 200 * 65_540, "{} bytes", stats.bytes);
    // A quota of a key that has one may change, and lose it.
    limiter.set_key_quota(&u64::MAX, Quota::per_second(13)).unwrap();
    drop(stalled);
    for key in 0..100_000 {
        // The first calls may free too little.
        let _ = limiter.set_key_quota(&key, Quota::per_second(11));
        limiter.set_key_quota(&key, None).unwrap();
    }
    limiter.set_key_quota(&1, Quota::per_second(11)).unwrap();
    assert!(limiter.stats().bytes < 2_000_000, "{} bytes", limiter.stats().bytes);
}

/// One thread inserts all keys while another stalls, and then rests. The memory that scc has
/// retired belongs to the resting thread, which never frees it. Other threads still insert keys.
#[test]
fn a_thread_that_rests_after_a_stall_locks_out_no_other() {
    let _alone = crate::alone();
    let builder = Limiter::builder(Quota::per_second(1_000)).max_keys(1_000).when_full(WhenFull::Deny);
    let limiter: Gate<u64> = builder.grace(Duration::ZERO).clock(ManualClock::new()).gate();
    // At most 910 keys are throttled at any time.
    let refused = |keys: std::ops::Range<u64>| {
        let is_refused = |key: &u64| {
            let now = Tick::from_nanos(key * 1_100_000);
            limiter.at(now).check(key).source() == DecisionSource::Policy
        };
        keys.filter(is_refused).count()
    };
    let stalled = scc::Guard::new();
    let ((flooded, is_flooded), (finish, is_finished)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        scope.spawn(|| {
            flooded.send(refused(0..200_000)).unwrap();
            // The thread rests until the other threads are done.
            let _ = is_finished.into_iter().next();
        });
        let during = is_flooded.recv().unwrap();
        assert!(during > 100_000, "{during}: else this test shows nothing");
        drop(stalled);
        let after = refused(200_000..300_000);
        drop(finish);
        assert!(after < 100, "{after}");
    });
}
