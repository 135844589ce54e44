//! The token bucket, kept as one theoretical arrival time.

use super::contract::{Rule, Sealed, outcome};
use super::word::Word;
use crate::decision::{Decision, Figures, Outcome, Source, Stamp};
use crate::error::ConfigError;
use crate::grain::Grain;
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
pub struct TokenBucket {
    grain: Grain,
    burst: u64,
    /// The burst in grains.
    capacity: u64,
}

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
        let grain = Grain::new(quota)?;
        let burst = quota.explicit_burst().unwrap_or(quota.limit());
        let capacity = grain.capacity(burst)?;
        Ok(Self { grain, burst, capacity })
    }

    /// When the bucket is full again, as of `present`, and what it has room for until then.
    #[inline(always)]
    fn level(&self, word: Word, present: u64) -> (u64, u64) {
        let full = word.value().max(present);
        (full, (present + self.capacity).saturating_sub(full))
    }

    /// What a request makes of a word if it charges anything. Of a frozen word it is nothing: by that bit, the bucket is full
    /// later than at any time. Of a fresh word it is nothing either, for less one that is later
    /// still: see [`first`](Self::first).
    #[inline(always)]
    pub(super) fn charged(&self, word: Word, now: Tick, cost: u64) -> Option<Word> {
        if cost == 0 || self.is_too_costly(cost) {
            return None;
        }
        let (present, charge) = (self.grain.at(now), self.grain.of_tokens(cost));
        // Both less one: that is how a fresh word is found without a comparison of its own.
        let full = word.value().wrapping_sub(1).max(present - 1);
        // No later than that, it fits. (What is not too costly is no more than the capacity.)
        let latest = present - 1 + (self.capacity - charge);
        (full <= latest).then(|| Word::of(full + 1 + charge))
    }

    /// What a request makes of a fresh word if it charges anything: the bucket is full, and holds all that is not too costly.
    #[inline(always)]
    pub(super) fn first(&self, now: Tick, cost: u64) -> Option<Word> {
        let charges = cost > 0 && !self.is_too_costly(cost);
        charges.then(|| Word::of(self.grain.at(now) + self.grain.of_tokens(cost)))
    }

    /// The answer of both buckets; a `queue` lets allowed requests start in turn.
    #[inline(always)]
    pub(super) fn answer_as(&self, queue: bool, word: Word, now: Tick, cost: u64) -> Decision {
        let (full, room) = self.level(word, self.grain.at(now));
        // The first test keeps the product in range.
        let fits = !self.is_too_costly(cost) && self.grain.of_tokens(cost) <= room;
        let outcome = outcome(cost, self.burst, fits);
        let charge = if outcome == Outcome::Allowed { self.grain.of_tokens(cost) } else { 0 };
        self.decision(queue, full + charge, outcome, now, cost)
    }

    /// The same, from what the request has made of the word: a charge tells by itself that it was allowed, and when
    /// the bucket will be full.
    #[inline(always)]
    pub(super) fn answer_after(
        &self,
        queue: bool,
        from: Word,
        charged: Option<Word>,
        now: Tick,
        cost: u64,
        stamp: Stamp,
    ) -> Decision {
        if let Some(to) = charged {
            let decision = self.decision(queue, to.value(), Outcome::Allowed, now, cost);
            return Decision { stamp, ..decision };
        }
        // Nothing was charged, so it needs no stamp.
        if cost == 0 || self.is_too_costly(cost) {
            return self.answer_as(queue, from, now, cost);
        }
        // A charge of a token changes the word, so this was denied; and what is denied has not found the bucket full.
        self.decision(queue, from.value(), Outcome::Denied, now, cost)
    }

    #[inline(always)]
    fn decision(&self, queue: bool, full: u64, outcome: Outcome, now: Tick, cost: u64) -> Decision {
        let figures = Figures::Bucket { full, grain: self.grain, queue };
        Decision {
            cost,
            limit: self.burst,
            at: now,
            figures,
            outcome,
            source: Source::Key,
            stamp: Stamp::NONE,
        }
    }
}

impl Sealed for TokenBucket {}

impl Rule for TokenBucket {
    #[inline(always)]
    fn next(&self, word: Word, now: Tick, cost: u64) -> Word {
        let next = if word.is_fresh() { self.first(now, cost) } else { self.charged(word, now, cost) };
        next.unwrap_or(word)
    }

    #[inline(always)]
    fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision {
        self.answer_as(false, word, now, cost)
    }

    #[inline]
    fn refund(&self, word: Word, now: Tick, charge: &Decision, tokens: u64) -> Word {
        // The charge may have been made under a larger quota.
        let tokens = tokens.min(charge.charged()).min(self.burst);
        let is_of_a_bucket = matches!(charge.figures, Figures::Bucket { .. } | Figures::LateBucket { .. });
        if word.is_fresh() || tokens == 0 || !is_of_a_bucket {
            return word;
        }
        // The charge was the last thing in the bucket when it was made, so it is gone for good once the
        // bucket has refilled that far; then what is missing is missing for other charges, and giving
        // anything back would erase theirs. (A charge held beyond the end of time counts until then.)
        let held_until = self.grain.at(charge.asked() + charge.reset_after());
        // A stale `now` must not bring it back to life. The last charge was made when the bucket had room
        // for it, so the key has seen at least this time:
        let present = self.grain.at(now).max(word.value().saturating_sub(self.capacity));
        let held = held_until.saturating_sub(present);
        let back = self.grain.of_tokens(tokens).min(held);
        Word::of(word.value().saturating_sub(back).max(1))
    }

    #[inline]
    fn reset(&self, word: Word) -> Word {
        if word.is_fresh() { word } else { Word::of(1) }
    }

    #[inline]
    fn is_idle(&self, word: Word, now: Tick) -> bool {
        word.value() <= self.grain.at(now)
    }
}

impl TokenBucket {
    /// See [`AnyRule::idle_from`](super::AnyRule).
    pub(super) fn idle_from(&self, word: Word) -> Option<Tick> {
        self.grain.first_tick(word.value())
    }

    /// See [`AnyRule::adopt`](super::AnyRule). The tokens that are missing stay missing, and no more of them
    /// than the bucket holds.
    pub(super) fn adopt(&self, before: &Self, word: Word, now: Tick) -> Word {
        // The key has seen at least the time at which its last charge found room, so a stale `now` is raised to
        // that: or what has refilled since would be counted twice.
        let seen = before.grain.first_tick(word.value().saturating_sub(before.capacity));
        let present = now.max(seen.unwrap_or(Tick::MAX));
        let missing = word.value().saturating_sub(before.grain.at(present)).min(before.capacity);
        Word::of(self.grain.at(present) + self.grain.convert(missing, before.grain).min(self.capacity))
    }

    /// Is it more than the bucket holds? (One token never is, and the compiler is told so.)
    #[inline(always)]
    fn is_too_costly(&self, cost: u64) -> bool {
        cost > 1 && cost > self.burst
    }
}
