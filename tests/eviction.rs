//! Eviction never changes a decision. In a program of its own, because the epoch is the process's:
//! a thread of another test that is preempted while it is pinned could make new keys get the full
//! policy.

#[path = "stores/eviction.rs"]
mod cases;
#[path = "stores/fingerprints.rs"]
mod store;
