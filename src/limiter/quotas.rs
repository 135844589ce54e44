//! Changing quotas while a limiter is in use.

use super::keyed::Limiter;
use super::store::{Accepts, Store};
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::time::Tick;
use equivalent::Equivalent;
use std::hash::Hash;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Replaces the quota of all keys that have none of their own ([`set_key_quota`](Self::set_key_quota)), and of
    /// the state that keys share under [`WhenFull::Share`](crate::WhenFull::Share). A check that begins after this has
    /// returned is decided under the new quota.
    ///
    /// What a key has taken stays taken, as tokens: a bucket of 10 with 4 missing is one of 100 with 4 missing, and
    /// from then on they come back at the new rate. So a larger quota admits whatever the one before would have
    /// admitted, and all that is admitted around a change is at most the larger of the two capacities, and what
    /// the rates add. Where the new capacity is smaller than what is missing, the key has nothing left, and what is
    /// missing beyond is forgotten; so don't lower and raise a quota again and again. Charges that were made before
    /// can still be given back, a bucket's as far as the new rate would have refilled while the old one held them.
    ///
    /// A window of the same length keeps its counts. Where the length changes, what counts now counts in the new
    /// window, which may end later than the old one would have; and charges that were made before can't be given
    /// back.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] for a quota that the algorithm can't enforce, and [`ConfigError::QuotaNotChanged`] where the
    /// memory is not to be had (see below). Nothing has changed then.
    ///
    /// # Cost and progress
    ///
    /// Lock-free, but for the wait below. This call visits every key, which takes some tens of milliseconds for a
    /// million, while others go on checking. With [`Fingerprints`](crate::Fingerprints) it turns the table over; with
    /// [`ExactKeys`](crate::ExactKeys) it gives each key the next part of its state, which takes 88 bytes until the
    /// key is forgotten, and makes its checks some nanoseconds longer.
    ///
    /// What a change replaces is freed when no thread can see it any more. A thread that is stopped in a check, or holds a
    /// [`pin`](Self::pin) handle (this one, too), keeps what was there when it stopped, and other changes are made
    /// meanwhile. Where several that stopped at different times keep so many tables that no memory is permitted for
    /// another one, this call sleeps for up to a tenth of a second, and is then refused. Exact keys refuse none.
    ///
    /// ```
    /// # use tollgate::{Clock, Limiter, Quota};
    /// let limiter: Limiter<str> =
    ///     Limiter::builder(Quota::per_hour(10)).clock(Clock::manual()).build()?;
    /// assert_eq!(limiter.check_n("alice", 4).remaining(), 6);
    /// limiter.set_quota(Quota::per_hour(100))?;
    /// assert_eq!(limiter.peek("alice").remaining(), 96);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        self.set_quota_at(quota, self.clock.now())
    }

    /// [`set_quota`](Self::set_quota) for those who check at times of their own
    /// ([`check_at`](Self::check_at)): what is missing at `now` stays missing.
    ///
    /// # Errors
    ///
    /// As [`set_quota`](Self::set_quota).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_second(1)).build()?;
    /// assert!(limiter.check_at("alice", 1, Tick::ZERO).is_allowed());
    /// limiter.set_quota_at(Quota::per_second(1).burst(2), Tick::ZERO)?;
    /// assert!(limiter.check_at("alice", 1, Tick::ZERO).is_allowed());
    /// assert!(!limiter.check_at("alice", 1, Tick::ZERO).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn set_quota_at(&self, quota: Quota, now: Tick) -> Result<(), ConfigError> {
        self.store.set_quota(quota, now)?;
        // What keys without a place share goes on under it, from now on.
        self.visit_shared(|_| Some(()));
        Ok(())
    }

    /// Gives `key` a quota of its own, in place of the one that all have, or another one. It holds until it is
    /// [removed](Self::remove_key_quota), also while the key is not tracked. The rules of
    /// [`set_quota`](Self::set_quota) apply, and its errors and costs with [`Fingerprints`](crate::Fingerprints): there
    /// change many at once, by [`set_key_quotas`](Self::set_key_quotas). With [`ExactKeys`](crate::ExactKeys) only
    /// this key is visited; a key's first own quota, and the loss of it, take a lock on one bucket of an index.
    ///
    /// With `Fingerprints`, every check looks for a quota of its key's own while any key has one; with `ExactKeys`
    /// the first check of a key after any change does. It takes some 150 bytes with `Fingerprints`, and with
    /// `ExactKeys` some 330 and the key.
    ///
    /// # Errors
    ///
    /// As [`set_quota`](Self::set_quota).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// limiter.set_key_quota("alice", Quota::per_hour(1000))?;
    /// assert_eq!(limiter.check("alice").capacity(), 1000);
    /// assert_eq!(limiter.check("bob").capacity(), 1);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn set_key_quota<Q>(&self, key: &Q, quota: Quota) -> Result<(), ConfigError>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.set_key_quotas([(key, Some(quota))])
    }

    /// Takes its own quota from `key`, which comes under the quota of all again. True if it had one.
    ///
    /// # Errors
    ///
    /// [`ConfigError::QuotaNotChanged`], as [`set_quota`](Self::set_quota).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// limiter.set_key_quota("alice", Quota::per_hour(1000))?;
    /// assert!(limiter.remove_key_quota("alice")?);
    /// assert!(!limiter.remove_key_quota("alice")?);
    /// assert_eq!(limiter.check("alice").capacity(), 1);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn remove_key_quota<Q>(&self, key: &Q) -> Result<bool, ConfigError>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.store.set_own_quotas(&[(key, None)], self.clock.now())
    }

    /// The quota of its own that `key` has.
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// limiter.set_key_quota("alice", Quota::per_hour(1000))?;
    /// assert_eq!(limiter.key_quota("alice"), Some(Quota::per_hour(1000)));
    /// assert_eq!(limiter.key_quota("bob"), None);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn key_quota<Q>(&self, key: &Q) -> Option<Quota>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.store.own_quota(key)
    }

    /// The quota of all keys that have none of their own, as it was given, burst and all.
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder("60/min".parse()?).build()?;
    /// assert_eq!(limiter.quota().to_string(), "60/min");
    /// limiter.set_quota(Quota::per_second(2))?;
    /// assert_eq!(limiter.quota(), Quota::per_second(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quota(&self) -> Quota {
        self.store.default_rule().rule.quota
    }

    /// Gives many keys quotas of their own, or takes theirs from them (`None`). With
    /// [`Fingerprints`](crate::Fingerprints) all of it is one change, at the cost of one; with
    /// [`ExactKeys`](crate::ExactKeys) it is one after the other. If a quota is refused, or the iterator panics, nothing has
    /// changed.
    ///
    /// # Errors
    ///
    /// As [`set_quota`](Self::set_quota); it is the first quota that is refused. With `ExactKeys`,
    /// [`ConfigError::QuotaNotChanged`], or a panic of a key, may come after some keys were changed; do it again then.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// limiter.set_key_quotas([
    ///     ("alice", Some(Quota::per_hour(1000))),
    ///     ("bob", Some(Quota::per_second(5))),
    ///     ("carol", None),
    /// ])?;
    /// assert_eq!(limiter.check("bob").capacity(), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn set_key_quotas<'k, Q>(
        &self,
        quotas: impl IntoIterator<Item = (&'k Q, Option<Quota>)>,
    ) -> Result<(), ConfigError>
    where
        Q: Hash + Equivalent<K> + ?Sized + 'k,
        S: Accepts<Q>,
    {
        self.set_key_quotas_at(quotas, self.clock.now())
    }

    /// [`set_key_quotas`](Self::set_key_quotas) for those who check at times of their own
    /// ([`check_at`](Self::check_at)).
    ///
    /// # Errors
    ///
    /// As [`set_quota`](Self::set_quota).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(1)).build()?;
    /// limiter.set_key_quotas_at([(&7, Some(Quota::per_second(2)))], Tick::ZERO)?;
    /// assert!(limiter.check_at(&7, 2, Tick::ZERO).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn set_key_quotas_at<'k, Q>(
        &self,
        quotas: impl IntoIterator<Item = (&'k Q, Option<Quota>)>,
        now: Tick,
    ) -> Result<(), ConfigError>
    where
        Q: Hash + Equivalent<K> + ?Sized + 'k,
        S: Accepts<Q>,
    {
        let quotas: Vec<_> = quotas.into_iter().collect();
        if quotas.is_empty() {
            return Ok(());
        }
        self.store.set_own_quotas(&quotas, now).map(|_| ())
    }
}
