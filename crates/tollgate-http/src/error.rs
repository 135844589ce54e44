//! Errors that occur when a layer is built. Each message names the rejected value, the expected
//! values, and the fix.

use crate::text::printable::printable;
use http::StatusCode;
use std::error::Error;
use std::fmt;
use tollgate::{ConfigError, Quota};

/// The error returned when a layer cannot be built because its configuration is wrong or its
/// settings cannot be enforced.
///
/// The message names the rejected value, the expected values, and the fix. Names from a
/// configuration are escaped, so the message is safe to print.
///
/// ```
/// use tollgate_http::{KeyBy, LayerError, Limit, RateLimitLayer};
/// use tollgate::{Limiter, Quota};
///
/// let limiter = Limiter::builder(Quota::per_second(10)).build()?;
/// let limit = Limit::new("per-client", limiter).by(KeyBy::header("x-api-key"));
/// let refused: LayerError = RateLimitLayer::builder().limit(limit).build().unwrap_err();
/// assert_eq!(refused.limit_name(), Some("per-client"));
/// assert_eq!(
///     refused.to_string(),
///     "limit \"per-client\" does not say what to do with a request without a key, and a request \
///      may have no header `x-api-key`: expected `.when_no_key(WhenNoKey::Deny)`, \
///      `.when_no_key(WhenNoKey::Allow)` (the limit does not count such a request) or \
///      `.when_no_key(WhenNoKey::Share)` (all such requests are one client); choose one, or add \
///      `.or(...)` with a key that is always there"
/// );
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct LayerError(Box<Fault>);

impl LayerError {
    /// Returns the name of the limit that caused the error. Returns `None` if the error is about
    /// the layer as a whole, or about a part created without a limit, such as a header name.
    pub fn limit_name(&self) -> Option<&str> {
        self.0.limit_name()
    }

    #[cfg(any(test, feature = "unstable-program"))]
    pub(crate) fn fault(&self) -> &Fault {
        &self.0
    }
}

#[doc(hidden)]
impl From<Fault> for LayerError {
    fn from(fault: Fault) -> Self {
        Self(Box::new(fault))
    }
}

/// Tests compare errors by their faults.
#[cfg(feature = "unstable-program")]
#[doc(hidden)]
impl PartialEq<Fault> for LayerError {
    fn eq(&self, fault: &Fault) -> bool {
        *self.0 == *fault
    }
}

impl fmt::Display for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for LayerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for LayerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// The fault behind a [`LayerError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The layer has no limits and would let every request through.
    #[error(
        "a layer with 0 limits would let every request through: expected at least 1; add one with \
         `.limit(...)`"
    )]
    NoLimits,
    /// The layer has more limits than one response can name.
    #[error("{limits} limits are too many for one layer: expected 1 to {most}; put one layer into another")]
    TooManyLimits {
        /// The number of limits.
        limits: usize,
        /// The maximum number of limits in one layer.
        most: usize,
    },
    /// The name of a limit cannot be sent in a header.
    #[error(
        "invalid limit name {name:?}: expected 1 to {most} printable ASCII characters; choose one like \
         \"per-address\""
    )]
    Name {
        /// The rejected name.
        name: String,
        /// The maximum number of bytes in a name.
        most: usize,
    },
    /// Two limits have the same name.
    #[error(
        "duplicate limit name {name:?}, so a client could not tell which limit refused: expected names \
         that differ; rename one of them"
    )]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// Two limits share one limiter and its only state, so each request would be charged to that
    /// limiter twice.
    #[error(
        "limits {name:?} and {other:?} use the same limiter, so each request would be charged to it \
         twice: expected a `SingleLimiter` for each; leave one of the limits out, or set a cost"
    )]
    SameLimiter {
        /// The name of the second limit.
        name: String,
        /// The name of the first limit.
        other: String,
    },
    /// Some requests may have no key, but the limit does not set a [`WhenNoKey`](crate::WhenNoKey).
    #[error(
        "limit {limit:?} does not say what to do with a request without a key, and a request may \
         have {missing}: expected `.when_no_key(WhenNoKey::Deny)`, `.when_no_key(WhenNoKey::Allow)` (the \
         limit does not count such a request) or `.when_no_key(WhenNoKey::Share)` (all such requests \
         are one client); choose one, or add `.or(...)` with a key that is always there"
    )]
    NoKey {
        /// The name of the limit.
        limit: String,
        /// What a request may lack, such as "no header `x-tenant`".
        missing: String,
    },
    /// The limiter has a state for each key, but the limit has no key, so all requests would share
    /// one state.
    #[error(
        "limit {limit:?} has a limiter with a state for each key and no `.by(...)`, so all clients together would \
         have one quota: expected a key; add `.by(...)`, or `.by(KeyBy::nothing())` if all requests are meant"
    )]
    NoBy {
        /// The name of the limit.
        limit: String,
    },
    /// The limit has a key, but its limiter has only one state for all requests.
    #[error(
        "limit {limit:?} has `.by(...)`, and its limiter is a `SingleLimiter`, which has one state for all \
         requests: expected a `Limiter`, which has a state for each key; build one, or leave `.by(...)` out"
    )]
    OneState {
        /// The name of the limit.
        limit: String,
    },
    /// The header name is not valid.
    #[error(
        "invalid header name {name:?}: expected letters, digits and !#$%&'*+-.^_`|~; write it like \
         \"x-api-key\""
    )]
    HeaderName {
        /// The rejected text.
        name: String,
    },
    /// The name of the query parameter is empty, or contains more than the name.
    #[error(
        "invalid query parameter name {name:?}: expected at least 1 character, decoded and without `?`, `&`, `=` and \
         quotes; write it like \"api_key\""
    )]
    QueryName {
        /// The rejected text.
        name: String,
    },
    /// A key has more than 255 alternatives.
    #[error("256 alternatives of a key joined with `or`: expected at most 255; leave some out")]
    Alternatives,
    /// A path template is not valid, or can never match.
    #[error("{why}")]
    PathTemplate {
        /// The template, the place and the fix.
        why: String,
    },
    /// The known keys are missing or cannot be read, or this kind of key does not support known
    /// keys.
    #[error("known keys: {why}")]
    KnownKeys {
        /// The rejected value, the expected values, and the fix.
        why: String,
    },
    /// The limiter has classes of callers, but the limit does not specify how to find a request's
    /// class.
    #[error(
        "limit {limit:?} has classes of callers ({}) but no way to find the class of a request, so all requests \
         would be of the default class: expected `.class_by(...)`; add it, or build the limiter without classes",
         classes.join(", ")
    )]
    NoClassBy {
        /// The name of the limit.
        limit: String,
        /// The names of the classes.
        classes: Vec<String>,
    },
    /// The limit specifies how to find a request's class, but its limiter has no classes.
    #[error(
        "limit {limit:?} has a way to find the class of a request, but its limiter has 0 classes: expected at \
         least 1; add `.class(...)` to the limiter's builder, or leave `.class_by(...)` out"
    )]
    NoClasses {
        /// The name of the limit.
        limit: String,
    },
    /// A list or a file names a class that the limiter does not have.
    #[error(
        "limit {limit:?} has no class {class:?}: expected one of its limiter ({}); correct the name, or add \
         the class to the limiter{}",
         classes.join(", "),
         if why.is_empty() { String::new() } else { format!(" (and it is no quota: {why})") }
    )]
    UnknownClass {
        /// The name of the limit.
        limit: String,
        /// The rejected name.
        class: String,
        /// The names of the limiter's classes.
        classes: Vec<String>,
        /// Why the name cannot be parsed as a quota; empty if only class names are allowed.
        why: String,
    },
    /// A limit never applies, because all requests in its scope are exempt from all limits.
    #[error(
        "limit {limit:?} applies to no request, because `except` exempts all requests that it is for: expected \
         exemptions that leave some requests; drop the limit, or the exemption"
    )]
    NeverApplies {
        /// The name of the limit.
        limit: String,
    },
    /// An error in the limiter of a class.
    #[error("class {class:?}: {error}")]
    Class {
        /// The name of the class.
        class: String,
        /// The error that a limit with this class alone would have.
        error: Box<Fault>,
    },
    /// A class lookup has a setting that is out of range.
    #[error("class lookup: {why}")]
    ClassLookup {
        /// The rejected value, the expected values, and the fix.
        why: String,
    },
    /// The keys' classes are invalid or cannot be read, or this kind of key does not support
    /// classes.
    #[error("classes of keys: {why}")]
    KeyClasses {
        /// The rejected value, the expected values, and the fix.
        why: String,
    },
    /// The IPv6 prefix length is above 128, or it is 0, which would give all addresses the same
    /// prefix.
    #[error(
        "invalid IPv6 prefix of {prefix} bits{}: expected 1 to 128; choose 64 for one network, 48 to 56 \
         for what one customer often has",
         if *prefix == 0 { ", which would make all clients one" } else { "" }
    )]
    Ipv6Prefix {
        /// The rejected length, in bits.
        prefix: u8,
    },
    /// The trusted networks contain every address, so any address written by a client would be
    /// trusted.
    #[error(
        "the trusted networks hold every {family} address, so each client could choose its own address: \
         expected networks that leave some addresses out; name the networks of your proxies, or give \
         the number of proxies instead (`TrustedProxies::hops`, or `trust-hops` in a file)"
    )]
    TrustsEverybody {
        /// `IPv4` or `IPv6`.
        family: &'static str,
    },
    /// The list of trusted networks is empty, so the header would never be read.
    #[error(
        "with 0 trusted networks, no forwarded address would ever be read: expected at least 1 network; \
         name the networks of your proxies, or use `KeyBy::peer`"
    )]
    NoNetworks,
    /// A trusted network cannot be parsed.
    #[error(
        "invalid network {text:?}: expected an address, or an address with a prefix length; write it \
         like \"10.0.0.0/8\" or \"2001:db8::/32\""
    )]
    NotANetwork {
        /// The rejected text.
        text: String,
    },
    /// The number of trusted proxies is out of range.
    #[error(
        "invalid number of trusted hops {hops}: expected 1 to {most}; {}",
         if *hops == 0 {
         "without a proxy use `KeyBy::peer`"
         } else {
         "count the proxies, including the one that connects to this service"
         }
    )]
    Hops {
        /// The rejected number.
        hops: usize,
        /// The largest number allowed.
        most: usize,
    },
    /// The cost is 0, so the limit would never refuse a request.
    #[error(
        "limit {limit:?} charges 0 tokens for each request, so it would never refuse one: expected at \
         least 1; leave the limit out, or exempt requests with `.skip(...)`"
    )]
    ZeroCost {
        /// The name of the limit.
        limit: String,
    },
    /// The unit of [`RequestCost::content_length`](crate::RequestCost::content_length) or
    /// [`ResponseCost::bytes`](crate::ResponseCost::bytes) is 0 bytes.
    #[error(
        "limit {limit:?} charges by units of 0 bytes: expected at least 1; choose 1 to count bytes, \
         1024 to count kibibytes"
    )]
    ZeroUnit {
        /// The name of the limit.
        limit: String,
    },
    /// A limit on requests in flight across several machines has a cost.
    #[error(
        "limit {limit:?} limits the requests in flight on several machines, and has `.cost(...)`: expected one \
         permit for each request; leave `.cost(...)` out, or count the requests of this process with \
         an `InFlight`"
    )]
    SharedPlaces {
        /// The name of the limit.
        limit: String,
    },
    /// The limit uses `cut_off` or `input`, but nothing counts the response.
    #[error(
        "limit {limit:?} has `.{needs}(...)` and counts nothing while a response passes: expected a count; add \
         `.or(ResponseCost::events())` or `.or(ResponseCost::bytes(...))`"
    )]
    CountsNothing {
        /// The name of the limit.
        limit: String,
        /// The method that needs a count: `cut_off` or `input`.
        needs: &'static str,
    },
    /// The path of [`ResponseCost::json`](crate::ResponseCost::json) has an empty name, or is
    /// written in another language of paths.
    #[error(
        "invalid JSON path {path:?}: expected names that are separated by dots, none of them empty, without `$` at \
         the beginning and without brackets; write it like \"usage.total_tokens\" or \"0.tokens\""
    )]
    JsonPath {
        /// The rejected path.
        path: String,
    },
    /// The quantile of an [`Estimator`](crate::Estimator) is out of range.
    #[error(
        "invalid quantile {quantile}: expected 0.001 to 0.999 in steps of 0.001; write 95 percent as 0.95"
    )]
    Quantile {
        /// The rejected quantile.
        quantile: String,
    },
    /// A limit on requests in flight would let the response change the charge.
    #[error(
        "limit {limit:?} limits requests in flight, and has `.{rule}(...)`: expected no such rule, because a permit \
         is free when the response has ended, whatever the response says; leave `.{rule}(...)` out"
    )]
    InFlightRule {
        /// The name of the limit.
        limit: String,
        /// The method that sets the rule: `charge_if` or `settle`.
        rule: &'static str,
    },
    /// Each request costs more than the capacity of the limit.
    #[error(
        "limit {limit:?} charges {cost} tokens for each request and never has more than {capacity}, so \
         it would refuse everything: expected a cost of {}; lower the cost or raise the burst",
         if *capacity == 1 { "1".to_owned() } else { format!("1 to {capacity}") }
    )]
    CostAboveCapacity {
        /// The name of the limit.
        limit: String,
        /// The cost of a request, in tokens.
        cost: u64,
        /// The maximum number of tokens that one request can be charged.
        capacity: u64,
    },
    /// The quota allows more requests than any machine can receive.
    #[error(
        "limit {limit:?} of {quota} would never refuse a request: expected up to 100 million requests a \
         second; lower the quota, or leave the limit out"
    )]
    NeverTriggers {
        /// The name of the limit.
        limit: String,
        /// The quota of the limit.
        quota: Quota,
    },
    /// Every limit is in shadow mode, and there is no listener.
    #[error(
        "all limits are in shadow mode and there is no listener, so the layer would do nothing: expected \
         a listener; add `.on_decision(...)` or `.pass_decisions()`, or enable the feature `tracing`"
    )]
    OnlyShadows,
    /// The status of refusals is not an error status.
    #[error(
        "invalid status {} for a refusal: expected 400 to 599; choose 429, the status for rate limits",
         status.as_u16()
    )]
    Status {
        /// The rejected status.
        status: StatusCode,
    },
    /// No limiter can enforce the limit.
    #[error("limit `{}`: {}{error}", printable(limit.as_bytes()), of_class(class.as_deref()))]
    Limiter {
        /// The name of the limit.
        limit: String,
        /// The class of the limiter's callers, if the limit has classes.
        class: Option<String>,
        /// Why the limiter was rejected.
        error: ConfigError,
    },
    /// The limit's text specifies an invalid way to find the request's key or the caller's class.
    #[error("limit `{}`: {error}", printable(limit.as_bytes()))]
    Key {
        /// The name of the limit.
        limit: String,
        /// Why the key was rejected.
        error: Box<Fault>,
    },
    /// A header names the caller's class, but no proxy is trusted, so any client could write the
    /// header.
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
    /// The list of shadow limits contains an unknown name.
    #[error(
        "invalid shadow `{}`: expected the name of a limit ({})",
        printable(name.as_bytes()),
        listed(limits)
    )]
    Shadow {
        /// The rejected name.
        name: String,
        /// The names of the limits.
        limits: Vec<String>,
    },
    /// `charge_if` names a limit that does not exist.
    #[error(
        "charge-if has `{}`: expected the name of a limit ({})",
        printable(name.as_bytes()),
        listed(limits)
    )]
    ChargeIf {
        /// The rejected name.
        name: String,
        /// The names of the limits.
        limits: Vec<String>,
    },
    /// Statuses decide about the charges of a limit that has no rate.
    #[error(
        "charge-if: `{}` has no rate, so no response gives a charge back: expected a limit with a rate, such as \
         5/min",
        printable(limit.as_bytes())
    )]
    NothingToGiveBack {
        /// The name of the limit.
        limit: String,
    },
    /// A field with the client's address is set, but no proxy is trusted.
    #[error(
        "forwarded-field `{field}` would never be read, because no proxy is trusted: expected trusted proxies; set \
         `trust` or `trust-hops`, or leave `forwarded-field` out"
    )]
    ForwardedField {
        /// The name of the field.
        field: String,
    },
    /// Proxies are trusted both by number and by their networks.
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
}

impl Fault {
    fn limit_name(&self) -> Option<&str> {
        match self {
            Self::Name { name, .. } | Self::DuplicateName { name } | Self::SameLimiter { name, .. } => {
                Some(name)
            }
            Self::NoKey { limit, .. }
            | Self::NoBy { limit }
            | Self::OneState { limit }
            | Self::NoClassBy { limit, .. }
            | Self::NoClasses { limit }
            | Self::UnknownClass { limit, .. }
            | Self::NeverApplies { limit }
            | Self::ZeroCost { limit }
            | Self::ZeroUnit { limit }
            | Self::SharedPlaces { limit }
            | Self::CountsNothing { limit, .. }
            | Self::InFlightRule { limit, .. }
            | Self::CostAboveCapacity { limit, .. }
            | Self::NeverTriggers { limit, .. }
            | Self::Limiter { limit, .. }
            | Self::Key { limit, .. }
            | Self::NothingToGiveBack { limit }
            | Self::ClassHeader { limit, .. } => Some(limit),
            Self::Class { error, .. } => error.limit_name(),
            _ => None,
        }
    }
}

/// Returns the beginning of an error message about a limiter. The text includes the limiter's
/// class.
fn of_class(class: Option<&str>) -> String {
    class.map_or(String::new(), |class| format!("class {class:?}: "))
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "there is none".to_owned();
    }
    let names: Vec<String> = names.iter().map(|name| printable(name.as_bytes())).collect();
    names.join(", ")
}
