//! Upkeep of a limiter: statistics, sweeping, clearing, the sweeper, the pinned handle.

use super::store::{ALGORITHMS, Gate, IntoGate};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Algorithm, DecisionSource, Limiter, ManualClock, Quota, Sweeper, Tick, WhenFull};

const SECOND: Duration = Duration::from_secs(1);

/// Returns a limiter of `algorithm`, ten seconds after its start, and its clock.
fn limiter(algorithm: Algorithm, quota: Quota) -> (Gate<u64>, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(10 * SECOND);
    let builder = Limiter::builder(quota).algorithm(algorithm).max_keys(100_000).clock(&clock);
    (builder.gate(), clock)
}

#[test]
fn a_sweep_forgets_idle_keys_and_no_others() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        let (limiter, clock) = limiter(algorithm, Quota::per_second(2));
        for key in 0..3_000 {
            assert!(limiter.check(&key).is_allowed());
        }
        clock.advance(5 * SECOND);
        for key in 0..100 {
            assert!(limiter.check_n(&key, 2).is_allowed());
        }
        // A turnover has moved keys before they were idle, and is not complete. The next turnover
        // forgets these keys.
        while limiter.sweep(1_000) {}
        while limiter.sweep(1_000) {}
        assert_eq!(limiter.len(), 100, "{algorithm}");
        // Some of the hundred keys may have been forgotten before they returned.
        assert!((2_900..3_000).contains(&limiter.stats().evicted), "{algorithm}");
        for key in 0..100 {
            assert_eq!(limiter.check(&key).source(), DecisionSource::Key);
            assert!(!limiter.check(&key).is_allowed(), "{algorithm}");
        }
    }
}

#[test]
fn a_sweep_keeps_to_its_budget() {
    let _alone = crate::alone();
    let (limiter, clock) = limiter(Algorithm::TokenBucket, Quota::per_second(1));
    for key in 0..10_000 {
        assert!(limiter.check(&key).is_allowed());
    }
    clock.advance(5 * SECOND);
    assert!(!limiter.sweep(0));
    assert_eq!(limiter.stats().evicted, 0);
    let mut before = 0;
    while limiter.sweep(160) {
        let evicted = limiter.stats().evicted;
        assert!(evicted - before <= 160, "{evicted} after {before}");
        before = evicted;
    }
    assert!(before > 9_000);
    assert!(limiter.is_empty());
}

/// A sweep right after a sweep has nothing to do.
#[test]
fn sweeps_in_a_row_turn_the_table_over_once() {
    let _alone = crate::alone();
    let (limiter, clock) = limiter(Algorithm::TokenBucket, Quota::per_second(1));
    assert!(limiter.check(&1).is_allowed());
    clock.advance(5 * SECOND);
    let before = limiter.stats().turnovers;
    for _ in 0..10 {
        while limiter.sweep(usize::MAX) {}
        assert!(limiter.check(&2).source() == DecisionSource::Key);
    }
    assert_eq!(limiter.stats().turnovers, before + 1);
}

#[test]
fn sweeps_give_a_floods_memory_back() {
    let _alone = crate::alone();
    let (limiter, clock) = limiter(Algorithm::TokenBucket, Quota::per_second(1));
    let small = limiter.stats().room;
    for key in 0..100_000 {
        assert!(limiter.check(&key).is_allowed());
    }
    assert_eq!(limiter.stats().room, 100_000);
    // A few sweeps suffice, unless other tests of this process keep retired memory from being
    // freed.
    let start = Instant::now();
    while limiter.stats().room != small {
        assert!(start.elapsed() < 60 * SECOND, "{:?}", limiter.stats());
        clock.advance(5 * SECOND);
        while limiter.sweep(4_096) {}
    }
    clock.advance(5 * SECOND);
    let turnovers = limiter.stats().turnovers;
    assert!(!limiter.sweep(4_096), "there is nothing left to do");
    assert_eq!(limiter.stats().turnovers, turnovers);
}

/// After a flood, only ten known keys are charged.
#[test]
fn a_table_shrinks_without_new_keys_without_sweeps_and_without_a_thread() {
    let _alone = crate::alone();
    let (limiter, clock) = limiter(Algorithm::TokenBucket, Quota::per_second(1_000));
    for key in 0..50_000 {
        assert!(limiter.check(&key).is_allowed());
    }
    let flooded = limiter.stats().room;
    // All keys but ten are forgotten.
    clock.advance(5 * SECOND);
    for key in 0..10 {
        assert!(limiter.check_n(&key, 1_000).is_allowed());
    }
    // The first sweep ends a turnover that the flood may have begun.
    while limiter.sweep(usize::MAX) {}
    while limiter.sweep(usize::MAX) {}
    assert_eq!((limiter.len(), limiter.stats().room), (10, flooded));
    for _ in 0..4_000_000 {
        clock.advance(Duration::from_millis(1));
        for key in 0..10 {
            assert_eq!(limiter.check(&key).source(), DecisionSource::Key);
        }
        if limiter.stats().room < 100 {
            return;
        }
    }
    panic!("it still has the size of the flood: {:?}", limiter.stats());
}

#[test]
fn clearing_makes_every_key_as_good_as_new() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        for keys in [1, 39, 41, 1_000, 5_000, 5_633] {
            let (limiter, clock) = limiter(algorithm, Quota::per_hour(3));
            for key in 0..keys {
                assert!(limiter.check_n(&key, 3).is_allowed());
            }
            limiter.clear();
            for key in 0..keys {
                assert_eq!(limiter.peek(&key).remaining(), 3, "{algorithm}, {keys} keys");
            }
            clock.advance(2 * SECOND);
            limiter.clear();
            assert!(limiter.is_empty(), "{algorithm}, {keys} keys: {:?}", limiter.stats());
        }
    }
}

#[test]
fn clearing_clears_the_shared_state_too() {
    let _alone = crate::alone();
    let builder = Limiter::builder(Quota::per_hour(1)).max_keys(1).when_full(WhenFull::Share);
    let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
    assert!(limiter.check(&1).is_allowed());
    assert!(limiter.check(&2).is_allowed());
    assert!(!limiter.check(&3).is_allowed());
    limiter.clear();
    assert!(limiter.check(&1).is_allowed());
    assert!(limiter.check(&3).is_allowed());
}

/// Each round of clearing allows each key at most one more burst. Afterwards every key has a whole
/// burst.
#[test]
fn clearing_races_charges_and_turnovers() {
    let _alone = crate::alone();
    const KEYS: u64 = 300;
    const CLEARS: u64 = 200;
    let (limiter, _clock) = limiter(Algorithm::TokenBucket, Quota::per_hour(1));
    let charged: u64 = thread::scope(|scope| {
        let racers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let checks = (0..2_000).flat_map(|_| 0..KEYS);
                    checks.map(|key| limiter.check(&key).charged()).sum::<u64>()
                })
            })
            .collect();
        for _ in 0..CLEARS {
            limiter.clear();
        }
        racers.into_iter().map(|racer| racer.join().unwrap()).sum()
    });
    assert!(charged >= KEYS);
    assert!(charged <= KEYS * (CLEARS + 1), "{charged} charged");
    limiter.clear();
    let again: u64 = (0..KEYS).map(|key| limiter.check(&key).charged()).sum();
    assert_eq!(again, KEYS);
}

#[test]
fn statistics_count_what_happened() {
    let _alone = crate::alone();
    let builder = Limiter::builder(Quota::per_hour(1)).max_keys(200).when_full(WhenFull::Allow);
    let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
    let fresh = limiter.stats();
    assert_eq!((fresh.keys, fresh.room, fresh.max_keys), (0, 40, 200));
    assert_eq!((fresh.turnovers, fresh.evicted, fresh.refused), (0, 0, 0));
    assert_eq!(fresh.bytes, limiter.stats().bytes);
    for key in 0..230 {
        assert!(limiter.check(&key).is_allowed());
    }
    // Known keys, admitted or denied, are counted nowhere.
    for key in 0..200 {
        assert!(!limiter.check(&key).is_allowed());
    }
    let full = limiter.stats();
    assert_eq!((full.keys, full.room), (200, 200));
    assert_eq!((full.evicted, full.refused), (0, 30));
    assert!(full.turnovers >= 2);
    let (later, day) = (Tick::ZERO + Duration::from_secs(24 * 3_600), 300..500);
    for key in day {
        assert_eq!(limiter.at(later).check(&key).source(), DecisionSource::Key);
    }
    assert_eq!(limiter.stats().evicted, 200);
    assert_eq!(limiter.stats().refused, 30);
}

#[test]
fn a_view_decides_as_the_limiter_does() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        let quota = Quota::new(2, Duration::from_millis(100));
        let ((viewed, clock), (plain, other)) = (limiter(algorithm, quota), limiter(algorithm, quota));
        for step in 0..20_000_u64 {
            clock.advance(Duration::from_millis(1));
            other.advance(Duration::from_millis(1));
            let key = step * 7 % (1 + step / 10);
            let cost = step % 3;
            let view = viewed.at(clock.now());
            assert_eq!(view.check_n(&key, cost), plain.check_n(&key, cost), "{algorithm} step {step}");
        }
    }
}

#[test]
fn a_view_judges_by_its_time() {
    let _alone = crate::alone();
    let (limiter, clock) = limiter(Algorithm::TokenBucket, Quota::per_second(1));
    clock.advance(7 * SECOND);
    let at = |seconds| limiter.at(Tick::ZERO + seconds * SECOND);
    let view = at(3);
    assert_eq!(view.check_n(&1, 0).at(), Tick::ZERO + 3 * SECOND);
    assert!(view.check(&1).is_allowed() && !view.check(&1).is_allowed());
    assert!(at(4).check(&1).is_allowed() && !at(4).check(&1).is_allowed());
    assert_eq!(limiter.check(&1).at(), clock.now());
    assert_eq!(at(4).check(&1).at(), Tick::ZERO + 4 * SECOND);
}

#[test]
fn a_housekeeper_sweeps_and_ends_when_it_is_dropped() {
    let _alone = crate::alone();
    let (limiter, clock) = limiter(Algorithm::TokenBucket, Quota::per_second(1));
    let limiter = Arc::new(limiter);
    let sweeper = Sweeper::start(Arc::clone(&limiter), Duration::from_millis(1)).unwrap();
    for key in 0..1_000 {
        assert!(limiter.check(&key).is_allowed());
    }
    clock.advance(5 * SECOND);
    let start = Instant::now();
    while !limiter.is_empty() {
        assert!(start.elapsed() < 60 * SECOND, "{:?}", limiter.stats());
        thread::yield_now();
    }
    drop(sweeper);
    assert_eq!(Arc::strong_count(&limiter), 1, "its thread is gone");
}

#[test]
fn a_housekeeper_that_waits_ends_at_once() {
    let _alone = crate::alone();
    let limiter: Arc<Gate<String>> = Arc::new(Limiter::builder(Quota::per_second(1)).gate());
    let start = Instant::now();
    drop(Sweeper::start(limiter, 3_600 * SECOND).unwrap());
    assert!(start.elapsed() < 60 * SECOND);
}

#[test]
fn an_interval_out_of_range_is_refused_with_the_range() {
    let _alone = crate::alone();
    let limiter: Arc<Gate<String>> = Arc::new(Limiter::builder(Quota::per_second(1)).gate());
    for every in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
        let refused = Sweeper::start(Arc::clone(&limiter), every).unwrap_err().to_string();
        assert!(refused.contains("allowed: 1ms to 86400s"), "{refused}");
    }
}
