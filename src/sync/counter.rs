//! A count that nothing is decided by in a race: a statistic, or a hint when something is due.
//!
//! It publishes nothing and nothing rests on its order, so all its operations are relaxed, and the models do
//! not explore it: there it is an atomic of std's, which loom does not see.

#[cfg(not(tollgate_loom))]
use super::Atomic;
use std::sync::atomic::Ordering::Relaxed;

#[cfg(not(tollgate_loom))]
type Count = Atomic<u64>;
#[cfg(tollgate_loom)]
type Count = std::sync::atomic::AtomicU64;

/// See the page of this module.
#[derive(Debug)]
pub(crate) struct Counter(Count);

impl Counter {
    pub(crate) fn new() -> Self {
        Self(Count::new(0))
    }

    pub(crate) fn get(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.0.load(Relaxed)
    }

    pub(crate) fn add(&self, more: u64) {
        // ORDERING: relaxed; a count.
        self.0.fetch_add(more, Relaxed);
    }

    /// Begins to count again.
    pub(crate) fn reset(&self) {
        // ORDERING: relaxed; a count.
        self.0.store(0, Relaxed);
    }
}
