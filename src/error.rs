//! The error types of this crate, one for each kind of call. Each error message names the rejected
//! value, the allowed range and the fix. (A denial is not an error but a
//! [`Decision`](crate::Decision).)

use crate::algorithm::Algorithm;
use std::fmt;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// The error returned when a builder or a [`Sweeper`](crate::Sweeper) refuses a setting.
///
/// The message names the rejected value, the allowed range and the fix.
///
/// ```
/// use tollgate::{Quota, SingleLimiter};
///
/// let refused = SingleLimiter::builder(Quota::per_second(5_000_000_000)).build().unwrap_err();
/// assert_eq!(refused.setting(), "quota");
/// assert_eq!(
///     refused.to_string(),
///     "5000000000 tokens per 1s are above 2 per nanosecond; allowed: 1 to 2000000000 per 1s; \
///      count in larger units, kilobytes instead of bytes for example"
/// );
/// ```
#[derive(Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct ConfigError(Refused);

/// The error returned when a quota or a limit cannot be changed while the limiter is in use. The
/// change did not take effect.
///
/// The message names the rejected value, the allowed range and the fix.
///
/// ```
/// use tollgate::{Quota, SingleLimiter};
///
/// let limiter = SingleLimiter::builder(Quota::per_second(100)).build()?;
/// let refused = limiter.set_quota(Quota::per_second(0)).unwrap_err();
/// assert!(refused.to_string().starts_with("0 tokens would deny every request"));
/// assert!(!refused.is_temporary());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct QuotaError(Refused);

/// The error returned by [`Limiter::pause`](crate::Limiter::pause). The key is not paused.
///
/// The message names the rejected value, the allowed range and the fix.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Quota};
///
/// let limiter = Limiter::<u64>::builder(Quota::per_second(1)).max_keys(2).build()?;
/// let pause = |key| limiter.pause(&key, Duration::from_secs(60));
/// assert!(pause(1).is_ok() && pause(2).is_ok() && pause(1).is_ok());
/// assert_eq!(
///     pause(3).unwrap_err().to_string(),
///     "the key is not paused: as many keys as `max_keys` are paused, or were until less than two \
///      graces ago; allowed: 2 at one time; raise `max_keys`, or pause for a shorter time"
/// );
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct PauseError(Refused);

/// The error returned when a string does not parse as a [`Quota`](crate::Quota), or as the name of
/// a value such as an [`Algorithm`].
///
/// The message names the position, the mistake at that position, and what is allowed there.
///
/// ```
/// use tollgate::Quota;
///
/// let refused = "100/fortnight".parse::<Quota>().unwrap_err();
/// assert_eq!(refused.offset(), Some(4));
/// assert_eq!(
///     refused.to_string(),
///     "invalid quota \"100/fortnight\": at character 5, unknown unit \"fortnight\"; \
///      allowed: ns, us, ms, s, min, h, d, as in 100/s, 5/10s or 1000/h burst 50"
/// );
/// ```
#[derive(Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct ParseError(Refused);

/// The error returned when a saved limiter cannot be loaded.
///
/// ```
/// use tollgate::{Limiter, LoadError, Quota};
///
/// let builder = Limiter::<str>::builder(Quota::per_hour(10));
/// let refused = builder.load(&b"something else"[..]).unwrap_err();
/// assert!(matches!(refused, LoadError::Unusable(_)));
/// assert_eq!(
///     refused.to_string(),
///     "the saved state is unusable: it does not begin with \"tollgate\", so it is not a saved \
///      limiter"
/// );
/// ```
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The saved state could not be read.
    #[error("the saved state cannot be read: {0}")]
    Read(#[source] io::Error),
    /// The saved state was read, but this limiter cannot use it. The text contains the reason: the
    /// state is damaged, truncated, foreign, or from another version; it belongs to another kind of
    /// limiter or to another algorithm; it contains more keys than the limiter may have; or the
    /// hash of the keys has changed.
    #[error("the saved state is unusable: {0}")]
    Unusable(String),
    /// The builder refuses a setting, as `build` would.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl LoadError {
    pub(crate) fn unusable(why: impl fmt::Display) -> Self {
        Self::Unusable(why.to_string())
    }
}

impl LoadError {
    /// Adds the name of the class whose state or setting is refused.
    pub(crate) fn of_class(self, class: &str, refused: impl FnOnce(Refused) -> Refused) -> Self {
        match self {
            Self::Read(error) => Self::Read(error),
            Self::Unusable(why) => Self::Unusable(format!("class {class:?}: {why}")),
            Self::Config(ConfigError(error)) => Self::Config(ConfigError(refused(error))),
        }
    }
}

#[doc(hidden)]
impl From<Refused> for LoadError {
    fn from(refused: Refused) -> Self {
        Self::Config(refused.into())
    }
}

impl ConfigError {
    /// Returns the name of the refused setting. Usually this is the name of a builder method, such
    /// as `"max_keys"`. For the argument from which the builder was created, it is `"quota"` or
    /// `"limit"`. For a sweeper, it is `"sweeper"`.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let refused = Limiter::<String>::builder(Quota::per_hour(1)).max_keys(0).build().unwrap_err();
    /// assert_eq!(refused.setting(), "max_keys");
    /// ```
    pub const fn setting(&self) -> &'static str {
        self.0.setting()
    }

    /// The refused value, with the reason.
    #[cfg(feature = "unstable-rule")]
    pub const fn refused(&self) -> &Refused {
        &self.0
    }
}

impl QuotaError {
    /// Returns true if the limiter can enforce the quota but had no memory for the change. The same
    /// call may then succeed later.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::<String>::builder(Quota::per_hour(1)).build()?;
    /// let refused = limiter.set_quota(Quota::per_hour(5).burst(0)).unwrap_err();
    /// assert!(!refused.is_temporary());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub const fn is_temporary(&self) -> bool {
        matches!(self.0, Refused::QuotaNotChanged { .. })
    }

    /// The refused value, with the reason.
    #[cfg(feature = "unstable-rule")]
    pub const fn refused(&self) -> &Refused {
        &self.0
    }
}

impl ParseError {
    /// Returns the byte offset of the error in the text of a quota or a list of quotas. Returns
    /// `None` if the name of a value was expected instead.
    ///
    /// ```
    /// # use tollgate::Quota;
    /// assert_eq!("100".parse::<Quota>().unwrap_err().offset(), Some(3));
    /// ```
    pub const fn offset(&self) -> Option<usize> {
        match self.0 {
            Refused::InvalidQuota { offset, .. } => Some(offset),
            _ => None,
        }
    }
}

impl From<ParseError> for ConfigError {
    /// Converts the error from parsing a setting.
    ///
    /// ```
    /// # use tollgate::{ConfigError, SingleLimiter};
    /// fn limiter(quota: &str) -> Result<SingleLimiter, ConfigError> {
    ///     SingleLimiter::builder(quota.parse()?).build()
    /// }
    ///
    /// assert_eq!(limiter("5/s").unwrap().quota().tokens(), 5);
    /// assert!(limiter("5 a second").unwrap_err().to_string().starts_with("invalid quota"));
    /// ```
    fn from(error: ParseError) -> Self {
        Self(error.0)
    }
}

impl fmt::Debug for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PauseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Implements conversions from `Refused` to the public errors, which wrap it.
macro_rules! from_refused {
    ($($error:ident),*) => {$(
        #[doc(hidden)]
        impl From<Refused> for $error {
            fn from(refused: Refused) -> Self {
                Self(refused)
            }
        }
    )*};
}

from_refused!(ConfigError, QuotaError, PauseError, ParseError);

/// The reason why a value was refused. Each public error type wraps a `Refused`, and the error type
/// shows which call failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// The quota has no burst and 0 tokens per period, which would deny every request.
    #[error(
        "0 tokens would deny every request; allowed: 1 and more; to close a resource, refuse its requests \
         before they reach the limiter"
    )]
    ZeroTokens,
    /// The quota has a burst and 0 tokens per period, so the burst would never refill. A strict
    /// quota has 0 tokens if its burst was too large.
    #[error(
        "burst {burst} beside 0 tokens would never refill; allowed: 1 token and more; a strict quota takes its \
         burst from its tokens, so choose a burst below them, or leave the burst out"
    )]
    NoRefill {
        /// The burst that would never refill.
        burst: u64,
    },
    /// The period is zero, so the rate is undefined.
    #[error("period 0 gives no rate; allowed: 1ns and more; choose a period of one second, for example")]
    ZeroPeriod,
    /// The burst is zero, which would deny every request.
    #[error(
        "burst 0 would deny every request; allowed: 1 and more; leave the burst out for one as large as \
         the tokens of a period"
    )]
    ZeroBurst,
    /// The algorithm cannot lease tokens to cores.
    #[error(
        "core_leases has no meaning for a {algorithm}, whose tokens are not interchangeable; allowed: with a \
         token-bucket or a leaky-bucket; choose one of them, or leave core_leases out"
    )]
    LeasesUnsupported {
        /// The algorithm that refused it.
        algorithm: Algorithm,
    },
    /// The burst is too small to lease parts of it to each core.
    #[error(
        "burst {burst} is too small for leases to {cores} cores; allowed: {least} and more; choose a larger \
         burst, or leave core_leases out"
    )]
    BurstTooSmallToLease {
        /// The burst that was refused.
        burst: u64,
        /// The number of cores.
        cores: u64,
        /// The smallest allowed burst.
        least: u64,
    },
    /// The period is longer than [`Quota::MAX_PERIOD`](crate::Quota::MAX_PERIOD).
    #[error(
        "period {period:?} is too long; allowed: 1ns to {most:?}; choose a shorter period with fewer tokens"
    )]
    PeriodTooLong {
        /// The period that was refused.
        period: Duration,
        /// The longest allowed period.
        most: Duration,
    },
    /// The period is so short that the window number leaves no bits in the word for counts.
    #[error(
        "period {period:?} is too short for a {algorithm}; allowed: {least:?} and more; choose a longer \
         period with more tokens, or a token-bucket"
    )]
    PeriodTooShort {
        /// The algorithm that refused it.
        algorithm: Algorithm,
        /// The period that was refused.
        period: Duration,
        /// The shortest allowed period.
        least: Duration,
    },
    /// The rate is above 2 tokens per nanosecond, the maximum that ticks can express.
    #[error(
        "{tokens} tokens per {period:?} are above 2 per nanosecond; allowed: 1 to {most} per {period:?}; \
         count in larger units, kilobytes instead of bytes for example"
    )]
    RateTooHigh {
        /// The tokens that were refused.
        tokens: u64,
        /// Their period.
        period: Duration,
        /// The maximum for that period.
        most: u64,
    },
    /// The burst is more than 2^61 grains. Refilling such a burst would take 36 to 73 years.
    #[error(
        "burst {burst} takes decades to refill at this rate; allowed: 1 to {most}; choose a smaller burst \
         or a higher rate"
    )]
    BurstTooLarge {
        /// The burst that was refused.
        burst: u64,
        /// The largest allowed burst at this rate.
        most: u64,
    },
    /// The quota has a burst, but the algorithm does not support one.
    #[error(
        "burst {burst} has no meaning for a {algorithm}, which admits all tokens of a period at once; \
         allowed: no burst; leave it out, or choose a token-bucket or a leaky-bucket"
    )]
    BurstUnsupported {
        /// The algorithm.
        algorithm: Algorithm,
        /// The burst that was given.
        burst: u64,
    },
    /// The token count does not fit into the word, which also contains the window number.
    #[error(
        "{tokens} tokens do not fit the word of a {algorithm} of {period:?}; allowed: 1 to {most}; choose a \
         shorter period with fewer tokens, count in larger units, or choose a token-bucket"
    )]
    TooManyTokens {
        /// The algorithm that refused them.
        algorithm: Algorithm,
        /// The tokens that were refused.
        tokens: u64,
        /// The window.
        period: Duration,
        /// The maximum for that window.
        most: u64,
    },
    /// The limit is too large for a sliding log, which stores each admission in memory.
    #[error(
        "{tokens} tokens are too many for a sliding-log, which keeps each admission; allowed: 1 to {most}; \
         count in larger units, or choose a sliding-window, which keeps two counts"
    )]
    LogTooLarge {
        /// The tokens that were refused.
        tokens: u64,
        /// The largest allowed number of tokens.
        most: u64,
    },
    /// The algorithm's state does not fit into the word that a table stores for each key.
    #[error(
        "the state of a {algorithm} does not fit the word that a table has for a key; allowed: {}; keep \
         exact keys (`exact_keys()` on the builder), or use a `SingleLimiter` for one resource",
        Algorithm::PACKED.map(|algorithm| algorithm.to_string()).join(", ")
    )]
    AlgorithmUnsupported {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// The number of keys is 0, or too large to fit into memory.
    #[error(
        "max_keys {max_keys} is out of range; allowed: 1 to {most}; choose how many keys may be active at \
         once, at 24 to 128 bytes each"
    )]
    MaxKeysOutOfRange {
        /// The number that was refused.
        max_keys: usize,
        /// The largest allowed number.
        most: usize,
    },
    /// The name of a class is empty or too long.
    #[error(
        "invalid class name {class:?} of {} bytes; allowed: 1 to {most} bytes; name a class as your service \
         names the plan",
        class.len()
    )]
    ClassName {
        /// The name that was refused.
        class: String,
        /// The most bytes allowed.
        most: usize,
    },
    /// Two classes have the same name.
    #[error(
        "class {class:?} was given two quotas; allowed: one for each name; leave one out, or give it \
         another name"
    )]
    TwoQuotas {
        /// The name of the classes.
        class: String,
    },
    /// The number of keys is smaller than the sum of the classes' shares.
    #[error(
        "max_keys {max_keys} is too small for the shares of {classes} classes; allowed: {least} and more; \
         raise `max_keys` of the builder, or give classes smaller shares"
    )]
    ClassKeys {
        /// The number of keys that was refused.
        max_keys: usize,
        /// The number of classes, including the default class.
        classes: usize,
        /// The smallest allowed number: the sum of the configured shares, plus one key for each
        /// class without a configured share.
        least: usize,
    },
    /// A setting of a class was refused.
    #[error("class {class:?}: {error}")]
    Class {
        /// The name of the class.
        class: String,
        /// The error of the setting.
        error: Box<Refused>,
    },
    /// The system refused the memory that a new limiter needs.
    #[error("the system refused {bytes} bytes; free some memory, or raise the process's limit")]
    OutOfMemory {
        /// The requested bytes.
        bytes: u64,
    },
    /// The limit on a key's permits in flight is out of range.
    #[error("{limit} in flight is out of range; allowed: 1 to {most}; choose how many may run at once")]
    InFlightOutOfRange {
        /// The limit that was refused.
        limit: u64,
        /// The largest allowed limit.
        most: u64,
    },
    /// The debt and the capacity together do not fit into the word of a key.
    #[error(
        "max_debt {debt} does not fit beside the capacity; allowed: {}; choose a smaller debt, or count in \
         larger units",
        if *most == 0 { "0".to_owned() } else { format!("0 to {most}") }
    )]
    DebtTooLarge {
        /// The debt that was refused.
        debt: u64,
        /// The largest allowed debt for the quota.
        most: u64,
    },
    /// A debt was set, but the algorithm does not support one.
    #[error(
        "max_debt {debt} has no meaning for a {algorithm}, which holds no more than its limit in any period; \
         allowed: 0; leave it out, or choose a token-bucket"
    )]
    DebtUnsupported {
        /// The algorithm.
        algorithm: Algorithm,
        /// The debt that was refused.
        debt: u64,
    },
    /// A window alignment was set, but the algorithm has no windows.
    #[error(
        "align has no meaning for a {algorithm}, which has no boundaries; leave it out, or choose a \
         fixed-window or a sliding-window"
    )]
    AlignUnsupported {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// The interval of a sweeper is out of range.
    #[error(
        "a sweep every {every:?} is out of range; allowed: {least:?} to {most:?}; one a minute suits most \
         services"
    )]
    SweepIntervalOutOfRange {
        /// The interval that was refused.
        every: Duration,
        /// The shortest allowed interval.
        least: Duration,
        /// The longest allowed interval.
        most: Duration,
    },
    /// The system refused to start the thread of a sweeper.
    #[error(
        "the system refused to start a thread; raise the limit of threads, or call `Limiter::sweep` instead \
         of starting a `Sweeper`"
    )]
    NoThread,
    /// The quota cannot be changed now, because there is no memory for the new table.
    #[error(
        "the quota was not changed: the limiter already takes {bytes} bytes, some of which cannot be freed \
         while a thread is stopped in a check, and no memory is left for the next table; try again later"
    )]
    QuotaNotChanged {
        /// The number of bytes that the limiter occupies.
        bytes: usize,
    },
    /// The maximum number of keys is paused, or was paused until recently.
    #[error(
        "the key is not paused: as many keys as `max_keys` are paused, or were until less than two graces \
         ago; allowed: {most} at one time; raise `max_keys`, or pause for a shorter time"
    )]
    TooManyPauses {
        /// The maximum number of keys that may be paused at one time.
        most: usize,
    },
    /// The penalty is 0, which would pause no key.
    #[error(
        "penalty 0 would pause no key; allowed: 1ns and more; leave the penalty out, or choose a minute, for \
         example"
    )]
    NoPenalty,
    /// A string cannot be parsed as a quota, or as a list of quotas.
    #[error(
        "invalid quota {text:?}: at character {}, {wrong}; allowed: {allowed}, as in 100/s, 5/10s or \
         1000/h burst 50",
        text[..*offset].chars().count() + 1
    )]
    InvalidQuota {
        /// The text that was refused.
        text: String,
        /// The byte offset of the error. If the string ends too early, this is the string's length.
        offset: usize,
        /// The mistake at this position.
        wrong: String,
        /// The strings that are allowed at this position.
        allowed: &'static str,
    },
    /// A string does not name any of the setting's values.
    #[error("unknown {setting} {name:?}; allowed: {allowed}")]
    UnknownName {
        /// The setting.
        setting: &'static str,
        /// The text that was refused.
        name: String,
        /// The names of the setting's values.
        allowed: String,
    },
}

impl Refused {
    /// Returns the name of the refused setting.
    const fn setting(&self) -> &'static str {
        match self {
            Self::ZeroTokens
            | Self::NoRefill { .. }
            | Self::ZeroPeriod
            | Self::ZeroBurst
            | Self::PeriodTooLong { .. }
            | Self::PeriodTooShort { .. }
            | Self::RateTooHigh { .. }
            | Self::BurstTooLarge { .. }
            | Self::BurstUnsupported { .. }
            | Self::TooManyTokens { .. }
            | Self::LogTooLarge { .. }
            | Self::QuotaNotChanged { .. }
            | Self::InvalidQuota { .. } => "quota",
            Self::AlgorithmUnsupported { .. } => "algorithm",
            Self::MaxKeysOutOfRange { .. }
            | Self::ClassKeys { .. }
            | Self::TooManyPauses { .. }
            | Self::OutOfMemory { .. } => "max_keys",
            Self::ClassName { .. } | Self::TwoQuotas { .. } | Self::Class { .. } => "class",
            Self::InFlightOutOfRange { .. } => "limit",
            Self::DebtTooLarge { .. } | Self::DebtUnsupported { .. } => "max_debt",
            Self::AlignUnsupported { .. } => "align",
            Self::LeasesUnsupported { .. } | Self::BurstTooSmallToLease { .. } => "core_leases",
            Self::NoPenalty => "penalty",
            Self::SweepIntervalOutOfRange { .. } | Self::NoThread => "sweeper",
            Self::UnknownName { setting, .. } => setting,
        }
    }
}
