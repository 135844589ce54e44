//! Classes of callers, with fingerprints.

#[path = "stores/classes.rs"]
mod cases;
#[path = "stores/fingerprints.rs"]
mod store;
