//! A table that is far too small for its keys, under load from all cores: 64 slots for 10,000 keys.
//!
//! The time is constant while the threads race, and advances between the rounds. Charges of one key
//! at one time commute, so the admissions of each key are known exactly. `TOLLGATE_STRESS_SECONDS`
//! is the duration (`make stress` sets 60).

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{
    Algorithm, Chargeable, DecisionSource, Limiter, ManualClock, Quota, SingleLimiter, Tick, WhenFull,
};

const KEYS: usize = 10_000;
/// Room for 40 keys, in 64 slots of 16 bytes.
const MAX_KEYS: usize = 40;
const CHECKS: usize = 2_000;

/// The decisions that one thread received for a key in one round.
#[derive(Clone, Copy, Default)]
struct Round {
    /// The checks that were answered by the key's own word, and how many of them were admitted.
    asked: u64,
    admitted: u64,
}

/// A linear congruential generator (Knuth, MMIX), high bits.
fn random(state: &mut u64) -> usize {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Half of the checks are for one of 30 keys, so that some keys are always in use. The other half
/// are for any key.
fn check_all(limiter: &Limiter<usize>, now: Tick, state: &mut u64, seen: &mut [Round]) {
    for _ in 0..CHECKS {
        let key = random(state) % if random(state).is_multiple_of(2) { 30 } else { KEYS };
        let decision = limiter.at(now).check(&key);
        match decision.source() {
            DecisionSource::Key => {
                seen[key].asked += 1;
                seen[key].admitted += u64::from(decision.is_allowed());
            }
            _ => assert!(!decision.is_allowed() && decision.charged() == 0),
        }
    }
}

fn stress(algorithm: Algorithm, seed: u64, time: Duration) {
    let quota = Quota::new(2, Duration::from_millis(100));
    let builder = Limiter::builder(quota).algorithm(algorithm).max_keys(MAX_KEYS).when_full(WhenFull::Deny);
    let limiter: Limiter<usize> = builder.grace(Duration::ZERO).clock(ManualClock::new()).build().unwrap();
    let single = || {
        let builder = SingleLimiter::builder(quota).algorithm(algorithm);
        builder.clock(ManualClock::new()).build().unwrap()
    };
    let oracles: Vec<SingleLimiter> = (0..KEYS).map(|_| single()).collect();

    let threads = thread::available_parallelism().map_or(2, usize::from).max(2);
    let (mut admitted, mut rounds) = (0, 0);
    let start = Instant::now();
    while start.elapsed() < time {
        // There are a few hundred rounds, so that starting the threads does not dominate.
        let barrier = Barrier::new(threads);
        let seen: Vec<Vec<Vec<Round>>> = thread::scope(|scope| {
            let racers: Vec<_> = (0..threads as u64)
                .map(|n| {
                    let (limiter, barrier) = (&limiter, &barrier);
                    scope.spawn(move || {
                        let mut state = seed ^ (rounds + n) << 32;
                        (rounds..rounds + 20)
                            .map(|round| {
                                let mut seen = vec![Round::default(); KEYS];
                                barrier.wait();
                                check_all(limiter, at(round), &mut state, &mut seen);
                                seen
                            })
                            .collect()
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        for round in 0..20 {
            for (key, oracle) in oracles.iter().enumerate() {
                let asked: u64 = seen.iter().map(|thread| thread[round][key].asked).sum();
                let admits: u64 = seen.iter().map(|thread| thread[round][key].admitted).sum();
                let now = at(rounds + round as u64);
                let expected = (0..asked).filter(|_| oracle.at(now).check().is_allowed()).count() as u64;
                assert_eq!(admits, expected, "{algorithm}, key {key}, {asked} checks at {now:?}");
                admitted += admits;
            }
        }
        rounds += 20;
        assert!(limiter.len() <= MAX_KEYS);
    }
    let stats = limiter.stats();
    println!("{algorithm}: {rounds} rounds, {admitted} admitted of {KEYS} keys, {stats:?}");
    assert!(stats.evicted > rounds && stats.turnovers > rounds && stats.refused > rounds, "{stats:?}");
}

fn at(round: u64) -> Tick {
    Tick::ZERO + Duration::from_millis(30) * u32::try_from(round).expect("the test is over before")
}

#[test]
fn a_table_of_64_slots_accounts_exactly_for_10_000_keys() {
    let seconds = match std::env::var("TOLLGATE_STRESS_SECONDS") {
        Ok(text) => text.parse().expect("TOLLGATE_STRESS_SECONDS is a number of seconds"),
        Err(_) => 5.0,
    };
    let share = Duration::from_secs_f64(seconds / Algorithm::PACKED.len() as f64);
    for (n, algorithm) in (1..).zip(Algorithm::PACKED) {
        stress(algorithm, n, share);
    }
}
