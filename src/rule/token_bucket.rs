//! The token bucket, kept as one theoretical arrival time.

use super::contract::{Rule, Sealed};
use super::gcra::{Gcra, decide_as_gcra};
use super::word::Word;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::time::Tick;

/// A bucket that holds `burst` tokens and refills at `limit` per `period`; a request takes its cost
/// from it or is denied.
///
/// The bucket is kept in the form of the generic cell rate algorithm (ITU-T I.371, also ATM Forum
/// TM 4.0): instead of a level and the time it was computed, the one number of *when the bucket will be
/// full*, the theoretical arrival time. Level and time can't tear apart, because they are one word.
///
/// # State
///
/// The word's value is that time in grains, counted from 1. At grain `t` with the word at `full`:
/// `max(full - t, 0)` grains are missing from the bucket. A request of `c` grains is allowed iff
/// `max(full, t) + c <= t + capacity`, and then `max(full, t) + c` is the next word.
///
/// # Bound
///
/// In any interval of length `d`, between the times the requests bear, at most
/// `burst + d * limit / period` tokens are admitted (and less than two grains, two nanoseconds' worth,
/// more where an interval is no whole number of nanoseconds). *Proof.* Take the charges with times in
/// `[a, a + d]` in the order of their compare-and-swaps. The first makes the word at least
/// `at(a) + c1`, each later one adds its cost, and the last was allowed, so
/// `at(a) + sum <= at(a + d) + capacity`. The order in time plays no part: stale times are covered. ∎
/// With refunds, the bound holds for what is charged minus what is given back between the first and the
/// last of those compare-and-swaps.
///
/// # Refunds
///
/// What a charge took refills like everything else, the oldest first, and what has refilled can't be given
/// back: 1/s with a burst of 10, ten charges at once; after one second the first of them is worth
/// nothing any more, for its token is back, and the tokens that are missing are those of the other nine.
///
/// # Stale and skewed times
///
/// A `now` older than the word sees a bucket with less in it, as it would have been then: it can be
/// denied, never be given more. The long-run rate is exact (see `grain`). Where an interval is no whole
/// number of nanoseconds, a request is admitted at most two of them early, and late never, unless its
/// time is a stale one, when it can be late by as much.
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
    /// The rule for `quota`; without a burst of its own its capacity is the limit.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] for a limit, period or burst of 0, a period above [`Quota::MAX_PERIOD`], a rate
    /// above 2 tokens per nanosecond, or a burst of more than 2^61 grains (36 to 73 years' worth).
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
