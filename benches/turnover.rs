//! The cost of growth and turnovers: an endless sequence of fresh keys, and checks of known keys
//! while another thread makes the table turn over.
//!
//! The figures are means. `make peers PEERS=latency` measures the slowest checks during a turnover.

mod workload;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use std::cell::LazyCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tollgate::store::Accepts;
use tollgate::{Limiter, ManualClock, Tick};
use workload::keys::{self, Key, Order, Walk};
use workload::known::{self, Build};
use workload::race;

/// A short grace, so that a table may turn over without a pause.
const GRACE: Duration = Duration::from_millis(1);

/// Only fresh keys: first while the table grows, and then while it evicts as many keys as arrive.
fn flood(criterion: &mut Criterion) {
    fn fresh<S: Accepts<u64>>(criterion: &mut Criterion, store: &str, build: Build<u64, S>) {
        const KEYS: u64 = 100_000;
        let builder = || Limiter::builder(known::ample()).max_keys(100_000).clock(ManualClock::new());
        let mut group = criterion.benchmark_group("fresh keys");
        let flood: Vec<u64> = (0..KEYS).map(u64::numbered).collect();
        group.throughput(Throughput::Elements(KEYS));
        group.bench_function(format!("100,000 into an empty limiter, {store}"), |bencher| {
            let bring = |limiter: &mut Limiter<u64, S>| {
                assert!(flood.iter().all(|key| limiter.check(key).is_allowed()));
            };
            bencher.iter_batched_ref(|| build(builder()), bring, BatchSize::PerIteration);
        });

        // A key arrives every 100 ns, and is idle when the next one arrives, so ten thousand keys
        // are within their grace. Before a hundred thousand keys have arrived, the first ones are
        // evicted, so a stream of a million keys can be repeated.
        let stream: Vec<u64> = (0..1_000_000).map(u64::numbered).collect();
        let (mut walk, mut nanos) = (Walk::new(&stream), 0);
        let limiter = build(builder().grace(GRACE));
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("as many as are forgotten, {store}"), |bencher| {
            bencher.iter(|| {
                nanos += 100;
                limiter.at(Tick::from_nanos(nanos)).check(walk.step()).is_allowed()
            });
        });
        assert_eq!(limiter.stats().refused, 0);
    }
    fresh(criterion, "fingerprints", known::fingerprints);
    fresh(criterion, "exact keys", known::exact_keys);
}

/// Checks of known keys while another thread works.
fn known_keys<S: Accepts<u64>>(criterion: &mut Criterion, store: &str, build: Build<u64, S>)
where
    Limiter<u64, S>: Sync,
{
    for (title, count) in [("1,000", 1_000), ("1,000,000", 1_000_000)] {
        let mut group =
            criterion.benchmark_group(format!("{title} known keys, {store}, beside a thread that"));
        let places = 2 * usize::try_from(count).expect("as many keys as memory holds");
        let builder = || Limiter::builder(known::ample()).max_keys(places).grace(GRACE);
        let limiter = LazyCell::new(|| known::knowing(build(builder()), count));
        let stream = LazyCell::new(|| keys::stream::<u64>(Order::Uniform, count));
        let mut walk = None;
        // Each key is idle as soon as it has arrived, and is evicted after the grace.
        let next = AtomicU64::new(count);

        group.bench_function("checks them too", |bencher| {
            let limiter = &*limiter;
            let mut walks = Walk::apart(&stream, 2);
            let check = |walk: &mut Walk<'_, u64>| black_box(limiter.check(walk.step()).is_allowed());
            let mut lanes: Vec<_> = walks.iter_mut().map(|walk| || _ = check(walk)).collect();
            bencher.iter_custom(|iterations| race::together(&mut lanes, iterations));
        });
        let mut disturbed = |name: &str, disturb: &(dyn Fn(&Limiter<u64, S>) + Sync)| {
            let mut turns_over = false;
            group.bench_function(name, |bencher| {
                let limiter = &*limiter;
                if !turns_over {
                    assert_turns_over(limiter, disturb);
                    turns_over = true;
                }
                let walk = walk.get_or_insert_with(|| Walk::new(&stream));
                bencher.iter_custom(|iterations| {
                    let check = || _ = black_box(limiter.check(walk.step()).is_allowed());
                    race::beside(|| disturb(limiter), check, iterations)
                });
            });
        };
        disturbed("sweeps", &|limiter| _ = limiter.sweep(1_024));
        disturbed("brings fresh keys", &|limiter| {
            // ORDERING: Relaxed: the numbers only have to be unique.
            let _ = limiter.check(&u64::numbered(next.fetch_add(1, Relaxed)));
        });
    }
}

/// Checks that the disturbing thread makes the table turn over, sooner or later.
fn assert_turns_over<S: Accepts<u64>>(limiter: &Limiter<u64, S>, disturb: &dyn Fn(&Limiter<u64, S>)) {
    let before = limiter.stats().turnovers;
    let turned_over = (0..10_000_000).any(|_| {
        disturb(limiter);
        limiter.stats().turnovers > before
    });
    assert!(turned_over, "the table stays as it is");
}

fn turnover(criterion: &mut Criterion) {
    known_keys(criterion, "fingerprints", known::fingerprints);
    known_keys(criterion, "exact keys", known::exact_keys);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = flood, turnover
}
criterion_main!(benches);
