//! Tests of which one runs at a time: guards are registered for the whole process, and so is scc's
//! epoch. A thread of another test that is preempted under a guard keeps retired memory from being
//! freed; then new keys could get the answer of a full table, or a size be larger.
// The tests of both stores are there twice, each with its store.
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
mod with_exact_keys;
mod with_fingerprints;

/// Waits until no other test runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
