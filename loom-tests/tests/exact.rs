//! Races of the store of exact keys: sealing, charging, unlinking, and inserting again.
//!
//! These models run the library's own code for cells, places and rounds, compiled for loom. Only
//! the index is a stand-in (see `src/sync/index.rs`), because scc is not built for loom. The
//! stand-in is a list behind loom's mutex, which does each lookup, insertion and removal in one
//! step. Threads may switch between any two of these steps, so the models explore every order of
//! the protocol's edges, but not scc's internal steps.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Explored, Seen, explore};
use std::time::Duration;
use tollgate::store::ExactKeys;
use tollgate::{DecisionSource, Limiter, ManualClock, Quota, Tick, WhenFull};

const NOW: Tick = Tick::from_nanos(5_000_000_000);
/// A time at which keys that were charged at `NOW` are idle.
const LATER: Tick = Tick::from_nanos(9_000_000_000);
/// A time at which keys that were charged at `LATER` are idle.
const LAST: Tick = Tick::from_nanos(13_000_000_000);

/// With this grace, a round at one of these times is not followed by another at the same time.
const GRACE: Duration = Duration::from_nanos(1);

type Gate = Arc<Limiter<u64, ExactKeys<u64>>>;

/// Creates a limiter with the keys 1 to `keys`, each charged one token at `NOW`.
fn with_keys(max_keys: usize, per_second: u64, keys: u64) -> Gate {
    let builder = Limiter::<u64>::builder(Quota::per_second(per_second)).exact_keys().max_keys(max_keys);
    let gate =
        Arc::new(builder.grace(GRACE).when_full(WhenFull::Deny).clock(ManualClock::new()).build().unwrap());
    for key in 1..=keys {
        assert!(gate.at(NOW).check(&key).is_allowed());
    }
    gate
}

fn sweep(gate: &Gate, now: Tick) {
    while gate.at(now).sweep(1) {}
}

/// Checks that every key in the store holds a place: once all keys are idle, a sweep forgets all of
/// them, and as many new keys fit as before.
fn all_places_come_back(gate: &Gate, max_keys: u64) {
    // The first sweep ends the current round, if there is one.
    sweep(gate, LAST);
    sweep(gate, LAST + GRACE);
    assert_eq!((gate.len(), gate.at(LAST).keys().count()), (0, 0));
    for key in 101..=100 + max_keys {
        assert_eq!(gate.at(LAST).check(&key).source(), DecisionSource::Key);
    }
    assert_eq!(gate.at(LAST).check(&100).source(), DecisionSource::Policy);
}

/// An idle key is evicted while it returns.
fn eviction_and_charge(bound: Bound, atomics: Atomics) -> Explored {
    let seen = Seen::default();
    let note = seen.clone();
    let explored = explore(bound, atomics, move |threads| {
        let gate = with_keys(4, 3, 1);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || sweep(&gate, LATER)
        });
        let charged = gate.at(LATER).check(&1).charged() + gate.at(LATER).check(&1).charged();
        other.join().unwrap();
        assert_eq!(charged, 2);
        assert_eq!(gate.at(LATER).peek(&1).remaining(), 1, "no charge is lost");
        assert_eq!((gate.len(), gate.at(LATER).keys().count()), (1, 1));
        note.note(gate.stats().evicted);
    });
    seen.expect(&["0", "1"]);
    explored
}

#[test]
fn eviction_races_charge_and_loses_none() {
    eviction_and_charge(Bound::Preemptions(3), Atomics::Touched);
}

/// The time at which a key becomes idle if all its tokens were charged at `NOW`.
const IDLE: Tick = Tick::from_nanos(6_000_000_000);

/// A thread stops after reading the clock, and charges its key late. Meanwhile the key is
/// forgotten, or is about to be forgotten.
#[test]
fn eviction_races_late_charge_of_an_exact_key() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Atomics::Touched, move |threads| {
        let gate = with_keys(4, 1, 1);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || sweep(&gate, LATER)
        });
        let late = gate.at(NOW).check(&1);
        assert!(!late.is_allowed() || late.at() == IDLE, "it is given a second burst: {late:?}");
        note.note(late.is_allowed());
        other.join().unwrap();
    });
    seen.expect(&["false", "true"]);
}

/// A thread inserts a key while another thread inserts the same key and forgets it again.
#[test]
fn insertion_races_a_whole_life_of_its_key() {
    explore(Bound::Preemptions(1), Atomics::Plain, |threads| {
        let gate = with_keys(4, 1, 0);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                let early = gate.at(NOW).check(&1);
                sweep(&gate, LATER);
                early
            }
        });
        let late = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&1)
        });
        // The main thread waits, so that it need not be preempted for the other threads to run.
        let (early, late) = (other.join().unwrap(), late.join().unwrap());
        let mut times = [&early, &late].map(|charge| charge.is_allowed().then(|| charge.at()));
        times.sort_unstable();
        assert!([[None, Some(NOW)], [Some(NOW), Some(IDLE)]].contains(&times), "{times:?}");
    });
}

/// An idle key with one token is evicted while two threads request it again.
fn eviction_and_inserts(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = with_keys(4, 1, 1);
        let sweeper = threads.spawn({
            let gate = Arc::clone(&gate);
            move || sweep(&gate, LATER)
        });
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(LATER).check(&1).charged()
        });
        let charged = gate.at(LATER).check(&1).charged() + other.join().unwrap();
        sweeper.join().unwrap();
        assert_eq!(charged, 1, "one burst of one token");
        assert!(!gate.at(LATER).check(&1).is_allowed());
        assert_eq!((gate.len(), gate.at(LATER).keys().count()), (1, 1));
    })
}

#[test]
fn eviction_races_insert_and_one_cell_lives() {
    eviction_and_inserts(Bound::Preemptions(2), Atomics::Plain);
    eviction_and_inserts(Bound::Preemptions(1), Atomics::Touched);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn eviction_races_insert_and_one_cell_lives_deeply() {
    eviction_and_inserts(Bound::Preemptions(2), Atomics::Touched);
}

fn insert_and_insert(bound: Bound) -> Explored {
    explore(bound, Atomics::Touched, |threads| {
        let gate = with_keys(2, 1, 0);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&7).charged()
        });
        let charged = gate.at(NOW).check(&7).charged() + other.join().unwrap();
        assert_eq!((charged, gate.len(), gate.at(NOW).keys().count()), (1, 1, 1));
        all_places_come_back(&gate, 2);
    })
}

#[test]
fn insert_races_insert_of_one_exact_key_and_one_cell_lives() {
    insert_and_insert(Bound::Preemptions(2));
}

#[test]
#[ignore = "deep: make loom-deep"]
fn insert_races_insert_of_one_exact_key_and_one_cell_lives_deeply() {
    insert_and_insert(Bound::Preemptions(3));
}

#[test]
fn inserts_of_exact_keys_race_for_the_last_place_and_one_gets_it() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Touched, move |threads| {
        let gate = with_keys(1, 1, 0);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || gate.at(NOW).check(&8)
        });
        let (mine, other) = (gate.at(NOW).check(&7), other.join().unwrap());
        assert_ne!(mine.is_allowed(), other.is_allowed());
        assert_eq!(gate.len(), 1);
        note.note(mine.is_allowed());
    });
    seen.expect(&["false", "true"]);
}

/// Two idle keys give back their places while two other keys take places.
fn places_come_and_go(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = with_keys(3, 1, 2);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || sweep(&gate, LATER)
        });
        // There are as many keys as places, but some keys may arrive too early to find a place.
        let mine: Vec<_> = (3..=4).map(|key| gate.at(LATER).check(&key)).collect();
        other.join().unwrap();
        let tracked = mine.iter().filter(|decision| decision.source() == DecisionSource::Key).count();
        // An idle key may also remain if the sweeper saw too late that a round had begun.
        assert!((tracked..=3).contains(&gate.at(LATER).keys().count()));
        all_places_come_back(&gate, 3);
    })
}

/// Two threads take places while a third gives one back.
fn places_are_popped_by_two(bound: Bound, atomics: Atomics) -> Explored {
    explore(bound, atomics, |threads| {
        let gate = with_keys(2, 1, 2);
        sweep(&gate, LATER);
        let other = threads.spawn({
            let gate = Arc::clone(&gate);
            move || {
                // This key is inserted and evicted, so its place is pushed on top of another
                // returned place.
                let _ = gate.at(LATER).check(&3);
                sweep(&gate, LAST);
            }
        });
        let _ = gate.at(LAST).check(&4);
        let _ = gate.at(LAST).check(&5);
        other.join().unwrap();
        let last = LAST + Duration::from_secs(4);
        sweep(&gate, last);
        sweep(&gate, last + Duration::from_secs(1));
        assert_eq!((gate.len(), gate.at(last).keys().count()), (0, 0));
    })
}

#[test]
fn places_come_and_go_and_each_has_one_owner() {
    places_come_and_go(Bound::Preemptions(1), Atomics::Touched);
    places_are_popped_by_two(Bound::Preemptions(1), Atomics::Touched);
}
