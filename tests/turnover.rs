//! The table as it turns over: growth, eviction, the cap, memory.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;
use tollgate::{Algorithm, Clock, Full, Limiter, Quota, SingleLimiter, Source, Tick};

/// A linear congruential generator (Knuth, MMIX), high bits.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Far more keys come than there is room for, but those that are not idle always fit. The table turns
/// over all the time, and every decision is that of a map that never forgets.
#[test]
fn eviction_never_changes_a_decision() {
    for algorithm in Algorithm::PACKED {
        for max_keys in [250, 1_000] {
            // Idle after a fifth of a second at the most.
            let quota = Quota::new(2, Duration::from_millis(100));
            let builder = Limiter::builder(quota).algorithm(algorithm).clock(Clock::manual());
            let limiter: Limiter<u64> = builder.max_keys(max_keys).grace(Duration::ZERO).build().unwrap();
            let mut map: HashMap<u64, SingleLimiter> = HashMap::new();
            let mut state = 7;
            for step in 0..60_000 {
                let tick = Tick::from_nanos(step * 1_000_000);
                // Some keys come often, most come once in a while.
                let key = match random(&mut state) % 3 {
                    0 => random(&mut state) % 20,
                    _ => random(&mut state) % 5_000,
                };
                let single = map.entry(key).or_insert_with(|| {
                    let builder = SingleLimiter::builder(quota).algorithm(algorithm);
                    builder.clock(Clock::manual()).build().unwrap()
                });
                let expected = single.check_at(1, tick);
                assert_eq!(limiter.check_at(&key, 1, tick), expected, "{algorithm} step {step}");
            }
            assert!(limiter.len() <= max_keys);
            assert!(map.len() > 4 * limiter.len());
        }
    }
}

/// A flood of fresh keys never gives a throttled key its burst back, and memory has a bound.
#[test]
fn a_flood_leaves_throttled_keys_throttled_and_memory_bounded() {
    for policy in [Full::Deny, Full::Admit, Full::Share] {
        let clock = Clock::manual();
        let builder = Limiter::builder(Quota::per_hour(1)).max_keys(1_000).full(policy);
        let limiter: Limiter<u64> = builder.clock(&clock).build().unwrap();
        for key in 0..500 {
            assert!(limiter.check(&key).allowed());
        }
        for key in 1_000..11_000 {
            clock.advance(Duration::from_millis(1));
            let _ = limiter.check(&key);
            assert!(limiter.memory() <= (1 << 20) + 1_000, "{}", limiter.memory());
        }
        assert_eq!(limiter.len(), 1_000);
        for key in 0..500 {
            let again = limiter.check(&key);
            assert!(!again.allowed());
            assert_eq!(again.source(), Source::Key);
        }
    }
}

/// Every key is admitted exactly as often as its quota says, while threads insert, charge and turn the
/// table over; then all are idle and make room for others.
#[test]
fn threads_that_turn_the_table_over_lose_no_charge() {
    for round in 0..20 {
        let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(3)).max_keys(20_000).build().unwrap();
        let now = Tick::from_nanos(1_000_000_000_000);
        let admitted: u64 = thread::scope(|scope| {
            let racers: Vec<_> = (0..4)
                .map(|n| {
                    let limiter = &limiter;
                    scope.spawn(move || {
                        let mut state = round * 10 + n;
                        (0..20_000)
                            .map(|_| limiter.check_at(&(random(&mut state) % 2_000), 1, now).charged())
                            .sum::<u64>()
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum()
        });
        assert_eq!(admitted, 6_000);
        assert_eq!(limiter.len(), 2_000);
    }
}

/// One caller whose time is far ahead delays its own key and nobody's place in the table.
#[test]
fn a_time_far_ahead_does_not_keep_idle_keys_in_the_table() {
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(100);
    let limiter: Limiter<u64> = builder.clock(Clock::manual()).build().unwrap();
    let year = Duration::from_secs(365 * 24 * 3600);
    let mut refused = 0;
    for key in 0..10_000 {
        let now = Tick::from_nanos(key * 1_000_000_000);
        let now = if key == 100 { now + year } else { now };
        refused += u32::from(limiter.check_at(&key, 1, now).source() == Source::Policy);
    }
    assert!(refused < 100, "{refused}");
}

/// Keys that come back all the time settle, also if each is idle between its visits.
#[test]
fn keys_that_are_idle_between_visits_settle() {
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_second(10)).max_keys(100_000).clock(Clock::manual()).build().unwrap();
    let mut now = Tick::ZERO;
    let mut memory = Vec::new();
    for _round in 0..200 {
        for key in 0..1_000 {
            now = now + Duration::from_millis(5);
            assert!(limiter.check_at(&key, 1, now).allowed());
        }
        memory.push(limiter.memory());
    }
    // Once they all have a place, nothing is allocated any more. (What was retired may be freed late.)
    assert!(memory[50..].is_sorted_by(|earlier, later| earlier >= later), "{memory:?}");
}
