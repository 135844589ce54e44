//! A named limit: what it counts, what a request costs, and the limiter that enforces it.

pub(crate) mod async_limiter;
pub(crate) mod cost;
pub(crate) mod enforced;
pub(crate) mod enforcer;
pub(crate) mod named;
