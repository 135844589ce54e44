//! The check of a request against all limits of a layer, and the refunds that follow it.

pub(crate) mod event;
pub(crate) mod limit_set;
pub(crate) mod listeners;
pub(crate) mod pending_refunds;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
pub(crate) mod wait;
