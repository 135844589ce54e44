//! The words of shared limits: tokens that were leased, counts that the store is told, and when a
//! machine recovers.
//!
//! Nothing here needs a runtime or a store, and no file imports another from outside the folder. So
//! `loom-tests/shared` compiles it once more for the model checker, as a crate whose root is this
//! file.

pub mod atomics;
pub mod count;
#[cfg(tollgate_loom)]
mod model;
pub mod purse;
pub mod recovery;
