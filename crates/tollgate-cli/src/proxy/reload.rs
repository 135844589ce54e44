//! Reloads the proxy's settings when SIGHUP arrives.
//!
//! A reload applies the options under "Limits" and reopens the access log. It reads, builds and
//! opens everything before it changes anything, so a failure has no effect. It then sets the quotas
//! of the limiters that remain in use. Finally, it puts the new limits in force for all later
//! requests.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate_http::settings::SavedLimits;
use tollgate_redis::program::Store;

use super::enforced;
use super::limits::Limits;
use super::settings::ProxySettings;
use crate::failure::Failure;
use crate::proxy::telemetry::access_log::AccessLog;
use crate::proxy::telemetry::metrics::Metrics;

/// The options that a reload applies. The help lists them under "Limits".
pub(crate) const RELOADED: [&str; 11] = [
    "limit",
    "algorithm",
    "max-keys",
    "when-full",
    "shadow",
    "status",
    "refusal-field",
    "refusal-body",
    "except",
    "path-template",
    "charge-if",
];

/// Reads the settings again.
pub(crate) type LoadSettings = Box<dyn Fn() -> Result<ProxySettings, Failure> + Send>;

/// Applies settings to a running proxy.
pub(crate) struct Reloader {
    pub(crate) load: LoadSettings,
    /// The settings in force.
    pub(crate) settings: Arc<ProxySettings>,
    pub(crate) limits: Arc<ArcSwap<Limits>>,
    pub(crate) store: Option<Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Option<AccessLog>,
}

/// The result of a reload.
pub(crate) struct Reloaded {
    pub(crate) settings: Arc<ProxySettings>,
    /// The limits that were in force before the reload.
    pub(crate) before: Arc<Limits>,
    /// The changed options that take effect only after a restart.
    pub(crate) need_restart: Vec<String>,
}

impl Reloader {
    /// Reads the settings and applies the options that a reload may change. This call blocks while
    /// a limiter moves its keys to a new quota.
    ///
    /// # Errors
    ///
    /// Returns an error if the proxy would refuse these settings at startup. In that case, nothing
    /// has changed.
    pub(crate) fn reload(&mut self) -> Result<Reloaded, Failure> {
        let loaded = (self.load)()?;
        let need_restart = self.need_restart(&loaded);
        // Options that require a restart keep their current values here, so that the next reload
        // compares its settings with these values.
        let settings = Arc::new(self.settings.reloaded(&loaded));
        let before = self.limits.load_full();
        let (store, saved) = (self.store.as_ref(), SavedLimits::default());
        // Building the limits adds their rows to the metrics, and opening the log may create a
        // file. A reload that is refused shall leave neither, so the log is checked first.
        self.log.as_ref().map(AccessLog::check).transpose()?;
        let limits = enforced::build(&settings, store, Some(&before), saved, &self.metrics.decisions)
            .map_err(|failure| loaded.located(failure))?;
        limits.set_allowances()?;
        let output = self.log.as_ref().map(AccessLog::output).transpose()?;
        if let (Some(log), Some(output)) = (&self.log, output) {
            log.write_to(output);
        }
        self.limits.store(Arc::new(limits));
        self.settings = Arc::clone(&settings);
        Ok(Reloaded { settings, before, need_restart })
    }

    fn need_restart(&self, settings: &ProxySettings) -> Vec<String> {
        let (Some(before), Some(now)) = (&self.settings.config, &settings.config) else { return Vec::new() };
        let changed = before.changed(now).into_iter().filter(|option| !RELOADED.contains(option));
        changed.map(str::to_owned).collect()
    }
}
