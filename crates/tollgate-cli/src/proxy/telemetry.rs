//! Telemetry for the proxy's operator: metrics and the access log.

pub(crate) mod access_log;
pub(crate) mod entry;
pub(crate) mod exchange;
pub(crate) mod metrics;
