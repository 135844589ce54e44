//! [`Problem`]: a reason why the store does not answer checks, or may forget states.

use thiserror::Error;

/// A reason why the store does not answer checks, or may forget states.
///
/// The text names the server, the problem and the fix. [`Client::connect`] returns the first
/// problem that prevents the store from answering checks. [`Client::health`] repeats the tests and
/// returns all problems, and [`ClientStats::problems`] lists the known problems.
/// [`SharedLimiter::reset`] and [`SharedLimiter::pause`] report why a key may not have been reset
/// or paused.
///
/// [`Client::connect`]: crate::Client::connect
/// [`Client::health`]: crate::Client::health
/// [`ClientStats::problems`]: crate::ClientStats::problems
/// [`SharedLimiter::pause`]: crate::SharedLimiter::pause
/// [`SharedLimiter::reset`]: crate::SharedLimiter::reset
///
/// ```
/// use tollgate_redis::Client;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let client = Client::open("redis://127.0.0.1:1").unwrap();
/// let problem = client.connect().await.unwrap_err();
/// assert!(problem.is_unreachable() && !problem.is_warning());
/// assert!(problem.to_string().starts_with("no connection to 127.0.0.1:1: "));
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct StoreProblem(pub(crate) Problem);

impl StoreProblem {
    /// Returns true if there is no connection to a server, or if the server did not answer in time.
    /// An unreachable server is not a mistake in the settings: the client connects as soon as it
    /// can reach the server.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.0, Problem::Unreachable { .. } | Problem::Unconfirmed { is_answered: false, .. })
    }

    /// Returns true if the store answers checks despite this problem. This is the case if the
    /// server may forget states when its memory is full.
    pub fn is_warning(&self) -> bool {
        self.0.is_warning()
    }
}

/// A problem of a store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Problem {
    /// A caller outside of a runtime could not ask the store, and the fallback decided.
    #[error(
        "the client was used outside of a tokio runtime and has no thread of its own, so the store was not \
         asked and the fallback decided; build the client with `runtime_thread`, or give it a `runtime` if \
         it only checks limits and acquires permits"
    )]
    NoRuntime,
    /// There is no connection to a server, or the server did not answer in time.
    #[error("no connection to {server}: {reason}")]
    Unreachable { server: String, reason: String },
    /// The user may not run a command that the limit requires.
    #[error(
        "the user `{user}` of {server} may not run the command `{command}`, which limit `{limit}` needs; \
         allow it with `ACL SETUSER {user} +{command}`{}",
        other_way(command)
    )]
    Command { server: String, user: String, command: String, limit: String },
    /// The user may not use the keys of the limit.
    #[error(
        "the user `{user}` of {server} may not use the keys `{keys}` of limit `{limit}`; allow it with \
         `ACL SETUSER {user} ~{keys}`"
    )]
    Keys { server: String, user: String, keys: String, limit: String },
    /// The server is a replica. Replicas refuse writes, and every admission is a write.
    #[error("{server} is a read-only replica, and an admission is a write; connect to its primary")]
    Replica { server: String },
    /// The server answers the limit's script with some other error.
    #[error("{server} refuses the script of limit `{limit}`: {reason}")]
    Script { server: String, limit: String, reason: String },
    /// The server's memory is full, so the server refuses writes. The store still denies requests,
    /// while the fallback decides the requests that the store would admit.
    #[error(
        "the memory of {server} is full and it refuses writes, so the fallback decides what it would admit; \
         raise `maxmemory`"
    )]
    Full { server: String },
    /// When the server's memory is full, the server deletes keys, including throttled keys.
    #[error(
        "the maxmemory-policy of {server} is {policy}: when its memory is full it deletes the states of \
         throttled keys, which are then admitted as new; set `maxmemory-policy noeviction`"
    )]
    Eviction { server: String, policy: String },
    /// The store did not confirm that a key is reset or paused.
    #[error("the key may not be {done}: {reason}")]
    Unconfirmed { done: &'static str, reason: String, is_answered: bool },
}

impl Problem {
    pub(crate) fn is_warning(&self) -> bool {
        matches!(self, Self::Eviction { .. } | Self::NoRuntime)
    }
}

fn other_way(command: &str) -> &'static str {
    match command {
        "time" => ", or, for rates, let this machine send the time (`client_clock`)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_how_to_mend_it() {
        let server = "10.0.0.5:6379".to_owned();
        let eviction = Problem::Eviction { server: server.clone(), policy: "allkeys-lru".to_owned() };
        assert!(StoreProblem(eviction.clone()).is_warning());
        assert_eq!(
            eviction.to_string(),
            "the maxmemory-policy of 10.0.0.5:6379 is allkeys-lru: when its memory is full it deletes the \
             states of throttled keys, which are then admitted as new; set `maxmemory-policy noeviction`"
        );
        let replica = StoreProblem(Problem::Replica { server });
        assert!(!replica.is_warning() && !replica.is_unreachable());
    }
}
