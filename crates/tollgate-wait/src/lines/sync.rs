//! The synchronization types of the queues: from std, or from the model checker.

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

/// A hash without a random seed, so that a repeated schedule finds each key in the same shard.
#[cfg(tollgate_loom)]
pub(crate) type HashSeed = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// The number of locks of a queue.
#[cfg(not(tollgate_loom))]
pub(crate) const SHARDS: u64 = 64;

/// The number of locks is less than the number of keys in the model, so that two of the keys share
/// a lock.
#[cfg(tollgate_loom)]
pub(crate) const SHARDS: u64 = 2;
