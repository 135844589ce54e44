//! `tollgate proxy` over real sockets: what passes, what is refused, what is streamed, and how it ends.
//!
//! Nothing here sleeps to let something happen: each wait is for a condition, and has a deadline.

#![cfg(all(feature = "cli", unix))]

#[path = "proxy/arguments.rs"]
mod arguments;
#[path = "proxy/failures.rs"]
mod failures;
#[path = "proxy/fields.rs"]
mod fields;
#[path = "redis/harness/mod.rs"]
mod harness;
#[path = "proxy/http2.rs"]
mod http2;
#[path = "proxy/limits.rs"]
mod limits;
#[path = "proxy/operation.rs"]
mod operation;
#[path = "proxy/running.rs"]
mod running;
#[path = "proxy/shared.rs"]
mod shared;
#[path = "proxy/streams.rs"]
mod streams;
#[path = "proxy/upstream.rs"]
mod upstream;
#[path = "proxy/wire.rs"]
mod wire;
