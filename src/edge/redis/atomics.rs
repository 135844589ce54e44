//! The atomics of this edge, and what its tasks wait for, in one place, as `sync` is for the core: the models of
//! `loom-tests/tests/shared.rs` have others.

pub(super) use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
pub(super) use tokio::sync::Notify;
