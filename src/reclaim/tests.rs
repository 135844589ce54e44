//! Tests of reclamation with one thread, or briefly with two. Race tests are in
//! `loom-tests/tests/reclaim.rs`.
//!
//! These tests share the registry with all other tests in the process, which also create and drop
//! guards. Therefore these tests run collections until their values are freed. A test that runs
//! collections while it holds a guard must run alone. Otherwise, two such tests would wait for each
//! other.

use super::guard::REGISTRY;
use super::guard::pin_in;
use super::*;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// A value with a canary, which shows a test whether the value has been freed.
#[derive(Debug)]
struct Value {
    /// 7 while the value is alive.
    canary: AtomicUsize,
    next: Link<Value>,
    freed: Arc<AtomicUsize>,
}

impl Drop for Value {
    fn drop(&mut self) {
        self.canary.store(0, SeqCst);
        self.freed.fetch_add(1, SeqCst);
    }
}

impl Chained for Value {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl Retire for Value {
    fn bytes(&self) -> usize {
        1_000
    }
}

/// A root, its bag, and the number of values freed so far.
struct Chain {
    root: Root<Value>,
    bag: Bag,
    freed: Arc<AtomicUsize>,
}

impl Chain {
    fn new() -> Self {
        let freed = Arc::new(AtomicUsize::new(0));
        Self { root: Root::to(Self::value(&freed)), bag: Bag::new(), freed }
    }

    fn value(freed: &Arc<AtomicUsize>) -> Value {
        Value { canary: AtomicUsize::new(7), next: Link::null(), freed: Arc::clone(freed) }
    }

    /// Replaces the value that the root points to.
    fn replace(&self) {
        self.under_guard(|first, guard| {
            assert!(first.next.install(Self::value(&self.freed), guard).is_ok());
            assert!(self.root.advance(&first, guard, &self.bag));
        });
    }

    /// Calls `test` with the first value, and with the guard under which the value was found.
    fn under_guard(&self, test: impl Fn(Followed<'_, Value>, &Guard)) {
        under_guard(|guard| {
            let first = self.root.load(guard)?.expect("it is never null");
            test(first, guard);
            Ok(())
        });
    }

    fn freed(&self) -> usize {
        self.freed.load(SeqCst)
    }

    /// Runs collections until `freed` values have been freed.
    fn collect_until(&self, freed: usize) {
        until(|| {
            self.bag.collect();
            self.freed() >= freed
        });
        assert_eq!(self.freed(), freed);
    }
}

/// Repeats `step` until it returns true. A guard held by another test may delay this, but not for
/// long.
fn until(mut step: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !step() {
        assert!(Instant::now() < end, "a guard is held for longer than a test takes");
    }
}

/// Runs `test`, which waits while it holds a guard. No other such test runs at the same time.
fn alone(test: impl FnOnce()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    test();
}

#[test]
fn what_a_guard_has_loaded_waits_for_it_and_what_comes_later_does_not() {
    alone(|| {
        let chain = Chain::new();
        chain.under_guard(|first, _| {
            for _ in 0..10 {
                chain.replace();
                chain.bag.collect();
            }
            // The second value is also kept if it was born in the guard's era. This depends on
            // whether a collection started by another test has ended that era.
            until(|| {
                chain.bag.collect();
                chain.freed() >= 8
            });
            (0..10).for_each(|_| chain.bag.collect());
            let waiting = 10 - chain.freed();
            assert!((1..=2).contains(&waiting), "{waiting}");
            assert_eq!((first.canary.load(SeqCst), chain.bag.bytes()), (7, 1_000 * waiting));
        });
        chain.collect_until(10);
        assert_eq!(chain.bag.bytes(), 0);
    });
}

#[test]
fn what_is_found_under_a_guard_is_stale_when_its_era_has_ended() {
    let [chain, other] = [(); 2].map(|()| Chain::new());
    chain.under_guard(|first, guard| {
        chain.replace();
        chain.bag.collect();
        assert!(first.next().is_err() && chain.root.load(guard).is_err() && other.root.load(guard).is_err());
        // A second guard is created in the current era.
        chain.under_guard(|second, _| {
            chain.replace();
            (0..10).for_each(|_| chain.bag.collect());
            assert_eq!((chain.freed(), chain.bag.bytes()), (0, 2_000));
            assert_eq!([first, second].map(|value| value.canary.load(SeqCst)), [7, 7]);
        });
    });
    chain.collect_until(2);
}

/// `attempt` is called again each time another thread has changed a value that `attempt` had read.
#[test]
fn what_is_attempted_again_is_attempted_under_another_guard() {
    alone(|| {
        let (chain, mut attempts) = (Chain::new(), 0);
        under_guard(|guard| {
            chain.root.load(guard)?;
            attempts += 1;
            chain.replace();
            // The values that earlier attempts have found are freed.
            chain.collect_until(attempts - 1);
            if attempts == 10 { Ok(()) } else { Err(Retry) }
        });
    });
}

#[test]
fn a_guard_that_follows_another_lets_go_of_all() {
    alone(|| {
        let chain = Chain::new();
        let guard = pin();
        chain.replace();
        (0..10).for_each(|_| chain.bag.collect());
        assert_eq!(chain.freed(), 0);
        drop(guard);
        let guard = RefCell::new(Some(pin()));
        chain.collect_until(1);
        // Another guard of the same thread has its own era.
        chain.under_guard(|value, _| {
            chain.replace();
            drop(guard.take());
            guard.replace(Some(pin()));
            (0..10).for_each(|_| chain.bag.collect());
            assert_eq!((chain.freed(), value.canary.load(SeqCst)), (1, 7));
        });
        drop(guard.take());
        chain.collect_until(2);
    });
}

#[test]
fn guards_of_one_thread_end_in_any_order() {
    let chain = Chain::new();
    let first = RefCell::new(Some(pin()));
    chain.under_guard(|value, _| {
        drop(first.take());
        let third = pin();
        chain.replace();
        (0..10).for_each(|_| chain.bag.collect());
        assert_eq!((chain.freed(), value.canary.load(SeqCst)), (0, 7));
        first.replace(Some(third));
    });
    drop(first);
    chain.collect_until(1);
}

#[test]
fn a_thread_may_hold_many_guards() {
    let chain = Chain::new();
    let guards: RefCell<Vec<_>> = RefCell::new((0..100).map(|_| pin()).collect());
    chain.under_guard(|value, _| {
        guards.take();
        chain.replace();
        (0..10).for_each(|_| chain.bag.collect());
        assert_eq!((chain.freed(), value.canary.load(SeqCst)), (0, 7));
    });
    chain.collect_until(1);
}

#[test]
fn a_collection_looks_at_a_few_hundred_values() {
    let chain = Chain::new();
    (0..1_000).for_each(|_| chain.replace());
    let mut before = 0;
    until(|| {
        chain.bag.collect();
        let freed = chain.freed();
        assert!(freed - before <= 256, "{before}, then {freed}");
        before = freed;
        before == 1_000
    });
    assert_eq!(chain.bag.bytes(), 0);
}

/// A parked thread may keep many values, but does not delay the freeing of others.
#[test]
fn what_is_kept_holds_up_nothing_that_is_retired_later() {
    const KEPT: usize = if cfg!(miri) { 300 } else { 10_000 };
    const LATER: usize = if cfg!(miri) { 300 } else { 10_000 };
    alone(|| {
        let chain = Chain::new();
        chain.under_guard(|first, guard| {
            let mut last = first.get();
            for _ in 0..KEPT {
                last = last.next.install(Chain::value(&chain.freed), guard).ok().unwrap();
            }
        });
        let parked = pin();
        for _ in 0..KEPT {
            chain.under_guard(|first, guard| assert!(chain.root.advance(&first, guard, &chain.bag)));
        }
        let mut later = 0;
        let mut replace = || {
            chain.replace();
            chain.bag.tidy();
            later += 1;
        };
        (0..LATER).for_each(|_| replace());
        // Guards held by other tests may delay this.
        until(|| {
            replace();
            chain.bag.bytes() < 1_000 * KEPT + 4 * (32 << 10)
        });
        drop(parked);
        chain.collect_until(KEPT + later);
    });
}

/// A call may retire many values at once, after which the limiter may retire nothing more.
#[test]
fn many_values_that_are_retired_at_once_are_freed_by_the_calls_after_it() {
    let chain = Chain::new();
    (0..1_000).for_each(|_| chain.replace());
    // A guard held by another test may keep some of the values for a while.
    until(|| {
        (0..64).for_each(|_| chain.bag.tidy());
        chain.freed() > 900
    });
}

#[test]
fn a_collection_is_due_for_what_was_retired_and_once_more_for_what_was_kept() {
    let chain = Chain::new();
    // Each value counts as a thousand bytes, so 33 values make a collection due.
    until(|| {
        (0..33).for_each(|_| chain.replace());
        chain.bag.tidy();
        chain.freed() > 0
    });
    chain.under_guard(|value, _| {
        (0..40).for_each(|_| chain.replace());
        chain.bag.tidy();
        assert_eq!(value.canary.load(SeqCst), 7);
    });
    let waiting = chain.bag.bytes();
    assert!(waiting > 0);
    until(|| {
        (0..4096).for_each(|_| chain.bag.tidy());
        chain.bag.bytes() < waiting
    });
}

#[test]
fn a_bag_that_is_dropped_frees_what_waits() {
    let chain = Chain::new();
    let freed = Arc::clone(&chain.freed);
    let guard = pin();
    (0..3).for_each(|_| chain.replace());
    drop(chain);
    assert_eq!(freed.load(SeqCst), 4);
    drop(guard);
}

/// If a value is freed under a guard, its canary or the sanitizer reports that.
#[test]
fn readers_never_see_what_was_freed() {
    const LOOKS: usize = if cfg!(miri) { 50 } else { 50_000 };
    let chain = &Chain::new();
    let (done, looks) = (AtomicBool::new(false), [(); 2].map(|()| AtomicUsize::new(0)));
    let replaced = thread::scope(|scope| {
        let readers = looks.each_ref().map(|looks| {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    chain.under_guard(|mut value, _| {
                        if looks.load(SeqCst) % 16 == 0 {
                            // Yields for long enough that a collection can run.
                            thread::yield_now();
                        }
                        // Follow the chain for a few values, as far as the era allows.
                        for _ in 0..3 {
                            assert_eq!(value.canary.load(SeqCst), 7);
                            let Ok(Some(next)) = value.next() else { break };
                            value = next;
                        }
                    });
                    looks.fetch_add(1, SeqCst);
                }
            })
        });
        let mut replaced = 0;
        // Stop if a reader has ended, because a reader ends early only if it finds a fault.
        while !readers.iter().any(ScopedJoinHandle::is_finished)
            && (replaced < LOOKS || looks.iter().any(|looks| looks.load(SeqCst) < LOOKS))
        {
            chain.replace();
            replaced += 1;
            chain.bag.tidy();
        }
        done.store(true, SeqCst);
        replaced
    });
    chain.collect_until(replaced);
}

/// Without a heavy half, checks would be slower, and no other test would detect the difference.
#[test]
fn a_thread_makes_guards_at_once_where_there_is_a_heavy_half() {
    drop(pin());
    assert_eq!(pin_in(0).is_some(), barrier::is_there());
    assert_eq!(barrier::is_there(), cfg!(all(target_os = "linux", not(miri))), "refused by a sandbox?");
}

thread_local! {
    static LATE: Late = const { Late };
}

struct Late;

impl Drop for Late {
    fn drop(&mut self) {
        // The thread's participant is already handed on.
        assert!(pin_in(0).is_none());
        let chain = Chain::new();
        chain.under_guard(|value, _| {
            chain.replace();
            (0..10).for_each(|_| chain.bag.collect());
            assert_eq!((chain.freed(), value.canary.load(SeqCst)), (0, 7));
        });
        chain.collect_until(1);
    }
}

/// The thread-locals that were created first are dropped last.
#[test]
fn a_thread_that_ends_can_still_read() {
    let ends = thread::spawn(|| {
        LATE.with(|Late| ());
        let (first, second) = (pin(), pin());
        drop((first, second));
    });
    assert!(ends.join().is_ok());
}

#[test]
fn participants_are_handed_on_and_not_made_anew() {
    let before = REGISTRY.participants();
    for _ in 0..if cfg!(miri) { 100 } else { 1_000 } {
        thread::spawn(|| drop(pin())).join().unwrap();
    }
    // Other tests also create threads.
    assert!(REGISTRY.participants() < before + if cfg!(miri) { 30 } else { 300 });
}

#[test]
fn the_owner_frees_a_chain_to_its_end() {
    let chain = Chain::new();
    let freed = Arc::clone(&chain.freed);
    chain.under_guard(|first, guard| {
        let second = first.next.install(Chain::value(&freed), guard).ok().unwrap();
        assert!(second.next.install(Chain::value(&freed), guard).is_ok());
    });
    drop(chain);
    assert_eq!(freed.load(SeqCst), 3);
}

/// Under a guard whose era has ended, a thread links a value and then uses it.
#[test]
fn a_guard_meets_what_is_linked_under_it() {
    let [chain, other] = [(); 2].map(|()| Chain::new());
    chain.under_guard(|first, guard| {
        other.replace();
        other.bag.collect();
        assert!(guard.is_old());
        let second = first.next.install(Chain::value(&chain.freed), guard).ok().unwrap();
        chain.under_guard(|first, guard| assert!(chain.root.advance(&first, guard, &chain.bag)));
        chain.replace();
        (0..10).for_each(|_| chain.bag.collect());
        assert_eq!((chain.freed(), second.canary.load(SeqCst)), (0, 7));
    });
    chain.collect_until(2);
}

#[test]
fn a_value_that_comes_second_is_handed_back() {
    let chain = Chain::new();
    chain.under_guard(|first, guard| {
        let linked = first.next.install(Chain::value(&chain.freed), guard).ok().unwrap();
        let second = first.next.install(Chain::value(&chain.freed), guard);
        assert!(second.is_err() && chain.freed() == 0);
        drop(second);
        assert_eq!((chain.freed(), linked.canary.load(SeqCst)), (1, 7));
    });
}
