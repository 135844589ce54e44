//! Quotas that are changed while the limiter is in use.

#[path = "stores/quotas.rs"]
mod cases;
#[path = "stores/fingerprints.rs"]
mod store;
