//! Builds the limiters, and has the settings that not all of them have.

use super::builder::{Builder, Chosen};
use super::exact_keys::ExactKeys;
use super::fingerprints::Fingerprints;
use super::hash::{KeyHash, SipHash};
use super::keyed::Limiter;
use super::method::Method;
use super::single::SingleLimiter;
use super::store::{Settings, Store};
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::settings::WhenFull;
use std::hash::Hash;
use std::time::Duration;

impl<K: ?Sized, S: Store> Builder<Limiter<K, S>> {
    /// The most keys that the limiter tracks at the same time: a hard cap on its memory (see
    /// [Memory](Limiter#memory)).
    ///
    /// From 1 to 4,294,967,295, with exact keys one fewer; the default is 1,000,000.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let builder = Limiter::<str>::builder(Quota::per_day(3)).max_keys(0);
    /// assert!(builder.build().unwrap_err().to_string().starts_with("max_keys 0 is out of range"));
    /// ```
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.chosen.max_keys = max_keys;
        self
    }

    /// What new keys get when `max_keys` is reached; the default is [`WhenFull::Deny`].
    ///
    /// ```
    /// # use tollgate::{WhenFull, Limiter, Quota};
    /// let limiter: Limiter<u8> =
    ///     Limiter::builder(Quota::per_day(3)).max_keys(1).when_full(WhenFull::Allow).build()?;
    /// assert!(limiter.check(&1).is_allowed());
    /// assert!(limiter.check(&2).is_allowed());
    /// assert_eq!(limiter.len(), 1);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.chosen.when_full = when_full;
        self
    }

    /// How long a key must have been idle before it is forgotten; the default is one second.
    ///
    /// The grace is for tuning. Decisions depend on it in one case only: a new key whose `now` is
    /// further than the grace behind the latest times may be charged at a later time (see
    /// [Time](Limiter#time)). So set it larger than the skew between the times that callers pass.
    /// The table turns over at most once a grace, except to grow, or when it is full and refuses
    /// keys.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<u8> =
    ///     Limiter::builder(Quota::per_day(3)).grace(Duration::from_secs(60)).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.chosen.grace = grace;
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the value, the allowed range and the fix.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_second(10)).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn build(self) -> Result<Limiter<K, S>, ConfigError> {
        self.limiter(self.chosen.method()?, self.chosen.quota, self.chosen.max_keys)
    }

    /// Builds a limiter with these settings and, for the rest, those of the builder.
    pub(super) fn limiter(
        &self,
        method: Method,
        quota: Quota,
        max_keys: usize,
    ) -> Result<Limiter<K, S>, ConfigError> {
        let &Chosen { grace, count_denials, when_full, .. } = &self.chosen;
        let store = S::try_from(Settings { quota, method, max_keys, grace, count_denials })?;
        Ok(Limiter::new(method, self.chosen.clock.clone(), store, when_full))
    }
}

impl<K: ?Sized> Builder<Limiter<K>> {
    /// Hashes the keys with [`SipHash`], for keys that an attacker picks; the default hash is
    /// faster.
    ///
    /// [`KeyHash`](crate::KeyHash) compares the two.
    ///
    /// ```
    /// # use tollgate::{Fingerprints, Limiter, Quota, SipHash};
    /// let limiter: Limiter<str, Fingerprints<SipHash>> =
    ///     Limiter::builder(Quota::per_hour(1)).keyed_hash().build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn keyed_hash(self) -> Builder<Limiter<K, Fingerprints<SipHash>>> {
        self.building()
    }
}

impl<K, H: KeyHash> Builder<Limiter<K, Fingerprints<H>>> {
    /// Keeps the keys themselves: no two ever share a state, and they can be
    /// [listed](Limiter::keys).
    ///
    /// This takes several times the memory, and inserting a key locks one bucket of the index; see
    /// [`ExactKeys`].
    ///
    /// ```
    /// # use tollgate::{ExactKeys, Limiter, Quota};
    /// let limiter: Limiter<String, ExactKeys<String>> =
    ///     Limiter::builder(Quota::per_hour(1)).exact_keys().build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn exact_keys(self) -> Builder<Limiter<K, ExactKeys<K, H>>>
    where
        K: Hash + Eq + Send + Sync + 'static,
    {
        self.building()
    }
}

impl<K> Builder<Limiter<K, ExactKeys<K>>> {
    /// Looks the keys up with [`SipHash`], for keys that an attacker picks; the default hash is
    /// faster.
    ///
    /// [`KeyHash`](crate::KeyHash) compares the two.
    ///
    /// ```
    /// # use tollgate::{ExactKeys, Limiter, Quota, SipHash};
    /// let limiter: Limiter<String, ExactKeys<String, SipHash>> =
    ///     Limiter::builder(Quota::per_hour(1)).exact_keys().keyed_hash().build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn keyed_hash(self) -> Builder<Limiter<K, ExactKeys<K, SipHash>>> {
        self.building()
    }
}

impl<K, H: KeyHash> Builder<Limiter<K, ExactKeys<K, H>>> {
    /// Counts how often each key was denied while it is tracked
    /// ([`KeyState::denied`](crate::KeyState::denied)).
    ///
    /// With this setting a denial writes: it looks the key up once more and adds one to a count
    /// beside its state. That slows the denials of a key that several threads check at the same
    /// time. Without it a denial writes nothing.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter =
    ///     Limiter::<String>::builder(Quota::per_hour(1)).exact_keys().count_denials().build()?;
    /// for _ in 0..3 {
    ///     let _ = limiter.check("alice");
    /// }
    /// assert_eq!(limiter.most_denied(1)[0].denied(), 2);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn count_denials(mut self) -> Self {
        self.chosen.count_denials = true;
        self
    }
}

impl Builder<SingleLimiter> {
    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the value, the allowed range and the fix.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn build(self) -> Result<SingleLimiter, ConfigError> {
        let method = self.chosen.method()?;
        Ok(SingleLimiter::new(method, method.any(self.chosen.quota)?, self.chosen.clock))
    }
}
