//! A refusal and its reason. Responses are built from refusals.

use crate::head::RequestHead;
use http::StatusCode;
use tollgate::{Decision, DecisionSource, Outcome};

/// Why a request was refused.
///
/// ```
/// # use tollgate_http::RefusalReason;
/// assert_ne!(RefusalReason::Quota, RefusalReason::NoKey);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The client has used up its quota.
    Quota,
    /// The client has recently been refused, and is paused until its penalty ends: see
    /// [`Builder::penalty`](tollgate::Builder::penalty).
    Paused,
    /// The client already has its maximum number of requests in flight. It is unknown when one of
    /// these requests will end. See [`Limit`](crate::Limit#requests-in-flight).
    InFlight,
    /// The request costs more than the limit's capacity, so waiting does not help.
    TooCostly,
    /// The limiter already tracks its maximum number of clients, and this client is new. It is
    /// unknown when room will become available, because that depends on the tracked clients.
    Full,
    /// The machine that stores the counts does not answer, and the limit is configured to refuse
    /// requests when this happens.
    Unavailable,
    /// The request has no key, and the limit requires one.
    NoKey,
    /// The request has several values where the limit looks for its key, such as a header that
    /// occurs twice. The status is 400.
    AmbiguousKey,
    /// The limit refuses all requests of this client. Waiting does not help, so the status is the
    /// same as for requests [without a key](crate::RateLimitBuilder::no_key_status).
    Blocked,
}

impl RefusalReason {
    /// Returns the reason for a refusal with this decision.
    pub(crate) fn of(decision: &Decision, limit: LimitKind) -> Self {
        match decision.source() {
            _ if decision.outcome() == Outcome::TooCostly => Self::TooCostly,
            DecisionSource::Policy if limit.is_shared => Self::Unavailable,
            DecisionSource::Policy => Self::Full,
            DecisionSource::Pause => Self::Paused,
            _ if limit.is_in_flight => Self::InFlight,
            _ => Self::Quota,
        }
    }
}

/// The kind of a limit, which determines what is counted and where the counts are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitKind {
    pub(crate) is_in_flight: bool,
    pub(crate) is_shared: bool,
}

/// A refusal, from which you can create your own response; see
/// [`respond`](crate::RateLimitBuilder::respond).
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use tollgate_http::{Limit, RateLimitLayer};
/// use tollgate::{Quota, SingleLimiter};
///
/// let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::new("all", limiter))
///     .respond(|refusal| {
///         let wait = refusal.retry_after_seconds.unwrap_or(0);
///         let page = format!("<p>Too fast ({}). Come again in {wait} s.", refusal.limit_name);
///         let mut response = Response::new(Bytes::from(page));
///         *response.status_mut() = refusal.status;
///         response
///     })
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Refusal<'a> {
    /// The name of the binding limit, which is the limit with the longest wait among those that
    /// deny the request.
    pub limit_name: &'a str,
    /// The name of the caller's class in the binding limit; `None` for a limit without classes, and
    /// for a request without a key. The layer's own responses do not contain this name.
    pub class: Option<&'a str>,
    /// The names of all limits that deny the request, starting with the binding limit.
    pub violated: &'a [&'a str],
    /// Why the request was refused.
    pub reason: RefusalReason,
    /// The maximum number of clients that the binding limit tracks in the caller's class. This
    /// field is `None` unless the request was refused for [`RefusalReason::Full`].
    pub max_keys: Option<usize>,
    /// The binding limit's decision, with the exact time to wait; `None` if the limit found no key.
    pub decision: Option<&'a Decision>,
    /// The request.
    pub request: RequestHead<'a>,
    /// The status with which the layer is configured to respond.
    pub status: StatusCode,
    /// The time to wait in whole seconds, rounded up, as in `Retry-After`. `None` if the layer
    /// cannot say when a retry would succeed.
    pub retry_after_seconds: Option<u64>,
}

impl Refusal<'_> {
    /// Returns the reason as one sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { limit_name: limit, retry_after_seconds: wait, .. } = self;
        let retry = match wait {
            Some(1) => ": retry after 1 second".to_owned(),
            Some(wait) => format!(": retry after {wait} seconds"),
            None => String::new(),
        };
        match (self.reason, wait) {
            (RefusalReason::Quota, _) => format!("rate limit {limit:?} exceeded{retry}"),
            (RefusalReason::Paused, _) => {
                format!(
                    "rate limit {limit:?} refuses this client for a while, because it was exceeded{retry}"
                )
            }
            (RefusalReason::InFlight, _) => {
                let most = self.decision.map_or(0, Decision::capacity);
                format!(
                    "limit {limit:?} allows {most} at once, and as many are in flight: retry when one has ended"
                )
            }
            (RefusalReason::TooCostly, _) => {
                let most = self.decision.map_or(0, Decision::capacity);
                format!(
                    "the request costs more than rate limit {limit:?} ever allows at once, which is {most}"
                )
            }
            (RefusalReason::Full, _) => {
                let most = self.max_keys.map_or(String::new(), |most| format!(" {most}"));
                format!(
                    "rate limit {limit:?} has no room for a new client: all{most} places are taken, and it is not \
                     known when one becomes free; retry later"
                )
            }
            (RefusalReason::Unavailable, _) => {
                format!("rate limit {limit:?} can't be checked at present: retry later")
            }
            (RefusalReason::NoKey, _) => {
                format!("rate limit {limit:?} can't identify the client of this request")
            }
            (RefusalReason::AmbiguousKey, _) => {
                format!(
                    "the request has several values where rate limit {limit:?} looks for its client: send one"
                )
            }
            (RefusalReason::Blocked, _) => format!("limit {limit:?} blocks this client"),
        }
    }
}
