//! At most so many requests of a key in flight at once.
//!
//! A permit is a charge that its guard gives back. There is no registry of permits, and a key is
//! one word: the rule is in `rule/permits.rs`, and all else is a [`Limiter`] of that rule.

use super::permit::Permit;
use crate::decision::Denied;
use crate::error::QuotaError;
use crate::limiter::build::builder::Builder;
use crate::limiter::build::kind::{BUDGET, Keyed, Kind, Sweepable};
use crate::limiter::keyed::limiter::Limiter;
use crate::limiter::store::fingerprints::Fingerprints;
use crate::limiter::store::interface::{Accepts, Store};
use crate::limiter::time_of::OwnClock;
use crate::limiter::together::chargeable::{Chargeable, KeyLimiter};
use crate::quota::Quota;
use crate::stats::Stats;
use equivalent::Equivalent;
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// A limit on how many requests of a key are in flight at once, whatever time they take.
///
/// A [`Permit`] is taken when a request begins, and comes back when it is dropped. A handle is
/// cheap to clone, and all clones have the same counts.
///
/// ```
/// use tollgate::InFlight;
///
/// let downloads: InFlight<str> = InFlight::builder(2).build()?;
/// let first = downloads.acquire("alice").unwrap();
/// let second = downloads.acquire("alice").unwrap();
/// let refusal = downloads.acquire("alice").unwrap_err();
/// // Nobody knows when a permit comes back, so no retry time is promised.
/// assert_eq!(refusal.decision().retry_after(), None);
/// assert!(downloads.acquire("bob").is_ok());
///
/// drop(first);
/// assert!(downloads.acquire("alice").is_ok());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
///
/// Beside rates it is one charge of [`check_all`](crate::check_all), whose permit the guard holds:
///
/// ```
/// use tollgate::{Charge, InFlight, Limiter, Quota, check_all};
///
/// let requests: Limiter<str> = Limiter::builder(Quota::per_hour(2)).build()?;
/// let downloads: InFlight<str> = InFlight::builder(1).build()?;
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
/// - Of the permits that were taken since the last [`reset`](Self::reset) of the key or
///   [`clear`](Self::clear), at most the limit are out at any moment. Under
///   [`WhenFull::Share`](crate::WhenFull::Share) the keys without a slot may have as many permits
///   more, all together. A key that gets a slot may still hold those.
/// - A permit comes back once, to the count that it was taken from. After a reset it gives back
///   nothing of others.
/// - A key with a permit out is never forgotten. A key without is as good as new.
///
/// # Memory
///
/// As that of a [`Limiter`]: a word for each key, at most [`max_keys`](crate::Builder::max_keys).
/// While each of them has a permit out, a new key gets what
/// [`when_full`](crate::Builder::when_full) says. The slot of a key without a permit is free for
/// others a second after the key came.
pub struct InFlight<K: ?Sized, S = Fingerprints> {
    limiter: Arc<Limiter<K, S>>,
}

/// A limit as a quota. Its period has no meaning.
const fn as_quota(limit: u64) -> Quota {
    Quota::per_second(limit)
}

impl<K: ?Sized> InFlight<K> {
    /// Starts the configuration of a limit of `limit` permits for each key, from 1 to 1,000,000.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let error = InFlight::<str>::builder(0).build().unwrap_err().to_string();
    /// assert!(error.starts_with("0 in flight is out of range; allowed: 1 to 1000000"));
    /// ```
    pub fn builder(limit: u64) -> Builder<Self> {
        Builder::new(as_quota(limit))
    }
}

impl<K: ?Sized, S: Store> InFlight<K, S> {
    /// A limit whose rule the limiter has.
    pub(crate) fn new(limiter: Limiter<K, S>) -> Self {
        Self { limiter: Arc::new(limiter) }
    }

    /// Takes a permit of `key`, which borrows both.
    ///
    /// # Errors
    ///
    /// [`Denied`] if none is free. Its decision has no retry time: nobody knows when one is.
    ///
    /// # Progress
    ///
    /// As [`Limiter::check`]; dropping the permit is lock-free.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<str> = InFlight::builder(1).build()?;
    /// let permit = downloads.acquire("alice").unwrap();
    /// let refusal = downloads.acquire("alice").unwrap_err();
    /// assert_eq!(
    ///     refusal.to_string(),
    ///     "too many in flight: 1 of 1 permits are held; retry after one is returned"
    /// );
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn acquire<'l, Q>(&'l self, key: &'l Q) -> Result<Permit<impl Chargeable + use<'l, K, S, Q>>, Denied>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.acquire_n(key, 1)
    }

    /// [`acquire`](Self::acquire) for a request that counts as `permits` of them: all or none.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and for more permits than the limit.
    ///
    /// # Progress
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<str> = InFlight::builder(3).build()?;
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
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        taken(self.empty_permit(key), permits)
    }

    /// [`acquire`](Self::acquire) for work that outlives the caller: the permit owns the key and a
    /// share of the limit.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Progress
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<str> = InFlight::builder(1).build()?;
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

    /// A permit of `key` that is not taken yet, to be charged together with other limits by
    /// [`check_all`](crate::check_all) or [`reserve_all`](crate::reserve_all).
    ///
    /// ```
    /// # use tollgate::{Chargeable, InFlight};
    /// let downloads: InFlight<str> = InFlight::builder(2).build()?;
    /// let permit = downloads.empty_permit("alice");
    /// assert_eq!(permit.count(), 0);
    /// assert!(permit.check_n(1).is_allowed());
    /// // It holds one now, and takes no other.
    /// assert!(!permit.check_n(1).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn empty_permit<'l, Q>(&'l self, key: &'l Q) -> Permit<impl Chargeable + use<'l, K, S, Q>>
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        Permit::of(KeyLimiter::new(&*self.limiter, key, OwnClock))
    }

    /// [`empty_permit`](Self::empty_permit) for a permit that owns the key and a share of the
    /// limit.
    ///
    /// ```
    /// # use tollgate::{Chargeable, InFlight, Quota, SingleLimiter, reserve_all};
    /// let tokens = SingleLimiter::builder(Quota::per_hour(900)).build()?;
    /// let streams: InFlight<str> = InFlight::builder(1).build()?;
    /// let permit = streams.empty_permit_owned("alice".to_owned());
    /// let limits: [Box<dyn Chargeable>; 2] = [Box::new(&tokens), Box::new(permit)];
    /// let held = reserve_all(limits.into_iter().zip([400, 1])).unwrap();
    /// assert_eq!(streams.in_flight("alice"), 1);
    /// // Settling the tokens ends the stream.
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

    /// How many permits of `key` are out. More than the limit where that was lowered.
    ///
    /// # Progress
    ///
    /// As [`Limiter::peek`].
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<str> = InFlight::builder(3).build()?;
    /// let permit = downloads.acquire("alice").unwrap();
    /// assert_eq!((downloads.in_flight("alice"), downloads.in_flight("bob")), (1, 0));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn in_flight<Q>(&self, key: &Q) -> u64
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.limiter.peek_n(key, 0).in_flight().unwrap_or(0)
    }

    /// The limit.
    pub fn limit(&self) -> u64 {
        self.limiter.quota().tokens()
    }

    /// Replaces the limit, for all keys.
    ///
    /// No permit is taken from its holder: where more are out than the new limit allows, the key
    /// gets none until enough have come back.
    ///
    /// # Errors
    ///
    /// A [`QuotaError`] for a limit that is not from 1 to 1,000,000, and a temporary one as for
    /// [`Limiter::set_quota`]. Then nothing has changed.
    ///
    /// # Progress
    ///
    /// As [`Limiter::set_quota`], which visits every key.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<str> = InFlight::builder(3).build()?;
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

    /// Makes all permits of `key` void: others are given out, and what comes back of the old ones
    /// changes nothing. For permits that were leaked.
    ///
    /// Their holders are not told. So for a while more may be in flight than the limit.
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<str> = InFlight::builder(1).build()?;
    /// std::mem::forget(downloads.acquire("alice").unwrap());
    /// assert!(downloads.acquire("alice").is_err());
    /// downloads.reset("alice");
    /// assert!(downloads.acquire("alice").is_ok());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn reset<Q>(&self, key: &Q)
    where
        Q: Hash + Equivalent<K> + ?Sized,
        S: Accepts<Q>,
    {
        self.limiter.reset(key);
    }

    /// [`reset`](Self::reset) for all keys. A permit that is taken meanwhile may be void, too.
    ///
    /// # Progress
    ///
    /// As [`Limiter::clear`].
    pub fn clear(&self) {
        self.limiter.clear();
    }

    /// Forgets keys without a permit, as [`Limiter::sweep`].
    ///
    /// # Progress
    ///
    /// As [`Limiter::sweep`].
    pub fn sweep(&self, budget: usize) -> bool {
        self.limiter.sweep(budget)
    }

    /// What this limit holds and has done, as [`Limiter::stats`].
    pub fn stats(&self) -> Stats {
        self.limiter.stats()
    }
}

/// A permit that was taken.
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
    type Hash = S::Hash;
}

impl<K: ?Sized, S: Store> Keyed for InFlight<K, S> {}

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
