//! Races of quota changes with charges, insertions, evictions and other changes, in both stores.
//!
//! In the table, a change is a turnover into an array with new rules. With exact keys, each thread
//! that uses a state moves the state to the next version.

mod model;

use loom::sync::Arc;
use model::stores::Built;
use model::{Atomics, Bound, Explored, Seen, explore};
use std::time::Duration;
use tollgate::store::{ExactKeys, Fingerprints};
use tollgate::{Algorithm, Chargeable, Limiter, ManualClock, Quota, SingleLimiter, Tick};

const NOW: Tick = Tick::from_nanos(5_000_000_000);
/// A time at which keys that were charged at `NOW` are idle.
const LATER: Tick = Tick::from_nanos(9_000_000_000);

/// A turnover at one of these times is not followed by another at the same time.
const GRACE: Duration = Duration::from_nanos(1);

fn per_second(limit: u64) -> Quota {
    Quota::per_second(limit)
}

type Gate<S> = Arc<Limiter<u64, S>>;

/// Creates a limiter with the keys 1 to `keys`, each charged one token of two at `NOW`.
fn with_keys<S: Built>(keys: u64) -> Gate<S> {
    with_keys_of::<S>(Algorithm::TokenBucket, keys)
}

fn with_keys_of<S: Built>(algorithm: Algorithm, keys: u64) -> Gate<S> {
    let builder = Limiter::builder(per_second(2)).algorithm(algorithm).max_keys(4).grace(GRACE);
    let gate = Arc::new(S::build(builder.clock(ManualClock::new())));
    for key in 1..=keys {
        assert!(gate.at(NOW).check(&key).is_allowed());
    }
    gate
}

/// Checks after the race that `charged` tokens of key 1 are taken, and that its limit is `limit`.
#[track_caller]
fn holds<S: Built>(gate: &Gate<S>, limit: u64, charged: u64, now: Tick) {
    let peek = gate.at(now).peek(&1);
    assert_eq!((peek.capacity(), peek.remaining()), (limit, limit - charged));
}

#[derive(Clone, Copy)]
enum Way {
    Default,
    Own,
}

fn change<S: Built>(gate: &Gate<S>, way: Way, limit: u64, now: Tick) {
    match way {
        Way::Default => gate.at(now).set_quota(per_second(limit)).unwrap(),
        Way::Own => gate.at(now).set_key_quotas([(&1, Some(per_second(limit)))]).unwrap(),
    }
}

/// The quota is raised from two to three while a key is charged.
fn swap_and_charge<S: Built>(way: Way, bound: Bound, atomics: Atomics) -> Explored {
    let seen = Seen::default();
    let note = seen.clone();
    let explored = explore(bound, atomics, move |threads| {
        let gate = with_keys::<S>(1);
        let changer = threads.spawn({
            let gate = Arc::clone(&gate);
            move || change(&gate, way, 3, NOW)
        });
        let charger = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&1).charged() + gate.at(NOW).check(&1).charged()
        });
        changer.join().unwrap();
        let charged = charger.join().unwrap();
        assert!(charged >= 1);
        holds(&gate, 3, 1 + charged, NOW);
        note.note(charged);
    });
    // The second charge happened before the change in one execution, and after the change in
    // another.
    seen.expect(&["1", "2"]);
    explored
}

#[test]
fn quota_swap_races_charge_and_none_is_lost() {
    for way in [Way::Default, Way::Own] {
        swap_and_charge::<Fingerprints>(way, Bound::Preemptions(1), Atomics::Touched);
        swap_and_charge::<Fingerprints>(way, Bound::Preemptions(2), Atomics::Plain);
        swap_and_charge::<ExactKeys<u64>>(way, Bound::Preemptions(1), Atomics::Touched);
        swap_and_charge::<ExactKeys<u64>>(way, Bound::Preemptions(2), Atomics::Plain);
    }
}

#[test]
#[ignore = "deep: make loom-deep"]
fn quota_swap_races_charge_and_none_is_lost_deeply() {
    for way in [Way::Default, Way::Own] {
        swap_and_charge::<Fingerprints>(way, Bound::Preemptions(2), Atomics::Touched);
        swap_and_charge::<ExactKeys<u64>>(way, Bound::Preemptions(2), Atomics::Touched);
    }
}

/// Two charges of one key meet a change that is in progress.
fn swap_and_two_charges<S: Built>(algorithm: Algorithm, bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, move |threads| {
        let gate = with_keys_of::<S>(algorithm, 1);
        let changer = threads.spawn({
            let gate = Arc::clone(&gate);
            move || change(&gate, Way::Default, 3, NOW)
        });
        let chargers = [(), ()].map(|()| {
            let gate = Arc::clone(&gate);
            threads.spawn(move || gate.at(NOW).check(&1).charged())
        });
        changer.join().unwrap();
        let charged: u64 = chargers.into_iter().map(|charger| charger.join().unwrap()).sum();
        assert!(charged >= 1);
        holds(&gate, 3, 1 + charged, NOW);
    })
}

#[test]
#[ignore = "deep: make loom-deep"]
fn quota_swap_races_two_charges_and_each_counts_once_deeply() {
    swap_and_two_charges::<Fingerprints>(Algorithm::TokenBucket, Bound::Preemptions(1), Atomics::Plain);
    swap_and_two_charges::<ExactKeys<u64>>(Algorithm::TokenBucket, Bound::Preemptions(1), Atomics::Touched);
    swap_and_two_charges::<ExactKeys<u64>>(Algorithm::TokenBucket, Bound::Preemptions(2), Atomics::Plain);
}

/// Two threads set quotas. One of the two quotas wins, and tokens already taken stay taken.
fn two_swaps<S: Built>(ways: [Way; 2], bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, move |threads| {
        let gate = with_keys::<S>(1);
        let changers = [(ways[0], 3), (ways[1], 4)].map(|(way, limit)| {
            let gate = Arc::clone(&gate);
            threads.spawn(move || change(&gate, way, limit, NOW))
        });
        for changer in changers {
            changer.join().unwrap();
        }
        let limit = gate.at(NOW).peek(&1).capacity();
        match ways {
            // The key's own quota holds, whatever the default is.
            [Way::Default, Way::Own] => assert_eq!((limit, gate.at(NOW).peek(&2).capacity()), (4, 3)),
            _ => assert!(limit == 3 || limit == 4),
        }
        holds(&gate, limit, 1, NOW);
    })
}

#[test]
fn quota_swap_races_quota_swap_and_one_of_them_holds() {
    two_swaps::<Fingerprints>([Way::Default, Way::Own], Bound::Preemptions(1), Atomics::Plain);
    for ways in [[Way::Own; 2], [Way::Default, Way::Own]] {
        two_swaps::<ExactKeys<u64>>(ways, Bound::Preemptions(1), Atomics::Plain);
    }
}

#[test]
#[ignore = "deep: make loom-deep"]
fn quota_swap_races_quota_swap_and_one_of_them_holds_deeply() {
    for ways in [[Way::Default; 2], [Way::Own; 2]] {
        two_swaps::<Fingerprints>(ways, Bound::Preemptions(1), Atomics::Plain);
    }
    two_swaps::<ExactKeys<u64>>([Way::Default; 2], Bound::Preemptions(1), Atomics::Plain);
    for ways in [[Way::Own; 2], [Way::Default, Way::Own]] {
        two_swaps::<ExactKeys<u64>>(ways, Bound::Preemptions(2), Atomics::Plain);
    }
}

/// A key is requested for the first time, for `cost` tokens, while the quota is raised from two to
/// three. A single quota decides: a request that the old quota refuses is not admitted under the
/// new quota without a charge.
fn swap_and_insert<S: Built>(cost: u64, way: Way, bound: Bound, atomics: Atomics) -> Explored {
    let seen = Seen::default();
    let note = seen.clone();
    let explored = explore(bound, atomics, move |threads| {
        let gate = with_keys::<S>(0);
        let changer = threads.spawn({
            let gate = Arc::clone(&gate);
            move || change(&gate, way, 3, NOW)
        });
        let comer = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check_n(&1, cost)
        });
        changer.join().unwrap();
        let decision = comer.join().unwrap();
        let charged = if cost <= decision.capacity() { cost } else { 0 };
        assert_eq!((decision.is_allowed(), decision.charged()), (charged > 0, charged));
        note.note(decision.capacity());
        holds(&gate, 3, charged, NOW);
    });
    seen.expect(&["2", "3"]);
    explored
}

#[test]
fn quota_swap_races_insert_and_the_key_is_under_the_new_quota() {
    for way in [Way::Default, Way::Own] {
        for cost in [1, 3] {
            swap_and_insert::<Fingerprints>(cost, way, Bound::Preemptions(1), Atomics::Plain);
            swap_and_insert::<ExactKeys<u64>>(cost, way, Bound::Preemptions(2), Atomics::Plain);
        }
        swap_and_insert::<Fingerprints>(3, way, Bound::Preemptions(1), Atomics::Touched);
        swap_and_insert::<ExactKeys<u64>>(1, way, Bound::Preemptions(1), Atomics::Touched);
    }
}

#[test]
#[ignore = "deep: make loom-deep"]
fn quota_swap_races_insert_and_the_key_is_under_the_new_quota_deeply() {
    swap_and_insert::<Fingerprints>(1, Way::Own, Bound::Preemptions(1), Atomics::Touched);
}

/// An idle key is evicted while its quota changes and the key returns.
fn swap_and_eviction<S: Built>(algorithm: Algorithm, bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, move |threads| {
        let gate = with_keys_of::<S>(algorithm, 1);
        let changer = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                change(&gate, Way::Default, 3, LATER);
                gate.at(LATER).check(&1).charged()
            }
        });
        let sweeper = threads.spawn({
            let gate = Arc::clone(&gate);
            move || while gate.at(LATER).sweep(1) {}
        });
        let charged = changer.join().unwrap();
        sweeper.join().unwrap();
        assert_eq!(charged, 1);
        holds(&gate, 3, 1, LATER);
    })
}

#[test]
fn quota_swap_races_eviction_and_no_charge_is_lost() {
    swap_and_eviction::<Fingerprints>(Algorithm::TokenBucket, Bound::Preemptions(1), Atomics::Plain);
    swap_and_eviction::<ExactKeys<u64>>(Algorithm::TokenBucket, Bound::Preemptions(2), Atomics::Plain);
}

/// The state of a sliding log is not a word. The log keeps its chunks when the quota changes.
#[test]
fn quota_swap_races_charge_of_a_sliding_log_and_it_counts_once() {
    explore(Bound::Preemptions(1), Atomics::Plain, |threads| {
        let gate = with_keys_of::<ExactKeys<u64>>(Algorithm::SlidingLog, 1);
        let changer = threads.spawn({
            let gate = Arc::clone(&gate);
            move || change(&gate, Way::Default, 3, NOW)
        });
        let charger = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&1).charged()
        });
        changer.join().unwrap();
        assert_eq!(charger.join().unwrap(), 1);
        holds(&gate, 3, 2, NOW);
    });
}

#[test]
fn quota_swap_races_eviction_of_a_sliding_log_and_no_charge_is_lost() {
    swap_and_eviction::<ExactKeys<u64>>(Algorithm::SlidingLog, Bound::Preemptions(1), Atomics::Plain);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn quota_swap_races_a_sliding_log_deeply() {
    swap_and_two_charges::<ExactKeys<u64>>(Algorithm::SlidingLog, Bound::Preemptions(1), Atomics::Plain);
    swap_and_eviction::<ExactKeys<u64>>(Algorithm::SlidingLog, Bound::Preemptions(2), Atomics::Plain);
}

/// A log is evicted while its key returns.
#[test]
fn eviction_races_charge_of_a_sliding_log_and_loses_none() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
        let gate = with_keys_of::<ExactKeys<u64>>(Algorithm::SlidingLog, 1);
        let sweeper = threads.spawn({
            let gate = Arc::clone(&gate);
            move || while gate.at(LATER).sweep(1) {}
        });
        let charger = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(LATER).check(&1).charged()
        });
        sweeper.join().unwrap();
        assert_eq!(charger.join().unwrap(), 1);
        holds(&gate, 2, 1, LATER);
        note.note(gate.stats().evicted);
    });
    seen.expect(&["0", "1"]);
}

/// A check uses the rule that the limiter was built with, or finds that rule's state frozen. Each
/// charge is counted under the quota that holds in the end.
#[test]
fn change_of_one_limiter_races_charges_and_counts_each() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingLog] {
        let seen = Seen::default();
        let note = seen.clone();
        // A log has many more accesses.
        let bound = Bound::Preemptions(if algorithm == Algorithm::SlidingLog { 1 } else { 2 });
        explore(bound, Atomics::Touched, move |threads| {
            let builder = SingleLimiter::builder(per_second(2)).algorithm(algorithm);
            let limiter = Arc::new(builder.clock(ManualClock::new()).build().unwrap());
            let changer = threads.spawn({
                let limiter = Arc::clone(&limiter);
                move || limiter.at(NOW).set_quota(per_second(3)).unwrap()
            });
            let charged = [(); 3].map(|()| limiter.at(NOW).check().charged()).iter().sum::<u64>();
            changer.join().unwrap();
            let peek = limiter.at(NOW).peek();
            assert_eq!((peek.capacity(), peek.remaining()), (3, 3 - charged), "{algorithm}");
            note.note(charged);
        });
        seen.expect(&["2", "3"]);
    }
}

/// A change to a faster quota is requested, and the clock goes on before the change binds a key.
/// The key is charged meanwhile under the slower quota; the faster quota must not refill this
/// charge from the time of the request. `helpers` further threads ask for the key, and may install
/// its translation.
fn change_binds_late<S: Built>(way: Way, helpers: usize, bound: Bound) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Atomics::Plain, move |threads| {
        let clock = ManualClock::new();
        clock.set(NOW);
        let slow = Quota::new(2, Duration::from_secs(1_000));
        let builder = Limiter::builder(slow).max_keys(4).grace(GRACE).clock(&clock);
        let gate = Arc::new(S::build(builder));
        assert!(gate.check_n(&1, 2).is_allowed());
        // The bucket is full again.
        clock.set(NOW + Duration::from_secs(2_000));
        let changer = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                let fast = per_second(2);
                match way {
                    Way::Default => gate.set_quota(fast).unwrap(),
                    Way::Own => gate.set_key_quota(&1, fast).unwrap(),
                }
            }
        });
        let helpers: Vec<_> = (0..helpers)
            .map(|_| {
                let gate = Arc::clone(&gate);
                threads.spawn(move || gate.check_n(&1, 2).charged())
            })
            .collect();
        clock.advance(Duration::from_secs(2));
        // A charge of the whole bucket would show its time, because it must have fitted.
        let first = gate.check(&1).charged();
        let second = gate.check_n(&1, 2).charged();
        changer.join().unwrap();
        let others: u64 = helpers.into_iter().map(|helper| helper.join().unwrap()).sum();
        assert!(first + second <= 2, "{first} and {second} at one instant");
        // Two seconds at the faster rate refill the bucket: a helper may be charged before them.
        assert!(first + second + others <= 4, "{first}, {second} and {others}");
        note.note(first + second);
    });
    seen.expect_among(&["1"]);
}

#[test]
fn change_binds_late_and_refills_no_charge_from_before() {
    for way in [Way::Default, Way::Own] {
        change_binds_late::<Fingerprints>(way, 0, Bound::Preemptions(2));
        change_binds_late::<ExactKeys<u64>>(way, 0, Bound::Preemptions(2));
        change_binds_late::<ExactKeys<u64>>(way, 1, Bound::Preemptions(1));
    }
}

#[test]
#[ignore = "deep: make loom-deep"]
fn change_binds_late_beside_a_helper_deeply() {
    change_binds_late::<Fingerprints>(Way::Default, 1, Bound::Preemptions(1));
}

/// A charge of two tokens is refunded while the quota becomes faster and slower again. The faster
/// quota has refilled the charge, and another request has spent the tokens: the refund came before
/// the first change, or is void.
fn refund_meets_changes<S: Built>(way: Way, bound: Bound) {
    explore(bound, Atomics::Plain, move |threads| {
        let slow = Quota::per_hour(2);
        // The key is not evicted, so it needs no new place.
        let builder = Limiter::builder(slow).max_keys(4).grace(Duration::from_secs(1_000));
        let gate = Arc::new(S::build(builder.clock(ManualClock::new())));
        let charge = gate.at(NOW).check_n(&1, 2);
        assert!(charge.is_allowed());
        let changer = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                change(&gate, way, 2, NOW);
                match way {
                    Way::Default => gate.at(LATER).set_quota(slow).unwrap(),
                    Way::Own => gate.at(LATER).set_key_quotas([(&1, None)]).unwrap(),
                }
                gate.at(LATER).check_n(&1, 2)
            }
        });
        gate.at(LATER).refund(&1, &charge);
        let later = changer.join().unwrap();
        assert_eq!(later.charged(), 2, "four seconds refill two tokens: {later:?}");
        assert_eq!(gate.at(LATER).peek(&1).remaining(), 0);
    });
}

#[test]
fn refund_races_changes_and_gives_back_nothing_of_others() {
    for way in [Way::Default, Way::Own] {
        refund_meets_changes::<Fingerprints>(way, Bound::Preemptions(1));
        refund_meets_changes::<ExactKeys<u64>>(way, Bound::Preemptions(2));
    }
}

/// A key loses its own quota while another thread gives it another one.
fn removal_meets_change<S: Built>(bound: Bound) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Atomics::Plain, move |threads| {
        let gate = with_keys::<S>(1);
        change(&gate, Way::Own, 3, NOW);
        let changer = threads.spawn({
            let gate = Arc::clone(&gate);
            move || change(&gate, Way::Own, 4, NOW)
        });
        gate.at(NOW).set_key_quotas([(&1, None)]).unwrap();
        changer.join().unwrap();
        let own = gate.key_quota(&1);
        assert!(own.is_none_or(|own| own == per_second(4)));
        assert_eq!(gate.stats().own_quotas, usize::from(own.is_some()));
        let limit = own.map_or(2, Quota::tokens);
        holds(&gate, limit, 1, NOW);
        note.note(limit);
    });
    seen.expect(&["2", "4"]);
}

#[test]
fn removal_races_quota_swap_and_one_of_them_holds() {
    removal_meets_change::<Fingerprints>(Bound::Preemptions(1));
    removal_meets_change::<ExactKeys<u64>>(Bound::Preemptions(2));
}

/// A key is charged while it loses its own quota.
fn removal_meets_charge<S: Built>(bound: Bound, atomics: Atomics) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, atomics, move |threads| {
        let gate = with_keys::<S>(1);
        change(&gate, Way::Own, 3, NOW);
        let remover = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).set_key_quotas([(&1, None)]).unwrap()
        });
        let charged = gate.at(NOW).check(&1).charged() + gate.at(NOW).check(&1).charged();
        remover.join().unwrap();
        assert!(charged >= 1);
        // A token beyond the smaller capacity is forgotten.
        holds(&gate, 2, 2, NOW);
        note.note(charged);
    });
    seen.expect(&["1", "2"]);
}

#[test]
fn removal_races_charge_and_none_is_lost() {
    removal_meets_charge::<Fingerprints>(Bound::Preemptions(2), Atomics::Plain);
    removal_meets_charge::<ExactKeys<u64>>(Bound::Preemptions(2), Atomics::Plain);
    removal_meets_charge::<ExactKeys<u64>>(Bound::Preemptions(1), Atomics::Touched);
}

/// A key is inserted. Meanwhile another request charges it, the quota becomes faster, the key is
/// evicted, and the quota becomes slower again. The earlier charge is void for the new cell, which
/// may have been created before all this.
#[test]
fn changes_race_insert_and_void_earlier_charges() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(1), Atomics::Plain, move |threads| {
        let slow = Quota::per_hour(2);
        let builder = Limiter::builder(slow).max_keys(4).grace(GRACE).clock(ManualClock::new());
        let gate = Arc::new(ExactKeys::build(builder));
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                let charge = gate.at(NOW).check_n(&1, 2);
                gate.at(NOW).set_quota(per_second(2)).unwrap();
                while gate.at(LATER).sweep(1) {}
                gate.at(LATER).set_quota(slow).unwrap();
                charge
            }
        });
        let charged = gate.at(LATER).check(&1).charged();
        let charge = other.join().unwrap();
        if charge.charged() > 0 && charged > 0 {
            gate.at(LATER).refund(&1, &charge);
            assert_eq!(gate.at(LATER).peek(&1).remaining(), 1);
        }
        note.note((charge.charged(), charged));
    });
    seen.expect_among(&["(2, 1)"]);
}
