//! The atomics of this crate, for counts. No other file names them.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
