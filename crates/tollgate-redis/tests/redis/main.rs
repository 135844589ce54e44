//! Real servers, Redis and Valkey, that are killed, stopped, cut off and moved: what the harness makes of them is
//! tested first.
//!
//! `redis-server` must be there (Debian's package `redis-server`). Valkey is asked too where `valkey-server` is on the
//! path or named by `TOLLGATE_VALKEY_SERVER`.

#![cfg(unix)]

mod admissions;
mod breaker;
mod clocks;
mod cluster;
mod deadline;
mod lease;
mod load;
mod refusals;
mod selftest;
mod shared;
mod store;
mod topologies;
mod unknown;
mod unsynced;
mod vectors;
