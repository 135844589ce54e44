//! A single log with its rule, for models. A model with a whole store of logs would be too large.

use super::any_state::AnyState;
use super::shared_rule::{Counts, SharedRule, StateRule, Wanted};
use super::since::Since;
use super::versions::Versioned;
use crate::decision::{Decision, Stamp};
use crate::error::Refused;
use crate::forgetting::Mark;
use crate::log::SlidingLog;
use crate::quota::{Enforced, Quota};
use crate::reclaim::Bag;
use crate::time::Tick;

/// A log whose quota may change. Each method calls the corresponding method of the state. A method
/// that returns an `Option` returns `None` if the state is sealed.
#[derive(Debug)]
pub struct ModelLog {
    state: Versioned,
    retired: Bag,
    mark: Mark,
}

impl ModelLog {
    /// Creates a log that was never charged.
    ///
    /// # Errors
    ///
    /// Returns the same errors as any limiter with a sliding log.
    pub fn new(quota: Quota) -> Result<Self, Refused> {
        let counts = Counts::new();
        let rule = SharedRule::new(Self::enforced(quota)?, &counts);
        let state = Versioned::fresh(Wanted { rule, changes: 0, since: Since::START }, Stamp::NONE);
        Ok(Self { state, retired: Bag::new(), mark: Mark::at(Tick::ZERO) })
    }

    fn enforced(quota: Quota) -> Result<Enforced<StateRule>, Refused> {
        Ok(Enforced { rule: StateRule::Log(SlidingLog::new(quota)?), quota })
    }

    /// Decides a request at `now`, and charges the request if it is allowed.
    pub fn check_at(&self, cost: u64, now: Tick) -> Option<Decision> {
        let is_current = |_| true;
        let check =
            |state: AnyState<'_>| Some(state.beginning_at(&self.mark, &is_current).charge(now, cost)?.0);
        self.state.visit_as_is(&self.retired, check)
    }

    /// Returns the answer that a request at `now` would receive.
    pub fn peek_at(&self, cost: u64, now: Tick) -> Option<Decision> {
        let is_current = |_| true;
        let peek = |state: AnyState<'_>| state.beginning_at(&self.mark, &is_current).peek(now, cost);
        self.state.visit_as_is(&self.retired, peek)
    }

    /// Gives back up to `tokens` of the tokens that `charge` took.
    pub fn refund(&self, charge: &Decision, tokens: u64) -> Option<()> {
        self.state.visit_as_is(&self.retired, |state| state.refund(charge.at(), charge, tokens, |_| true))
    }

    /// Resets the log.
    pub fn reset(&self) -> Option<()> {
        self.state.visit_as_is(&self.retired, |state| state.reset())
    }

    /// Replaces the quota at `now`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as any limiter with a sliding log.
    pub fn replace(&self, quota: Quota, now: Tick) -> Result<(), Refused> {
        self.state.replace(Self::enforced(quota)?, &Since::at(now), &self.retired);
        Ok(())
    }

    /// Seals the log if it is idle. Returns whether the log is now sealed.
    pub fn seal_if_idle(&self, judged_at: Tick) -> bool {
        self.state.seal_if_idle(judged_at, &self.retired, |_| ())
    }

    /// Returns whether the log is sealed.
    pub fn is_sealed(&self) -> bool {
        self.state.is_sealed(&self.retired)
    }
}
