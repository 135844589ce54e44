//! The token bucket, kept as one theoretical arrival time.

use super::contract::{Rule, Sealed};
use super::gcra::{Gcra, decide_as_gcra};
use super::word::Word;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::time::Tick;

/// A bucket that holds `burst` tokens and refills at `limit` per `period`. A request takes its cost
/// from the bucket or is denied.
///
/// The bucket has the form of the generic cell rate algorithm (ITU-T I.371, also ATM Forum TM 4.0).
/// Instead of a level and the time of that level it keeps one number, the *time at which the bucket
/// will be full*, called the theoretical arrival time. Level and time can't tear apart, because
/// they are one word.
///
/// # State
///
/// The word's value is the theoretical arrival time in grains, counted from 1. At grain `t` with
/// the word at `full`, `max(full - t, 0)` grains are missing from the bucket. A request of `c`
/// grains is allowed if and only if `max(full, t) + c <= t + capacity`, and then `max(full, t) + c`
/// is the next word.
///
/// # Bound
///
/// In any interval of length `d`, by the times of the requests, at most
/// `burst + d * limit / period` tokens are admitted. (Where an emission interval is not a whole
/// number of nanoseconds, it is more by less than two grains, two nanoseconds' worth.)
///
/// *Proof.* Take the charges with times in `[a, a + d]` in the order of their compare-and-swaps.
/// The first makes the word at least `at(a) + c1`, each later one adds its cost, and the last was
/// allowed, so `at(a) + sum <= at(a + d) + capacity`. The proof does not use the order of the
/// times, so it covers stale times. ∎
///
/// With refunds, the bound holds for the tokens charged minus those given back between the first
/// and the last of these compare-and-swaps.
///
/// # Refunds
///
/// Charged tokens refill like all others, the oldest first, and a refilled token can't be given
/// back. Take a limit of 1 per second with a burst of 10, and ten charges at one time. A second
/// later the token of the first charge has refilled, so a refund of that charge gives nothing back.
/// The missing tokens are those of the other nine.
///
/// # Stale and skewed times
///
/// A `now` older than the word sees a bucket with fewer tokens, as it was then. Such a request can
/// be denied, but never gets more. The long-run rate is exact (see `grain`). Where an emission
/// interval is not a whole number of nanoseconds, a request is admitted at most two nanoseconds
/// early and never late. Only a request with a stale time can be late, by as much.
///
/// ```
/// use std::time::Duration;
/// use tollgate::rule::{Rule, TokenBucket, Word};
/// use tollgate::{Quota, Tick};
///
/// let rule = TokenBucket::new(Quota::per_second(10).burst(2))?;
/// let (word, _) = rule.decide(Word::FRESH, Tick::ZERO, 2);
/// let denied = rule.decide(word, Tick::ZERO, 1).1;
/// assert_eq!(denied.retry_after(), Some(Duration::from_millis(100)));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket(pub(super) Gcra);

impl TokenBucket {
    /// Makes the rule for `quota`. Without a burst of its own, the capacity is the limit.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] for a limit, period or burst of 0, a period above
    /// [`Quota::MAX_PERIOD`], a rate above 2 tokens per nanosecond, or a burst of more than 2^61
    /// grains (36 to 73 years' worth).
    ///
    /// ```
    /// # use tollgate::{Quota, rule::TokenBucket};
    /// assert!(TokenBucket::new(Quota::per_second(10).burst(0)).is_err());
    /// ```
    pub fn new(quota: Quota) -> Result<Self, ConfigError> {
        Gcra::new(quota, false).map(Self)
    }
}

decide_as_gcra!(TokenBucket);
