//! The settings of a replay.

use std::path::PathBuf;

use tollgate::Quota;
use tollgate_http::settings::{LayerSettings, LimitText};

use super::engine::ReplayLimits;
use super::input::Input;
use crate::failure::Failure;
#[cfg(feature = "proxy")]
pub(crate) use crate::proxy::args::config::ConfigFile;
use crate::replay::log::formats::Format;
use crate::replay::log::schema::{Cost, Wanted};
use crate::replay::log::timestamp::TimeUnit;

/// A build without the proxy reads no files of the proxy.
#[cfg(not(feature = "proxy"))]
#[derive(Clone, Debug)]
pub(crate) enum ConfigFile {}

#[cfg(not(feature = "proxy"))]
impl ConfigFile {
    pub(crate) fn located(&self, _: Failure) -> Failure {
        match *self {}
    }

    pub(crate) fn with_line(&self, _: &str) -> String {
        match *self {}
    }
}

/// The logs to read, and what to read from them.
#[derive(Clone, Debug)]
pub struct LogSettings {
    pub(crate) inputs: Vec<Input>,
    /// What to read from each line.
    pub wanted: Wanted,
    /// If `None`, the format is recognized from the first lines of each log.
    pub format: Option<Format>,
    pub strict: bool,
    /// The number of threads that parse lines, at least 1.
    pub(crate) threads: usize,
}

/// The logs to replay, and the limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The wanted key is the key of limits by fields.
    pub log: LogSettings,
    pub(crate) limits: ReplayLimits,
    /// The file that contains settings of `limits`.
    pub(crate) file: Option<ConfigFile>,
    /// Whether all algorithms run side by side.
    pub compare: bool,
    /// Other limits to compare `limits` with.
    pub(crate) against: Option<Against>,
    /// The file with the quotas of individual keys.
    pub(crate) key_quotas: Option<Input>,
    /// The files of `--config` and `--against-config`, and the files that limits name. No output
    /// may overwrite these files.
    pub(crate) configs: Vec<Input>,
    /// If `None`, durations are in the format's unit, or in seconds if the format defines none.
    pub(crate) duration_unit: Option<TimeUnit>,
    pub sort: bool,
    pub(crate) decisions: Option<PathBuf>,
    /// The number of keys to report for each limit, most frequently refused first.
    pub top: usize,
    /// The HTML page to write. It requires the feature `html`.
    pub(crate) html: Option<HtmlSettings>,
}

/// The HTML page to write.
#[derive(Clone, Debug)]
pub struct HtmlSettings {
    pub path: PathBuf,
    /// Whether clients are shown as hashes with a random key.
    pub are_clients_hashed: bool,
    /// The command that creates the page, quoted for a shell.
    pub command: String,
}

/// The limits to compare [`Settings::limits`] with.
#[derive(Clone, Debug)]
pub(crate) struct Against {
    /// The limits as the user wrote them, for the report.
    pub(crate) name: String,
    pub(crate) limits: ReplayLimits,
    /// The file that contains `limits`.
    pub(crate) file: Option<ConfigFile>,
}

impl Settings {
    /// Returns the settings for a replay of standard input through one quota, which tracks at most
    /// `max_keys` keys of the `wanted` fields.
    ///
    /// # Errors
    ///
    /// Returns an error if the quota cannot be the quota of a limit.
    pub fn of_quota(quota: Quota, max_keys: usize, wanted: Wanted) -> Result<Self, Failure> {
        let limit = by_fields(&quota.to_string(), "--limit")?;
        Ok(Self {
            limits: ReplayLimits {
                by_fields: [limit.name.clone()].into(),
                layer: LayerSettings { limits: vec![limit], max_keys, ..LayerSettings::default() },
                fields: wanted.key.len(),
                has_costs: wanted.cost != Cost::One,
                exact_keys: false,
            },
            file: None,
            compare: false,
            against: None,
            key_quotas: None,
            configs: Vec::new(),
            log: LogSettings { inputs: vec![Input::Stdin], wanted, format: None, strict: false, threads: 1 },
            duration_unit: None,
            sort: false,
            decisions: None,
            top: 10,
            html: None,
        })
    }
}

/// Parses a limit without a name, which counts by fields of the log. Its name is its text.
///
/// # Errors
///
/// Returns an error, which begins with `option`, if the text is invalid.
pub(crate) fn by_fields(text: &str, option: &str) -> Result<LimitText, Failure> {
    let name = text.trim();
    format!("{name}={name} by nothing").parse().or_else(|error| {
        // The message about a quota points at the mistake.
        crate::limit::parse_limit(text, option)?;
        Err(Failure::refused(format!("{option}: {error}")))
    })
}
