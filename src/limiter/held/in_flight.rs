//! Limits on the number of concurrent requests per key.
//!
//! A permit is a charge that its guard refunds on drop. There is no registry of permits, and the
//! state of a key is one word. `rule/permits.rs` contains the rule; everything else is a
//! [`Limiter`] with that rule.

use super::permit::Permit;
use crate::decision::Denied;
use crate::error::QuotaError;
use crate::limiter::build::builder::Builder;
use crate::limiter::build::kind::{BUDGET, Kind, Sweepable};
use crate::limiter::keyed::limiter::Limiter;
use crate::limiter::store::fingerprints::Fingerprints;
use crate::limiter::store::interface::{Accepts, KeyOf, Store};
use crate::limiter::time_of::OwnClock;
use crate::limiter::together::chargeable::{Chargeable, KeyLimiter};
use crate::quota::Quota;
use crate::stats::Stats;
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// A limit on how many of a key's requests are in flight at once, however long they take.
///
/// A request acquires a [`Permit`] when it starts, and releases the permit by dropping it. Handles
/// are cheap to clone, and all clones share the same counts.
///
/// ```
/// use tollgate::InFlight;
///
/// let downloads: InFlight<String> = InFlight::builder(2).build()?;
/// let first = downloads.acquire("alice").unwrap();
/// let second = downloads.acquire("alice").unwrap();
/// let refusal = downloads.acquire("alice").unwrap_err();
/// // The time at which a permit is returned is unknown, so no retry time is promised.
/// assert_eq!(refusal.decision().retry_after(), None);
/// assert!(downloads.acquire("bob").is_ok());
///
/// drop(first);
/// assert!(downloads.acquire("alice").is_ok());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// To combine this limit with rates, pass an empty permit to [`check_all`](crate::check_all) as one
/// of the charges. The permit then holds the charge:
///
/// ```
/// use tollgate::{Charge, InFlight, Limiter, Quota, check_all};
///
/// let requests: Limiter<String> = Limiter::builder(Quota::per_hour(2)).build()?;
/// let downloads: InFlight<String> = InFlight::builder(1).build()?;
/// let begin = |user: &'static str| {
///     let permit = downloads.empty_permit(user);
///     check_all(&mut [Charge::new(&requests.for_key(user), 1), Charge::new(&permit, 1)])?;
///     Ok::<_, tollgate::Denied>(permit)
/// };
///
/// let permit = begin("alice").unwrap();
/// assert_eq!(begin("alice").unwrap_err().index(), Some(1));
/// // The refused request was not charged.
/// assert_eq!(requests.peek("alice").remaining(), 1);
/// drop(permit);
/// assert!(begin("alice").is_ok());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// # What holds
///
/// - The number of outstanding permits of a key never exceeds the limit. This number does not
///   include permits from before the last reduction of the limit, the last [`reset`](Self::reset)
///   of the key, or the last [`clear`](Self::clear). Under
///   [`WhenFull::Share`](crate::WhenFull::Share), all keys without a slot share one additional
///   count, which has the same limit. A key that receives a slot may still hold permits of the
///   shared state.
/// - A permit is returned once, to the count from which it was acquired. After a reset, returning
///   the permit does not change the count of newer permits.
/// - A key with an outstanding permit is never forgotten. A key without an outstanding permit is
///   idle.
///
/// # Memory
///
/// This limit requires the same memory as a [`Limiter`]: one word for each key, and at most
/// [`max_keys`](crate::Builder::max_keys) keys. If all of these keys have outstanding permits,
/// [`when_full`](crate::Builder::when_full) determines the answer for a new key. The slot of a key
/// without a permit becomes available to other keys once the [`grace`](crate::Builder::grace) has
/// passed since the key was inserted.
pub struct InFlight<K: ?Sized, S = Fingerprints> {
    limiter: Arc<Limiter<K, S>>,
}

/// Returns a quota that represents a limit. The period of this quota has no meaning.
const fn as_quota(limit: u64) -> Quota {
    Quota::per_second(limit)
}

impl<K: ?Sized> InFlight<K> {
    /// Returns a builder for a limit of `limit` permits for each key, from 1 to 1,000,000.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let error = InFlight::<String>::builder(0).build().unwrap_err().to_string();
    /// assert!(error.starts_with("0 in flight is out of range; allowed: 1 to 1000000"));
    /// ```
    pub fn builder(limit: u64) -> Builder<Self> {
        Builder::new(as_quota(limit))
    }
}

impl<K: ?Sized, S: Store> InFlight<K, S> {
    /// Wraps a limiter that enforces the rule of permits.
    pub(crate) fn new(limiter: Limiter<K, S>) -> Self {
        Self { limiter: Arc::new(limiter) }
    }

    /// Acquires a permit for `key`. The permit borrows the limit and the key.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] if no permit is free. The decision contains no retry time, because it is
    /// unknown when a permit will be returned.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<String> = InFlight::builder(1).build()?;
    /// let permit = downloads.acquire("alice").unwrap();
    /// let refusal = downloads.acquire("alice").unwrap_err();
    /// assert_eq!(
    ///     refusal.to_string(),
    ///     "too many in flight: 1 of 1 permits are held; try again after one is returned"
    /// );
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn acquire<'l, Q>(&'l self, key: &'l Q) -> Result<Permit<impl Chargeable + use<'l, K, S, Q>>, Denied>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.acquire_n(key, 1)
    }

    /// Like [`acquire`](Self::acquire), but acquires `permits` permits, all or none.
    ///
    /// # Errors
    ///
    /// Same as [`acquire`](Self::acquire). Also returns [`Denied`] if `permits` exceeds the limit.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<String> = InFlight::builder(3).build()?;
    /// let permit = downloads.acquire_n("alice", 2).unwrap();
    /// assert!(downloads.acquire_n("alice", 2).is_err());
    /// assert!(downloads.acquire_n("alice", 1).is_ok());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn acquire_n<'l, Q>(
        &'l self,
        key: &'l Q,
        permits: u64,
    ) -> Result<Permit<impl Chargeable + use<'l, K, S, Q>>, Denied>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        taken(self.empty_permit(key), permits)
    }

    /// Like [`acquire`](Self::acquire), but for work that outlives the caller. The permit owns the
    /// key and shares ownership of the limit.
    ///
    /// # Errors
    ///
    /// Same as [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<String> = InFlight::builder(1).build()?;
    /// let permit = downloads.acquire_owned("alice".to_owned()).unwrap();
    /// std::thread::spawn(move || drop(permit)).join().unwrap();
    /// assert_eq!(downloads.in_flight("alice"), 0);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn acquire_owned<B>(&self, key: B) -> Result<Permit, Denied>
    where
        B: Borrow<K> + Send + Sync + 'static,
        K: Hash + Eq + 'static,
        S: Accepts<K>,
    {
        taken(self.empty_permit_owned(key), 1)
    }

    /// Returns an empty permit for `key`. [`check_all`](crate::check_all) or
    /// [`reserve_all`](crate::reserve_all) can charge the permit together with other limits.
    ///
    /// ```
    /// # use tollgate::{Chargeable, InFlight};
    /// let downloads: InFlight<String> = InFlight::builder(2).build()?;
    /// let permit = downloads.empty_permit("alice");
    /// assert_eq!(permit.count(), 0);
    /// assert!(permit.check_n(1).is_allowed());
    /// // The permit now holds one charge, and refuses another.
    /// assert!(!permit.check_n(1).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn empty_permit<'l, Q>(&'l self, key: &'l Q) -> Permit<impl Chargeable + use<'l, K, S, Q>>
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        Permit::of(KeyLimiter::new(&*self.limiter, key, OwnClock))
    }

    /// Like [`empty_permit`](Self::empty_permit), but the permit owns the key and shares ownership
    /// of the limit.
    ///
    /// ```
    /// # use tollgate::{Chargeable, InFlight, Quota, SingleLimiter, reserve_all};
    /// let tokens = SingleLimiter::builder(Quota::per_hour(900)).build()?;
    /// let streams: InFlight<String> = InFlight::builder(1).build()?;
    /// let permit = streams.empty_permit_owned("alice".to_owned());
    /// let limits: [Box<dyn Chargeable>; 2] = [Box::new(&tokens), Box::new(permit)];
    /// let held = reserve_all(limits.into_iter().zip([400, 1])).unwrap();
    /// assert_eq!(streams.in_flight("alice"), 1);
    /// // Settling the reservation ends the stream.
    /// held.commit(|limit| [350, 1][limit]);
    /// assert_eq!(streams.in_flight("alice"), 0);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn empty_permit_owned<B>(&self, key: B) -> Permit
    where
        B: Borrow<K> + Send + Sync + 'static,
        K: Hash + Eq + 'static,
        S: Accepts<K>,
    {
        Permit::of(Box::new(KeyLimiter::new(Arc::clone(&self.limiter), key, OwnClock)))
    }

    /// Returns the number of outstanding permits of `key`. After the limit has been lowered, the
    /// number may exceed the limit.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<String> = InFlight::builder(3).build()?;
    /// let permit = downloads.acquire("alice").unwrap();
    /// assert_eq!((downloads.in_flight("alice"), downloads.in_flight("bob")), (1, 0));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn in_flight<Q>(&self, key: &Q) -> u64
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.limiter.peek_n(key, 0).in_flight().unwrap_or(0)
    }

    /// Returns the limit.
    pub fn limit(&self) -> u64 {
        self.limiter.quota().tokens()
    }

    /// Replaces the limit for all keys.
    ///
    /// Permits that are already acquired remain valid. If a key has more outstanding permits than
    /// the new limit allows, the key receives no permit until enough permits have been returned.
    ///
    /// # Errors
    ///
    /// Returns a [`QuotaError`] if the limit is not between 1 and 1,000,000. Returns a temporary
    /// error in the same case as [`Limiter::set_quota`]. After either error, the old limit remains.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<String> = InFlight::builder(3).build()?;
    /// let held = [(); 3].map(|()| downloads.acquire("alice").unwrap());
    /// downloads.set_limit(2)?;
    /// let [first, second, third] = held;
    /// drop(first);
    /// assert!(downloads.acquire("alice").is_err());
    /// drop(second);
    /// assert!(downloads.acquire("alice").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_limit(&self, limit: u64) -> Result<(), QuotaError> {
        self.limiter.set_quota(as_quota(limit))
    }

    /// Voids all permits of `key`. The same number of new permits can then be acquired, and
    /// returning a void permit has no effect. Use this method to recover from leaked permits.
    ///
    /// The holders of void permits are not notified. The number of requests in flight may therefore
    /// exceed the limit for a while.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<String> = InFlight::builder(1).build()?;
    /// std::mem::forget(downloads.acquire("alice").unwrap());
    /// assert!(downloads.acquire("alice").is_err());
    /// downloads.reset("alice");
    /// assert!(downloads.acquire("alice").is_ok());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn reset<Q>(&self, key: &Q)
    where
        Q: KeyOf<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.limiter.reset(key);
    }

    /// Voids the permits of all keys, like [`reset`](Self::reset). A permit acquired during the
    /// call may also be voided.
    pub fn clear(&self) {
        self.limiter.clear();
    }

    /// Forgets keys without outstanding permits, like [`Limiter::sweep`].
    pub fn sweep(&self, budget: usize) -> bool {
        self.limiter.sweep(budget)
    }

    /// Returns the statistics of this limit, like [`Limiter::stats`].
    pub fn stats(&self) -> Stats {
        let stats = self.limiter.stats();
        // An `Arc` stores its counts before its value, in as many bytes as the value's alignment.
        Stats { bytes: stats.bytes + size_of::<Self>() + align_of::<Limiter<K, S>>(), ..stats }
    }
}

/// Charges `permits` permits to `permit`. Returns `permit`, or a denial if too few permits are
/// free.
fn taken<C: Chargeable>(permit: Permit<C>, permits: u64) -> Result<Permit<C>, Denied> {
    permit.check_n(permits).ok()?;
    Ok(permit)
}

impl<K: ?Sized, S> Clone for InFlight<K, S> {
    fn clone(&self) -> Self {
        Self { limiter: Arc::clone(&self.limiter) }
    }
}

impl<K: ?Sized, S: Store> Kind for InFlight<K, S> {
    type Limit = u64;
    type Hash = S::Hash;
}

impl<K: ?Sized, S: Store> Sweepable for InFlight<K, S> {
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
        while goes_on() && self.sweep(BUDGET) {}
    }
}

impl<K: ?Sized, S: Store> fmt::Debug for InFlight<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.limiter.len();
        f.debug_struct("InFlight").field("limit", &self.limit()).field("keys", &keys).finish_non_exhaustive()
    }
}
