//! The configuration of a shared limit, validated before anything is sent.

use crate::client::Client;
use crate::connection::trial::Trial;
use crate::core::{self, Core};
use crate::error::BuildError;
use crate::fallback::{Fallback, WhenUnavailable};
use crate::lease::Leases;
use crate::limiter::{Mode, SharedLimiter};
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
    algorithm: Algorithm,
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
            algorithm: Algorithm::default(),
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

    /// Sets the maximum number of keys that this machine keeps state for; the default is a million.
    /// It does not bound the store.
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
        let mut rule = Rule::new(self.algorithm, self.quota)?;
        if let Some(lease) = self.lease {
            rule.lease(lease)?;
        }
        if let Some(max_unsynced) = self.max_unsynced {
            if self.lease.is_some() {
                return Err(BuildError::TwoModes);
            }
            Unsynced::check_settings(self.algorithm, self.quota.tokens(), max_unsynced)?;
        }
        // Validates `max_keys` here, because a fallback without keys would not, and then leases and
        // counts would have no room.
        Limiter::<u8>::builder(Quota::per_second(1)).max_keys(self.max_keys).build()?;
        let default =
            if self.max_unsynced.is_some() { WhenUnavailable::Deny } else { WhenUnavailable::default() };
        let on_failure = self.on_failure.unwrap_or(default);
        let fallback = Fallback::new(on_failure, self.algorithm, self.quota, self.max_keys)?;
        let letter = if self.max_unsynced.is_some() { 'c' } else { rule.letter() };
        let naming = Naming::new(&self.name, letter, self.readable_keys);
        let now = self.client_clock.then(core::system_time);
        let trial = match (self.max_unsynced, rule.windows()) {
            (Some(_), Some((period, _))) => unsynced::trial(&self.name, &naming, period, now),
            _ => Trial::of(&self.name, &naming, &rule, now),
        };
        self.client.network.trials.add(&trial);
        let core = Arc::new(Core {
            client: self.client,
            rule,
            deadline: self.deadline,
            fallback,
            client_clock: self.client_clock,
            counters: Counters::default(),
            trial,
        });
        let mode = match (self.lease, self.max_unsynced, core.rule.windows()) {
            (Some(lease), ..) => Mode::Lease(Leases::new(Arc::clone(&core), lease, self.max_keys)),
            (_, Some(most), Some((period, sliding))) => {
                Mode::Unsynced(Unsynced::new(Arc::clone(&core), most, self.max_keys, period, sliding))
            }
            _ => Mode::Exact,
        };
        Ok(SharedLimiter::new(core, naming, mode, self.quota, self.algorithm))
    }
}
