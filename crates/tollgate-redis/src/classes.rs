//! Classes of callers: named quotas of one limit, such as those of free and paid plans.

use crate::error::ResetError;
use crate::limiter::SharedLimiter;
use crate::limiter::tier::{self, Tier};
use crate::name::StoreKey;
use std::sync::Arc;
use tollgate::{Decision, Quota, Tick};

/// A class of callers of one [`SharedLimiter`]: one of the quotas that its builder was given.
///
/// The caller of a check says which class a key is of; the limiter keeps no list of keys. Each
/// class counts a key by itself, under a name of its own in the store: a key that changes its class
/// begins anew there, and finds what it used before when it returns. Checks of a key in two
/// classes, also at the same time, admit what both quotas allow and no more. So choose the class by
/// what your service knows of the caller, and not by what the request says.
///
/// Machines share a class by its name. Where they have different quotas for it, for instance while
/// a new version is rolled out, each judges by its own, as with the limit's own quota, and counts
/// what all have taken: one with the smaller quota denies first. Leases and unsynchronized counts
/// do so, too, but for this: with [`max_unsynced`](crate::SharedBuilder::max_unsynced), machines
/// whose *periods* differ do not count each other, and admit what each of the quotas allows.
///
/// A `Class` belongs to the limiter that returned it. A limiter with fewer classes takes the class
/// of another limiter for the default class.
///
/// ```no_run
/// use tollgate::Quota;
/// use tollgate_redis::{Client, SharedLimiter};
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::open("redis://10.0.0.5:6379")?;
/// let limiter: SharedLimiter<str> = SharedLimiter::builder(&client, "api", Quota::per_minute(10))
///     .class("paid", Quota::per_minute(1_000))
///     .build()?;
/// // A plan without a class of its own has the limit's own quota.
/// let plan = "paid";
/// let class = limiter.class(plan).unwrap_or_default();
///
/// let decision = limiter.check_as(class, "alice").await;
/// assert!(decision.remaining() <= 1_000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Class(usize);

impl<K: StoreKey + ?Sized> SharedLimiter<K> {
    /// Returns the class of this name, or `None` if the builder was given none. The default class,
    /// of the limit's own quota, is `Class::default()`.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(9))
    ///     .class("paid", Quota::per_second(900))
    ///     .build()?;
    /// assert!(limiter.class("paid").is_some() && limiter.class("free").is_none());
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn class(&self, name: &str) -> Option<Class> {
        self.number_of(name).map(Class)
    }

    pub(crate) fn tier_of(&self, class: Class) -> &Arc<Tier> {
        self.tier(class.0)
    }

    /// Returns the quota of a class.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Class, Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(9))
    ///     .class("paid", Quota::per_second(900))
    ///     .build()?;
    /// let paid = limiter.class("paid").unwrap();
    /// assert_eq!(limiter.quota_of(paid), Quota::per_second(900));
    /// assert_eq!(limiter.quota_of(Class::default()), limiter.quota());
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn quota_of(&self, class: Class) -> Quota {
        self.tier_of(class).quota
    }

    /// Returns the most tokens that one request of a class can take.
    pub fn capacity_of(&self, class: Class) -> u64 {
        self.tier_of(class).core.rule.capacity()
    }

    /// Checks one request of `key` under the quota of a class, as [`check`](Self::check) does.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let class = limiter.class("paid").unwrap_or_default();
    /// println!("{} left", limiter.check_as(class, "alice").await.remaining());
    /// # }
    /// ```
    pub async fn check_as(&self, class: Class, key: &K) -> Decision {
        self.check_n_as(class, key, 1).await
    }

    /// Checks a request of `cost` tokens under the quota of a class, as [`check_n`](Self::check_n)
    /// does.
    pub async fn check_n_as(&self, class: Class, key: &K, cost: u64) -> Decision {
        self.tier_of(class).check(key, cost).await
    }

    /// Checks a request under the quota of a class at a time that the caller gives, as
    /// [`check_at`](Self::check_at) does.
    pub async fn check_at_as(&self, class: Class, key: &K, cost: u64, now: Tick) -> Decision {
        self.tier_of(class).check_at(key, cost, now).await
    }

    /// Checks each class, key and cost, as [`check_many`](Self::check_many) does.
    ///
    /// ```no_run
    /// # use tollgate_redis::{Class, SharedLimiter};
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let (free, paid) = (Class::default(), limiter.class("paid").unwrap_or_default());
    /// let decisions = limiter.check_many_as(&[(free, "alice", 1), (paid, "bob", 3)]).await;
    /// assert_eq!(decisions.len(), 2);
    /// # }
    /// ```
    pub async fn check_many_as(&self, requests: &[(Class, &K, u64)]) -> Vec<Decision> {
        let requests = requests.iter().map(|&(class, key, cost)| (&**self.tier_of(class), key, cost));
        tier::check_many(&requests.collect::<Vec<_>>()).await
    }

    /// Returns the decision for a request of one token under the quota of a class, without taking
    /// it, as [`peek`](Self::peek) does.
    pub async fn peek_as(&self, class: Class, key: &K) -> Decision {
        self.peek_n_as(class, key, 1).await
    }

    /// Returns the decision for a request of `cost` tokens under the quota of a class, without
    /// taking them, as [`peek_n`](Self::peek_n) does.
    pub async fn peek_n_as(&self, class: Class, key: &K, cost: u64) -> Decision {
        self.tier_of(class).peek(key, cost, None).await
    }

    /// Returns the decision for a request under the quota of a class at a time that the caller
    /// gives, without taking tokens, as [`peek_at`](Self::peek_at) does.
    pub async fn peek_at_as(&self, class: Class, key: &K, cost: u64, now: Tick) -> Decision {
        self.tier_of(class).peek(key, cost, Some(now)).await
    }

    /// Gives back what `charge` took, as [`refund`](Self::refund) does; `class` is that of the
    /// charge.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let class = limiter.class("paid").unwrap_or_default();
    /// let charge = limiter.check_as(class, "alice").await;
    /// limiter.refund_as(class, "alice", &charge).await;
    /// # }
    /// ```
    pub async fn refund_as(&self, class: Class, key: &K, charge: &Decision) {
        self.refund_n_as(class, key, charge, u64::MAX).await;
    }

    /// Gives back at most `tokens` of what `charge` took, as [`refund_n`](Self::refund_n) does;
    /// `class` is that of the charge.
    pub async fn refund_n_as(&self, class: Class, key: &K, charge: &Decision, tokens: u64) {
        self.tier_of(class).refund(key, charge, tokens, None).await;
    }

    /// Gives back at most `tokens` of what `charge` took at a time that the caller gives, as
    /// [`refund_at`](Self::refund_at) does; `class` is that of the charge.
    pub async fn refund_at_as(&self, class: Class, key: &K, charge: &Decision, tokens: u64, now: Tick) {
        self.tier_of(class).refund(key, charge, tokens, Some(now)).await;
    }

    /// Charges `tokens` that are spent already under the quota of a class, as
    /// [`force_n`](Self::force_n) does.
    pub async fn force_n_as(&self, class: Class, key: &K, tokens: u64) -> u64 {
        self.tier_of(class).force(key, tokens, None).await
    }

    /// Charges `tokens` that are spent already under the quota of a class at a time that the caller
    /// gives, as [`force_at`](Self::force_at) does.
    pub async fn force_at_as(&self, class: Class, key: &K, tokens: u64, now: Tick) -> u64 {
        self.tier_of(class).force(key, tokens, Some(now)).await
    }

    /// Deletes the state of `key` in a class, as [`reset`](Self::reset) does. Other classes keep
    /// theirs.
    ///
    /// # Errors
    ///
    /// [`ResetError`] if the store has not confirmed the deletion by the deadline.
    pub async fn reset_as(&self, class: Class, key: &K) -> Result<(), ResetError> {
        self.tier_of(class).reset(key).await
    }
}
