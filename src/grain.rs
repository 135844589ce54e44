//! Measures time in grains of a quota, so that one token is a whole number of grains.
//!
//! A token's emission interval, `period / limit`, is a rational number. At 150 million tokens a
//! second, for example, the interval is 6.67 ns. Rounding it down to 6 ns would make the rate 11 %
//! too high. A bucket therefore counts *grains* rather than nanoseconds. An interval is divided
//! into the smallest number of equal grains that are at most a nanosecond long. (An interval
//! shorter than a nanosecond is one grain.) Therefore:
//!
//! - A token is exactly `per_token` grains, so adding costs accumulates no error.
//! - A nanosecond is `per_nano` grains. This number is between 1 and 2, and is stored as a 62-bit
//!   fixed-point fraction, rounded up. Its relative error is below 2^-62, far less than the 1e-6
//!   that promise 8 requires.
//! - If the interval is a whole number of nanoseconds, a grain *is* a nanosecond and all counts are
//!   exact.
//!
//! `per_nano` is rounded up, and the grain of `now` is rounded down. For any two times `a <= b`,
//! the difference `at(b) - at(a)` is at least the number of whole grains between them, and exceeds
//! that number by at most two. While time advances, a bucket is **early by at most two grains (two
//! nanoseconds)**, and **never late**. If time steps back, the rounding has the opposite effect,
//! and the bucket can be late by the same amount.
//!
//! The largest time is 2^61 ns, so a grain count is at most 2^62 + 1. A capacity and a debt
//! together add at most 2^61 grains, so an arrival time stays below 2^63 and fits into the 63 bits
//! of a word.

use crate::error::Refused;
use crate::quota::Quota;
use crate::time::Tick;

/// The number of fraction bits in `per_nano`.
const FRACTION: u32 = 62;

/// The value of `per_nano` if a grain is a nanosecond.
const ONE: u64 = 1 << FRACTION;

/// The maximum number of grains that a bucket may contain.
const MAX_CAPACITY: u64 = 1 << 61;

/// Relates the grains of a quota to nanoseconds and tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grain {
    /// Grains per nanosecond, from 1 to 2, times 2^62.
    per_nano: u64,
    /// Grains per token.
    per_token: u64,
}

impl Grain {
    pub(crate) fn new(quota: Quota) -> Result<Self, Refused> {
        let (limit, period) = quota.rate()?;
        // There are at most two tokens per nanosecond, so `per_nano` is at most 2.
        let most = 2 * period;
        if limit > most {
            return Err(Refused::RateTooHigh { tokens: limit, period: quota.period(), most });
        }
        let per_token = period.div_ceil(limit);
        let grains_per_period = u128::from(per_token) * u128::from(limit);
        let per_nano = (grains_per_period << FRACTION).div_ceil(u128::from(period));
        debug_assert!((u128::from(ONE)..=2 * u128::from(ONE)).contains(&per_nano));
        // The cast is lossless because of the assertion above.
        #[allow(clippy::cast_possible_truncation)]
        Ok(Self { per_nano: per_nano as u64, per_token })
    }

    /// Returns the capacity in grains for `tokens` tokens.
    pub(crate) fn capacity(self, tokens: u64) -> Result<u64, Refused> {
        let most = MAX_CAPACITY / self.per_token;
        match tokens {
            0 => Err(Refused::ZeroBurst),
            1.. if tokens > most => Err(Refused::BurstTooLarge { burst: tokens, most }),
            _ => Ok(tokens * self.per_token),
        }
    }

    /// Converts a debt of `tokens` tokens to grains. Returns an error if the debt and a capacity of
    /// `capacity` grains together are too large.
    pub(crate) fn debt(self, tokens: u64, capacity: u64) -> Result<u64, Refused> {
        let most = (MAX_CAPACITY - capacity) / self.per_token;
        if tokens > most {
            return Err(Refused::DebtTooLarge { debt: tokens, most });
        }
        Ok(tokens * self.per_token)
    }

    /// Returns the grain that contains `now`. Grains count from 1, so that no grain has the value
    /// of a fresh word.
    #[inline]
    pub(crate) fn at(self, now: Tick) -> u64 {
        let grains = (u128::from(now.as_nanos()) * u128::from(self.per_nano)) >> FRACTION;
        // The value is at most 2^61 * 2.
        #[allow(clippy::cast_possible_truncation)]
        let grains = grains as u64;
        grains + 1
    }

    /// Returns the first tick that lies in `grain` or in a later grain, or `None` if that tick is
    /// after [`Tick::MAX`].
    #[inline]
    pub(crate) fn first_tick(self, grain: u64) -> Option<Tick> {
        let grains = grain.saturating_sub(1);
        let nanos = if self.per_nano == ONE {
            u128::from(grains)
        } else {
            (u128::from(grains) << FRACTION).div_ceil(u128::from(self.per_nano))
        };
        if nanos > u128::from(Tick::MAX.as_nanos()) {
            return None;
        }
        // Checked above.
        #[allow(clippy::cast_possible_truncation)]
        Some(Tick::from_nanos(nanos as u64))
    }

    /// Returns the nanoseconds from `now` until the first tick that lies in `grain` or in a later
    /// grain. Returns 0 if that tick has passed, and `None` if it is after [`Tick::MAX`].
    #[inline]
    pub(crate) fn nanos_until(self, grain: u64, now: Tick) -> Option<u64> {
        self.first_tick(grain).map(|then| then.as_nanos().saturating_sub(now.as_nanos()))
    }

    /// Converts `tokens`, which must not exceed the capacity, to grains.
    #[inline]
    pub(crate) fn of_tokens(self, tokens: u64) -> u64 {
        tokens * self.per_token
    }

    /// Converts `grains`, measured in the grains of `before`, to the grains of `self` that
    /// represent the same number of tokens. The result is rounded up. Returns `u64::MAX` if the
    /// result does not fit.
    pub(crate) fn convert(self, grains: u64, before: Self) -> u64 {
        let tokens_by_both = u128::from(grains) * u128::from(self.per_token);
        tokens_by_both.div_ceil(u128::from(before.per_token)).try_into().unwrap_or(u64::MAX)
    }

    /// Returns the number of whole tokens in `grains`.
    #[inline]
    pub(crate) fn tokens_in(self, grains: u64) -> u64 {
        grains / self.per_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn any_grain() -> impl Strategy<Value = Grain> {
        let period = prop_oneof![1..=1_000_000_000_u64, 1..=2_592_000_000_000_000_u64];
        period
            .prop_flat_map(|period| (1..=2 * period, Just(period)))
            .prop_map(|(limit, period)| Grain::new(Quota::new(limit, Duration::from_nanos(period))).unwrap())
    }

    fn any_tick() -> impl Strategy<Value = Tick> {
        prop_oneof![0..=1_000_000_u64, 0..=Tick::MAX.as_nanos()].prop_map(Tick::from_nanos)
    }

    proptest! {
        #[test]
        fn first_tick_is_the_first_and_the_one_before_is_not(grain in any_grain(), now in any_tick()) {
            let here = grain.at(now);
            for target in [here, here + 1, here.saturating_sub(1).max(1)] {
                if let Some(tick) = grain.first_tick(target) {
                    prop_assert!(grain.at(tick) >= target);
                    if let Some(before) = tick.as_nanos().checked_sub(1) {
                        prop_assert!(grain.at(Tick::from_nanos(before)) < target);
                    }
                } else {
                    prop_assert!(grain.at(Tick::MAX) < target);
                }
            }
        }

        #[test]
        fn time_in_grains_is_never_late_and_at_most_two_grains_early(
            limit in 1..=2_500_000_000_u64, a in any_tick(), span in 0..=(1_u64 << 55)
        ) {
            let period = 2_000_000_000_u64;
            let grain = Grain::new(Quota::new(limit, Duration::from_nanos(period))).unwrap();
            let b = a + Duration::from_nanos(span);
            let elapsed = u128::from(b.as_nanos() - a.as_nanos());
            let exact = elapsed * u128::from(limit) * u128::from(grain.per_token);
            let counted = u128::from(grain.at(b) - grain.at(a));
            prop_assert!(counted >= exact / u128::from(period));
            prop_assert!(counted * u128::from(period) <= exact + 2 * u128::from(period));
        }
    }

    #[test]
    fn whole_intervals_are_counted_in_nanoseconds() {
        for limit in [1, 2, 100, 1_000_000_000] {
            let grain = Grain::new(Quota::per_second(limit)).unwrap();
            assert_eq!(grain.per_nano, ONE);
            assert_eq!(grain.per_token, 1_000_000_000 / limit);
        }
    }

    #[test]
    fn the_last_tick_overflows_nothing_at_any_rate() {
        for limit in [1, 7, 1_000_000_007, 1_999_999_999, 2_000_000_000] {
            let grain = Grain::new(Quota::per_second(limit)).unwrap();
            assert!(grain.at(Tick::MAX) <= (1 << 62) + 1);
            assert!(grain.at(Tick::MAX) >= 1 << 61);
        }
    }
}
