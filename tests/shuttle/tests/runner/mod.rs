//! Runs schedules derived from seeds, so that the schedules of a failure can be repeated.

use loom as shuttle;
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tollgate::toss;

/// The number of schedules derived from one seed, half of them by each of two schedulers. The
/// second scheduler derives the length of the next schedule from each schedule.
const SCHEDULES_A_SEED: u64 = 2 * 5;
/// The number of long preemptions with the scheduler that preempts rarely (PCT).
const DEPTH: usize = 8;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, and not {text:?}")))
}

/// Returns the seed to run again, if there is one.
pub fn repeated() -> Option<u64> {
    number("TOLLGATE_SHUTTLE_SEED")
}

/// Runs schedules of `body`. The index distinguishes tests with the same body, which would
/// otherwise run the same schedules.
pub fn run(what: impl fmt::Display, index: u64, body: impl Fn() + Clone + Send + Sync + 'static) {
    for seed in seeds(index) {
        let body = body.clone();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run_seed(seed, body))) {
            eprintln!("{what}: to see it again, make shuttle SEED={seed}");
            resume_unwind(panic);
        }
    }
}

fn seeds(index: u64) -> Range<u64> {
    let schedules = number("TOLLGATE_SHUTTLE_SCHEDULES").unwrap_or(1_000);
    let seeds = schedules.div_ceil(SCHEDULES_A_SEED);
    let seeds = repeated().map_or(index * seeds..(index + 1) * seeds, |one| one..one + 1);
    assert!(!seeds.is_empty(), "no schedules");
    seeds
}

/// In half of the schedules, links return `Retry` at random, so that walks restart in the middle of
/// races.
fn with_stale_links(body: impl Fn()) {
    match thread_rng().r#gen() {
        Some(coin) => toss(coin, body),
        None => body(),
    }
}

fn run_seed(seed: u64, body: impl Fn() + Clone + Send + Sync + 'static) {
    let body = move || with_stale_links(&body);
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    // The seed is a shorter description.
    config.failure_persistence = FailurePersistence::None;
    // Silences shuttle's warning that atomics are treated as sequentially consistent. The module
    // documentation of `schedules.rs` explains this.
    config.silence_warnings = true;
    let each = SCHEDULES_A_SEED as usize / 2;
    Runner::new(RandomScheduler::new_from_seed(seed, each), config.clone()).run(body.clone());
    Runner::new(PctScheduler::new_from_seed(seed, DEPTH, each), config).run(body);
}
