//! The layer in real servers (axum, hyper, tonic) with real clients over sockets, with HTTP/1.1,
//! HTTP/2 and gRPC.
//!
//! The clock is manual wherever a figure is exact. Nothing sleeps: tests wait for conditions, and
//! each test has a deadline ([`run::run`]).

mod addresses;
mod answers;
mod bodies;
mod charges;
mod classes;
mod client;
mod examples;
mod fields;
mod grpc;
mod in_flight;
mod modes;
mod proxies;
mod run;
mod server;
mod settling;
mod several;
mod shared;
mod sharing;
mod versions;
