//! The client's address, which is the peer of the connection or an address reported by trusted
//! proxies.

pub(crate) mod address;
pub(crate) mod elements;
pub(crate) mod forwarded;
#[cfg(any(feature = "tracing", feature = "unstable-program"))]
pub(crate) mod watch;
