//! A handle for hot loops, which announces once for many checks that its thread reads.

use super::fingerprints::Fingerprints;
use super::keyed::Limiter;
use super::store::{Accepts, Pin, Store};
use crate::decision::Decision;
use crate::time::Tick;
use equivalent::Equivalent;
use std::fmt;
use std::hash::Hash;

/// A handle of a [`Limiter`] for a thread that checks in a loop, made by [`Limiter::pin`].
///
/// A [`Limiter`] announces with each check that its thread reads the table; a handle saves that.
/// This is worth a few instructions on Linux, and some nanoseconds elsewhere. The first check after
/// a collection has begun, in any limiter of the process, renews the announcement.
///
/// A handle that is held and not used costs each limiter a bounded amount of memory, and nothing
/// else. It keeps what was in use when the handle was last used: at most two eras of a table, and
/// logs and quotas at the size that they had then. With [`ExactKeys`](crate::ExactKeys) it keeps
/// nothing. A handle stays on its thread.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(2)).build()?;
/// let packets = [7, 8, 7, 7];
///
/// let mut pinned = limiter.pin();
/// let passed: Vec<bool> = packets.iter().map(|host| pinned.check(host).is_allowed()).collect();
/// assert_eq!(passed, [true, true, true, false]);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use = "a handle does nothing by itself"]
pub struct Pinned<'l, K: ?Sized, S: Store = Fingerprints> {
    limiter: &'l Limiter<K, S>,
    guard: S::Guard,
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Makes a handle for a loop of checks on this thread: see [`Pinned`].
    ///
    /// # Progress
    ///
    /// Wait-free, once the thread has used any limiter. The first use registers the thread as a
    /// reader, which may allocate, and now and then frees what others have retired.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let mut pinned = limiter.pin();
    /// assert!(pinned.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn pin(&self) -> Pinned<'_, K, S> {
        Pinned { limiter: self, guard: S::Guard::pin() }
    }
}

impl<K: ?Sized, S: Store> Pinned<'_, K, S> {
    /// [`Limiter::check`] through this handle: charges one token if the request is allowed.
    ///
    /// # Progress
    ///
    /// As [`Limiter::check`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let mut pinned = limiter.pin();
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
        self.check_n(key, 1)
    }

    /// [`Limiter::check_n`] through this handle: charges all of `cost` or nothing.
    ///
    /// # Progress
    ///
    /// As [`Limiter::check`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Outcome, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(10)).build()?;
    /// let mut pinned = limiter.pin();
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
        let limiter = self.limiter;
        self.guard.renew();
        limiter.charge(key, cost, || limiter.clock.now(), &self.guard)
    }

    /// [`Limiter::check_at`] through this handle: charges all of `cost` or nothing, at the caller's
    /// time.
    ///
    /// # Progress
    ///
    /// As [`Limiter::check`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let mut pinned = limiter.pin();
    /// assert!(pinned.check_at("alice", 1, Tick::from_nanos(7)).is_allowed());
    /// assert!(!pinned.check_at("alice", 1, Tick::from_nanos(8)).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_at<Q>(&mut self, key: &Q, cost: u64, now: Tick) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.guard.renew();
        self.limiter.charge(key, cost, || now, &self.guard)
    }
}

impl<K: ?Sized, S: Store> fmt::Debug for Pinned<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
