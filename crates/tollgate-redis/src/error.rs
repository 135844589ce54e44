//! The errors: a refused setting, a client that can't connect, and a key that is not reset.

use crate::health::Problem;
use std::time::Duration;
use thiserror::Error;
use tollgate::{Algorithm, ConfigError, Quota};

/// A refused setting of a shared limit or of a client: the only error of configuration in this
/// crate. Nothing has been sent yet.
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
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The algorithm can't enforce the quota.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The period is not a whole number of microseconds, in which the store counts windows and
    /// logs.
    #[error(
        "invalid period {period:?}: expected a whole number of microseconds, in which a shared store counts"
    )]
    Period {
        /// The period that was refused.
        period: Duration,
    },
    /// The rate and burst of a bucket are together too fine for the store's numbers.
    #[error("{}", too_fine(quota, *most))]
    TooFine {
        /// The quota that was refused.
        quota: Quota,
        /// The largest burst at this rate; 0 if no burst fits.
        most: u64,
    },
    /// The name of the limit is empty or too long.
    #[error("invalid limit name {name:?} of {} bytes: expected 1 to {most} bytes", name.len())]
    Name {
        /// The name that was refused.
        name: String,
        /// The most bytes allowed.
        most: usize,
    },
    /// The deadline is out of range.
    #[error("invalid deadline {deadline:?}: expected {least:?} to {most:?}")]
    Deadline {
        /// The deadline that was refused.
        deadline: Duration,
        /// The shortest allowed.
        least: Duration,
        /// The longest allowed.
        most: Duration,
    },
    /// The lifetime of permits is out of range.
    #[error("invalid lifetime {lifetime:?} of permits: expected {least:?} to {most:?}")]
    Lifetime {
        /// The lifetime that was refused.
        lifetime: Duration,
        /// The shortest allowed: several deadlines.
        least: Duration,
        /// The longest allowed.
        most: Duration,
    },
    /// How long an attempt to connect may take is out of range.
    #[error("invalid connection timeout {timeout:?}: expected {least:?} to {most:?}")]
    ConnectionTimeout {
        /// The time that was refused.
        timeout: Duration,
        /// The shortest allowed.
        least: Duration,
        /// The longest allowed.
        most: Duration,
    },
    /// The size of a lease is out of range.
    #[error("invalid lease of {lease} tokens: {}", allowed_lease(*most))]
    Lease {
        /// The number that was refused.
        lease: u64,
        /// The largest allowed; 0 if the quota is too small, or its period too short, for any
        /// lease.
        most: u64,
    },
    /// The algorithm does not support leases. A leaky queue tells each request when its turn is,
    /// which only the store knows.
    #[error(
        "invalid algorithm {algorithm} for a lease: expected token-bucket, leaky-bucket, fixed-window, \
         sliding-window or sliding-log"
    )]
    LeaseAlgorithm {
        /// The algorithm that was refused.
        algorithm: Algorithm,
    },
    /// The number of unsynchronized tokens is out of range.
    #[error("invalid max_unsynced {max_unsynced}: expected 1 to {most} under this quota")]
    MaxUnsynced {
        /// The number that was refused.
        max_unsynced: u64,
        /// The largest allowed.
        most: u64,
    },
    /// The quota has more tokens than an unsynchronized count can hold.
    #[error("quota of {tokens} tokens is too large for max_unsynced: expected 1 to {most}")]
    UnsyncedQuota {
        /// The tokens of a period that were refused.
        tokens: u64,
        /// The most allowed.
        most: u64,
    },
    /// The algorithm does not support unsynchronized counts: only the counts of windows can be
    /// added up.
    #[error(
        "invalid algorithm {algorithm} for max_unsynced: expected fixed-window or sliding-window, whose \
         counts can be added up"
    )]
    UnsyncedAlgorithm {
        /// The algorithm that was refused.
        algorithm: Algorithm,
    },
    /// Both a debt and unsynchronized counts were asked for. The counts of machines are added up to
    /// at most the limit and what is unsynchronized, and a debt would be beyond both.
    #[error(
        "max_debt {max_debt} excludes max_unsynced, whose bound a debt would break; allowed: 0; leave one of \
         them out"
    )]
    UnsyncedDebt {
        /// The debt that was refused.
        max_debt: u64,
    },
    /// The name of a class is empty or too long.
    #[error("invalid class name {class:?} of {} bytes: expected 1 to {most} bytes", class.len())]
    ClassName {
        /// The name that was refused.
        class: String,
        /// The most bytes allowed.
        most: usize,
    },
    /// Two classes have the same name.
    #[error("class {class:?} was given two quotas; expected one for each name")]
    TwoQuotas {
        /// The name of the classes.
        class: String,
    },
    /// The quota of a class was refused.
    #[error("class {class:?}: {error}")]
    Class {
        /// The name of the class.
        class: String,
        /// Why its quota was refused.
        #[source]
        error: Box<BuildError>,
    },
    /// Both a lease and unsynchronized counts were asked for.
    #[error(
        "lease and max_unsynced exclude each other; a lease is never over the quota, max_unsynced never waits"
    )]
    TwoModes,
    /// The share of the quota is out of range.
    #[error("invalid share {share}: expected a number above 0 and up to 1")]
    Share {
        /// The share that was refused.
        share: f64,
    },
    /// An address asks for TLS, and this crate was built without its feature `tls`.
    #[error(
        "the address asks for TLS, which was not compiled; enable the feature `tls` of tollgate-redis, or \
         use redis://"
    )]
    NoTls,
    /// The addresses or other settings of the client are invalid.
    #[error("invalid client settings: {problem}")]
    Client {
        /// What is wrong.
        problem: String,
    },
}

fn too_fine(quota: &Quota, most: u64) -> String {
    match most {
        0 => format!(
            "the rate of quota {quota} is too fine for a shared store: expected a period in whole \
             microseconds, and at most 4503599627370 tokens in it"
        ),
        most => format!(
            "quota {quota} is too fine for a shared store, whose numbers have 53 bits: expected a burst of \
             1 to {most} at this rate; tokens and period with a large common divisor allow more"
        ),
    }
}

fn allowed_lease(most: u64) -> String {
    match most {
        0 => "expected a quota with more tokens or a larger burst, or with a longer period".to_owned(),
        most => format!("expected 1 to {most} under this quota"),
    }
}

/// The error of [`Client::connect`](crate::Client::connect): the servers can't be reached, or they
/// would not answer checks.
///
/// ```
/// use tollgate_redis::Client;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let client = Client::open("redis://127.0.0.1:1").unwrap();
/// let error = client.connect().await.unwrap_err().to_string();
/// assert!(error.starts_with("no connection to 127.0.0.1:1: "));
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no connection: the address or the password is wrong, or the server is not there.
    /// The client connects when it is there.
    #[error("no connection to {server}: {reason}")]
    NoConnection {
        /// The address of the server, or those of the sentinels or of the nodes of a cluster that
        /// were named.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The store can be reached, and would not answer checks.
    #[error(transparent)]
    Problem(#[from] Problem),
}

/// The error of [`SharedLimiter::reset`](crate::SharedLimiter::reset): the store did not confirm
/// that it deleted the key's state.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("the key may not be reset: {problem}")]
pub struct ResetError {
    pub(crate) problem: String,
}
