//! The tests of both stores, with exact keys.

#[path = "stores/classes.rs"]
mod classes;
#[path = "stores/limiter.rs"]
mod limiter;
#[path = "stores/pauses.rs"]
mod pauses;
#[path = "stores/quotas.rs"]
mod quotas;
#[path = "stores/exact.rs"]
pub(crate) mod store;
