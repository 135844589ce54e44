//! [`SharedLimiter`]: the limiter whose state machines share.

pub(crate) mod tier;

use crate::client::Client;
use crate::error::ResetError;
use crate::name::StoreKey;
use crate::stats::SharedStats;
use futures_util::future::join_all;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use tier::Tier;
use tollgate::{Algorithm, Decision, Quota, Tick};

/// A rate limiter whose counts live in a store that machines share.
///
/// Limiters of the same name and kind of algorithm on the same servers share their counts, in any
/// process and on any machine. Where their quotas differ, for instance while a new version is
/// rolled out, each limiter judges by its own quota; what was taken stays taken.
///
/// A limiter may have several quotas, for [classes](crate::Class) of callers.
///
/// A check never fails: if the store does not answer by the deadline,
/// [`WhenUnavailable`](crate::WhenUnavailable) decides, and [`Decision::source`] says so.
///
/// ```no_run
/// use tollgate::Quota;
/// use tollgate_redis::{Client, SharedLimiter};
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::open("redis://10.0.0.5")?;
/// let limiter: SharedLimiter<str> =
///     SharedLimiter::builder(&client, "api", Quota::per_second(100).burst(20)).build()?;
///
/// let decision = limiter.check("alice").await;
/// if !decision.is_allowed() {
///     println!("come back in {:?}", decision.retry_after());
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Progress
///
/// A check ends by its deadline, plus the time that the runtime takes to notice it. It takes no
/// lock before it reaches the connection, which all checks share. If the future of a check is
/// dropped, the answer is lost, but the store may have counted the request.
pub struct SharedLimiter<K: ?Sized> {
    /// The default class, of the limit's own quota.
    default: Arc<Tier>,
    /// The classes that have names.
    classes: Vec<(String, Arc<Tier>)>,
    algorithm: Algorithm,
    keys: PhantomData<fn(&K)>,
}

impl<K: StoreKey + ?Sized> SharedLimiter<K> {
    pub(crate) fn new(default: Arc<Tier>, classes: Vec<(String, Arc<Tier>)>, algorithm: Algorithm) -> Self {
        Self { default, classes, algorithm, keys: PhantomData }
    }

    /// Returns the number of the class of this name, from 1; the default class is 0.
    pub(crate) fn number_of(&self, class: &str) -> Option<usize> {
        self.classes.iter().position(|(name, _)| name == class).map(|place| place + 1)
    }

    /// Returns the names of the classes, in the order of their numbers.
    #[cfg(feature = "http")]
    pub(crate) fn class_names(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the class of a number. A number that no class has stands for the default class.
    pub(crate) fn tier(&self, class: usize) -> &Arc<Tier> {
        let named = class.checked_sub(1).and_then(|place| self.classes.get(place));
        named.map_or(&self.default, |(_, tier)| tier)
    }

    fn tiers(&self) -> impl Iterator<Item = &Arc<Tier>> {
        [&self.default].into_iter().chain(self.classes.iter().map(|(_, tier)| tier))
    }

    /// Checks one request of `key` and takes one token if it is allowed.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let decision = limiter.check("alice").await;
    /// println!("{} left", decision.remaining());
    /// # }
    /// ```
    pub async fn check(&self, key: &K) -> Decision {
        self.check_n(key, 1).await
    }

    /// Checks a request of `cost` tokens and takes them all, or none.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// assert!(limiter.check_n("alice", 5).await.charged() <= 5);
    /// # }
    /// ```
    pub async fn check_n(&self, key: &K, cost: u64) -> Decision {
        self.default.check(key, cost).await
    }

    /// Checks a request of `cost` tokens at a time that the caller gives, in ticks since the Unix
    /// epoch, rounded down to microseconds: for replays and tests. The store is always asked. A
    /// time before the key's latest time counts as the latest.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// # use tollgate::Tick;
    /// let midnight = Tick::from_nanos(1_767_225_600_000_000_000);
    /// let decision = limiter.check_at("alice", 1, midnight).await;
    /// assert_eq!(decision.at(), midnight);
    /// # }
    /// ```
    pub async fn check_at(&self, key: &K, cost: u64, now: Tick) -> Decision {
        self.default.check_at(key, cost, now).await
    }

    /// Checks each pair of a key and a cost, in the given order; with a single server, in one round
    /// trip. The store is always asked, unless counts may stay
    /// [unsynchronized](crate::SharedBuilder::max_unsynced).
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let decisions = limiter.check_many(&[("alice", 1), ("bob", 3)]).await;
    /// assert_eq!(decisions.len(), 2);
    /// # }
    /// ```
    pub async fn check_many(&self, requests: &[(&K, u64)]) -> Vec<Decision> {
        let requests = requests.iter().map(|&(key, cost)| (&*self.default, key, cost));
        tier::check_many(&requests.collect::<Vec<_>>()).await
    }

    /// Returns the store's decision for a request of one token, without taking it.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// println!("{} left", limiter.peek("alice").await.remaining());
    /// # }
    /// ```
    pub async fn peek(&self, key: &K) -> Decision {
        self.peek_n(key, 1).await
    }

    /// Returns the store's decision for a request of `cost` tokens, without taking them.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// println!("{:?}", limiter.peek_n("alice", 20).await.retry_after());
    /// # }
    /// ```
    pub async fn peek_n(&self, key: &K, cost: u64) -> Decision {
        self.default.peek(key, cost, None).await
    }

    /// Returns the store's decision for a request of `cost` tokens at a time that the caller gives,
    /// without taking them. [`check_at`](Self::check_at) describes the time.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// # use tollgate::Tick;
    /// assert_eq!(limiter.peek_at("alice", 1, Tick::ZERO).await.charged(), 0);
    /// # }
    /// ```
    pub async fn peek_at(&self, key: &K, cost: u64, now: Tick) -> Decision {
        self.default.peek(key, cost, Some(now)).await
    }

    /// Gives back what `charge` took, if it still counts, to where it was taken: the store or this
    /// machine. Tokens that a lease paid return to the lease, unless it has expired. If the store
    /// does not answer, the charge stays: a refund is not repeated, because the store may have
    /// executed it.
    ///
    /// A late refund in a bucket may take tokens of others, as
    /// [`Limiter::refund`](tollgate::Limiter::refund) states: at most as many as were given back,
    /// while the charge was held, of charges from before it. While machines have different quotas
    /// for one key, as during a roll-out, a refund may take as many tokens of others as it gives
    /// back: the store does not know under which quota a charge has refilled.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let charge = limiter.check_n("alice", 5).await;
    /// limiter.refund("alice", &charge).await;
    /// # }
    /// ```
    pub async fn refund(&self, key: &K, charge: &Decision) {
        self.refund_n(key, charge, u64::MAX).await;
    }

    /// Gives back at most `tokens` of what `charge` took: for a request that cost less than it was
    /// charged. [`refund`](Self::refund) describes the rest.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let estimate = limiter.check_n("alice", 5).await;
    /// limiter.refund_n("alice", &estimate, 2).await; // it took 3
    /// # }
    /// ```
    pub async fn refund_n(&self, key: &K, charge: &Decision, tokens: u64) {
        self.default.refund(key, charge, tokens, None).await;
    }

    /// Gives back at most `tokens` of what `charge` took, at a time that the caller gives.
    /// [`check_at`](Self::check_at) describes the time.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// # use tollgate::Tick;
    /// let charge = limiter.check_at("alice", 5, Tick::ZERO).await;
    /// limiter.refund_at("alice", &charge, 5, Tick::from_nanos(1_000)).await;
    /// # }
    /// ```
    pub async fn refund_at(&self, key: &K, charge: &Decision, tokens: u64, now: Tick) {
        self.default.refund(key, charge, tokens, Some(now)).await;
    }

    /// Charges `key` for `tokens` that are spent already, and returns how many were charged.
    ///
    /// That is as many as there is room for, and beyond that up to
    /// [`max_debt`](crate::SharedBuilder::max_debt). While a key is in debt nothing remains, and
    /// its requests are denied, with the time at which they pass. What is returned can't be given
    /// back by a refund; a [reservation](Self::reserve) settles more exactly. If the store does not
    /// answer, the local limiter of [`WhenUnavailable`](crate::WhenUnavailable) is charged, with
    /// its share of the debt.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let unpaid = 500 - limiter.force_n("alice", 500).await;
    /// # }
    /// ```
    pub async fn force_n(&self, key: &K, tokens: u64) -> u64 {
        self.default.force(key, tokens, None).await
    }

    /// Charges `tokens` that are spent already at a time that the caller gives.
    /// [`check_at`](Self::check_at) describes the time.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// # use tollgate::Tick;
    /// assert!(limiter.force_at("alice", 5, Tick::ZERO).await <= 5);
    /// # }
    /// ```
    pub async fn force_at(&self, key: &K, tokens: u64, now: Tick) -> u64 {
        self.default.force(key, tokens, Some(now)).await
    }

    /// Deletes the state of `key`, in the store and on this machine. Tokens that other machines
    /// have leased stay leased. Charges made before a reset must not be refunded after it.
    ///
    /// # Errors
    ///
    /// [`ResetError`] if the store has not confirmed the deletion by the deadline.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// if let Err(error) = limiter.reset("alice").await {
    ///     println!("{error}");
    /// }
    /// # }
    /// ```
    pub async fn reset(&self, key: &K) -> Result<(), ResetError> {
        self.default.reset(key).await
    }

    /// Sends all counts that the store was not told yet, for at most the deadline of a check:
    /// before a machine stops. Does nothing without
    /// [`max_unsynced`](crate::SharedBuilder::max_unsynced).
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// limiter.flush().await;
    /// assert_eq!(limiter.stats().unsynced, 0);
    /// # }
    /// ```
    pub async fn flush(&self) {
        join_all(self.tiers().map(|tier| tier.flush())).await;
    }

    /// Returns the quota.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let quota = Quota::per_second(9).burst(5);
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", quota).build()?;
    /// assert_eq!(limiter.quota(), Quota::per_second(9).burst(5));
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn quota(&self) -> Quota {
        self.default.quota
    }

    /// Returns the most tokens that one request can take: the burst of a bucket, the limit of a
    /// window or a log.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let quota = Quota::per_second(9).burst(5);
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", quota).build()?;
    /// assert_eq!(limiter.capacity(), 5);
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn capacity(&self) -> u64 {
        self.default.core.rule.capacity()
    }

    /// Returns the algorithm.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let quota = Quota::per_second(9).burst(5);
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", quota).build()?;
    /// assert_eq!(limiter.algorithm(), tollgate::Algorithm::TokenBucket);
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the name of the limit.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let quota = Quota::per_second(9).burst(5);
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", quota).build()?;
    /// assert_eq!(limiter.name(), "api");
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn name(&self) -> &str {
        &self.default.core.trial.limit
    }

    /// Returns the client of the servers.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let quota = Quota::per_second(9).burst(5);
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", quota).build()?;
    /// assert_eq!(limiter.client().stats().breakers_open, 0);
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn client(&self) -> &Client {
        &self.default.core.client
    }

    /// Returns what was counted since the limiter was built. Visits all keys that this machine
    /// keeps state for.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let quota = Quota::per_second(9).burst(5);
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", quota).build()?;
    /// assert_eq!(limiter.stats().by_fallback, 0);
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn stats(&self) -> SharedStats {
        let mut stats = self.default.core.counters.stats();
        self.tiers().for_each(|tier| tier.add_to(&mut stats));
        stats
    }
}

impl<K: ?Sized> fmt::Debug for SharedLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimiter")
            .field("name", &self.default.core.trial.limit)
            .field("quota", &self.default.quota)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
