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
    /// Limits whose decisions are compared with those of the first ones.
    pub against: Option<Against>,
    pub log: LogSettings,
    pub sort: bool,
    pub strict: bool,
    pub decisions: Option<PathBuf>,
    /// How many threads parse, at least 1; one judges.
    pub threads: usize,
    /// How many of the most refused keys of each limit are reported.
    pub top: usize,
    /// The page of HTML to write, by a build with the feature `html`.
    pub html: Option<HtmlSettings>,
}

/// The limits that decisions are compared with.
#[derive(Clone, Debug)]
pub struct Against {
    /// As they were given, for the report.
    pub name: String,
    pub layer: LayerSettings,
}

/// How the logs are written.
#[derive(Clone, Debug)]
pub struct LogSettings {
    /// `None` goes by the first line of each log.
    pub format: Option<Format>,
    /// Pairs of our name of a column and its name in the log.
    pub names: Vec<(String, String)>,
    pub unit: TimeUnit,
    /// `None` is that of the format, or seconds.
    pub duration_unit: Option<TimeUnit>,
    /// As [`Wanted::trust_hops`](crate::replay::Wanted::trust_hops).
    pub trust_hops: Option<usize>,
}
