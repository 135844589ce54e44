//! Races between checks of one key in two classes.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Seen, explore};
use tollgate::{Algorithm, ClassLimiter, ClassSettings, Limiter, ManualClock, Quota, Tick};

type Tiers = ClassLimiter<u64>;

fn tiers(algorithm: Algorithm, [free, paid]: [u64; 2]) -> Arc<Tiers> {
    let builder = Limiter::<u64>::builder(Quota::per_hour(free)).clock(ManualClock::new()).max_keys(8);
    let settings = ClassSettings::from(Quota::per_hour(paid)).algorithm(algorithm);
    let builder = builder.algorithm(algorithm).class("paid", settings).default_class("free");
    Arc::new(builder.build().unwrap())
}

/// Checks the key once in each of these classes, and returns how many requests were admitted.
fn asks(limiter: &Tiers, classes: [&str; 2]) -> [u64; 2] {
    classes.map(|class| u64::from(limiter.class(class).unwrap().at(Tick::ZERO).check(&7).is_allowed()))
}

fn left(limiter: &Tiers, classes: [&str; 2]) -> [u64; 2] {
    classes.map(|class| limiter.class(class).unwrap().at(Tick::ZERO).peek(&7).remaining())
}

/// Two threads check a known key in both classes, each thread in its own order.
#[test]
fn checks_in_two_classes_race_and_each_admits_its_quota() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow] {
        let seen = Seen::default();
        let noted = seen.clone();
        explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
            let limiter = tiers(algorithm, [2, 3]);
            assert_eq!(asks(&limiter, ["free", "paid"]), [1, 1]);
            let other = threads.spawn({
                let limiter = Arc::clone(&limiter);
                move || asks(&limiter, ["paid", "free"])
            });
            let [free_here, paid_here] = asks(&limiter, ["free", "paid"]);
            let [paid_there, free_there] = other.join().unwrap();
            assert_eq!(free_here + free_there, 1, "{algorithm}");
            assert_eq!(paid_here + paid_there, 2, "{algorithm}");
            assert_eq!(left(&limiter, ["free", "paid"]), [0, 0], "{algorithm}");
            noted.note(free_here);
        });
        seen.expect(&["0", "1"]);
    }
}

/// A class gets a larger quota while a key is checked in both classes. Only that class admits more.
#[test]
fn a_new_quota_of_a_class_races_checks_in_two_classes() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow] {
        let seen = Seen::default();
        let noted = seen.clone();
        explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
            let limiter = tiers(algorithm, [1, 1]);
            assert_eq!(asks(&limiter, ["free", "paid"]), [1, 1]);
            let other = threads.spawn({
                let limiter = Arc::clone(&limiter);
                move || limiter.class("paid").unwrap().at(Tick::ZERO).set_quota(Quota::per_hour(2)).unwrap()
            });
            let [free_more, paid_more] = asks(&limiter, ["free", "paid"]);
            other.join().unwrap();
            assert_eq!(free_more, 0, "{algorithm}: the quota of another class was raised");
            assert_eq!(left(&limiter, ["free", "paid"]), [0, 1 - paid_more], "{algorithm}");
            noted.note(paid_more);
        });
        seen.expect(&["0", "1"]);
    }
}
