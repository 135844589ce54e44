//! `tollgate proxy` over real sockets: forwarding, refusals, streaming, and shutdown.
//!
//! Nothing here sleeps to let something happen: each wait is for a condition, and has a deadline.

#![cfg(unix)]

mod arguments;
mod failures;
mod fields;
mod http2;
mod limits;
mod operation;
mod running;
mod shared;
mod streams;
mod upstream;
mod wire;
