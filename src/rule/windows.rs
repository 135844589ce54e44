//! Windows of equal length, numbered from 1, and the counts that a word stores for them.

use super::contract::{nanos_until, outcome};
use super::word::Word;
use crate::algorithm::Algorithm;
use crate::decision::{Decision, Figures, NEVER, Outcome};
use crate::error::Refused;
use crate::quota::Quota;
use crate::time::Tick;
use std::time::Duration;

/// The length of the windows, their boundaries, and their limit. A charge has weight in `COUNTS`
/// windows, and a word contains a count for each of them.
///
/// Window `i` contains the ticks `t` with `(i - 1) * length <= t + phase < i * length`. Tick 0 lies
/// `phase` after a boundary, in window 1. Numbers start at 1, so that the word of a charged key is
/// never all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows<const COUNTS: u64> {
    length: u64,
    phase: u64,
    pub(super) limit: u64,
    /// The largest count: the limit plus the maximum debt.
    pub(super) most: u64,
    /// The number of bits for each count in the word.
    pub(super) count_bits: u32,
}

impl<const COUNTS: u64> Windows<COUNTS> {
    /// Creates the windows for `quota`. Tick 0 lies `phase` after a boundary.
    pub(super) fn new(quota: Quota, phase: Duration, algorithm: Algorithm) -> Result<Self, Refused> {
        let (limit, length) = quota.rate()?;
        if let Some(burst) = quota.explicit_burst() {
            return Err(Refused::BurstUnsupported { algorithm, burst });
        }
        let (period, most) = (quota.period(), Self::largest_count(length));
        if most == 0 {
            return Err(Refused::PeriodTooShort { algorithm, period, least: SHORTEST_OF_TWO });
        }
        if limit > most {
            return Err(Refused::TooManyTokens { algorithm, tokens: limit, period, most });
        }
        Ok(Self::of(length, phase, limit))
    }

    /// Implements [`AnyRule::max_debt`](super::AnyRule::max_debt).
    pub(super) fn max_debt(self, debt: u64) -> Result<Self, Refused> {
        let room = Self::largest_count(self.length) - self.limit;
        if debt > room {
            return Err(Refused::DebtTooLarge { debt, most: room });
        }
        let most = self.limit + debt;
        Ok(Self { most, count_bits: bits_of(most), ..self })
    }

    /// Creates windows of `length` nanoseconds, from 1 ns to
    /// [`MAX_PERIOD`](crate::Quota::MAX_PERIOD).
    fn of(length: u64, phase: Duration, limit: u64) -> Self {
        // The remainder is less than `length`, which is a `u64`.
        #[allow(clippy::cast_possible_truncation)]
        let phase = (phase.as_nanos() % u128::from(length)) as u64;
        Self { length, phase, limit, most: limit, count_bits: bits_of(limit) }
    }

    /// Returns the largest count that fits into the word together with the other counts and the
    /// number of any window.
    const fn largest_count(length: u64) -> u64 {
        (1 << (bits_for_counts(length) as u64 / COUNTS)) - 1
    }

    /// Returns true if the windows of `self` and `other` have the same boundaries.
    pub(super) fn are_cut_as(self, other: Self) -> bool {
        (self.length, self.phase) == (other.length, other.phase)
    }

    /// Returns the answer to a request in window `number`, given that `free` tokens remain before
    /// the request. `retry` returns the time at which a denied request would be allowed, and
    /// `reset` returns the time at which the key becomes idle. For both, `None` means a time after
    /// [`Tick::MAX`].
    #[inline]
    pub(super) fn answer(
        self,
        (number, free): (u64, u64),
        now: Tick,
        cost: u64,
        retry: impl Fn() -> Option<Tick>,
        reset: impl Fn() -> Option<Tick>,
    ) -> Decision {
        let outcome = outcome(cost, self.limit, cost <= free);
        let wait = match outcome {
            Outcome::Allowed => 0,
            Outcome::Denied => nanos_until(retry(), now),
            Outcome::TooCostly => NEVER,
        };
        let figures = if outcome == Outcome::Allowed && cost > 0 {
            let (until, period) = self.held(number);
            Figures::Held { remaining: free - cost, until, period }
        } else {
            Figures::Known { remaining: free, wait, reset: nanos_until(reset(), now) }
        };
        Decision::of_key(outcome, cost, self.limit, now, figures)
    }

    /// Returns how long a charge counts at most.
    pub(super) const fn longest_hold(self) -> Duration {
        Duration::from_nanos(COUNTS * self.length)
    }

    pub(super) const fn length(self) -> u64 {
        self.length
    }

    /// Returns the time until which a charge in window `number` counts, and for how long it counts.
    #[inline]
    fn held(self, number: u64) -> (u64, u64) {
        let until = (number - 1 + COUNTS) * self.length - self.phase;
        (until, COUNTS * self.length)
    }

    /// Returns the number of the window in which a charge is counted. Returns `None` if windows of
    /// a different length have counted the charge, or if the charge counts until after
    /// [`Tick::MAX`].
    #[inline]
    pub(super) fn holder(self, charge: &Decision) -> Option<u64> {
        match charge.figures.held() {
            Some((until, period)) if period == COUNTS * self.length && until <= Tick::MAX.as_nanos() => {
                // A charge made by another limiter may stop counting within a window, or may
                // predate window 1.
                let end = until + self.phase;
                let number = (end / self.length + 1).checked_sub(COUNTS).filter(|&number| number > 0);
                number.filter(|_| end.is_multiple_of(self.length))
            }
            _ => None,
        }
    }

    /// Returns the number of the window that contains `now`.
    #[inline]
    pub(super) fn number(self, now: Tick) -> u64 {
        (now.as_nanos() + self.phase) / self.length + 1
    }

    /// Returns true if `now` is in window `number` or before it. This is equivalent to comparing
    /// the window numbers, but requires no division. The result is nearly always true, so callers
    /// rarely need the division.
    #[inline]
    pub(super) fn lasts(self, number: u64, now: Tick) -> bool {
        now.as_nanos() + self.phase < number * self.length
    }

    /// Returns the nanoseconds from the start of window `number` to `now`, or 0 if the window
    /// starts later.
    #[inline]
    pub(super) fn elapsed(self, number: u64, now: Tick) -> u64 {
        (now.as_nanos() + self.phase).saturating_sub((number - 1) * self.length)
    }

    /// Returns whether charges can have led to these counts in window `number`.
    pub(super) fn is_possible(self, number: u64, counts: &[u64]) -> bool {
        (1..=self.number(Tick::MAX)).contains(&number) && counts.iter().all(|&count| count <= self.most)
    }

    /// Returns the later of `now` and the start of window `number`. The number 0 means that there
    /// is no window.
    pub(super) fn not_before(self, number: u64, now: Tick) -> Tick {
        let start = if number == 0 { Some(Tick::ZERO) } else { self.tick(number, 0) };
        now.max(start.unwrap_or(Tick::MAX))
    }

    /// Returns the tick `after` nanoseconds into window `number`, or `None` if it is after
    /// [`Tick::MAX`].
    #[inline]
    pub(super) fn tick(self, number: u64, after: u64) -> Option<Tick> {
        let tick = ((number - 1) * self.length + after).saturating_sub(self.phase);
        (tick <= Tick::MAX.as_nanos()).then(|| Tick::from_nanos(tick))
    }
}

/// Returns the number of bits required for a count of up to `most`.
const fn bits_of(most: u64) -> u32 {
    u64::BITS - most.leading_zeros()
}

/// Returns how many bits of a word remain for counts. The other bits must be able to store the
/// number of any window of `length` nanoseconds.
///
/// The result is the same for every phase. Therefore the time of day at which a limiter is built
/// does not affect whether its limit is accepted.
const fn bits_for_counts(length: u64) -> u32 {
    Word::VALUE_BITS - bits_of(Tick::MAX.as_nanos() / length + 2)
}

/// The shortest window length for which a word can contain two counts. A single count fits for
/// every length.
const SHORTEST_OF_TWO: Duration = Duration::from_nanos(2);
const _: () = assert!(bits_for_counts(2) >= 2 && bits_for_counts(1) == 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tick_zero_lies_in_window_one_whatever_the_phase() {
        for phase in [0, 1, 99, 100, 101, u64::MAX] {
            let windows = Windows::<1>::of(100, Duration::from_nanos(phase), 1);
            assert_eq!(windows.number(Tick::ZERO), 1);
        }
    }

    #[test]
    fn a_window_ends_where_the_next_begins() {
        let windows = Windows::<1>::of(100, Duration::from_nanos(30), 1);
        assert_eq!(windows.tick(2, 0), Some(Tick::from_nanos(70)));
        assert_eq!(windows.number(Tick::from_nanos(69)), 1);
        assert_eq!(windows.number(Tick::from_nanos(70)), 2);
        assert_eq!(windows.elapsed(1, Tick::from_nanos(69)), 99);
        assert_eq!(windows.elapsed(2, Tick::from_nanos(70)), 0);
        assert_eq!(windows.elapsed(2, Tick::from_nanos(5)), 0);
    }

    #[test]
    fn a_window_lasts_until_the_next_one() {
        for (length, phase) in [(1, 0), (3, 2), (100, 30), (30 * 86_400_000_000_000, 7)] {
            let windows = Windows::<1>::of(length, Duration::from_nanos(phase), 1);
            for now in [0, 1, 2, 69, 70, 170, length, 5 * length - phase, Tick::MAX.as_nanos()] {
                let now = Tick::from_nanos(now);
                let number = windows.number(now);
                for other in number.saturating_sub(2)..=number + 1 {
                    assert_eq!(windows.lasts(other, now), number <= other, "{number} {other} at {now:?}");
                }
            }
        }
    }

    #[test]
    fn the_last_window_has_no_next() {
        let windows = Windows::<1>::of(1 << 58, Duration::ZERO, 1);
        let last = windows.number(Tick::MAX);
        assert!(windows.tick(last, 0).is_some());
        assert_eq!(windows.tick(last + 1, 0), None);
        assert!(last.leading_zeros() > bits_for_counts(1 << 58));
    }
}
