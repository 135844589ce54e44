//! The errors of building a client or a limit.

use std::error::Error;
use std::fmt;
use std::time::Duration;
use tollgate::{Algorithm, ConfigError, Quota};

/// The error of building a shared limit or a client with invalid settings. Nothing has been sent
/// yet.
///
/// ```
/// use tollgate::Quota;
/// use tollgate_redis::{Client, SharedLimiter};
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(10));
/// let refused = limiter.lease(6).build().unwrap_err().to_string();
/// assert_eq!(refused, "invalid lease of 6 tokens: expected 1 to 5 under this quota");
/// # Ok::<(), tollgate_redis::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// The algorithm can't enforce the quota.
    Config(ConfigError),
    /// The period is not a whole number of microseconds, in which the store counts windows and
    /// logs.
    Period {
        /// The period that was refused.
        period: Duration,
    },
    /// The rate and burst of a bucket are together too fine for the store's numbers.
    TooFine {
        /// The quota that was refused.
        quota: Quota,
        /// The largest burst at this rate; 0 if no burst fits.
        most: u64,
    },
    /// The name of the limit is empty or too long.
    Name {
        /// The name that was refused.
        name: String,
        /// The most bytes allowed.
        most: usize,
    },
    /// The deadline is out of range.
    Deadline {
        /// The deadline that was refused.
        deadline: Duration,
        /// The shortest allowed.
        least: Duration,
        /// The longest allowed.
        most: Duration,
    },
    /// How long an attempt to connect may take is out of range.
    ConnectionTimeout {
        /// The time that was refused.
        timeout: Duration,
        /// The shortest allowed.
        least: Duration,
        /// The longest allowed.
        most: Duration,
    },
    /// The size of a lease is out of range.
    Lease {
        /// The number that was refused.
        lease: u64,
        /// The largest allowed; 0 if the quota is too small, or its period too short, for any
        /// lease.
        most: u64,
    },
    /// The algorithm does not support leases. A leaky queue tells each request when its turn is,
    /// which only the store knows.
    LeaseAlgorithm {
        /// The algorithm that was refused.
        algorithm: Algorithm,
    },
    /// The number of unsynchronized tokens is out of range.
    MaxUnsynced {
        /// The number that was refused.
        max_unsynced: u64,
        /// The largest allowed.
        most: u64,
    },
    /// The limit is above what an unsynchronized count can hold.
    UnsyncedLimit {
        /// The limit that was refused.
        limit: u64,
        /// The largest allowed.
        most: u64,
    },
    /// The algorithm does not support unsynchronized counts: only the counts of windows can be
    /// added up.
    UnsyncedAlgorithm {
        /// The algorithm that was refused.
        algorithm: Algorithm,
    },
    /// Both a lease and unsynchronized counts were asked for.
    TwoModes,
    /// The share of the quota is out of range.
    Share {
        /// The share that was refused.
        share: f64,
    },
    /// An address asks for TLS, and this crate was built without its feature `tls`.
    NoTls,
    /// The addresses or other settings of the client are invalid.
    Client {
        /// What is wrong.
        problem: String,
    },
}

impl From<ConfigError> for BuildError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Period { period } => write!(
                f,
                "invalid period {period:?}: expected a whole number of microseconds, in which a shared \
                 store counts"
            ),
            Self::TooFine { quota, most: 0 } => write!(
                f,
                "the rate of quota {quota} is too fine for a shared store: expected a period in whole \
                 microseconds, and at most 4503599627370 tokens in it"
            ),
            Self::TooFine { quota, most } => write!(
                f,
                "quota {quota} is too fine for a shared store, whose numbers have 53 bits: expected a \
                 burst of 1 to {most} at this rate; limit and period with a large common divisor \
                 allow more"
            ),
            Self::Name { name, most } => {
                write!(f, "invalid limit name {name:?} of {} bytes: expected 1 to {most} bytes", name.len())
            }
            Self::Deadline { deadline, least, most } => {
                write!(f, "invalid deadline {deadline:?}: expected {least:?} to {most:?}")
            }
            Self::ConnectionTimeout { timeout, least, most } => {
                write!(f, "invalid connection timeout {timeout:?}: expected {least:?} to {most:?}")
            }
            Self::Lease { lease, most: 0 } => write!(
                f,
                "invalid lease of {lease} tokens: expected a quota with a larger limit or burst, or with a \
                 longer period"
            ),
            Self::Lease { lease, most } => {
                write!(f, "invalid lease of {lease} tokens: expected 1 to {most} under this quota")
            }
            Self::LeaseAlgorithm { algorithm } => write!(
                f,
                "invalid algorithm {algorithm} for a lease: expected token-bucket, leaky-bucket, \
                 fixed-window, sliding-window or sliding-log"
            ),
            Self::MaxUnsynced { max_unsynced, most } => write!(
                f,
                "invalid max_unsynced {max_unsynced}: expected 1 to {most} under this quota"
            ),
            Self::UnsyncedLimit { limit, most } => {
                write!(f, "limit {limit} is too large for max_unsynced: expected 1 to {most}")
            }
            Self::UnsyncedAlgorithm { algorithm } => write!(
                f,
                "invalid algorithm {algorithm} for max_unsynced: expected fixed-window or sliding-window, \
                 whose counts can be added up"
            ),
            Self::TwoModes => write!(
                f,
                "lease and max_unsynced exclude each other; a lease is never over the limit, max_unsynced never waits"
            ),
            Self::Share { share } => {
                write!(f, "invalid share {share}: expected a number above 0 and up to 1")
            }
            Self::NoTls => f.write_str(
                "the address asks for TLS, which was not compiled; enable the feature `tls` of tollgate-redis, \
                 or use redis://",
            ),
            Self::Client { problem } => write!(f, "invalid client settings: {problem}"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            _ => None,
        }
    }
}
