//! The words of shared limits: leased tokens, counts to push, and the recovery of a store.
//!
//! This folder needs no runtime and no store, and its files import nothing from outside the folder.
//! `loom-tests/shared` can therefore compile the folder again for the model checker, as a crate
//! whose root is this file.

pub mod atomics;
pub mod count;
#[cfg(tollgate_loom)]
mod model;
pub mod pool;
pub mod recovery;
