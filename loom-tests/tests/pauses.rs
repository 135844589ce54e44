//! Races of pauses with each other, with checks, resets and sweeps, in both stores.

mod model;

use loom::sync::Arc;
use model::stores::Built;
use model::{Atomics, Bound, Explored, Seen, explore};
use std::time::Duration;
use tollgate::store::{ExactKeys, Fingerprints};
use tollgate::{DecisionSource, Limiter, ManualClock, Quota, Tick};

const NOW: Tick = Tick::from_nanos(5_000_000_000);
const LATER: Tick = Tick::from_nanos(9_000_000_000);
const LAST: Tick = Tick::from_nanos(13_000_000_000);

/// A turnover at one of these times is not followed by another at the same time.
const GRACE: Duration = Duration::from_nanos(1);

type Gate<S> = Arc<Limiter<u64, S>>;

fn gate<S: Built>() -> Gate<S> {
    let builder = Limiter::builder(Quota::per_second(9)).max_keys(4).grace(GRACE);
    Arc::new(S::build(builder.clock(ManualClock::new())))
}

/// Pauses key 1 from `now` until `end`.
fn pause<S: Built>(gate: &Gate<S>, now: Tick, end: Tick) {
    gate.at(now).pause(&1, end.since(now)).unwrap();
}

/// Checks that key 1 is paused until `end`, as of `now`.
#[track_caller]
fn is_paused<S: Built>(gate: &Gate<S>, now: Tick, end: Tick) {
    assert_eq!(gate.at(now).check(&1).retry_after(), Some(end.since(now)));
    assert!(gate.at(end).check(&1).is_allowed());
}

/// Two threads pause one key. With `first`, the key is already paused.
fn two_pauses<S: Built>(first: bool, bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, move |threads| {
        let gate = gate::<S>();
        if first {
            pause(&gate, NOW, NOW + GRACE);
        }
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || pause(&gate, NOW, LAST)
        });
        pause(&gate, NOW, LATER);
        assert!(!gate.at(NOW).check(&1).is_allowed());
        other.join().unwrap();
        is_paused(&gate, NOW, LAST);
    })
}

#[test]
fn pauses_race_and_the_later_end_holds() {
    for first in [false, true] {
        two_pauses::<Fingerprints>(first, Bound::Preemptions(2), Atomics::Plain);
        two_pauses::<ExactKeys<u64>>(first, Bound::Preemptions(2), Atomics::Plain);
        two_pauses::<Fingerprints>(first, Bound::Preemptions(1), Atomics::Touched);
        two_pauses::<ExactKeys<u64>>(first, Bound::Preemptions(1), Atomics::Touched);
    }
}

/// A key is checked while it is paused for the first time.
fn pause_and_check<S: Built>(bound: Bound, atomics: Atomics) -> Explored {
    let seen = Seen::default();
    let note = seen.clone();
    let explored = explore(bound, atomics, move |threads| {
        let gate = gate::<S>();
        let pauser = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                pause(&gate, NOW, LATER);
                gate.at(NOW).check(&1).is_allowed()
            }
        });
        let charged = gate.at(NOW).check(&1).charged();
        assert!(!pauser.join().unwrap());
        is_paused(&gate, NOW, LATER);
        note.note(charged);
    });
    seen.expect(&["0", "1"]);
    explored
}

#[test]
fn pause_races_check_and_holds_for_the_next() {
    pause_and_check::<Fingerprints>(Bound::Preemptions(2), Atomics::Touched);
    pause_and_check::<ExactKeys<u64>>(Bound::Preemptions(2), Atomics::Touched);
}

/// A pause that has ended is forgotten while the key is paused again.
fn pause_and_eviction<S: Built>(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, move |threads| {
        let gate = gate::<S>();
        pause(&gate, NOW, NOW + GRACE);
        let sweeper = threads.spawn({
            let gate = Arc::clone(&gate);
            move || while gate.at(LATER).sweep(1) {}
        });
        pause(&gate, LATER, LAST);
        assert!(!gate.at(LATER).check(&1).is_allowed());
        sweeper.join().unwrap();
        is_paused(&gate, LATER, LAST);
    })
}

#[test]
fn pause_races_the_end_of_an_earlier_one_and_holds() {
    pause_and_eviction::<Fingerprints>(Bound::Preemptions(1), Atomics::Plain);
    pause_and_eviction::<ExactKeys<u64>>(Bound::Preemptions(2), Atomics::Plain);
}

/// A paused key is reset while it is paused again.
fn pause_and_reset<S: Built>(bound: Bound, atomics: Atomics) -> Explored {
    let seen = Seen::default();
    let note = seen.clone();
    let explored = explore(bound, atomics, move |threads| {
        let gate = gate::<S>();
        pause(&gate, NOW, LATER);
        let resetter = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.reset(&1)
        });
        pause(&gate, NOW, LAST);
        resetter.join().unwrap();
        // Either the reset or the pause happened last.
        let allowed = gate.at(NOW).check(&1).is_allowed();
        assert!(allowed || gate.at(NOW).check(&1).retry_after() == Some(LAST.since(NOW)));
        note.note(allowed);
    });
    seen.expect(&["false", "true"]);
    explored
}

#[test]
fn pause_races_reset_and_the_last_of_them_holds() {
    pause_and_reset::<Fingerprints>(Bound::Preemptions(2), Atomics::Plain);
    pause_and_reset::<ExactKeys<u64>>(Bound::Preemptions(2), Atomics::Plain);
}

/// Two checks of one key race for its only token, and the denial starts a penalty.
fn penalty_and_check<S: Built>(bound: Bound, atomics: Atomics) -> Explored {
    let seen = Seen::default();
    let note = seen.clone();
    let explored = explore(bound, atomics, move |threads| {
        let builder = Limiter::builder(Quota::per_second(1)).max_keys(4).grace(GRACE);
        let builder = builder.penalty(LATER.since(NOW)).clock(ManualClock::new());
        let gate: Gate<S> = Arc::new(S::build(builder));
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&1).is_allowed()
        });
        let decision = gate.at(NOW).check(&1);
        if !decision.is_allowed() {
            // From this denial on, each check until the end of the penalty is denied.
            is_paused_at(&gate, NOW, LATER);
        }
        let allowed = other.join().unwrap();
        assert_ne!(decision.is_allowed(), allowed);
        // A second has refilled the token, but the penalty lasts, and a check does not extend it.
        is_paused_at(&gate, NOW + Duration::from_secs(2), LATER);
        assert!(gate.at(LATER).check(&1).is_allowed());
        note.note(allowed);
    });
    seen.expect(&["false", "true"]);
    explored
}

/// Checks that key 1 is paused until `end`, as of `now`. The check changes nothing.
#[track_caller]
fn is_paused_at<S: Built>(gate: &Gate<S>, now: Tick, end: Tick) {
    let decision = gate.at(now).check(&1);
    assert_eq!((decision.source(), decision.retry_after()), (DecisionSource::Pause, Some(end.since(now))));
}

#[test]
fn penalty_starts_with_the_denial_and_holds_for_the_next_check() {
    // A limiter of exact keys that has its second store from the beginning needs more stack than a
    // thread of a model has. The races of its pauses are those of the models above.
    penalty_and_check::<Fingerprints>(Bound::Preemptions(2), Atomics::Touched);
}
