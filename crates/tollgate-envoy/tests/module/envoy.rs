//! The module in Envoy itself. `make envoy` runs these tests with the versions of Envoy that it has
//! installed. `TOLLGATE_ENVOY` has their paths, the newest version first, and
//! `TOLLGATE_ENVOY_MODULE` has the folder of the module.

mod client;
mod load;
mod process;
mod served;
