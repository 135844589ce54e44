//! Races for a place in the table. The table has one line of four slots, so that all keys share the
//! line whatever the seed is.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Seen, explore};
use std::time::Duration;
use tollgate::{DecisionSource, Limiter, ManualClock, Quota, Tick, WhenFull};

const NOW: Tick = Tick::from_nanos(5_000_000_000);

/// Creates a table whose slots form a single line.
fn limiter(max_keys: usize, per_second: u64, full: WhenFull) -> Arc<Limiter<u64>> {
    assert!(max_keys <= 2);
    let builder = Limiter::builder(Quota::per_second(per_second)).max_keys(max_keys).when_full(full);
    // No turnover happens here: see `turnover.rs`.
    Arc::new(builder.grace(Duration::MAX).clock(ManualClock::new()).build().unwrap())
}

#[test]
fn insert_races_insert_keeps_one() {
    explore(Bound::Preemptions(3), Atomics::Touched, |threads| {
        let gate = limiter(2, 1, WhenFull::Deny);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&7)
        });
        let (mine, other) = (gate.at(NOW).check(&7), other.join().unwrap());
        // The key has one slot, so one of the two threads got the only token.
        assert_eq!(u8::from(mine.is_allowed()) + u8::from(other.is_allowed()), 1);
        assert_eq!(gate.len(), 1);
        assert!(!gate.at(NOW).check(&7).is_allowed());
    });
}

#[test]
fn insert_races_insert_of_another_key_and_both_stay() {
    explore(Bound::Preemptions(3), Atomics::Touched, |threads| {
        let gate = limiter(2, 1, WhenFull::Deny);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&8).is_allowed()
        });
        assert!(gate.at(NOW).check(&7).is_allowed());
        assert!(other.join().unwrap());
        assert_eq!(gate.len(), 2);
        assert!(!gate.at(NOW).check(&7).is_allowed());
        assert!(!gate.at(NOW).check(&8).is_allowed());
    });
}

/// A batch looks up all its keys before it charges the first one, so its view of the keys is older
/// than the view of a single check.
#[test]
fn batch_races_insert_of_its_keys_and_each_is_charged_once() {
    explore(Bound::Preemptions(2), Atomics::Touched, |threads| {
        let gate = limiter(2, 1, WhenFull::Deny);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                let mut decisions = Vec::new();
                gate.check_many(&[7, 8], &mut decisions);
                [decisions[0].charged(), decisions[1].charged()]
            }
        });
        let mine = [8, 7].map(|key| gate.check(&key).charged());
        let other = other.join().unwrap();
        assert_eq!((mine[1] + other[0], mine[0] + other[1]), (1, 1));
        assert_eq!(gate.len(), 2);
    });
}

#[test]
fn inserts_race_for_the_last_place_and_one_gets_it() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let gate = limiter(1, 1, WhenFull::Deny);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&8)
        });
        let (mine, other) = (gate.at(NOW).check(&7), other.join().unwrap());
        assert_eq!(gate.len(), 1);
        assert_ne!(mine.is_allowed(), other.is_allowed());
        let refused = if mine.is_allowed() { other } else { mine };
        assert_eq!(refused.source(), DecisionSource::Policy);
        note.note(mine.is_allowed());
    });
    seen.expect(&["false", "true"]);
}

/// The key may be refused a moment early, because its own place is reserved for it: see `table`.
#[test]
fn insert_races_insert_of_the_same_key_for_the_last_place() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let gate = limiter(1, 2, WhenFull::Deny);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&7)
        });
        let (mine, other) = (gate.at(NOW).check(&7), other.join().unwrap());
        assert!(mine.is_allowed() || other.is_allowed());
        assert_eq!(gate.len(), 1);
        let charged = mine.charged() + other.charged();
        assert_eq!(gate.at(NOW).peek(&7).remaining(), 2 - charged);
        note.note((mine.source(), other.source()));
    });
    seen.expect(&["(Key, Key)", "(Key, Policy)", "(Policy, Key)"]);
}

#[test]
fn keys_beyond_the_cap_race_for_the_shared_token() {
    explore(Bound::Preemptions(3), Atomics::Touched, |threads| {
        let gate = limiter(1, 1, WhenFull::Share);
        assert!(gate.at(NOW).check(&1).is_allowed());
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&8)
        });
        let (mine, other) = (gate.at(NOW).check(&7), other.join().unwrap());
        assert_ne!(mine.is_allowed(), other.is_allowed());
        assert_eq!((mine.source(), other.source()), (DecisionSource::Overflow, DecisionSource::Overflow));
    });
}

fn two_of_one_key_and_one_of_another(bound: Bound) {
    explore(bound, Atomics::Touched, |threads| {
        let gate = limiter(2, 1, WhenFull::Deny);
        let [other, third] = [8, 7].map(|key| {
            let gate = Arc::clone(&gate);
            threads.spawn(move || gate.at(NOW).check(&key))
        });
        let mine = gate.at(NOW).check(&7);
        let (other, third) = (other.join().unwrap(), third.join().unwrap());
        assert_eq!(mine.charged() + third.charged(), 1);
        assert!(other.is_allowed() || other.source() == DecisionSource::Policy);
        assert_eq!(gate.len(), if other.is_allowed() { 2 } else { 1 });
    });
}

#[test]
fn three_inserts_race_two_of_them_of_one_key() {
    two_of_one_key_and_one_of_another(Bound::Preemptions(1));
}

#[test]
#[ignore = "deep: make loom-deep"]
fn three_inserts_race_two_of_them_of_one_key_more_deeply() {
    two_of_one_key_and_one_of_another(Bound::Preemptions(2));
}
