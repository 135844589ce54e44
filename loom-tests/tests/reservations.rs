//! Races of reservations and forced charges with charges, turnovers, quota changes and clears.

mod model;

use loom::sync::Arc;
use model::stores::Built;
use model::{Atomics, Bound, Seen, explore};
use std::time::Duration;
use tollgate::store::{ExactKeys, Fingerprints};
use tollgate::{Algorithm, Limiter, ManualClock, Quota, SingleLimiter, Tick};

const NOW: Tick = Tick::from_nanos(5_000_000_000);
const GRACE: Duration = Duration::from_nanos(1);

/// A limiter with four tokens for each key, and a debt of two.
fn gate<S: Built>() -> Arc<Limiter<u64, S>> {
    let clock = ManualClock::new();
    clock.set(NOW);
    let builder = Limiter::builder(Quota::per_second(4)).clock(clock).max_debt(2);
    Arc::new(S::build(builder.max_keys(4).grace(GRACE)))
}

fn single(algorithm: Algorithm) -> Arc<SingleLimiter> {
    let builder = SingleLimiter::builder(Quota::per_hour(4)).algorithm(algorithm).clock(ManualClock::new());
    Arc::new(builder.max_debt(2).build().unwrap())
}

/// The whole life of a reservation runs concurrently with charges. No charge is lost or counted
/// twice.
#[test]
fn reservation_races_charge_and_the_sum_is_exact() {
    for algorithm in Algorithm::PACKED {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
            let limit = single(algorithm);
            let other = threads.spawn({
                let limit = Arc::clone(&limit);
                move || limit.check_n(2).charged()
            });
            let mut held = limit.reserve(2).unwrap();
            let grown = held.record(3).is_ok();
            let settled = if grown { held.commit(2) } else { held.commit(1) };
            let charged = settled.charged + other.join().unwrap();
            assert_eq!(limit.peek().remaining(), 4 - charged, "{algorithm}");
            note.note((grown, charged));
        });
        // Either the reservation has not grown, or it has grown and the other request was refused
        // or was charged after the commit.
        seen.expect_among(&["(false, 3)", "(true, 2)"]);
    }
}

/// Two forced charges and a check. Together they use up the room and the debt, and no more.
#[test]
fn forced_charge_races_charge_and_the_debt_is_bounded() {
    for algorithm in Algorithm::PACKED {
        explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
            let limit = single(algorithm);
            let forcing = threads.spawn({
                let limit = Arc::clone(&limit);
                move || limit.force(4)
            });
            let checked = limit.check_n(3).charged();
            let forced = limit.force(3);
            let other = forcing.join().unwrap();
            assert_eq!(checked + forced + other, 6, "{algorithm}: of {checked}, {forced}, {other}");
            assert_eq!(limit.force(1), 0, "{algorithm}");
            limit.reset();
        });
    }
}

/// The key is moved to the next array, or is not in the store yet, while it is charged and settled.
fn turnover<S: Built>(bound: Bound) {
    explore(bound, Atomics::Plain, move |threads| {
        let gate = gate::<S>();
        assert_eq!(gate.force(&1, 1), 1);
        let sweeping = threads.spawn({
            let gate = Arc::clone(&gate);
            move || while gate.sweep(4_096) {}
        });
        let settled = gate.reserve(&1, 2).unwrap().commit(9);
        sweeping.join().unwrap();
        assert_eq!((settled.charged, settled.unpaid), (5, 4));
        assert_eq!((gate.peek(&1).remaining(), gate.force(&1, 1)), (0, 0));
    });
}

#[test]
fn settlement_races_turnover_and_none_is_lost() {
    turnover::<Fingerprints>(Bound::Preemptions(2));
    turnover::<ExactKeys<u64>>(Bound::Preemptions(2));
}

/// Two threads force the first charge of a new key.
fn first_forced<S: Built>(bound: Bound) {
    explore(bound, Atomics::Plain, move |threads| {
        let gate = gate::<S>();
        let forcing = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.force(&1, 5)
        });
        let forced = gate.force(&1, 4);
        assert_eq!(forced + forcing.join().unwrap(), 6);
    });
}

#[test]
fn forced_charges_of_a_new_key_race_and_the_debt_is_bounded() {
    first_forced::<Fingerprints>(Bound::Preemptions(2));
    first_forced::<ExactKeys<u64>>(Bound::Preemptions(1));
}

/// The quota is raised while a reservation goes into debt. The debt is kept.
fn quota<S: Built>(bound: Bound) {
    explore(bound, Atomics::Plain, move |threads| {
        let gate = gate::<S>();
        let held = gate.reserve(&1, 3).unwrap();
        let changing = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.set_quota(Quota::per_second(5)).unwrap()
        });
        let settled = held.commit(9);
        changing.join().unwrap();
        let more = gate.force(&1, 9);
        // The charges add up to 4 tokens and the debt before the change, or to 5 tokens and the
        // debt after it. The translation rounds a debt up to whole tokens or further, so nothing
        // may be left of the token that the change adds.
        assert!((6..=7).contains(&settled.charged) && (6..=7).contains(&(settled.charged + more)));
        assert_eq!(gate.peek(&1).remaining(), 0);
    });
}

#[test]
fn settlement_races_a_change_of_quota_and_none_is_lost() {
    quota::<Fingerprints>(Bound::Preemptions(2));
    quota::<ExactKeys<u64>>(Bound::Preemptions(2));
}

/// The limiter is cleared while a reservation is released. The refund is void, or happened before.
#[test]
fn release_races_clear_and_gives_back_nothing_that_is_void() {
    explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
        let gate = gate::<Fingerprints>();
        let held = gate.reserve(&1, 3).unwrap();
        let clearing = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                gate.clear();
                gate.check_n(&1, 2).charged()
            }
        });
        held.release();
        assert_eq!(clearing.join().unwrap(), 2);
        assert_eq!(gate.peek(&1).remaining(), 2);
    });
}

/// If a reservation is dropped after a record, the rest is given back once.
#[test]
fn drop_races_charge_and_keeps_what_was_recorded() {
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let limit = single(Algorithm::TokenBucket);
        let other = threads.spawn({
            let limit = Arc::clone(&limit);
            move || limit.check_n(2).charged()
        });
        let mut held = limit.reserve(2).unwrap();
        held.record(1).unwrap();
        drop(held);
        let charged = other.join().unwrap();
        assert_eq!(limit.peek().remaining(), 3 - charged);
    });
}
