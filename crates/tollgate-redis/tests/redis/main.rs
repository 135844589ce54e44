//! Tests with real servers. The servers run Redis and Valkey, and are killed, stopped, disconnected
//! and moved. The harness for these faults is tested first.
//!
//! The tests require `redis-server` (Debian's package `redis-server`). They also run with Valkey if
//! `valkey-server` is on the path or `TOLLGATE_VALKEY_SERVER` names it.

#![cfg(unix)]

mod breaker;
mod bucket_leases;
mod classes;
mod clocks;
mod cluster;
mod deadline;
mod example;
mod health;
mod idle;
mod in_flight;
#[cfg(feature = "http")]
mod layer;
mod lease;
mod lease_faults;
mod load;
mod pauses;
mod rarely;
mod refusals;
mod reservations;
mod selftest;
mod shared;
mod store;
#[cfg(target_os = "linux")]
mod threads;
mod topologies;
mod unknown;
mod unsynced;
mod vectors;
#[cfg(feature = "wait")]
mod wait;
mod windows;
