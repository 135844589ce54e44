//! Tests the layer in real servers (axum, hyper, tonic). Real clients send requests over sockets,
//! with HTTP/1.1, HTTP/2 and gRPC.
//!
//! Tests with exact figures use a manual clock. No test sleeps: tests wait for conditions, and each
//! test has a deadline ([`run::run`]).

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
