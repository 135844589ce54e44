//! Runs all operations that use `unsafe`, with workloads small enough for Miri (`make miri`):
//! tables that grow and turn over, exact keys, logs, reclamation and permits, with two threads
//! each. Other tests check the answers, but this test also counts each token.

use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tollgate::store::Accepts;
use tollgate::{
    Algorithm, Builder, Charge, Chargeable, InFlight, Limiter, ManualClock, Quota, SingleLimiter, Tick,
    check_all,
};

/// Two requests a minute.
const QUOTA: Quota = Quota::new(2, Duration::from_secs(60));

/// The number of keys for which the threads request more tokens than are available.
const KNOWN: u64 = 4;

fn builder(algorithm: Algorithm) -> Builder<Limiter<u64>> {
    Limiter::builder(QUOTA).algorithm(algorithm).max_keys(150).grace(Duration::ZERO).clock(ManualClock::new())
}

fn at(minutes: u32) -> Tick {
    Tick::ZERO + minutes * Duration::from_secs(60)
}

/// Charges known and new keys from two threads, so that the table grows, turns over and forgets
/// keys. Meanwhile one of the threads changes quotas and clears keys.
fn charge_from_two_threads<S: Accepts<u64> + Sync>(limiter: &Limiter<u64, S>) {
    let charge_known = |now| (0..KNOWN).map(|key| limiter.at(now).check(&key).charged()).sum::<u64>();
    for round in 1..3 {
        let now = at(10 * round);
        let charged = thread::scope(|scope| {
            let threads = [1_000, 2_000].map(|first| {
                scope.spawn(move || {
                    let mut charged = 0;
                    for step in 0..10 {
                        charged += charge_known(now);
                        let new = first * u64::from(round) + 6 * step;
                        let all = (new..new + 6).map(|key| limiter.at(now).check(&key).charged());
                        assert_eq!(all.sum::<u64>(), 6, "an idle key is forgotten for each of them");
                    }
                    charged
                })
            });
            threads.map(|thread| thread.join().unwrap()).iter().sum::<u64>()
        });
        assert_eq!(charged, KNOWN * 2);
    }
    let now = at(40);
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..20 {
                let charge = limiter.at(now).check_n(&key, 2);
                limiter.at(now).refund_n(&key, &charge, 1);
                let _ = limiter.at(now).peek(&key);
            }
        });
        limiter.at(now).set_quota(Quota::new(5, Duration::from_secs(60))).unwrap();
        limiter.set_key_quota(&3, Quota::new(9, Duration::from_secs(60))).unwrap();
        limiter.at(now).clear();
        while limiter.at(now).sweep(64) {}
    });
    limiter.set_key_quota(&3, None).unwrap();
    assert_eq!((0..7).map(|_| limiter.at(at(50)).check(&77).charged()).sum::<u64>(), 5);
    assert!(limiter.len() <= 150 && limiter.stats().bytes > 0);
}

#[test]
fn tables() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow] {
        charge_from_two_threads(&builder(algorithm).build().unwrap());
    }
}

#[test]
fn exact_keys() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingLog] {
        charge_from_two_threads(&builder(algorithm).exact_keys().build().unwrap());
    }
}

#[test]
fn one_log() {
    const LIMIT: u64 = 40;
    let quota = Quota::new(LIMIT, Duration::from_secs(60));
    let builder = SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog).clock(ManualClock::new());
    let limiter = builder.build().unwrap();
    for round in 1..4 {
        let charge = || (0..LIMIT).map(|_| limiter.at(at(2 * round)).check().charged()).sum::<u64>();
        let charged = thread::scope(|scope| {
            let other = scope.spawn(charge);
            charge() + other.join().unwrap()
        });
        assert_eq!(charged, LIMIT);
        limiter.reset();
        assert_eq!(limiter.at(at(2 * round)).check_n(LIMIT).charged(), LIMIT);
    }
}

#[test]
fn guards() {
    let clock = ManualClock::new();
    let limiter: Arc<Limiter<u64>> =
        Arc::new(Limiter::builder(QUOTA).max_debt(3).clock(clock.clone()).build().unwrap());
    let uploads: Arc<InFlight<u64>> = Arc::new(InFlight::builder(2).clock(clock.clone()).build().unwrap());
    let all = SingleLimiter::builder(QUOTA).clock(clock).build().unwrap();

    let mut stream = limiter.reserve_owned(1, 1).unwrap();
    let permit = uploads.acquire_owned(1).unwrap();
    let other = thread::spawn({
        let uploads = Arc::clone(&uploads);
        move || {
            stream.record(1).unwrap();
            assert!(stream.record(2).is_err());
            let settlement = stream.commit(4);
            drop(permit);
            (settlement, uploads.acquire(&1).is_ok())
        }
    });
    let has_place = uploads.acquire(&1).is_ok();
    let (_, has_place_then) = other.join().unwrap();
    assert!(has_place && has_place_then);
    assert_eq!(uploads.in_flight(&1), 0);

    let key = limiter.for_key(&2);
    assert!(check_all(&mut [Charge::new(&all, 1), Charge::new(&key, 1)]).is_ok());
}
