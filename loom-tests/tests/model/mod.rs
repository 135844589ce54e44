//! Runs a model and fails if it explored nothing.
//!
//! A model is a closure that loom calls once for every schedule it finds. What it may not do: read
//! a real clock, be random where that changes what is accessed, or leave the number of its threads
//! to chance.

#![allow(dead_code, unreachable_pub)]

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tollgate::sync::ModelSwitch;

/// Which schedules are explored.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// All of them.
    Exhaustive,
    /// All in which threads are preempted at most so many times.
    Preemptions(usize),
}

/// How the atomics behave: see `src/sync.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomics {
    /// Every access conflicts with every other, so that no interleaving of `load; compare_exchange`
    /// is skipped.
    Touched,
    /// As loom has them: fewer executions, some interleavings skipped. And a line of the table is
    /// read as far as its first vacant slot.
    Plain,
}

/// What a run explored.
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

/// The switches of the shim belong to the process, so models run one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Explores `body`, whatever that amounts to.
pub fn explore_any(
    bound: Bound,
    atomics: Atomics,
    body: impl Fn(&Threads) + Sync + Send + 'static,
) -> Explored {
    // A model that failed has said so; the next may run all the same.
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    ModelSwitch::Touch.set(atomics == Atomics::Touched);
    ModelSwitch::StopAtVacant.set(atomics == Atomics::Plain);
    ModelSwitch::FailWeakOnce.set(false);
    let mut builder = loom::model::Builder::new();
    // Set here and not by the environment: these cut the search and report success.
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

/// Explores `body`; a model with one thread or one execution has explored nothing, and fails.
pub fn explore(bound: Bound, atomics: Atomics, body: impl Fn(&Threads) + Sync + Send + 'static) -> Explored {
    let explored = explore_any(bound, atomics, body);
    assert!(explored.threads >= 2, "one thread races nobody: {explored:?}");
    assert!(explored.executions >= 2, "one execution is no exploration: {explored:?}");
    explored
}

/// Notes which outcomes a model has shown, over all its executions.
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

    /// Exactly these outcomes were shown.
    #[track_caller]
    pub fn expect(&self, outcomes: &[&str]) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*seen, outcomes, "the outcomes that were seen");
    }

    /// These outcomes were shown, and perhaps others.
    #[track_caller]
    pub fn expect_among(&self, outcomes: &[&str]) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_seen = |outcome: &&&str| seen.iter().any(|other| other == *outcome);
        assert_eq!(outcomes.iter().filter(is_seen).count(), outcomes.len(), "{outcomes:?} of {seen:?}");
    }
}
