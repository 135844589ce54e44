//! Retirement, with the real links of `src/sync/link.rs`, the real readers of `src/sync/readers.rs` and real epochs: what
//! is replaced is freed, once, and not while a guard is held that may see it, of whichever kind it is.
//!
//! The other models have links of loom's own that free nothing early: the table on top of real epochs has
//! too many schedules. So these models are of the links alone, in the order in which the table uses them:
//! a value is linked behind the old one, then the root goes on to it, then the old one is retired.
//!
//! crossbeam-epoch is built for loom here, where it is stronger than it is compiled (loom takes sequentially
//! consistent operations for acquire and release, and a compiler fence for a fence); it is trusted.
//! Each model has a collector of its own, and each participant pins once before it begins, because the first pin
//! of a participant collects, and its fences would hide that of the next. Where all threads read in places, what they wait
//! for no more is freed at once, without an epoch, whose fences would hide those of `barrier` and the edge *left*.
//!
//! Loom's blind spot (see `src/sync.rs`) is closed for links and places: before each use of one, `Chain::touch` is.
//! Inside the epochs it stays open.
//!
//! A model that fails here may have touched freed memory; what it prints besides is not to be relied on.

#[cfg(not(crossbeam_loom))]
compile_error!("run cargo from `loom-tests/` and without RUSTFLAGS: see `.cargo/config.toml`");

mod model;

#[path = "../../src/sync/barrier.rs"]
mod barrier;
#[allow(dead_code, unused_imports)]
#[path = "../../src/sync/link.rs"]
mod link;
#[path = "../../src/sync/order.rs"]
mod order;
#[allow(dead_code)]
#[path = "../../src/sync/readers.rs"]
mod readers;

use crossbeam_epoch::{Collector, LocalHandle, unprotected};
use link::Link;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed};
use model::{Atomics, Bound, Seen, explore};
use readers::{Guard, Limbo, Reader, Readers};
use std::ptr::null_mut;
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

// SAFETY: loom checks each look at the canary, which is all that is not an atomic.
#[allow(unsafe_code)]
unsafe impl Send for Node {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Node {}

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

/// A link to the first value of a chain, and what it is reclaimed by.
struct Chain {
    root: Link<Node>,
    readers: &'static Readers,
    collector: Collector,
    touch: loom::sync::atomic::AtomicUsize,
    ledger: std::sync::Arc<Ledger>,
}

/// How a thread reads.
#[derive(Clone, Copy, Debug)]
enum By {
    /// In a place of its own.
    Place,
    /// By the epochs of the library, as all do where there is no barrier.
    Epoch,
    /// The same, beside threads that have places.
    EpochBeside,
}

/// A thread that reads.
enum Thread {
    Place(&'static Reader),
    Epoch(LocalHandle),
}

impl Chain {
    fn new(by: By) -> Self {
        // ORDERING: any; the harness's own.
        barrier::MISSING.store(matches!(by, By::Epoch), SeqCst);
        let ledger = std::sync::Arc::default();
        let readers = Readers {
            age: AtomicU64::new(0),
            first: AtomicPtr::new(null_mut()),
            limbo: Limbo {
                last: AtomicPtr::new(null_mut()),
                rest: AtomicPtr::new(null_mut()),
                queued: AtomicU64::new(0),
                is_due: AtomicBool::new(false),
                is_sorted: AtomicBool::new(false),
                awaited: AtomicU64::new(0),
            },
        };
        Self {
            root: Link::to(Node::new(&ledger)),
            readers: Box::leak(Box::new(readers)),
            collector: Collector::new(),
            touch: loom::sync::atomic::AtomicUsize::new(0),
            ledger,
        }
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

    fn thread(&self, by: By) -> Thread {
        self.touch();
        match by {
            By::Place => {
                let reader = self.readers.place();
                assert_eq!(reader.held(), 0, "it was handed on with guards");
                Thread::Place(reader)
            }
            By::Epoch | By::EpochBeside => Thread::Epoch(self.participant()),
        }
    }

    fn pin(&self, thread: &Thread) -> Guard {
        self.touch();
        match thread {
            Thread::Place(reader) => {
                self.readers.pin(reader).or_else(|| self.readers.pin_slowly(reader)).expect("there are few")
            }
            Thread::Epoch(participant) => Guard::of_epoch(participant.pin(), self.readers),
        }
    }

    /// Reads along the chain under one guard, and the first value once more. The first that it saw.
    fn read(&self, thread: &Thread) -> usize {
        let guard = self.pin(thread);
        let first = self.load(&self.root, &guard).unwrap();
        let mut node = Some(first);
        while let Some(here) = node {
            here.look();
            node = self.load(&here.next, &guard);
        }
        first.look();
        let id = first.id;
        self.touch();
        drop(guard);
        id
    }

    /// Links a next value behind the first, unless another thread did, and makes the root go on to it. True
    /// if this thread did that, and so retired the first.
    fn replace(&self, thread: &Thread) -> bool {
        let guard = self.pin(thread);
        let first = self.load(&self.root, &guard).unwrap();
        self.touch();
        let (next, _) = first.next.install(Node::new(&self.ledger), &guard);
        next.look();
        self.touch();
        let retired = self.root.advance(first, next, &guard);
        first.look();
        next.look();
        self.touch();
        drop(guard);
        retired
    }

    /// Frees what is not read any more, as far as the other threads let it.
    fn collect(&self, thread: &Thread) {
        self.touch();
        match thread {
            // SAFETY: with it, what is deferred is done at once. Nobody has another guard than those of places.
            #[allow(unsafe_code)]
            Thread::Place(_) => while self.readers.sort_out(unsafe { unprotected() }) {},
            Thread::Epoch(participant) => {
                self.readers.sort_out(&participant.pin());
                for _ in 0..3 {
                    participant.pin().flush();
                }
            }
        }
    }
}

/// Drops the chain as a table is dropped; then each value was freed once.
fn drop_and_count(chain: Arc<Chain>) {
    let Chain { mut root, collector, ledger, readers, .. } = Arc::try_unwrap(chain).ok().unwrap();
    let mut node = root.take();
    while let Some(mut last) = node {
        last.look();
        node = last.next.take();
    }
    // Nobody reads any more, so nothing waits.
    let participant = collector.register();
    while readers.sort_out(&participant.pin()) {}
    drop((participant, collector));
    for id in 0..ledger.made.load(SeqCst) {
        assert_eq!(ledger.freed(id), 1, "value {id} was leaked");
    }
    // SAFETY: it came from a box, and all threads are done.
    #[allow(unsafe_code)]
    drop(unsafe { Box::from_raw(std::ptr::from_ref(readers).cast_mut()) });
}

/// A thread retires so many values, one after the other, while another reads along them so many times.
fn retire_and_read(by: By, bound: Bound, values: usize, times: usize) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Atomics::Plain, move |threads| {
        let chain = Arc::new(Chain::new(by));
        let writer = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                let thread = chain.thread(by);
                for _ in 0..values {
                    assert!(chain.replace(&thread));
                }
                chain.collect(&thread);
            }
        });
        let thread = chain.thread(by);
        for _ in 0..times {
            chain.read(&thread);
        }
        note.note(chain.ledger.freed(0));
        writer.join().unwrap();
        drop(thread);
        drop_and_count(chain);
    });
    // When the reader was done, the first value was still there, or was freed already.
    seen.expect(&["0", "1"]);
}

#[test]
fn retire_races_a_place_and_frees_nothing_under_its_guard() {
    retire_and_read(By::Place, Bound::Preemptions(3), 1, 2);
}

#[test]
fn retire_races_a_reader_and_frees_nothing_under_its_guard() {
    retire_and_read(By::Epoch, Bound::Preemptions(3), 1, 1);
}

/// The second value is reached from the first, which is retired already, and is retired meanwhile.
#[test]
fn two_are_retired_while_a_reader_goes_from_one_to_the_other() {
    retire_and_read(By::Place, Bound::Preemptions(2), 2, 1);
    retire_and_read(By::Epoch, Bound::Preemptions(2), 2, 1);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn retire_races_a_reader_and_frees_nothing_under_its_guard_deeply() {
    retire_and_read(By::Place, Bound::Preemptions(5), 1, 2);
    retire_and_read(By::Epoch, Bound::Preemptions(5), 1, 1);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn two_are_retired_while_a_reader_goes_from_one_to_the_other_deeply() {
    retire_and_read(By::Place, Bound::Preemptions(4), 2, 1);
    retire_and_read(By::Epoch, Bound::Preemptions(4), 2, 1);
}

/// A thread reads and ends, its guard the last thing to go, and another takes its place over, or a place of its own, and
/// reads, while a third retires a value.
fn hand_on_and_retire(bound: Bound, not_seen: &[&str]) {
    let by = By::Place;
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Atomics::Plain, move |threads| {
        let chain = Arc::new(Chain::new(by));
        let read = move |chain: &Chain, leaves_first: bool| {
            let Thread::Place(reader) = chain.thread(by) else { unreachable!() };
            let leave = || {
                chain.touch();
                reader.leave_for_good();
            };
            let guard = chain.pin(&Thread::Place(reader));
            let first = chain.load(&chain.root, &guard).unwrap();
            if leaves_first {
                leave();
            }
            first.look();
            let id = first.id;
            chain.touch();
            drop(guard);
            if !leaves_first {
                leave();
            }
            id
        };
        let readers = [true, false].map(|leaves_first| {
            let chain = Arc::clone(&chain);
            threads.spawn(move || read(&chain, leaves_first))
        });
        let thread = chain.thread(By::Place);
        chain.replace(&thread);
        chain.collect(&thread);
        note.note((chain.ledger.freed(0), readers.map(|reader| reader.join().unwrap())));
        drop_and_count(chain);
    });
    // Whether the first value was freed at once, and which value each reader saw first: every combination but those.
    let freed =
        |freed| [[0, 0], [0, 1], [1, 0], [1, 1]].map(|first: [usize; 2]| format!("{:?}", (freed, first)));
    let outcomes = [freed(0), freed(1)].concat();
    let outcomes = outcomes.iter().map(String::as_str).filter(|outcome| !not_seen.contains(outcome));
    seen.expect(&outcomes.collect::<Vec<_>>());
}

#[test]
fn places_are_handed_on_while_values_are_retired() {
    // For both to come before, the third has to be held up twice.
    hand_on_and_retire(Bound::Preemptions(1), &["(1, [0, 0])"]);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn places_are_handed_on_while_values_are_retired_deeply() {
    hand_on_and_retire(Bound::Preemptions(2), &[]);
}

/// A thread leaves its place, and then its guard, while another retires what it reads, takes a place and collects from there.
#[test]
fn a_place_is_handed_on_with_all_that_was_read_there() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Atomics::Plain, move |threads| {
        let by = By::Place;
        let chain = Arc::new(Chain::new(by));
        let other = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                let thread = chain.thread(by);
                let guard = chain.pin(&thread);
                let first = chain.load(&chain.root, &guard).unwrap();
                let Thread::Place(reader) = thread else { unreachable!() };
                chain.touch();
                reader.leave_for_good();
                first.look();
                chain.touch();
                drop(guard);
                std::ptr::from_ref(reader).addr()
            }
        });
        let thread = chain.thread(by);
        assert!(chain.replace(&thread));
        chain.touch();
        let place = chain.readers.place();
        assert_eq!(place.held(), 0, "it was handed on with guards");
        let guard = chain.pin(&Thread::Place(place));
        chain.collect(&thread);
        drop(guard);
        let freed = chain.ledger.freed(0);
        note.note((other.join().unwrap() == std::ptr::from_ref(place).addr(), freed));
        drop_and_count(chain);
    });
    // Whether the place was handed on, and whether the value was freed.
    seen.expect(&["(false, 0)", "(false, 1)", "(true, 1)"]);
}

/// A thread retires more than leaves limbo at once, and another looks after it, too.
#[test]
fn a_long_limbo_is_shared_and_each_value_is_freed_once() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Atomics::Plain, move |threads| {
        let by = By::Place;
        let chain = Arc::new(Chain::new(by));
        let other = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                chain.touch();
                // SAFETY: as in `collect`.
                #[allow(unsafe_code)]
                chain.readers.sort_out(unsafe { unprotected() })
            }
        });
        let thread = chain.thread(by);
        for _ in 0..3 {
            assert!(chain.replace(&thread));
        }
        for _ in 0..2 {
            chain.touch();
            // SAFETY: as in `collect`.
            #[allow(unsafe_code)]
            chain.readers.sort_out(unsafe { unprotected() });
        }
        let passed = other.join().unwrap();
        note.note((passed, (0..3).map(|id| chain.ledger.freed(id)).sum::<usize>()));
        drop_and_count(chain);
    });
    // Whether the other handed anything on, and how many were freed by then.
    seen.expect(&["(false, 0)", "(false, 2)", "(true, 1)", "(true, 2)", "(true, 3)"]);
}

/// A thread without a place retires a value, while one reads in a place and one without.
fn retire_and_read_both(bound: Bound) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Atomics::Plain, move |threads| {
        let by = By::EpochBeside;
        let chain = Arc::new(Chain::new(by));
        let readers = [By::Place, by].map(|by| {
            let chain = Arc::clone(&chain);
            threads.spawn(move || chain.read(&chain.thread(by)))
        });
        let thread = chain.thread(by);
        assert!(chain.replace(&thread));
        chain.collect(&thread);
        note.note((chain.ledger.freed(0), readers.map(|reader| reader.join().unwrap())));
        drop(thread);
        drop_and_count(chain);
    });
    seen.expect(&["(0, [0, 1])", "(0, [1, 0])", "(0, [1, 1])", "(1, [0, 1])", "(1, [1, 0])", "(1, [1, 1])"]);
}

#[test]
fn retire_races_readers_of_both_kinds_and_frees_nothing_under_their_guards() {
    retire_and_read_both(Bound::Preemptions(1));
}

/// Two threads retire values and one reads; one of them collects.
#[test]
#[ignore = "deep: make loom-deep"]
fn two_retire_and_one_reads() {
    for by in [By::Place, By::Epoch] {
        explore(Bound::Preemptions(1), Atomics::Plain, move |threads| {
            let chain = Arc::new(Chain::new(by));
            let writers = [true, false].map(|collects| {
                let chain = Arc::clone(&chain);
                threads.spawn(move || {
                    let thread = chain.thread(by);
                    chain.replace(&thread);
                    if collects {
                        chain.collect(&thread);
                    }
                })
            });
            let thread = chain.thread(by);
            chain.read(&thread);
            for writer in writers {
                writer.join().unwrap();
            }
            drop(thread);
            drop_and_count(chain);
        });
    }
}

/// Two threads replace the same value, or one after the other, and collect.
fn retire_and_retire(by: By, bound: Bound) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Atomics::Plain, move |threads| {
        let chain = Arc::new(Chain::new(by));
        let replace = move |chain: &Chain| {
            let thread = chain.thread(by);
            let retired = chain.replace(&thread);
            chain.collect(&thread);
            u8::from(retired)
        };
        let other = threads.spawn({
            let chain = Arc::clone(&chain);
            move || replace(&chain)
        });
        let mine = replace(&chain);
        let retired = mine + other.join().unwrap();
        note.note((retired, chain.ledger.freed(0)));
        drop_and_count(chain);
    });
    // How many were retired, and whether the first of them is freed by now.
    seen.expect(&["(1, 0)", "(1, 1)", "(2, 0)", "(2, 1)"]);
}

#[test]
fn retire_races_retire_and_each_value_is_freed_once() {
    retire_and_retire(By::Place, Bound::Preemptions(2));
    retire_and_retire(By::Epoch, Bound::Preemptions(1));
}

#[test]
#[ignore = "deep: make loom-deep"]
fn retire_races_retire_and_each_value_is_freed_once_deeply() {
    retire_and_retire(By::Place, Bound::Preemptions(5));
    retire_and_retire(By::Epoch, Bound::Preemptions(2));
}
