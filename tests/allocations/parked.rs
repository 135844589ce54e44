//! A thread that is parked forever under a guard costs a bounded amount of memory, and delays no
//! other thread.

use crate::guards::while_a_thread_is_stopped;
use crate::{LIVE, alone};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tollgate::{Algorithm, Chargeable, DecisionSource, Limiter, ManualClock, Quota, SingleLimiter, Tick};

fn other() -> Limiter<u64> {
    Limiter::builder(Quota::per_second(1)).clock(ManualClock::new()).build().unwrap()
}

/// The bound in the documentation of `SlidingLog`: up to three slots of 8 bytes for each admission,
/// plus two chunks.
fn log_at_most(limit: usize) -> usize {
    24 * limit + 2 * CHUNK
}

/// The bytes of a chunk without its slots.
const CHUNK: usize = 256;

/// The maximum number of retired bytes that wait for the next collection and the one after it.
const WAITING: usize = 2 * (32 << 10);

#[test]
fn logs_stay_small_while_a_thread_is_parked() {
    let _alone = alone();
    for limit in [8, 1_000] {
        let quota = Quota::new(limit, Duration::from_nanos(1_000 * limit));
        let builder = SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog);
        let log = builder.clock(ManualClock::new()).build().unwrap();
        let admit = |admissions: std::ops::Range<u64>| {
            for n in admissions {
                assert!(log.at(Tick::from_nanos(n * 1_000)).check().is_allowed());
            }
        };
        let limit = usize::try_from(limit).unwrap();
        let bound = size_of::<SingleLimiter>() + 2 * log_at_most(limit) + WAITING;
        admit(0..10_000);
        let (before, other) = (LIVE.load(Relaxed), other());
        while_a_thread_is_stopped(&other, || {
            for million in 0..5 {
                admit(10_000 + million * 1_000_000..10_000 + (million + 1) * 1_000_000);
                assert!(log.bytes() <= bound, "{} bytes for a limit of {limit}", log.bytes());
                // The allocator's figures agree.
                let live = LIVE.load(Relaxed).saturating_sub(before);
                assert!(live < bound + 200_000, "{live} bytes more");
            }
        });
        admit(5_010_000..5_020_000);
        let bound = size_of::<SingleLimiter>() + log_at_most(limit) + WAITING;
        assert!(log.bytes() <= bound, "{} bytes after the thread went on", log.bytes());
    }
}

/// A large log was in use when a thread was parked. The log's memory is freed when the thread
/// continues.
#[test]
fn a_burst_is_given_back_when_the_parked_thread_goes_on() {
    let _alone = alone();
    let quota = Quota::new(100_000, Duration::from_secs(1));
    let builder = SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog);
    let log = builder.clock(ManualClock::new()).build().unwrap();
    assert!((0..100_000).all(|_| log.at(Tick::ZERO).check().is_allowed()));
    let burst = log.bytes();
    assert!(burst > 800_000);
    let later = Tick::ZERO + Duration::from_secs(2);
    while_a_thread_is_stopped(&other(), || {
        assert!(log.at(later).check().is_allowed());
        assert!(log.bytes() > 800_000, "it waits, and is counted: {} bytes", log.bytes());
        assert!(log.bytes() < burst + 1_000);
    });
    for n in 0..10_000 {
        assert!(log.at(later + Duration::from_nanos(n)).check().is_allowed());
    }
    assert!(log.bytes() < 24 * 10_000 + WAITING, "{} bytes", log.bytes());
}

#[test]
fn exact_keys_stay_small_while_a_thread_is_parked() {
    let _alone = alone();
    let quota = Quota::new(8, Duration::from_nanos(8_000));
    let builder = Limiter::<u64>::builder(quota).algorithm(Algorithm::SlidingLog);
    let limiter = builder.exact_keys().max_keys(100).clock(ManualClock::new()).build().unwrap();
    let admit = |admissions: std::ops::Range<u64>| {
        for n in admissions {
            assert!(limiter.at(Tick::from_nanos(n * 20)).check(&(n % 50)).is_allowed());
        }
    };
    admit(0..100_000);
    let used = limiter.stats().bytes;
    while_a_thread_is_stopped(&other(), || {
        admit(100_000..3_100_000);
        let bound = used + 50 * log_at_most(8) + 2 * WAITING;
        assert!(limiter.stats().bytes < bound, "{} bytes, {used} before", limiter.stats().bytes);
    });
}

/// Tables grow, evict keys and free memory while a thread is parked, including the table that the
/// parked thread reads.
#[test]
fn a_sweep_gives_back_what_waited_for_a_parked_thread() {
    let _alone = alone();
    let clock = ManualClock::new();
    let builder = Limiter::<u64>::builder(Quota::per_hour(1_000)).algorithm(Algorithm::SlidingLog);
    let limiter = builder.exact_keys().grace(Duration::ZERO).clock(&clock).build().unwrap();
    for _ in 0..1_000 {
        clock.advance(Duration::from_nanos(1));
        (0..10).for_each(|key| assert!(limiter.check(&key).is_allowed()));
    }
    while_a_thread_is_stopped(&other(), || {
        clock.advance(Duration::from_secs(3_600));
        while limiter.sweep(usize::MAX) {}
        assert!(limiter.is_empty());
        assert!(limiter.stats().bytes > 80_000, "it waits, and is counted: {} bytes", limiter.stats().bytes);
    });
    // No key is left to forget.
    assert!(!limiter.sweep(usize::MAX));
    assert!(limiter.stats().bytes < 50_000, "{} bytes", limiter.stats().bytes);
}

#[test]
fn tables_grow_and_evict_while_a_thread_is_parked() {
    let _alone = alone();
    for is_own in [false, true] {
        let max_keys = 12_000;
        let clock = ManualClock::new();
        let builder = Limiter::builder(Quota::per_second(1)).max_keys(max_keys).clock(&clock);
        let (limiter, other): (Limiter<u64>, _) = (builder.build().unwrap(), other());
        // The bound is four arrays at the cap, with three slots for every two keys, as documented
        // in `table`.
        let bound = 4 * (max_keys * 24 + max_keys * 3 / 32 + 1_088) + size_of::<Limiter<u64>>();
        while_a_thread_is_stopped(if is_own { &limiter } else { &other }, || {
            for key in 0..300_000 {
                clock.advance(Duration::from_millis(1));
                assert_eq!(limiter.check(&key).source(), DecisionSource::Key, "key {key}");
                assert!(limiter.stats().bytes <= bound, "{} bytes", limiter.stats().bytes);
            }
            assert!(limiter.stats().turnovers > 20, "{:?}", limiter.stats());
        });
        for key in 300_000..400_000 {
            clock.advance(Duration::from_millis(1));
            let _ = limiter.check(&key);
        }
        while limiter.sweep(4096) {}
        assert!(limiter.stats().bytes < 2 * bound / 4 + 10_000, "{} bytes", limiter.stats().bytes);
    }
}

/// Quotas change one after the other: those of tables, of existing exact keys, and of keys never
/// used before.
#[test]
fn quotas_change_while_a_thread_is_parked() {
    let _alone = alone();
    let table: Limiter<u64> =
        Limiter::builder(Quota::per_hour(1)).max_keys(1_000).clock(ManualClock::new()).build().unwrap();
    let exact = Limiter::<u64>::builder(Quota::per_hour(10_000))
        .algorithm(Algorithm::SlidingLog)
        .max_keys(1_000)
        .clock(ManualClock::new())
        .exact_keys()
        .build()
        .unwrap();
    for key in 0..100 {
        assert!(table.check(&key).is_allowed() && exact.check(&key).is_allowed());
    }
    let before = LIVE.load(Relaxed);
    while_a_thread_is_stopped(&other(), || {
        for change in 0..100_000 {
            exact.set_key_quota(&(change % 200), Quota::per_hour(10_001 + change % 7)).unwrap();
            if change.is_multiple_of(100) {
                exact.set_quota(Quota::per_hour(10_001 + change)).unwrap();
                table.set_quota(Quota::per_hour(2 + change)).unwrap();
            }
            if change.is_multiple_of(10_000) {
                let live = LIVE.load(Relaxed).saturating_sub(before);
                assert!(live < 450_000, "{live} bytes after {change} changes");
                assert!(exact.stats().bytes < 350_000 && table.stats().bytes < 100_000);
            }
        }
    });
    assert_eq!((table.check(&7).capacity(), exact.peek(&150).capacity()), (99_902, 10_001 + 99_950 % 7));
}

/// A `clear` never closes a table that has no memory for the next one. New keys find a place,
/// however often the table is cleared while a thread is parked.
#[test]
fn a_clear_beside_a_parked_thread_leaves_room_for_new_keys() {
    let _alone = alone();
    let max_keys = 50_000;
    let clock = ManualClock::new();
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(max_keys).clock(&clock);
    let limiter: Limiter<u64> = builder.build().unwrap();
    let mut keys = 0..;
    let mut insert = || limiter.check(&keys.next().unwrap()).source();
    assert!((0..max_keys).all(|_| insert() == DecisionSource::Key));
    while_a_thread_is_stopped(&other(), || {
        for _ in 0..6 {
            clock.advance(Duration::from_secs(100));
            limiter.clear();
            assert!((0..1_000).all(|_| insert() == DecisionSource::Key), "{:?}", limiter.stats());
        }
    });
}
