//! The result of a wait: the caller's turn, or an error.

use std::ops::Deref;
use std::time::Duration;
use tollgate::Decision;

/// The turn of a caller that has waited. The caller's tokens are charged, and the caller may
/// proceed.
///
/// A `Turn` dereferences to the charge's [`Decision`], so it can be passed to a refund. Unlike a
/// decision, a turn may be ignored.
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

/// Creates a turn from a decision, in implementations of [`Waitable`](crate::Waitable).
impl TryFrom<Decision> for Turn {
    /// The decision, whose outcome is not [`Outcome::Allowed`](tollgate::Outcome::Allowed).
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

/// Why a wait ended without a turn. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The turn cannot arrive in time. This error is returned immediately, without waiting.
    #[error("the wait would take {wait:?}, and at most {max_wait:?} is allowed; retry later")]
    TooLong {
        /// How long the wait would take if no current waiter left early. The time is exact for
        /// buckets. It is an estimate for windows and logs, and for a limiter that replaces a
        /// store.
        wait: Duration,
        /// The maximum wait that the caller allowed.
        max_wait: Duration,
    },

    /// The turn did not arrive in time. Possible reasons are that no permit was returned, that
    /// other callers took tokens without waiting, or that the turn was late. A turn may be late
    /// because of jitter, a first waiter that did not act, or the estimate for a window or log.
    #[error(
        "the turn did not arrive within {max_wait:?}{out}; retry later, or allow a longer wait",
        out = in_flight.map_or_else(String::new, |out| format!(", and {out} permits are in use"))
    )]
    Expired {
        /// The maximum wait that the caller allowed.
        max_wait: Duration,
        /// How many of the key's permits were in use at the end of the wait; `None` for a rate.
        /// Permits that are never dropped are included.
        in_flight: Option<u64>,
    },

    /// The cost is above the capacity of the key's quota, so waiting does not help.
    #[error("a cost of {cost} can never be paid: the most that can be taken at once is {capacity}; split it")]
    Never {
        /// The requested cost, in tokens.
        cost: u64,
        /// The maximum number of tokens that can be taken at once.
        capacity: u64,
    },

    /// The maximum number of callers are already waiting, either for this key or for all keys.
    #[error("{waiting} callers already wait, which is the most that may wait {scope}", scope = if *.for_key { "for one key" } else { "in all" })]
    Full {
        /// The number of waiting callers.
        waiting: usize,
        /// True if the bound is for one key ([`WaitQueue::max_waiters_per_key`]), false if it is
        /// for all keys ([`WaitQueue::max_waiters`]).
        ///
        /// [`WaitQueue::max_waiters_per_key`]: crate::WaitQueue::max_waiters_per_key
        /// [`WaitQueue::max_waiters`]: crate::WaitQueue::max_waiters
        for_key: bool,
    },

    /// The queue was [closed](crate::WaitQueue::close), and admits no caller any more.
    #[error("the queue is closed for good, as at a shutdown; a new `WaitQueue` admits callers again")]
    Closed,

    /// The time at which a retry would pass is unknown. There are three possible reasons: the
    /// limiter has no space for this key, the store of a shared limit did not answer, or the
    /// limiter that replaces the store can never admit the cost, even though the store can.
    #[error(
        "the limiter has no retry time: it is full of other keys (raise its `max_keys`, or choose another \
         `WhenFull`), or its store is unreachable (retry later, or raise the share of its `WhenUnavailable`)"
    )]
    NoRetryTime,
}
