//! The layers and services of tower, their futures, and the builder of both.

pub(crate) mod builder;
pub(crate) mod future;
pub(crate) mod service;
pub(crate) mod shared_future;
pub(crate) mod shared_service;
