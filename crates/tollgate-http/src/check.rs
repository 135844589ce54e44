//! How a request is checked against all limits of a layer, and what is refunded later.

pub(crate) mod event;
pub(crate) mod limit_set;
pub(crate) mod listeners;
pub(crate) mod pending_refunds;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
pub(crate) mod wait;
