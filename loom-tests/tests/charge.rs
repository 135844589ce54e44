//! Races on one word: the compare-and-swap loop, with every algorithm.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Seen, explore};
use std::time::Duration;
use tollgate::sync::ModelSwitch;
use tollgate::{Algorithm, Chargeable, ManualClock, Quota, SingleLimiter, Tick};

const NOW: Tick = Tick::from_nanos(5_000_000_000);

fn limiter(algorithm: Algorithm, per_second: u64) -> Arc<SingleLimiter> {
    let builder = SingleLimiter::builder(Quota::per_second(per_second));
    Arc::new(builder.algorithm(algorithm).clock(ManualClock::new()).build().unwrap())
}

/// `racers` threads (including the main thread) charge `each` tokens one by one, under a limit of
/// `limit`.
fn charges_race(bound: Bound, racers: u64, each: u64, limit: u64) {
    for algorithm in Algorithm::PACKED {
        explore(bound, Atomics::Touched, move |threads| {
            let gate = limiter(algorithm, limit);
            let charge = move |gate: Arc<SingleLimiter>| {
                (0..each).filter(|_| gate.at(NOW).check().is_allowed()).count() as u64
            };
            let others: Vec<_> = (1..racers)
                .map(|_| {
                    let gate = Arc::clone(&gate);
                    threads.spawn(move || charge(gate))
                })
                .collect();
            let mut admitted = charge(Arc::clone(&gate));
            admitted += others.into_iter().map(|other| other.join().unwrap()).sum::<u64>();
            assert_eq!(admitted, limit.min(racers * each), "{algorithm}");
            assert_eq!(gate.at(NOW).peek().remaining(), limit - admitted);
        });
    }
}

#[test]
fn charge_races_charge_never_admits_twice() {
    charges_race(Bound::Exhaustive, 2, 1, 1);
    charges_race(Bound::Preemptions(3), 2, 2, 3);
}

#[test]
fn charge_races_charge_loses_no_token() {
    charges_race(Bound::Preemptions(3), 2, 2, 5);
}

#[test]
fn three_charges_race_for_two_tokens() {
    charges_race(Bound::Preemptions(2), 3, 1, 2);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn two_threads_of_two_charges_race_for_three_tokens_exhaustively() {
    charges_race(Bound::Exhaustive, 2, 2, 3);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn three_charges_race_for_two_tokens_more_deeply() {
    charges_race(Bound::Preemptions(3), 3, 1, 2);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn three_threads_of_two_charges_race_for_four_tokens() {
    charges_race(Bound::Preemptions(2), 3, 2, 4);
}

#[test]
fn charge_races_refund_and_both_count() {
    for algorithm in Algorithm::PACKED {
        explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
            let gate = limiter(algorithm, 2);
            let first = gate.at(NOW).check();
            let refunder = threads.spawn({
                let gate = Arc::clone(&gate);
                move || gate.at(NOW).refund_n(&first, 1)
            });
            assert!(gate.at(NOW).check().is_allowed());
            refunder.join().unwrap();
            assert_eq!(gate.at(NOW).peek().remaining(), 1, "{algorithm}");
        });
    }
}

#[test]
fn refund_races_refund_and_both_count() {
    for algorithm in Algorithm::PACKED {
        explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
            let gate = limiter(algorithm, 3);
            let (first, second) = (gate.at(NOW).check(), gate.at(NOW).check());
            let refunder = threads.spawn({
                let gate = Arc::clone(&gate);
                move || gate.at(NOW).refund_n(&first, 1)
            });
            gate.at(NOW).refund_n(&second, 1);
            refunder.join().unwrap();
            assert_eq!(gate.at(NOW).peek().remaining(), 3, "{algorithm}");
        });
    }
}

#[test]
fn charge_races_reset_and_comes_before_or_after_it() {
    for algorithm in Algorithm::PACKED {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
            let gate = limiter(algorithm, 2);
            assert!(gate.at(NOW).check().is_allowed());
            let resetter = threads.spawn({
                let gate = Arc::clone(&gate);
                move || gate.reset()
            });
            assert!(gate.at(NOW).check().is_allowed());
            resetter.join().unwrap();
            note.note(gate.at(NOW).peek().remaining());
        });
        seen.expect(&["1", "2"]);
    }
}

/// Charges after the reset stay charged. They take more tokens than the charge before the reset. If
/// they took as many tokens at the same time, the word would be the same as before the reset, and
/// the two words could not be distinguished.
#[test]
fn refund_races_reset_and_gives_back_nothing_that_is_void() {
    for algorithm in Algorithm::PACKED {
        explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
            let gate = limiter(algorithm, 4);
            let first = gate.at(NOW).check();
            let resetter = threads.spawn({
                let gate = Arc::clone(&gate);
                move || {
                    gate.reset();
                    assert!(gate.at(NOW).check_n(2).is_allowed());
                }
            });
            gate.at(NOW).refund_n(&first, 1);
            resetter.join().unwrap();
            assert_eq!(gate.at(NOW).peek().remaining(), 2, "{algorithm}");
        });
    }
}

/// A charge during the reset stays charged if it happens after the reset of the word.
#[test]
fn refund_during_a_reset_gives_back_nothing_that_is_void() {
    for algorithm in Algorithm::PACKED {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
            let gate = limiter(algorithm, 4);
            let first = gate.at(NOW).check();
            let resetter = threads.spawn({
                let gate = Arc::clone(&gate);
                move || gate.reset()
            });
            assert!(gate.at(NOW).check_n(2).is_allowed());
            gate.at(NOW).refund_n(&first, 1);
            resetter.join().unwrap();
            note.note(gate.at(NOW).peek().remaining());
        });
        // The charge of two tokens happened after the reset, or before it.
        seen.expect(&["2", "4"]);
    }
}

#[test]
fn charge_races_reset_and_is_not_given_back_if_it_is_void() {
    for algorithm in Algorithm::PACKED {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
            let gate = limiter(algorithm, 3);
            let resetter = threads.spawn({
                let gate = Arc::clone(&gate);
                move || gate.reset()
            });
            // A fresh word is not reset, so one charge is made first.
            assert!(gate.at(NOW).check().is_allowed());
            let charge = gate.at(NOW).check();
            resetter.join().unwrap();
            assert!(gate.at(NOW).check().is_allowed());
            gate.at(NOW).refund_n(&charge, 1);
            note.note(gate.at(NOW).peek().remaining());
        });
        // The outcomes are:
        //
        // - 0: three charges happened after the reset. The reset number of the refunded charge is
        //   from before the end of the reset, so its token was not given back.
        // - 1: its token was given back, or one charge happened before the reset.
        // - 2: one charge happened before the reset and another was given back, or two charges
        //   happened before the reset.
        //
        // The result is never 3.
        seen.expect(&["0", "1", "2"]);
    }
}

/// A thread reads the clock, stalls, and commits late, while time passes. Judged by the charges'
/// times, no two charges are closer than the quota allows.
#[test]
fn stale_clock_races_charge_and_never_doubles_the_rate() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::LeakyQueue] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
            let clock = ManualClock::new();
            let builder = SingleLimiter::builder(Quota::per_second(1));
            let gate = Arc::new(builder.algorithm(algorithm).clock(&clock).build().unwrap());
            let other = threads.spawn({
                let gate = Arc::clone(&gate);
                move || gate.check()
            });
            clock.set(Tick::ZERO + Duration::from_secs(1));
            let (mine, other) = (gate.check(), other.join().unwrap());
            if mine.is_allowed() && other.is_allowed() {
                assert_eq!(mine.at().since(other.at()), Duration::from_secs(1));
            }
            note.note((mine.is_allowed(), other.is_allowed()));
        });
        // A thread that read the clock too early may be denied, but at least one thread is
        // admitted.
        seen.expect(&["(false, true)", "(true, false)", "(true, true)"]);
    }
}

#[test]
fn spurious_failure_of_the_exchange_charges_once() {
    for algorithm in Algorithm::PACKED {
        explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
            let gate = limiter(algorithm, 3);
            let other = threads.spawn({
                let gate = Arc::clone(&gate);
                move || {
                    ModelSwitch::FailWeakOnce.set(true);
                    gate.at(NOW).check().is_allowed()
                }
            });
            assert!(gate.at(NOW).check().is_allowed());
            assert!(other.join().unwrap());
            ModelSwitch::FailWeakOnce.set(false);
            assert_eq!(gate.at(NOW).peek().remaining(), 1, "{algorithm}");
        });
    }
}
