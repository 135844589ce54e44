//! The configuration of a shared limit, validated before anything is sent.

use crate::client::Client;
use crate::connection::trial::Trial;
use crate::core::{self, Core};
use crate::error::BuildError;
use crate::fallback::{Fallback, WhenUnavailable};
use crate::lease::Leases;
use crate::limiter::SharedLimiter;
use crate::limiter::tier::{Mode, Tier};
use crate::name::{Naming, StoreKey};
use crate::scripts::rule::Rule;
use crate::stats::Counters;
use crate::unsynced::{self, Unsynced};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Algorithm, Limiter, Quota};

/// The longest name of a limit, in bytes.
const MAX_NAME: usize = 128;
const SHORTEST_DEADLINE: Duration = Duration::from_millis(1);
const LONGEST_DEADLINE: Duration = Duration::from_secs(60);

/// The settings of a [`SharedLimiter`]; made by [`SharedLimiter::builder`].
///
/// ```
/// use tollgate::Quota;
/// use tollgate_redis::{Client, SharedBuilder, SharedLimiter};
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// let quota = Quota::per_second(100).burst(20);
/// let builder: SharedBuilder<str> = SharedLimiter::builder(&client, "api", quota);
/// let limiter = builder.lease(5).build()?;
/// # Ok::<(), tollgate_redis::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct SharedBuilder<K: ?Sized> {
    client: Client,
    name: String,
    quota: Quota,
    classes: Vec<(String, Quota)>,
    algorithm: Algorithm,
    max_debt: u64,
    deadline: Duration,
    on_failure: Option<WhenUnavailable>,
    max_keys: usize,
    lease: Option<u64>,
    max_unsynced: Option<u64>,
    readable_keys: bool,
    client_clock: bool,
    keys: PhantomData<fn(&K)>,
}

impl<K: StoreKey + ?Sized> SharedLimiter<K> {
    /// Starts the configuration of the limit called `name`, 1 to 128 bytes.
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
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn builder(client: &Client, name: impl Into<String>, quota: Quota) -> SharedBuilder<K> {
        SharedBuilder::new(client.clone(), name.into(), quota)
    }
}

impl<K: StoreKey + ?Sized> SharedBuilder<K> {
    pub(crate) fn new(client: Client, name: String, quota: Quota) -> Self {
        Self {
            client,
            name,
            quota,
            classes: Vec::new(),
            algorithm: Algorithm::default(),
            max_debt: 0,
            deadline: Duration::from_millis(50),
            on_failure: None,
            max_keys: 1_000_000,
            lease: None,
            max_unsynced: None,
            readable_keys: false,
            client_clock: false,
            keys: PhantomData,
        }
    }

    /// Adds a class of callers, whose name has 1 to 128 bytes, with a quota of its own. [`Class`]
    /// says what a class is; [`SharedLimiter::check_as`] checks a request of one. All classes have
    /// the limit's algorithm, and each keeps state for up to [`max_keys`](Self::max_keys) keys.
    ///
    /// A class whose quota is too small for the limit's [`lease`](Self::lease) takes the largest
    /// that its quota allows, or none; and [`max_unsynced`](Self::max_unsynced) is at most its
    /// quota.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_minute(10))
    ///     .class("paid", Quota::per_minute(1_000))
    ///     .class("partner", Quota::per_second(100))
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    ///
    /// [`Class`]: crate::Class
    pub fn class(mut self, name: impl Into<String>, quota: Quota) -> Self {
        self.classes.push((name.into(), quota));
        self
    }

    /// Sets how the quota is enforced; the default is [`Algorithm::TokenBucket`].
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::{Algorithm, Quota};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .algorithm(Algorithm::SlidingLog)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }

    /// Sets how many tokens beyond its capacity a key may owe; the default is 0.
    ///
    /// Only [`SharedLimiter::force_n`] and [`SharedReservation::commit`] make debts: they charge
    /// what is spent already. A check never does. [`AnyRule::max_debt`] says how a debt ends, for
    /// each algorithm. It holds for each class of callers. Machines that share a limit should have
    /// the same: each judges by its own, and one that allows a smaller debt sees no more than that
    /// of a bucket's debt.
    ///
    /// `build` returns an error for a debt that the store's numbers can't hold beside the capacity,
    /// for any debt of a sliding log, and with [`max_unsynced`](Self::max_unsynced).
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "tokens", Quota::per_minute(90_000))
    ///     .max_debt(10_000)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    ///
    /// [`AnyRule::max_debt`]: tollgate::rule::AnyRule::max_debt
    /// [`SharedReservation::commit`]: crate::SharedReservation::commit
    pub fn max_debt(self, tokens: u64) -> Self {
        Self { max_debt: tokens, ..self }
    }

    /// Sets how long a check may take, 1 ms to 60 s; the default is 50 ms. If the store has not
    /// answered by then, [`when_unavailable`](Self::when_unavailable) decides.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .deadline(std::time::Duration::from_millis(20))
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Sets how a check is answered when the store does not answer in time. By default a limiter on
    /// this machine decides, with all of the quota ([`WhenUnavailable::default`]); with
    /// [`max_unsynced`](Self::max_unsynced) the default is a denial ([`WhenUnavailable::Deny`]).
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .when_unavailable(tollgate_redis::WhenUnavailable::Allow)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn when_unavailable(self, on_failure: WhenUnavailable) -> Self {
        Self { on_failure: Some(on_failure), ..self }
    }

    /// Sets the maximum number of keys that this machine keeps state for, in each
    /// [class](crate::Class); the default is a million. It does not bound the store.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .max_keys(100_000)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Takes up to `tokens` of a key in advance and spends them without a round trip. All machines
    /// together never admit more than the limit. Allowed: 1 to half of the capacity. The [crate's
    /// page](crate) says what a lease costs.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .lease(20)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn lease(self, tokens: u64) -> Self {
        Self { lease: Some(tokens), ..self }
    }

    /// Counts on this machine and tells the store in the background. A key never has more than
    /// `tokens` that the store has not confirmed: N machines admit at most the limit and (N - 1) x
    /// `tokens`, also while the store is away, and no check waits while there is room. For windows
    /// only; 1 to 262,143, and at most the limit. See the [crate's page](crate).
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::{Algorithm, Quota};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .algorithm(Algorithm::SlidingWindow)
    ///     .max_unsynced(10)
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn max_unsynced(self, tokens: u64) -> Self {
        Self { max_unsynced: Some(tokens), ..self }
    }

    /// Writes keys of at most 200 characters into their names in the store, escaped, so that an
    /// operator can find them there. By default a name is a hash and does not reveal its key.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .readable_keys()
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn readable_keys(self) -> Self {
        Self { readable_keys: true, ..self }
    }

    /// Sends this machine's time of day with each request, for services that forbid scripts to read
    /// the server's clock. Machines then agree only as well as their clocks. A machine whose clock
    /// is behind is judged at the latest time that the key has seen, so it is not given more.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(100))
    ///     .client_clock()
    ///     .build()?;
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn client_clock(self) -> Self {
        Self { client_clock: true, ..self }
    }

    /// Builds the limiter. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// A [`BuildError`] that names the refused value and the allowed range.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedLimiter};
    /// # use tollgate::Quota;
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let nameless = SharedLimiter::<str>::builder(&client, "", Quota::per_second(1));
    /// let refused = nameless.build().unwrap_err().to_string();
    /// assert_eq!(refused, "invalid limit name \"\" of 0 bytes: expected 1 to 128 bytes");
    /// # Ok::<(), tollgate_redis::BuildError>(())
    /// ```
    pub fn build(self) -> Result<SharedLimiter<K>, BuildError> {
        if self.name.is_empty() || self.name.len() > MAX_NAME {
            return Err(BuildError::Name { name: self.name, most: MAX_NAME });
        }
        let (least, most) = (SHORTEST_DEADLINE, LONGEST_DEADLINE);
        if self.deadline < least || self.deadline > most {
            return Err(BuildError::Deadline { deadline: self.deadline, least, most });
        }
        if self.lease.is_some() && self.max_unsynced.is_some() {
            return Err(BuildError::TwoModes);
        }
        if self.max_unsynced.is_some() && self.max_debt > 0 {
            return Err(BuildError::UnsyncedDebt { max_debt: self.max_debt });
        }
        // Validates `max_keys` here, because a fallback without keys would not, and then leases and
        // counts would have no room.
        Limiter::<u8>::builder(Quota::per_second(1)).max_keys(self.max_keys).build()?;
        let counters = Arc::new(Counters::default());
        let default = self.tier(None, self.quota, &counters)?;
        let mut classes: Vec<(String, Arc<Tier>)> = Vec::with_capacity(self.classes.len());
        for (class, quota) in &self.classes {
            if class.is_empty() || class.len() > MAX_NAME {
                return Err(BuildError::ClassName { class: class.clone(), most: MAX_NAME });
            }
            if classes.iter().any(|(name, _)| name == class) {
                return Err(BuildError::TwoQuotas { class: class.clone() });
            }
            let refused = |error: BuildError| BuildError::Class { class: class.clone(), error: error.into() };
            classes.push((class.clone(), self.tier(Some(class), *quota, &counters).map_err(refused)?));
        }
        // The trials of a limiter that is not built would be in vain.
        for tier in [&default].into_iter().chain(classes.iter().map(|(_, tier)| tier)) {
            self.client.network.trials.add(&tier.core.trial);
        }
        Ok(SharedLimiter::new(default, classes, self.algorithm))
    }

    /// Returns the default class, or the class of this name.
    fn tier(
        &self,
        class: Option<&str>,
        quota: Quota,
        counters: &Arc<Counters>,
    ) -> Result<Arc<Tier>, BuildError> {
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
        let on_failure = self.on_failure.unwrap_or(default);
        let fallback = Fallback::new(on_failure, self.algorithm, quota, self.max_debt, self.max_keys)?;
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
            (Some(lease), ..) => Mode::Lease(Leases::new(Arc::clone(&core), lease, self.max_keys)),
            (_, Some(most), Some((period, sliding))) => {
                Mode::Unsynced(Unsynced::new(Arc::clone(&core), most, self.max_keys, period, sliding))
            }
            _ => Mode::Exact,
        };
        Ok(Arc::new(Tier { core, naming, mode, quota }))
    }
}

/// Sets the lease of a rule, and returns it. If the quota is too small for it and `shrinks`, the
/// rule gets the largest lease that its quota allows; `None` if it allows no lease.
fn largest_lease(rule: &mut Rule, mut lease: u64, shrinks: bool) -> Result<Option<u64>, BuildError> {
    loop {
        match rule.lease(lease) {
            Ok(()) => return Ok(Some(lease)),
            Err(BuildError::Lease { most: 0, .. }) if shrinks && lease > 0 => return Ok(None),
            Err(BuildError::Lease { most, .. }) if shrinks && most < lease => lease = most,
            Err(refused) => return Err(refused),
        }
    }
}
