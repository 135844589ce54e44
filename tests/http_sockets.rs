//! The layer in real servers (axum, hyper, tonic), asked by real clients over real sockets, with HTTP/1.1, HTTP/2
//! and gRPC.
//!
//! Time is a manual clock's wherever a figure is exact. Nothing sleeps: what is waited for is a condition, and each test
//! has a deadline ([`run::run`]).

#[path = "http_sockets/addresses.rs"]
mod addresses;
#[path = "http_sockets/answers.rs"]
mod answers;
#[path = "http_sockets/bodies.rs"]
mod bodies;
#[path = "http_sockets/charges.rs"]
mod charges;
#[path = "http_sockets/client.rs"]
mod client;
#[path = "http_sockets/examples.rs"]
mod examples;
#[path = "http_sockets/fields.rs"]
mod fields;
#[path = "http_sockets/grpc.rs"]
mod grpc;
#[path = "http_sockets/modes.rs"]
mod modes;
#[path = "http_sockets/proxies.rs"]
mod proxies;
#[path = "http_sockets/run.rs"]
mod run;
#[path = "http_sockets/server.rs"]
mod server;
#[path = "http_sockets/several.rs"]
mod several;
#[path = "http_sockets/shared.rs"]
mod shared;
#[path = "http_sockets/sharing.rs"]
mod sharing;
#[path = "http_sockets/structured.rs"]
mod structured;
