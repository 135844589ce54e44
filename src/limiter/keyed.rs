//! The limiter for many keys, its classes, and the thread that sweeps them.

pub(super) mod at;
pub(super) mod by_key;
pub(super) mod classes;
pub(super) mod key_state;
pub(super) mod limiter;
pub(super) mod pausing;
pub(super) mod quotas;
pub(super) mod settling;
#[cfg(not(tollgate_loom))]
pub(super) mod sweeper;
pub(super) mod upkeep;
