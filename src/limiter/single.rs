//! The limiter of one resource.

use super::builder::Builder;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::rule::{AnyRule, Rule, Word, load, update};
use crate::sync::Atomic;
use crate::time::Tick;

/// A rate limiter for a single resource: one state, no keys, no table.
///
/// All methods take `&self`; share it by reference or `Arc`. Nothing locks, waits or allocates.
///
/// ```
/// use tollgate::{Quota, SingleLimiter};
///
/// let uploads = SingleLimiter::builder(Quota::per_minute(30).burst(1)).build()?;
/// assert!(uploads.check().allowed());
/// assert!(!uploads.check().allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct SingleLimiter {
    rule: AnyRule,
    clock: Clock,
    word: Atomic<Word>,
}

impl SingleLimiter {
    /// Starts the configuration of a limiter that enforces `quota`.
    ///
    /// ```
    /// # use tollgate::{Algorithm, Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(100))
    ///     .algorithm(Algorithm::SlidingWindow)
    ///     .build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn builder(quota: Quota) -> Builder<Self> {
        Builder::new(quota)
    }

    /// May this be done now? Charges one token if so.
    ///
    /// # Progress
    ///
    /// Lock-free; a denial is wait-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(gate.check().allowed());
    /// assert!(!gate.check().allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_at(1, self.clock.now())
    }

    /// May something that costs `cost` tokens be done now? Charges all of them or none. A cost of 0 is
    /// always allowed; one above [`Decision::limit`] is refused for good.
    ///
    /// # Progress
    ///
    /// As [`check`](Self::check).
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(gate.check_n(3).remaining(), 2);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_n(&self, cost: u64) -> Decision {
        self.check_at(cost, self.clock.now())
    }

    /// [`check_n`](Self::check_n) at the caller's time, which counts from an origin of the caller's
    /// choice. Don't mix it with the limiter's own clock unless `now` is read from that clock. For
    /// algorithms with windows choose [`Align::Start`](crate::Align::Start).
    ///
    /// # Progress
    ///
    /// As [`check`](Self::check).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Quota, SingleLimiter, Tick};
    /// let gate = SingleLimiter::builder(Quota::per_second(1)).build()?;
    /// assert!(gate.check_at(1, Tick::ZERO).allowed());
    /// assert!(gate.check_at(1, Tick::ZERO + Duration::from_secs(1)).allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_at(&self, cost: u64, now: Tick) -> Decision {
        let updated = update(&self.word, |word| self.rule.next(word, now, cost));
        self.rule.answer(updated.from, now, cost)
    }

    /// What [`check`](Self::check) would answer now, without charging. The figures are those before a
    /// charge.
    ///
    /// # Progress
    ///
    /// Wait-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(gate.peek().remaining(), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek(&self) -> Decision {
        self.peek_at(1, self.clock.now())
    }

    /// What [`check_at`](Self::check_at) would answer, without charging.
    ///
    /// # Progress
    ///
    /// Wait-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter, Tick};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert!(gate.peek_at(5, Tick::ZERO).allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek_at(&self, cost: u64, now: Tick) -> Decision {
        self.rule.peek(load(&self.word), now, cost)
    }

    /// Gives back what `charge` took; see [`Limiter::refund`](crate::Limiter::refund).
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Clock, Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).clock(Clock::manual()).build()?;
    /// let charge = gate.check_n(5);
    /// gate.refund(&charge);
    /// assert_eq!(gate.peek().remaining(), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund(&self, charge: &Decision) {
        self.refund_at(charge, u64::MAX, self.clock.now());
    }

    /// Gives back at most `tokens` of what `charge` took, at the caller's time; see
    /// [`Limiter::refund_at`](crate::Limiter::refund_at).
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter, Tick};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// let charge = gate.check_at(5, Tick::ZERO);
    /// gate.refund_at(&charge, 2, Tick::ZERO);
    /// assert_eq!(gate.peek_at(1, Tick::ZERO).remaining(), 2);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund_at(&self, charge: &Decision, tokens: u64, now: Tick) {
        update(&self.word, |word| self.rule.refund(word, now, charge, tokens));
    }

    /// Makes the limiter as good as new. Don't refund what it charged before.
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = gate.check();
    /// gate.reset();
    /// assert!(gate.check().allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn reset(&self) {
        update(&self.word, |word| self.rule.reset(word));
    }

    /// The clock that [`check`](Self::check) reads.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(gate.check().at() <= gate.clock().now());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl Builder<SingleLimiter> {
    /// The limiter.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the value, the range and the fix.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn build(self) -> Result<SingleLimiter, ConfigError> {
        let rule = self.method()?.rule(self.quota)?;
        Ok(SingleLimiter { rule, clock: self.clock, word: Atomic::new(Word::FRESH) })
    }
}
