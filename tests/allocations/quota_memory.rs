//! A quota change leaves no memory behind, for any kind of limiter, and `bytes` includes the memory
//! that waits to be freed.

use crate::{LIVE_HERE, alone};
use std::time::Duration;
use tollgate::store::{Accepts, Store};
use tollgate::{
    Algorithm, Builder, ClassLimiter, InFlight, Limiter, ManualClock, Quota, SingleLimiter, WhenFull,
};

const CHANGES: u64 = 5_000;

/// The bytes that may wait for a collection: 32 KiB for the next collection, the same for the one
/// after it, and the memory that the table keeps for its next turnover.
const WAITING: isize = 96 << 10;

/// The maximum number of allocated bytes that `bytes` may miss. An index also allocates a few bytes
/// for each of its buckets.
const UNREPORTED: isize = 4 << 10;

/// Changes a quota many times. Asserts that no more bytes are left than may wait for a collection,
/// and that `bytes` includes them at any time.
fn assert_leaves_nothing(what: &str, change: impl Fn(u64), bytes: impl Fn() -> usize) {
    (0..200).for_each(&change);
    let live = || LIVE_HERE.get();
    let unreported = || live() - bytes().cast_signed();
    let (live_before, unreported_before) = (live(), unreported());
    for n in 200..200 + CHANGES {
        change(n);
        if n % 250 == 0 {
            let (left, more) = (live() - live_before, unreported() - unreported_before);
            assert!(left < WAITING, "{what}: {left} bytes more after {n} changes");
            assert!(more < UNREPORTED, "{what}: {more} bytes more after {n} changes are not reported");
        }
    }
}

fn quota(n: u64) -> Quota {
    Quota::per_hour(10 + n % 7)
}

/// Changes the quota of a limiter while some of its keys are inserted and evicted.
fn assert_keys_leave_nothing<S: Store + Accepts<u64>>(
    what: &str,
    build: impl FnOnce(Builder<Limiter<u64>>) -> Limiter<u64, S>,
) {
    let clock = ManualClock::new();
    let builder = Limiter::builder(quota(0)).clock(&clock).max_keys(100).when_full(WhenFull::Share);
    let limiter = build(builder);
    let change = |n: u64| {
        limiter.set_quota(quota(n)).unwrap();
        (0..4).for_each(|key| _ = limiter.check(&(n * 4 + key)));
        limiter.set_key_quota(&(n % 3), quota(n + 1)).unwrap();
        limiter.set_key_quota(&((n + 1) % 3), None).unwrap();
        clock.advance(Duration::from_secs(60));
        limiter.sweep(16);
    };
    assert_leaves_nothing(what, change, || limiter.stats().bytes);
}

#[test]
fn a_table_frees_what_a_change_of_quota_replaces() {
    let _alone = alone();
    for algorithm in Algorithm::PACKED {
        let build = |builder: Builder<Limiter<u64>>| builder.algorithm(algorithm).build().unwrap();
        assert_keys_leave_nothing(&format!("fingerprints, {algorithm}"), build);
    }
}

#[test]
fn exact_keys_free_what_a_change_of_quota_replaces() {
    let _alone = alone();
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::SlidingLog] {
        let build =
            |builder: Builder<Limiter<u64>>| builder.algorithm(algorithm).exact_keys().build().unwrap();
        assert_keys_leave_nothing(&format!("exact keys, {algorithm}"), build);
    }
}

/// New keys find no place while the quota changes, so they translate the state that they share.
#[test]
fn a_shared_state_frees_what_a_change_of_quota_replaces() {
    let _alone = alone();
    let builder = Limiter::builder(quota(0)).clock(ManualClock::new()).max_keys(1).when_full(WhenFull::Share);
    let limiter: Limiter<u64> = builder.build().unwrap();
    let change = |n| {
        limiter.set_quota(quota(n)).unwrap();
        (0..4).for_each(|key| _ = limiter.check(&(n * 4 + key)));
    };
    assert_leaves_nothing("a shared state", change, || limiter.stats().bytes);
}

#[test]
fn permits_free_what_a_change_of_the_limit_replaces() {
    let _alone = alone();
    let downloads: InFlight<u64> = InFlight::builder(3).clock(ManualClock::new()).build().unwrap();
    let change = |n: u64| {
        downloads.set_limit(3 + n % 7).unwrap();
        drop(downloads.acquire(&n));
        downloads.sweep(16);
    };
    assert_leaves_nothing("permits", change, || downloads.stats().bytes);
}

/// Each class is a limiter in an `Arc`, aligned to two cache lines.
#[test]
fn the_bytes_of_a_class_limiter_include_the_places_of_its_limiters() {
    let _alone = alone();
    let unreported = |classes: u64| {
        let before = LIVE_HERE.get();
        let builder = Limiter::<u64>::builder(quota(0)).clock(ManualClock::new()).class("paid", quota(1));
        let builder = (0..classes).fold(builder, |builder, n| builder.class(n.to_string(), quota(n)));
        let limiter = builder.build().unwrap();
        LIVE_HERE.get() - before - limiter.stats().bytes.cast_signed()
    };
    // The first limiter of a thread also makes the thread's own allocations.
    unreported(0);
    let each = (unreported(16) - unreported(0)) / 16;
    assert!(each < 256, "{each} bytes of a class are not reported");
}

#[test]
fn classes_free_what_a_change_of_quota_replaces() {
    let _alone = alone();
    let builder = Limiter::builder(quota(0)).clock(ManualClock::new()).max_keys(100).class("paid", quota(1));
    let limiter: ClassLimiter<u64> = builder.build().unwrap();
    let paid = limiter.class("paid").unwrap();
    let change = |n| {
        paid.set_quota(quota(n)).unwrap();
        let _ = paid.check(&n);
        while paid.sweep(64) {}
    };
    assert_leaves_nothing("classes", change, || limiter.stats().bytes);
}

#[test]
fn a_single_limiter_frees_what_a_change_of_quota_replaces() {
    let _alone = alone();
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingLog] {
        let builder = SingleLimiter::builder(quota(0)).algorithm(algorithm).clock(ManualClock::new());
        let limiter = builder.build().unwrap();
        let change = |n| {
            limiter.set_quota(quota(n)).unwrap();
            let _ = limiter.check();
        };
        assert_leaves_nothing(&format!("single, {algorithm}"), change, || limiter.bytes());
    }
}
