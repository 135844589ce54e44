//! The cost of checking a key on one thread: by outcome, by method, by clock, and with the quotas
//! of single keys. `scale.rs` measures many keys of other types and two threads, and `turnover.rs`
//! measures fresh keys.

mod workload;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::cell::LazyCell;
use std::hint::black_box;
use std::time::Duration;
use tollgate::store::Accepts;
use tollgate::{Clock, Decision, Limiter, Quota};
use workload::keys::{self, Key, Order, Walk};
use workload::known::{self, Build};

const BATCH: usize = 32;

/// A known key is admitted and denied, and unknown keys are denied without being inserted.
fn outcomes(criterion: &mut Criterion) {
    fn all<S: Accepts<u64>>(criterion: &mut Criterion, store: &str, build: Build<u64, S>) {
        for (title, count) in [("1 key", 1), ("1,000 keys", 1_000), ("1,000,000 keys", 1_000_000)] {
            let mut group = criterion.benchmark_group(format!("{title}, {store}"));
            let places = usize::try_from(count).expect("as many keys as memory holds");
            let limiter = |quota, places| {
                LazyCell::new(move || known::knowing(build(Limiter::builder(quota).max_keys(places)), count))
            };
            let known = LazyCell::new(|| keys::stream::<u64>(Order::Uniform, count));
            let unknown = LazyCell::new(|| keys::strangers::<u64>(count));

            for (outcome, quota, admitted) in
                [("admitted", known::ample(), true), ("denied", known::used_up(), false)]
            {
                let (limiter, mut walk) = (limiter(quota, places), None);
                group.bench_function(outcome, |bencher| {
                    let limiter = &*limiter;
                    let walk = walk.get_or_insert_with(|| Walk::new(&known));
                    assert_eq!(limiter.check(walk.step()).is_allowed(), admitted);
                    bencher.iter(|| limiter.check(walk.step()).is_allowed());
                });
            }
            let (roomy, mut walk) = (limiter(known::ample(), 2 * places), None);
            group.bench_function("a peek at an unknown key", |bencher| {
                let limiter = &*roomy;
                let walk = walk.get_or_insert_with(|| Walk::new(&unknown));
                bencher.iter(|| limiter.peek(walk.step()).is_allowed());
            });
            let (full, mut walk) = (limiter(known::ample(), places), None);
            group.bench_function("an unknown key, denied as there is no place", |bencher| {
                let limiter = &*full;
                let walk = walk.get_or_insert_with(|| Walk::new(&unknown));
                assert!(!limiter.check(walk.step()).is_allowed());
                bencher.iter(|| limiter.check(walk.step()).is_allowed());
            });
        }
    }
    all(criterion, "fingerprints", known::fingerprints);
    all(criterion, "exact keys", known::exact_keys);
}

/// Checks keys one by one, at times that the caller passes, and in batches. All figures are per
/// key.
fn ways(criterion: &mut Criterion) {
    fn all<S: Accepts<u64>>(
        criterion: &mut Criterion,
        title: &str,
        count: u64,
        store: &str,
        build: Build<u64, S>,
    ) {
        let mut group = criterion.benchmark_group(format!("ways to check {title}, {store}"));
        let places = usize::try_from(count).expect("as many keys as memory holds");
        let builder = Limiter::builder(known::ample()).max_keys(places);
        let limiter = LazyCell::new(|| known::knowing(build(builder), count));
        let known = LazyCell::new(|| keys::stream::<u64>(Order::Uniform, count));
        let mut walk = None;
        group.bench_function("check", |bencher| {
            let limiter = &*limiter;
            let walk = walk.get_or_insert_with(|| Walk::new(&known));
            bencher.iter(|| limiter.check(walk.step()).is_allowed());
        });
        let mut walk = None;
        group.bench_function("check, a time for each", |bencher| {
            let limiter = &*limiter;
            let walk = walk.get_or_insert_with(|| Walk::new(&known));
            bencher.iter(|| limiter.at(limiter.clock().now()).check(walk.step()).is_allowed());
        });
        let mut walk = None;
        group.bench_function("check, one time for all", |bencher| {
            let gate = limiter.at(limiter.clock().now());
            let walk = walk.get_or_insert_with(|| Walk::new(&known));
            bencher.iter(|| gate.check(walk.step()).is_allowed());
        });
        let (mut walk, mut decisions) = (None, Vec::<Decision>::with_capacity(BATCH));
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function("check_many, 32 at a time", |bencher| {
            let limiter = &*limiter;
            let walk = walk.get_or_insert_with(|| Walk::new(&known));
            bencher.iter(|| {
                decisions.clear();
                limiter.check_many(walk.steps::<BATCH>(), &mut decisions);
                black_box(&decisions);
            });
        });
    }
    for (title, count) in [("1,000 keys", 1_000), ("1,000,000 keys", 1_000_000)] {
        all(criterion, title, count, "fingerprints", known::fingerprints);
        all(criterion, title, count, "exact keys", known::exact_keys);
    }
    all(criterion, "10,000,000 keys", 10_000_000, "fingerprints", known::fingerprints);
}

/// Checks while some keys have their own quotas, and changes of the quota of one key.
fn quotas(criterion: &mut Criterion) {
    fn own<S: Accepts<u64>>(criterion: &mut Criterion, store: &str, build: Build<u64, S>) {
        const KEYS: u64 = 1_000;
        let mut group = criterion.benchmark_group("quotas, 1,000 keys, admitted");
        let limiter = known::knowing(build(Limiter::builder(known::ample())), KEYS);
        let stream = keys::stream::<u64>(Order::Uniform, KEYS);
        for (name, has_own) in [("none has its own", false), ("a tenth has its own", true)] {
            if has_own {
                let quota = Some(Quota::per_second(1_000_000).burst(1 << 44));
                let tenth: Vec<u64> = (0..KEYS / 10).map(u64::numbered).collect();
                limiter.set_key_quotas(tenth.iter().map(|key| (key, quota))).expect("valid quotas");
            }
            assert!(stream.iter().all(|key| limiter.check(key).is_allowed()));
            let mut walk = Walk::new(&stream);
            group.bench_function(format!("{store}, {name}"), |bencher| {
                bencher.iter(|| limiter.check(walk.step()).is_allowed());
            });
        }
    }
    own(criterion, "fingerprints", known::fingerprints);
    own(criterion, "exact keys", known::exact_keys);

    let mut group = criterion.benchmark_group("a change of the quota of all");
    group.sample_size(20);
    for (name, count) in [("1,000 keys", 1_000_u64), ("1,000,000 keys", 1_000_000)] {
        let places = usize::try_from(count).expect("as many keys as memory holds");
        let builder = Limiter::<u64>::builder(known::ample()).max_keys(places);
        let limiter = LazyCell::new(|| known::knowing(known::fingerprints(builder), count));
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
        ("counter", Clock::counter()),
        ("system", Clock::system()),
        ("coarse", Clock::coarse(Duration::from_millis(10))),
    ];
    for (name, clock) in clocks {
        let builder = Limiter::builder(known::ample()).clock(clock);
        let limiter: Limiter<str> = builder.build().unwrap();
        group.bench_function(name, |bencher| {
            bencher.iter(|| limiter.check(black_box("198.51.100.7")).is_allowed());
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = outcomes, ways, quotas, clocks
}
criterion_main!(benches);
