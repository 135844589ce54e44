//! The leaky bucket, as a meter and as a queue.

use super::contract::{Rule, Sealed};
use super::gcra::{Gcra, decide_as_gcra};
use super::word::Word;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::time::Tick;

/// A bucket that requests fill and that leaks at `limit` per `period`; a request that would make it
/// spill over is denied. Its size is the burst.
///
/// It is the mirror image of the [token bucket](super::TokenBucket) (what is missing there is the content
/// here), so it decides alike and shares the word. As a **meter** that is all. As a **queue** it shapes
/// traffic: an allowed request is given its turn, [`Decision::start_after`], and turns are evenly
/// spaced, one token per period / limit. Turner's leaky bucket ("New directions in communications",
/// 1986) is the meter; nginx's `limit_req` without `nodelay` is a queue.
///
/// # Bound
///
/// As the token bucket's: at most `burst + d * limit / period` tokens admitted in any interval of
/// length `d`. As a queue with requests of cost 1, at most `1 + d * limit / period` turns *start* in it
/// (and one more if an interval is no whole number of nanoseconds and `d` falls short of one by less than
/// two). A refund or a reset in a queue frees room, but turns that were given stay given, so the next
/// request may get one that overlaps: at most as many extra starts as tokens were given back.
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
    /// A bucket that only measures: allowed requests start at once.
    ///
    /// # Errors
    ///
    /// As [`TokenBucket::new`](super::TokenBucket::new).
    ///
    /// ```
    /// # use tollgate::{Quota, rule::LeakyBucket};
    /// assert!(LeakyBucket::meter(Quota::per_second(10)).is_ok());
    /// ```
    pub fn meter(quota: Quota) -> Result<Self, ConfigError> {
        Gcra::new(quota, false).map(Self)
    }

    /// A bucket that lets allowed requests start one after the other.
    ///
    /// # Errors
    ///
    /// As [`TokenBucket::new`](super::TokenBucket::new).
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
