//! The settings of the proxy, validated.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_http::settings::LimitSettings;

use super::shared::SharedSettings;
use crate::proxy::server::ClientSettings;
use crate::proxy::upstream::origin::Origin;
use crate::proxy::upstream::service::UpstreamSettings;

/// The settings of the proxy.
pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) access_log: Option<PathBuf>,
    pub(crate) upstream: UpstreamSettings,
    pub(crate) limits: LimitSettings,
    pub(crate) shared: Option<SharedSettings>,
    pub(crate) origin: Origin,
    pub(crate) preserves_host: bool,
    pub(crate) clients: ClientSettings,
    pub(crate) shutdown_timeout: Duration,
}
