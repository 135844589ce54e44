//! Tests of the model checker, with and without the shim's additional access: outcomes that it must
//! find, outcomes that must stay possible, and outcomes that must never occur.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Seen, explore, explore_any};
use tollgate::sync::Atomic;
use tollgate::sync::Ordering::{self, Acquire, Relaxed, Release};

/// One thread loads and then exchanges, while another thread reads.
fn read_races_load_then_exchange(atomics: Atomics) -> (usize, Seen) {
    let seen = Seen::default();
    let note = seen.clone();
    let explored = explore_any(Bound::Exhaustive, atomics, move |threads| {
        let cell = Arc::new(Atomic::<u64>::new(0));
        let writer = threads.spawn({
            let cell = Arc::clone(&cell);
            move || {
                let old = cell.load(Relaxed);
                cell.compare_exchange(old, 1, Relaxed, Relaxed).unwrap();
            }
        });
        note.note(cell.load(Relaxed));
        writer.join().unwrap();
    });
    (explored.executions, seen)
}

#[test]
fn must_be_seen_both_orders_of_a_read_and_an_exchange_after_a_load() {
    let (executions, seen) = read_races_load_then_exchange(Atomics::Touched);
    assert!(executions >= 2);
    seen.expect(&["0", "1"]);
}

/// If this fails, loom now explores the interleavings that it used to skip, and the shim's
/// additional access can be removed.
#[test]
fn without_the_shim_the_reader_never_sees_the_exchange() {
    let (executions, seen) = read_races_load_then_exchange(Atomics::Plain);
    assert_eq!(executions, 1);
    seen.expect(&["0"]);
}

/// Message passing: a reader that sees the flag reads the data.
fn message_passing(store: Ordering, load: Ordering) -> Seen {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
        let (data, flag) = (Arc::new(Atomic::<u64>::new(0)), Arc::new(Atomic::<u64>::new(0)));
        let writer = threads.spawn({
            let (data, flag) = (Arc::clone(&data), Arc::clone(&flag));
            move || {
                data.store(1, Relaxed);
                flag.store(1, store);
            }
        });
        if flag.load(load) == 1 {
            note.note(data.load(Relaxed));
        }
        writer.join().unwrap();
    });
    seen
}

#[test]
fn must_stay_possible_a_relaxed_flag_without_its_data() {
    message_passing(Relaxed, Relaxed).expect(&["0", "1"]);
}

#[test]
fn must_stay_possible_half_an_edge_publishes_nothing() {
    message_passing(Release, Relaxed).expect(&["0", "1"]);
    message_passing(Relaxed, Acquire).expect(&["0", "1"]);
}

#[test]
fn must_never_be_seen_a_released_flag_without_its_data() {
    message_passing(Release, Acquire).expect(&["1"]);
}

#[test]
fn must_stay_possible_store_buffering() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
        let (a, b) = (Arc::new(Atomic::<u64>::new(0)), Arc::new(Atomic::<u64>::new(0)));
        let other = threads.spawn({
            let (a, b) = (Arc::clone(&a), Arc::clone(&b));
            move || {
                b.store(1, Relaxed);
                a.load(Relaxed)
            }
        });
        a.store(1, Relaxed);
        let mine = b.load(Relaxed);
        note.note((mine, other.join().unwrap()));
    });
    seen.expect(&["(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)"]);
}

#[test]
#[should_panic(expected = "one execution explores nothing")]
fn a_model_that_explores_nothing_fails() {
    explore(Bound::Exhaustive, Atomics::Plain, |threads| {
        threads.spawn(|| ()).join().unwrap();
    });
}

#[test]
#[should_panic(expected = "one thread races nobody")]
fn a_model_without_threads_fails() {
    explore(Bound::Exhaustive, Atomics::Plain, |_| ());
}
