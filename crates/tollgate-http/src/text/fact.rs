//! The facts that limits read from a request. They let a program determine whether a recorded
//! request is sufficient for its limits.

use http::header::HOST;
use std::fmt;

/// One fact that a limit reads from a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The address of the client.
    Ip,
    /// The method.
    Method,
    /// The path without its query.
    Path,
    /// The host.
    Host,
    /// A header other than the host, in lower case.
    Header(String),
    /// A query parameter.
    Query(String),
}

impl Fact {
    /// Returns the fact for a header. The header `host` has a separate fact.
    pub(crate) fn header(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        if name == HOST.as_str() { Self::Host } else { Self::Header(name) }
    }

    /// Returns whether this fact is a header or a query parameter. Few logs contain these.
    pub fn is_of_few_logs(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Query(_))
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("the address of the client"),
            Self::Method => f.write_str("the method"),
            Self::Path => f.write_str("the path"),
            Self::Host => f.write_str("the host"),
            Self::Header(name) => write!(f, "the header `{name}`"),
            Self::Query(name) => write!(f, "the query parameter `{name}`"),
        }
    }
}
