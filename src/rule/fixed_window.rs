//! The fixed window: a count that restarts at every boundary.

use super::contract::{Rule, Sealed};
use super::windows::Windows;
use super::word::Word;
use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::error::Refused;
use crate::quota::Quota;
use crate::time::Tick;
use std::time::Duration;

/// Admits at most `limit` tokens in each window of `period`. The count restarts at every boundary.
///
/// # State
///
/// | bits | field |
/// |---|---|
/// | 0 to b - 1 | tokens charged in the window; b = bits(limit + debt) |
/// | b to 62 | the window's number, from 1 |
///
/// # Bound
///
/// Each window admits at most `limit` tokens. An interval as long as a window therefore admits at
/// most **twice the limit**: all tokens of one window at its end, and all tokens of the next window
/// at its start. An interval of length `d` admits at most `limit * (floor(d / period) + 2)` tokens.
/// If that is too much, use a sliding window or a bucket.
///
/// # Stale and skewed times
///
/// If `now` is before the word's window, the request is decided as if it had been made at the start
/// of that window, because a key never returns to an earlier window. The bound refers to the times
/// at which charges are counted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::rule::{FixedWindow, Rule, Word};
/// use tollgate::{Quota, Tick};
///
/// let rule = FixedWindow::new(Quota::per_second(2), Duration::ZERO)?;
/// let (word, _) = rule.decide(Word::FRESH, Tick::from_nanos(900_000_000), 2);
/// let denied = rule.decide(word, Tick::from_nanos(900_000_000), 1).1;
/// assert_eq!(denied.retry_after(), Some(Duration::from_millis(100)));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    windows: Windows<1>,
}

/// The fields of the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct WindowFields {
    number: u64,
    count: u64,
}

impl FixedWindow {
    /// Creates the rule for `quota`. Tick 0 lies `phase` after a boundary.
    ///
    /// # Errors
    ///
    /// Returns an error for a limit or period of 0, a period above [`Quota::MAX_PERIOD`], a burst,
    /// or a limit that does not fit into the word together with the window's number.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Quota, rule::FixedWindow};
    /// assert!(FixedWindow::new(Quota::per_second(10).burst(5), Duration::ZERO).is_err());
    /// ```
    pub fn new(quota: Quota, phase: Duration) -> Result<Self, Refused> {
        Ok(Self { windows: Windows::new(quota, phase, Algorithm::FixedWindow)? })
    }

    /// Implements [`AnyRule::max_debt`](super::AnyRule::max_debt).
    pub(super) fn max_debt(self, tokens: u64) -> Result<Self, Refused> {
        Ok(Self { windows: self.windows.max_debt(tokens)? })
    }

    #[inline]
    fn unpack(&self, word: Word) -> WindowFields {
        WindowFields {
            number: word.value() >> self.windows.count_bits,
            count: word.value() & ((1 << self.windows.count_bits) - 1),
        }
    }

    #[inline]
    fn pack(&self, WindowFields { number, count }: WindowFields) -> Word {
        Word::of(number << self.windows.count_bits | count)
    }

    /// Implements [`AnyRule::adopt`](super::AnyRule). The count of the window is preserved, up to
    /// the limit plus the maximum debt. If the new windows have a different length, the count is
    /// assigned to the window at `now`.
    pub(super) fn adopt(&self, before: &Self, word: Word, now: Tick) -> Word {
        let now = before.windows.not_before(before.unpack(word).number, now);
        let count = before.roll(word, now).count;
        self.pack(WindowFields { number: self.windows.number(now), count: count.min(self.windows.most) })
    }

    /// Implements [`AnyRule::longest_hold`](super::AnyRule).
    pub(super) fn longest_hold(&self) -> Duration {
        self.windows.longest_hold()
    }

    /// Implements [`AnyRule::is_possible`](super::AnyRule).
    pub(super) fn is_possible(&self, word: Word) -> bool {
        let WindowFields { number, count } = self.unpack(word);
        self.windows.is_possible(number, &[count])
    }

    /// Implements [`AnyRule::idle_from`](super::AnyRule).
    pub(super) fn idle_from(&self, word: Word) -> Option<Tick> {
        let WindowFields { number, count } = self.unpack(word);
        if word.is_fresh() { Some(Tick::ZERO) } else { self.windows.tick(number + u64::from(count > 0), 0) }
    }

    /// Returns the fields as of `now`, or as of the word's window if `now` is before that window.
    #[inline]
    fn roll(&self, word: Word, now: Tick) -> WindowFields {
        let fields = self.unpack(word);
        if self.windows.lasts(fields.number, now) {
            return fields;
        }
        WindowFields { number: self.windows.number(now), count: 0 }
    }
}

impl Sealed for FixedWindow {}

impl Rule for FixedWindow {
    #[inline]
    fn next(&self, word: Word, now: Tick, cost: u64) -> Word {
        let fields = self.roll(word, now);
        let charged = cost > 0 && cost <= self.windows.limit.saturating_sub(fields.count);
        if charged { self.pack(WindowFields { count: fields.count + cost, ..fields }) } else { word }
    }

    #[inline(never)]
    fn answer(&self, word: Word, now: Tick, cost: u64) -> Decision {
        let WindowFields { number, count } = self.roll(word, now);
        let free = self.windows.limit.saturating_sub(count);
        let next = || self.windows.tick(number + 1, 0);
        let reset = || if count == 0 { Some(now) } else { next() };
        self.windows.answer((number, free), now, cost, next, reset)
    }

    #[inline]
    fn force(&self, word: Word, now: Tick, tokens: u64) -> (Word, u64) {
        let fields = self.roll(word, now);
        match tokens.min(self.windows.most - fields.count) {
            0 => (word, 0),
            charged => (self.pack(WindowFields { count: fields.count + charged, ..fields }), charged),
        }
    }

    #[inline]
    fn refund(&self, word: Word, _now: Tick, charge: &Decision, tokens: u64) -> Word {
        let tokens = tokens.min(charge.charged());
        let fields = self.unpack(word);
        // Give back only to the window in which the charge was counted. If the charge's `now` was
        // stale, that window is later than the window that contained `now`. If the charge was
        // counted under a quota with windows of a different length, no window of this rule has
        // counted it.
        if tokens == 0 || self.windows.holder(charge) != Some(fields.number) {
            return word;
        }
        self.pack(WindowFields { count: fields.count.saturating_sub(tokens), ..fields })
    }

    #[inline]
    fn reset(&self, word: Word) -> Word {
        // Window 1 is past or present at all times, even if the word is ahead of the clock.
        if word.is_fresh() { word } else { self.pack(WindowFields { number: 1, count: 0 }) }
    }

    #[inline]
    fn is_idle(&self, word: Word, now: Tick) -> bool {
        // A window that starts after `now` is not idle, even if all its tokens have been given
        // back, because a request at `now` must still find the key in that window.
        word.is_fresh()
            || self.unpack(word).number <= self.windows.number(now) && self.roll(word, now).count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fill_the_word_and_overlap_nowhere() {
        for (limit, length) in [(1, 2), (1_250_000_000, 1_000_000_000), (7, 60_000_000_000)] {
            let quota = Quota::new(limit, Duration::from_nanos(length));
            let rule = FixedWindow::new(quota, Duration::from_nanos(length - 1)).unwrap();
            let fields = WindowFields { number: rule.windows.number(Tick::MAX), count: limit };
            assert_eq!(rule.unpack(rule.pack(fields)), fields);
        }
    }
}
