//! Tests of the module, with a host that plays the part of Envoy, and with Envoy itself (`make
//! envoy`).

mod cases;
mod configurations;
mod envoy;
mod host;
mod reload;
mod streams;
