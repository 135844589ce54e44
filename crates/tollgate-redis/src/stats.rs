//! What a limiter and its client have seen.

use crate::words::atomics::{AtomicU64, Relaxed};

/// Figures of a [`Client`](crate::Client).
///
/// ```
/// use tollgate_redis::Client;
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// assert!(!client.stats().connected);
/// # Ok::<(), tollgate_redis::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Is there a connection, as far as is known?
    pub connected: bool,
    /// Breakers that are open just now: a server has one, and so has each node of a cluster.
    pub breakers_open: usize,
    /// How often a breaker has opened.
    pub breaker_opened: u64,
}

/// Figures of a [`SharedLimiter`](crate::SharedLimiter), counted since it was built.
///
/// ```
/// use tollgate::Quota;
/// use tollgate_redis::{Client, SharedLimiter};
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(10)).build()?;
/// assert_eq!(limiter.stats().by_store, 0);
/// # Ok::<(), tollgate_redis::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedStats {
    /// Decisions that the store has made.
    pub by_store: u64,
    /// Decisions from tokens that were leased, or may stay unsynchronized.
    pub ahead: u64,
    /// Decisions that stood in for the store's: by [`WhenUnavailable`](crate::WhenUnavailable).
    pub stood_in: u64,
    /// Requests whose fate is unknown: the store may have counted them, though its answer was late or lost.
    pub unknown: u64,
    /// Requests that the store has refused to execute.
    pub refused: u64,
    /// Requests that were not sent, because there was no connection or the breaker was open.
    pub unavailable: u64,
    /// Tokens that this machine has leased and not spent yet, of all keys; what has expired is not counted.
    pub leased: u64,
    /// Tokens that this machine has admitted and the store has not confirmed, of all keys.
    pub unsynced: u64,
    /// Of these, those that are on their way.
    pub in_flight: u64,
    /// The most unconfirmed tokens of any one key: what this machine may add to an overshoot just now.
    pub most_unsynced: u64,
}

/// What is counted as it happens.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    by_store: AtomicU64,
    ahead: AtomicU64,
    stood_in: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    ByStore,
    Ahead,
    StoodIn,
    Unknown,
    Refused,
    Unavailable,
}

impl Counters {
    pub(crate) fn count(&self, event: Event) {
        let counter = match event {
            Event::ByStore => &self.by_store,
            Event::Ahead => &self.ahead,
            Event::StoodIn => &self.stood_in,
            Event::Unknown => &self.unknown,
            Event::Refused => &self.refused,
            Event::Unavailable => &self.unavailable,
        };
        // ORDERING: relaxed; a counter, here and below.
        counter.fetch_add(1, Relaxed);
    }

    pub(crate) fn stats(&self) -> SharedStats {
        // ORDERING: relaxed, as in `count`.
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        SharedStats {
            by_store: read(&self.by_store),
            ahead: read(&self.ahead),
            stood_in: read(&self.stood_in),
            unknown: read(&self.unknown),
            refused: read(&self.refused),
            unavailable: read(&self.unavailable),
            ..SharedStats::default()
        }
    }
}
