//! Reclamation, using the real code of `src/reclaim`. A replaced value is freed once, and never
//! while a guard that may see it is held.
//!
//! The other models have their own links, which free nothing early, because the table combined with
//! the real reclamation has too many schedules. The models here cover only a chain of links, used
//! in the same order as by the table: a value is linked behind the first value, the root advances
//! to the new value, and the first value is retired.
//!
//! Guards are made by `pin`, as in the library, with participants that belong to loom's threads.
//! Loom's blind spot (see `src/sync.rs`) is closed everywhere: the atomics of participants and bags
//! are touched, and a touch precedes each use of a link, whose pointer comes from crossbeam-epoch.
//!
//! The two halves of the barrier are fences here. These fences compensate for orderings that are
//! too weak, so the models of the edges *new era*, *left* and *handed on*, which do not need the
//! barrier, also run without it.
//!
//! A model that fails here may have accessed freed memory, so the rest of its output is not
//! reliable.

#[cfg(not(crossbeam_loom))]
compile_error!("run cargo from `loom-tests/` and without RUSTFLAGS: see `.cargo/config.toml`");

mod model;

// The module of its crate that `src/reclaim` uses.
use tollgate::sync;

#[allow(dead_code)]
#[path = "../../src/reclaim/bag.rs"]
mod bag;
#[path = "../../src/reclaim/barrier.rs"]
mod barrier;
#[allow(dead_code)]
#[path = "../../src/reclaim/chain.rs"]
mod chain;
#[path = "../../src/reclaim/coin.rs"]
mod coin;
#[path = "../../src/reclaim/guard.rs"]
mod guard;
#[allow(dead_code)]
#[path = "../../src/reclaim/link.rs"]
mod link;
#[path = "../../src/reclaim/order.rs"]
mod order;

use bag::{Bag, Retire};
use barrier::Halves;
use chain::{Chained, Followed, Root, under_guard};
use guard::{GUARDS, Guard, Retry, pin};
use link::Link;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::Relaxed;
use model::{Atomics, Bound, Explored, Seen, Threads};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The number of values, and how often each was freed. Loom does not explore accesses to these
/// counts.
#[derive(Debug, Default)]
struct Ledger {
    made: AtomicUsize,
    freed: [AtomicUsize; 5],
}

impl Ledger {
    fn freed(&self, id: usize) -> usize {
        self.freed[id].load(SeqCst)
    }
}

/// A stand-in for an array: a value with a link to the next.
#[derive(Debug)]
struct Node {
    id: usize,
    next: Link<Node>,
    /// The canary is written when the node is made and when it is freed. Loom fails if a read of
    /// the canary is not ordered between these writes.
    canary: UnsafeCell<u64>,
    ledger: std::sync::Arc<Ledger>,
}

// SAFETY: loom checks each access to the canary, which is the only field that is not atomic.
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
        // SAFETY: loom checks that no thread writes to the canary meanwhile.
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

impl Chained for Node {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl Retire for Node {
    fn bytes(&self) -> usize {
        1
    }
}

/// A root, its chain of values, and the bag for retired values.
struct Chain {
    root: Root<Node>,
    bag: Bag,
    touch: loom::sync::atomic::AtomicUsize,
    ledger: std::sync::Arc<Ledger>,
}

impl Chain {
    fn new() -> Arc<Self> {
        let ledger = std::sync::Arc::default();
        let (root, bag) = (Root::to(Node::new(&ledger)), Bag::new());
        Arc::new(Self { root, bag, touch: loom::sync::atomic::AtomicUsize::new(0), ledger })
    }

    fn touch(&self) {
        // ORDERING: relaxed, so that the access makes loom see a conflict but orders nothing.
        self.touch.fetch_add(0, Relaxed);
    }

    fn load<'g>(&'g self, guard: &'g Guard) -> Result<Followed<'g, Node>, Retry> {
        self.touch();
        self.root.load(guard).map(Option::unwrap)
    }

    fn next<'g>(&self, node: Followed<'g, Node>) -> Result<Option<Followed<'g, Node>>, Retry> {
        self.touch();
        node.next()
    }

    /// Reads along the chain from the root under this guard, and then reads each value once more.
    /// Returns the first value.
    fn read(&self, guard: &Guard) -> Result<usize, Retry> {
        let first = self.load(guard)?;
        let (mut at, mut seen) = (first, [first; 4]);
        let end = loop {
            at.look();
            seen[at.id % 4] = at;
            match self.next(at) {
                Ok(Some(next)) => at = next,
                end => break end,
            }
        };
        seen.iter().for_each(|node| node.look());
        end.map(|_| first.id)
    }

    /// Links a value behind the first one, unless another thread has done so, and advances the root
    /// to it. Returns true if this thread advanced the root, and thus retired the first value.
    fn replace(&self) -> bool {
        under_guard(|guard| {
            let first = self.load(guard)?;
            self.touch();
            if let Ok(next) = first.next.install(Node::new(&self.ledger), guard) {
                next.look();
            }
            self.touch();
            let retired = self.root.advance(&first, guard, &self.bag);
            first.look();
            Ok(retired)
        })
    }

    fn collect(&self) {
        self.touch();
        self.bag.collect();
    }
}

/// Drops the chain in the same way as a table is dropped. Checks that each value was freed once,
/// and that no value was freed while it was in use.
fn drop_and_count(chain: Arc<Chain>) {
    let Chain { root, bag, ledger, .. } = Arc::try_unwrap(chain).ok().unwrap();
    drop(root);
    let waiting = (0..ledger.made.load(SeqCst)).filter(|&id| ledger.freed(id) == 0).count();
    // A new value was never retired if another thread had linked its own value first.
    assert_eq!(bag.bytes(), waiting, "bytes that wait are counted");
    drop(bag);
    for id in 0..ledger.made.load(SeqCst) {
        assert_eq!(ledger.freed(id), 1, "value {id} was leaked");
    }
}

fn explore(bound: Bound, halves: Halves, body: impl Fn(&Threads) + Sync + Send + 'static) -> Explored {
    model::explore(bound, Atomics::Touched, move |threads| {
        halves.set();
        body(threads);
    })
}

/// One thread retires this many values, one after the other, and collects. Meanwhile another thread
/// reads along the chain.
fn retire_and_read(halves: Halves, bound: Bound, values: usize) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, halves, move |threads| {
        let chain = Chain::new();
        let writer = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                for _ in 0..values {
                    assert!(chain.replace());
                }
                chain.collect();
            }
        });
        under_guard(|guard| chain.read(guard));
        note.note(chain.ledger.freed(0));
        writer.join().unwrap();
        drop_and_count(chain);
    });
    // After the reader had finished, the first value either still existed or had already been
    // freed.
    seen.expect(&["0", "1"]);
}

#[test]
fn nothing_is_freed_under_a_guard() {
    retire_and_read(Halves::Fences, Bound::Preemptions(2), 1);
    retire_and_read(Halves::Alike, Bound::Preemptions(2), 1);
}

/// The first value is already retired, and leads to the second value, which is retired while it is
/// read.
#[test]
fn nothing_is_freed_that_is_reached_from_a_retired_value() {
    retire_and_read(Halves::Fences, Bound::Preemptions(2), 2);
}

#[test]
#[ignore = "deep: make loom-deep"]
fn nothing_is_freed_under_a_guard_deeply() {
    for halves in [Halves::Fences, Halves::Alike] {
        retire_and_read(halves, Bound::Preemptions(3), 1);
        retire_and_read(halves, Bound::Preemptions(3), 2);
    }
}

/// A guard is held while values are linked and retired. The values found under the guard stay
/// readable. Once the guard's era has ended, no value is found, neither from the root nor from a
/// value found before.
#[test]
fn nothing_is_freed_under_a_guard_that_goes_on() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Halves::Fences, move |threads| {
        let chain = Chain::new();
        let guard = pin();
        let first = chain.load(&guard).unwrap();
        let writer = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                for _ in 0..3 {
                    assert!(chain.replace());
                    chain.collect();
                }
                [1, 2].map(|id| chain.ledger.freed(id))
            }
        });
        let later = chain.load(&guard).map(|later| later.look());
        let mut at = Ok(Some(first));
        while let Ok(Some(node)) = at {
            node.look();
            at = chain.next(node);
        }
        first.look();
        drop(guard);
        note.note((later, writer.join().unwrap()));
        drop_and_count(chain);
    });
    // The second value was born in the era of the guard. The third was born later, so it is freed.
    seen.expect(&["(Err(Retry), [0, 1])", "(Err(Retry), [1, 1])", "(Ok(()), [0, 1])", "(Ok(()), [1, 1])"]);
}

/// A thread that has read a later era finds that the values retired in an earlier era are unlinked.
/// This model runs without the barrier, which is not needed.
#[test]
fn who_reads_a_new_era_finds_what_was_retired_unlinked() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Halves::Nothing, move |threads| {
        let chain = Chain::new();
        let era = pin().era();
        let writer = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                assert!(chain.replace());
                chain.collect();
                chain.collect();
            }
        });
        let guard = pin();
        let is_new = guard.era() != era;
        if is_new {
            let _ = chain.read(&guard);
        }
        drop(guard);
        note.note(is_new);
        writer.join().unwrap();
        drop_and_count(chain);
    });
    seen.expect(&["false", "true"]);
}

/// A thread that drops a guard of the old era and makes another finds that the values retired in
/// the old era are unlinked.
#[test]
fn a_guard_that_is_renewed_finds_what_was_retired_unlinked() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Halves::Nothing, move |threads| {
        let chain = Chain::new();
        let guard = pin();
        let era = guard.era();
        let writer = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                assert!(chain.replace());
                chain.collect();
                chain.collect();
            }
        });
        drop(guard);
        let guard = pin();
        let is_new = guard.era() != era;
        if is_new {
            let _ = chain.read(&guard);
        }
        drop(guard);
        note.note(is_new);
        writer.join().unwrap();
        drop_and_count(chain);
    });
    seen.expect(&["false", "true"]);
}

/// Reads under a guard happen before any thread sees that the guard has been dropped. This model
/// runs without the barrier.
#[test]
fn what_was_read_under_a_guard_was_read_before_it_is_dropped() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Halves::Nothing, move |threads| {
        let chain = Chain::new();
        let guard = pin();
        let first = chain.load(&guard).unwrap();
        let writer = threads.spawn({
            let chain = Arc::clone(&chain);
            // The collection began after the guard was made, so it sees either the guard or that
            // the guard has been dropped.
            move || {
                assert!(chain.replace());
                chain.collect();
                chain.collect();
                chain.ledger.freed(0)
            }
        });
        first.look();
        chain.touch();
        drop(guard);
        note.note(writer.join().unwrap());
        drop_and_count(chain);
    });
    seen.expect(&["0", "1"]);
}

/// A second guard of a thread, in a later era, does not change the era of the first guard. Neither
/// does a third guard that follows the second.
#[test]
fn a_guard_beside_another_covers_what_it_has_loaded() {
    for is_followed in [false, true] {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Preemptions(2), Halves::Fences, move |threads| {
            let chain = Chain::new();
            let first = pin();
            let old = chain.load(&first).unwrap();
            let writer = threads.spawn({
                let chain = Arc::clone(&chain);
                move || {
                    assert!(chain.replace());
                    chain.collect();
                    chain.collect();
                }
            });
            let mut second = pin();
            if is_followed {
                drop(second);
                second = pin();
            }
            let new = chain.load(&second).map(|new| new.id);
            old.look();
            // The guards are dropped in either order.
            chain.touch();
            drop(second);
            old.look();
            chain.touch();
            drop(first);
            note.note(new);
            writer.join().unwrap();
            drop_and_count(chain);
        });
        seen.expect(&["Err(Retry)", "Ok(0)", "Ok(1)"]);
    }
}

/// The first of two guards is dropped first. The second guard still covers the values that were
/// loaded under it.
#[test]
fn the_second_guard_goes_on_when_the_first_is_dropped() {
    explore(Bound::Preemptions(1), Halves::Fences, move |threads| {
        let chain = Chain::new();
        let writer = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                assert!(chain.replace());
                chain.collect();
                chain.collect();
            }
        });
        let first = pin();
        let second = pin();
        let _ = chain.load(&first).map(|node| node.look());
        let loaded = chain.load(&second);
        chain.touch();
        drop(first);
        let _ = loaded.map(|node| node.look());
        chain.touch();
        drop(second);
        writer.join().unwrap();
        drop_and_count(chain);
    });
}

/// A guard does not keep a value that only an earlier guard of its thread has met.
#[test]
fn a_renewed_guard_lets_go_of_what_it_had_loaded() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Halves::Fences, move |threads| {
        let chain = Chain::new();
        let writer = threads.spawn({
            let chain = Arc::clone(&chain);
            move || {
                assert!(chain.replace());
                chain.collect();
                chain.collect();
                chain.ledger.freed(0)
            }
        });
        let guard = pin();
        let _ = chain.load(&guard).map(|node| node.look());
        drop(guard);
        let guard = pin();
        let _ = chain.load(&guard).map(|node| node.look());
        note.note(writer.join().unwrap());
        drop(guard);
        drop_and_count(chain);
    });
    // The value may be freed even while the guard is held.
    seen.expect(&["0", "1"]);
}

/// A thread reads and ends. Another thread takes over its participant, or uses another participant,
/// and reads, while a third thread retires a value.
fn hand_on_and_retire(bound: Bound) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, Halves::Fences, move |threads| {
        let chain = Chain::new();
        let readers = [(); 2].map(|()| {
            let chain = Arc::clone(&chain);
            threads.spawn(move || {
                chain.touch();
                under_guard(|guard| chain.read(guard))
            })
        });
        chain.replace();
        chain.collect();
        note.note((chain.ledger.freed(0), readers.map(|reader| reader.join().unwrap())));
        drop_and_count(chain);
    });
    // Whether the first value was freed immediately, and which value each reader saw first.
    seen.expect_among(&[
        "(0, [0, 1])",
        "(0, [1, 0])",
        "(0, [1, 1])",
        "(1, [0, 1])",
        "(1, [1, 0])",
        "(1, [1, 1])",
    ]);
}

#[test]
fn participants_are_handed_on_while_values_are_retired() {
    hand_on_and_retire(Bound::Preemptions(1));
}

#[test]
#[ignore = "deep: make loom-deep"]
fn participants_are_handed_on_while_values_are_retired_deeply() {
    hand_on_and_retire(Bound::Preemptions(2));
}

/// A participant is taken over after its thread has ended. The reads under its earlier guards
/// happened before the takeover. This model runs without the barrier.
#[test]
fn a_participant_is_handed_on_with_all_that_was_read_there() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Halves::Nothing, move |threads| {
        let chain = Chain::new();
        // Loom does not explore accesses to this atomic.
        let first = std::sync::Arc::new(AtomicUsize::new(0));
        let reader = threads.spawn({
            let (chain, first) = (Arc::clone(&chain), std::sync::Arc::clone(&first));
            move || {
                let guard = pin();
                first.store(std::ptr::from_ref(guard.participant()).addr(), SeqCst);
                chain.load(&guard).unwrap().look();
                chain.touch();
            }
        });
        chain.touch();
        let mine = std::ptr::from_ref(pin().participant()).addr();
        let is_taken_over = mine == first.load(SeqCst);
        // Otherwise nothing orders the reader without the barrier.
        if is_taken_over {
            assert!(chain.replace());
            chain.collect();
            chain.collect();
        }
        note.note((is_taken_over, chain.ledger.freed(0)));
        reader.join().unwrap();
        drop_and_count(chain);
    });
    seen.expect(&["(false, 0)", "(true, 1)"]);
}

/// A thread holds one guard more than it has participants. The participant of that guard is left
/// while the guard is held. It is taken over only after the guard is dropped, and the reads under
/// the guard happened before the takeover. This model runs without the barrier.
#[test]
fn a_participant_that_is_left_under_a_guard_is_taken_over_after_it() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(3), Halves::Nothing, move |threads| {
        let chain = Chain::new();
        // Loom does not explore accesses to this atomic.
        let left = std::sync::Arc::new(AtomicUsize::new(0));
        let reader = threads.spawn({
            let (chain, left) = (Arc::clone(&chain), std::sync::Arc::clone(&left));
            move || {
                let others = [(); GUARDS].map(|()| pin());
                let guard = pin();
                left.store(std::ptr::from_ref(guard.participant()).addr(), SeqCst);
                drop(others);
                chain.load(&guard).unwrap().look();
                chain.touch();
            }
        });
        chain.touch();
        let mine = std::ptr::from_ref(pin().participant()).addr();
        let is_taken_over = mine == left.load(SeqCst);
        // Otherwise nothing orders the reader without the barrier.
        if is_taken_over {
            assert!(chain.replace());
            chain.collect();
            chain.collect();
        }
        note.note((is_taken_over, chain.ledger.freed(0)));
        reader.join().unwrap();
        drop_and_count(chain);
    });
    seen.expect(&["(false, 0)", "(true, 1)"]);
}

/// A collection puts back a value that another thread has retired, and a third thread frees it.
/// This model runs without the barrier, which would order all three threads.
#[test]
fn a_value_that_is_put_back_is_whole_for_the_next_collection() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(1), Halves::Nothing, move |threads| {
        let chain = Chain::new();
        let collect = [(); 2].map(|()| {
            let chain = Arc::clone(&chain);
            threads.spawn(move || chain.collect())
        });
        (0..3).for_each(|_| assert!(chain.replace()));
        for collects in collect {
            collects.join().unwrap();
        }
        note.note((0..3).map(|id| chain.ledger.freed(id)).sum::<usize>());
        drop_and_count(chain);
    });
    seen.expect_among(&["0", "3"]);
}

/// Two threads replace the same value, or two values one after the other, and collect.
fn two_retire(halves: Halves, bound: Bound) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, halves, move |threads| {
        let chain = Chain::new();
        let replace = move |chain: &Chain| {
            let retired = chain.replace();
            chain.collect();
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
    // The number of retired values, and whether the first of them has been freed.
    seen.expect(&["(1, 0)", "(1, 1)", "(2, 0)", "(2, 1)"]);
}

#[test]
fn two_retire_and_each_value_is_freed_once() {
    two_retire(Halves::Fences, Bound::Preemptions(2));
}

#[test]
#[ignore = "deep: make loom-deep"]
fn two_retire_and_each_value_is_freed_once_deeply() {
    two_retire(Halves::Fences, Bound::Preemptions(3));
    two_retire(Halves::Alike, Bound::Preemptions(2));
}

/// More values wait than one collection examines, and two threads collect. One thread examines the
/// values that the other leaves, and no value is lost or freed twice.
#[test]
fn a_long_bag_is_shared_and_each_value_is_freed_once() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Preemptions(2), Halves::Fences, move |threads| {
        let chain = Chain::new();
        for _ in 0..3 {
            assert!(chain.replace());
        }
        let other = threads.spawn({
            let chain = Arc::clone(&chain);
            move || chain.collect()
        });
        chain.collect();
        other.join().unwrap();
        note.note((0..3).map(|id| chain.ledger.freed(id)).sum::<usize>());
        drop_and_count(chain);
    });
    seen.expect_among(&["3"]);
}
