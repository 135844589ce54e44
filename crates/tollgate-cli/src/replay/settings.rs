//! The settings of a replay.

use std::path::PathBuf;

use tollgate::{Algorithm, Quota};

use super::html_settings::HtmlSettings;
use super::input::Input;
use super::limiter::LimiterSettings;
use crate::replay::log::formats::Format;
use crate::replay::log::schema::Wanted;

/// The logs to replay, and the limit.
#[derive(Clone, Debug)]
pub struct Settings {
    pub inputs: Vec<Input>,
    pub quota: Quota,
    /// The file with the quotas of individual keys.
    pub key_quotas: Option<Input>,
    /// Another quota to compare `quota` with.
    pub against: Option<Quota>,
    /// If `None`, all algorithms run.
    pub algorithm: Option<Algorithm>,
    pub wanted: Wanted,
    /// If `None`, the format is recognised from the first lines of each log.
    pub format: Option<Format>,
    pub sort: bool,
    pub strict: bool,
    pub decisions: Option<PathBuf>,
    /// The number of threads that read and judge, at least 1.
    pub threads: usize,
    pub limiter: LimiterSettings,
    /// The number of keys to report, most frequently denied first.
    pub top: usize,
    /// The HTML page to write. It requires the feature `html`.
    pub html: Option<HtmlSettings>,
}

impl Settings {
    /// Returns the quota with which this algorithm runs. In a comparison, windows and logs run
    /// without a burst, because they support none.
    pub(crate) fn tried(&self, quota: Quota, algorithm: Algorithm) -> Quota {
        if self.algorithm.is_none() && !algorithm.has_burst() {
            Quota::new(quota.tokens(), quota.period())
        } else {
            quota
        }
    }
}
