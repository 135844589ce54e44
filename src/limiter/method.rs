//! From a quota to the rule that enforces it.

use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::exact::{ExactRule, SlidingLog};
use crate::quota::Quota;
use crate::rule::AnyRule;
use std::time::Duration;

/// How a limiter enforces quotas: the algorithm, and how long after a boundary of its windows tick 0 lies.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    algorithm: Algorithm,
    phase: Duration,
}

impl Method {
    pub(super) fn new(algorithm: Algorithm, phase: Duration) -> Self {
        Self { algorithm, phase }
    }

    /// The rule of a quota, on a word.
    pub(super) fn packed(self, quota: Quota) -> Result<AnyRule, ConfigError> {
        AnyRule::new(self.algorithm, quota, self.phase)
    }

    /// The rule of a quota, on whatever it takes.
    pub(super) fn any(self, quota: Quota) -> Result<ExactRule, ConfigError> {
        match self.algorithm {
            Algorithm::SlidingLog => SlidingLog::new(quota).map(ExactRule::Log),
            _ => self.packed(quota).map(ExactRule::Packed),
        }
    }
}
