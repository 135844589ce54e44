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
    /// The source of the quotas of single keys.
    pub key_quotas: Option<Input>,
    /// The quota whose decisions are compared with those of the first one.
    pub against: Option<Quota>,
    /// `None` tries all.
    pub algorithm: Option<Algorithm>,
    pub wanted: Wanted,
    /// `None` goes by the first line of each log.
    pub format: Option<Format>,
    pub sort: bool,
    pub strict: bool,
    pub decisions: Option<PathBuf>,
    /// How many threads read and judge, at least 1.
    pub threads: usize,
    pub limiter: LimiterSettings,
    /// How many of the most denied keys are reported.
    pub top: usize,
    /// The page of HTML to write, by a build with the feature `html`.
    pub html: Option<HtmlSettings>,
}

impl Settings {
    /// Returns the quota as this algorithm tries it. In a comparison, windows and logs run without
    /// bursts, which they do not support.
    pub(crate) fn tried(&self, quota: Quota, algorithm: Algorithm) -> Quota {
        if self.algorithm.is_none() && !algorithm.has_burst() {
            Quota::new(quota.tokens(), quota.period())
        } else {
            quota
        }
    }
}
