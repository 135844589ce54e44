//! The synchronization types of the queues, either from std or from the model checker.

#[cfg(not(tollgate_loom))]
pub(crate) use std::{
    hash::RandomState as HashSeed,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

#[cfg(tollgate_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

/// A hash without a random seed, so that a repeated schedule assigns each key to the same shard.
#[cfg(tollgate_loom)]
pub(crate) type HashSeed = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

/// The number of locks in a queue.
#[cfg(not(tollgate_loom))]
pub(crate) const SHARDS: u64 = 64;

/// The number of locks in a queue. It is less than the number of keys in the model, so that two
/// keys share a lock.
#[cfg(tollgate_loom)]
pub(crate) const SHARDS: u64 = 2;
