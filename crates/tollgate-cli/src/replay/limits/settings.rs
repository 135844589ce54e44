//! The settings for a replay of named limits.

use std::path::PathBuf;

use tollgate_http::settings::LayerSettings;

#[cfg(not(feature = "proxy"))]
use crate::failure::Failure;
#[cfg(feature = "proxy")]
pub(crate) use crate::proxy::args::config::ConfigFile;
use crate::replay::html_settings::HtmlSettings;
use crate::replay::input::Input;
use crate::replay::log::formats::Format;
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

/// The logs to replay, and the limits.
#[derive(Clone, Debug)]
pub struct Settings {
    pub inputs: Vec<Input>,
    pub layer: LayerSettings,
    /// Whether all algorithms run side by side.
    pub compare: bool,
    /// Other limits to compare `layer` with.
    pub against: Option<Against>,
    /// The files of `--config` and `--against-config`, and the files that limits name. No output
    /// may overwrite these files.
    pub configs: Vec<Input>,
    pub log: LogSettings,
    pub sort: bool,
    pub strict: bool,
    pub decisions: Option<PathBuf>,
    /// The number of threads that parse lines, at least 1. A single thread judges the requests.
    pub threads: usize,
    /// The number of keys to report for each limit, most frequently refused first.
    pub top: usize,
    /// The HTML page to write. It requires the feature `html`.
    pub html: Option<HtmlSettings>,
    /// The file that contains settings of `layer`.
    pub(crate) file: Option<ConfigFile>,
}

/// The limits to compare [`Settings::layer`] with.
#[derive(Clone, Debug)]
pub struct Against {
    /// The limits as the user wrote them, for the report.
    pub name: String,
    pub layer: LayerSettings,
    /// The file that contains `layer`.
    pub(crate) file: Option<ConfigFile>,
}

/// The form of the logs.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// If `None`, the format is recognised from the first lines of each log.
    pub format: Option<Format>,
    /// Pairs of names: our name for a column, and the log's name.
    pub names: Vec<(String, String)>,
    pub unit: TimeUnit,
    /// If `None`, durations are in the format's unit, or in seconds if the format defines none.
    pub duration_unit: Option<TimeUnit>,
    /// See [`Wanted::trust_hops`](crate::replay::Wanted::trust_hops).
    pub trust_hops: Option<usize>,
}
