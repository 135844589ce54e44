//! Checks a request against all of a layer's limits, and refunds charges afterwards.

pub(crate) mod decisions;
pub(crate) mod event;
pub(crate) mod limit_set;
pub(crate) mod listeners;
pub(crate) mod pending_refunds;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
pub(crate) mod wait;
