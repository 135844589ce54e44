//! What the queues share between threads: of std, or of the model checker.

#[cfg(not(tollgate_loom))]
pub(crate) use std::{
    hash::RandomState as HashSeed,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

#[cfg(tollgate_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// A schedule that runs again finds each key in the same shard.
#[cfg(tollgate_loom)]
pub(crate) type HashSeed = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// The number of locks of a queue.
#[cfg(not(tollgate_loom))]
pub(crate) const SHARDS: u64 = 64;

/// Fewer than the keys of the model, so that two of its keys share a lock.
#[cfg(tollgate_loom)]
pub(crate) const SHARDS: u64 = 2;
