//! What the operator of the proxy can observe: metrics and the access log.

pub(crate) mod access_log;
pub(crate) mod exchange;
pub(crate) mod metrics;
pub(crate) mod metrics_server;
