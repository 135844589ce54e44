//! Telemetry for the operator of the proxy: metrics and the access log.

pub(crate) mod access_log;
pub(crate) mod entry;
pub(crate) mod exchange;
pub(crate) mod metrics;
