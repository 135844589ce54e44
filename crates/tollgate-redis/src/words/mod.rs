//! The words of shared limits: tokens that were leased, counts that the store is told, and when a
//! machine recovers.
//!
//! Nothing here needs a runtime or a store, and no file imports one from outside. So
//! `loom-tests/shared` compiles this folder once more, as a crate of its own, for the model checker:
//! this file is its root.

pub mod atomics;
pub mod count;
#[cfg(tollgate_loom)]
mod model;
pub mod purse;
pub mod recovery;
