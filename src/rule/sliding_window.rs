//! The sliding window: a weighted count over two windows in one word.

use super::contract::{Rule, Sealed};
use super::windows::Windows;
use super::word::Word;
use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::error::Refused;
use crate::quota::Quota;
use crate::time::Tick;
use std::time::Duration;

/// Admits at most about `limit` tokens in any trailing `period`, using an estimate from two counts.
///
/// The estimate is the current window's count plus a share of the previous window's count:
/// `previous * (length - elapsed) / length + present`. The share is the fraction of the previous
/// window that the trailing period still covers. Cloudflare described this approximation in "How we
/// built rate limiting capable of scaling to millions of domains" (2017).
///
/// Here both counts and the window's number are stored in one word, so no thread sees a
/// half-finished rotation. The comparison is exact: `previous * (length - elapsed) <= (limit -
/// present - cost) * length` in 128 bits.
///
/// # State
///
/// | bits | field |
/// |---|---|
/// | 0 to b - 1 | tokens charged in the present window; b = bits(limit + debt) |
/// | b to 2b - 1 | tokens charged in the window before it |
/// | 2b to 62 | the present window's number, from 1 |
///
/// # Bound
///
/// Each window admits at most `limit` tokens, so an interval as long as a window admits at most
/// **twice the limit**. Traffic approaches this bound if all tokens of the previous window were
/// charged at the very end of that window, because the estimate assumes that these tokens are
/// spread evenly. An interval of length `d` admits at most `limit * (floor(d / period) + 2)`
/// tokens.
///
/// # Stale and skewed times
///
/// If `now` is before the word's window, the request is decided at the start of that window, where
/// the previous window has the largest weight. Such a request may be denied, but is never admitted
/// in excess. The bound refers to the times at which charges are counted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::rule::{Rule, SlidingWindow, Word};
/// use tollgate::{Quota, Tick};
///
/// let rule = SlidingWindow::new(Quota::per_second(10), Duration::ZERO)?;
/// let (word, _) = rule.decide(Word::FRESH, Tick::ZERO, 10);
/// // All ten still count at the next boundary, and half of them half a window later.
/// let denied = rule.decide(word, Tick::ZERO, 5).1;
/// assert_eq!(denied.retry_after(), Some(Duration::from_millis(1500)));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    windows: Windows<2>,
}

/// The fields of the word: both counts and the window's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Pair {
    number: u64,
    previous: u64,
    present: u64,
}

impl Pair {
    /// Returns the pair for the next window.
    #[inline]
    fn next(self) -> Self {
        Self { number: self.number + 1, previous: self.present, present: 0 }
    }
}

impl SlidingWindow {
    /// Creates the rule for `quota`. Tick 0 lies `phase` after a boundary.
    ///
    /// # Errors
    ///
    /// Returns an error for a limit or period of 0, a period above [`Quota::MAX_PERIOD`], a burst,
    /// or a limit so large that two counts and the window's number do not fit into the word.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Quota, rule::SlidingWindow};
    /// let refused = SlidingWindow::new(Quota::per_second(40_000), Duration::ZERO).unwrap_err();
    /// assert!(refused.to_string().contains("allowed: 1 to 32767"));
    /// ```
    pub fn new(quota: Quota, phase: Duration) -> Result<Self, Refused> {
        Ok(Self { windows: Windows::new(quota, phase, Algorithm::SlidingWindow)? })
    }

    /// Implements [`AnyRule::max_debt`](super::AnyRule::max_debt).
    pub(super) fn max_debt(self, tokens: u64) -> Result<Self, Refused> {
        Ok(Self { windows: self.windows.max_debt(tokens)? })
    }

    #[inline]
    fn unpack(&self, word: Word) -> Pair {
        let mask = (1 << self.windows.count_bits) - 1;
        Pair {
            number: word.value() >> (2 * self.windows.count_bits),
            previous: word.value() >> self.windows.count_bits & mask,
            present: word.value() & mask,
        }
    }

    #[inline]
    fn pack(&self, Pair { number, previous, present }: Pair) -> Word {
        Word::of((number << self.windows.count_bits | previous) << self.windows.count_bits | present)
    }

    /// Implements [`AnyRule::adopt`](super::AnyRule). Both counts are preserved if neither exceeds
    /// the limit plus the maximum debt, and if both rules have the same window boundaries.
    /// Otherwise the estimate at `now` becomes the count of the window at `now`, and thereby
    /// receives a larger weight than before.
    pub(super) fn adopt(&self, before: &Self, word: Word, now: Tick) -> Word {
        let pair = before.unpack(word);
        let now = before.windows.not_before(pair.number, now);
        let pair = before.roll(word, now);
        if self.windows.are_cut_as(before.windows)
            && pair.previous <= self.windows.most
            && pair.present <= self.windows.most
        {
            return self.pack(pair);
        }
        let weighted = before.weighted(pair, before.windows.elapsed(pair.number, now));
        let used = (pair.present + weighted).min(before.windows.most);
        self.pack(Pair {
            number: self.windows.number(now),
            previous: 0,
            present: used.min(self.windows.most),
        })
    }

    /// Implements [`AnyRule::longest_hold`](super::AnyRule).
    pub(super) fn longest_hold(&self) -> Duration {
        self.windows.longest_hold()
    }

    /// Implements [`AnyRule::is_possible`](super::AnyRule).
    pub(super) fn is_possible(&self, word: Word) -> bool {
        let Pair { number, previous, present } = self.unpack(word);
        self.windows.is_possible(number, &[previous, present])
    }

    /// Implements [`AnyRule::idle_from`](super::AnyRule).
    pub(super) fn idle_from(&self, word: Word) -> Option<Tick> {
        let pair = self.unpack(word);
        let began = self.windows.not_before(pair.number, Tick::ZERO);
        self.idle_at(pair, began)
    }

    /// Returns the pair as of `now`, or as of the word's window if `now` is before that window.
    #[inline]
    fn roll(&self, word: Word, now: Tick) -> Pair {
        let pair = self.unpack(word);
        if self.windows.lasts(pair.number, now) {
            return pair;
        }
        let number = self.windows.number(now);
        if number == pair.number + 1 { pair.next() } else { Pair { number, previous: 0, present: 0 } }
    }

    /// Returns how many tokens can be charged before the estimate exceeds `most`, at `elapsed`
    /// nanoseconds into the pair's window.
    #[inline]
    fn room(&self, most: u64, pair: Pair, elapsed: u64) -> u64 {
        most.saturating_sub(pair.present + self.weighted(pair, elapsed))
    }

    /// Returns the weighted count of the previous window, at `elapsed` nanoseconds into the pair's
    /// window. The result is at most `previous`. It is rounded up, because the exact estimate plus
    /// a charge must stay within the limit.
    #[inline]
    fn weighted(&self, pair: Pair, elapsed: u64) -> u64 {
        let length = self.windows.length();
        match pair.previous.checked_mul(length - elapsed) {
            // This is the usual case. A 64-bit division takes a fraction of the time of a 128-bit
            // division.
            Some(product) => product.div_ceil(length),
            None => {
                let product = u128::from(pair.previous) * u128::from(length - elapsed);
                product.div_ceil(u128::from(length)).try_into().unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns how many nanoseconds after the start of the pair's window `cost` fits, or `None` if
    /// it does not fit before the window ends.
    #[inline]
    fn fits_after(&self, pair: Pair, cost: u64) -> Option<u64> {
        let free = self.windows.limit.checked_sub(pair.present)?.checked_sub(cost)?;
        let length = self.windows.length();
        if pair.previous <= free {
            return Some(0);
        }
        // This computes the smallest `elapsed` with
        // `previous * (length - elapsed) <= free * length`. `free` is below `previous`, so the
        // quotient is below `length`.
        let weighs = u128::from(free) * u128::from(length) / u128::from(pair.previous);
        let elapsed = length - u64::try_from(weighs).unwrap_or(length);
        (elapsed < length).then_some(elapsed)
    }

    /// Returns the first tick at which `cost` fits. The cost must be within the limit. The tick is
    /// in the pair's window, in the next window (where the present count becomes the previous
    /// count), or at the start of the window after the next.
    #[inline]
    fn retry_at(&self, pair: Pair, cost: u64) -> Option<Tick> {
        let next = pair.next();
        for pair in [pair, next] {
            if let Some(elapsed) = self.fits_after(pair, cost) {
                return self.windows.tick(pair.number, elapsed);
            }
        }
        self.windows.tick(next.number + 1, 0)
    }

    /// Returns the first tick at which neither count has any weight. If neither count has any
    /// weight now, the result is `now`.
    #[inline]
    fn idle_at(&self, pair: Pair, now: Tick) -> Option<Tick> {
        match pair {
            Pair { previous: 0, present: 0, .. } => Some(now),
            Pair { present: 0, number, .. } => self.windows.tick(number + 1, 0),
            Pair { number, .. } => self.windows.tick(number + 2, 0),
        }
    }
}

impl Sealed for SlidingWindow {}

impl Rule for SlidingWindow {
    // This method is inlined, because a call would account for 18 of the 330 instructions of a
    // charge.
    #[inline(always)]
    fn next(&self, word: Word, now: Tick, cost: u64) -> Word {
        let pair = self.roll(word, now);
        let charged =
            cost > 0 && cost <= self.room(self.windows.limit, pair, self.windows.elapsed(pair.number, now));
        if charged { self.pack(Pair { present: pair.present + cost, ..pair }) } else { word }
    }

    #[inline(never)]
    fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision {
        let pair = self.roll(word, now);
        let free = self.room(self.windows.limit, pair, self.windows.elapsed(pair.number, now));
        let retry = || self.retry_at(pair, cost);
        self.windows.answer((pair.number, free), now, cost, retry, || self.idle_at(pair, now))
    }

    #[inline]
    fn force(&self, word: Word, now: Tick, tokens: u64) -> (Word, u64) {
        let pair = self.roll(word, now);
        match tokens.min(self.room(self.windows.most, pair, self.windows.elapsed(pair.number, now))) {
            0 => (word, 0),
            charged => (self.pack(Pair { present: pair.present + charged, ..pair }), charged),
        }
    }

    #[inline]
    fn refund(&self, word: Word, _now: Tick, charge: &Decision, tokens: u64) -> Word {
        let tokens = tokens.min(charge.charged());
        let pair = self.unpack(word);
        // Give back only to the window in which the charge was counted. If the charge's `now` was
        // stale, that window is later than the window that contained `now`. If the charge was
        // counted under a quota with windows of a different length, no window of this rule has
        // counted it.
        match self.windows.holder(charge) {
            Some(number) if number == pair.number => {
                self.pack(Pair { present: pair.present.saturating_sub(tokens), ..pair })
            }
            Some(number) if number + 1 == pair.number => {
                self.pack(Pair { previous: pair.previous.saturating_sub(tokens), ..pair })
            }
            _ => word,
        }
    }

    #[inline]
    fn reset(&self, word: Word) -> Word {
        if word.is_fresh() {
            return word;
        }
        // Window 1 is past or present at all times: see `FixedWindow`.
        self.pack(Pair { number: 1, previous: 0, present: 0 })
    }

    #[inline]
    fn is_idle(&self, word: Word, now: Tick) -> bool {
        let pair = self.roll(word, now);
        // A window that starts after `now` is not idle: see `FixedWindow`.
        word.is_fresh()
            || self.unpack(word).number <= self.windows.number(now) && pair.previous == 0 && pair.present == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fill_the_word_and_overlap_nowhere() {
        for (limit, length) in [(1, 8), (32_767, 1_000_000_000), (7, 60_000_000_000)] {
            let quota = Quota::new(limit, Duration::from_nanos(length));
            let rule = SlidingWindow::new(quota, Duration::from_nanos(length - 1)).unwrap();
            let pair = Pair { number: rule.windows.number(Tick::MAX), previous: limit, present: limit };
            assert_eq!(rule.unpack(rule.pack(pair)), pair);
        }
    }
}
