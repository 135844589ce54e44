//! Eviction never changes a decision.

use super::store::{ALGORITHMS, Gate, IntoGate};
use std::collections::HashMap;
use std::time::Duration;
use tollgate::{Chargeable, Limiter, ManualClock, Quota, SingleLimiter, Tick};

/// A linear congruential generator (Knuth, MMIX), high bits.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Far more keys arrive than there is room for, but there is always room for the keys that are not
/// idle. The table turns over when it is full or, with sweeps, before each check. Every decision
/// equals the decision of a map that never forgets.
#[test]
fn eviction_never_changes_a_decision() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        for (max_keys, sweeps) in [(250, false), (1_000, false), (1_000, true)] {
            // Keys are idle after a fifth of a second at most.
            let quota = Quota::new(2, Duration::from_millis(100));
            let builder = Limiter::builder(quota).algorithm(algorithm).clock(ManualClock::new());
            let limiter: Gate<u64> = builder.max_keys(max_keys).grace(Duration::ZERO).gate();
            let mut map: HashMap<u64, SingleLimiter> = HashMap::new();
            let mut state = 7;
            for step in 0..60_000 {
                let tick = Tick::from_nanos(step * 1_000_000);
                // Some keys arrive often, most keys rarely.
                let key = match random(&mut state) % 3 {
                    0 => random(&mut state) % 20,
                    _ => random(&mut state) % 5_000,
                };
                let single = map.entry(key).or_insert_with(|| {
                    let builder = SingleLimiter::builder(quota).algorithm(algorithm);
                    builder.clock(ManualClock::new()).build().unwrap()
                });
                let expected = single.at(tick).check();
                if sweeps {
                    // The sweep does either a part of a turnover or all of it.
                    let budget = usize::try_from(random(&mut state) % 1_000).unwrap();
                    limiter.at(tick).sweep(budget);
                }
                assert_eq!(limiter.at(tick).check(&key), expected, "{algorithm} step {step}");
            }
            assert!(limiter.len() <= max_keys);
            assert!(map.len() > 4 * limiter.len());
            assert!(limiter.stats().turnovers > if sweeps { 20_000 } else { 20 }, "{:?}", limiter.stats());
        }
    }
}
