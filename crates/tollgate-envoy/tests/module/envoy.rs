//! Tests the module in Envoy itself. `make envoy` runs these tests with every version of Envoy that
//! it has installed. `TOLLGATE_ENVOY` contains the paths of these versions, starting with the
//! newest version. `TOLLGATE_ENVOY_MODULE` contains the path of the module's folder.

mod client;
mod fleet;
mod load;
mod process;
mod restarts;
mod served;
mod shared;
