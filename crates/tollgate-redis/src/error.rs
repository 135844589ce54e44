//! What can't be built, and why.

use std::error::Error;
use std::fmt;
use std::time::Duration;
use tollgate::{Algorithm, ConfigError, Quota};

/// A shared limit, or a client, that can't work as it was asked for. Nothing has been sent yet.
///
/// ```
/// use tollgate::Quota;
/// use tollgate_redis::{Client, SharedLimiter};
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// let refused = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(10)).lease(6).build();
/// assert_eq!(refused.unwrap_err().to_string(), "a lease of 6 tokens is not possible; allowed under this quota: 1 to 5");
/// # Ok::<(), tollgate_redis::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// The quota can't be enforced by the algorithm.
    Config(ConfigError),
    /// Windows and logs in the store are counted in microseconds.
    Period {
        /// The period that was refused.
        period: Duration,
    },
    /// A bucket whose rate and burst together are too fine for the store's numbers.
    TooFine {
        /// The quota that was refused.
        quota: Quota,
        /// The largest burst at this rate; 0 if there is none.
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
    /// More or fewer tokens than can be leased at a time.
    Lease {
        /// The number that was refused.
        lease: u64,
        /// The largest allowed; 0 if there is none, because the quota is too small or its period too short.
        most: u64,
    },
    /// A request of a queue is told when its turn is, which a machine that holds a lease can't know.
    LeaseAlgorithm {
        /// The algorithm that was refused.
        algorithm: Algorithm,
    },
    /// More or fewer tokens than may be left unsynchronized.
    MaxUnsynced {
        /// The number that was refused.
        max_unsynced: u64,
        /// The largest allowed.
        most: u64,
    },
    /// The limit is above what the counts that are synchronized can hold.
    UnsyncedLimit {
        /// The limit that was refused.
        limit: u64,
        /// The largest allowed.
        most: u64,
    },
    /// Only counts can be added up: those of windows.
    UnsyncedAlgorithm {
        /// The algorithm that was refused.
        algorithm: Algorithm,
    },
    /// Leases and unsynchronized counts exclude each other.
    TwoModes,
    /// A share that is no part of the quota.
    Share {
        /// The share that was refused.
        share: f64,
    },
    /// An address asks for TLS, and this crate was built without its feature `tls`.
    NoTls,
    /// The addresses of the servers, or what else their client was given.
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
                "period {period:?} is no whole number of microseconds, in which a shared store counts; \
                 allowed: 1us, 2us and so on"
            ),
            Self::TooFine { quota, most: 0 } => write!(
                f,
                "the rate of quota {quota} is too fine for a shared store; allowed: a period in whole microseconds, \
                 and at most 4503599627370 tokens in it"
            ),
            Self::TooFine { quota, most } => write!(
                f,
                "quota {quota} is too fine for a shared store, whose numbers have 53 bits; allowed at this rate: a burst \
                 of 1 to {most}; limit and period with a large common divisor allow more"
            ),
            Self::Name { name, most } => {
                write!(f, "limit name {name:?} has {} bytes; allowed: 1 to {most}", name.len())
            }
            Self::Deadline { deadline, least, most } => {
                write!(f, "deadline {deadline:?} is out of range; allowed: {least:?} to {most:?}")
            }
            Self::ConnectionTimeout { timeout, least, most } => {
                write!(f, "connection timeout {timeout:?} is out of range; allowed: {least:?} to {most:?}")
            }
            Self::Lease { lease, most: 0 } => write!(
                f,
                "a lease of {lease} tokens is not possible under this quota; it needs a larger limit or burst, \
                 or a longer period"
            ),
            Self::Lease { lease, most } => {
                write!(f, "a lease of {lease} tokens is not possible; allowed under this quota: 1 to {most}")
            }
            Self::LeaseAlgorithm { algorithm } => write!(
                f,
                "a {algorithm} gives no leases, since the store says whose turn is when; allowed: token-bucket, \
                 leaky-bucket, fixed-window, sliding-window, sliding-log"
            ),
            Self::MaxUnsynced { max_unsynced, most } => write!(
                f,
                "max_unsynced {max_unsynced} is out of range; allowed under this quota: 1 to {most}"
            ),
            Self::UnsyncedLimit { limit, most } => {
                write!(f, "limit {limit} is too large for max_unsynced; allowed: 1 to {most}")
            }
            Self::UnsyncedAlgorithm { algorithm } => write!(
                f,
                "max_unsynced needs counts that can be added up, which a {algorithm} does not have; \
                 allowed: fixed-window, sliding-window"
            ),
            Self::TwoModes => write!(
                f,
                "lease and max_unsynced exclude each other; a lease is never over the limit, max_unsynced never waits"
            ),
            Self::Share { share } => {
                write!(f, "share {share} is no part of a quota; allowed: above 0, up to 1")
            }
            Self::NoTls => f.write_str(
                "the address asks for TLS, which was not compiled; enable the feature `tls` of tollgate-redis, \
                 or use redis://",
            ),
            Self::Client { problem } => write!(f, "no client for these servers: {problem}"),
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
