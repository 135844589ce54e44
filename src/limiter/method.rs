//! Makes the rule that enforces a quota.

use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::exact::ExactRule;
use crate::log::SlidingLog;
use crate::quota::{Enforced, Quota};
use crate::rule::AnyRule;
use std::time::Duration;

/// The way in which a limiter enforces quotas: the algorithm, and how long after a boundary of its
/// windows tick 0 lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method {
    algorithm: Algorithm,
    phase: Duration,
}

impl Method {
    pub(super) fn new(algorithm: Algorithm, phase: Duration) -> Self {
        Self { algorithm, phase }
    }

    /// The rule of a quota, for a state that is one word.
    pub(super) fn packed(self, quota: Quota) -> Result<Enforced<AnyRule>, ConfigError> {
        let rule = AnyRule::new(self.algorithm, quota, self.phase)?;
        Ok(Enforced { rule, quota })
    }

    /// The rule of a quota, for a state of any kind.
    pub(super) fn any(self, quota: Quota) -> Result<Enforced<ExactRule>, ConfigError> {
        let rule = match self.algorithm {
            Algorithm::SlidingLog => ExactRule::Log(SlidingLog::new(quota)?),
            _ => ExactRule::Packed(self.packed(quota)?.rule),
        };
        Ok(Enforced { rule, quota })
    }
}
