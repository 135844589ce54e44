//! [`SharedLimiter`]: the limiter whose state machines share.

use crate::client::Client;
use crate::core::{Core, Request};
use crate::error::ResetError;
use crate::lease::Leases;
use crate::name::{Naming, StoreKey};
use crate::scripts::rule::Op;
use crate::scripts::script::Failure;
use crate::stats::SharedStats;
use crate::unsynced::Unsynced;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use tollgate::{Algorithm, Decision, Quota, Source, Tick};

/// A rate limiter whose counts live in a store that machines share.
///
/// Limiters of the same name and kind of algorithm on the same servers share their counts, in any
/// process and on any machine. Where their quotas differ, for instance while a new version is
/// rolled out, each limiter judges by its own quota; what was taken stays taken.
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
    core: Arc<Core>,
    naming: Naming,
    mode: Mode,
    quota: Quota,
    algorithm: Algorithm,
    keys: PhantomData<fn(&K)>,
}

pub(crate) enum Mode {
    Exact,
    Lease(Leases),
    Unsynced(Unsynced),
}

impl<K: StoreKey + ?Sized> SharedLimiter<K> {
    pub(crate) fn new(
        core: Arc<Core>,
        naming: Naming,
        mode: Mode,
        quota: Quota,
        algorithm: Algorithm,
    ) -> Self {
        Self { core, naming, mode, quota, algorithm, keys: PhantomData }
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
        let (name, text) = self.naming.name(key);
        let request = Request { name, text: &text, cost };
        match &self.mode {
            Mode::Exact => self.core.check(request, None).await,
            Mode::Lease(leases) => leases.check(request).await,
            Mode::Unsynced(counts) => counts.check(request, None, self.core.deadline()).await,
        }
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
        let (name, text) = self.naming.name(key);
        let request = Request { name, text: &text, cost };
        match &self.mode {
            Mode::Unsynced(counts) => counts.check(request, Some(now), self.core.deadline()).await,
            _ => self.core.check(request, Some(now)).await,
        }
    }

    /// Checks each pair of a key and a cost, in the given order; with a single server, in one round
    /// trip. The store is always request, unless counts may stay
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
        let names: Vec<_> = requests.iter().map(|(key, _)| self.naming.name(*key)).collect();
        let request = names.iter().zip(requests);
        let request: Vec<_> =
            request.map(|((name, text), &(_, cost))| Request { name: *name, text, cost }).collect();
        match &self.mode {
            Mode::Unsynced(counts) => {
                let (mut decisions, deadline) = (Vec::with_capacity(request.len()), self.core.deadline());
                for request in request {
                    decisions.push(counts.check(request, None, deadline).await);
                }
                decisions
            }
            _ => self.core.check_all(&request).await,
        }
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
        self.peek_by(key, cost, None).await
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
        self.peek_by(key, cost, Some(now)).await
    }

    async fn peek_by(&self, key: &K, cost: u64, now: Option<Tick>) -> Decision {
        let (name, text) = self.naming.name(key);
        if let Mode::Unsynced(counts) = &self.mode {
            return counts.peek(Request { name, text: &text, cost }, now);
        }
        match self.core.ask(&text, Op::Peek { cost }, now).await {
            Ok(answer) => answer.decision,
            Err(_) => self.core.fallback.peek(&name, cost, self.core.rule.capacity()),
        }
    }

    /// Gives back what `charge` took, if it still counts, to where it was taken: the store or this
    /// machine. Tokens that a lease paid return to the lease, unless it has expired. If the store
    /// does not answer, the charge stays: a refund is not repeated, because the store may have
    /// executed it.
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
        self.refund_by(key, charge, tokens, None).await;
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
        self.refund_by(key, charge, tokens, Some(now)).await;
    }

    async fn refund_by(&self, key: &K, charge: &Decision, tokens: u64, now: Option<Tick>) {
        let tokens = charge.charged().min(tokens);
        if tokens == 0 {
            return;
        }
        let (name, text) = self.naming.name(key);
        match (charge.source(), &self.mode) {
            (Source::Remote, _) => {
                let _ = self.core.ask(&text, Op::Refund { charge, tokens }, now).await;
            }
            (Source::Prepaid, Mode::Lease(leases)) => leases.refund(&name, charge, tokens),
            (Source::Prepaid, Mode::Unsynced(counts)) => counts.refund(name, charge, tokens),
            (Source::Key | Source::Overflow, _) => self.core.fallback.refund(&name, charge, tokens),
            _ => {}
        }
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
        let (name, text) = self.naming.name(key);
        let deleted = self.core.client.delete(&text, self.core.deadline()).await;
        // After the deletion: what this machine leased or pushed before it belongs to the deleted
        // state.
        self.core.fallback.reset(&name);
        match &self.mode {
            Mode::Exact => {}
            Mode::Lease(leases) => leases.forget(&name),
            Mode::Unsynced(counts) => counts.forget(name),
        }
        deleted.map_err(|failure| ResetError {
            problem: match failure {
                Failure::Unavailable => "no connection to the store".to_owned(),
                Failure::Unknown => "the store did not answer in time".to_owned(),
                Failure::Server(problem) => problem,
            },
        })
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
        if let Mode::Unsynced(counts) = &self.mode {
            counts.flush().await;
        }
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
        self.quota
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
        self.core.rule.capacity()
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
        &self.core.trial.limit
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
        &self.core.client
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
        let mut stats = self.core.counters.stats();
        match &self.mode {
            Mode::Exact => {}
            Mode::Lease(leases) => stats.leased = leases.held(),
            Mode::Unsynced(counts) => counts.add_to(&mut stats),
        }
        stats
    }
}

impl<K: ?Sized> fmt::Debug for SharedLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLimiter")
            .field("name", &self.core.trial.limit)
            .field("quota", &self.quota)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
