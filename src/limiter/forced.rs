//! Forced charges: for what is spent already, so that a denial would come too late.

use super::keyed::Limiter;
use super::single::SingleLimiter;
use super::store::{Accepts, Store};
use crate::settings::WhenFull;
use crate::time::Tick;
use equivalent::Equivalent;
use std::hash::Hash;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Charges `key` for `tokens` that are spent already, and returns how many were charged.
    ///
    /// That is as many as there is room for, and beyond that up to
    /// [`max_debt`](crate::Builder::max_debt). While a key is in debt nothing remains, and its
    /// requests are denied, with the time at which they pass. What is returned can't be given back
    /// by a refund; a [`Reservation`](crate::Reservation) settles more exactly.
    ///
    /// A new key that finds the table full is charged as [`WhenFull`](crate::WhenFull) says: only
    /// the state of `Share` can be.
    ///
    /// # Progress
    ///
    /// As [`check`](Self::check).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<str> =
    ///     Limiter::builder(Quota::per_second(10)).clock(ManualClock::new()).max_debt(20).build()?;
    /// assert_eq!(limiter.force("alice", 25), 25);
    /// assert_eq!(limiter.peek("alice").retry_after(), Some(Duration::from_millis(1_600)));
    /// assert_eq!(limiter.force("alice", 25), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn force<Q>(&self, key: &Q, tokens: u64) -> u64
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.force_at(key, tokens, self.clock.now())
    }

    /// [`force`](Self::force) at a time.
    pub(super) fn force_at<Q>(&self, key: &Q, tokens: u64, now: Tick) -> u64
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        // Nothing to charge, so no reason to insert the key.
        if tokens == 0 {
            return 0;
        }
        let forced = self.store.force(key, now, tokens);
        forced.unwrap_or_else(|left| tokens - left + self.refuse_forced(left, now))
    }

    /// Charges the spent tokens of a new key that finds no slot, as the [`WhenFull`] policy says.
    #[cold]
    fn refuse_forced(&self, tokens: u64, now: Tick) -> u64 {
        self.beyond.refused.add(1);
        match self.when_full {
            WhenFull::Share => self.visit_shared(|state| state.force(now, tokens)),
            WhenFull::Deny | WhenFull::Allow => 0,
        }
    }
}

impl SingleLimiter {
    /// Charges `tokens` that are spent already, and returns how many were charged.
    ///
    /// [`Limiter::force`](crate::Limiter::force) says how many that are.
    ///
    /// # Progress
    ///
    /// As [`check`](Self::check).
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let builder = SingleLimiter::builder(Quota::per_hour(10)).clock(ManualClock::new());
    /// let limiter = builder.max_debt(5).build()?;
    /// assert_eq!(limiter.force(12), 12);
    /// assert!(!limiter.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn force(&self, tokens: u64) -> u64 {
        self.force_at(tokens, self.clock.now())
    }

    /// [`force`](Self::force) at a time.
    pub(super) fn force_at(&self, tokens: u64, now: Tick) -> u64 {
        self.visit(|state| state.force(now, tokens))
    }
}
