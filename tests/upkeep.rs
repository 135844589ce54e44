//! Upkeep of a limiter: statistics, sweeping, clearing, the sweeper, the pinned handle.

#[path = "stores/upkeep.rs"]
mod cases;
#[path = "stores/fingerprints.rs"]
mod store;
