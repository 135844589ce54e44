//! Runs a model and fails if it explored nothing.
//!
//! A model is a closure that loom calls once for every schedule that it finds. A model must not
//! read a real clock, make random choices that change which memory is accessed, or vary the number
//! of its threads.

#![allow(dead_code, unreachable_pub)]

pub mod stores;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tollgate::sync::ModelSwitch;

/// The schedules that are explored.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// All schedules.
    Exhaustive,
    /// All schedules with at most this many preemptions.
    Preemptions(usize),
}

/// The behaviour of the atomics: see `src/sync.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomics {
    /// Every access conflicts with every other, so that no interleaving of `load; compare_exchange`
    /// is skipped.
    Touched,
    /// Accesses conflict as in plain loom. There are fewer executions, and some interleavings are
    /// skipped. A line of the table is read only up to its first vacant slot.
    Plain,
}

/// The extent of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    pub executions: usize,
    pub threads: usize,
}

/// Starts the threads of one execution and counts them.
#[derive(Clone)]
pub struct Threads(Arc<AtomicUsize>);

impl Threads {
    pub fn spawn<T: 'static>(&self, body: impl FnOnce() -> T + 'static) -> loom::thread::JoinHandle<T> {
        self.0.fetch_add(1, SeqCst);
        loom::thread::spawn(body)
    }
}

/// The switches of the shim are process-wide, so models run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Explores `body`, even if there is nothing to explore.
pub fn explore_any(
    bound: Bound,
    atomics: Atomics,
    body: impl Fn(&Threads) + Sync + Send + 'static,
) -> Explored {
    // A failed model has reported its failure; the next model may still run.
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    ModelSwitch::Touch.set(atomics == Atomics::Touched);
    ModelSwitch::StopAtVacant.set(atomics == Atomics::Plain);
    ModelSwitch::FailWeakOnce.set(false);
    ModelSwitch::LeaseHints.set(false);
    let mut builder = loom::model::Builder::new();
    // These are set here instead of by the environment, because they cut the search short and then
    // report success.
    builder.max_duration = None;
    builder.max_permutations = None;
    builder.max_branches = 20_000;
    builder.preemption_bound = match bound {
        Bound::Exhaustive => None,
        Bound::Preemptions(most) => Some(most),
    };
    let executions = Arc::new(AtomicUsize::new(0));
    let most_threads = Arc::new(AtomicUsize::new(0));
    let (counted, most) = (Arc::clone(&executions), Arc::clone(&most_threads));
    let start = Instant::now();
    builder.check(move || {
        counted.fetch_add(1, SeqCst);
        let threads = Threads(Arc::new(AtomicUsize::new(1)));
        body(&threads);
        most.fetch_max(threads.0.load(SeqCst), SeqCst);
    });
    let explored = Explored { executions: executions.load(SeqCst), threads: most_threads.load(SeqCst) };
    let name = std::thread::current().name().unwrap_or("model").to_owned();
    println!("{name}: {explored:?}, {bound:?}, {atomics:?}, {:.1?}", start.elapsed());
    explored
}

/// Explores `body`. Fails if the model has only one thread or one execution, because it has then
/// explored nothing.
pub fn explore(bound: Bound, atomics: Atomics, body: impl Fn(&Threads) + Sync + Send + 'static) -> Explored {
    let explored = explore_any(bound, atomics, body);
    assert!(explored.threads >= 2, "one thread races nobody: {explored:?}");
    assert!(explored.executions >= 2, "one execution explores nothing: {explored:?}");
    explored
}

/// Records the outcomes of a model, over all its executions.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub fn note(&self, outcome: impl std::fmt::Debug) {
        let outcome = format!("{outcome:?}");
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.contains(&outcome) {
            seen.push(outcome);
            seen.sort();
        }
    }

    /// Checks that the model has shown these outcomes and no others.
    #[track_caller]
    pub fn expect(&self, outcomes: &[&str]) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*seen, outcomes, "the outcomes that were seen");
    }

    /// Checks that the model has shown these outcomes, and perhaps others.
    #[track_caller]
    pub fn expect_among(&self, outcomes: &[&str]) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_seen = |outcome: &&&str| seen.iter().any(|other| other == *outcome);
        assert_eq!(outcomes.iter().filter(is_seen).count(), outcomes.len(), "{outcomes:?} of {seen:?}");
    }
}
