//! Tests of the test harness itself.

mod cluster;
mod faults;
mod nodes;
mod sentinel;
mod server;
