//! Servers, clusters, sentinels, faults on the way to them, and processes that share them.
//!
//! All of it belongs to the test that started it, and ends with it. A benchmark may include this file by its path.

// Each binary uses a part of it.
#![allow(dead_code)]

pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod faults;
pub(crate) mod nodes;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod setup;
pub(crate) mod wait;
