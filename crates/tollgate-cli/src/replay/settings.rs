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
    /// With `None`, all algorithms run.
    pub algorithm: Option<Algorithm>,
    pub wanted: Wanted,
    /// With `None`, the first lines of each log decide.
    pub format: Option<Format>,
    pub sort: bool,
    pub strict: bool,
    pub decisions: Option<PathBuf>,
    /// The number of threads that read and judge, at least 1.
    pub threads: usize,
    pub limiter: LimiterSettings,
    /// The number of the most denied keys to report.
    pub top: usize,
    /// The page of HTML to write, in a build with the feature `html`.
    pub html: Option<HtmlSettings>,
}

impl Settings {
    /// Returns the quota that this algorithm runs with. In a comparison, windows and logs run
    /// without bursts, which they do not support.
    pub(crate) fn tried(&self, quota: Quota, algorithm: Algorithm) -> Quota {
        if self.algorithm.is_none() && !algorithm.has_burst() {
            Quota::new(quota.tokens(), quota.period())
        } else {
            quota
        }
    }
}
