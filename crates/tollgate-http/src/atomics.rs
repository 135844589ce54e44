//! The atomic types of this crate, used for counts and flags. All other files import them from
//! here.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
