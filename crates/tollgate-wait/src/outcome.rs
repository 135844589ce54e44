//! What a wait ends with: the turn of the caller, or the reason why it has none.

use std::ops::Deref;
use std::time::Duration;
use tollgate::Decision;

/// The turn of a caller that has waited: its tokens are charged, and it may go ahead.
///
/// A `Turn` dereferences to the [`Decision`] of the charge, so that a refund takes it. Unlike a
/// decision it may be ignored.
///
/// ```
/// # use tollgate::{Quota, SingleLimiter};
/// # use tollgate_wait::WaitQueue;
/// let queue = WaitQueue::new(SingleLimiter::builder(Quota::per_hour(5)).build()?);
/// let turn = queue.block_until_n(&(), 2)?;
/// assert_eq!((turn.charged(), turn.remaining()), (2, 3));
/// queue.limiter().refund(&turn);
/// assert_eq!(queue.limiter().peek().remaining(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(Decision);

/// For implementations of [`Waitable`](crate::Waitable).
impl TryFrom<Decision> for Turn {
    /// The decision, which is no [`Outcome::Allowed`](tollgate::Outcome::Allowed).
    type Error = Decision;

    fn try_from(decision: Decision) -> Result<Self, Decision> {
        if decision.is_allowed() { Ok(Self(decision)) } else { Err(decision) }
    }
}

impl Deref for Turn {
    type Target = Decision;

    fn deref(&self) -> &Decision {
        &self.0
    }
}

/// Why a wait ended. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The turn cannot come in time. The error is returned at once, before any waiting.
    #[error("the wait would take {wait:?}, and at most {max_wait:?} is allowed; come back later")]
    TooLong {
        /// How long the wait would take if none of the present waiters leaves: exact for buckets,
        /// an estimate for windows and logs, and for a limiter that stands in for a store.
        wait: Duration,
        /// The longest wait that the caller allowed.
        max_wait: Duration,
    },

    /// The time was over before the turn came: no permit came back, others took tokens without
    /// waiting, or the turn was late (by jitter, a first waiter that stood still, or the estimate
    /// of a window or log).
    #[error(
        "the turn did not come within {max_wait:?}{out}; come back later, or allow a longer wait",
        out = in_flight.map_or_else(String::new, |out| format!(", and {out} permits are out"))
    )]
    Expired {
        /// The longest wait that the caller allowed.
        max_wait: Duration,
        /// The number of permits of the key that were out at the end. `None` for a rate. A permit
        /// that is never dropped stays among them.
        in_flight: Option<u64>,
    },

    /// The cost is more than the quota of the key allows at once, so no wait helps.
    #[error("a cost of {cost} can never be paid: the most that can be taken at once is {capacity}; split it")]
    Never {
        /// What the caller asked for, in tokens.
        cost: u64,
        /// The most tokens that can be taken at once.
        capacity: u64,
    },

    /// As many wait as may wait, for this key or in all.
    #[error("{waiting} callers wait already, which is the most that may wait {scope}", scope = if *.for_key { "for one key" } else { "in all" })]
    Full {
        /// How many wait.
        waiting: usize,
        /// Whether the bound is that of one key ([`WaitQueue::max_waiters_per_key`]) or that of
        /// all ([`WaitQueue::max_waiters`]).
        ///
        /// [`WaitQueue::max_waiters_per_key`]: crate::WaitQueue::max_waiters_per_key
        /// [`WaitQueue::max_waiters`]: crate::WaitQueue::max_waiters
        for_key: bool,
    },

    /// The limiter has no room for this key, or a shared limit has no answer from its store, or the
    /// limiter that stands in for the store can never pay the cost, which the store can. None of
    /// them knows when to come back.
    #[error(
        "the limiter tells no time to come back: it is full of other keys (raise its `max_keys`, or choose \
         another `WhenFull`), or its store is away (come back later, or raise the share of its `WhenUnavailable`)"
    )]
    NoRetryTime,
}
