//! The tower layer with its builder, service and future.

pub(crate) mod builder;
pub(crate) mod future;
pub(crate) mod service;
