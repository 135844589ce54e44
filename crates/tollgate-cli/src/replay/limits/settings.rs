//! The settings of a replay of limits with names.

use std::path::PathBuf;

use tollgate_http::settings::LayerSettings;

use crate::replay::html_settings::HtmlSettings;
use crate::replay::input::Input;
use crate::replay::log::formats::Format;
use crate::replay::log::timestamp::TimeUnit;

/// The logs to replay, and the limits.
#[derive(Clone, Debug)]
pub struct Settings {
    pub inputs: Vec<Input>,
    pub layer: LayerSettings,
    /// Other limits, which are compared with `layer`.
    pub against: Option<Against>,
    pub log: LogSettings,
    pub sort: bool,
    pub strict: bool,
    pub decisions: Option<PathBuf>,
    /// How many threads parse lines: at least 1. A single thread judges the requests.
    pub threads: usize,
    /// How many of the most frequently refused keys to report for each limit.
    pub top: usize,
    /// The HTML page to write. It requires the feature `html`.
    pub html: Option<HtmlSettings>,
}

/// The limits that [`Settings::layer`] is compared with.
#[derive(Clone, Debug)]
pub struct Against {
    /// The text of the limits as the user wrote it, for the report.
    pub name: String,
    pub layer: LayerSettings,
}

/// The form of the logs.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// If `None`, the format is recognised by the first lines of each log.
    pub format: Option<Format>,
    /// Pairs of our name for a column and its name in the log.
    pub names: Vec<(String, String)>,
    pub unit: TimeUnit,
    /// If `None`, durations are in the unit of the format, or in seconds if the format defines no
    /// unit.
    pub duration_unit: Option<TimeUnit>,
    /// See [`Wanted::trust_hops`](crate::replay::Wanted::trust_hops).
    pub trust_hops: Option<usize>,
}
