//! The atomics of this crate, in one place. They are imported from std or from the model checker.

#[cfg(not(tollgate_loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU64};
pub use std::sync::atomic::{
    Ordering,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

#[cfg(tollgate_loom)]
pub use super::model::{AtomicBool, AtomicU64};
