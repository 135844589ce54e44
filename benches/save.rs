//! A save and a load of a million keys. The size of the saved state is printed first.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tollgate::{Limiter, ManualClock, Quota};

const KEYS: u64 = 1_000_000;

fn save_and_load(criterion: &mut Criterion) {
    let builder = || Limiter::<u64>::builder(Quota::per_day(1_000)).clock(ManualClock::new());
    let limiter = builder().build().expect("the quota is enforceable");
    assert!((0..KEYS).all(|key| limiter.check(&key).is_allowed()));
    let mut saved = Vec::new();
    limiter.save(&mut saved).expect("a vector takes all bytes");
    println!("{KEYS} keys: {:.1} MB", saved.len() as f64 / 1e6);

    let mut group = criterion.benchmark_group("state");
    group.throughput(Throughput::Elements(KEYS)).sample_size(10);
    group.bench_function("save", |bencher| {
        let empty = || Vec::with_capacity(saved.len());
        bencher.iter_batched_ref(empty, |to| limiter.save(to).is_ok(), BatchSize::PerIteration);
    });
    group.bench_function("load", |bencher| {
        bencher.iter_with_large_drop(|| builder().load(&saved[..]).expect("the state is whole"));
    });
    group.finish();
}

criterion_group!(benches, save_and_load);
criterion_main!(benches);
