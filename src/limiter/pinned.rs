//! A handle for hot loops, which says once for many checks that its thread reads.

use super::fingerprints::Fingerprints;
use super::keyed::Limiter;
use super::store::{Holds, Store};
use crate::decision::Decision;
use crate::time::Tick;
use equivalent::Equivalent;
use std::fmt;
use std::hash::Hash;

/// After how many checks a handle lets go of what it may have seen.
const REPIN: u32 = 64;

/// A handle on a [`Limiter`] for a thread that checks in a loop, made by [`Limiter::pin`].
///
/// A check through it saves what a thread needs to announce that it reads the table: on Linux a few instructions,
/// elsewhere some nanoseconds. The announcement is renewed after every 64 checks, unless the thread holds another handle.
/// While a handle is held and not renewed, nothing is freed that a limiter of this process has retired since (with exact
/// keys, also nothing of scc's other users, and where there is no `membarrier` nothing of crossbeam-epoch's); a limiter's
/// memory stays bounded all the same, but new keys may get the [full policy](crate::Full). So hold one for the loop, not
/// several, and not across waiting for work. It stays on its thread.
///
/// It reads the limiter's clock for each check, which is a third of a check or more. A loop that
/// knows the time takes a [`PinnedAt`](crate::PinnedAt) instead.
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(2)).build()?;
/// let packets = [7, 8, 7, 7];
///
/// let mut gate = limiter.pin();
/// let passed: Vec<bool> = packets.iter().map(|host| gate.check(host).allowed()).collect();
/// assert_eq!(passed, [true, true, true, false]);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use = "a handle does nothing by itself"]
pub struct Pinned<'l, K: ?Sized, S: Store = Fingerprints> {
    limiter: &'l Limiter<K, S>,
    guard: S::Guard,
    left: u32,
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// A handle for a loop of checks on this thread: see [`Pinned`].
    ///
    /// # Progress
    ///
    /// Wait-free, once the thread has used any limiter; the first time it takes a place among those who read, which
    /// may allocate, and now and then it frees what others have retired.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let mut gate = limiter.pin();
    /// assert!(gate.check("alice").allowed());
    /// assert!(!limiter.check("alice").allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn pin(&self) -> Pinned<'_, K, S> {
        Pinned { limiter: self, guard: S::pin(), left: REPIN }
    }
}

impl<K: ?Sized, S: Store> Pinned<'_, K, S> {
    /// As [`Limiter::check`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let mut gate = limiter.pin();
    /// assert!(gate.check("alice").allowed());
    /// assert!(!gate.check("alice").allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check<Q>(&mut self, key: &Q) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Holds<Q>,
    {
        self.check_n(key, 1)
    }

    /// As [`Limiter::check_n`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Outcome, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(10)).build()?;
    /// let mut gate = limiter.pin();
    /// assert_eq!(gate.check_n("alice", 11).outcome(), Outcome::TooCostly);
    /// assert_eq!(gate.check_n("alice", 7).remaining(), 3);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_n<Q>(&mut self, key: &Q, cost: u64) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Holds<Q>,
    {
        let limiter = self.limiter;
        self.count(|| limiter.clock.now());
        limiter.charge_under::<Q>(limiter.key(key), cost, || limiter.clock.now(), &self.guard)
    }

    /// As [`Limiter::check_at`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let mut gate = limiter.pin();
    /// assert!(gate.check_at("alice", 1, Tick::from_nanos(7)).allowed());
    /// assert!(!gate.check_at("alice", 1, Tick::from_nanos(8)).allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_at<Q>(&mut self, key: &Q, cost: u64, now: Tick) -> Decision
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Holds<Q>,
    {
        let limiter = self.limiter;
        self.count(|| now);
        limiter.charge_under::<Q>(limiter.key(key), cost, || now, &self.guard)
    }

    /// Counts a check. Now and then, lets go of what it may have seen, and does a step of upkeep.
    #[inline]
    fn count(&mut self, now: impl FnOnce() -> Tick) {
        if self.left == 0 {
            self.renew(now());
        }
        self.left -= 1;
    }

    #[cold]
    fn renew(&mut self, now: Tick) {
        self.left = REPIN;
        S::repin(&mut self.guard);
        self.limiter.store.tend_once(now);
    }
}

impl<K: ?Sized, S: Store> fmt::Debug for Pinned<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned").field("limiter", &self.limiter).finish_non_exhaustive()
    }
}
