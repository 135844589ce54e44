//! What the queues share between threads: of std, or of the model checker.

#[cfg(not(tollgate_loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

#[cfg(tollgate_loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
