//! The tower layers and services, their futures, and the builder of the layers.

pub(crate) mod builder;
pub(crate) mod future;
pub(crate) mod service;
pub(crate) mod shared_future;
pub(crate) mod shared_service;
