//! Checks a request against all limits of a layer, and refunds charges afterwards.

pub(crate) mod event;
pub(crate) mod limit_set;
pub(crate) mod listeners;
pub(crate) mod pending_refunds;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
pub(crate) mod wait;
