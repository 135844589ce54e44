//! A handle for event loops that read the clock once a turn.

use super::fingerprints::Fingerprints;
use super::keyed::Limiter;
use super::pinned::Pinned;
use super::store::{Accepts, Store};
use crate::decision::Decision;
use crate::time::Tick;
use equivalent::Equivalent;
use std::hash::Hash;

/// A [`Pinned`] handle that is given the time, made by [`Limiter::pin_at`]; its checks read no
/// clock.
///
/// All checks are decided at this time, until [`set_now`](Self::set_now) gives the handle another
/// one. A time that lags behind the clock delays: a key may be denied what it would get at the
/// later time, and never gets more. Holding this handle costs what holding a [`Pinned`] costs.
///
/// It is a type of its own so that a check does not have to test which kind of handle it came
/// through.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// /// One turn of an event loop: how many of the packets that have come are let through.
/// fn turn(limiter: &Limiter<u64>, packets: &[u64]) -> usize {
///     let mut pinned = limiter.pin_at(limiter.clock().now());
///     packets.iter().filter(|&host| pinned.check(host).is_allowed()).count()
///     // The handle is dropped here, before the loop waits for the next packets.
/// }
///
/// let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(2)).build()?;
/// assert_eq!(turn(&limiter, &[7, 8, 7, 7]), 3);
/// assert_eq!(turn(&limiter, &[7, 8]), 1);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Debug)]
#[must_use = "a handle does nothing by itself"]
pub struct PinnedAt<'l, K: ?Sized, S: Store = Fingerprints> {
    pinned: Pinned<'l, K, S>,
    now: Tick,
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Makes a handle for a loop of checks on this thread that all have the time `now`: see
    /// [`PinnedAt`].
    ///
    /// [`check_at`](Self::check_at) says what times a caller may pass.
    ///
    /// # Progress
    ///
    /// As [`pin`](Self::pin).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let now = limiter.clock().now();
    /// let mut pinned = limiter.pin_at(now);
    /// assert_eq!(pinned.check("alice").at(), now);
    /// assert!(!pinned.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn pin_at(&self, now: Tick) -> PinnedAt<'_, K, S> {
        PinnedAt { pinned: self.pin(), now }
    }
}

impl<K: ?Sized, S: Store> PinnedAt<'_, K, S> {
    /// Sets the time of the handle's checks from now on.
    ///
    /// This is for a loop that does not wait between its turns and keeps its handle.
    ///
    /// # Progress
    ///
    /// Wait-free.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_second(1)).build()?;
    /// let mut pinned = limiter.pin_at(Tick::ZERO);
    /// assert!(pinned.check("alice").is_allowed());
    /// assert!(!pinned.check("alice").is_allowed());
    /// pinned.set_now(Tick::ZERO + Duration::from_secs(1));
    /// assert!(pinned.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn set_now(&mut self, now: Tick) {
        self.now = now;
    }

    /// [`Limiter::check`] at the handle's time: charges one token if the request is allowed.
    ///
    /// # Progress
    ///
    /// As [`Limiter::check`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let mut pinned = limiter.pin_at(Tick::ZERO);
    /// assert!(pinned.check("alice").is_allowed());
    /// assert!(!pinned.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check<Q>(&mut self, key: &Q) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.pinned.check_at(key, 1, self.now)
    }

    /// [`Limiter::check_n`] at the handle's time: charges all of `cost` or nothing.
    ///
    /// # Progress
    ///
    /// As [`Limiter::check`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Outcome, Quota, Tick};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(10)).build()?;
    /// let mut pinned = limiter.pin_at(Tick::ZERO);
    /// assert_eq!(pinned.check_n("alice", 11).outcome(), Outcome::TooCostly);
    /// assert_eq!(pinned.check_n("alice", 7).remaining(), 3);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_n<Q>(&mut self, key: &Q, cost: u64) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.pinned.check_at(key, cost, self.now)
    }
}
