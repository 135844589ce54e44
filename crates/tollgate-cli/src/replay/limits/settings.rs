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
    /// The number of threads that parse, at least 1. One thread judges.
    pub threads: usize,
    /// The number of the most refused keys of each limit to report.
    pub top: usize,
    /// The page of HTML to write, in a build with the feature `html`.
    pub html: Option<HtmlSettings>,
}

/// The limits that [`Settings::layer`] is compared with.
#[derive(Clone, Debug)]
pub struct Against {
    /// The limits as they were written, for the report.
    pub name: String,
    pub layer: LayerSettings,
}

/// The form of the logs.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// With `None`, the first lines of each log decide.
    pub format: Option<Format>,
    /// Pairs of our name of a column and its name in the log.
    pub names: Vec<(String, String)>,
    pub unit: TimeUnit,
    /// With `None`, the unit of the format, or seconds.
    pub duration_unit: Option<TimeUnit>,
    /// See [`Wanted::trust_hops`](crate::replay::Wanted::trust_hops).
    pub trust_hops: Option<usize>,
}
