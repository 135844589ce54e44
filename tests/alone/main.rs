//! Tests that run one at a time, because guards and scc's epoch are process-wide. If a thread of
//! another test were preempted under a guard, retired memory would not be freed. New keys could
//! then receive the answer of a full table, or a size could be larger. Each test of both stores is
//! compiled twice, once with each store.
#![allow(clippy::duplicate_mod)]

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(unix)]
mod collections;
mod exact_stalled_epoch;
#[allow(dead_code)]
#[path = "../guards/mod.rs"]
mod guards;
mod replaced_logs;
mod table_shrinks;
mod table_size;
mod thread_end;
mod with_exact_keys;
mod with_fingerprints;

/// Waits until no other test runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
