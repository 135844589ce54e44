//! Builds the limiters, and provides the settings that apply to only one kind of limiter.

use super::builder::{Builder, Chosen};
use super::method::Method;
use crate::clock::Clock;
use crate::error::{ConfigError, Refused};
use crate::limiter::held::in_flight::InFlight;
use crate::limiter::keyed::limiter::Limiter;
use crate::limiter::pauses::Pauses;
use crate::limiter::single::SingleLimiter;
use crate::limiter::store::exact_keys::ExactKeys;
use crate::limiter::store::fingerprints::Fingerprints;
use crate::limiter::store::hash::SipHash;
use crate::limiter::store::interface::{Settings, Store};
use crate::quota::Quota;
use std::hash::{BuildHasher, Hash};

impl<K: ?Sized, S: Store> Builder<Limiter<K, S>> {
    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the value, the allowed range and the fix.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(10)).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn build(self) -> Result<Limiter<K, S>, ConfigError> {
        let Self { chosen, hash } = self;
        let clock = chosen.clock();
        Ok(chosen.limiter(chosen.method(&clock)?, &clock, chosen.quota, chosen.max_keys, hash)?)
    }
}

impl<K: ?Sized, S: Store> Builder<InFlight<K, S>> {
    /// Builds the limit.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the value, the allowed range and the fix.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let error = InFlight::<String>::builder(0).build().unwrap_err().to_string();
    /// assert!(error.starts_with("0 in flight is out of range; allowed: 1 to 1000000"));
    /// ```
    pub fn build(self) -> Result<InFlight<K, S>, ConfigError> {
        let Self { chosen, hash } = self;
        let limiter =
            chosen.limiter(Method::InFlight, &chosen.clock(), chosen.quota, chosen.max_keys, hash)?;
        Ok(InFlight::new(limiter))
    }
}

impl Chosen {
    /// Builds a limiter with the given settings, and takes all other settings from `self`.
    pub(crate) fn limiter<K: ?Sized, S: Store>(
        &self,
        method: Method,
        clock: &Clock,
        quota: Quota,
        max_keys: usize,
        hash: S::Hash,
    ) -> Result<Limiter<K, S>, Refused> {
        let store = S::empty(self.settings(method, quota, max_keys), hash)?;
        let pauses = Pauses::new(self.penalty, &store, None)?;
        Ok(Limiter::new(method, clock.clone(), store, self.when_full, pauses))
    }

    /// Returns the settings of a store.
    pub(crate) fn settings(&self, method: Method, quota: Quota, max_keys: usize) -> Settings {
        let &Self { grace, count_denials, .. } = self;
        Settings { quota, method, max_keys, grace, count_denials }
    }
}

impl<K: ?Sized> Builder<Limiter<K>> {
    /// Hashes the keys with [`SipHash`], for keys that an attacker can choose. The default hash is
    /// faster.
    ///
    /// [`Fingerprints`] compares the two hashes.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::<String>::builder(Quota::per_hour(1)).keyed_hash().build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn keyed_hash(self) -> Builder<Limiter<K, Fingerprints<SipHash>>> {
        self.hashing_by(SipHash::default())
    }
}

impl<K: ?Sized> Builder<InFlight<K>> {
    /// Hashes the keys with [`SipHash`], for keys that an attacker can choose.
    ///
    /// [`Fingerprints`] compares this hash with the default hash.
    pub fn keyed_hash(self) -> Builder<InFlight<K, Fingerprints<SipHash>>> {
        self.hashing_by(SipHash::default())
    }
}

impl<K> Builder<Limiter<K>> {
    /// Stores the keys themselves. Two keys never share a state, and the keys can be
    /// [listed](Limiter::keys).
    ///
    /// Exact keys require several times the memory, and the insertion of a key locks one bucket of
    /// the index; see [`ExactKeys`].
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::<String>::builder(Quota::per_hour(1)).exact_keys().build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn exact_keys(self) -> Builder<Limiter<K, ExactKeys<K>>>
    where
        K: Hash + Eq + Send + Sync + 'static,
    {
        self.building()
    }
}

impl<K> Builder<InFlight<K>> {
    /// Stores the keys themselves, like [`exact_keys`](Builder::exact_keys) for a [`Limiter`].
    pub fn exact_keys(self) -> Builder<InFlight<K, ExactKeys<K>>>
    where
        K: Hash + Eq + Send + Sync + 'static,
    {
        self.building()
    }
}

impl<K: Eq + Send + Sync + 'static> Builder<Limiter<K, ExactKeys<K>>> {
    /// Sets the hash for looking up keys. The default is a fast hash with a random seed.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// use std::hash::RandomState;
    ///
    /// let builder = Limiter::<String>::builder(Quota::per_hour(1)).exact_keys();
    /// let limiter = builder.hasher(RandomState::new()).build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn hasher<H>(self, hasher: H) -> Builder<Limiter<K, ExactKeys<K, H>>>
    where
        H: BuildHasher + Clone + Send + Sync + 'static,
    {
        self.hashing_by(hasher)
    }
}

impl<K: Eq + Send + Sync + 'static, H: BuildHasher + Clone + Send + Sync + 'static>
    Builder<Limiter<K, ExactKeys<K, H>>>
{
    /// Counts how often each tracked key is denied ([`KeyState::denied`](crate::KeyState::denied)).
    /// The count starts when the key is inserted.
    ///
    /// With this setting, every denial writes: it looks the key up once more and increments a
    /// counter next to the key's state. This makes denials slower if several threads check the same
    /// key at the same time. Without this setting, a denial writes nothing.
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
    /// Lets the cores take tokens in advance, and spend them on cache lines of their own.
    ///
    /// Without leases, all cores write the state of the limiter, and each check waits until its
    /// cache line arrives from another core. A lease moves the line once for up to 1,024 tokens,
    /// and the check that spends a token does not read the clock. Use leases for a limit that
    /// several threads check all the time, such as a limit in front of everything.
    ///
    /// The limiter grants leases once two threads have checked it at the same moment. It never
    /// admits more than without leases, in any interval, where a token counts at the time at which
    /// it is spent. These are the differences:
    ///
    /// - At most a sixteenth of the burst is out on lease. A lease is at most half of the core's
    ///   share of the remaining tokens, so that an almost empty bucket grants none. Before a
    ///   request is denied, all leases are returned. Until that many tokens have refilled after a
    ///   return, a request may be denied that the bucket alone would admit. The same applies while
    ///   another thread returns the leases, and for good if that thread never runs again; such a
    ///   denial may report a retry time that is too early.
    /// - The [`at`](crate::Decision::at) of a decision that spends a lease is the time at which the
    ///   lease was taken, and [`remaining`](crate::Decision::remaining) is the rest of the lease.
    ///   Other decisions count the tokens that may be out as missing, with two exceptions: a check
    ///   that finds no lease, and every decision before the limiter grants leases. After these, the
    ///   next lease may make up to a sixteenth of the burst unavailable.
    /// - A refund has no effect if the lease of the charge has been returned, if another lease has
    ///   followed it on the same core, or while a thread tries to take the next one. Other refunds
    ///   may return fewer tokens than without leases, by at most a sixteenth of the burst.
    /// - A change of the quota counts the tokens that are out as spent, and so does a save.
    ///
    /// Only a check at the present time, by a clock that nobody moves, spends a lease. With a
    /// [`ManualClock`](crate::ManualClock), the limiter grants none, and neither does a bucket that
    /// takes longer than 18 years to refill. Peeks, forced charges, reservations,
    /// [`check_all`](crate::check_all), all other calls of [`Chargeable`](crate::Chargeable), and
    /// the views of [`at`](SingleLimiter::at) use the state that all cores share. So does a check
    /// that costs more tokens than a lease may have, which is the core's share of a sixteenth of
    /// the burst, and at most 1,024. Where `Chargeable` is imported, `limiter.check()` is a call of
    /// that trait if `limiter` is an `Arc`. Write `SingleLimiter::check(&limiter)` to spend leases.
    /// Build the limiter of an HTTP layer without leases, because the layer spends none.
    ///
    /// The bound holds by one clock. If the clocks of two threads differ (see
    /// [`Clock`](crate::Clock#platforms)), the limiter may admit in addition what refills in this
    /// difference. The same applies to the few nanoseconds by which a processor may read its
    /// counter before it has completed the previous step of a lease or of a return.
    ///
    /// [`leased`](SingleLimiter::leased) returns how many tokens are out.
    ///
    /// `build` and [`load`](Builder#method.load-1) return an error if the algorithm is not a token
    /// bucket or a leaky bucket, or if the burst is less than 128 tokens for each core that the
    /// process may use. A program that must start on any machine therefore omits leases after this
    /// error. A saved state does not contain leases, so it may be loaded with or without them.
    ///
    /// ```
    /// # use tollgate::{Algorithm, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(1_000_000)).core_leases().build()?;
    /// assert!(limiter.check().is_allowed());
    ///
    /// let small = SingleLimiter::builder(Quota::per_second(100)).core_leases();
    /// assert!(small.build().unwrap_err().to_string().starts_with("burst 100 is too small"));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn core_leases(mut self) -> Self {
        self.chosen.core_leases = true;
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the value, the allowed range and the fix.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn build(self) -> Result<SingleLimiter, ConfigError> {
        let clock = self.chosen.clock();
        let method = self.chosen.method(&clock)?;
        let leases = self.chosen.leases(&clock)?;
        Ok(SingleLimiter::new(method, method.any(self.chosen.quota)?, clock, leases))
    }
}
