//! Named limits. A limit consists of a key, the cost of a request, and the limiter that enforces
//! the limit.

pub(crate) mod any_limiter;
pub(crate) mod applicable;
pub(crate) mod async_in_flight;
pub(crate) mod async_limiter;
pub(crate) mod backend;
pub(crate) mod compiled;
pub(crate) mod local;
pub(crate) mod named;
pub(crate) mod permits;
pub(crate) mod request_cost;
pub(crate) mod saved;
