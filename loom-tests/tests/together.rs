//! Races of requests that several limits must allow.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, explore};
use tollgate::{Algorithm, Charge, Clock, Quota, SingleLimiter, check_all};

fn limits(algorithm: Algorithm, sizes: [u64; 2]) -> Arc<[SingleLimiter; 2]> {
    let limit = |size| {
        let builder = SingleLimiter::builder(Quota::per_hour(size)).algorithm(algorithm);
        builder.clock(Clock::manual()).build().unwrap()
    };
    Arc::new(sizes.map(limit))
}

/// One request of one token from each limit, in this order or the other.
fn asks(limits: &[SingleLimiter; 2], forward: bool) -> u64 {
    let [one, two] = limits;
    let mut parts = [Charge::new(one, 1), Charge::new(two, 1)];
    if !forward {
        parts.reverse();
    }
    u64::from(check_all(&mut parts).is_ok())
}

fn left(limits: &[SingleLimiter; 2]) -> [u64; 2] {
    limits.each_ref().map(|limit| limit.peek().remaining())
}

/// Two requests that go in opposite directions, where one of the limits has room for one.
fn charges_of_two_limits_race(bound: Bound, atomics: Atomics) {
    for algorithm in Algorithm::PACKED {
        for sizes in [[1, 1], [1, 2]] {
            explore(bound, atomics, move |threads| {
                let limits = limits(algorithm, sizes);
                let other = threads.spawn({
                    let limits = Arc::clone(&limits);
                    move || asks(&limits, false)
                });
                let admitted = asks(&limits, true) + other.join().unwrap();
                // Both requests may be refused, each because of tokens that the other will give
                // back. Both may not be allowed.
                assert!(admitted <= 1, "{algorithm}: {admitted} by {sizes:?}");
                assert_eq!(
                    left(&limits),
                    sizes.map(|size| size - admitted),
                    "{algorithm}: what is not used is back"
                );
            });
        }
    }
}

#[test]
fn charges_of_two_limits_race_and_none_admits_beyond_either() {
    charges_of_two_limits_race(Bound::Exhaustive, Atomics::Plain);
    charges_of_two_limits_race(Bound::Preemptions(3), Atomics::Touched);
}

/// A request of both limits, and one of the second alone.
#[test]
fn a_charge_of_two_limits_races_a_charge_of_one() {
    for algorithm in Algorithm::PACKED {
        explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
            let limits = limits(algorithm, [2, 1]);
            let other = threads.spawn({
                let limits = Arc::clone(&limits);
                move || u64::from(limits[1].check().is_allowed())
            });
            let both = asks(&limits, true);
            let alone = other.join().unwrap();
            // The thread that charges the second limit first gets its token. The first limit is
            // charged before, and never refuses.
            assert_eq!(both + alone, 1, "{algorithm}");
            assert_eq!(left(&limits), [2 - both, 0], "{algorithm}");
        });
    }
}
