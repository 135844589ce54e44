//! The leaky bucket, as a meter and as a queue.

use super::contract::{Rule, Sealed};
use super::token_bucket::TokenBucket;
use super::word::Word;
use crate::decision::{Decision, Stamp};
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::time::Tick;

/// A bucket that requests fill and that leaks at `limit` per `period`; a request that would make it
/// spill over is denied. Its size is the burst.
///
/// It is the mirror image of the [token bucket](TokenBucket) (what is missing there is the content
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
/// assert!(!third.allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    bucket: TokenBucket,
    queue: bool,
}

impl LeakyBucket {
    /// A bucket that only measures: allowed requests start at once.
    ///
    /// # Errors
    ///
    /// As [`TokenBucket::new`].
    ///
    /// ```
    /// # use tollgate::{Quota, rule::LeakyBucket};
    /// assert!(LeakyBucket::meter(Quota::per_second(10)).is_ok());
    /// ```
    pub fn meter(quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self { bucket: TokenBucket::new(quota)?, queue: false })
    }

    /// A bucket that lets allowed requests start one after the other.
    ///
    /// # Errors
    ///
    /// As [`TokenBucket::new`].
    ///
    /// ```
    /// # use tollgate::{Quota, rule::LeakyBucket};
    /// assert!(LeakyBucket::queue(Quota::per_second(0)).is_err());
    /// ```
    pub fn queue(quota: Quota) -> Result<Self, ConfigError> {
        Ok(Self { bucket: TokenBucket::new(quota)?, queue: true })
    }
}

impl LeakyBucket {
    /// The meter that decides as the token bucket does.
    #[inline(always)]
    pub(super) const fn of(bucket: TokenBucket) -> Self {
        Self { bucket, queue: false }
    }

    /// See [`TokenBucket::charged`].
    #[inline(always)]
    pub(crate) fn charged(&self, word: Word, now: Tick, cost: u64) -> Option<Word> {
        self.bucket.charged(word, now, cost)
    }

    /// See [`TokenBucket::first`].
    #[inline(always)]
    pub(crate) fn first(&self, now: Tick, cost: u64) -> Option<Word> {
        self.bucket.first(now, cost)
    }

    /// The answer to a request that has made `charged` of `from`, or nothing.
    #[inline(always)]
    pub(crate) fn answer_after(
        &self,
        from: Word,
        charged: Option<Word>,
        now: Tick,
        cost: u64,
        stamp: Stamp,
    ) -> Decision {
        self.bucket.answer_after(self.queue, from, charged, now, cost, stamp)
    }

    pub(super) fn idle_from(&self, word: Word) -> Option<Tick> {
        self.bucket.idle_from(word)
    }

    pub(super) fn adopt(&self, before: &Self, word: Word, now: Tick) -> Word {
        self.bucket.adopt(&before.bucket, word, now)
    }
}

impl Sealed for LeakyBucket {}

impl Rule for LeakyBucket {
    #[inline(always)]
    fn next(&self, word: Word, now: Tick, cost: u64) -> Word {
        self.bucket.next(word, now, cost)
    }

    #[inline(always)]
    fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision {
        self.bucket.answer_as(self.queue, word, now, cost)
    }

    #[inline]
    fn refund(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word {
        self.bucket.refund(word, now, charge, tokens)
    }

    #[inline]
    fn reset(&self, word: Word) -> Word {
        self.bucket.reset(word)
    }

    #[inline]
    fn is_idle(&self, word: Word, now: Tick) -> bool {
        self.bucket.is_idle(word, now)
    }
}
