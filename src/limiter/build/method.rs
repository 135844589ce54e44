//! Creates the rule that enforces a quota.

use crate::algorithm::Algorithm;
use crate::error::Refused;
use crate::log::SlidingLog;
use crate::quota::{Enforced, Quota};
use crate::rule::{AnyRule, Gcra, Permits};
use crate::state::StateRule;
use std::time::Duration;

/// How a limiter enforces quotas.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Method {
    /// Enforces a rate.
    Rate {
        algorithm: Algorithm,
        /// The duration from a window boundary to tick 0.
        phase: Duration,
        /// The maximum debt, in tokens. A forced charge may exceed the capacity by at most this
        /// many tokens.
        debt: u64,
    },
    /// Limits the permits in flight to the quota's tokens. The quota's period has no meaning.
    InFlight,
    /// Keeps a time for each key, as the word of an unmarked bucket; see `limiter/pauses.rs`.
    Times,
}

impl Method {
    /// Returns the method and quota of a bucket that holds one token and refills in one nanosecond.
    /// The word of such a bucket is simply a time.
    pub(crate) fn of_times() -> (Self, Quota) {
        (Self::Times, Quota::new(1, Duration::from_nanos(1)))
    }

    /// Returns the algorithm that enforces a rate. The other methods have none to choose, and use a
    /// bucket or count permits.
    pub(crate) fn algorithm(self) -> Algorithm {
        match self {
            Self::Rate { algorithm, .. } => algorithm,
            // These methods have no algorithm, and no public limiter that reports one uses them.
            Self::InFlight | Self::Times => Algorithm::default(),
        }
    }

    /// Returns the rule that enforces `quota`, for a state that consists of one word.
    pub(crate) fn packed(self, quota: Quota) -> Result<Enforced<AnyRule>, Refused> {
        let rule = match self {
            Self::Rate { algorithm, phase, debt } => AnyRule::new(algorithm, quota, phase)?.max_debt(debt)?,
            Self::InFlight => AnyRule::Permits(Permits::new(quota.tokens())?),
            Self::Times => AnyRule::Gcra(Gcra::unmarked(quota)?),
        };
        Ok(Enforced { rule, quota })
    }

    /// Returns the rule that enforces `quota`, for a state of any kind.
    pub(crate) fn any(self, quota: Quota) -> Result<Enforced<StateRule>, Refused> {
        let rule = match self {
            Self::Rate { algorithm: Algorithm::SlidingLog, debt, .. } if debt > 0 => {
                return Err(Refused::DebtUnsupported { algorithm: Algorithm::SlidingLog, debt });
            }
            Self::Rate { algorithm: Algorithm::SlidingLog, .. } => StateRule::Log(SlidingLog::new(quota)?),
            _ => StateRule::Packed(self.packed(quota)?.rule),
        };
        Ok(Enforced { rule, quota })
    }
}
