//! The figures of a decision made by another crate.

use super::outcome::{DecisionSource, Outcome};
use crate::time::Tick;
use std::time::Duration;

/// The figures of a decision that a limiter in another crate made. `DecisionParts` can be converted
/// into a [`Decision`](crate::Decision).
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Decision, DecisionParts, DecisionSource, Outcome, Tick};
///
/// let decision = Decision::from(DecisionParts {
///     outcome: Outcome::Denied,
///     cost: 1,
///     capacity: 10,
///     remaining: 0,
///     wait: Some(Duration::from_millis(50)),
///     reset_after: Duration::from_millis(950),
///     refill_after: Duration::from_millis(50),
///     at: Tick::ZERO,
///     source: DecisionSource::Store,
/// });
/// assert_eq!(decision.retry_after(), Some(Duration::from_millis(50)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DecisionParts {
    /// The outcome.
    pub outcome: Outcome,
    /// The cost of the request, in tokens.
    pub cost: u64,
    /// The maximum number of tokens that can be taken at once.
    pub capacity: u64,
    /// The number of tokens that remain after this decision.
    pub remaining: u64,
    /// For a denied request, how long to wait until the same request is allowed, or `None` if no
    /// wait can be promised. For an allowed request, how long to wait until it may start;
    /// `Some(Duration::ZERO)` means immediately.
    pub wait: Option<Duration>,
    /// How long it takes until the full `capacity` is available; [`Duration::MAX`] if that never
    /// happens.
    pub reset_after: Duration,
    /// How long it takes until more than `remaining` tokens are available. This is stored in
    /// milliseconds, rounded up. If it is 49 days or more,
    /// [`refill_after`](crate::Decision::refill_after) returns `reset_after` instead.
    pub refill_after: Duration,
    /// The time at which the limiter decided the request.
    pub at: Tick,
    /// The kind of state that answered.
    pub source: DecisionSource,
}
