//! Tests the module with a simulated host, and with Envoy itself (`make envoy`).

mod cases;
mod configurations;
mod envoy;
mod host;
mod reload;
mod shared;
mod spellings;
mod state;
mod streams;
