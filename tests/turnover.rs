//! The table as it turns over: growth, eviction, the cap, memory.

#[path = "stores/turnover.rs"]
mod cases;
#[path = "stores/fingerprints.rs"]
mod store;
