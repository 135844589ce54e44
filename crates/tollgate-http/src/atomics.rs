//! The atomic types of this crate, used for counts. All other files import them from here.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
