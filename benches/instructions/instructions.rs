//! The number of instructions of a check, counted by callgrind through gungraun. It is the same on
//! a busy machine and on an idle one.
//!
//! Each line counts ten thousand checks, so its figure without the last four digits is the count of
//! one check. The benchmark fails if a check takes more than its limit, because a change that costs
//! instructions should be deliberate. The limits hold for x86-64 and rustc 1.95, and leave 3 to 10
//! percent for later versions and for the positions of keys. On other processors, there are no
//! limits.
//!
//! With a baseline, this program is built twice, first with an older checkout in place of the
//! library. Each line may then take at most 1.01 times the older count, and the limits below are
//! ignored. This program therefore uses only the interface of commit 35fc462, which is the oldest
//! possible baseline.

use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use std::hint::black_box;
use std::time::Duration;
use tollgate::{Algorithm, Limiter, ManualClock, Outcome, Quota, SingleLimiter};

const CHECKS: u64 = 10_000;

/// The positions of keys are random. Time stands still in this program, so one key in 2048 does a
/// step of upkeep with each check. With many keys, a few such keys do not matter.
const KEYS: u64 = 512;
/// Each limiter places the same keys differently, so the lines average over good and bad positions.
/// With a single limiter, a line differed by 2 percent from run to run.
const LIMITERS: u64 = 8;

/// Returns a configuration that fails if a check takes more than this many instructions.
fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::with_args(["--cache-sim=no"]);
    callgrind.format([EventKind::Ir]);
    if cfg!(target_arch = "x86_64") {
        callgrind.hard_limits([(EventKind::Ir, instructions * CHECKS)]);
    }
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// Returns a quota that admits this many more checks after a first one.
fn quota(algorithm: Algorithm, more: u64) -> Quota {
    let hour = Duration::from_secs(3_600);
    match algorithm {
        Algorithm::TokenBucket => Quota::new(1, hour).burst(more + 1),
        _ => Quota::new(more + 1, hour),
    }
}

/// Returns the outcome that a line expects of all its checks.
#[inline(always)]
fn outcome(allowed: bool) -> Outcome {
    if allowed { Outcome::Allowed } else { Outcome::Denied }
}

/// Returns a limiter of one resource, which was checked once and admits this many more checks.
fn one(algorithm: Algorithm, more: u64) -> SingleLimiter {
    let builder = SingleLimiter::builder(quota(algorithm, more)).algorithm(algorithm);
    let gate = builder.clock(ManualClock::new()).build().unwrap();
    assert!(gate.check().outcome() == Outcome::Allowed);
    gate
}

type Keyed = (Limiter<u64>, ManualClock);

/// Returns the limiters of [`keyed`] for the checks of a line.
fn several(algorithm: Algorithm, more: u64) -> Vec<Keyed> {
    (0..LIMITERS).map(|_| keyed(algorithm, KEYS, more)).collect()
}

/// Returns a limiter that knows this many keys, and admits this many more checks of each key.
fn keyed(algorithm: Algorithm, keys: u64, more: u64) -> Keyed {
    let clock = ManualClock::new();
    let builder = Limiter::builder(quota(algorithm, more)).algorithm(algorithm).max_keys(100_000);
    let limiter: Limiter<u64> = builder.clock(&clock).build().unwrap();
    assert!((0..keys).all(|key| limiter.check(&key).outcome() == Outcome::Allowed));
    (limiter, clock)
}

// The arguments and results of a function are created and dropped outside of the count.

#[library_benchmark]
#[bench::admitted(args = (one(Algorithm::TokenBucket, CHECKS), true), config = at_most(46))]
#[bench::denied(args = (one(Algorithm::TokenBucket, 0), false), config = at_most(44))]
#[bench::sliding_window(args = (one(Algorithm::SlidingWindow, CHECKS), true), config = at_most(262))]
fn one_resource(gate: SingleLimiter, allowed: bool) -> SingleLimiter {
    assert!((0..CHECKS).all(|_| black_box(&gate).check().outcome() == outcome(allowed)));
    gate
}

#[library_benchmark]
#[bench::admitted(args = (several(Algorithm::TokenBucket, CHECKS), true), config = at_most(123))]
#[bench::denied(args = (several(Algorithm::TokenBucket, 0), false), config = at_most(115))]
#[bench::sliding_window(args = (several(Algorithm::SlidingWindow, CHECKS), true), config = at_most(346))]
fn key(limiters: Vec<Keyed>, allowed: bool) -> Vec<Keyed> {
    for (limiter, _) in &limiters {
        assert!(
            (0..CHECKS / LIMITERS)
                .all(|n| black_box(limiter).check(&(n % KEYS)).outcome() == outcome(allowed))
        );
    }
    limiters
}

// The check is inlined into the caller, which uses only the outcome. In this case no decision is
// written, as long as no other path of the check writes one to memory.
#[library_benchmark]
#[bench::admitted(args = (several(Algorithm::TokenBucket, CHECKS)), config = at_most(109))]
fn key_inlined(limiters: Vec<Keyed>) -> Vec<Keyed> {
    for (limiter, clock) in &limiters {
        let now = clock.now();
        assert!((0..CHECKS / LIMITERS).all(|n| {
            black_box(limiter).at(black_box(now)).check(&(n % KEYS)).outcome() == Outcome::Allowed
        }));
    }
    limiters
}

// The view is created once, as in an event loop, and not for each check.
#[library_benchmark]
#[bench::admitted(args = (several(Algorithm::TokenBucket, CHECKS)), config = at_most(109))]
fn key_at(limiters: Vec<Keyed>) -> Vec<Keyed> {
    for (limiter, clock) in &limiters {
        let gate = limiter.at(clock.now());
        assert!(
            (0..CHECKS / LIMITERS).all(|n| black_box(&gate).check(&(n % KEYS)).outcome() == Outcome::Allowed)
        );
    }
    limiters
}

// Batches of 32.
#[library_benchmark]
#[bench::admitted(args = (several(Algorithm::TokenBucket, CHECKS), (0..KEYS).collect()), config = at_most(136))]
fn key_in_batch(limiters: Vec<Keyed>, keys: Vec<u64>) -> Vec<Keyed> {
    let mut decisions = Vec::with_capacity(32);
    for (limiter, _) in &limiters {
        for batch in keys.chunks(32).cycle().take((CHECKS / LIMITERS / 32) as usize) {
            decisions.clear();
            black_box(limiter).check_many(batch, &mut decisions);
            assert!(decisions.iter().all(|decision| decision.outcome() == Outcome::Allowed));
        }
    }
    limiters
}

// The count includes growth.
#[library_benchmark]
#[bench::admitted(args = (keyed(Algorithm::TokenBucket, CHECKS, 0)), config = at_most(386))]
fn fresh_key(limiter: Keyed) -> Keyed {
    assert!((CHECKS..2 * CHECKS).all(|key| black_box(&limiter.0).check(&key).outcome() == Outcome::Allowed));
    limiter
}

library_benchmark_group!(
    name = check,
    benchmarks = [one_resource, key, key_inlined, key_at, key_in_batch, fresh_key]
);

main!(library_benchmark_groups = check);
