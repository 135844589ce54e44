//! A log as the models of it alone see it: what a store does with its logs is too much for a small model.

use crate::decision::Decision;
use crate::error::ConfigError;
use crate::log::{Log, SlidingLog};
use crate::quota::Quota;
use crate::reclaim::{Bag, pin};
use crate::time::Tick;

/// A log and its rule. Its methods are those of the log.
#[derive(Debug)]
pub struct ModelLog {
    rule: SlidingLog,
    log: Log,
    retired: Bag,
}

impl ModelLog {
    /// A log that nobody has begun.
    ///
    /// # Errors
    ///
    /// As for any limiter with a sliding log.
    pub fn new(quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self { rule: SlidingLog::new(quota)?, log: Log::new(), retired: Bag::new() })
    }

    /// `None` if it is sealed.
    pub fn check_at(&self, cost: u64, now: Tick) -> Option<Decision> {
        self.log.check(&self.rule, now, cost, &pin(), &self.retired)
    }

    /// `None` if it is sealed.
    pub fn peek_at(&self, cost: u64, now: Tick) -> Option<Decision> {
        self.log.peek(&self.rule, now, cost, &pin())
    }

    /// `None` if it is sealed.
    pub fn refund(&self, charge: &Decision, tokens: u64) -> Option<()> {
        self.log.refund(charge, tokens, &pin())
    }

    /// `None` if it is sealed.
    pub fn reset(&self) -> Option<()> {
        self.log.reset(&self.rule, &pin(), &self.retired)
    }

    /// Ends it.
    pub fn seal(&self) {
        self.log.seal(&pin());
    }

    /// Ends it if it is idle; has it ended?
    pub fn seal_if_idle(&self, judged_at: Tick) -> bool {
        self.log.seal_if_idle(&self.rule, judged_at, &pin(), &self.retired, |_| ())
    }

    /// Has it ended?
    pub fn is_sealed(&self) -> bool {
        self.log.is_sealed(&pin())
    }

    /// Goes on where `other` ends.
    pub fn take_over(&self, other: &Self, now: Tick) {
        self.log.take_over(&other.log, &other.rule, &self.rule, now, &pin());
    }
}
