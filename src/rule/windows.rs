//! Time cut into windows of equal length, numbered from 1.

use super::word::Word;
use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::time::Tick;
use std::time::Duration;

/// The length of the windows and where they begin.
///
/// Window `i` contains the ticks `t` with `(i - 1) * length <= t + phase < i * length`. Tick 0 lies
/// `phase` after a boundary, in window 1. Numbers start at 1 so that no word of a touched key is
/// all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Windows {
    length: u64,
    phase: u64,
}

impl Windows {
    /// Makes the windows of `quota` for an algorithm that keeps `counts` counts in its word. Also
    /// returns how many bits each count takes. Tick 0 lies `phase` after a boundary.
    pub(super) fn new(
        quota: Quota,
        phase: Duration,
        algorithm: Algorithm,
        counts: u32,
    ) -> Result<(Self, u32), ConfigError> {
        let (limit, length) = quota.rate()?;
        if let Some(burst) = quota.explicit_burst() {
            return Err(ConfigError::BurstUnsupported { algorithm, burst });
        }
        let (period, bits) = (quota.period(), bits_for_counts(length) / counts);
        if bits == 0 {
            return Err(ConfigError::PeriodTooShort { algorithm, period, least: SHORTEST_OF_TWO });
        }
        let most = (1 << bits) - 1;
        if limit > most {
            return Err(ConfigError::TooManyTokens { algorithm, tokens: limit, period, most });
        }
        Ok((Self::of(length, phase), u64::BITS - limit.leading_zeros()))
    }

    /// The largest count of a window with a debt, and the bits it takes, for a rule that keeps
    /// `counts` counts in its word.
    pub(super) fn count_with_debt(
        self,
        limit: u64,
        debt: u64,
        counts: u32,
    ) -> Result<(u64, u32), ConfigError> {
        let room = (1 << (bits_for_counts(self.length) / counts)) - 1;
        match limit.checked_add(debt).filter(|&most| most <= room) {
            Some(most) => Ok((most, u64::BITS - most.leading_zeros())),
            None => Err(ConfigError::DebtTooLarge { debt, most: room - limit }),
        }
    }

    /// Makes windows of `length` nanoseconds, 1 to [`MAX_PERIOD`](crate::Quota::MAX_PERIOD).
    fn of(length: u64, phase: Duration) -> Self {
        // Smaller than `length`, which is a u64.
        #[allow(clippy::cast_possible_truncation)]
        let phase = (phase.as_nanos() % u128::from(length)) as u64;
        Self { length, phase }
    }

    pub(super) const fn length(self) -> u64 {
        self.length
    }

    /// The time until which a charge in window `number` counts, and the length of that span.
    /// `count` is the number of windows in which a charge weighs.
    #[inline]
    pub(super) fn held(self, number: u64, count: u64) -> (u64, u64) {
        let until = (number - 1 + count) * self.length - self.phase;
        (until, count * self.length)
    }

    /// The window in which a charge was counted that weighs in `count` windows. `None` if other
    /// windows have counted it, or if it counts until after [`Tick::MAX`].
    #[inline]
    pub(super) fn holder(self, charge: &Decision, count: u64) -> Option<u64> {
        match charge.figures.held() {
            Some((until, period)) if period == count * self.length && until <= Tick::MAX.as_nanos() => {
                // A charge of another limiter may end within a window, or be from before window 1.
                let end = until + self.phase;
                let number = (end / self.length + 1).checked_sub(count).filter(|&number| number > 0);
                number.filter(|_| end.is_multiple_of(self.length))
            }
            _ => None,
        }
    }

    /// The number of the window that contains `now`.
    #[inline]
    pub(super) fn number(self, now: Tick) -> u64 {
        (now.as_nanos() + self.phase) / self.length + 1
    }

    /// Is `now` in window `number` or before it? Equal to comparing the numbers, without a
    /// division. This is nearly always true, so the test is kept to a few instructions.
    #[inline]
    pub(super) fn lasts(self, number: u64, now: Tick) -> bool {
        now.as_nanos() + self.phase < number * self.length
    }

    /// Nanoseconds from the start of window `number` until `now`; 0 if it starts later.
    #[inline]
    pub(super) fn elapsed(self, number: u64, now: Tick) -> u64 {
        (now.as_nanos() + self.phase).saturating_sub((number - 1) * self.length)
    }

    /// `now`, or the start of window `number` if that is later. 0 means that there is no window.
    pub(super) fn not_before(self, number: u64, now: Tick) -> Tick {
        let start = if number == 0 { Some(Tick::ZERO) } else { self.tick(number, 0) };
        now.max(start.unwrap_or(Tick::MAX))
    }

    /// The tick `after` nanoseconds into window `number`. `None` if it is after [`Tick::MAX`].
    #[inline]
    pub(super) fn tick(self, number: u64, after: u64) -> Option<Tick> {
        let tick = ((number - 1) * self.length + after).saturating_sub(self.phase);
        (tick <= Tick::MAX.as_nanos()).then(|| Tick::from_nanos(tick))
    }
}

/// How many bits are left for counts beside the number of any window of `length` nanoseconds.
///
/// The result holds for every phase, so that no limit is refused for the time of day at which a
/// limiter is built.
const fn bits_for_counts(length: u64) -> u32 {
    let last = Tick::MAX.as_nanos() / length + 2;
    Word::VALUE_BITS - (u64::BITS - last.leading_zeros())
}

/// The shortest window whose word has room for two counts. One count fits beside the number of any
/// window.
const SHORTEST_OF_TWO: Duration = Duration::from_nanos(2);
const _: () = assert!(bits_for_counts(2) >= 2 && bits_for_counts(1) == 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tick_zero_lies_in_window_one_whatever_the_phase() {
        for phase in [0, 1, 99, 100, 101, u64::MAX] {
            let windows = Windows::of(100, Duration::from_nanos(phase));
            assert_eq!(windows.number(Tick::ZERO), 1);
        }
    }

    #[test]
    fn a_window_ends_where_the_next_begins() {
        let windows = Windows::of(100, Duration::from_nanos(30));
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
            let windows = Windows::of(length, Duration::from_nanos(phase));
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
        let windows = Windows::of(1 << 58, Duration::ZERO);
        let last = windows.number(Tick::MAX);
        assert!(windows.tick(last, 0).is_some());
        assert_eq!(windows.tick(last + 1, 0), None);
        assert!(last.leading_zeros() > bits_for_counts(1 << 58));
    }
}
