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
    /// The file with the quotas of single keys.
    pub key_quotas: Option<Input>,
    /// Another quota, which is compared with `quota`.
    pub against: Option<Quota>,
    /// If `None`, all algorithms run.
    pub algorithm: Option<Algorithm>,
    pub wanted: Wanted,
    /// If `None`, the format is recognised by the first lines of each log.
    pub format: Option<Format>,
    pub sort: bool,
    pub strict: bool,
    pub decisions: Option<PathBuf>,
    /// How many threads read and judge: at least 1.
    pub threads: usize,
    pub limiter: LimiterSettings,
    /// How many of the most frequently denied keys to report.
    pub top: usize,
    /// The HTML page to write. It requires the feature `html`.
    pub html: Option<HtmlSettings>,
}

impl Settings {
    /// Returns the quota with which this algorithm runs. In a comparison, windows and logs run
    /// without a burst, because they do not support bursts.
    pub(crate) fn tried(&self, quota: Quota, algorithm: Algorithm) -> Quota {
        if self.algorithm.is_none() && !algorithm.has_burst() {
            Quota::new(quota.tokens(), quota.period())
        } else {
            quota
        }
    }
}
