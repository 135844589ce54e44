//! The quota that a limiter enforces: tokens, period and burst.

mod text;

use crate::error::{ParseError, Refused};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A rate of `tokens` per `period`, and a capacity: the maximum number of tokens that can be taken
/// at once.
///
/// A request takes as many tokens as its cost, which is one by default. A quota is plain data. The
/// builder of a limiter checks whether the algorithm can enforce the quota.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Quota;
///
/// // A hundred a second on average, in bursts of up to twenty.
/// let quota = Quota::per_second(100).burst(20);
/// // Five in a minute, up to all five at once.
/// let login = Quota::new(5, Duration::from_secs(60));
///
/// assert_eq!("100/s burst 20".parse(), Ok(quota));
/// assert_eq!(login.to_string(), "5/min");
/// assert_eq!((quota.capacity(), login.capacity()), (20, 5));
/// ```
///
/// # Burst
///
/// If no [`burst`](Self::burst) is set, the capacity is the number of tokens per period. A full
/// bucket admits all of these tokens at once, plus the tokens that refill in the meantime. For
/// example, `per_second(5)` admits 9 within the first second, and 5 in each following second.
/// `per_second(5).burst(1)` admits one every 200 ms, and thus 5 a second. A window admits the
/// tokens of one period at any time within the window.
///
/// # Text
///
/// The text of a quota consists of `tokens/period`, then optionally `burst n`, then optionally
/// [`strict`](Self::strict). A period is a unit, optionally with a number in front: `100/s`,
/// `5/10s`, `1000/h burst 50`, `100/min strict`. The units are `ns`, `us`, `ms`, `s` (`sec`,
/// `second`), `min` (`m`, `minute`), `h` (`hr`, `hour`) and `d` (`day`). Words may have a plural
/// `s`. Numbers are whole, so half a token a second is `1/2s`.
///
/// To write several quotas in one text, separate them by commas; see
/// [`parse_list`](Self::parse_list). With the feature `serde`, a quota is serialized as its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    tokens: u64,
    period: Duration,
    burst: Option<u64>,
}

/// A rule, together with the quota that the rule enforces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enforced<R> {
    pub(crate) rule: R,
    pub(crate) quota: Quota,
}

impl Quota {
    /// The longest period: ten years of 365 days.
    pub const MAX_PERIOD: Duration = Duration::from_secs(3650 * 24 * 3600);

    /// Creates a quota of `tokens` per `period`.
    ///
    /// The builder of a limiter checks that the quota has at least 1 token, and that the period is
    /// from 1 ns to [`MAX_PERIOD`](Self::MAX_PERIOD).
    ///
    /// The default burst is `tokens`, so a full token bucket admits up to `2 * tokens - 1` in the
    /// first period (see [Burst](Self#burst)).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let quota = Quota::new(4, Duration::from_secs(10));
    /// # let clock = ManualClock::new();
    /// let limiter = SingleLimiter::builder(quota).clock(&clock).build()?;
    /// // A request every 10 ms, for one period.
    /// let mut admitted = 0;
    /// for _ in 0..1_000 {
    ///     admitted += limiter.check().charged();
    ///     clock.advance(Duration::from_millis(10));
    /// }
    /// assert_eq!((quota.capacity(), admitted), (4, 7));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub const fn new(tokens: u64, period: Duration) -> Self {
        Self { tokens, period, burst: None }
    }

    /// Creates a quota of `tokens` in each second (not one token per `tokens` seconds).
    ///
    /// The default burst is `tokens`, so a full token bucket admits up to `2 * tokens - 1` in the
    /// first period (see [Burst](Self#burst)).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let quota = Quota::per_second(5);
    /// # let clock = ManualClock::new();
    /// let limiter = SingleLimiter::builder(quota).clock(&clock).build()?;
    /// let mut admitted = 0;
    /// for _ in 0..1_000 {
    ///     admitted += limiter.check().charged();
    ///     clock.advance(Duration::from_millis(1)); // a thousandth of a second
    /// }
    /// assert_eq!((quota.capacity(), admitted), (5, 9));
    /// assert_eq!("5/s".parse(), Ok(quota));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub const fn per_second(tokens: u64) -> Self {
        Self::new(tokens, Duration::from_secs(1))
    }

    /// Creates a quota of `tokens` in each minute.
    ///
    /// The default burst is `tokens`, so a full token bucket admits up to `2 * tokens - 1` in the
    /// first period (see [Burst](Self#burst)).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let quota = Quota::per_minute(60);
    /// # let clock = ManualClock::new();
    /// let limiter = SingleLimiter::builder(quota).clock(&clock).build()?;
    /// let mut admitted = 0;
    /// for _ in 0..1_000 {
    ///     admitted += limiter.check().charged();
    ///     clock.advance(Duration::from_millis(60)); // a thousandth of a minute
    /// }
    /// assert_eq!((quota.capacity(), admitted), (60, 119));
    /// assert_eq!("60/min".parse(), Ok(quota));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub const fn per_minute(tokens: u64) -> Self {
        Self::new(tokens, Duration::from_secs(60))
    }

    /// Creates a quota of `tokens` in each hour.
    ///
    /// The default burst is `tokens`, so a full token bucket admits up to `2 * tokens - 1` in the
    /// first period (see [Burst](Self#burst)).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let quota = Quota::per_hour(3);
    /// # let clock = ManualClock::new();
    /// let limiter = SingleLimiter::builder(quota).clock(&clock).build()?;
    /// let mut admitted = 0;
    /// for _ in 0..1_000 {
    ///     admitted += limiter.check().charged();
    ///     clock.advance(Duration::from_millis(3_600)); // a thousandth of an hour
    /// }
    /// assert_eq!((quota.capacity(), admitted), (3, 5));
    /// assert_eq!("3/h".parse(), Ok(quota));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub const fn per_hour(tokens: u64) -> Self {
        Self::new(tokens, Duration::from_secs(3600))
    }

    /// Creates a quota of `tokens` in each day of 24 hours.
    ///
    /// The default burst is `tokens`, so a full token bucket admits up to `2 * tokens - 1` in the
    /// first period (see [Burst](Self#burst)).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let quota = Quota::per_day(10);
    /// # let clock = ManualClock::new();
    /// let limiter = SingleLimiter::builder(quota).clock(&clock).build()?;
    /// let mut admitted = 0;
    /// for _ in 0..1_000 {
    ///     admitted += limiter.check().charged();
    ///     clock.advance(Duration::from_millis(86_400)); // a thousandth of a day
    /// }
    /// assert_eq!((quota.capacity(), admitted), (10, 19));
    /// assert_eq!("10/d".parse(), Ok(quota));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub const fn per_day(tokens: u64) -> Self {
        Self::new(tokens, Duration::from_secs(24 * 3600))
    }

    /// Sets the burst, that is, the capacity of a bucket. The burst must be at least 1. The rate
    /// does not change.
    ///
    /// `burst(1)` spaces requests evenly. Windows and logs do not support a burst. If one is set,
    /// building such a limiter returns an error.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let spaced = Quota::per_second(5).burst(1);
    /// # let clock = ManualClock::new();
    /// let limiter = SingleLimiter::builder(spaced).clock(&clock).build()?;
    /// assert!(limiter.check().is_allowed());
    /// assert_eq!(limiter.check().retry_after(), Some(Duration::from_millis(200)));
    /// assert_eq!((spaced.capacity(), spaced.explicit_burst()), (1, Some(1)));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[must_use]
    pub const fn burst(self, burst: u64) -> Self {
        Self { burst: Some(burst), ..self }
    }

    /// Turns the quota into a promise: an interval of one period never admits more tokens than the
    /// quota states.
    ///
    /// Without `strict`, a full bucket refills while its tokens are spent. With the default burst,
    /// it therefore admits up to `2 * tokens - 1` in one period.
    ///
    /// The strict quota of `n` tokens is a bucket with a burst of `b` and a rate of `n - b`. The
    /// burst and the tokens that refill in one period therefore add up to `n`. Here `b` is the
    /// configured burst, which must be below `n`. The default is a tenth of `n`, or one token if
    /// `n` is below 10. (A strict quota of one token has both a burst and a rate of one.)
    ///
    /// The result is an ordinary quota for any algorithm that supports a burst, and
    /// [`tokens`](Self::tokens) returns its lower rate. A steady client receives that rate, which
    /// is 90 of 100 by default. The exact sliding log keeps the same promise at the full rate, but
    /// requires more memory.
    ///
    /// A burst of `n` or more leaves a rate of 0 tokens, which no limiter accepts. (For one token,
    /// this applies to a burst of 2 or more.)
    ///
    /// ```
    /// # use tollgate::Quota;
    /// let quota = Quota::per_minute(100).strict();
    /// assert_eq!(quota, Quota::per_minute(90).burst(10));
    /// assert_eq!("100/min burst 40 strict".parse(), Ok(Quota::per_minute(60).burst(40)));
    ///
    /// let too_large = Quota::per_minute(100).burst(120).strict();
    /// let refused = tollgate::SingleLimiter::builder(too_large).build().unwrap_err().to_string();
    /// assert!(refused.starts_with("burst 120 beside 0 tokens would never refill"), "{refused}");
    /// ```
    #[must_use]
    pub const fn strict(self) -> Self {
        let burst = match (self.burst, self.tokens / 10) {
            (Some(burst), _) => burst,
            (None, 0) => 1,
            (None, tenth) => tenth,
        };
        let tokens = match (self.tokens, burst) {
            (1, 1) => 1,
            (tokens, burst) => tokens.saturating_sub(burst),
        };
        Self { tokens, burst: Some(burst), ..self }
    }

    /// Returns the number of tokens per period.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!(Quota::per_second(100).burst(20).tokens(), 100);
    /// ```
    pub const fn tokens(self) -> u64 {
        self.tokens
    }

    /// Returns the period.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!(Quota::per_hour(1).period().as_secs(), 3600);
    /// ```
    pub const fn period(self) -> Duration {
        self.period
    }

    /// Returns the maximum number of tokens that can be taken at once, as in
    /// [`Decision::capacity`](crate::Decision::capacity).
    ///
    /// This is the burst, or the number of tokens per period if no burst was set.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let quota = Quota::per_second(100).burst(20);
    /// let limiter = SingleLimiter::builder(quota).build()?;
    /// assert_eq!((quota.capacity(), limiter.peek().capacity()), (20, 20));
    /// assert_eq!(Quota::per_second(100).capacity(), 100);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub const fn capacity(self) -> u64 {
        match self.burst {
            Some(burst) => burst,
            None => self.tokens,
        }
    }

    /// Returns the configured burst, or `None` if no burst was set.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!(Quota::per_second(100).explicit_burst(), None);
    /// ```
    pub const fn explicit_burst(self) -> Option<u64> {
        self.burst
    }

    /// Parses one or more quotas, separated by commas.
    ///
    /// The quotas in a list are several limits on the same resource. Charge them together with
    /// [`check_all`](crate::check_all).
    ///
    /// # Errors
    ///
    /// Returns a [`ParseError`] that names the quota, the position of the error, and what is
    /// allowed there.
    ///
    /// ```
    /// use tollgate::{Charge, Quota, SingleLimiter, check_all};
    ///
    /// let quotas = Quota::parse_list("10/s, 12/d")?;
    /// assert_eq!(quotas, [Quota::per_second(10), Quota::per_day(12)]);
    ///
    /// let limiters: Result<Vec<_>, _> =
    ///     quotas.into_iter().map(|quota| SingleLimiter::builder(quota).build()).collect();
    /// let limiters = limiters?;
    /// let ask = |cost| {
    ///     let charges = limiters.iter().map(|limiter| Charge::new(limiter, cost));
    ///     let mut charges: Vec<_> = charges.collect();
    ///     check_all(&mut charges)
    /// };
    /// assert!(ask(10).is_ok());
    /// assert_eq!(ask(5).unwrap_err().index(), Some(1), "a day's limit binds");
    ///
    /// let refused = Quota::parse_list("10/s, 12/fortnight").unwrap_err().to_string();
    /// assert!(refused.contains("at character 10, in quota 2"), "{refused}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ParseError> {
        Ok(text::parse_list(text)?.into_iter().map(Self::of_text).collect())
    }

    /// Creates the quota described by a parsed text.
    const fn of_text(text::Parts { tokens, period, burst, is_strict }: text::Parts) -> Self {
        let quota = Self { tokens, period, burst };
        if is_strict { quota.strict() } else { quota }
    }

    /// Returns the tokens, and the period in nanoseconds, if both are in range.
    pub(crate) fn rate(self) -> Result<(u64, u64), Refused> {
        match (self.tokens, self.burst) {
            (0, None | Some(0)) => return Err(Refused::ZeroTokens),
            (0, Some(burst)) => return Err(Refused::NoRefill { burst }),
            _ => {}
        }
        if self.period.is_zero() {
            return Err(Refused::ZeroPeriod);
        }
        match u64::try_from(self.period.as_nanos()) {
            Ok(nanos) if self.period <= Self::MAX_PERIOD => Ok((self.tokens, nanos)),
            _ => Err(Refused::PeriodTooLong { period: self.period, most: Self::MAX_PERIOD }),
        }
    }
}

impl FromStr for Quota {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::of_text(text::parse(text)?))
    }
}

impl fmt::Display for Quota {
    /// Writes the quota as text. Parsing this text returns the same quota, provided that a limiter
    /// accepts the quota's period.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.period.as_nanos();
        let (name, unit) = text::UNITS
            .into_iter()
            .rev()
            .find(|&(_, unit)| nanos >= u128::from(unit) && nanos.is_multiple_of(u128::from(unit)))
            .unwrap_or(text::UNITS[0]);
        write!(f, "{}/", self.tokens)?;
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
