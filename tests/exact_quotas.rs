//! Quotas that are changed while the limiter is in use, with exact keys.

#[path = "stores/quotas.rs"]
mod cases;
#[path = "stores/exact.rs"]
mod store;
