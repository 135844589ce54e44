//! Real servers for tests: servers, clusters and sentinels, faults between them and their clients,
//! and processes that share them.
//!
//! Each server and process belongs to the test that started it, and ends with that test.
//!
//! The crate `redis-test`, which also starts servers, does not replace this module. It takes one
//! program for the whole process from an environment variable, but these tests run Redis and Valkey
//! side by side. A killed test leaves its servers behind. It cannot restart a server on the same
//! port, and does not try another port if one was taken meanwhile. Its clusters need `redis-cli`
//! and have a fixed timeout of five seconds for each failover. It would replace at most a tenth of
//! this module: the start of a single server, and its certificates.

pub mod admissions;
pub mod certificates;
pub mod cluster;
pub mod faults;
pub mod nodes;
pub mod ports;
pub mod process;
pub mod program;
pub mod sentinel;
pub mod server;
pub mod setup;
pub mod wait;
