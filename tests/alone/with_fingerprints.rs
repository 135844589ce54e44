//! The tests of both stores, with fingerprints.

#[path = "stores/eviction.rs"]
mod eviction;
#[path = "stores/forgetting.rs"]
mod forgetting;
#[path = "../limits/stores/fingerprints.rs"]
mod store;
#[path = "stores/turnover.rs"]
mod turnover;
#[path = "stores/upkeep.rs"]
mod upkeep;
