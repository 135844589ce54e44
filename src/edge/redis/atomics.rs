//! The atomics of this edge, in one place, as `sync` is for the core.

pub(super) use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
