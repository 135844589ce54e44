//! [`SharedLimiter`]: a limiter whose state is shared by machines.

pub(crate) mod class;
mod pending;

use crate::client::Client;
use crate::core::Request;
use crate::health::StoreProblem;
use crate::name::{Name, Naming, StoreKey};
use crate::stats::SharedStats;
use class::Class;
use futures_util::future::join_all;
pub use pending::PendingCheck;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Algorithm, Decision, Quota, Tick};

/// A rate limiter that several machines share. Its counts are in a store.
///
/// Limiters on the same servers share their counts if they have the same name and kind of
/// algorithm, in any process and on any machine. Their quotas may differ, for instance during a
/// roll-out. Each limiter then judges by its own quota, and charged tokens remain charged.
///
/// A check never fails: if the store does not answer by the deadline,
/// [`WhenUnavailable`](crate::WhenUnavailable) decides, and [`Decision::source`] reports it.
///
/// A `SharedLimiter` is a handle that is cheap to clone. Three methods return other handles to the
/// same limit: [`class`](Self::class) for the quota of one class of callers, [`at`](Self::at) for a
/// given time, and [`for_key`](Self::for_key) for one key.
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
/// # Classes of callers
///
/// A limit may have quotas for [classes](crate::SharedBuilder::class) of callers, such as a free
/// and a paid plan. The caller of a check chooses the class; the limiter stores no list of keys.
/// Each class counts a key separately, under a different name in the store.
///
/// If a key changes its class, it starts with a fresh state in the new class. When it returns to
/// the old class, its earlier usage still counts. A key that is checked in two classes, even at the
/// same time, receives at most the tokens of both quotas together.
///
/// Choose the class according to what your service knows about the caller, not according to what
/// the request claims.
///
/// Machines share the classes that have the same name. The default class is the same for all
/// machines, whatever its [name](crate::SharedBuilder::default_class).
///
/// If machines have different quotas for a class, each machine judges by its own quota, but counts
/// the tokens charged by all machines. A machine with a smaller quota therefore denies first. The
/// same holds for leases and unsynchronized counts, unless the quotas of windows have different
/// *periods*. With [`max_unsynced`](crate::SharedBuilder::max_unsynced), the machines then do not
/// count each other's tokens, so each of these quotas can be used up in full. With a
/// [`lease`](crate::SharedBuilder::lease), a machine may give tokens back to a count that no longer
/// contains them, so these tokens may be admitted once more.
///
/// # Progress
///
/// A check takes no longer than its deadline plus the time that the runtime needs to notice the
/// deadline. A check acquires no lock before it reaches the connection, which all checks share. If
/// a check's future is dropped, the answer is lost, but the store may have counted the request.
///
/// Threads without a runtime use [`try_check`](Self::try_check), which never waits, and
/// [`check_blocking`](Self::check_blocking).
pub struct SharedLimiter<K: ?Sized> {
    limit: Arc<SharedLimiterState>,
    /// The index of the class in `limit`.
    class: usize,
    /// The time at which all operations run, in place of the time on the limit's clock.
    now: Option<Tick>,
    /// The key that all operations use, in place of their argument.
    key: Option<Arc<BoundKey>>,
    keys: PhantomData<fn(&K)>,
}

/// The state that all handles of a limit share.
struct SharedLimiterState {
    /// The classes with their names. The first one is the default class.
    classes: Vec<(String, Arc<Class>)>,
    algorithm: Algorithm,
}

/// The key that a handle is bound to.
struct BoundKey {
    /// The bytes that identify the key. The key's names in other classes are computed from these
    /// bytes.
    bytes: Vec<u8>,
    names: (Name, String),
}

impl<K: ?Sized> SharedLimiter<K> {
    /// `classes` are the classes with their names, the default class first.
    pub(crate) fn new(classes: Vec<(String, Arc<Class>)>, algorithm: Algorithm) -> Self {
        let limit = Arc::new(SharedLimiterState { classes, algorithm });
        Self { limit, class: 0, now: None, key: None, keys: PhantomData }
    }

    /// Returns the names of the classes, starting with the default class. Returns no names for a
    /// limiter without classes, or for a handle that [`class`](Self::class) has bound to a class
    /// other than the default.
    #[cfg(feature = "http")]
    pub(crate) fn class_names(&self) -> impl Iterator<Item = &str> {
        let classes = &self.limit.classes;
        let is_whole = self.class == 0 && classes.len() > 1;
        classes.iter().filter(move |_| is_whole).map(|(name, _)| name.as_str())
    }

    pub(crate) fn own_class(&self) -> &Arc<Class> {
        &self.limit.classes[self.class].1
    }

    fn classes(&self) -> impl Iterator<Item = &Arc<Class>> {
        self.limit.classes.iter().map(|(_, class)| class)
    }

    /// Lets any executor poll `future`, if the client has a thread.
    async fn within<T>(&self, future: impl Future<Output = T>) -> T {
        self.own_class().core.client.runtime().within(future).await
    }

    fn with<Q: ?Sized>(&self, key: Option<Arc<BoundKey>>) -> SharedLimiter<Q> {
        let (limit, class, now) = (Arc::clone(&self.limit), self.class, self.now);
        SharedLimiter { limit, class, now, key, keys: PhantomData }
    }
}

impl<K: StoreKey + ?Sized> SharedLimiter<K> {
    /// Returns the names of the key that this handle is bound to, or the names of `key` if the
    /// handle is not bound to a key.
    fn names(&self, key: &K) -> (Name, Cow<'_, str>) {
        match self.key.as_deref() {
            Some(BoundKey { names: (name, text), .. }) => (*name, Cow::Borrowed(text)),
            None => {
                let (name, text) = self.own_class().naming.name(key);
                (name, Cow::Owned(text))
            }
        }
    }

    /// Returns this limit with the quota of a [class](#classes-of-callers). Returns `None` if the
    /// builder added no class of this name. The default class is called `default`, unless
    /// [`default_class`](crate::SharedBuilder::default_class) has renamed it.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(9))
    ///     .class("paid", Quota::per_second(900))
    ///     .build()?;
    /// let paid = limiter.class("paid").unwrap();
    /// assert_eq!(paid.quota(), Quota::per_second(900));
    /// assert!(limiter.class("free").is_none());
    /// // A plan without a class has the limit's own quota.
    /// let plan = "free";
    /// let class = limiter.class(plan).unwrap_or_else(|| limiter.clone());
    /// # assert_eq!(class.quota(), Quota::per_second(9));
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    #[must_use]
    pub fn class(&self, name: &str) -> Option<Self> {
        let class = self.limit.classes.iter().position(|(known, _)| known == name)?;
        let naming = &self.limit.classes[class].1.naming;
        let key = self.key.as_ref().map(|key| BoundKey::new(key.bytes.clone(), naming));
        Some(Self { class, ..self.with(key) })
    }

    /// Returns a handle to this limit whose operations run at a given time, for replays and tests.
    /// The time is in ticks since the Unix epoch, and is rounded down to microseconds.
    ///
    /// Every operation of this handle asks the store, even if the limit has a
    /// [`lease`](crate::SharedBuilder::lease). If the time is before the key's latest time, the
    /// latest time is used instead. A reservation made by this handle is also settled at the given
    /// time.
    ///
    /// [`max_unsynced`](crate::SharedBuilder::max_unsynced) is an exception. This machine then
    /// counts the handle's requests like all other requests, in the window of the given time. An
    /// earlier window has its own count, even if the key was used later.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// # use tollgate::Tick;
    /// let midnight = Tick::from_nanos(1_767_225_600_000_000_000);
    /// let decision = limiter.at(midnight).check("alice").await;
    /// assert_eq!(decision.at(), midnight);
    /// # }
    /// ```
    #[must_use]
    pub fn at(&self, now: Tick) -> Self {
        Self { now: Some(now), ..self.clone() }
    }

    /// Returns this limit for one key. The result limits a single resource, whose key is `()`.
    ///
    /// The key's name is then computed only once, however often the key is used. Limits with
    /// different key types become limits of one type, so a
    /// [`SharedReservationSet`](crate::SharedReservationSet) accepts them together.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let alice: SharedLimiter<()> = limiter.for_key("alice");
    /// let decision = alice.check_n(&(), 5).await;
    /// alice.refund(&(), &decision).await;
    /// # }
    /// ```
    #[must_use]
    pub fn for_key(&self, key: &K) -> SharedLimiter<()> {
        let key = self.key.clone().unwrap_or_else(|| {
            let mut bytes = Vec::new();
            key.write(&mut bytes);
            BoundKey::new(bytes, &self.own_class().naming)
        });
        self.with(Some(key))
    }

    /// Checks one request of `key` and takes one token if the request is allowed.
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

    /// Checks a request for `cost` tokens, and takes either all of them or none.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// assert!(limiter.check_n("alice", 5).await.charged() <= 5);
    /// # }
    /// ```
    pub async fn check_n(&self, key: &K, cost: u64) -> Decision {
        let class = self.own_class();
        if !class.core.client.runtime().has_timer() {
            return match self.try_check_n(key, cost) {
                Ok(decision) => decision,
                Err(pending) => pending.await,
            };
        }
        let (name, text) = self.names(key);
        let request = Request { name, text: &text, cost };
        self.within(class.check(request, self.now, class.core.deadline())).await
    }

    /// Checks one request of `key`, without waiting. Returns a [`PendingCheck`] if the store must
    /// be asked, which a task in the client's [runtime](crate::ClientBuilder::runtime_thread) then
    /// does. See [`try_check_n`](Self::try_check_n).
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # fn ask(limiter: SharedLimiter<str>) {
    /// let decision = match limiter.try_check("alice") {
    ///     Ok(decision) => decision,
    ///     Err(pending) => pending.wait(), // or continue when it is ready, as a future
    /// };
    /// # }
    /// ```
    pub fn try_check(&self, key: &K) -> Result<Decision, PendingCheck> {
        self.try_check_n(key, 1)
    }

    /// Checks a request for `cost` tokens, without waiting. The answer is the same as that of
    /// [`check_n`](Self::check_n), which takes this step first.
    ///
    /// Returns `Ok` if this machine can decide: it has [leased](crate::SharedBuilder::lease) tokens
    /// for the request or remembers a denial, or the request fits into
    /// [`max_unsynced`](crate::SharedBuilder::max_unsynced) or exceeds the limit. This step uses no
    /// runtime, timer or lock. It may start a task that requests the next lease or reports counts.
    ///
    /// Returns [`PendingCheck`] otherwise, and always without these two modes. The same applies to
    /// a denial with a [penalty](crate::SharedBuilder::penalty), which the store has to confirm.
    ///
    /// The tasks run in the runtime of the client, or else in the runtime of the caller. If there
    /// is neither, the store cannot be asked: [`WhenUnavailable`](crate::WhenUnavailable) decides,
    /// and
    /// [`ClientStats::problems`](crate::ClientStats::problems) names the remedy.
    ///
    /// # Errors
    ///
    /// Returns [`PendingCheck`] if the store must be asked. This is not a denial.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # fn ask(limiter: SharedLimiter<str>) {
    /// if let Ok(decision) = limiter.try_check_n("alice", 5) {
    ///     println!("decided here: {decision:?}");
    /// }
    /// # }
    /// ```
    pub fn try_check_n(&self, key: &K, cost: u64) -> Result<Decision, PendingCheck> {
        let class = self.own_class();
        let bound = self.key.as_deref();
        let name = bound.map_or_else(|| Name::of(key), |bound| bound.names.0);
        let text = || match bound {
            Some(bound) => bound.names.1.clone(),
            None => class.naming.text(&name, key),
        };
        match class.check_here(&name, cost, text, self.now) {
            Some(decision) if class.penalty_of(&decision).is_none() => Ok(decision),
            decided => Err(PendingCheck::start(class, (name, text()), cost, self.now, decided)),
        }
    }

    /// Checks one request of `key`, and blocks this thread while the store is being asked, at most
    /// until the limit's [deadline](crate::SharedBuilder::deadline). See
    /// [`check_n_blocking`](Self::check_n_blocking).
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # fn ask(limiter: SharedLimiter<str>) {
    /// let decision = limiter.check_blocking("alice");
    /// println!("{} left", decision.remaining());
    /// # }
    /// ```
    pub fn check_blocking(&self, key: &K) -> Decision {
        self.check_n_blocking(key, 1)
    }

    /// Checks a request for `cost` tokens like [`check_n`](Self::check_n), and blocks this thread
    /// while the store is being asked, at most until the limit's deadline.
    ///
    /// This method is for threads without a runtime, whose client has
    /// [one](crate::ClientBuilder::runtime_thread). Do not call it in a task of the runtime that
    /// asks the store: [`PendingCheck::wait`] describes why.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # fn ask(limiter: SharedLimiter<str>) {
    /// assert!(limiter.check_n_blocking("alice", 5).charged() <= 5);
    /// # }
    /// ```
    pub fn check_n_blocking(&self, key: &K, cost: u64) -> Decision {
        self.try_check_n(key, cost).unwrap_or_else(PendingCheck::wait)
    }

    /// Checks each pair of a key and a cost, in the given order. A single server needs one round
    /// trip for all of them. This method always asks the store, with two exceptions. Counts may
    /// stay [unsynchronized](crate::SharedBuilder::max_unsynced). With a
    /// [lease](crate::SharedBuilder::lease), each pair is checked as by [`check_n`](Self::check_n):
    /// pairs of different keys at the same time, and pairs of one key in the given order.
    ///
    /// Batches of several classes or limits can be joined, for example with `tokio::join!`. They
    /// are sent over the client's connection at the same time, so together they need one round
    /// trip.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let decisions = limiter.check_many(&[("alice", 1), ("bob", 3)]).await;
    /// assert_eq!(decisions.len(), 2);
    /// # }
    /// ```
    pub async fn check_many(&self, requests: &[(&K, u64)]) -> Vec<Decision> {
        let names: Vec<_> = requests.iter().map(|(key, _)| self.names(key)).collect();
        let costs = requests.iter().map(|(_, cost)| *cost);
        let requests: Vec<_> =
            names.iter().zip(costs).map(|((name, text), cost)| Request { name: *name, text, cost }).collect();
        self.within(self.own_class().check_many(&requests, self.now)).await
    }

    /// Returns the store's decision on a request for one token, without taking it.
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

    /// Returns the store's decision on a request for `cost` tokens, without taking them.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// println!("{:?}", limiter.peek_n("alice", 20).await.retry_after());
    /// # }
    /// ```
    pub async fn peek_n(&self, key: &K, cost: u64) -> Decision {
        let (name, text) = self.names(key);
        self.within(self.own_class().peek(Request { name, text: &text, cost }, self.now)).await
    }

    /// Gives back the tokens that `decision` took, if these tokens still count. The tokens return
    /// to where they were taken from: the store or this machine. Tokens paid from a lease return to
    /// the lease, unless it has expired or a later lease was requested. With
    /// [`max_unsynced`](crate::SharedBuilder::max_unsynced), only tokens that are not reported to
    /// the store yet are given back. If the store does not answer, the charge is kept. A refund is
    /// never repeated, because the store may have executed it.
    ///
    /// In a bucket, a late refund may give back tokens that belong to other requests, as
    /// [`Limiter::refund`](tollgate::Limiter::refund) describes. Such a refund gives back at most
    /// as many of these tokens as earlier decisions gave back while this decision was held.
    ///
    /// If machines have different quotas for one key, for example during a roll-out, all of a
    /// refund's tokens may belong to other requests. The store does not know under which quota the
    /// decision's tokens have refilled.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let decision = limiter.check_n("alice", 5).await;
    /// limiter.refund("alice", &decision).await;
    /// # }
    /// ```
    pub async fn refund(&self, key: &K, decision: &Decision) {
        self.refund_n(key, decision, u64::MAX).await;
    }

    /// Gives back at most `tokens` of the tokens that `decision` took. Use this method for a
    /// request that cost less than was charged. [`refund`](Self::refund) describes the details.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let estimate = limiter.check_n("alice", 5).await;
    /// limiter.refund_n("alice", &estimate, 2).await; // it took 3
    /// # }
    /// ```
    pub async fn refund_n(&self, key: &K, decision: &Decision, tokens: u64) {
        let (name, text) = self.names(key);
        let request = Request { name, text: &text, cost: tokens };
        self.within(self.own_class().refund(request, decision, self.now)).await;
    }

    /// Charges `key` for `tokens` that are already spent, and returns how many were charged.
    ///
    /// The charge is at most the key's remaining tokens plus
    /// [`max_debt`](crate::SharedBuilder::max_debt). While a key is in debt, it has no remaining
    /// tokens, and its requests are denied. Each denial contains the time at which the request
    /// would pass. A refund can't give back a forced charge. Use a [reservation](Self::reserve) to
    /// settle a cost more precisely. With a [`lease`](crate::SharedBuilder::lease), the charge
    /// takes tokens that this machine has leased, if they suffice.
    ///
    /// If the store does not answer, this method charges the local limiter of
    /// [`WhenUnavailable`](crate::WhenUnavailable). That charge may create a debt of up to the
    /// local limiter's share of `max_debt`.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// let unpaid = 500 - limiter.force("alice", 500).await;
    /// # }
    /// ```
    pub async fn force(&self, key: &K, tokens: u64) -> u64 {
        let (name, text) = self.names(key);
        self.within(self.own_class().force(Request { name, text: &text, cost: tokens }, self.now)).await
    }

    /// Pauses `key` for `time`. Until the pause ends, no machine admits requests of this key in
    /// this handle's class.
    ///
    /// During the pause, checks and peeks are denied, and their answers report when the same
    /// request would pass. The pause ends by itself and changes nothing else: afterwards the key
    /// has the same tokens as without the pause, except that the tokens of this machine's leases
    /// are lost. A second pause may extend the first, but never shortens it. A
    /// [`reset`](Self::reset) ends the pause. Refunds, forced charges and machines with another
    /// quota do not end it.
    ///
    /// Machines still admit some requests that do not need the store's answer:
    ///
    /// - With a [`lease`](crate::SharedBuilder::lease), *other* machines spend the tokens that they
    ///   have already leased: at most twice `lease` for each machine, until its leases end.
    /// - With [`max_unsynced`](crate::SharedBuilder::max_unsynced), another machine receives the
    ///   pause when it next reports the key to the store. Until then, it admits at most
    ///   `max_unsynced` tokens. A machine that has received a pause obeys it until the pause ends,
    ///   even if another machine resets the key.
    /// - While the store is unreachable, a machine that has not called this method admits the
    ///   requests that [`WhenUnavailable`](crate::WhenUnavailable) allows.
    ///
    /// # Errors
    ///
    /// Returns a [`StoreProblem`] if the store has not confirmed the pause by the deadline. The
    /// local fallback of this machine is paused even then.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// if let Err(error) = limiter.pause("alice", Duration::from_secs(30)).await {
    ///     println!("{error}");
    /// }
    /// # }
    /// ```
    pub async fn pause(&self, key: &K, time: Duration) -> Result<(), StoreProblem> {
        let (name, text) = self.names(key);
        let request = Request { name, text: &text, cost: 0 };
        let class = self.own_class();
        self.within(class.pause_by(class.core.deadline(), request, time, self.now)).await
    }

    /// Deletes the state of `key` in this handle's class, both in the store and on this machine,
    /// and ends the key's [pause](Self::pause). Tokens that other machines have leased stay leased.
    /// After a reset, do not refund charges that were made before the reset.
    ///
    /// # Errors
    ///
    /// Returns a [`StoreProblem`] if the store has not confirmed the deletion by the deadline.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedLimiter;
    /// # async fn ask(limiter: SharedLimiter<str>) {
    /// if let Err(error) = limiter.reset("alice").await {
    ///     println!("{error}");
    /// }
    /// # }
    /// ```
    pub async fn reset(&self, key: &K) -> Result<(), StoreProblem> {
        let (name, text) = self.names(key);
        self.within(self.own_class().reset(name, &text, self.now)).await
    }

    /// Sends the unsynchronized counts of all classes to the store. Call this method before a
    /// machine stops. It takes no longer than a check's deadline, and does nothing without
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
        self.within(join_all(self.classes().map(|class| class.flush()))).await;
    }

    /// Returns the quota for this handle's class. [`Quota::capacity`] is the maximum cost of one
    /// request.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let quota = Quota::per_second(9).burst(5);
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", quota).build()?;
    /// assert_eq!(limiter.quota(), Quota::per_second(9).burst(5));
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn quota(&self) -> Quota {
        self.own_class().quota
    }

    /// Returns true if the limiter admits requests before they may start.
    #[cfg(feature = "wait")]
    pub(crate) fn is_leaky_queue(&self) -> bool {
        self.limit.algorithm == Algorithm::LeakyQueue
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
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn client(&self) -> &Client {
        &self.own_class().core.client
    }

    /// Returns the combined statistics of all classes since the limiter was built. This method
    /// visits every key that has state on this machine.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let quota = Quota::per_second(9).burst(5);
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", quota).build()?;
    /// assert_eq!(limiter.stats().by_fallback, 0);
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn stats(&self) -> SharedStats {
        let mut stats = self.own_class().core.counters.stats();
        self.classes().for_each(|class| class.add_to(&mut stats));
        stats
    }
}

impl BoundKey {
    fn new(bytes: Vec<u8>, naming: &Naming) -> Arc<Self> {
        let names = naming.name(&*bytes);
        Arc::new(Self { bytes, names })
    }
}

impl<K: ?Sized> Clone for SharedLimiter<K> {
    fn clone(&self) -> Self {
        self.with(self.key.clone())
    }
}

impl<K: ?Sized> fmt::Debug for SharedLimiter<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, own) = &self.limit.classes[self.class];
        // The output does not contain the key of the handle.
        f.debug_struct("SharedLimiter")
            .field("name", &own.core.trial.limit)
            .field("class", class)
            .field("quota", &own.quota)
            .field("algorithm", &self.limit.algorithm)
            .finish_non_exhaustive()
    }
}
