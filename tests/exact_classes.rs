//! Classes of callers, with exact keys.

#[path = "stores/classes.rs"]
mod cases;
#[path = "stores/exact.rs"]
mod store;
