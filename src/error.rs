//! Why a configuration was refused: each error names the value, the range and the fix.

use crate::algorithm::Algorithm;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// A configuration that cannot work, refused when it is built.
///
/// ```
/// use tollgate::{Quota, SingleLimiter};
///
/// let refused = SingleLimiter::builder(Quota::per_second(5_000_000_000)).build().unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "limit 5000000000 per 1s is above 2 per nanosecond; allowed: 1 to 2000000000 per 1s; \
///      count in larger units, kilobytes instead of bytes for example"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A limit of zero would deny everything.
    ZeroLimit,
    /// A period of zero gives no rate.
    ZeroPeriod,
    /// A burst of zero would deny everything.
    ZeroBurst,
    /// The period is longer than any that makes sense.
    PeriodTooLong {
        /// The period that was refused.
        period: Duration,
        /// The longest allowed.
        most: Duration,
    },
    /// The period is too short for the algorithm's word.
    PeriodTooShort {
        /// The algorithm that refused it.
        algorithm: Algorithm,
        /// The period that was refused.
        period: Duration,
        /// The shortest allowed.
        least: Duration,
    },
    /// The rate is above what ticks can express.
    RateTooHigh {
        /// The limit that was refused.
        limit: u64,
        /// Its period.
        period: Duration,
        /// The largest limit allowed for that period.
        most: u64,
    },
    /// The burst is more than 2^61 grains, which take 36 to 73 years to refill.
    BurstTooLarge {
        /// The burst that was refused.
        burst: u64,
        /// The largest allowed at this rate.
        most: u64,
    },
    /// A burst was given to an algorithm that has none.
    BurstOfWindow {
        /// The algorithm.
        algorithm: Algorithm,
        /// The burst that was given.
        burst: u64,
    },
    /// The limit does not fit into the word beside the window's number.
    LimitTooLarge {
        /// The algorithm that refused it.
        algorithm: Algorithm,
        /// The limit that was refused.
        limit: u64,
        /// The window.
        period: Duration,
        /// The largest limit allowed for that window.
        most: u64,
    },
    /// A log of so many admissions takes too much memory.
    LogTooLarge {
        /// The limit that was refused.
        limit: u64,
        /// The largest allowed.
        most: u64,
    },
    /// The algorithm's state does not fit the word that a table has for each key.
    NotPacked {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// A table must have room for at least one key, and must fit into memory.
    MaxKeys {
        /// The number that was refused.
        max_keys: usize,
        /// The largest allowed.
        most: usize,
    },
    /// The system refused the memory that the limiter needs to begin with.
    OutOfMemory {
        /// The bytes that were asked for.
        bytes: u64,
    },
    /// Only windows have boundaries to align.
    AlignOfBucket {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// The interval of a sweeper's sweeps is out of range.
    SweepInterval {
        /// The interval that was refused.
        every: Duration,
        /// The shortest allowed.
        least: Duration,
        /// The longest allowed.
        most: Duration,
    },
    /// The system refused to start the thread of a sweeper.
    NoThread,
    /// Quotas can't be changed just now: there is no memory for the next table.
    NotNow {
        /// The bytes that the limiter takes.
        bytes: usize,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ZeroLimit => write!(
                f,
                "limit 0 would deny every request; allowed: 1 and more; to close a resource, refuse \
                 its requests before they reach the limiter"
            ),
            Self::ZeroPeriod => write!(
                f,
                "period 0 gives no rate; allowed: 1ns and more; `Quota::per_second(n)` has a period \
                 of one second"
            ),
            Self::ZeroBurst => write!(
                f,
                "burst 0 would deny every request; allowed: 1 and more; leave the burst out for one \
                 as large as the limit"
            ),
            Self::PeriodTooLong { period, most } => write!(
                f,
                "period {period:?} is too long; allowed: 1ns to {most:?}; choose a shorter period \
                 with a smaller limit"
            ),
            Self::PeriodTooShort { algorithm, period, least } => write!(
                f,
                "period {period:?} is too short for a {algorithm}; allowed: {least:?} and more; \
                 choose a longer period with a larger limit, or a token-bucket"
            ),
            Self::RateTooHigh { limit, period, most } => write!(
                f,
                "limit {limit} per {period:?} is above 2 per nanosecond; allowed: 1 to {most} per \
                 {period:?}; count in larger units, kilobytes instead of bytes for example"
            ),
            Self::BurstTooLarge { burst, most } => write!(
                f,
                "burst {burst} takes decades to refill at this rate; allowed: 1 to {most}; choose a \
                 smaller burst or a higher rate"
            ),
            Self::BurstOfWindow { algorithm, burst } => write!(
                f,
                "burst {burst} has no meaning for a {algorithm}, which admits its whole limit at \
                 once; allowed: no burst; leave it out, or choose a token-bucket or a leaky-bucket"
            ),
            Self::LimitTooLarge { algorithm, limit, period, most } => write!(
                f,
                "limit {limit} does not fit the word of a {algorithm} of {period:?}; allowed: 1 to \
                 {most}; choose a shorter period with a smaller limit, count in larger units, or choose \
                 a token-bucket"
            ),
            Self::LogTooLarge { limit, most } => write!(
                f,
                "limit {limit} is too large for a sliding-log, which keeps each admission; allowed: 1 to \
                 {most}; count in larger units, or choose a sliding-window, which keeps two counts"
            ),
            Self::NotPacked { algorithm } => write!(
                f,
                "the state of a {algorithm} does not fit the word that a table has for a key; allowed: {}; \
                 keep exact keys (`exact_keys()` on the builder), or use a `SingleLimiter` for one resource",
                Algorithm::PACKED.map(|algorithm| algorithm.to_string()).join(", ")
            ),
            Self::MaxKeys { max_keys, most } => write!(
                f,
                "max_keys {max_keys} is out of range; allowed: 1 to {most}; a key takes 24 to 32 bytes, \
                 four times that while the table turns over, and exact keys some 125 bytes and more"
            ),
            Self::OutOfMemory { bytes } => {
                write!(f, "the system refused {bytes} bytes; free some memory, or raise the process's limit")
            }
            Self::AlignOfBucket { algorithm } => write!(
                f,
                "align has no meaning for a {algorithm}, which has no boundaries; leave it out, or \
                 choose a fixed-window or a sliding-window"
            ),
            Self::SweepInterval { every, least, most } => write!(
                f,
                "a sweep every {every:?} is out of range; allowed: {least:?} to {most:?}; one a minute \
                 suits most services"
            ),
            Self::NoThread => write!(
                f,
                "the system refused a thread; raise the limit of threads, or do without: use \
                 `Limiter::sweep` instead of a sweeper"
            ),
            Self::NotNow { bytes } => write!(
                f,
                "the quota was not changed: the limiter takes {bytes} bytes already, some of which wait for a \
                 thread that was stopped in a check, and no memory is left for the next table; try again \
                 later, or use exact keys"
            ),
        }
    }
}

impl Error for ConfigError {}
