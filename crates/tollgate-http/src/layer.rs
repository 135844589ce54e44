//! The tower layer and service, its future, and the builder of the layer.

pub(crate) mod builder;
pub(crate) mod future;
pub(crate) mod service;
