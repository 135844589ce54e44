//! The fallback, which decides when the store does not answer in time.

use crate::error::Refused;
use crate::name::Name;
use std::fmt;
use std::time::Duration;
use tollgate::{Algorithm, Decision, DecisionParts, DecisionSource, Limiter, Outcome, Quota, Tick};

/// How a request is decided when the store does not answer in time.
///
/// ```
/// use tollgate::Quota;
/// use tollgate_redis::{Client, WhenUnavailable, SharedLimiter};
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// // Four machines: while the store is unreachable, each enforces its quarter.
/// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(1000))
///     .when_unavailable(WhenUnavailable::Local { share: 0.25 })
///     .build()?;
/// # Ok::<(), tollgate_redis::SharedError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum WhenUnavailable {
    /// Admits the request without counting it.
    Allow,
    /// Denies the request, without a retry time.
    Deny,
    /// Decides with a limiter on this machine, whose quota is a share of the limit's quota. The
    /// share is above 0 and at most 1, and the local quota is at least one token.
    ///
    /// A machine does not know how many others there are, so the share does not follow their
    /// number. If their number changes, choose the share for the largest number, or
    /// [`Deny`](WhenUnavailable::Deny).
    ///
    /// The limiter is also charged for all requests that the store admits through this machine, so
    /// it knows the recent traffic when it has to decide. Refunds to the store do not reach the
    /// limiter, so it may deny a request that the store would admit.
    ///
    /// The store does not learn which requests the limiter admits. A key may therefore use up its
    /// share here, and then the whole limit as soon as the store answers again.
    ///
    /// The limiter uses the limit's algorithm if a table can store that algorithm's state.
    /// Otherwise, a sliding window replaces a sliding log, and a token bucket replaces a sliding
    /// window that is too large.
    Local {
        /// The share of the quota.
        share: f64,
    },
}

impl Default for WhenUnavailable {
    /// Returns a local limiter with the whole quota. N machines then admit at most N times the
    /// limit.
    fn default() -> Self {
        Self::Local { share: 1.0 }
    }
}

/// A [`WhenUnavailable`] that is ready to decide: with a fixed outcome, or with a local limit.
pub(crate) enum Fallback<L = Box<Limiter<Name>>> {
    Fixed(Outcome),
    Local(L),
}

impl<L> Fallback<L> {
    /// `local` builds the local limit for a share.
    pub(crate) fn of<E: Into<Refused>>(
        when_unavailable: WhenUnavailable,
        local: impl FnOnce(f64) -> Result<L, E>,
    ) -> Result<Self, Refused> {
        match when_unavailable {
            WhenUnavailable::Allow => Ok(Self::Fixed(Outcome::Allowed)),
            WhenUnavailable::Deny => Ok(Self::Fixed(Outcome::Denied)),
            WhenUnavailable::Local { share } if share > 0.0 && share <= 1.0 => {
                Ok(Self::Local(local(share).map_err(Into::into)?))
            }
            WhenUnavailable::Local { share } => Err(Refused::Share { share }),
        }
    }

    /// Returns the local limit, if there is one.
    pub(crate) fn local(&self) -> Option<&L> {
        match self {
            Self::Local(local) => Some(local),
            Self::Fixed(_) => None,
        }
    }
}

impl Fallback {
    pub(crate) fn new(
        on_failure: WhenUnavailable,
        algorithm: Algorithm,
        quota: Quota,
        max_debt: u64,
        max_keys: usize,
    ) -> Result<Self, Refused> {
        Self::of(on_failure, |share| {
            let debt = if max_debt > 0 { portion(max_debt, share) } else { 0 };
            let builder = || Limiter::builder(part(quota, share)).max_debt(debt).max_keys(max_keys);
            let build = |algorithm| builder().algorithm(algorithm).build();
            let local = match algorithm {
                Algorithm::SlidingLog | Algorithm::SlidingWindow => {
                    build(Algorithm::SlidingWindow).or_else(|_| build(Algorithm::TokenBucket))
                }
                packed => build(packed),
            };
            local.map(Box::new)
        })
    }

    /// Charges the local limiter for tokens that the store has admitted.
    pub(crate) fn keep_warm(&self, name: &Name, tokens: u64) {
        if let (Some(limiter), 1..) = (self.local(), tokens) {
            let _ = limiter.check_n(name, tokens);
        }
    }

    /// Decides a request for `cost` tokens. `limit` is the maximum cost of one request.
    pub(crate) fn check(&self, name: &Name, cost: u64, limit: u64) -> Decision {
        match self {
            Self::Fixed(outcome) => policy(*outcome, cost, limit),
            Self::Local(limiter) => limiter.check_n(name, cost),
        }
    }

    /// Charges tokens that are already spent, and returns how many were charged. Without a local
    /// limiter, nothing is charged.
    pub(crate) fn force(&self, name: &Name, tokens: u64) -> u64 {
        self.local().map_or(0, |limiter| limiter.force(name, tokens))
    }

    pub(crate) fn peek(&self, name: &Name, cost: u64, limit: u64) -> Decision {
        match self {
            Self::Fixed(outcome) => policy(*outcome, cost, limit),
            Self::Local(limiter) => limiter.peek_n(name, cost),
        }
    }

    /// Returns the local limiter's quota, or `None` if there is no local limiter.
    #[cfg(feature = "wait")]
    pub(crate) fn quota(&self) -> Option<Quota> {
        self.local().map(|limiter| limiter.quota())
    }

    pub(crate) fn refund(&self, name: &Name, decision: &Decision, tokens: u64) {
        if let Some(limiter) = self.local() {
            limiter.refund_n(name, decision, tokens);
        }
    }

    /// Pauses the key in the local limiter, if the limiter exists and has room for the pause.
    pub(crate) fn pause(&self, name: &Name, time: Duration) {
        if let Some(limiter) = self.local() {
            let _ = limiter.pause(name, time);
        }
    }

    pub(crate) fn reset(&self, name: &Name) {
        if let Some(limiter) = self.local() {
            limiter.reset(name);
        }
    }
}

fn policy(outcome: Outcome, cost: u64, limit: u64) -> Decision {
    Decision::from(DecisionParts {
        outcome,
        cost,
        capacity: limit,
        remaining: 0,
        wait: (outcome == Outcome::Allowed).then_some(Duration::ZERO),
        reset_after: Duration::ZERO,
        refill_after: Duration::ZERO,
        at: Tick::ZERO,
        source: DecisionSource::Policy,
    })
}

/// Returns a share of a quota, rounded up.
fn part(quota: Quota, share: f64) -> Quota {
    let rate = Quota::new(portion(quota.tokens(), share), quota.period());
    match quota.explicit_burst() {
        Some(burst) => rate.burst(portion(burst, share)),
        None => rate,
    }
}

/// Returns a share of `tokens`, rounded up, and at least one token.
pub(crate) fn portion(tokens: u64, share: f64) -> u64 {
    // Above 2^53, the share of a number is not exact. The error is negligible.
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]
    let part = (tokens as f64 * share).ceil() as u64;
    part.clamp(1, tokens.max(1))
}

impl<L> fmt::Debug for Fallback<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(outcome) => outcome.fmt(f),
            Self::Local(_) => f.write_str("Local"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_up_and_never_nothing() {
        let quota = Quota::per_second(10).burst(3);
        assert_eq!(part(quota, 1.0), quota);
        assert_eq!(part(quota, 0.5), Quota::per_second(5).burst(2));
        assert_eq!(part(quota, 1e-9), Quota::per_second(1).burst(1));
    }

    #[test]
    fn each_algorithm_has_a_stand_in() {
        for algorithm in Algorithm::ALL {
            for limit in [1, 10, 100_000] {
                // The window must not end between the two checks.
                let quota = Quota::per_day(limit);
                let on_failure = WhenUnavailable::default();
                let fallback = Fallback::new(on_failure, algorithm, quota, 0, 10).unwrap();
                let name = crate::name::Naming::new("x", 'b', None, false).name("alice").0;
                assert!(fallback.check(&name, limit, limit).is_allowed());
                assert!(!fallback.check(&name, limit, limit).is_allowed(), "{algorithm} {limit}");
            }
        }
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for share in [0.0, -1.0, 1.1, f64::NAN, f64::INFINITY] {
            let on_failure = WhenUnavailable::Local { share };
            let refused = Fallback::new(on_failure, Algorithm::TokenBucket, Quota::per_second(1), 0, 10);
            assert!(refused.unwrap_err().to_string().ends_with("expected a number above 0 and up to 1"));
        }
    }
}
