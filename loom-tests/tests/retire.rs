//! Retirement, with the real links of `src/sync/link.rs` and the real epochs: what is replaced is freed,
//! once, and not while a guard is held that may see it.
//!
//! The other models have links of loom's own that free nothing early: the table on top of real epochs has
//! too many schedules. So these models are of the links alone, in the order in which the table uses them:
//! a value is linked behind the old one, then the root goes on to it, then the old one is retired.
//!
//! crossbeam-epoch is built for loom here, where it is stronger than it is compiled (loom takes sequentially
//! consistent operations for acquire and release, and a compiler fence for a fence); it is trusted.
//! Each model has a collector of its own, and each thread pins once before it begins, because the first pin
//! of a participant collects, and its fences would hide that of the next.
//!
//! Loom's blind spot (see `src/sync.rs`) is closed for the links: before each use of one, `Chain::touch` is.
//! Inside the epochs it stays open.
//!
//! A model that fails here may have touched freed memory; what it prints besides is not to be relied on.

#[cfg(not(crossbeam_loom))]
compile_error!("run cargo from `loom-tests/` and without RUSTFLAGS: see `.cargo/config.toml`");

mod model;

#[allow(dead_code, unused_imports)]
#[path = "../../src/sync/link.rs"]
mod link;
#[path = "../../src/sync/order.rs"]
mod order;

use crossbeam_epoch::{Collector, LocalHandle};
use link::{Guard, Link, collect};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::Relaxed;
use model::{Atomics, Bound, Seen, explore};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// How many values there were, and how often each was freed; no part of what loom explores.
#[derive(Debug, Default)]
struct Ledger {
    made: AtomicUsize,
    freed: [AtomicUsize; 4],
}

impl Ledger {
    fn freed(&self, id: usize) -> usize {
        self.freed[id].load(SeqCst)
    }
}

/// What stands for an era: a value with a link to the next.
#[derive(Debug)]
struct Node {
    id: usize,
    next: Link<Node>,
    /// Written when it is made and when it is freed. Loom fails if a look at it is not ordered between.
    canary: UnsafeCell<u64>,
    ledger: std::sync::Arc<Ledger>,
}

impl Node {
    fn new(ledger: &std::sync::Arc<Ledger>) -> Self {
        let id = ledger.made.fetch_add(1, SeqCst);
        Self { id, next: Link::null(), canary: UnsafeCell::new(7), ledger: ledger.clone() }
    }

    fn look(&self) {
        assert_eq!(self.ledger.freed(self.id), 0, "value {} was freed under a guard", self.id);
        // SAFETY: loom checks that nobody writes it meanwhile.
        #[allow(unsafe_code)]
        self.canary.with(|canary| assert_eq!(unsafe { *canary }, 7));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.canary.with_mut(|_| ());
        assert_eq!(self.ledger.freed[self.id].fetch_add(1, SeqCst), 0, "value {} was freed twice", self.id);
    }
}

/// A link to the first value of a chain, and the epochs by which it is reclaimed.
struct Chain {
    root: Link<Node>,
    collector: Collector,
    touch: loom::sync::atomic::AtomicUsize,
    ledger: std::sync::Arc<Ledger>,
}

impl Chain {
    fn new() -> Self {
        let ledger = std::sync::Arc::default();
        let root = Link::to(Node::new(&ledger));
        Self { root, collector: Collector::new(), touch: loom::sync::atomic::AtomicUsize::new(0), ledger }
    }

    fn load<'g>(&self, link: &Link<Node>, guard: &'g Guard) -> Option<&'g Node> {
        self.touch();
        link.load(guard)
    }

    fn touch(&self) {
        // ORDERING: relaxed, so that it makes loom see a conflict and orders nothing.
        self.touch.fetch_add(0, Relaxed);
    }

    fn participant(&self) -> LocalHandle {
        let participant = self.collector.register();
        drop(participant.pin());
        participant
    }

    /// Reads along the chain under one guard, and the first value once more.
    fn read(&self, participant: &LocalHandle) {
        let guard = participant.pin();
        let first = self.load(&self.root, &guard).unwrap();
        let mut node = Some(first);
        while let Some(here) = node {
            here.look();
            node = self.load(&here.next, &guard);
        }
        first.look();
    }

    /// Links a next value behind the first, unless another thread did, and makes the root go on to it. True
    /// if this thread did that, and so retired the first.
    fn replace(&self, participant: &LocalHandle) -> bool {
        let guard = participant.pin();
        let first = self.load(&self.root, &guard).unwrap();
        self.touch();
        let (next, _) = first.next.install(Node::new(&self.ledger), &guard);
        next.look();
        self.touch();
        let retired = self.root.advance(first, next, &guard);
        if retired {
            collect(&guard);
        }
        first.look();
        next.look();
        retired
    }

    /// Lets the epoch go on as far as the other threads let it.
    fn settle(&self, participant: &LocalHandle) {
        for _ in 0..2 {
            collect(&participant.pin());
        }
    }
}

/// Drops the chain as a table is dropped; then each value was freed once.
fn drop_and_count(chain: Arc<Chain>) {
    let Chain { mut root, collector, ledger, .. } = Arc::try_unwrap(chain).ok().unwrap();
    let mut node = root.take();
    while let Some(mut last) = node {
        last.look();
        node = last.next.take();
    }
    drop(collector);
    for id in 0..ledger.made.load(SeqCst) {
        assert_eq!(ledger.freed(id), 1, "value {id} was leaked");
    }
}

/// A thread retires so many values, one after the other, while another reads along them.
fn retire_and_read(bound: Bound, values: usize) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Atomics::Plain, move |threads| {
        let chain = Arc::new(Chain::new());
        let writer = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                let participant = chain.participant();
                for _ in 0..values {
                    assert!(chain.replace(&participant));
                }
                chain.settle(&participant);
            }
        });
        let participant = chain.participant();
        chain.read(&participant);
        note.note(chain.ledger.freed(0));
        writer.join().unwrap();
        drop(participant);
        drop_and_count(chain);
    });
    // When the reader was done, the first value was still there, or was freed already.
    seen.expect(&["0", "1"]);
}

#[test]
fn retire_races_a_reader_and_frees_nothing_under_its_guard() {
    retire_and_read(Bound::Preemptions(3), 1);
}

/// The second value is reached from the first, which is retired already, and is retired meanwhile.
#[test]
fn two_are_retired_while_a_reader_goes_from_one_to_the_other() {
    retire_and_read(Bound::Preemptions(2), 2);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn retire_races_a_reader_and_frees_nothing_under_its_guard_deeply() {
    retire_and_read(Bound::Preemptions(5), 1);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn two_are_retired_while_a_reader_goes_from_one_to_the_other_deeply() {
    retire_and_read(Bound::Preemptions(4), 2);
}

/// Two threads retire values and one reads.
#[test]
#[ignore = "deep: make loom-deep"]
fn two_retire_and_one_reads() {
    explore(Bound::Preemptions(1), Atomics::Plain, |threads| {
        let chain = Arc::new(Chain::new());
        let writers = [true, false].map(|settles| {
            let chain = Arc::clone(&chain);
            threads.spawn(move || {
                let participant = chain.participant();
                chain.replace(&participant);
                if settles {
                    chain.settle(&participant);
                }
            })
        });
        let participant = chain.participant();
        chain.read(&participant);
        for writer in writers {
            writer.join().unwrap();
        }
        drop(participant);
        drop_and_count(chain);
    });
}

/// Two threads replace the same value, or one after the other.
fn retire_and_retire(bound: Bound) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Atomics::Plain, move |threads| {
        let chain = Arc::new(Chain::new());
        let other = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                let participant = chain.participant();
                let retired = chain.replace(&participant);
                chain.settle(&participant);
                retired
            }
        });
        let participant = chain.participant();
        let mine = chain.replace(&participant);
        chain.settle(&participant);
        let retired = u8::from(mine) + u8::from(other.join().unwrap());
        note.note((retired, chain.ledger.freed(0)));
        drop(participant);
        drop_and_count(chain);
    });
    // How many were retired, and whether the first of them is freed by now.
    seen.expect(&["(1, 0)", "(1, 1)", "(2, 0)", "(2, 1)"]);
}

#[test]
fn retire_races_retire_and_each_value_is_freed_once() {
    retire_and_retire(Bound::Preemptions(1));
}

#[test]
#[ignore = "deep: make loom-deep"]
fn retire_races_retire_and_each_value_is_freed_once_deeply() {
    retire_and_retire(Bound::Preemptions(2));
}
