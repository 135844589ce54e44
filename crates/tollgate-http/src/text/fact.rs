//! The facts that limits read from a request. They let a program determine whether a recorded
//! request is sufficient for its limits.

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN};
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
    /// Whether the request is a preflight: the method, and the headers `origin` and
    /// `access-control-request-method`.
    Preflight,
}

impl Fact {
    /// Returns the fact for a header. The header `host` has a separate fact.
    pub(crate) fn header(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        if name == HOST.as_str() { Self::Host } else { Self::Header(name) }
    }

    /// Returns the names of the headers in this fact, in lower case.
    pub fn headers(&self) -> Vec<&str> {
        match self {
            Self::Header(name) => vec![name],
            Self::Preflight => vec![ORIGIN.as_str(), ACCESS_CONTROL_REQUEST_METHOD.as_str()],
            _ => Vec::new(),
        }
    }

    /// Returns whether this fact needs a header or a query parameter. Few logs contain these.
    pub fn is_of_few_logs(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Query(_) | Self::Preflight)
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
            Self::Preflight => f.write_str("whether it is a preflight"),
        }
    }
}
