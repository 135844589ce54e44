//! The address of the client: that of the connection, or what trusted proxies say.

pub(crate) mod address;
pub(crate) mod elements;
pub(crate) mod forwarded;
