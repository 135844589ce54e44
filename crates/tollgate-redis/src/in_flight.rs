//! [`SharedInFlight`]: a limit on how many requests of a key are in flight at once on all machines.
//!
//! [`tollgate::InFlight`] is the counterpart in memory, where a permit lives as long as its guard.
//! Here, a machine may die without dropping its guards, so each permit has a lifetime in the store,
//! and is renewed while its guard lives (see `in_flight/permit.rs`).
//!
//! # Bound
//!
//! A script grants a permit only while fewer permits than the limit are in use, and each script
//! runs on a single key. Across all machines, [`SharedPermit::is_held`] is therefore true for at
//! most as many permits as the limit allows. There are three temporary exceptions:
//!
//! - Work may continue even though its permit is no longer held, because the permit could not be
//!   renewed for a whole lifetime. Until the work ends, each such permit may exceed the limit by
//!   one. (If a machine was suspended and its clock stopped, the machine notices the loss at its
//!   next renewal.)
//! - The fallback grants permits while the store does not answer. N machines may hold up to N times
//!   the local limit, until the permits are dropped.
//! - The store may forget permits, because it has lost its data or its clock has jumped ahead by a
//!   lifetime. The store learns of these permits again when they are renewed, within a third of a
//!   lifetime. Until then, the store may grant the same number of permits again. If the store's
//!   clock steps back, the permits of dead processes become free later by the same amount of time.

mod permit;

use crate::builder::SharedBuilder;
use crate::client::Client;
use crate::connection::trial::Trial;
use crate::error::{Refused, SharedError};
use crate::fallback::{Fallback, portion};
use crate::name::{Name, Naming, StoreKey};
use crate::scripts::script::Script;
use crate::stats::{Counters, Event, SharedStats};
pub use permit::SharedPermit;
use permit::{After, PermitReply, StorePermits, decision};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tollgate::{Chargeable, DecisionSource, Denied, InFlight, Outcome, Permit, Quota};

/// The letter that marks this kind of state in key names.
const LETTER: char = 'p';
const SHORTEST_LIFETIME: Duration = Duration::from_millis(100);
const LONGEST_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The minimum lifetime, as a multiple of the deadline. If a renewal is late, there is still time
/// for another one.
pub(crate) const DEADLINES_IN_LIFETIME: u32 = 6;

/// A limit on how many requests of a key are in flight at once on all machines that share the
/// limit. It does not matter how long the requests take.
///
/// Limits with the same name on the same servers share their permits. If machines allow different
/// numbers of permits, each machine judges by its own number.
///
/// ```no_run
/// use std::time::Duration;
/// use tollgate_redis::{Client, SharedInFlight};
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::open("redis://10.0.0.5")?;
/// let jobs: SharedInFlight<str> = SharedInFlight::builder(&client, "jobs", 10)
///     .lifetime(Duration::from_secs(20))
///     .build()?;
///
/// let permit = jobs.acquire("alice").await?;
/// // Work for any length of time: the permit is renewed in the background.
/// drop(permit);
/// # Ok(())
/// # }
/// ```
///
/// Keys are named like the keys of a [`SharedLimiter`](crate::SharedLimiter). The state of a key is
/// one sorted set, so clusters need no special care. The set expires one second after the last
/// lifetime has ended. All times are read from the server's clock, because machines whose own
/// clocks differ would end each other's permits.
///
/// A `SharedInFlight` is a handle that is cheap to clone.
pub struct SharedInFlight<K: ?Sized> {
    limit: Arc<SharedInFlightState>,
    keys: PhantomData<fn(&K)>,
}

/// The state that all handles of a limit share.
struct SharedInFlightState {
    permits: Arc<StorePermits>,
    naming: Naming,
    fallback: Fallback<InFlight<Name>>,
    /// The client runs this trial while the limit is in use.
    trial: Arc<Trial>,
}

impl<K: StoreKey + ?Sized> SharedInFlight<K> {
    /// Starts the configuration of the limit called `name`. The name must be 1 to 128 bytes long.
    /// `limit` is the number of permits for each key, from 1 to 1,000,000.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedInFlight};
    /// let client = Client::open("redis://127.0.0.1:6379")?;
    /// let refused = SharedInFlight::<str>::builder(&client, "jobs", 0).build().unwrap_err();
    /// let range = "0 in flight is out of range; allowed: 1 to 1000000";
    /// assert!(refused.to_string().starts_with(range));
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn builder(client: &Client, name: impl Into<String>, limit: u64) -> SharedBuilder<Self> {
        // The quota is not used.
        SharedBuilder::new(client, name.into(), Quota::per_second(1), limit)
    }

    /// Takes a permit of `key`.
    ///
    /// If the future is dropped, the store may already have granted a permit. That permit is
    /// returned in the background.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] if no permit is free. The decision contains no retry time, because it is
    /// unknown when a permit will be free. If the store does not answer by the deadline,
    /// [`WhenUnavailable`](crate::WhenUnavailable) decides.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedInFlight;
    /// # async fn ask(jobs: SharedInFlight<str>) {
    /// match jobs.acquire("alice").await {
    ///     Ok(permit) => drop(permit),
    ///     Err(denied) => println!("{} are out", denied.decision().capacity()),
    /// }
    /// # }
    /// ```
    pub async fn acquire(&self, key: &K) -> Result<SharedPermit, Denied> {
        self.acquire_before(key, None).await
    }

    /// Like [`acquire`](Self::acquire), but drops `after` once the permit has been returned. A
    /// refusal also drops `after`.
    pub(crate) async fn acquire_before(&self, key: &K, after: After) -> Result<SharedPermit, Denied> {
        let (name, text) = self.limit.naming.name(key);
        let runtime = self.client().runtime();
        match runtime.within(self.limit.permits.hold(text, after.clone())).await {
            Ok(answer) => Ok(answer?.with(self.limit.fallback.keep_warm(name))),
            Err(_) => {
                self.limit.permits.counters.count(Event::ByFallback);
                self.limit.fallback.acquire(name, self.limit.permits.limit, after)
            }
        }
    }

    /// Returns how many permits of `key` are in use on all machines. If the store does not answer,
    /// counts only this machine's permits.
    ///
    /// ```no_run
    /// # use tollgate_redis::SharedInFlight;
    /// # async fn ask(jobs: SharedInFlight<str>) {
    /// println!("{} of {}", jobs.in_flight("alice").await, jobs.limit());
    /// # }
    /// ```
    pub async fn in_flight(&self, key: &K) -> u64 {
        let (name, text) = self.limit.naming.name(key);
        let asked = self.client().runtime().within(self.limit.permits.ask(&text, "count", ""));
        match asked.await {
            Ok(reply) => reply.out,
            Err(_) => self.limit.fallback.local().map_or(0, |local| local.in_flight(&name)),
        }
    }

    /// Returns the maximum number of permits of a key that may be in use at once.
    pub fn limit(&self) -> u64 {
        self.limit.permits.limit
    }

    /// Returns the client of the servers.
    ///
    /// ```
    /// # use tollgate_redis::{Client, SharedInFlight};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let jobs = SharedInFlight::<str>::builder(&client, "jobs", 10).build()?;
    /// assert_eq!(jobs.client().stats().breakers_open, 0);
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn client(&self) -> &Client {
        &self.limit.permits.client
    }

    /// Returns the statistics since the limit was built. Each renewal and each returned permit
    /// counts as a decision made by the store.
    pub fn stats(&self) -> SharedStats {
        self.limit.permits.counters.stats()
    }
}

impl<K: StoreKey + ?Sized> SharedBuilder<SharedInFlight<K>> {
    /// Sets how long a permit is held without being renewed: 100 ms to a day, and at least six
    /// deadlines. The default is 30 s.
    ///
    /// Each permit is renewed every third of its lifetime. A dead process's permits become free at
    /// the end of their lifetime. If the store is unreachable for a whole lifetime, a permit is no
    /// longer held.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate_redis::{Client, SharedInFlight};
    /// # let client = Client::open("redis://127.0.0.1:6379")?;
    /// let jobs = SharedInFlight::<str>::builder(&client, "jobs", 10);
    /// let refused = jobs.lifetime(Duration::from_millis(200)).build().unwrap_err().to_string();
    /// assert_eq!(refused, "invalid lifetime 200ms of permits: expected 300ms to 86400s");
    /// # Ok::<(), tollgate_redis::SharedError>(())
    /// ```
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Builds the limit. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// Returns a [`SharedError`] that names the refused value and the allowed range.
    pub fn build(self) -> Result<SharedInFlight<K>, SharedError> {
        self.in_flight().map_err(SharedError)
    }

    fn in_flight(self) -> Result<SharedInFlight<K>, Refused> {
        self.check_common()?;
        let (least, most) = (SHORTEST_LIFETIME.max(self.deadline * DEADLINES_IN_LIFETIME), LONGEST_LIFETIME);
        if self.lifetime < least || self.lifetime > most {
            return Err(Refused::Lifetime { lifetime: self.lifetime, least, most });
        }
        // The limit and `max_keys` are validated here even if the fallback does not use them.
        let local = |limit| InFlight::builder(limit).max_keys(self.max_keys).build();
        local(self.limit)?;
        let when_unavailable = self.when_unavailable.unwrap_or_default();
        let fallback = Fallback::of(when_unavailable, |share| local(portion(self.limit, share)))?;
        let naming = Naming::new(&self.name, LETTER, None, self.readable_keys);
        let permits = Arc::new(StorePermits {
            client: self.client,
            script: Script::new(include_str!("scripts/permits.lua")),
            limit: self.limit,
            lifetime: self.lifetime,
            deadline: self.deadline,
            counters: Counters::default(),
            start: Instant::now(),
        });
        let trial = Trial::new(&self.name, &naming, permits.call("", "hold", "trial"), false);
        permits.client.network.try_too([&trial]);
        let limit = SharedInFlightState { permits, naming, fallback, trial };
        Ok(SharedInFlight { limit: Arc::new(limit), keys: PhantomData })
    }
}

impl Fallback<InFlight<Name>> {
    /// Counts a permit that the store has granted.
    fn keep_warm(&self, name: Name) -> Option<Permit> {
        self.local()?.acquire_owned(name).ok()
    }

    /// Decides in place of the store.
    fn acquire(&self, name: Name, limit: u64, after: After) -> Result<SharedPermit, Denied> {
        let (decision, local) = match self {
            Self::Local(local) => {
                let permit = local.empty_permit_owned(name);
                (permit.check_n(1), Some(permit))
            }
            Self::Fixed(outcome) => {
                let is_granted = *outcome == Outcome::Allowed;
                // The number of permits in use is unknown.
                (decision(limit, PermitReply { is_granted, out: limit }, DecisionSource::Policy), None)
            }
        };
        decision.ok()?;
        Ok(SharedPermit::of_fallback(decision, local, after))
    }
}

impl<K: ?Sized> Clone for SharedInFlight<K> {
    fn clone(&self) -> Self {
        Self { limit: Arc::clone(&self.limit), keys: PhantomData }
    }
}

impl<K: ?Sized> fmt::Debug for SharedInFlight<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInFlight")
            .field("name", &self.limit.trial.limit)
            .field("limit", &self.limit.permits.limit)
            .field("lifetime", &self.limit.permits.lifetime)
            .finish_non_exhaustive()
    }
}
