//! How the store is reached: servers, nodes of a cluster and its slots, and when to stop asking.

pub(crate) mod breaker;
pub(crate) mod network;
#[cfg(not(feature = "tls"))]
pub(crate) mod no_tls;
pub(crate) mod node;
pub(crate) mod servers;
pub(crate) mod slots;
#[cfg(feature = "tls")]
pub(crate) mod tls;
