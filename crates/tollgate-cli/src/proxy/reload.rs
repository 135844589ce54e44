//! A reload: what SIGHUP does.
//!
//! The options under "Limits" take effect, and the access log is opened again. Everything is read,
//! built and opened first; a failure changes nothing. Then the quotas of the limiters that stay are
//! set, and the new limits take the place of the old ones for requests that begin later.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::enforced;
use super::limits::Limits;
use super::settings::Settings;
use super::shared::Store;
use crate::failure::Failure;
use crate::proxy::telemetry::access_log::AccessLog;
use crate::proxy::telemetry::metrics::Metrics;

/// The options that a reload applies: those under "Limits" in the help.
pub(crate) const RELOADED: [&str; 10] = [
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
];

/// Reads the settings anew.
pub(crate) type Load = Box<dyn Fn() -> Result<Settings, Failure> + Send>;

/// Applies settings to a proxy that runs.
pub(crate) struct Reloader {
    pub(crate) load: Load,
    /// The settings that are in force.
    pub(crate) settings: Arc<Settings>,
    pub(crate) limits: Arc<ArcSwap<Limits>>,
    pub(crate) store: Option<Store>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) log: Option<AccessLog>,
}

/// What a reload has done.
pub(crate) struct Reloaded {
    pub(crate) settings: Arc<Settings>,
    /// The limits that were in force until now.
    pub(crate) before: Arc<Limits>,
    /// The options that have changed and need a restart.
    pub(crate) need_restart: Vec<String>,
}

impl Reloader {
    /// Reads the settings, and applies those that can change. Blocks while a table of keys moves to
    /// a new quota.
    ///
    /// # Errors
    ///
    /// Anything that would be refused at the start. Nothing has changed then.
    pub(crate) fn reload(&mut self) -> Result<Reloaded, Failure> {
        let mut settings = (self.load)()?;
        let need_restart = self.need_restart(&settings);
        settings.limits = self.settings.limits_reloaded(settings.limits);
        let before = self.limits.load_full();
        let limits = enforced::build(&settings, self.store.as_ref(), Some(&before), &self.metrics.decisions)
            .map_err(|failure| settings.located(failure))?;
        let output = self.log.as_ref().map(AccessLog::output).transpose()?;
        limits.set_allowances()?;
        if let (Some(log), Some(output)) = (&self.log, output) {
            log.write_to(output);
        }
        self.limits.store(Arc::new(limits));
        // What needs a restart is compared with what runs, also at the next reload.
        let settings = Arc::new(self.settings.with_limits(settings.limits, settings.refusals));
        self.settings = Arc::clone(&settings);
        Ok(Reloaded { settings, before, need_restart })
    }

    fn need_restart(&self, settings: &Settings) -> Vec<String> {
        let (Some(before), Some(now)) = (&self.settings.config, &settings.config) else { return Vec::new() };
        let changed = before.changed(now).into_iter().filter(|option| !RELOADED.contains(option));
        changed.map(str::to_owned).collect()
    }
}
