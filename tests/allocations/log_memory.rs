//! A sliding log allocates its memory only as it is used, and frees it again.

use crate::{ALLOCATIONS, LIVE, LIVE_HERE, alone};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Algorithm, Chargeable, Limiter, ManualClock, Quota, SingleLimiter, Tick};

const SECOND: Duration = Duration::from_secs(1);

fn log(clock: &ManualClock) -> SingleLimiter {
    let builder = SingleLimiter::builder(Quota::new(100_000, SECOND)).algorithm(Algorithm::SlidingLog);
    builder.clock(clock).build().unwrap()
}

/// The live bytes of this thread beyond `before`, including retired values until a collection frees
/// them.
fn live_above(before: isize) -> usize {
    usize::try_from(LIVE_HERE.get() - before).unwrap_or(0)
}

#[test]
fn a_log_takes_memory_as_it_is_used_and_gives_it_back() {
    let _alone = alone();
    // The participants of this thread are created first: one for walking the states, and one for
    // their logs.
    let _ = log(&ManualClock::new()).bytes();
    let clock = ManualClock::new();
    let before = LIVE_HERE.get();
    let log = log(&clock);
    // The memory of the rule, which a quota change replaces, and of the log's first chunk.
    let unused = live_above(before);
    assert_eq!(log.bytes() - size_of::<SingleLimiter>(), unused);
    // The rule has two cache lines of its own.
    assert!(unused < 500, "{unused}");

    // A few admissions take little memory, whatever their costs.
    for _ in 0..3 {
        assert!(log.at(Tick::ZERO).check().is_allowed());
    }
    assert!(live_above(before) < unused + 300, "{}", live_above(before));
    assert!(log.at(Tick::ZERO).check_n(90_000).is_allowed());
    assert!(live_above(before) < unused + 300, "{}", live_above(before));

    // The log's memory is proportional to its admissions, at every size.
    for used in 5..10_000_u64 {
        assert!(log.at(Tick::ZERO).check().is_allowed());
        let bytes = usize::try_from(used).unwrap() * 24 + 2_000;
        assert!(live_above(before) < bytes, "{used} admissions in {} bytes", live_above(before));
    }
    // The log reports the bytes that the allocator counts.
    assert_eq!(log.bytes() - size_of::<SingleLimiter>(), live_above(before));

    // Denials, peeks and readings of figures do not allocate.
    let allocations = ALLOCATIONS.get();
    for _ in 0..1_000 {
        assert!(!log.at(Tick::ZERO).check_n(90_000).is_allowed());
        let _ = (log.at(Tick::ZERO).peek(), log.is_idle(), log.bytes());
    }
    assert_eq!(ALLOCATIONS.get(), allocations);

    // After an idle period, one admission retires all of this memory. The following admissions free
    // it, a part at a time.
    let later = Tick::ZERO + 3 * SECOND;
    for _ in 0..200 {
        assert!(log.at(later).check().is_allowed());
    }
    assert!(log.bytes() < 200 * 24 + 1_000, "{}", log.bytes());
    assert!(live_above(before) < 20_000, "{}", live_above(before));

    // If a log is at its limit for many periods, it holds at most three times the admissions of one
    // period.
    let mut most = 0;
    for n in 0..1_000_000_u64 {
        assert!(log.at(later + SECOND + Duration::from_nanos(n * 10_000)).check().is_allowed());
        if n % 1_000 == 0 {
            most = most.max(log.bytes());
        }
    }
    assert!(most < 24 * 100_000 + 10_000, "{most}");
    println!("at most {most} bytes for 100,000 admissions in a period");
}

/// One chunk is retired every eight admissions, and no call is made to `sweep`.
#[test]
fn small_chunks_of_a_log_are_freed_without_a_sweep() {
    let _alone = alone();
    let builder = SingleLimiter::builder(Quota::per_second(8)).algorithm(Algorithm::SlidingLog);
    let small = builder.clock(ManualClock::new()).build().unwrap();
    let before = LIVE_HERE.get();
    for second in 0..10_000 {
        // The bound covers the chunks that wait for the next collection, and the same number again.
        assert!((0..8).all(|_| small.at(Tick::ZERO + second * SECOND).check().is_allowed()));
        assert!(live_above(before) < 200 * 200, "{} bytes after {second} seconds", live_above(before));
    }
}

/// The last thread to drop its handle drops the log, while other threads are dropping their
/// handles.
#[test]
fn a_log_is_freed_by_the_last_of_its_threads() {
    let _alone = alone();
    let (clock, later) = (ManualClock::new(), Tick::ZERO + 3 * SECOND);
    let before = LIVE.load(Relaxed);
    for round in 0..300_u64 {
        let log = Arc::new(self::log(&clock));
        thread::scope(|scope| {
            for _ in 0..3 {
                let log = Arc::clone(&log);
                scope.spawn(move || {
                    let charges: Vec<_> =
                        (0..100 + round).map(|n| log.at(later + Duration::from_nanos(n)).check()).collect();
                    log.refund(&charges[0]);
                    log.reset();
                    assert!(log.at(later).check().is_allowed());
                    drop(log);
                });
            }
            drop(log);
        });
    }
    // A thread is joined before its thread-locals are dropped. If each round leaked a log, the
    // leaks would add up to six hundred thousand bytes.
    let deadline = Instant::now() + 60 * SECOND;
    while LIVE.load(Relaxed).saturating_sub(before) >= 20_000 {
        assert!(Instant::now() < deadline, "{} bytes are left", LIVE.load(Relaxed).saturating_sub(before));
        thread::yield_now();
    }
}

/// The bytes that one key's log takes: the formula of `ExactKeys`.
fn most_of_log(limit: u64, has_refunds: bool) -> u64 {
    if has_refunds { 900 + 130 * limit } else { 450 + 24 * limit }
}

/// The sizes of the store include the logs, and other tests compare them with the allocator. Here a
/// store of logs is compared with a store of buckets that receives the same requests.
#[test]
fn logs_of_exact_keys_stay_within_the_formula() {
    const KEYS: u64 = 50;
    /// The memory that may wait for a collection.
    const WAITING: u64 = 96 << 10;
    let _alone = alone();
    for limit in [1, 2, 3, 5, 8, 9, 10, 16, 17, 100, 130, 1_000_u64] {
        for (is_burst, has_refunds) in [(true, false), (true, true), (false, false), (false, true)] {
            let store = |algorithm| {
                let builder = Limiter::<u64>::builder(Quota::new(limit, SECOND)).algorithm(algorithm);
                builder.clock(ManualClock::new()).exact_keys().build().unwrap()
            };
            let stores = [Algorithm::SlidingLog, Algorithm::TokenBucket].map(store);
            let mut charges = Vec::new();
            let (mut most, waiting) = (0, if is_burst { 0 } else { WAITING });
            // Either all tokens at one time, or the same number in each of four periods.
            let count = if is_burst { limit } else { 4 * limit };
            for n in 0..count {
                let step = if is_burst { 0 } else { 1_000_000_000_u64.div_ceil(limit) };
                let now = Tick::from_nanos(n * step);
                for key in 0..KEYS {
                    for store in &stores {
                        charges.push((store, key, store.at(now).check(&key)));
                    }
                }
                // All charges of a period are refunded at its end.
                if (n + 1) % limit == 0 {
                    let charges = std::mem::take(&mut charges).into_iter();
                    charges.filter(|_| has_refunds).for_each(|(store, key, charge)| {
                        store.at(now).refund(&key, &charge);
                    });
                }
                if n % limit.div_ceil(50) == 0 || n + 1 == count {
                    let [logs, buckets] = stores.each_ref().map(|store| store.stats().bytes);
                    most = most.max((logs - buckets) as u64);
                }
            }
            let formula = KEYS * most_of_log(limit, has_refunds);
            println!("limit {limit}, burst {is_burst}, refunds {has_refunds}: {most} bytes of {formula}");
            assert!(most <= formula + waiting, "limit {limit}: {most} bytes, the formula says {formula}");
        }
    }
}
