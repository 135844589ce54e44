//! The statistics of a limiter and its client.

use crate::health::StoreProblem;
use crate::scripts::script::Failure;
use crate::words::atomics::{AtomicU64, Relaxed};

/// The state of a [`Client`](crate::Client), as far as it is known without asking the servers.
///
/// ```
/// use tollgate_redis::Client;
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// assert!(!client.stats().connected);
/// # Ok::<(), tollgate_redis::SharedError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Whether there is a connection, as far as the client knows. The next request replaces a
    /// connection that has ended while it was idle.
    pub connected: bool,
    /// The number of breakers that are open now. A single server has one breaker, and each node of
    /// a cluster has its own.
    pub breakers_open: usize,
    /// How many times a breaker has opened.
    pub breaker_trips: u64,
    /// The known problems of the servers. A server is listed if the last attempt to connect to it
    /// failed, or if its connection was lost during a request. The list also contains the results
    /// of the most recent trials, which an answer with an error starts. A connection that ended
    /// while it was idle is not a problem. If a caller outside of a runtime could not ask the
    /// store, because the client has no thread, the list names the remedy.
    pub problems: Vec<StoreProblem>,
}

/// Statistics of a [`SharedLimiter`](crate::SharedLimiter), counted since it was built.
///
/// ```
/// use tollgate::Quota;
/// use tollgate_redis::{Client, SharedLimiter};
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(10)).build()?;
/// assert_eq!(limiter.stats().by_store, 0);
/// # Ok::<(), tollgate_redis::SharedError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedStats {
    /// Decisions that the store made.
    pub by_store: u64,
    /// Decisions that this machine made from leased tokens, or from tokens that may stay
    /// unsynchronized.
    pub by_lease: u64,
    /// Decisions that [`WhenUnavailable`](crate::WhenUnavailable) made in place of the store.
    pub by_fallback: u64,
    /// Requests whose fate is unknown, because the answer was late, lost or unreadable. The store
    /// may have counted them.
    pub unanswered: u64,
    /// Requests that the store answered with an error. The store did not execute them, unless a
    /// proxy between this machine and the store sent the error.
    pub store_errors: u64,
    /// Requests that were not sent, because there was no connection or the breaker was open.
    pub unsent: u64,
    /// The number of tokens that this machine has leased but not yet spent, for all keys together.
    /// Expired leases do not count.
    pub leased: u64,
    /// The number of tokens that this machine has admitted but the store has not yet confirmed, for
    /// all keys together.
    pub unsynced: u64,
    /// The part of `unsynced` that was sent to the store and is not yet confirmed.
    pub unsynced_sent: u64,
    /// The largest number of unconfirmed tokens of any one key. At the moment, this machine can add
    /// at most this number to an overshoot.
    pub most_unsynced: u64,
}

/// The counters of a limiter, one for each [`Event`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    by_store: AtomicU64,
    by_lease: AtomicU64,
    by_fallback: AtomicU64,
    unanswered: AtomicU64,
    store_errors: AtomicU64,
    unsent: AtomicU64,
}

/// An event that [`Counters`] counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    ByStore,
    ByLease,
    ByFallback,
    Unanswered,
    StoreError,
    Unsent,
}

impl Counters {
    /// Counts the result of a request to the store, and returns it.
    pub(crate) fn note<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
        self.count(match &answer {
            Ok(_) => Event::ByStore,
            Err(Failure::Unknown) => Event::Unanswered,
            Err(Failure::Refused(_) | Failure::Server(_)) => Event::StoreError,
            Err(Failure::Unavailable) => Event::Unsent,
        });
        answer
    }

    pub(crate) fn count(&self, event: Event) {
        let counter = match event {
            Event::ByStore => &self.by_store,
            Event::ByLease => &self.by_lease,
            Event::ByFallback => &self.by_fallback,
            Event::Unanswered => &self.unanswered,
            Event::StoreError => &self.store_errors,
            Event::Unsent => &self.unsent,
        };
        // ORDERING: relaxed; a counter, here and below.
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn stats(&self) -> SharedStats {
        // ORDERING: relaxed, as in `count`.
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        SharedStats {
            by_store: read(&self.by_store),
            by_lease: read(&self.by_lease),
            by_fallback: read(&self.by_fallback),
            unanswered: read(&self.unanswered),
            store_errors: read(&self.store_errors),
            unsent: read(&self.unsent),
            ..SharedStats::default()
        }
    }
}
