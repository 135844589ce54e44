//! Servers, clusters, sentinels, faults on the way to them, and processes that share them.
//!
//! All of it belongs to the test that started it, and ends with it.

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
