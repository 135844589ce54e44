//! The cost of a reservation and its settlement, and of several limits at once, beside a check.
//!
//! One thread, by the default clock. The quotas never run out.

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use tollgate::{Charge, Limiter, Quota, SingleLimiter, check_all};

fn ample() -> Quota {
    Quota::per_second(1_000_000_000).burst(1 << 60)
}

fn reserve(criterion: &mut Criterion) {
    let limiter = Arc::new(Limiter::<u64>::builder(ample()).build().expect("a valid limiter"));
    let mut group = criterion.benchmark_group("a key");
    group.bench_function("check", |bencher| {
        bencher.iter(|| limiter.check(black_box(&7)).is_allowed());
    });
    group.bench_function("reserve and commit", |bencher| {
        bencher.iter(|| limiter.reserve(black_box(&7), 2).map(|held| held.commit(1)));
    });
    group.bench_function("reserve owned and commit", |bencher| {
        bencher.iter(|| limiter.reserve_owned(black_box(7), 2).map(|held| held.commit(1)));
    });
}

fn several(criterion: &mut Criterion) {
    let limit = || SingleLimiter::builder(ample()).build().expect("a valid limiter");
    let (each, all) =
        (Limiter::<u64>::builder(ample()).build().expect("a valid limiter"), [limit(), limit()]);
    let mut group = criterion.benchmark_group("limits");
    group.bench_function("one check of the first", |bencher| {
        bencher.iter(|| each.check(black_box(&7)).is_allowed());
    });
    group.bench_function("check_all of three", |bencher| {
        bencher.iter(|| {
            let key = each.for_key(black_box(&7));
            let mut charges = [Charge::new(&key, 1), Charge::new(&all[0], 1), Charge::new(&all[1], 1)];
            check_all(&mut charges).is_ok()
        });
    });
    let keyed = [(); 3].map(|()| Limiter::<u64>::builder(ample()).build().expect("a valid limiter"));
    group.bench_function("check_all of three limiters of keys", |bencher| {
        bencher.iter(|| {
            let keys = keyed.each_ref().map(|limiter| limiter.for_key(black_box(&7)));
            let mut charges = keys.each_ref().map(|key| Charge::new(key, 1));
            check_all(&mut charges).is_ok()
        });
    });
}

criterion_group!(benches, reserve, several);
criterion_main!(benches);
