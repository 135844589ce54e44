//! The methods of a keyed limiter at times passed by the caller.

use super::keys::{KeyState, Keys};
use super::limiter::Limiter;
use crate::decision::Decision;
use crate::error::{PauseError, QuotaError};
use crate::limiter::store::exact_keys::ExactKeys;
use crate::limiter::store::interface::{Accepts, KeyOf, OneToken, Store};
use crate::limiter::time_of::At;
use crate::limiter::together::chargeable::{Chargeable, KeyLimiter};
use crate::quota::Quota;
use crate::state::Since;
use std::hash::BuildHasher;
use std::time::Duration;

impl<'l, K: ?Sized, S: Store> At<'l, Limiter<K, S>> {
    /// Checks a key like [`Limiter::check`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let decision = limiter.at(Tick::from_nanos(7)).check("alice");
    /// assert!(decision.is_allowed());
    /// assert_eq!(decision.at(), Tick::from_nanos(7));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check<Q>(&self, key: &Q) -> Decision
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.check_n(key, 1)
    }

    /// Checks a key like [`Limiter::check_n`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Outcome, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(10)).build()?;
    /// let start = limiter.at(Tick::ZERO);
    /// assert_eq!(start.check_n("alice", 11).outcome(), Outcome::TooCostly);
    /// assert_eq!(start.check_n("alice", 7).remaining(), 3);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_n<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        let now = self.now;
        self.limiter.check_at(key, cost, move || now)
    }

    /// Checks many keys like [`Limiter::check_many`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let mut decisions = Vec::new();
    /// limiter.at(Tick::ZERO).check_many(&[7, 8, 7], &mut decisions);
    /// assert_eq!(decisions.iter().filter(|decision| decision.is_allowed()).count(), 2);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn check_many<'k, Q>(&self, keys: impl IntoIterator<Item = &'k Q>, decisions: &mut Vec<Decision>)
    where
        Q: KeyOf<K> + ?Sized + 'k,
        S: Accepts<Q>,
    {
        let now = self.now;
        self.limiter.check_many_at(keys.into_iter().map(|key| (key, OneToken)), || now, decisions);
    }

    /// Checks many keys with their costs like [`Limiter::check_many_n`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(10)).build()?;
    /// let mut decisions = Vec::new();
    /// limiter.at(Tick::ZERO).check_many_n([(&7, 6), (&7, 6)], &mut decisions);
    /// assert_eq!(decisions.iter().filter(|decision| decision.is_allowed()).count(), 1);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn check_many_n<'k, Q>(
        &self,
        requests: impl IntoIterator<Item = (&'k Q, u64)>,
        decisions: &mut Vec<Decision>,
    ) where
        Q: KeyOf<K> + ?Sized + 'k,
        S: Accepts<Q>,
    {
        let now = self.now;
        self.limiter.check_many_at(requests, || now, decisions);
    }

    /// Peeks at a key like [`Limiter::peek`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.at(Tick::ZERO).peek("alice").remaining(), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek<Q>(&self, key: &Q) -> Decision
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.peek_n(key, 1)
    }

    /// Peeks at a key like [`Limiter::peek_n`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Outcome, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// assert!(limiter.at(Tick::ZERO).peek_n("alice", 5).is_allowed());
    /// assert_eq!(limiter.at(Tick::ZERO).peek_n("alice", 6).outcome(), Outcome::TooCostly);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek_n<Q>(&self, key: &Q, cost: u64) -> Decision
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.limiter.peek_at(key, cost, self.now)
    }

    /// Refunds a charge like [`Limiter::refund`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// let start = limiter.at(Tick::ZERO);
    /// let decision = start.check_n("alice", 5);
    /// start.refund("alice", &decision);
    /// assert_eq!(start.peek("alice").remaining(), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund<Q>(&self, key: &Q, decision: &Decision)
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.refund_n(key, decision, u64::MAX);
    }

    /// Refunds a charge like [`Limiter::refund_n`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// let start = limiter.at(Tick::ZERO);
    /// let decision = start.check_n("alice", 5);
    /// start.refund_n("alice", &decision, 2);
    /// assert_eq!(start.peek("alice").remaining(), 2);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund_n<Q>(&self, key: &Q, decision: &Decision, tokens: u64)
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.limiter.refund_at(key, decision, tokens, self.now);
    }

    /// Charges spent tokens like [`Limiter::force`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.at(Tick::ZERO).force("alice", 7), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn force<Q>(&self, key: &Q, tokens: u64) -> u64
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.limiter.force_at(key, tokens, self.now)
    }

    /// Pauses a key like [`Limiter::pause`], starting at the time of this view.
    ///
    /// # Errors
    ///
    /// Same as [`Limiter::pause`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(5)).build()?;
    /// let start = limiter.at(Tick::ZERO);
    /// start.pause("alice", Duration::from_secs(1))?;
    /// assert!(!start.check("alice").is_allowed());
    /// assert!(limiter.at(Tick::from_nanos(1_000_000_000)).check("alice").is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause<Q>(&self, key: &Q, time: Duration) -> Result<(), PauseError>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.limiter.pause_at(key, time, self.now)
    }

    /// Returns a view for one key like [`Limiter::for_key`], at the time of this view. Use it in
    /// [`check_all`](crate::check_all).
    ///
    /// ```
    /// # use tollgate::{Charge, Limiter, Quota, Tick, check_all};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let alice = limiter.at(Tick::from_nanos(7)).for_key("alice");
    /// let mut charges = [Charge::new(&alice, 1)];
    /// assert!(check_all(&mut charges).is_ok());
    /// assert_eq!(charges[0].decision().unwrap().at(), Tick::from_nanos(7));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn for_key<'k, Q>(&self, key: &'k Q) -> impl Chargeable + use<'l, 'k, K, S, Q>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        KeyLimiter::new(self.limiter, key, self.now)
    }

    /// Replaces the quota like [`Limiter::set_quota`], at the time of this view. Tokens that are
    /// missing at this time remain missing.
    ///
    /// # Errors
    ///
    /// Same as [`Limiter::set_quota`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(1)).build()?;
    /// let start = limiter.at(Tick::ZERO);
    /// assert!(start.check("alice").is_allowed());
    /// start.set_quota(Quota::per_second(1).burst(2))?;
    /// assert!(start.check("alice").is_allowed());
    /// assert!(!start.check("alice").is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) -> Result<(), QuotaError> {
        self.limiter.set_quota_since(quota, &Since::at(self.now))
    }

    /// Sets or removes quotas of keys like [`Limiter::set_key_quotas`], at the time of this view.
    ///
    /// # Errors
    ///
    /// Same as [`Limiter::set_quota`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(1)).build()?;
    /// let start = limiter.at(Tick::ZERO);
    /// start.set_key_quotas([("alice", Some(Quota::per_second(5))), ("bob", None)])?;
    /// assert_eq!((start.peek("alice").remaining(), start.peek("bob").remaining()), (5, 1));
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
        self.limiter.set_key_quotas_since(quotas, &Since::at(self.now))
    }

    /// Performs upkeep like [`Limiter::sweep`], at the time of this view.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(1)).build()?;
    /// let _ = limiter.at(Tick::ZERO).check("alice");
    /// let later = limiter.at(Tick::ZERO + Duration::from_secs(60));
    /// while later.sweep(1_024) {}
    /// assert!(limiter.is_empty());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn sweep(&self, budget: usize) -> bool {
        self.limiter.sweep_by(budget, &|| self.now)
    }

    /// Resets and forgets all keys like [`Limiter::clear`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let start = limiter.at(Tick::ZERO);
    /// let _ = start.check("alice");
    /// start.clear();
    /// assert!(start.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clear(&self) {
        self.limiter.clear_by(&|| self.now);
    }
}

impl<'l, K: Eq + Send + Sync + 'static, H: BuildHasher + Clone + Send + Sync + 'static>
    At<'l, Limiter<K, ExactKeys<K, H>>>
{
    /// Iterates over the tracked keys like [`Limiter::keys`], at the time of this view.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter = Limiter::<u64>::builder(Quota::per_second(1)).exact_keys().build()?;
    /// let _ = limiter.at(Tick::ZERO).check(&7);
    /// let used = |now| limiter.at(now).keys().map(|key| key.used()).sum::<u64>();
    /// assert_eq!((used(Tick::ZERO), used(Tick::from_nanos(1_000_000_000))), (1, 0));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = KeyState<K>> + use<'l, K, H> {
        Keys::of(self.limiter, self.now)
    }
}
