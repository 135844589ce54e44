//! The error of settings that cannot be enforced.

use crate::error::BuildError;
use crate::text::printable;
use thiserror::Error;
use tollgate::ConfigError;

/// Settings of limits that cannot be enforced. Each message names the value, what is expected, and
/// the fix, and is safe to print.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// No limiter can enforce a limit.
    #[error("limit `{}`: {error}", printable(limit.as_bytes()))]
    Limiter {
        /// The name of the limit.
        limit: String,
        /// Why the limiter was refused.
        error: ConfigError,
    },
    /// The key of a limit, or the class of a caller, cannot be found as its text says.
    #[error("limit `{}`: {error}", printable(limit.as_bytes()))]
    Key {
        /// The name of the limit.
        limit: String,
        /// Why the key was refused.
        error: BuildError,
    },
    /// A header names the class of a caller, and no proxy is trusted, so any client could write it.
    #[error(
        "limit `{}`: any client can write the header `{}`, which names the class of the caller: expected \
         trusted proxies; set `trust` or `trust-hops`, or list the classes of keys with `class by header NAME \
         in FILE`",
        printable(limit.as_bytes()),
        printable(header.as_bytes())
    )]
    ClassHeader {
        /// The name of the limit.
        limit: String,
        /// The name of the header.
        header: String,
    },
    /// A limit that is to be a shadow does not exist.
    #[error(
        "invalid shadow `{}`: expected the name of a limit ({})",
        printable(name.as_bytes()),
        listed(limits)
    )]
    Shadow {
        /// The name that was refused.
        name: String,
        /// The names of the limits.
        limits: Vec<String>,
    },
    /// The proxies are both counted and named by their networks.
    #[error(
        "both trusted networks ({}) and {hops} trusted hops: expected one of them; name the networks where \
         they are known",
        listed(networks)
    )]
    Trust {
        /// The networks.
        networks: Vec<String>,
        /// The number of proxies.
        hops: usize,
    },
    /// The layer refuses the limits.
    #[error(transparent)]
    Layer(#[from] BuildError),
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "there is none".to_owned();
    }
    let names: Vec<String> = names.iter().map(|name| printable(name.as_bytes())).collect();
    names.join(", ")
}
