//! The cost of each algorithm alone: one resource, at a time that the caller passes, without keys
//! and without a clock.
//!
//! The quotas never run out in benchmarks of admissions, and are used up in benchmarks of denials.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use tollgate::{Algorithm, Chargeable, Quota, SingleLimiter, Tick};

/// A limit that no benchmark reaches: the largest quota per day that the word of each algorithm can
/// hold.
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
            let _ = gate.at(Tick::from_nanos(nanos)).check();
            // Each check steps into a new window, which refills the quota.
            let step = if admitted && algorithm.has_windows() { 86_400_000_000_000 } else { 1 };
            group.bench_function(algorithm.to_string(), |bencher| {
                bencher.iter(|| {
                    nanos = (nanos + step) & ((1 << 61) - 1);
                    gate.at(Tick::from_nanos(nanos)).check_n(black_box(1)).is_allowed()
                });
            });
        }
    }
}

/// A log whose window is full. Each request arrives when the oldest admission leaves the window, or
/// a nanosecond before.
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
                assert!(gate.at(Tick::from_nanos(nanos)).check().is_allowed());
            }
            group.bench_function(format!("{name}, limit {limit}"), |bencher| {
                bencher.iter(|| {
                    nanos += PERIOD / limit * late;
                    gate.at(Tick::from_nanos(nanos)).check_n(black_box(1)).is_allowed()
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = algorithms, sliding_log
}
criterion_main!(benches);
