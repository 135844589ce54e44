//! The address of the client: the peer of the connection, or what trusted proxies report.

pub(crate) mod address;
pub(crate) mod elements;
pub(crate) mod forwarded;
