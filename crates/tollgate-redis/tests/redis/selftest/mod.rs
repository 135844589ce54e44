//! The harness is seen doing what it says.

mod cluster;
mod faults;
mod nodes;
mod sentinel;
mod server;
