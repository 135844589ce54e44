//! What the arguments ask for.

use std::path::PathBuf;

use tollgate::{Algorithm, Quota};

use super::gate::GateSettings;
use super::input::Input;
use crate::replay::log::schema::{Format, Wanted};

/// What to replay, through which limit.
#[derive(Clone, Debug)]
pub struct Settings {
    pub inputs: Vec<Input>,
    pub quota: Quota,
    /// Where the quotas that keys have of their own are read.
    pub key_quotas: Option<Input>,
    /// `None` tries all.
    pub algorithm: Option<Algorithm>,
    pub wanted: Wanted,
    /// `None` goes by the first line of each log.
    pub format: Option<Format>,
    pub sort: bool,
    pub strict: bool,
    pub decisions: Option<PathBuf>,
    pub gate: GateSettings,
    /// How many of the keys denied most are reported.
    pub top: usize,
}

impl Settings {
    /// A quota as this algorithm tries it: side by side with others, windows and logs run without bursts, which
    /// they do not have.
    pub(crate) fn tried(&self, quota: Quota, algorithm: Algorithm) -> Quota {
        if self.algorithm.is_none() && !algorithm.has_burst() {
            Quota::new(quota.tokens(), quota.period())
        } else {
            quota
        }
    }
}
