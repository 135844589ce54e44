//! Turnovers of the table: growth, eviction, the cap, memory.

use super::store::{Gate, IntoGate};
use std::thread;
use std::time::Duration;
use tollgate::{DecisionSource, Limiter, ManualClock, Quota, Tick, WhenFull};

/// A linear congruential generator (Knuth, MMIX), high bits.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// A flood of fresh keys never restores the burst of a throttled key, and memory is bounded.
#[test]
fn a_flood_leaves_throttled_keys_throttled_and_memory_bounded() {
    let _alone = crate::alone();
    for policy in [WhenFull::Deny, WhenFull::Allow, WhenFull::Share] {
        let clock = ManualClock::new();
        let builder = Limiter::builder(Quota::per_hour(1)).max_keys(1_000).when_full(policy);
        let limiter: Gate<u64> = builder.clock(&clock).gate();
        for key in 0..500 {
            assert!(limiter.check(&key).is_allowed());
        }
        for key in 1_000..11_000 {
            clock.advance(Duration::from_millis(1));
            let _ = limiter.check(&key);
            assert!(limiter.stats().bytes <= (1 << 20) + 1_000, "{}", limiter.stats().bytes);
        }
        assert_eq!(limiter.len(), 1_000);
        for key in 0..500 {
            let again = limiter.check(&key);
            assert!(!again.is_allowed());
            assert_eq!(again.source(), DecisionSource::Key);
        }
    }
}

/// While threads insert, charge and turn the table over, every key is admitted exactly as often as
/// its quota allows. Afterwards all keys are idle and make room for others.
#[test]
fn threads_that_turn_the_table_over_lose_no_charge() {
    let _alone = crate::alone();
    for round in 0..20 {
        let limiter: Gate<u64> = Limiter::builder(Quota::per_hour(3)).max_keys(20_000).gate();
        let now = Tick::from_nanos(1_000_000_000_000);
        let admitted: u64 = thread::scope(|scope| {
            let racers: Vec<_> = (0..4)
                .map(|n| {
                    let limiter = &limiter;
                    scope.spawn(move || {
                        let mut state = round * 10 + n;
                        (0..20_000)
                            .map(|_| limiter.at(now).check(&(random(&mut state) % 2_000)).charged())
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

/// A caller whose time is far ahead delays its own key, but does not take another key's place.
#[test]
fn a_time_far_ahead_does_not_keep_idle_keys_in_the_table() {
    let _alone = crate::alone();
    let builder = Limiter::builder(Quota::per_second(1)).max_keys(100);
    let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
    let year = Duration::from_secs(365 * 24 * 3600);
    let mut refused = 0;
    for key in 0..10_000 {
        let now = Tick::from_nanos(key * 1_000_000_000);
        let now = if key == 100 { now + year } else { now };
        refused += u32::from(limiter.at(now).check(&key).source() == DecisionSource::Policy);
    }
    assert!(refused < 100, "{refused}");
}

/// Keys that keep returning receive lasting places, even if each key is idle between its visits.
#[test]
fn keys_that_are_idle_between_visits_settle() {
    let _alone = crate::alone();
    let limiter: Gate<u64> =
        Limiter::builder(Quota::per_second(10)).max_keys(100_000).clock(ManualClock::new()).gate();
    let mut now = Tick::ZERO;
    let mut turnovers = Vec::new();
    for _round in 0..200 {
        for key in 0..1_000 {
            now = now + Duration::from_millis(5);
            assert!(limiter.at(now).check(&key).is_allowed());
        }
        turnovers.push(limiter.stats().turnovers);
    }
    // Once all these keys have a place, the table stays as it is.
    assert_eq!(turnovers[10], turnovers[199], "{turnovers:?}");
    assert_eq!(limiter.len(), 1_000);
}
