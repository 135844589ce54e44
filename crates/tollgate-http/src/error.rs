//! Why a layer was refused: each error names the value, the range and the fix.

use http::StatusCode;
use std::error::Error;
use std::fmt;
use tollgate::Quota;

/// A layer that cannot do what it is for, refused when it is built.
///
/// ```
/// use tollgate_http::{BuildError, KeyBy, Limit, RateLimitLayer};
/// use tollgate::{Limiter, Quota};
///
/// let limiter = Limiter::builder(Quota::per_second(10)).build()?;
/// let limit = Limit::new("per-client", limiter, KeyBy::header("x-api-key"));
/// let refused = RateLimitLayer::builder().limit(limit).build().unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "limit \"per-client\" has no answer for a request without a key: there may be no header `x-api-key`; \
///      allowed: `.when_no_key(WhenNoKey::Deny)`, `.when_no_key(WhenNoKey::Allow)` (the limit does not count for it) and \
///      `.when_no_key(WhenNoKey::Share)` (all of them are one client); choose one, or add `.or(...)` with a key that is \
///      always there"
/// );
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A layer without limits would let everything through.
    NoLimits,
    /// More limits than one answer names.
    TooManyLimits {
        /// How many there are.
        limits: usize,
        /// How many there may be.
        most: usize,
    },
    /// A limit's name can't stand in a field.
    Name {
        /// The name that was refused.
        name: String,
        /// The most bytes a name may have.
        most: usize,
    },
    /// Two limits have one name.
    DuplicateName {
        /// The name.
        name: String,
    },
    /// Two limits are of one limiter for one resource: each request would be charged to it twice.
    SameLimiter {
        /// The one name.
        name: String,
        /// The other.
        other: String,
    },
    /// A request may come without a key, and nobody said what then.
    NoKey {
        /// The limit.
        limit: String,
        /// What may be missing.
        missing: String,
    },
    /// A header name that is none.
    HeaderName {
        /// What was given.
        name: String,
    },
    /// A query parameter without a name.
    QueryName,
    /// An IPv6 prefix that no address has, or one that all addresses share.
    Ipv6Prefix {
        /// The prefix that was refused.
        prefix: u8,
    },
    /// Trusted networks that hold every address: whatever the client writes would be believed.
    TrustsEverybody {
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// No network is trusted, so that the field would never be read.
    NoNetworks,
    /// Not a network.
    NotANetwork {
        /// What was given.
        text: String,
    },
    /// The number of trusted proxies is out of range.
    Hops {
        /// The number that was refused.
        hops: usize,
        /// The largest allowed.
        most: usize,
    },
    /// A cost of nothing: the limit would never trigger.
    ZeroCost {
        /// The limit.
        limit: String,
    },
    /// A cost by content length, in units of no bytes.
    ZeroUnit {
        /// The limit.
        limit: String,
    },
    /// Each request costs more than the limit ever has.
    CostAboveCapacity {
        /// The limit.
        limit: String,
        /// What a request costs.
        cost: u64,
        /// The most that can be taken at once.
        capacity: u64,
    },
    /// No machine sees as many requests as the quota allows.
    NeverTriggers {
        /// The limit.
        limit: String,
        /// Its quota.
        quota: Quota,
    },
    /// Every limit is in shadow mode, and nothing is listening.
    OnlyShadows,
    /// A limit must be waited for, in a layer that waits for nothing.
    Shared {
        /// The limit.
        limit: String,
    },
    /// The status of a refusal is none of an error.
    Status {
        /// The status that was refused.
        status: StatusCode,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLimits => write!(
                f,
                "0 limits would let every request through; allowed: 1 and more; add one with `.limit(...)`"
            ),
            Self::TooManyLimits { limits, most } => write!(
                f,
                "{limits} limits are too many for one layer; allowed: 1 to {most}; put one layer into another"
            ),
            Self::Name { name, most } => write!(
                f,
                "name {name:?} can't stand in the field `RateLimit`; allowed: 1 to {most} printable ASCII \
                 characters; choose one like \"per-address\""
            ),
            Self::DuplicateName { name } => write!(
                f,
                "two limits are called {name:?}, and a client could not tell which one refused; allowed: names \
                 that differ; rename one of them"
            ),
            Self::SameLimiter { name, other } => write!(
                f,
                "limits {name:?} and {other:?} are of one limiter, so each request would be charged to it twice; \
                 allowed: a `SingleLimiter` for each; leave one of the limits out, or set a cost"
            ),
            Self::NoKey { limit, missing } => write!(
                f,
                "limit {limit:?} has no answer for a request without a key: there may be {missing}; allowed: \
                 `.when_no_key(WhenNoKey::Deny)`, `.when_no_key(WhenNoKey::Allow)` (the limit does not count for it) and \
                 `.when_no_key(WhenNoKey::Share)` (all of them are one client); choose one, or add `.or(...)` with a key \
                 that is always there"
            ),
            Self::HeaderName { name } => write!(
                f,
                "{name:?} is no name of a header field; allowed: letters, digits and !#$%&'*+-.^_`|~; write it \
                 like \"x-api-key\""
            ),
            Self::QueryName => write!(
                f,
                "\"\" is no name of a query parameter; allowed: 1 character and more; write it like \"api_key\""
            ),
            Self::Ipv6Prefix { prefix: 0 } => write!(
                f,
                "an IPv6 prefix of 0 bits makes one client of everybody; allowed: 1 to 128; 64 is one network, 48 \
                 to 56 what a customer often has"
            ),
            Self::Ipv6Prefix { prefix } => write!(
                f,
                "an IPv6 prefix of {prefix} bits is longer than an address; allowed: 1 to 128; 64 is one network, \
                 48 to 56 what a customer often has"
            ),
            Self::TrustsEverybody { family } => write!(
                f,
                "the trusted networks hold every {family} address, so each client could choose his own; allowed: \
                 networks that leave somebody out; name the networks of your proxies, or use \
                 `TrustedProxies::hops`"
            ),
            Self::NoNetworks => write!(
                f,
                "no network is trusted, so no forwarded address would ever be read; allowed: 1 network and \
                 more; name the networks of your proxies, or use `KeyBy::peer`"
            ),
            Self::NotANetwork { text } => write!(
                f,
                "{text:?} is no network; allowed: an address, or one with the length of a prefix; write it \
                 like \"10.0.0.0/8\" or \"2001:db8::/32\""
            ),
            Self::Hops { hops: 0, most } => write!(
                f,
                "0 hops would trust nobody; allowed: 1 to {most}; without a proxy use `KeyBy::peer`"
            ),
            Self::Hops { hops, most } => write!(
                f,
                "{hops} hops are more than anybody has; allowed: 1 to {most}; count the proxies, the one that \
                 connects to this service included"
            ),
            Self::ZeroCost { limit } => write!(
                f,
                "limit {limit:?} charges 0 for each request and would never trigger; allowed: 1 and more; leave \
                 the limit out, or exempt requests with `.skip(...)`"
            ),
            Self::ZeroUnit { limit } => write!(
                f,
                "limit {limit:?} charges by units of 0 bytes; allowed: 1 and more; 1 counts bytes, 1024 kibibytes"
            ),
            Self::CostAboveCapacity { limit, cost, capacity } => write!(
                f,
                "limit {limit:?} charges {cost} for each request and never has more than {capacity}, so it would \
                 refuse everything; allowed: 1 to {capacity}; lower the cost or raise the burst"
            ),
            Self::NeverTriggers { limit, quota } => write!(
                f,
                "limit {limit:?} of {quota} can never trigger, for no machine sees that many requests; allowed: up \
                 to 100 million requests a second; lower the quota, or give requests a cost"
            ),
            Self::OnlyShadows => write!(
                f,
                "all limits are in shadow mode and nobody listens, so the layer would do nothing at all; allowed: \
                 shadows with a listener; add `.on_decision(...)`, or the feature `tracing`"
            ),
            Self::Shared { limit } => write!(
                f,
                "limit {limit:?} is shared with other machines, and the layer of `.build()` waits for nothing; \
                 allowed: limiters of this process; call `.build_shared()` instead"
            ),
            Self::Status { status } => write!(
                f,
                "status {} does not say that a request was refused; allowed: 400 to 599; 429 is the one for rate \
                 limits",
                status.as_u16()
            ),
        }
    }
}

impl Error for BuildError {}
