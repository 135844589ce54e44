//! [`Problem`]: something that keeps the store from answering checks, or makes it forget.

use thiserror::Error;

/// Something that is wrong with a store, found by trying what checks do.
///
/// The text names the server, what is wrong and how to mend it. [`Client::connect`] returns what
/// keeps checks from their answer as its error; [`Client::problems`] lists this and what
/// [is a warning](Self::is_warning), and [`Client::health`] tries again.
///
/// [`Client::connect`]: crate::Client::connect
/// [`Client::problems`]: crate::Client::problems
/// [`Client::health`]: crate::Client::health
///
/// ```
/// use tollgate_redis::Problem;
///
/// let (server, policy) = ("10.0.0.5:6379".to_owned(), "allkeys-lru".to_owned());
/// let problem = Problem::Eviction { server, policy };
/// assert!(problem.is_warning());
/// assert_eq!(
///     problem.to_string(),
///     "the maxmemory-policy of 10.0.0.5:6379 is allkeys-lru: when its memory is full it deletes \
///      the states of throttled keys, which are then admitted as new; set \
///      `maxmemory-policy noeviction`"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Problem {
    /// There is no connection to a server, or it did not answer in time.
    #[error("no connection to {server}: {reason}")]
    Unreachable {
        /// The address of the server.
        server: String,
        /// What happened.
        reason: String,
    },
    /// The user may not run a command that the limit needs.
    #[error(
        "the user `{user}` of {server} may not run the command `{command}`, which limit `{limit}` needs; \
         allow it with `ACL SETUSER {user} +{command}`{}",
        other_way(command)
    )]
    Command {
        /// The address of the server.
        server: String,
        /// The user of the connection.
        user: String,
        /// The name of the command, in lower case.
        command: String,
        /// The name of the limit.
        limit: String,
    },
    /// The user may not use the keys of the limit.
    #[error(
        "the user `{user}` of {server} may not use the keys `{keys}` of limit `{limit}`; allow it with \
         `ACL SETUSER {user} ~{keys}`{}",
        unnamed(limit)
    )]
    Keys {
        /// The address of the server.
        server: String,
        /// The user of the connection.
        user: String,
        /// The names of the keys, with a star for the part that differs.
        keys: String,
        /// The name of the limit.
        limit: String,
    },
    /// The server is a replica that refuses writes, and admissions are writes.
    #[error("{server} is a read-only replica, and an admission is a write; connect to its primary")]
    Replica {
        /// The address of the server.
        server: String,
    },
    /// The server answers the limit's script with another error.
    #[error("{server} refuses the script of limit `{limit}`: {reason}")]
    Script {
        /// The address of the server.
        server: String,
        /// The name of the limit.
        limit: String,
        /// The server's error.
        reason: String,
    },
    /// The memory of the server is full, and it refuses writes. The fallback decides what the store
    /// would admit; the store still denies.
    #[error(
        "the memory of {server} is full and it refuses writes, so the fallback decides what it would admit; \
         raise `maxmemory`"
    )]
    Full {
        /// The address of the server.
        server: String,
    },
    /// A full server deletes keys to make room, throttled ones among them.
    #[error(
        "the maxmemory-policy of {server} is {policy}: when its memory is full it deletes the states of \
         throttled keys, which are then admitted as new; set `maxmemory-policy noeviction`"
    )]
    Eviction {
        /// The address of the server.
        server: String,
        /// The server's `maxmemory-policy`.
        policy: String,
    },
}

impl Problem {
    /// Returns whether the store answers checks in spite of this: it may forget states when it is
    /// full, or is full already.
    ///
    /// ```
    /// use tollgate_redis::Problem;
    ///
    /// let server = "10.0.0.5:6379".to_owned();
    /// assert!(!Problem::Replica { server: server.clone() }.is_warning());
    /// assert!(Problem::Full { server }.is_warning());
    /// ```
    pub fn is_warning(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Eviction { .. })
    }
}

/// The name of the limit that a client tries if none was built on it.
pub(crate) const UNNAMED: &str = "connect";

fn other_way(command: &str) -> &'static str {
    match command {
        "time" => ", or, for rates, let this machine send the time (`client_clock`)",
        _ => "",
    }
}

fn unnamed(limit: &str) -> &'static str {
    match limit {
        UNNAMED => ", or build the limits before, whose own names are tried then",
        _ => "",
    }
}
