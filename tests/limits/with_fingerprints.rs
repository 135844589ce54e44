//! The tests of both stores, with fingerprints.

#[path = "stores/classes.rs"]
mod classes;
#[path = "stores/limiter.rs"]
mod limiter;
#[path = "stores/pauses.rs"]
mod pauses;
#[path = "stores/quotas.rs"]
mod quotas;
#[path = "stores/fingerprints.rs"]
mod store;
