//! Under random schedules, a thread charges its keys and saves the limiter, while two others insert
//! keys, sweep and change quotas, so that tables turn over all the time. The keys that only the
//! saving thread charges are in each file, with every token. `tests/schedules.rs` describes what
//! shuttle can show.

mod runner;

use loom as shuttle;
use shuttle::rand::{Rng, thread_rng};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tollgate::{Algorithm, Builder, Limiter, ManualClock, Quota, Tick};

const NOW: Tick = Tick::from_nanos(5_000_000_000);
const LIMIT: u64 = 60;
/// The keys of the saving thread, among the keys of the others.
const OWN: [u64; 3] = [1, 70, 141];
/// A key that is given its own quota, and loses it.
const FICKLE: u64 = 4;

fn one_of(count: u64) -> u64 {
    thread_rng().gen_range(0..count)
}

fn builder(algorithm: Algorithm) -> Builder<Limiter<u64>> {
    let builder = Limiter::builder(Quota::per_minute(LIMIT)).algorithm(algorithm).clock(ManualClock::new());
    builder.grace(Duration::from_nanos(1))
}

fn disturb(limiter: &Limiter<u64>, thread: u64) {
    for _ in 0..40 {
        match one_of(10) {
            0 => _ = limiter.at(NOW).sweep(8),
            1 => {
                let quota = (one_of(2) == 0).then(|| Quota::per_minute(1 + one_of(9)));
                limiter.at(NOW).set_key_quotas([(&FICKLE, quota)]).unwrap();
            }
            // Keys that are idle are evicted.
            2 => _ = limiter.at(Tick::ZERO).check(&(1_000 * thread + one_of(90))),
            _ => _ = limiter.at(NOW).check(&(200 * thread + one_of(90))),
        }
    }
}

/// One execution. Returns how many turnovers it saw.
fn schedule(algorithm: Algorithm) -> u64 {
    let limiter = Arc::new(builder(algorithm).build().unwrap());
    let others = [2, 3].map(|thread| {
        let limiter = Arc::clone(&limiter);
        shuttle::thread::spawn(move || disturb(&limiter, thread))
    });
    for round in 1..=4 {
        for key in &OWN {
            assert!(limiter.at(NOW).check(key).is_allowed());
        }
        let mut file = Vec::new();
        limiter.at(NOW).save(&mut file).unwrap();
        let loaded = builder(algorithm).load(&file[..]).unwrap();
        for key in OWN {
            assert_eq!(loaded.at(NOW).peek(&key).remaining(), LIMIT - round, "key {key} in round {round}");
        }
    }
    others.into_iter().for_each(|other| other.join().unwrap());
    limiter.stats().turnovers
}

#[test]
fn a_save_at_random_schedules_has_every_token_that_was_charged_before() {
    for (index, &algorithm) in (0..).zip(&Algorithm::PACKED) {
        let turnovers = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&turnovers);
        runner::run(format_args!("{algorithm}"), index, move || {
            counted.fetch_add(schedule(algorithm), Relaxed);
        });
        assert!(turnovers.load(Relaxed) > 0, "no table was turned over");
    }
}
