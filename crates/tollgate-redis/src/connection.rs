//! The connections to the servers: addresses, the nodes and slots of a cluster, the circuit
//! breaker, and the trials that rehearse the operations of checks.

pub(crate) mod breaker;
pub(crate) mod network;
#[cfg(not(feature = "tls"))]
pub(crate) mod no_tls;
pub(crate) mod node;
pub(crate) mod servers;
pub(crate) mod slots;
#[cfg(feature = "tls")]
pub(crate) mod tls;
pub(crate) mod trial;
