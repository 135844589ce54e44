//! Why a wait ended without a charge.

use std::time::Duration;

/// Why a wait ended. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The turn cannot come in time. It is said at once, before any waiting.
    #[error("the wait would take {wait:?} at least, and at most {max_wait:?} is allowed; come back later")]
    TooLong {
        /// How long the wait would take if none of the present waiters leaves.
        wait: Duration,
        /// The longest wait that the caller allowed.
        max_wait: Duration,
    },

    /// The time was over before the turn came, because others took tokens meanwhile.
    #[error("the turn did not come within {max_wait:?}: others took tokens without waiting")]
    Expired {
        /// The longest wait that the caller allowed.
        max_wait: Duration,
    },

    /// The cost is more than the key can ever have, so no wait helps.
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
        /// Whether the bound is that of one key ([`WaitSettings::max_waiters_per_key`]) or that of
        /// all ([`WaitSettings::max_waiters`]).
        ///
        /// [`WaitSettings::max_waiters_per_key`]: crate::WaitSettings::max_waiters_per_key
        /// [`WaitSettings::max_waiters`]: crate::WaitSettings::max_waiters
        for_key: bool,
    },

    /// The limiter has no place for this key and cannot say when it will have one.
    #[error("the limiter is full of other keys; raise its `max_keys`, or choose another `WhenFull`")]
    NoPlace,
}
