//! Eviction never changes a decision. In a program of its own, because guards are registered for
//! the whole process: a thread of another test that is preempted under a guard keeps retired eras
//! from being freed, and new keys could get the policy of a full table.

#[path = "stores/eviction.rs"]
mod cases;
#[path = "stores/fingerprints.rs"]
mod store;
