//! The figures of a decision that another crate made.

use super::outcome::{DecisionSource, Outcome};
use crate::time::Tick;
use std::time::Duration;

/// The figures of a decision that a limiter of another crate made. They convert into a
/// [`Decision`](crate::Decision).
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
    /// The most tokens that can be taken at once.
    pub capacity: u64,
    /// The tokens that are left after this decision.
    pub remaining: u64,
    /// For a denied request: how long until the same request passes, or `None` if no wait can be
    /// promised. For an allowed request: how long until it may start, `Some(Duration::ZERO)` for
    /// immediately.
    pub wait: Option<Duration>,
    /// How long until all of `capacity` remains; [`Duration::MAX`] if that never happens.
    pub reset_after: Duration,
    /// How long until more than `remaining` is left. It is kept in milliseconds, rounded up; for 49
    /// days or more, [`refill_after`](crate::Decision::refill_after) returns `reset_after` instead.
    pub refill_after: Duration,
    /// The time for which the limiter decided.
    pub at: Tick,
    /// The state that answered.
    pub source: DecisionSource,
}
