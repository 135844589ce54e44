//! Makes the rule that enforces a quota.

use crate::algorithm::Algorithm;
use crate::error::ConfigError;
use crate::exact::ExactRule;
use crate::log::SlidingLog;
use crate::quota::{Enforced, Quota};
use crate::rule::AnyRule;
use std::time::Duration;

/// The way in which a limiter enforces quotas: the algorithm, how long after a boundary of its
/// windows tick 0 lies, and the debt that it allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Method {
    algorithm: Algorithm,
    phase: Duration,
    /// How far a forced charge may go beyond the capacity, in tokens.
    debt: u64,
}

impl Method {
    pub(super) fn new(algorithm: Algorithm, phase: Duration, debt: u64) -> Self {
        Self { algorithm, phase, debt }
    }

    /// The rule of a quota, for a state that is one word.
    pub(super) fn packed(self, quota: Quota) -> Result<Enforced<AnyRule>, ConfigError> {
        let rule = AnyRule::new(self.algorithm, quota, self.phase)?.max_debt(self.debt)?;
        Ok(Enforced { rule, quota })
    }

    /// The rule of a quota, for a state of any kind.
    pub(super) fn any(self, quota: Quota) -> Result<Enforced<ExactRule>, ConfigError> {
        let rule = match self.algorithm {
            Algorithm::SlidingLog if self.debt > 0 => {
                return Err(ConfigError::DebtUnsupported { algorithm: self.algorithm, debt: self.debt });
            }
            Algorithm::SlidingLog => ExactRule::Log(SlidingLog::new(quota)?),
            _ => ExactRule::Packed(self.packed(quota)?.rule),
        };
        Ok(Enforced { rule, quota })
    }
}
