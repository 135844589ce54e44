//! Real servers for tests: servers, clusters and sentinels, faults between them and their clients,
//! and processes that share them.
//!
//! Each server and process belongs to the test that started it, and ends with that test.

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
