//! Changing quotas while a limiter is in use.

use super::limiter::Limiter;
use crate::error::QuotaError;
use crate::limiter::store::interface::{Accepts, Store};
use crate::quota::Quota;
use crate::time::Tick;
use equivalent::Equivalent;
use std::hash::Hash;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Replaces the quota of all keys that have no quota of their own
    /// ([`set_key_quota`](Self::set_key_quota)).
    ///
    /// This includes the state that keys share under [`WhenFull::Share`](crate::WhenFull::Share). A
    /// check that begins after this call has returned is decided under the new quota.
    ///
    /// What a key has taken stays taken, as tokens. A bucket of 10 with 4 missing becomes one of
    /// 100 with 4 missing, and from then on tokens come back at the new rate. So a larger quota
    /// admits everything that the old one would have admitted. All that is admitted around a change
    /// is at most the larger of the two capacities, and what the rates add.
    ///
    /// If more tokens are missing than the new capacity, the key has nothing left and the rest of
    /// its debt is forgotten; so don't lower and raise a quota again and again. A refund of a
    /// charge from before may give back as many tokens again as were forgotten.
    ///
    /// Charges from before the change can still be given back. A bucket gives back what a charge
    /// would still hold if it had refilled at the fastest rate that the key has had: all of it at
    /// once, and less later if the key has had a faster rate.
    ///
    /// A window of the same length keeps its counts. If the length changes, tokens that count now
    /// count in the new window, which may end later than the old one would have, and charges from
    /// before the change can't be given back, even if the length changes back.
    ///
    /// # Errors
    ///
    /// A [`QuotaError`] for a quota that the algorithm can't enforce, and
    /// A temporary [`QuotaError`] if there is no memory for the change (see below). Then
    /// nothing has changed.
    ///
    /// # Cost and progress
    ///
    /// Lock-free, except for the wait below. This call visits every key, which takes some tens of
    /// milliseconds for a million keys, while other threads keep checking. With
    /// [`Fingerprints`](crate::store::Fingerprints) it turns the table over. With
    /// [`ExactKeys`](crate::store::ExactKeys) it gives each key the next part of its state, which
    /// takes 96 bytes until the key is forgotten and makes checks of the key some nanoseconds
    /// longer.
    ///
    /// What a change replaces is freed when no thread can see it any more. A thread that is stopped
    /// in a check keeps what existed when it stopped; other changes can still be made meanwhile. If
    /// several threads stopped at different times, they may keep so many tables that no memory is
    /// permitted for another one. Then this call sleeps for up to a tenth of a second and returns
    /// the error. Exact keys refuse no change.
    ///
    /// ```
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<str> =
    ///     Limiter::builder(Quota::per_hour(10)).clock(ManualClock::new()).build()?;
    /// assert_eq!(limiter.check_n("alice", 4).remaining(), 6);
    /// limiter.set_quota(Quota::per_hour(100))?;
    /// assert_eq!(limiter.peek("alice").remaining(), 96);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), QuotaError> {
        self.set_quota_at(quota, self.clock.now())
    }

    /// [`set_quota`](Self::set_quota) at a time.
    pub(crate) fn set_quota_at(&self, quota: Quota, now: Tick) -> Result<(), QuotaError> {
        self.store.set_quota(quota, now)?;
        // The state that keys without a slot share changes with the default quota.
        self.beyond.overflow.adopt(self.store.changes(), || self.store.default_rule());
        Ok(())
    }

    /// Gives `key` a quota of its own, in place of the limiter's quota or of an earlier own quota;
    /// `None` removes it, so that the limiter's quota holds for the key again.
    ///
    /// An own quota holds also while the key is not tracked. Tokens that are taken stay taken, as
    /// [`set_quota`](Self::set_quota) says. After a removal, a refund of an earlier charge, also of
    /// another key, counts with the fastest rate that the key has had: the limiter does not
    /// remember which key that was.
    ///
    /// With [`Fingerprints`](crate::store::Fingerprints) this call costs as much as `set_quota`, so
    /// change many keys together with [`set_key_quotas`](Self::set_key_quotas). With
    /// [`ExactKeys`](crate::store::ExactKeys) it visits this key only; the first own quota of a
    /// key, and its removal, lock one bucket of an index.
    ///
    /// While any key has an own quota, every check with `Fingerprints` looks for one; with
    /// `ExactKeys`, the first check of a key after any change does. An own quota takes some 180
    /// bytes with `Fingerprints`, and some 330 bytes and the key with `ExactKeys`.
    ///
    /// # Errors
    ///
    /// Same as [`set_quota`](Self::set_quota).
    ///
    /// # Progress
    ///
    /// As [`set_quota`](Self::set_quota). With `ExactKeys` the first own quota of a key and its
    /// removal take a lock.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// limiter.set_key_quota("alice", Quota::per_hour(1000))?;
    /// assert_eq!(limiter.check("alice").capacity(), 1000);
    /// assert_eq!(limiter.check("bob").capacity(), 1);
    /// limiter.set_key_quota("alice", None)?;
    /// assert_eq!(limiter.check("alice").capacity(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_key_quota<Q>(&self, key: &Q, quota: impl Into<Option<Quota>>) -> Result<(), QuotaError>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.set_key_quotas([(key, quota.into())])
    }

    /// The own quota of `key`, if it has one.
    ///
    /// # Progress
    ///
    /// This method is lock-free and does not allocate.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// limiter.set_key_quota("alice", Quota::per_hour(1000))?;
    /// assert_eq!(limiter.key_quota("alice"), Some(Quota::per_hour(1000)));
    /// assert_eq!(limiter.key_quota("bob"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key_quota<Q>(&self, key: &Q) -> Option<Quota>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.store.own_quota(key)
    }

    /// The quota of all keys that have no quota of their own, as it was set, with its burst.
    ///
    /// # Progress
    ///
    /// This method is lock-free and does not allocate.
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
        self.store.default_quota()
    }

    /// Gives many keys quotas of their own, or removes them (`None`).
    ///
    /// With [`Fingerprints`](crate::store::Fingerprints) all of it is one change, at the cost of
    /// one; with [`ExactKeys`](crate::store::ExactKeys) the keys are changed one after the other.
    /// If a quota is refused, or the iterator panics, nothing has changed.
    ///
    /// # Errors
    ///
    /// Same as [`set_quota`](Self::set_quota), for the first quota that is refused. With `ExactKeys` a
    /// panic of a key may come after some keys were changed; then call this again.
    ///
    /// # Progress
    ///
    /// As [`set_key_quota`](Self::set_key_quota). Allocates a list of the keys.
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
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_key_quotas<'k, Q>(
        &self,
        quotas: impl IntoIterator<Item = (&'k Q, Option<Quota>)>,
    ) -> Result<(), QuotaError>
    where
        Q: Hash + Equivalent<K> + ?Sized + 'k,
        S: Accepts<Q>,
    {
        self.set_key_quotas_at(quotas, self.clock.now())
    }

    /// [`set_key_quotas`](Self::set_key_quotas) at a time.
    pub(crate) fn set_key_quotas_at<'k, Q: ?Sized + 'k>(
        &self,
        quotas: impl IntoIterator<Item = (&'k Q, Option<Quota>)>,
        now: Tick,
    ) -> Result<(), QuotaError>
    where
        S: Accepts<Q>,
    {
        let quotas: Vec<_> = quotas.into_iter().collect();
        if quotas.is_empty() {
            return Ok(());
        }
        Ok(self.store.set_own_quotas(&quotas, now)?)
    }
}
