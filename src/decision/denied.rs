//! The error that a denial can be turned into.

use super::{Decision, DecisionSource, Outcome};
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A denied request, as an error: of one limit by [`Decision::ok`], of several by
/// [`check_all`](crate::check_all).
///
/// ```
/// use tollgate::{Charge, Denied, ManualClock, Quota, SingleLimiter, check_all};
///
/// let clock = ManualClock::new();
/// let second = SingleLimiter::builder(Quota::per_second(10)).clock(&clock).build()?;
/// let day = SingleLimiter::builder(Quota::per_day(1)).clock(&clock).build()?;
/// let ask = || check_all(&mut [Charge::new(&second, 1), Charge::new(&day, 1)]);
///
/// assert!(ask().is_ok());
/// let denied: Denied = ask().unwrap_err();
/// assert_eq!((denied.index(), denied.decision().capacity()), (Some(1), 1));
/// assert_eq!(denied.to_string(), "limit 1: rate limit exceeded: retry after 86400s");
///
/// let denied: Denied = day.check().ok().unwrap_err();
/// assert_eq!(denied.index(), None);
/// assert_eq!(denied.to_string(), "rate limit exceeded: retry after 86400s");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Denied {
    decision: Decision,
    /// Which of several limits binds, from 1; 0 if there was one.
    nth: usize,
}

impl Denied {
    /// The denial of the only limit.
    #[inline]
    pub(super) const fn one(decision: Decision) -> Self {
        Self { decision, nth: 0 }
    }

    /// The one that binds of several limits' decisions, which each have an index; `None` if all of
    /// them allow the request.
    ///
    /// This is the rule of [`check_all`](crate::check_all), for those who ask the limits in another
    /// way: one after the other over a network, for example.
    ///
    /// ```
    /// use tollgate::{Denied, ManualClock, Quota, SingleLimiter};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = |quota| SingleLimiter::builder(quota).clock(&clock).build();
    /// let limiters = [limiter(Quota::per_second(1))?, limiter(Quota::per_day(1))?];
    /// let ask = || Denied::among(limiters.iter().map(|limiter| limiter.check()).enumerate());
    ///
    /// assert_eq!(ask(), None);
    /// assert_eq!(ask().and_then(|denied| denied.index()), Some(1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn among(decisions: impl IntoIterator<Item = (usize, Decision)>) -> Option<Self> {
        let decisions = decisions.into_iter().filter(|(_, decision)| !decision.is_allowed());
        let denials = decisions.map(|(index, decision)| Self { decision, nth: index.saturating_add(1) });
        let wait = |denied: &Self| denied.decision.retry_after().unwrap_or(Duration::MAX);
        // Only a longer wait replaces the earlier one, so the first of equal waits binds.
        denials.reduce(|longest, next| if wait(&next) > wait(&longest) { next } else { longest })
    }

    /// The decision that denies the request. A retry before its `retry_after` is denied again.
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// The index of the limit that binds, where several were asked; `None` where one was.
    ///
    /// Of the limits that deny the request, it is the one with the longest
    /// [`retry_after`](Decision::retry_after), and the first of those if several wait as long.
    pub const fn index(&self) -> Option<usize> {
        self.nth.checked_sub(1)
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(index) = self.index() {
            write!(f, "limit {index}: ")?;
        }
        let Decision { cost, limit, outcome, source, figures, .. } = self.decision;
        match (outcome, self.decision.retry_after()) {
            (Outcome::TooCostly, _) => {
                write!(f, "request refused for good: it costs {cost}, and {limit} is the most at once")
            }
            (_, Some(wait)) => write!(f, "rate limit exceeded: retry after {wait:?}"),
            (_, None) if source == DecisionSource::Policy => {
                write!(f, "rate limiter has no place for a new key, or no answer from its store")
            }
            (_, None) => match figures.permits_out() {
                Some(out) => write!(
                    f,
                    "too many in flight: {out} of {limit} permits are out; no time is known when one comes back"
                ),
                None => write!(f, "limit exceeded: no time is known at which a retry passes"),
            },
        }
    }
}

impl Error for Denied {}
