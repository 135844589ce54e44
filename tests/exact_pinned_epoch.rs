//! A handle that stays pinned. In a program of its own, because the epoch is the process's.

#[path = "stores/pinned_epoch.rs"]
mod cases;
#[path = "stores/exact.rs"]
mod store;
