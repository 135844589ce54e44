//! Forgetting changes no decision, whatever times are passed, with exact keys. In a program of its
//! own, because scc's epoch is that of the process: a thread of another test that is preempted
//! under a guard keeps evicted cells from being freed, and new keys could get the policy of a full
//! store.

#[path = "stores/forgetting.rs"]
mod cases;
#[path = "stores/exact.rs"]
mod store;
