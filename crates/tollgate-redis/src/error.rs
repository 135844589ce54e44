//! The error for a refused setting.

use std::time::Duration;
use thiserror::Error;
use tollgate::{Algorithm, ConfigError, Quota};

/// The error returned if a setting of a shared limit or a client is refused, before anything is
/// sent.
///
/// The text names the refused value, the allowed range and the fix.
///
/// ```
/// use tollgate::Quota;
/// use tollgate_redis::{Client, SharedLimiter};
///
/// let client = Client::open("redis://127.0.0.1:6379")?;
/// let limiter = SharedLimiter::<str>::builder(&client, "api", Quota::per_second(10));
/// let refused = limiter.lease(6).build().unwrap_err();
/// assert_eq!(refused.setting(), "lease");
/// assert_eq!(refused.to_string(), "invalid lease of 6 tokens: expected 1 to 5 under this quota");
/// # Ok::<(), tollgate_redis::SharedError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Error)]
#[error(transparent)]
pub struct SharedError(pub(crate) Refused);

impl SharedError {
    /// Returns the name of the refused setting: a builder method, or one of the arguments `name`,
    /// `quota`, `limit` and `url`.
    pub fn setting(&self) -> &'static str {
        self.0.setting()
    }
}

impl Refused {
    fn setting(&self) -> &'static str {
        match self {
            Self::Config(error) => error.setting(),
            Self::Period { .. }
            | Self::TooFine { .. }
            | Self::TooManyTokens { .. }
            | Self::LogTooLarge { .. }
            | Self::UnsyncedQuota { .. } => "quota",
            Self::DebtTooLarge { .. } | Self::UnsyncedDebt { .. } => "max_debt",
            Self::Name { .. } => "name",
            Self::Deadline { .. } => "deadline",
            Self::Lifetime { .. } => "lifetime",
            Self::ConnectionTimeout { .. } => "connection_timeout",
            Self::Lease { .. } => "lease",
            Self::LeaseAlgorithm { .. } | Self::UnsyncedAlgorithm { .. } => "algorithm",
            Self::MaxUnsynced { .. } | Self::TwoModes => "max_unsynced",
            Self::ClassName { .. } | Self::TwoQuotas { .. } => "class",
            Self::Class { error, .. } => error.setting(),
            Self::Share { .. } => "when_unavailable",
            #[cfg(not(feature = "tls"))]
            Self::NoTls => "url",
            Self::Client { .. } => "url",
            Self::Thread { .. } => "runtime_thread",
        }
    }
}

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq, Error)]
pub(crate) enum Refused {
    /// The algorithm can't enforce the quota.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The period is not a whole number of microseconds. The store counts windows and logs in
    /// microseconds.
    #[error(
        "invalid period {period:?}: expected a whole number of microseconds, in which a shared store counts"
    )]
    Period { period: Duration },
    /// The combination of a bucket's rate and burst is too fine for the store's numbers.
    #[error("{}", too_fine(quota, *most))]
    TooFine { quota: Quota, most: u64 },
    /// The quota has more tokens than a window in the store can count.
    #[error(
        "{tokens} tokens do not fit the word of a {algorithm} of {period:?}; allowed: 1 to {most}; choose a \
         shorter period with fewer tokens, count in larger units, or choose a token-bucket"
    )]
    TooManyTokens { algorithm: Algorithm, tokens: u64, period: Duration, most: u64 },
    /// The limit is too large for a sliding log, because the store keeps each admission.
    #[error(
        "{tokens} tokens are too many for a sliding-log, which keeps each admission; allowed: 1 to {most}; \
         count in larger units, or choose a sliding-window, which keeps two counts"
    )]
    LogTooLarge { tokens: u64, most: u64 },
    /// The store's numbers can't hold the debt and the capacity together.
    #[error(
        "max_debt {debt} does not fit beside the capacity; allowed: {}; choose a smaller debt, or count in \
         larger units",
        range(0, *most)
    )]
    DebtTooLarge { debt: u64, most: u64 },
    /// The name of the limit is empty or too long.
    #[error("invalid limit name {name:?} of {} bytes: expected 1 to {most} bytes", name.len())]
    Name { name: String, most: usize },
    /// The deadline is out of range.
    #[error("invalid deadline {deadline:?}: expected {least:?} to {most:?}")]
    Deadline { deadline: Duration, least: Duration, most: Duration },
    /// The lifetime of permits is out of range.
    #[error("invalid lifetime {lifetime:?} of permits: expected {least:?} to {most:?}")]
    Lifetime { lifetime: Duration, least: Duration, most: Duration },
    /// The connection timeout is out of range.
    #[error("invalid connection timeout {timeout:?}: expected {least:?} to {most:?}")]
    ConnectionTimeout { timeout: Duration, least: Duration, most: Duration },
    /// The size of a lease is out of range.
    #[error("invalid lease of {lease} tokens: {}", allowed_lease(*most))]
    Lease { lease: u64, most: u64 },
    /// The algorithm does not support leases. A leaky queue assigns a turn to each request, and
    /// only the store knows that turn.
    #[error(
        "invalid algorithm {algorithm} for a lease: expected token-bucket, leaky-bucket, fixed-window, \
         sliding-window or sliding-log"
    )]
    LeaseAlgorithm { algorithm: Algorithm },
    /// The number of unsynchronized tokens is out of range.
    #[error("invalid max_unsynced {max_unsynced}: expected {} under this quota", range(1, *most))]
    MaxUnsynced { max_unsynced: u64, most: u64 },
    /// The quota has more tokens than an unsynchronized count can hold.
    #[error("quota of {tokens} tokens is too large for max_unsynced: expected 1 to {most}")]
    UnsyncedQuota { tokens: u64, most: u64 },
    /// The algorithm does not support unsynchronized counts, because only the counts of windows can
    /// be added up.
    #[error(
        "invalid algorithm {algorithm} for max_unsynced: expected fixed-window or sliding-window, whose \
         counts can be added up"
    )]
    UnsyncedAlgorithm { algorithm: Algorithm },
    /// The caller requested both a debt and unsynchronized counts. The counts of all machines must
    /// add up to at most the limit plus the unsynchronized tokens, and a debt would exceed this
    /// sum.
    #[error(
        "max_debt {max_debt} excludes max_unsynced, whose bound a debt would break; allowed: 0; leave one of \
         them out"
    )]
    UnsyncedDebt { max_debt: u64 },
    /// The name of a class is empty or too long.
    #[error("invalid class name {class:?} of {} bytes: expected 1 to {most} bytes", class.len())]
    ClassName { class: String, most: usize },
    /// Two classes have the same name.
    #[error("class {class:?} was given two quotas; expected one for each name")]
    TwoQuotas { class: String },
    /// The quota of a class was refused.
    #[error("class {class:?}: {error}")]
    Class {
        class: String,
        #[source]
        error: Box<Refused>,
    },
    /// The caller requested both a lease and unsynchronized counts.
    #[error(
        "lease and max_unsynced exclude each other; a lease is never over the quota, max_unsynced never waits"
    )]
    TwoModes,
    /// The share of the quota is out of range.
    #[error("invalid share {share}: expected a number above 0 and up to 1")]
    Share { share: f64 },
    /// An address requests TLS, but this crate was built without its feature `tls`.
    #[cfg(not(feature = "tls"))]
    #[error(
        "the address asks for TLS, which was not compiled; enable the feature `tls` of tollgate-redis, or \
         use redis://"
    )]
    NoTls,
    /// The addresses or other settings of the client are invalid.
    #[error("invalid client settings: {problem}")]
    Client { problem: String },
    /// The system refuses the client's thread.
    #[error(
        "the system refuses the thread of runtime_thread: {problem}; raise the limit on threads or open files, \
         or choose `runtime` with a runtime that the program already has"
    )]
    Thread { problem: String },
}

fn too_fine(quota: &Quota, most: u64) -> String {
    match most {
        0 => format!(
            "the rate of quota {quota} is too fine for a shared store: expected a period in whole \
             microseconds, and at most 4503599627370 tokens in it"
        ),
        most => format!(
            "quota {quota} is too fine for a shared store, whose numbers have 53 bits: expected a burst of \
             {} at this rate; tokens and period with a large common divisor allow more",
            range(1, most)
        ),
    }
}

fn allowed_lease(most: u64) -> String {
    match most {
        0 => "expected a quota with more tokens or a larger burst, or with a longer period".to_owned(),
        most => format!("expected {} under this quota", range(1, most)),
    }
}

/// Returns the text of a range, which may contain one number only.
fn range(least: u64, most: u64) -> String {
    if least == most { most.to_string() } else { format!("{least} to {most}") }
}
