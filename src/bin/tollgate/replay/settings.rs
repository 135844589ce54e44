//! What the arguments ask for.

use std::path::PathBuf;

use tollgate::{Algorithm, Quota};

use super::gate::GateSettings;
use super::input::Input;
use super::wanted::{Format, Wanted};

/// What to replay, through which limit.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) inputs: Vec<Input>,
    pub(crate) quota: Quota,
    /// Where the quotas that keys have of their own are read.
    pub(crate) key_quotas: Option<Input>,
    /// `None` tries all.
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) wanted: Wanted,
    /// `None` goes by the first line of each log.
    pub(crate) format: Option<Format>,
    pub(crate) sort: bool,
    pub(crate) strict: bool,
    pub(crate) decisions: Option<PathBuf>,
    pub(crate) gate: GateSettings,
    /// How many of the keys denied most are reported.
    pub(crate) top: usize,
}

impl Settings {
    /// A quota as this algorithm tries it: side by side with others, windows and logs run without bursts, which
    /// they do not have.
    pub(crate) fn tried(&self, quota: Quota, algorithm: Algorithm) -> Quota {
        if self.algorithm.is_none() && !algorithm.has_burst() { quota.without_burst() } else { quota }
    }
}
