//! Tests `tollgate proxy` over real sockets: forwarding, refusals, streaming, and shutdown.
//!
//! No test sleeps to give an event time to happen. Instead, tests wait for conditions, each with a
//! deadline.

mod admin;
mod arguments;
mod bad_requests;
mod checked;
mod classes;
mod config;
mod failures;
mod fields;
mod greedy;
mod http2;
mod invented;
mod json_log;
mod limits;
mod operation;
mod operator;
mod paths;
mod recording;
mod refusals;
mod reload;
mod repeats;
mod replayed;
mod restarts;
mod running;
mod shared;
mod smuggling;
mod spellings;
mod state;
mod streams;
mod targets;
mod upstream;
mod wire;
