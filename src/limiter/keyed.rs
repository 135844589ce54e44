//! The limiter for many keys, its classes, and the thread that sweeps them.

pub(super) mod at;
pub(super) mod classes;
pub(super) mod keys;
pub(super) mod limiter;
pub(super) mod quotas;
#[cfg(not(tollgate_loom))]
pub(super) mod sweeper;
