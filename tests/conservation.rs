//! For a chosen time, four threads charge, reserve, hold permits, charge several limits at once,
//! force charges, refund and change quotas. In the end the answers account for every token, as
//! under random schedules (`tests/shuttle/tests/conservation.rs`).
//!
//! Meanwhile a fifth thread constantly retires chunks of a log, so that eras of reclamation end and
//! walks restart during all other operations.
//!
//! `TOLLGATE_STRESS_SECONDS` is the duration (`make stress` sets 60); the default is a few seconds.
//! `TOLLGATE_STRESS_SEED` is the first seed.

mod accounts;

use accounts::{Account, Built, Dice, EVENTS, Events, Scale, World, add};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::store::{ExactKeys, Fingerprints};
use tollgate::{Algorithm, Chargeable, ManualClock, Quota, SingleLimiter, Tick};
use tollgate_testing::race::{Random, StartLine};

const THREADS: usize = 4;

const SCALE: Scale = Scale {
    threads: THREADS as u64,
    operations: 400,
    keys: 6,
    caps: &[8, 24, 5_000],
    limit: 60,
    cost: 5,
    debt: 40,
    places: 3,
};

/// An upper bound on the bytes of a log whose chunks are freed soon after they are retired.
const LITTLE: usize = 200_000;

impl Dice for Random {
    fn below(&mut self, n: u64) -> u64 {
        Self::below(self, n)
    }
}

/// Returns the number in an environment variable, or `default` if the variable is not set.
fn number<T: FromStr>(name: &str, default: T) -> T {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is a number, and not {text:?}"))
}

/// Runs one world to completion.
fn race<S: Built>(algorithm: Algorithm, seed: u64) -> Events {
    // Consecutive seeds must not lead to similar first numbers.
    let dice = |number: u64| Random((seed << 8 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let world = World::<S>::new(algorithm, SCALE, &mut dice(SCALE.threads));
    let start = StartLine::new(THREADS);
    let mut sum = Account::default();
    thread::scope(|scope| {
        let (world, start) = (&world, &start);
        let threads = (0..SCALE.threads).map(|number| {
            scope.spawn(move || {
                start.lane().wait();
                world.work(number, dice(number))
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().for_each(|thread| sum.add(thread.join().unwrap()));
    });
    world.balance(sum)
}

/// Retires memory until `is_done` is set, and thereby ends an era of reclamation every 32 KiB.
fn end_eras(is_done: &AtomicBool) {
    let quota = Quota::new(8, Duration::from_micros(8));
    let builder = SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog).clock(ManualClock::new());
    let log = builder.build().unwrap();
    let mut now = Tick::ZERO;
    while !is_done.load(Relaxed) {
        now = now + Duration::from_micros(1);
        assert!(log.at(now).check().is_allowed());
    }
    // The chunks were freed, which shows that eras have ended.
    assert!(now.as_nanos() > 10_000_000 && log.bytes() < LITTLE, "{} bytes at {now:?}", log.bytes());
}

/// Runs one world to completion, and prints its seed if it fails.
fn named_race<S: Built>(store: &str, algorithm: Algorithm, seed: u64) -> thread::Result<Events> {
    let raced = catch_unwind(AssertUnwindSafe(|| race::<S>(algorithm, seed)));
    raced.inspect_err(|_| eprintln!("{store}, {algorithm}: TOLLGATE_STRESS_SEED={seed}"))
}

fn every_token_is_where_the_answers_say<S: Built>(store: &str) {
    let time = Duration::from_secs_f64(number("TOLLGATE_STRESS_SECONDS", 3.0));
    let first = number("TOLLGATE_STRESS_SEED", 1);
    let (start, is_done) = (Instant::now(), AtomicBool::new(false));
    let seeds = (first..).take_while(|seed| *seed < first + 3 || start.elapsed() < time);
    let mut worlds = seeds.flat_map(|seed| S::ALGORITHMS.iter().map(move |&algorithm| (algorithm, seed)));
    let events = thread::scope(|scope| {
        scope.spawn(|| end_eras(&is_done));
        let events = worlds.try_fold(Events::new(), |mut sum, (algorithm, seed)| {
            add(&mut sum, named_race::<S>(store, algorithm, seed)?);
            Ok(sum)
        });
        is_done.store(true, Relaxed);
        events
    });
    let events = events.unwrap_or_else(|panic| resume_unwind(panic));
    println!("{store}: {events:?}");
    EVENTS.iter().for_each(|event| assert!(events.contains_key(event), "nothing was {event:?}"));
}

#[test]
fn a_table_keeps_what_it_is_told_while_eras_end() {
    every_token_is_where_the_answers_say::<Fingerprints>("fingerprints");
}

#[test]
fn exact_keys_keep_what_they_are_told_while_eras_end() {
    every_token_is_where_the_answers_say::<ExactKeys<u64>>("exact keys");
}
