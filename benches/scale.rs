//! The cost of a check with many keys and two threads: by type of key, order, store and threads.
//!
//! One thread and two threads run the same code, so that their results are comparable. Ten million
//! keys take up to a gigabyte, and some time to insert. All limiters are built when their first
//! benchmark runs, so `cargo bench --bench scale -- '1,000 keys'` does not build the limiters of
//! ten million keys.

mod workload;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use std::cell::LazyCell;
use std::hint::black_box;
use std::net::Ipv6Addr;
use std::thread;
use std::time::Duration;
use tollgate::store::Accepts;
use tollgate::{Algorithm, Chargeable, Limiter, Quota, SingleLimiter, Tick};
use workload::keys::{self, Key, Order, Walk};
use workload::known::{self, Build};
use workload::race;

const THREADS: [(usize, &str); 2] = [(1, "1 thread"), (2, "2 threads")];

/// Checks of `count` known keys of one type in one store.
fn checks<K: Key, S: Accepts<K>>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    store: &str,
    count: u64,
    build: Build<K, S>,
) where
    Limiter<K, S>: Sync,
{
    let limiter = LazyCell::new(|| {
        let places = usize::try_from(count).expect("as many keys as memory holds");
        known::knowing(build(Limiter::builder(known::ample()).max_keys(places)), count)
    });
    for order in [Order::Uniform, Order::Zipf] {
        let stream = LazyCell::new(|| keys::stream::<K>(order, count));
        for (threads, title) in THREADS {
            let mut walks = None;
            group.bench_function(format!("{}, {store}, {order}, {title}", K::NAME), |bencher| {
                let limiter = &*limiter;
                let walks = walks.get_or_insert_with(|| Walk::apart(&stream, threads));
                let check = |walk: &mut Walk<'_, K>| black_box(limiter.check(walk.step()).is_allowed());
                let mut lanes: Vec<_> = walks.iter_mut().map(|walk| || _ = check(walk)).collect();
                bencher.iter_custom(|iterations| race::together(&mut lanes, iterations));
            });
        }
    }
}

fn keys_and_threads(criterion: &mut Criterion) {
    for (title, count) in [("1,000 keys", 1_000), ("1,000,000 keys", 1_000_000)] {
        let mut group = criterion.benchmark_group(title);
        checks::<u64, _>(&mut group, "fingerprints", count, known::fingerprints);
        checks::<String, _>(&mut group, "fingerprints", count, known::fingerprints);
        checks::<Ipv6Addr, _>(&mut group, "fingerprints", count, known::fingerprints);
        checks::<u64, _>(&mut group, "exact keys", count, known::exact_keys);
        checks::<String, _>(&mut group, "exact keys", count, known::exact_keys);
        checks::<Ipv6Addr, _>(&mut group, "exact keys", count, known::exact_keys);
    }
    let mut group = criterion.benchmark_group("10,000,000 keys");
    checks::<u64, _>(&mut group, "fingerprints", 10_000_000, known::fingerprints);
    checks::<String, _>(&mut group, "fingerprints", 10_000_000, known::fingerprints);
    checks::<Ipv6Addr, _>(&mut group, "fingerprints", 10_000_000, known::fingerprints);
}

/// All threads check one key.
fn hot_key(criterion: &mut Criterion) {
    fn hot<S: Accepts<u64>>(criterion: &mut Criterion, store: &str, build: Build<u64, S>)
    where
        Limiter<u64, S>: Sync,
    {
        let mut group = criterion.benchmark_group("hot key");
        for (outcome, quota) in [("admitted", known::ample()), ("denied", known::used_up())] {
            let limiter = known::knowing(build(Limiter::builder(quota)), 1);
            let key = u64::numbered(0);
            for (threads, title) in THREADS {
                let check = || _ = black_box(limiter.check(&key).is_allowed());
                group.bench_function(format!("{outcome}, {store}, {title}"), |bencher| {
                    bencher.iter_custom(|iterations| race::together(&mut vec![check; threads], iterations));
                });
            }
        }
    }
    hot(criterion, "fingerprints", known::fingerprints);
    hot(criterion, "exact keys", known::exact_keys);
}

/// One thread checks a hot key, while another thread uses an unrelated limiter.
///
/// All limiters of a process share one scheme to free memory. A sliding log retires a chunk every
/// few admissions, so it is the limiter that could disturb others most.
fn beside_another_limiter(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hot key, beside");
    let hot = known::knowing(known::fingerprints::<u64>(Limiter::builder(known::ample())), 1);
    let table = known::fingerprints::<u64>(Limiter::builder(known::ample()));
    let log = |tokens| {
        let quota = Quota::new(tokens, Duration::from_nanos(tokens));
        SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog).build().expect("a valid limiter")
    };
    let (short, long) = (log(8), log(1_000));
    let others: [(&str, &(dyn Fn(u64) + Sync)); 5] = [
        ("a sleeping thread", &|_| thread::sleep(Duration::from_millis(1))),
        ("a spinning thread", &|turn| _ = black_box(turn)),
        ("a table of 64 keys", &|turn| _ = black_box(table.check(&(turn % 64)))),
        ("a sliding log of 8", &|turn| _ = black_box(short.at(Tick::from_nanos(turn)).check())),
        ("a sliding log of 1,000", &|turn| _ = black_box(long.at(Tick::from_nanos(turn)).check())),
    ];
    for (name, other) in others {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                // The counter is moved to the other thread, because on the stack of this thread,
                // its writes would be next to values that the check reads.
                let mut turns = 0..;
                let other = move || turns.next().into_iter().for_each(other);
                race::beside(other, || _ = black_box(hot.check(&0)), iterations)
            });
        });
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = hot_key, beside_another_limiter, keys_and_threads
}
criterion_main!(benches);
