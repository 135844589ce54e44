//! The leaky bucket, as a meter and as a queue.

use super::contract::{Rule, Sealed};
use super::gcra::{Gcra, decide_as_gcra};
use super::word::Word;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::time::Tick;

/// A bucket that requests fill and that leaks at `limit` per `period`. A request that would make it
/// overflow is denied. Its size is the burst.
///
/// It is the mirror image of the [token bucket](super::TokenBucket): the tokens missing there are
/// the content here. So it decides alike and shares the word. As a **meter** it does nothing more.
/// As a **queue** it shapes traffic: an allowed request gets its turn, [`Decision::start_after`],
/// and turns are evenly spaced, one token per period / limit. Turner's leaky bucket ("New
/// directions in communications", 1986) is the meter; nginx's `limit_req` without `nodelay` is a
/// queue.
///
/// # Bound
///
/// In any interval of length `d` at most `burst + d * limit / period` tokens are admitted, as with
/// the token bucket. As a queue with requests of cost 1, at most `1 + d * limit / period` turns
/// *start* in it. (It is one more if an emission interval is not a whole number of nanoseconds and
/// `d` is less than two nanoseconds short of one.)
///
/// A refund or a reset in a queue frees room, but does not take turns back. So the next request may
/// get a turn that overlaps another: there are at most as many extra starts as tokens were given
/// back.
///
/// ```
/// use std::time::Duration;
/// use tollgate::rule::{LeakyBucket, Rule, Word};
/// use tollgate::{Quota, Tick};
///
/// let queue = LeakyBucket::queue(Quota::per_second(10).burst(2))?;
/// let (word, first) = queue.decide(Word::FRESH, Tick::ZERO, 1);
/// let (word, second) = queue.decide(word, Tick::ZERO, 1);
/// let (_, third) = queue.decide(word, Tick::ZERO, 1);
/// assert_eq!(first.start_after(), Duration::ZERO);
/// assert_eq!(second.start_after(), Duration::from_millis(100));
/// assert!(!third.is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket(pub(super) Gcra);

impl LeakyBucket {
    /// Makes a bucket that only measures: allowed requests start immediately.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`TokenBucket::new`](super::TokenBucket::new).
    ///
    /// ```
    /// # use tollgate::{Quota, rule::LeakyBucket};
    /// assert!(LeakyBucket::meter(Quota::per_second(10)).is_ok());
    /// ```
    pub fn meter(quota: Quota) -> Result<Self, ConfigError> {
        Gcra::new(quota, false).map(Self)
    }

    /// Makes a bucket that lets allowed requests start one after the other.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`TokenBucket::new`](super::TokenBucket::new).
    ///
    /// ```
    /// # use tollgate::{Quota, rule::LeakyBucket};
    /// assert!(LeakyBucket::queue(Quota::per_second(0)).is_err());
    /// ```
    pub fn queue(quota: Quota) -> Result<Self, ConfigError> {
        Gcra::new(quota, true).map(Self)
    }
}

decide_as_gcra!(LeakyBucket);
