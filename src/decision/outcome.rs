//! The outcome of a decision, and the kind of state that made the decision.

/// The outcome of a check: allowed, denied for now, or too costly to ever pass.
///
/// ```
/// # use tollgate::{Outcome, Quota, SingleLimiter};
/// let limiter = SingleLimiter::builder(Quota::per_hour(5)).build()?;
/// assert_eq!(limiter.check().outcome(), Outcome::Allowed);
/// assert_eq!(limiter.check_n(5).outcome(), Outcome::Denied);
/// assert_eq!(limiter.check_n(6).outcome(), Outcome::TooCostly);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The request may go ahead; its cost was charged.
    Allowed,
    /// The request may not go ahead now. Nothing was charged.
    Denied,
    /// The request can never pass, because its cost is above the capacity. Nothing was charged.
    TooCostly,
}

/// The kind of state that made a decision.
///
/// ```
/// # use tollgate::{DecisionSource, Limiter, Quota, WhenFull};
/// let limiter: Limiter<u8> =
///     Limiter::builder(Quota::per_hour(5)).max_keys(1).when_full(WhenFull::Share).build()?;
/// assert_eq!(limiter.check(&1).source(), DecisionSource::Key);
/// assert_eq!(limiter.check(&2).source(), DecisionSource::Overflow);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecisionSource {
    /// The key's own state, or the state of a [`SingleLimiter`](crate::SingleLimiter).
    Key,
    /// The state shared by all new keys while the table is full
    /// ([`WhenFull::Share`](crate::WhenFull::Share)).
    Overflow,
    /// No state. A policy answered, because the table is full
    /// ([`WhenFull::Deny`](crate::WhenFull::Deny), [`WhenFull::Allow`](crate::WhenFull::Allow)) or
    /// because a store shared between machines did not answer in time.
    Policy,
    /// The key's state in a store shared between machines.
    Store,
    /// Tokens of a shared state that this machine may spend without asking the store.
    Lease,
    /// The key is [paused](crate::Limiter::pause), so the request was denied whatever the key's own
    /// state is.
    Pause,
}
