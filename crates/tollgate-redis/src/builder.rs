//! The configuration of a shared limit. All settings are validated before anything is sent.

use crate::client::Client;
use crate::connection::trial::Trial;
use crate::core::{self, Core};
use crate::error::{Refused, SharedError};
use crate::fallback::{Fallback, WhenUnavailable};
use crate::lease::Leases;
use crate::limiter::SharedLimiter;
use crate::limiter::class::{Class, Mode};
use crate::name::{Naming, StoreKey};
use crate::scripts::rule::Rule;
use crate::stats::Counters;
use crate::unsynced::{self, Unsynced};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Algorithm, Limiter, Quota};

/// The maximum length of a limit's name or a class's name, in bytes.
const MAX_NAME: usize = 128;
const SHORTEST_DEADLINE: Duration = Duration::from_millis(1);
const LONGEST_DEADLINE: Duration = Duration::from_secs(60);

/// The settings of a shared limit. Created by [`SharedLimiter::builder`] or
/// [`SharedInFlight::builder`](crate::SharedInFlight::builder).
///
/// ```
/// use tollgate::Quota;
/// use tollgate_redis::{Client, SharedBuilder, SharedLimiter};
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// let quota = Quota::per_second(100).burst(20);
/// let builder: SharedBuilder<SharedLimiter<str>> = SharedLimiter::builder(&client, "api", quota);
/// let limiter = builder.lease(5).build()?;
/// # Ok::<(), tollgate_redis::SharedError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct SharedBuilder<L> {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) deadline: Duration,
    pub(crate) when_unavailable: Option<WhenUnavailable>,
    pub(crate) max_keys: usize,
    pub(crate) readable_keys: bool,
    /// The settings of a [`SharedLimiter`].
    quota: Quota,
    default_class: String,
    classes: Vec<(String, Quota)>,
    algorithm: Algorithm,
    max_debt: u64,
    penalty: Option<Duration>,
    lease: Option<u64>,
    max_unsynced: Option<u64>,
    client_clock: bool,
    /// The settings of a [`SharedInFlight`](crate::SharedInFlight).
    pub(crate) limit: u64,
    pub(crate) lifetime: Duration,
    built: PhantomData<fn() -> L>,
}

impl<K: StoreKey + ?Sized> SharedLimiter<K> {
    /// Starts the configuration of the limit called `name`. The name must be 1 to 128 bytes long.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_redis::{Client, WhenUnavailable, SharedLimiter};
    /// use tollgate::{Algorithm, Quota};
    ///
    /// let client = Client::open("redis://127.0.0.1:6379")?;
    /// let logins = SharedLimiter::<str>::builder(&client, "logins", Quota::per_hour(5))
    ///     .algorithm(Algorithm::SlidingLog)
    ///     .deadline(Duration::from_millis(20))
    ///     .when_unavailable(WhenUnavailable::Deny)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn builder(client: &Client, name: impl Into<String>, quota: Quota) -> SharedBuilder<Self> {
        SharedBuilder::new(client, name.into(), quota, 0)
    }
}

impl<L> SharedBuilder<L> {
    /// A `SharedLimiter` uses `quota`, and a `SharedInFlight` uses `limit`.
    pub(crate) fn new(client: &Client, name: String, quota: Quota, limit: u64) -> Self {
        Self {
            client: client.clone(),
            name,
            deadline: Duration::from_millis(50),
            when_unavailable: None,
            max_keys: 1_000_000,
            readable_keys: false,
            quota,
            default_class: "default".to_owned(),
            classes: Vec::new(),
            algorithm: Algorithm::default(),
            max_debt: 0,
            penalty: None,
            lease: None,
            max_unsynced: None,
            client_clock: false,
            limit,
            lifetime: Duration::from_secs(30),
            built: PhantomData,
        }
    }

    /// Sets how long the store may take to answer: 1 ms to 60 s, and 50 ms by default. After the
    /// deadline, [`when_unavailable`](Self::when_unavailable) decides.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .deadline(std::time::Duration::from_millis(20))
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets how a request is decided when the store does not answer in time. By default, a limiter
    /// on this machine decides, with the whole limit as its share ([`WhenUnavailable::default`]).
    /// With [`max_unsynced`](SharedBuilder::max_unsynced), the default is a denial
    /// ([`WhenUnavailable::Deny`]).
    ///
    /// The local limiter is also charged for this machine's requests that the store admits, so it
    /// knows the traffic when it has to decide. The store never learns which requests the local
    /// limiter has admitted.
    ///
    /// With [`WhenUnavailable::Allow`], a [`SharedInFlight`](crate::SharedInFlight) returns permits
    /// that are not counted.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .when_unavailable(tollgate_redis::WhenUnavailable::Allow)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn when_unavailable(self, when_unavailable: WhenUnavailable) -> Self {
        Self { when_unavailable: Some(when_unavailable), ..self }
    }

    /// Sets the maximum number of keys for which this machine stores state, in each class; the
    /// default is a million. In a [`SharedInFlight`](crate::SharedInFlight), this number limits how
    /// many keys have a permit, and the local limiter denies further keys. The store itself has no
    /// such limit.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .max_keys(100_000)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Writes each key, in escaped form, into the name of its store entry, so that an operator can
    /// find the entry. Keys of more than 200 characters are still written as a hash. By default,
    /// every name contains a hash and does not reveal the key.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .readable_keys()
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn readable_keys(self) -> Self {
        Self { readable_keys: true, ..self }
    }

    /// Checks the settings that all limits have in common.
    pub(crate) fn check_common(&self) -> Result<(), Refused> {
        if self.name.is_empty() || self.name.len() > MAX_NAME {
            return Err(Refused::Name { name: self.name.clone(), most: MAX_NAME });
        }
        let (deadline, least, most) = (self.deadline, SHORTEST_DEADLINE, LONGEST_DEADLINE);
        if deadline < least || deadline > most {
            return Err(Refused::Deadline { deadline, least, most });
        }
        Ok(())
    }
}

impl<K: StoreKey + ?Sized> SharedBuilder<SharedLimiter<K>> {
    /// Adds a [class](SharedLimiter#classes-of-callers) of callers with its own quota. The name
    /// must be 1 to 128 bytes long. [`SharedLimiter::class`] returns the limit with this quota. All
    /// classes use the limit's algorithm, and each class stores state for up to
    /// [`max_keys`](Self::max_keys) keys.
    ///
    /// If a class's quota is too small for the limit's [`lease`](Self::lease), the class uses the
    /// largest lease that its quota allows, or none. A class's [`max_unsynced`](Self::max_unsynced)
    /// is at most its quota.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_minute(10))
    ///     .class("paid", Quota::per_minute(1_000))
    ///     .class("partner", Quota::per_second(100))
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn class(mut self, name: impl Into<String>, quota: Quota) -> Self {
        self.classes.push((name.into(), quota));
        self
    }

    /// Names the default class, which has the limit's own quota. The name must be 1 to 128 bytes
    /// long; if this method is not called, the name is `default`. The name is not part of the keys
    /// in the store.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_minute(10))
    ///     .default_class("free")
    ///     .class("paid", Quota::per_minute(1_000))
    ///     .build()?;
    /// assert_eq!(limiter.class("free").unwrap().quota(), Quota::per_minute(10));
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn default_class(self, name: impl Into<String>) -> Self {
        Self { default_class: name.into(), ..self }
    }

    /// Sets the algorithm that enforces the quota; the default is [`Algorithm::TokenBucket`].
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::{Algorithm, Quota};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .algorithm(Algorithm::SlidingLog)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// Sets how many tokens beyond its capacity a key may owe; the default is 0.
    ///
    /// Only [`SharedLimiter::force`] and [`SharedReservation::commit`] create debts, because they
    /// charge tokens that are already spent. A check never creates a debt. [`Builder::max_debt`]
    /// describes how a debt ends in each algorithm.
    ///
    /// The setting applies to every class of callers. Machines that share a limit should use the
    /// same value, because each machine judges by its own value. With a bucket, a machine with a
    /// smaller `max_debt` counts a debt only up to that value.
    ///
    /// `build` returns an error if the sum of the debt and the capacity is too large for the
    /// store's numbers. It also returns an error for any debt with a sliding log or with
    /// [`max_unsynced`](Self::max_unsynced).
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "tokens", Quota::per_minute(90_000))
    ///     .max_debt(10_000)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    ///
    /// [`Builder::max_debt`]: tollgate::Builder::max_debt
    /// [`SharedReservation::commit`]: crate::SharedReservation::commit
    pub fn max_debt(self, tokens: u64) -> Self {
        Self { max_debt: tokens, ..self }
    }

    /// Sets a penalty: a denial [pauses](SharedLimiter::pause) its key for `time`, on all machines.
    /// By default, a denied key is allowed again as soon as its quota has refilled.
    ///
    /// A denial reports the time until the pause ends. Requests during the pause are denied
    /// ([`DecisionSource::Pause`](tollgate::DecisionSource::Pause)), but they do not extend the
    /// pause. A request that costs more than the capacity pauses no key, and neither does a
    /// fixed answer of [`WhenUnavailable`]. [`Builder::penalty`](tollgate::Builder::penalty)
    /// describes the penalty of a limiter in memory.
    ///
    /// Tokens that are leased to a machine count as used for all others, so with
    /// [`lease`](Self::lease) a denial may start the pause although not all tokens are spent.
    ///
    /// The check that denies a request sends the pause to the store before it returns, within the
    /// same deadline. If the store does not confirm the pause in time, the key may be paused on
    /// this machine only, and only while the store is unreachable. Machines that deny the key at
    /// the same time each start the pause, and the latest end applies. With
    /// [`max_unsynced`](Self::max_unsynced), the other machines learn of the pause when they next
    /// report the key.
    ///
    /// The time is rounded up to microseconds. `build` returns an error if it is 0.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let logins = SharedLimiter::<str>::builder(&client, "logins", Quota::per_minute(5))
    ///     .penalty(Duration::from_secs(600))
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn penalty(self, time: Duration) -> Self {
        Self { penalty: Some(time), ..self }
    }

    /// Leases up to `tokens` of a key's tokens in advance, and spends them without a round trip.
    /// All machines together never admit more than the limit. `tokens` may range from 1 to half of
    /// the capacity. The [crate's page](crate) describes the costs of a lease.
    ///
    /// No other machine can use the leased tokens, up to twice `tokens` for each machine and key,
    /// until they are given back or their lease ends, after at most 10 s. Each lost answer of the
    /// store withholds up to three more leases until they end. A lease of a bucket may last as long
    /// as the bucket takes to refill, so the larger the capacity, the more rarely the store is
    /// asked.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .lease(20)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn lease(self, tokens: u64) -> Self {
        Self { lease: Some(tokens), ..self }
    }

    /// Counts requests on this machine, and reports the counts to the store in the background. On
    /// each machine, a key never has more than `tokens` tokens that the store has not confirmed. N
    /// machines together therefore admit at most the limit plus `(N - 1) * tokens`, even while the
    /// store is unreachable. Checks do not wait while both the limit and `tokens` have room.
    ///
    /// Before the store's first answer, a machine uses its own clock. If its windows therefore
    /// differ from the store's, the machine may admit up to `tokens` more in a window, or twice as
    /// many if the clocks differ by a period or longer.
    ///
    /// Only windows support this mode. `tokens` may range from 1 to 262,143, but may not exceed the
    /// limit. See the [crate's page](crate).
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::{Algorithm, Quota};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .algorithm(Algorithm::SlidingWindow)
    ///     .max_unsynced(10)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn max_unsynced(self, tokens: u64) -> Self {
        Self { max_unsynced: Some(tokens), ..self }
    }

    /// Sends this machine's time of day with each request. Use this method if the store's provider
    /// does not allow scripts to read the server's clock. How well the machines agree then depends
    /// on how well their clocks agree. A machine whose clock is behind gains nothing, because its
    /// requests are judged by the latest time that the key has seen.
    ///
    /// There are two exceptions. With a [`lease`](Self::lease), a machine may spend leased tokens
    /// after the lease has ended for a machine whose clock is ahead. With
    /// [`max_unsynced`](Self::max_unsynced), each machine counts in the windows of its own clock. A
    /// machine whose clock is behind may therefore use up an earlier window, with a separate limit,
    /// while the other machines use a later window. A machine whose clock is ahead by two periods
    /// or more removes the counts of the others, which then report them again as after a loss.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .client_clock()
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn client_clock(self) -> Self {
        Self { client_clock: true, ..self }
    }

    /// Builds the limiter. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Returns a [`SharedError`] that names the refused value and the allowed range.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let nameless = SharedLimiter::<str>::builder(&client, "", Quota::per_second(1));
    /// let refused = nameless.build().unwrap_err().to_string();
    /// assert_eq!(refused, "invalid limit name \"\" of 0 bytes: expected 1 to 128 bytes");
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn build(self) -> Result<SharedLimiter<K>, SharedError> {
        self.limiter().map_err(SharedError)
    }

    fn limiter(&self) -> Result<SharedLimiter<K>, Refused> {
        self.check_common()?;
        if self.lease.is_some() && self.max_unsynced.is_some() {
            return Err(Refused::TwoModes);
        }
        if self.max_unsynced.is_some() && self.max_debt > 0 {
            return Err(Refused::UnsyncedDebt { max_debt: self.max_debt });
        }
        // `max_keys` and the penalty are validated by building a limiter, because a fallback that
        // stores no keys does not validate them. With an invalid `max_keys`, leases and counts
        // would have no room.
        let valid = Limiter::<u8>::builder(Quota::per_second(1)).max_keys(self.max_keys);
        match self.penalty {
            Some(penalty) => valid.penalty(penalty).build()?,
            None => valid.build()?,
        };
        let counters = Arc::new(Counters::default());
        let default = self.class_of(None, self.quota, &counters)?;
        let mut classes = vec![(self.default_class.clone(), Arc::new(default))];
        for (name, quota) in &self.classes {
            if classes.iter().any(|(known, _)| known == name) {
                return Err(Refused::TwoQuotas { class: name.clone() });
            }
            let refused = |error: Refused| Refused::Class { class: name.clone(), error: error.into() };
            let class = self.class_of(Some(name), *quota, &counters).map_err(refused)?;
            classes.push((name.clone(), Arc::new(class)));
        }
        if let Some((name, _)) = classes.iter().find(|(name, _)| name.is_empty() || name.len() > MAX_NAME) {
            return Err(Refused::ClassName { class: name.clone(), most: MAX_NAME });
        }
        // The trials are added last, so that no limiter is tried unless it has been built.
        self.client.network.try_too(classes.iter().map(|(_, class)| &class.core.trial));
        Ok(SharedLimiter::new(classes, self.algorithm))
    }

    /// Returns the class with the name `class`, or the default class if `class` is `None`.
    fn class_of(
        &self,
        class: Option<&str>,
        quota: Quota,
        counters: &Arc<Counters>,
    ) -> Result<Class, Refused> {
        let mut rule = Rule::new(self.algorithm, quota, self.max_debt)?;
        let lease = self.lease.map(|lease| largest_lease(&mut rule, lease, class.is_some())).transpose()?;
        let max_unsynced = match self.max_unsynced {
            // A named class may have a smaller quota than the limit.
            Some(most) if class.is_some() => Some(most.min(quota.tokens())),
            most => most,
        };
        if let Some(max_unsynced) = max_unsynced {
            Unsynced::check_settings(self.algorithm, quota.tokens(), max_unsynced)?;
        }
        let default =
            if self.max_unsynced.is_some() { WhenUnavailable::Deny } else { WhenUnavailable::default() };
        let when_unavailable = self.when_unavailable.unwrap_or(default);
        let fallback = Fallback::new(when_unavailable, self.algorithm, quota, self.max_debt, self.max_keys)?;
        let letter = if max_unsynced.is_some() { 'c' } else { rule.letter() };
        let naming = Naming::new(&self.name, letter, class, self.readable_keys);
        let now = self.client_clock.then(core::system_time);
        let trial = match (max_unsynced, rule.windows()) {
            (Some(_), Some((period, _))) => unsynced::trial(&self.name, &naming, period, now),
            _ => Trial::of(&self.name, &naming, &rule, now),
        };
        let core = Arc::new(Core {
            client: self.client.clone(),
            rule,
            deadline: self.deadline,
            fallback,
            client_clock: self.client_clock,
            counters: Arc::clone(counters),
            trial,
        });
        let mode = match (lease.flatten(), max_unsynced, core.rule.windows()) {
            (Some(lease), ..) => {
                let is_penalized = self.penalty.is_some();
                Mode::Lease(Leases::new(Arc::clone(&core), lease, self.max_keys, is_penalized))
            }
            (_, Some(most), Some((period, sliding))) => {
                Mode::Unsynced(Unsynced::new(Arc::clone(&core), most, self.max_keys, period, sliding)?)
            }
            _ => Mode::Exact,
        };
        Ok(Class { core, naming, mode, quota, penalty: self.penalty })
    }
}

/// Sets a rule's lease, and returns the size of the lease. If `shrinks` is true and the quota is
/// too small for the lease, uses the largest lease that the quota allows, or returns `None` if the
/// quota allows no lease.
fn largest_lease(rule: &mut Rule, mut lease: u64, shrinks: bool) -> Result<Option<u64>, Refused> {
    loop {
        match rule.lease(lease) {
            Ok(()) => return Ok(Some(lease)),
            Err(Refused::Lease { most: 0, .. }) if shrinks && lease > 0 => return Ok(None),
            Err(Refused::Lease { most, .. }) if shrinks && most < lease => lease = most,
            Err(refused) => return Err(refused),
        }
    }
}
