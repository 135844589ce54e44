//! The layer in real servers (axum, hyper, tonic), asked by real clients over real sockets, with HTTP/1.1, HTTP/2
//! and gRPC.
//!
//! Time is a manual clock's wherever a figure is exact. Nothing sleeps: what is waited for is a condition, and each test
//! has a deadline ([`run::run`]).

mod addresses;
mod answers;
mod bodies;
mod charges;
mod client;
mod examples;
mod fields;
mod grpc;
mod modes;
mod proxies;
mod run;
mod server;
mod several;
mod shared;
mod sharing;
