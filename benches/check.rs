//! What one check costs: each algorithm, admitted and denied, one key and many, each clock.
//!
//! The quotas never run out where a request is to be admitted, and are used up where it is to be denied.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use tollgate::{Algorithm, Clock, Limiter, Quota, SingleLimiter, Tick};

/// A limit that a benchmark does not reach: as much as each algorithm's word holds for a day.
fn generous(algorithm: Algorithm) -> Quota {
    match algorithm {
        Algorithm::SlidingWindow => Quota::per_day(8_000_000),
        Algorithm::FixedWindow => Quota::per_day(1 << 40),
        _ => Quota::per_second(1_000_000_000).burst(1 << 60),
    }
}

fn algorithms(criterion: &mut Criterion) {
    for (name, admitted) in [("admitted", true), ("denied", false)] {
        let mut group = criterion.benchmark_group(format!("single, caller's time, {name}"));
        for algorithm in Algorithm::PACKED {
            let quota = if admitted { generous(algorithm) } else { Quota::per_day(1) };
            let gate = SingleLimiter::builder(quota).algorithm(algorithm).build().unwrap();
            let mut nanos = 1;
            let _ = gate.check_at(1, Tick::from_nanos(nanos));
            // Windows are refilled by stepping into a new one at every check.
            let step = if admitted && algorithm.has_windows() { 86_400_000_000_000 } else { 1 };
            group.bench_function(algorithm.to_string(), |bencher| {
                bencher.iter(|| {
                    nanos = (nanos + step) & ((1 << 61) - 1);
                    gate.check_at(black_box(1), Tick::from_nanos(nanos)).allowed()
                });
            });
        }
    }
}

/// A log whose window is full: each admission comes when the oldest leaves, or a nanosecond before.
fn sliding_log(criterion: &mut Criterion) {
    const PERIOD: u64 = 1_000_000_000;
    let mut group = criterion.benchmark_group("single sliding log, caller's time");
    for limit in [10, 100, 1_000, 100_000] {
        for (name, late) in [("admitted", 1), ("denied", 0)] {
            let builder = SingleLimiter::builder(Quota::per_second(limit)).algorithm(Algorithm::SlidingLog);
            let gate = builder.build().unwrap();
            let mut nanos = 0;
            for _ in 0..3 * limit {
                nanos += PERIOD / limit;
                assert!(gate.check_at(1, Tick::from_nanos(nanos)).allowed());
            }
            group.bench_function(format!("{name}, limit {limit}"), |bencher| {
                bencher.iter(|| {
                    nanos += PERIOD / limit * late;
                    gate.check_at(black_box(1), Tick::from_nanos(nanos)).allowed()
                });
            });
        }
    }
}

fn keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keyed token bucket, own clock");
    for (name, count) in [("1 key", 1_u64), ("1,000 keys", 1_000), ("1,000,000 keys", 1_000_000)] {
        for (outcome, quota) in
            [("admitted", generous(Algorithm::TokenBucket)), ("denied", Quota::per_day(1))]
        {
            let limiter: Limiter<u64> = Limiter::builder(quota).max_keys(1_000_000).build().unwrap();
            for key in 0..count {
                let _ = limiter.check(&key);
            }
            let mut key = 0;
            group.bench_function(format!("{name}, {outcome}"), |bencher| {
                bencher.iter(|| {
                    // Visits all keys, far apart from each other.
                    key = (key + 618_033) % count;
                    limiter.check(&key).allowed()
                });
            });
        }
    }
    group.finish();

    let mut group = criterion.benchmark_group("batches of 32, 1,000,000 keys");
    group.throughput(Throughput::Elements(32));
    let limiter: Limiter<u64> = Limiter::builder(generous(Algorithm::TokenBucket)).build().unwrap();
    let mut next = 0_u64;
    let mut batch = || -> Vec<u64> {
        (0..32)
            .map(|_| {
                next = (next + 618_033) % 1_000_000;
                next
            })
            .collect()
    };
    for _ in 0..31_250 {
        limiter.check_many(&batch(), &mut Vec::with_capacity(32));
    }
    group.bench_function("check_many", |bencher| {
        let setup = || (batch(), Vec::with_capacity(32));
        bencher.iter_batched_ref(
            setup,
            |(keys, decisions)| limiter.check_many(keys.iter(), decisions),
            BatchSize::SmallInput,
        );
    });
}

/// Checks while keys have quotas of their own, and what it costs to change one.
fn quotas(criterion: &mut Criterion) {
    const KEYS: u64 = 1_000;
    let builder = || Limiter::<u64>::builder(generous(Algorithm::TokenBucket)).max_keys(1_000_000);
    let own = |key: &u64| key.is_multiple_of(10).then(|| Quota::per_second(1_000_000).burst(1 << 40));
    let own_keys: Vec<u64> = (0..KEYS).filter(|key| own(key).is_some()).collect();
    macro_rules! store {
        ($group:expr, $name:literal, $limiter:expr) => {
            let limiter = $limiter;
            for (name, has_own) in [("none has its own", false), ("a tenth has its own", true)] {
                if has_own {
                    limiter.set_key_quotas(own_keys.iter().map(|key| (key, own(key)))).unwrap();
                }
                let mut key = 0;
                $group.bench_function(format!("{}, {name}", $name), |bencher| {
                    bencher.iter(|| {
                        key = (key + 618_033) % KEYS;
                        limiter.check(&key).allowed()
                    });
                });
            }
        };
    }
    let mut group = criterion.benchmark_group("quotas, 1,000 keys, admitted");
    store!(group, "fingerprints", builder().build().unwrap());
    store!(group, "exact keys", builder().exact_keys().build().unwrap());
    group.finish();

    let mut group = criterion.benchmark_group("a change of the quota of all");
    group.sample_size(20);
    for (name, count) in [("1,000 keys", 1_000_u64), ("1,000,000 keys", 1_000_000)] {
        let limiter = builder().build().unwrap();
        for key in 0..count {
            let _ = limiter.check(&key);
        }
        let mut burst = 1 << 50;
        group.bench_function(format!("fingerprints, {name}"), |bencher| {
            bencher.iter(|| {
                burst += 1;
                limiter.set_quota(Quota::per_second(1_000_000_000).burst(burst)).unwrap();
            });
        });
    }
}

fn clocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("one key, admitted, by clock");
    let clocks = [
        ("monotonic", Clock::monotonic()),
        #[cfg(feature = "tsc")]
        ("tsc", Clock::tsc()),
        ("coarse", Clock::coarse(Duration::from_millis(1)).unwrap()),
    ];
    for (name, clock) in clocks {
        let builder = Limiter::builder(generous(Algorithm::TokenBucket)).clock(clock);
        let limiter: Limiter<str> = builder.build().unwrap();
        group.bench_function(name, |bencher| {
            bencher.iter(|| limiter.check(black_box("198.51.100.7")).allowed());
        });
    }
}

criterion_group!(benches, algorithms, sliding_log, keys, quotas, clocks);
criterion_main!(benches);
