//! A log on its own, for the models: a whole store of logs is too much for a small model.

use crate::decision::Decision;
use crate::error::Refused;
use crate::log::{Log, SlidingLog};
use crate::quota::Quota;
use crate::reclaim::Bag;
use crate::time::Tick;

/// A log and its rule. Each method calls the method of the log that has the same name.
#[derive(Debug)]
pub struct ModelLog {
    rule: SlidingLog,
    log: Log,
    retired: Bag,
}

impl ModelLog {
    /// Makes a log that has not begun.
    ///
    /// # Errors
    ///
    /// The errors of any limiter with a sliding log.
    pub fn new(quota: Quota) -> Result<Self, Refused> {
        Ok(Self { rule: SlidingLog::new(quota)?, log: Log::new(), retired: Bag::new() })
    }

    /// Decides a request at `now` and charges it if it is allowed; `None` if the log is sealed.
    pub fn check_at(&self, cost: u64, now: Tick) -> Option<Decision> {
        self.log.check(|| Tick::ZERO, &self.rule, now, cost, &self.retired)
    }

    /// Returns what a request at `now` would be answered; `None` if the log is sealed.
    pub fn peek_at(&self, cost: u64, now: Tick) -> Option<Decision> {
        self.log.peek(&self.rule, now, cost)
    }

    /// Gives back up to `tokens` of what `charge` took; `None` if the log is sealed.
    pub fn refund(&self, charge: &Decision, tokens: u64) -> Option<()> {
        self.log.refund(charge, tokens)
    }

    /// Resets the log; `None` if it is sealed.
    pub fn reset(&self) -> Option<()> {
        self.log.reset(&self.rule, &self.retired)
    }

    /// Seals the log.
    pub fn seal(&self) {
        self.log.seal();
    }

    /// Seals the log if it is idle. Returns whether it is sealed now.
    pub fn seal_if_idle(&self, judged_at: Tick) -> bool {
        self.log.seal_if_idle(&self.rule, judged_at, &self.retired, |_| ())
    }

    /// Returns whether the log is sealed.
    pub fn is_sealed(&self) -> bool {
        self.log.is_sealed()
    }

    /// Seals `other` and takes over what counts there.
    pub fn take_over(&self, other: &Self, now: Tick) {
        self.log.take_over(&other.log, &other.rule, &self.rule, now);
    }
}
