//! Changes of the default quota and of the quotas of keys, and pauses of keys. See
//! `limiter/pauses.rs` for how pauses are stored.

use super::limiter::Limiter;
use crate::decision::{Decision, DecisionSource, Figures, NEVER, Outcome};
use crate::error::{PauseError, QuotaError};
use crate::limiter::store::interface::{Accepts, KeyOf, Store};
use crate::quota::Quota;
use crate::state::Since;
use crate::time::Tick;
use std::time::Duration;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Replaces the quota for all keys without a quota of their own
    /// ([`set_key_quota`](Self::set_key_quota)).
    ///
    /// The call also replaces the quota of the shared state under
    /// [`WhenFull::Share`](crate::WhenFull::Share). A check that starts after this call has
    /// returned is decided under the new quota.
    ///
    /// A quota change does not affect the number of tokens that a key has used. For example, a
    /// bucket of 10 tokens with 4 missing becomes a bucket of 100 with 4 missing. From then on,
    /// tokens refill at the new rate. A larger quota therefore admits everything that the old quota
    /// would have admitted. In an interval that contains a change, a key can use at most the larger
    /// of the two capacities, plus the tokens that refill at the old and the new rate. A bucket's
    /// debt is an exception: it ends no sooner than at the slower of the two rates, unless the key
    /// is reset.
    ///
    /// If the number of missing tokens exceeds the new capacity, the key has no tokens left, and
    /// the excess is forgotten. For this reason, avoid lowering and raising a quota repeatedly.
    ///
    /// Charges from before the change can't be refunded: reservations that are open during the
    /// change return nothing, unless the algorithm is a sliding log. If the quota is the same as
    /// before, the call changes nothing.
    ///
    /// The change takes effect for each key at some time between the call and its return, according
    /// to the clock. [`at`](Self::at) makes the change at a given time. A given time may be ahead
    /// of the times of later requests, for example because the clock was set back. The known keys
    /// whose quota changes are then delayed, at most until the given time. If the given time is
    /// stale, the times of earlier requests may be later than the change. A key may then use more
    /// tokens than stated above. The excess is at most one capacity, and at most the tokens that
    /// refill at the new rate in the interval by which the time is stale.
    ///
    /// If the window length stays the same, the window keeps its counts. If the length changes, the
    /// tokens that count now also count in the new window, which may end later than the old window.
    ///
    /// # Errors
    ///
    /// Returns a [`QuotaError`] if the algorithm can't enforce the quota. Returns a temporary
    /// [`QuotaError`] if there is no memory for the change (see below). After either error, the old
    /// quota remains.
    ///
    /// # Cost and progress
    ///
    /// This method is lock-free, except for the sleep described below. It visits every key, which
    /// takes tens of milliseconds for a million keys, while other threads continue to check. With
    /// [`Fingerprints`](crate::store::Fingerprints), this method turns the table over. With
    /// [`ExactKeys`](crate::store::ExactKeys), it adds another part to the state of each key. Until
    /// the key is forgotten, this part occupies 96 bytes, and checks of the key are a few
    /// nanoseconds slower.
    ///
    /// Replaced memory is freed once no thread can access it any more. If a thread is stopped
    /// during a check, the memory that existed at that moment remains allocated; further changes
    /// are still possible. If several threads have stopped at different times, they may keep so
    /// many tables from being freed that the limiter is not permitted to allocate another. This
    /// call then sleeps for up to a tenth of a second before it returns the error. A limiter of
    /// exact keys never refuses a change for this reason.
    ///
    /// ```
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let limiter: Limiter<String> =
    ///     Limiter::builder(Quota::per_hour(10)).clock(ManualClock::new()).build()?;
    /// assert_eq!(limiter.check_n("alice", 4).remaining(), 6);
    /// limiter.set_quota(Quota::per_hour(100))?;
    /// assert_eq!(limiter.peek("alice").remaining(), 96);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), QuotaError> {
        self.set_quota_since(quota, &Since::by(&self.clock))
    }

    /// Replaces the quota like [`set_quota`](Self::set_quota), at the time `since`.
    pub(crate) fn set_quota_since(&self, quota: Quota, since: &Since) -> Result<(), QuotaError> {
        self.store.set_quota(quota, since)?;
        // The shared state of keys without a slot changes with the default quota.
        self.beyond.overflow.adopt(self.store.changes(), || self.store.default_rule());
        Ok(())
    }

    /// Sets a separate quota for `key`, which replaces the limiter's quota or an earlier quota of
    /// the key. `None` removes the key's quota, so that the limiter's quota applies to the key
    /// again.
    ///
    /// The quota of a key applies even while the key is not tracked. The number of tokens that the
    /// key has used does not change, as described for [`set_quota`](Self::set_quota). Charges of
    /// this key from before the change can't be refunded. Other keys are not affected.
    ///
    /// With [`Fingerprints`](crate::store::Fingerprints), this call costs as much as `set_quota`.
    /// To change many keys at once, use [`set_key_quotas`](Self::set_key_quotas). With
    /// [`ExactKeys`](crate::store::ExactKeys), this call visits only this key. Setting a key's
    /// first quota locks one bucket of an index, and so may removing the quota.
    ///
    /// As long as any key has a quota of its own, every check with `Fingerprints` must look for
    /// such a quota. After the last own quota has been removed, checks still look for it while an
    /// earlier charge of its key may be held under the limiter's quota. This takes at most as long
    /// as a bucket takes to refill, or as long as a window counts. With `ExactKeys`, only the first
    /// check of a key after a quota change looks for the key's own quota. A key's own quota
    /// requires 150 to 300 bytes with `Fingerprints`. With `ExactKeys`, it requires about 400 bytes
    /// plus the key, and the allocator's overhead.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`set_quota`](Self::set_quota). The temporary error also occurs if too
    /// many keys have lost their own quotas. With `Fingerprints`, the limiter remembers such a key
    /// for the time stated above. With `ExactKeys`, the limiter remembers such a key while a thread
    /// is stopped in a lookup of any [`scc`](https://docs.rs/scc) container. With `Fingerprints`,
    /// all present and former own quotas together require at most four times the memory of the
    /// largest set of own quotas so far, or a megabyte if that is more. With `ExactKeys`, there are
    /// at most three former own quotas for each present one, plus 65,536.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// limiter.set_key_quota("alice", Quota::per_hour(1000))?;
    /// assert_eq!(limiter.check("alice").capacity(), 1000);
    /// assert_eq!(limiter.check("bob").capacity(), 1);
    /// limiter.set_key_quota("alice", None)?;
    /// assert_eq!(limiter.check("alice").capacity(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_key_quota<Q>(&self, key: &Q, quota: impl Into<Option<Quota>>) -> Result<(), QuotaError>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.set_key_quotas([(key, quota.into())])
    }

    /// Returns the separate quota of `key`, or `None` if the key has none.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// limiter.set_key_quota("alice", Quota::per_hour(1000))?;
    /// assert_eq!(limiter.key_quota("alice"), Some(Quota::per_hour(1000)));
    /// assert_eq!(limiter.key_quota("bob"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key_quota<Q>(&self, key: &Q) -> Option<Quota>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.store.own_quota(key)
    }

    /// Returns the quota for all keys without a quota of their own. The result is the quota as it
    /// was set, including its burst.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder("60/min".parse()?).build()?;
    /// assert_eq!(limiter.quota().to_string(), "60/min");
    /// limiter.set_quota(Quota::per_second(2))?;
    /// assert_eq!(limiter.quota(), Quota::per_second(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quota(&self) -> Quota {
        self.store.default_quota()
    }

    /// Sets separate quotas for many keys. `None` removes the quota of a key.
    ///
    /// With [`Fingerprints`](crate::store::Fingerprints), a single change sets all quotas, and
    /// costs as much as changing one quota. With [`ExactKeys`](crate::store::ExactKeys), the keys
    /// are changed one after the other. If a quota is refused, or if the iterator panics, no quotas
    /// are changed.
    ///
    /// To replace the quotas of all keys by a new list, pass the keys of the earlier list that are
    /// missing in the new one with `None` in the same call. A limiter of fingerprints cannot list
    /// these keys, because it stores no keys.
    ///
    /// # Errors
    ///
    /// Same as [`set_quota`](Self::set_quota). The error describes the first refused quota. With
    /// `ExactKeys`, a key may panic after the quotas of other keys have been changed. After such a
    /// panic, call this method again.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
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
        Q: KeyOf<K> + ?Sized + 'k,
        S: Accepts<Q>,
    {
        self.set_key_quotas_since(quotas, &Since::by(&self.clock))
    }

    /// Sets or removes quotas like [`set_key_quotas`](Self::set_key_quotas), at the time `since`.
    pub(crate) fn set_key_quotas_since<'k, Q: ?Sized + 'k>(
        &self,
        quotas: impl IntoIterator<Item = (&'k Q, Option<Quota>)>,
        since: &Since,
    ) -> Result<(), QuotaError>
    where
        S: Accepts<Q>,
    {
        let quotas: Vec<_> = quotas.into_iter().collect();
        if quotas.is_empty() {
            return Ok(());
        }
        Ok(self.store.set_own_quotas(&quotas, since)?)
    }
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Denies all requests for `key` for the duration `time`, regardless of its quota. For example,
    /// a pause can serve as a penalty, or can last as long as a server's "retry after" answer
    /// requires.
    ///
    /// During the pause, checks and peeks of the key are denied, and no tokens
    /// [remain](Decision::remaining). The [`retry_after`](Decision::retry_after) of a denial is the
    /// time until the same request is allowed. The request is allowed at the end of the pause, or
    /// later if the quota would still deny it then. Callers in the queues of
    /// [`tollgate-wait`](https://docs.rs/tollgate-wait) also wait for the end of the pause.
    ///
    /// The pause ends automatically. After the pause, the key is in the same state as if it had not
    /// been paused, because tokens refill during the pause, and refunds, [forced
    /// charges](Self::force) and quota changes take effect. A request that costs nothing is allowed
    /// even during a pause.
    ///
    /// A second pause can extend the first, but never shortens it. A pause that would end after
    /// [`Tick::MAX`] ends at [`Tick::MAX`]. Only [`reset`](Self::reset) and [`clear`](Self::clear)
    /// end a pause early. (The limiter forgets a pause one [`grace`](crate::Builder::grace) after
    /// its end or later. If the clock is then set back to a time before the end, the pause may be
    /// gone.) Each class has a separate limiter, so pause a key in each of its classes.
    ///
    /// Pauses work with all algorithms. [`SingleLimiter`](crate::SingleLimiter) and
    /// [`InFlight`](crate::InFlight) do not support pauses. Even a key without a state, such as a
    /// new key or a key that has found the table full, can be paused.
    ///
    /// # Memory
    ///
    /// A pause requires as much memory as a key, until the pause has ended and been forgotten. Up
    /// to [`max_keys`](crate::Builder::max_keys) keys can be paused at the same time, so pauses can
    /// double the memory of a limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`PauseError`] if `max_keys` keys are paused or were paused until recently, or if
    /// the system refuses the memory. After either error, the key is not paused.
    ///
    /// The limiter forgets pauses as it forgets idle keys. A pause keeps its place for at least one
    /// [grace](crate::Builder::grace) after its end. From two graces after its end, the place is
    /// freed by the calls that need it. The first few of these calls may fail, like the first
    /// checks of new keys in a [full table](crate::Limiter#memory).
    ///
    /// # Cost
    ///
    /// Before the first pause, a check loads one additional pointer. After the first pause, a check
    /// reads the clock before it prefetches. While any key is paused, a check also looks up its key
    /// among the paused keys.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let clock = ManualClock::new();
    /// let limiter: Limiter<String> =
    ///     Limiter::builder(Quota::per_second(10)).clock(&clock).build()?;
    /// limiter.pause("alice", Duration::from_secs(30))?;
    /// clock.advance(Duration::from_secs(10));
    /// let denied = limiter.check("alice");
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(20)));
    /// assert!(limiter.check("bob").is_allowed());
    /// clock.advance(Duration::from_secs(20));
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause<Q>(&self, key: &Q, time: Duration) -> Result<(), PauseError>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.pause_at(key, time, self.clock.now())
    }

    /// Pauses a key like [`pause`](Self::pause), starting at the time `now`.
    pub(crate) fn pause_at<Q: ?Sized>(&self, key: &Q, time: Duration, now: Tick) -> Result<(), PauseError>
    where
        S: Accepts<Q>,
    {
        let end = now + time;
        if end > now { Ok(self.pauses.set(key, now, end, &self.store)?) } else { Ok(()) }
    }

    /// Returns the answer to a request for a paused key. Returns `None` if the key is not paused or
    /// the request costs nothing.
    pub(crate) fn held_back<Q: ?Sized>(&self, key: &Q, cost: u64, now: Tick) -> Option<Decision>
    where
        S: Accepts<Q>,
    {
        let left = self.pauses.left(key, now);
        (left > 0 && cost > 0).then(|| self.behind_pause(key, cost, now, now + Duration::from_nanos(left)))
    }

    /// Returns the answer at `now` to a request for a key whose pause ends at `end`.
    pub(crate) fn behind_pause<Q: ?Sized>(&self, key: &Q, cost: u64, now: Tick, end: Tick) -> Decision
    where
        S: Accepts<Q>,
    {
        // The answer that the request would receive at the end of the pause, if no other request
        // arrived earlier.
        let left = end.as_nanos() - now.as_nanos();
        let then = self.peek_unpaused(key, cost, end);
        let from_now = |time: Option<Duration>| match time.map(|time| u64::try_from(time.as_nanos())) {
            Some(Ok(nanos)) => left.saturating_add(nanos),
            _ => NEVER,
        };
        let outcome = if then.outcome == Outcome::TooCostly { then.outcome } else { Outcome::Denied };
        let figures = Figures::Known {
            remaining: 0,
            wait: from_now(then.retry_after()),
            reset: from_now(Some(then.reset_after())),
        };
        // The pause is a state of the key, even if the key has no place in the store.
        Decision { outcome, cost, at: now, figures, source: DecisionSource::Pause, ..then }
    }
}
