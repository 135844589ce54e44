//! The settings of the proxy, validated.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::Quota;
use tollgate_http::settings::LayerSettings;
use tollgate_redis::program::StoreSettings;

use super::refusals::Refusals;
use crate::failure::Failure;
use crate::proxy::args::config::ConfigFile;
use crate::proxy::server::ClientSettings;
use crate::proxy::telemetry::entry::LogFormat;
use crate::proxy::upstream::origin::Origin;
use crate::proxy::upstream::service::UpstreamSettings;

/// The settings of the proxy.
#[derive(Clone)]
pub(crate) struct ProxySettings {
    /// The file that contains some of the settings.
    pub(crate) config: Option<ConfigFile>,
    pub(crate) listen: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) access_log: Option<(PathBuf, LogFormat)>,
    pub(crate) upstream: UpstreamSettings,
    pub(crate) limits: LayerSettings,
    pub(crate) refusals: Refusals,
    pub(crate) shared: Option<StoreSettings>,
    pub(crate) origin: Origin,
    pub(crate) preserves_host: bool,
    pub(crate) clients: ClientSettings,
    pub(crate) bad_requests: Option<Quota>,
    pub(crate) shutdown_timeout: Duration,
    /// The file with the counts of local limits.
    pub(crate) state: Option<PathBuf>,
}

impl ProxySettings {
    /// Adds the file name and line number to an error about a setting in the file.
    pub(crate) fn located(&self, failure: Failure) -> Failure {
        match &self.config {
            Some(config) => config.located(failure),
            None => failure,
        }
    }

    /// Returns these settings with the limits and refusals of `loaded`, which a reload applies. The
    /// trusted proxies and the IPv6 prefix are kept, because connections and forwarding also depend
    /// on them.
    pub(crate) fn reloaded(&self, loaded: &Self) -> Self {
        let LayerSettings { ipv6_prefix, trust, trust_hops, forwarded_field, .. } = self.limits.clone();
        let limits =
            LayerSettings { ipv6_prefix, trust, trust_hops, forwarded_field, ..loaded.limits.clone() };
        Self { limits, refusals: loaded.refusals.clone(), ..self.clone() }
    }
}
