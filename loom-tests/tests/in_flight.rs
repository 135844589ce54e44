//! Races of permits in flight with each other, with resets, and with turnovers and evictions.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Seen, explore};
use std::time::Duration;
use tollgate::store::{Accepts, ExactKeys, Fingerprints};
use tollgate::{Builder, Charge, Chargeable, InFlight, ManualClock, Quota, SingleLimiter, Tick, check_all};

const NOW: Tick = Tick::from_nanos(5_000_000_000);

/// The store that a model runs with.
trait Built: Accepts<u64> + Sized + 'static {
    fn build(builder: Builder<InFlight<u64>>) -> InFlight<u64, Self>;
}

impl Built for Fingerprints {
    fn build(builder: Builder<InFlight<u64>>) -> InFlight<u64> {
        builder.build().unwrap()
    }
}

impl Built for ExactKeys<u64> {
    fn build(builder: Builder<InFlight<u64>>) -> InFlight<u64, Self> {
        builder.exact_keys().build().unwrap()
    }
}

type Gate<S> = Arc<InFlight<u64, S>>;

fn gate<S: Built>(limit: u64) -> (ManualClock, Gate<S>) {
    let clock = ManualClock::new();
    clock.set(NOW);
    let builder = InFlight::builder(limit).clock(&clock).max_keys(4);
    (clock, Arc::new(S::build(builder)))
}

/// Takes permits until none is left, and gives them back. Returns how many permits there were.
fn free<S: Built>(gate: &InFlight<u64, S>, limit: u64) -> u64 {
    let held: Vec<_> = (0..=limit).map_while(|_| gate.acquire(&1).ok()).collect();
    held.len() as u64
}

/// The key is new, or it is in the store with no permit in use.
fn last_permit<S: Built>(bound: Bound, atomics: Atomics, is_known: bool) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, atomics, move |threads| {
        let (_, gate) = gate::<S>(1);
        if is_known {
            drop(gate.acquire(&1).unwrap());
        }
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.acquire_owned(1).ok()
        });
        let mine = gate.acquire_owned(1).ok();
        let other = other.join().unwrap();
        assert_eq!(gate.in_flight(&1), 1);
        note.note((mine.is_some(), other.is_some()));
        drop((mine, other));
        assert_eq!(free(&gate, 1), 1);
    });
    seen.expect(&["(false, true)", "(true, false)"]);
}

#[test]
fn acquire_races_acquire_for_the_last_permit_and_one_gets_it() {
    last_permit::<Fingerprints>(Bound::Preemptions(3), Atomics::Touched, true);
    last_permit::<Fingerprints>(Bound::Preemptions(2), Atomics::Plain, false);
    last_permit::<ExactKeys<u64>>(Bound::Preemptions(2), Atomics::Plain, true);
    last_permit::<ExactKeys<u64>>(Bound::Preemptions(2), Atomics::Plain, false);
}

fn release_and_acquire<S: Built>(bound: Bound, atomics: Atomics) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, atomics, move |threads| {
        let (_, gate) = gate::<S>(1);
        let held = gate.acquire_owned(1).unwrap();
        let releasing = threads.spawn(move || drop(held));
        let mine = gate.acquire_owned(1).ok();
        releasing.join().unwrap();
        note.note(mine.is_some());
        assert_eq!(gate.in_flight(&1), u64::from(mine.is_some()));
        drop(mine);
        assert_eq!(free(&gate, 1), 1);
    });
    seen.expect(&["false", "true"]);
}

#[test]
fn acquire_races_release_and_the_count_is_exact() {
    release_and_acquire::<Fingerprints>(Bound::Preemptions(3), Atomics::Touched);
    release_and_acquire::<ExactKeys<u64>>(Bound::Preemptions(2), Atomics::Plain);
}

/// A permit is returned while its key is moved, and another permit is taken.
fn turnover<S: Built>(bound: Bound) {
    explore(bound, Atomics::Plain, move |threads| {
        let (clock, gate) = gate::<S>(2);
        let held = gate.acquire_owned(1).unwrap();
        clock.set(NOW + Duration::from_secs(9));
        let sweeping = threads.spawn({
            let gate = Arc::clone(&gate);
            move || while gate.sweep(4_096) {}
        });
        let mine = gate.acquire_owned(1).unwrap();
        drop(held);
        sweeping.join().unwrap();
        assert_eq!(gate.in_flight(&1), 1);
        drop(mine);
        assert_eq!(free(&gate, 2), 2);
    });
}

#[test]
fn release_races_turnover_and_no_permit_is_lost() {
    turnover::<Fingerprints>(Bound::Preemptions(2));
    turnover::<ExactKeys<u64>>(Bound::Preemptions(2));
}

/// The key has no permit in use, and is forgotten while a permit is taken.
fn eviction<S: Built>(bound: Bound) {
    explore(bound, Atomics::Plain, move |threads| {
        let (clock, gate) = gate::<S>(1);
        drop(gate.acquire(&1).unwrap());
        clock.set(NOW + Duration::from_secs(9));
        let sweeping = threads.spawn({
            let gate = Arc::clone(&gate);
            move || while gate.sweep(4_096) {}
        });
        let mine = gate.acquire_owned(1).unwrap();
        sweeping.join().unwrap();
        assert_eq!((gate.in_flight(&1), gate.acquire(&1).is_err()), (1, true));
        drop(mine);
        assert_eq!(gate.in_flight(&1), 0);
    });
}

#[test]
fn acquire_races_eviction_and_holds_its_place() {
    eviction::<Fingerprints>(Bound::Preemptions(2));
    eviction::<ExactKeys<u64>>(Bound::Preemptions(2));
}

/// A permit is returned while its key is reset, and another permit is taken after that.
fn reset<S: Built>(bound: Bound, atomics: Atomics) {
    explore(bound, atomics, move |threads| {
        let (_, gate) = gate::<S>(2);
        let void = gate.acquire_owned(1).unwrap();
        let resetting = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                gate.reset(&1);
                gate.acquire_owned(1).unwrap()
            }
        });
        drop(void);
        let held = resetting.join().unwrap();
        assert_eq!(gate.in_flight(&1), 1, "the void one gives back nothing of others");
        drop(held);
        assert_eq!(free(&gate, 2), 2);
    });
}

#[test]
fn release_races_reset_and_gives_back_nothing_of_others() {
    reset::<Fingerprints>(Bound::Preemptions(3), Atomics::Touched);
    reset::<ExactKeys<u64>>(Bound::Preemptions(2), Atomics::Plain);
}

/// A reset has made a permit void. The permit is returned while its key is forgotten and then
/// requested again, at the time at which the void permit was taken.
fn reset_and_eviction<S: Built>(bound: Bound) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Atomics::Plain, move |threads| {
        let (clock, gate) = gate::<S>(1);
        let void = gate.acquire_owned(1).unwrap();
        gate.reset(&1);
        let sweeping = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                clock.set(NOW + Duration::from_secs(9));
                while gate.sweep(4_096) {}
                clock.set(NOW);
            }
        });
        let mine = gate.acquire_owned(1).unwrap();
        drop(void);
        sweeping.join().unwrap();
        assert_eq!((gate.in_flight(&1), gate.acquire(&1).is_err()), (1, true));
        note.note(gate.stats().evicted > 0);
        drop(mine);
    });
    // In some executions, the key was forgotten first. In others, it was moved together with the
    // permit taken.
    seen.expect(&["false", "true"]);
}

#[test]
fn late_release_races_eviction_and_gives_back_nothing_of_others() {
    reset_and_eviction::<Fingerprints>(Bound::Preemptions(2));
    reset_and_eviction::<ExactKeys<u64>>(Bound::Preemptions(2));
}

/// Two requests each need a token of a rate and the last place. One of them passes. Neither passes
/// if each lacks a token or permit that the other is about to give back. A refused request was
/// charged to neither limit.
#[test]
fn requests_race_for_the_last_place_and_a_rate() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let (clock, gate) = gate::<Fingerprints>(1);
        drop(gate.acquire(&1).unwrap());
        let rate = SingleLimiter::builder(Quota::per_hour(5)).clock(&clock).build().unwrap();
        let rate = Arc::new(rate);
        let ask = |gate: &InFlight<u64>, rate: &SingleLimiter| {
            let permit = gate.empty_permit_owned(1);
            let is_ok = check_all(&mut [Charge::new(rate, 1), Charge::new(&permit, 1)]).is_ok();
            is_ok.then_some(permit)
        };
        let other = threads.spawn({
            let (gate, rate) = (Arc::clone(&gate), Arc::clone(&rate));
            move || ask(&gate, &rate)
        });
        let mine = ask(&gate, &rate);
        let other = other.join().unwrap();
        let passed = u64::from(mine.is_some()) + u64::from(other.is_some());
        assert_eq!((gate.in_flight(&1), rate.peek().remaining()), (passed, 5 - passed));
        note.note(passed);
    });
    seen.expect_among(&["1"]);
}

/// Two threads share a guard. The permit that it holds is returned once.
#[test]
fn two_threads_give_one_permit_back_once() {
    explore(Bound::Preemptions(3), Atomics::Touched, |threads| {
        let (_, gate) = gate::<Fingerprints>(3);
        let held = gate.acquire_owned(1).unwrap();
        let permit = Arc::new(gate.empty_permit_owned(1));
        let charge = permit.check_n(2);
        assert!(charge.is_allowed());
        let other = threads.spawn({
            let permit = Arc::clone(&permit);
            move || permit.refund(&charge)
        });
        permit.refund_n(&charge, 1);
        other.join().unwrap();
        assert_eq!((permit.count(), gate.in_flight(&1)), (0, 1));
        drop(held);
    });
}

/// Two threads take a permit with one guard. The guard holds one of the two charges, and the other
/// charge is given back.
#[test]
fn two_threads_take_one_permit_once() {
    explore(Bound::Preemptions(3), Atomics::Touched, |threads| {
        let (_, gate) = gate::<Fingerprints>(3);
        drop(gate.acquire(&1).unwrap());
        let permit = Arc::new(gate.empty_permit_owned(1));
        let other = threads.spawn({
            let permit = Arc::clone(&permit);
            move || permit.check_n(1).is_allowed()
        });
        let mine = permit.check_n(1).is_allowed();
        assert!(mine != other.join().unwrap(), "one of them takes it");
        assert_eq!((permit.count(), gate.in_flight(&1)), (1, 1));
        drop(permit);
        assert_eq!(gate.in_flight(&1), 0);
    });
}
