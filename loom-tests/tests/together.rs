//! Races between requests that several limits must allow.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Seen, explore};
use std::time::Duration;
use tollgate::{Algorithm, Charge, Limiter, ManualClock, Quota, SingleLimiter, Tick, check_all};

fn limits(algorithm: Algorithm, sizes: [u64; 2]) -> Arc<[SingleLimiter; 2]> {
    let limit = |size| {
        let builder = SingleLimiter::builder(Quota::per_hour(size)).algorithm(algorithm);
        builder.clock(ManualClock::new()).build().unwrap()
    };
    Arc::new(sizes.map(limit))
}

/// Requests one token from each limit, in this order or in the reverse order.
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

/// Two requests charge the limits in opposite orders, and one of the limits has room for only one
/// request.
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
                // back. They are never both allowed.
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

/// One request needs both limits, and another needs only the second.
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
            // The first thread that charges the second limit gets its token. The first limit is
            // charged before the second, and never refuses.
            assert_eq!(both + alone, 1, "{algorithm}");
            assert_eq!(left(&limits), [2 - both, 0], "{algorithm}");
        });
    }
}

const NOW: Tick = Tick::from_nanos(5_000_000_000);
/// A time at which keys that were charged at `NOW` are idle.
const LATER: Tick = Tick::from_nanos(9_000_000_000);

/// A limiter whose key 1 was charged one token of two, and a limit of four tokens for all keys.
struct KeyAndAll {
    each: Limiter<u64>,
    all: SingleLimiter,
    clock: ManualClock,
}

impl KeyAndAll {
    fn new(algorithm: Algorithm) -> Arc<Self> {
        let clock = ManualClock::new();
        clock.set(NOW);
        let builder = Limiter::builder(Quota::per_second(2)).algorithm(algorithm).clock(&clock);
        // A turnover at one of these times is not followed by another at the same time.
        let each: Limiter<u64> = builder.max_keys(4).grace(Duration::from_nanos(1)).build().unwrap();
        let all = SingleLimiter::builder(Quota::per_second(4)).algorithm(algorithm).clock(&clock);
        assert!(each.check(&1).is_allowed());
        Arc::new(Self { each, all: all.build().unwrap(), clock })
    }

    /// Requests one token from both limits.
    fn asks(&self) -> u64 {
        let key = self.each.for_key(&1);
        u64::from(check_all(&mut [Charge::new(&key, 1), Charge::new(&self.all, 1)]).is_ok())
    }

    fn left(&self) -> [u64; 2] {
        [self.each.peek(&1).remaining(), self.all.peek().remaining()]
    }
}

/// A thread looks at the key's last token, and another thread charges that token.
fn look_races_charge(bound: Bound, atomics: Atomics) {
    for algorithm in Algorithm::PACKED {
        let seen = Seen::default();
        let note = seen.clone();
        explore(bound, atomics, move |threads| {
            let limits = KeyAndAll::new(algorithm);
            let other = threads.spawn({
                let limits = Arc::clone(&limits);
                move || u64::from(limits.each.check(&1).is_allowed())
            });
            let both = limits.asks();
            assert_eq!(both + other.join().unwrap(), 1, "{algorithm}");
            assert_eq!(limits.left(), [0, 4 - both], "{algorithm}");
            note.note(both);
        });
        seen.expect(&["0", "1"]);
    }
}

#[test]
fn look_races_charge_and_one_gets_the_last_token() {
    look_races_charge(Bound::Preemptions(2), Atomics::Touched);
}

/// Both quotas are raised by one between a look and its charge, which then finds frozen words.
fn look_races_change_of_quota(bound: Bound, atomics: Atomics) {
    for algorithm in Algorithm::PACKED {
        explore(bound, atomics, move |threads| {
            let limits = KeyAndAll::new(algorithm);
            let other = threads.spawn({
                let limits = Arc::clone(&limits);
                move || {
                    limits.each.at(NOW).set_quota(Quota::per_second(3)).unwrap();
                    limits.all.at(NOW).set_quota(Quota::per_second(5)).unwrap();
                }
            });
            assert_eq!(limits.asks(), 1, "{algorithm}");
            other.join().unwrap();
            assert_eq!(limits.left(), [1, 4], "{algorithm}");
        });
    }
}

#[test]
fn look_races_change_of_quota_and_the_charge_is_kept() {
    look_races_change_of_quota(Bound::Preemptions(1), Atomics::Touched);
    look_races_change_of_quota(Bound::Preemptions(2), Atomics::Plain);
}

/// The key is idle at the time of the look, and is forgotten before it is charged.
fn look_races_eviction(algorithms: &[Algorithm], bound: Bound, atomics: Atomics) {
    for &algorithm in algorithms {
        let seen = Seen::default();
        let note = seen.clone();
        explore(bound, atomics, move |threads| {
            let limits = KeyAndAll::new(algorithm);
            limits.clock.set(LATER);
            let other = threads.spawn({
                let limits = Arc::clone(&limits);
                move || while limits.each.sweep(64) {}
            });
            assert_eq!(limits.asks(), 1, "{algorithm}");
            other.join().unwrap();
            assert_eq!(limits.left(), [1, 3], "{algorithm}");
            note.note(limits.each.stats().evicted);
        });
        // Either the charge or the eviction happened first.
        seen.expect_among(&["0", "1"]);
    }
}

#[test]
fn look_races_eviction_and_the_charge_is_kept() {
    look_races_eviction(&[Algorithm::TokenBucket], Bound::Preemptions(1), Atomics::Touched);
    look_races_eviction(&Algorithm::PACKED, Bound::Preemptions(2), Atomics::Plain);
}

/// Another request takes the last token of one limit. The quota of the other limit, a log, changes
/// while the refused request gives its token back.
#[test]
fn refusal_races_change_of_a_log_and_keeps_no_token() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
        let builder = SingleLimiter::builder(Quota::per_hour(3)).algorithm(Algorithm::SlidingLog);
        let log = builder.clock(ManualClock::new()).build().unwrap();
        let last = SingleLimiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build().unwrap();
        let limits = Arc::new([log, last]);
        let other = threads.spawn({
            let limits = Arc::clone(&limits);
            move || {
                let taken = limits[1].check().charged();
                limits[0].set_quota(Quota::per_hour(4)).unwrap();
                taken
            }
        });
        let mine = asks(&limits, true);
        assert_eq!(mine + other.join().unwrap(), 1);
        assert_eq!(limits[0].peek().remaining(), 4 - mine);
        note.note(mine);
    });
    seen.expect(&["0", "1"]);
}
