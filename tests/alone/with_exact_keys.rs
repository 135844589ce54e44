//! The tests of both stores, with exact keys.

#[path = "stores/eviction.rs"]
mod eviction;
#[path = "stores/forgetting.rs"]
mod forgetting;
#[path = "../limits/stores/exact.rs"]
pub(crate) mod store;
#[path = "stores/turnover.rs"]
mod turnover;
#[path = "stores/upkeep.rs"]
mod upkeep;
