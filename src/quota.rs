//! How much, per what period, with what burst: the quantity a limiter enforces.

mod text;

pub use text::QuotaParseError;

use crate::error::ConfigError;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A rate: `limit` tokens per `period`, with a burst for the algorithms that have one.
///
/// A request takes one token, or as many as its cost. A quota is plain data; whether an algorithm can
/// enforce it is checked when a limiter is built.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// // A hundred a second on average, at most twenty at once.
/// let quota = Quota::per_second(100).burst(20);
/// // Five in a minute, up to all five at once.
/// let login = Quota::new(5, Duration::from_secs(60));
///
/// assert_eq!("100/s burst 20".parse(), Ok(quota));
/// assert_eq!(login.to_string(), "5/min");
/// ```
///
/// # Text
///
/// `limit/period`, then optionally `burst n`. A period is a unit with or without a number before it:
/// `100/s`, `5/10s`, `1000/h burst 50`. Units: `ns`, `us`, `ms`, `s` (`sec`, `second`), `min`
/// (`m`, `minute`), `h` (`hr`, `hour`), `d` (`day`); a plural `s` is allowed on the words. Numbers
/// are whole; half a token a second is `1/2s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    limit: u64,
    period: Duration,
    burst: Option<u64>,
}

/// A rule, and the quota that it enforces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enforced<R> {
    pub(crate) rule: R,
    pub(crate) quota: Quota,
}

impl Quota {
    /// The longest period: ten years of 365 days.
    pub const MAX_PERIOD: Duration = Duration::from_secs(3650 * 24 * 3600);

    /// `limit` tokens per `period`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::Quota;
    /// assert_eq!(Quota::new(60, Duration::from_secs(60)), Quota::per_minute(60));
    /// ```
    pub const fn new(limit: u64, period: Duration) -> Self {
        Self { limit, period, burst: None }
    }

    /// `limit` tokens in each second. Not one token per `limit` seconds.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!("3/s".parse(), Ok(Quota::per_second(3)));
    /// ```
    pub const fn per_second(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// `limit` tokens in each minute.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!("3/min".parse(), Ok(Quota::per_minute(3)));
    /// ```
    pub const fn per_minute(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// `limit` tokens in each hour.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!("3/h".parse(), Ok(Quota::per_hour(3)));
    /// ```
    pub const fn per_hour(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(3600))
    }

    /// `limit` tokens in each day of 24 hours.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!("3/d".parse(), Ok(Quota::per_day(3)));
    /// ```
    pub const fn per_day(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(24 * 3600))
    }

    /// The same rate with at most `burst` tokens at once: the capacity of a bucket. Without it, the
    /// capacity is the limit. Windows have no burst and refuse one when they are built.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!(Quota::per_second(100).burst(20).explicit_burst(), Some(20));
    /// ```
    #[must_use]
    pub const fn burst(self, burst: u64) -> Self {
        Self { burst: Some(burst), ..self }
    }

    /// The same rate without a burst of its own.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!(Quota::per_second(9).burst(2).without_burst(), Quota::per_second(9));
    /// ```
    #[must_use]
    pub const fn without_burst(self) -> Self {
        Self { burst: None, ..self }
    }

    /// Tokens per period.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!(Quota::per_second(100).tokens(), 100);
    /// ```
    pub const fn limit(self) -> u64 {
        self.limit
    }

    /// The period.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!(Quota::per_hour(1).period().as_secs(), 3600);
    /// ```
    pub const fn period(self) -> Duration {
        self.period
    }

    /// The burst that was asked for, if one was.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!(Quota::per_second(100).explicit_burst(), None);
    /// ```
    pub const fn explicit_burst(self) -> Option<u64> {
        self.burst
    }

    /// Limit and period in nanoseconds, if both are in range.
    pub(crate) fn rate(self) -> Result<(u64, u64), ConfigError> {
        if self.limit == 0 {
            return Err(ConfigError::ZeroTokens);
        }
        if self.period.is_zero() {
            return Err(ConfigError::ZeroPeriod);
        }
        match u64::try_from(self.period.as_nanos()) {
            Ok(nanos) if self.period <= Self::MAX_PERIOD => Ok((self.limit, nanos)),
            _ => Err(ConfigError::PeriodTooLong { period: self.period, most: Self::MAX_PERIOD }),
        }
    }
}

impl FromStr for Quota {
    type Err = QuotaParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text::Parts { limit, period, burst } = text::parse(text)?;
        Ok(Self { limit, period, burst })
    }
}

impl fmt::Display for Quota {
    /// The text form; parsing it gives the same quota again, if the period is one that a limiter accepts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.period.as_nanos();
        let (name, unit) = text::UNITS
            .into_iter()
            .rev()
            .find(|&(_, unit)| nanos >= u128::from(unit) && nanos.is_multiple_of(u128::from(unit)))
            .unwrap_or(text::UNITS[0]);
        write!(f, "{}/", self.limit)?;
        match nanos / u128::from(unit) {
            1 => write!(f, "{name}")?,
            count => write!(f, "{count}{name}")?,
        }
        match self.burst {
            Some(burst) => write!(f, " burst {burst}"),
            None => Ok(()),
        }
    }
}
