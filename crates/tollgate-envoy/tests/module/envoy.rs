//! The module in Envoy itself. `make envoy` runs these tests with the Envoys that it has installed:
//! `TOLLGATE_ENVOY` has their paths, the newest first, and `TOLLGATE_ENVOY_MODULE` the folder of
//! the module.

mod client;
mod load;
mod process;
mod served;
