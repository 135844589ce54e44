//! A refusal and its reason, from which responses are made.

use crate::head::RequestHead;
use http::StatusCode;
use std::time::Duration;
use tollgate::{Decision, Outcome, Source};

/// The reason why a request was refused.
///
/// ```
/// # use tollgate_http::Reason;
/// assert_ne!(Reason::Quota, Reason::NoKey);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// The client has used up its quota.
    Quota,
    /// As many requests of the client are in flight as may be ([`Limit::in_flight`]). Nobody knows
    /// when one ends.
    ///
    /// [`Limit::in_flight`]: crate::Limit::in_flight
    InFlight,
    /// The request costs more than the limit ever has, so no wait helps.
    TooCostly,
    /// The limiter tracks its maximum number of clients, and this client is new. When there will be
    /// a place is not known: it depends on the clients that have one.
    Full,
    /// The counts are on another machine that does not answer, and the limit then refuses.
    Unavailable,
    /// The request has no key, and the limit requires one.
    NoKey,
}

impl Reason {
    /// Returns why a limit with this decision, or without one, refuses.
    pub(crate) fn of(decision: Option<&Decision>, limit: LimitKind) -> Self {
        match decision {
            None => Self::NoKey,
            Some(decision) if decision.outcome() == Outcome::TooCostly => Self::TooCostly,
            Some(decision) if decision.source() == Source::Policy => {
                if limit.is_shared {
                    Self::Unavailable
                } else {
                    Self::Full
                }
            }
            Some(_) if limit.is_in_flight => Self::InFlight,
            Some(_) => Self::Quota,
        }
    }
}

/// What a limit counts, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitKind {
    pub(crate) is_in_flight: bool,
    pub(crate) is_shared: bool,
}

/// A refusal, for responses of your own; see [`respond`](crate::RateLimitBuilder::respond).
///
/// ```
/// use bytes::Bytes;
/// use http::Response;
/// use tollgate_http::{Limit, RateLimitLayer};
/// use tollgate::{Quota, SingleLimiter};
///
/// let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::global("all", limiter))
///     .respond(|denial| {
///         let wait = denial.retry_after_seconds().unwrap_or(0);
///         let page = format!("<p>Too fast ({}). Come again in {wait} s.", denial.limit_name());
///         let mut response = Response::new(Bytes::from(page));
///         *response.status_mut() = denial.status();
///         response
///     })
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Denial<'a> {
    pub(crate) limit: &'a str,
    pub(crate) class: Option<&'a str>,
    pub(crate) violated: &'a [&'a str],
    pub(crate) decision: Option<&'a Decision>,
    pub(crate) request: RequestHead<'a>,
    pub(crate) status: StatusCode,
    pub(crate) wait: Option<u64>,
    pub(crate) kind: LimitKind,
    pub(crate) max_keys: Option<usize>,
}

impl<'a> Denial<'a> {
    /// Returns the name of the binding limit: of those that refused, the one with the longest wait.
    pub fn limit_name(&self) -> &'a str {
        self.limit
    }

    /// Returns the name of the caller's class in the binding limit; `None` for the default class,
    /// and for a request without a key. Responses of the layer itself do not name it.
    pub fn class(&self) -> Option<&'a str> {
        self.class
    }

    /// Returns the names of all limits that refused, the binding one first.
    pub fn violated(&self) -> &'a [&'a str] {
        self.violated
    }

    /// Returns why the request was refused.
    pub fn reason(&self) -> Reason {
        Reason::of(self.decision, self.kind)
    }

    /// Returns the most clients that the binding limit tracks, of the caller's class, if the
    /// request was refused because there are as many and this client is new ([`Reason::Full`]).
    pub fn max_keys(&self) -> Option<usize> {
        self.max_keys
    }

    /// Returns the decision of the binding limit; `None` if it found no key.
    pub fn decision(&self) -> Option<&'a Decision> {
        self.decision
    }

    /// Returns the request.
    pub fn request(&self) -> RequestHead<'a> {
        self.request
    }

    /// Returns the status that the layer is configured to respond with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the exact time to wait; `None` if no wait can be promised.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision?.retry_after()
    }

    /// Returns the time to wait in whole seconds, rounded up, as in `Retry-After`.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.wait
    }

    /// Returns the reason as one sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { limit, wait, .. } = self;
        match (self.reason(), wait) {
            (Reason::Quota, Some(1)) => format!("rate limit {limit:?} exceeded: retry after 1 second"),
            (Reason::Quota, Some(wait)) => {
                format!("rate limit {limit:?} exceeded: retry after {wait} seconds")
            }
            (Reason::Quota, None) => format!("rate limit {limit:?} exceeded"),
            (Reason::InFlight, _) => {
                let most = self.decision.map_or(0, Decision::capacity);
                format!(
                    "limit {limit:?} allows {most} at once, and as many are in flight: retry when one has ended"
                )
            }
            (Reason::TooCostly, _) => {
                let most = self.decision.map_or(0, Decision::capacity);
                format!(
                    "the request costs more than rate limit {limit:?} ever allows at once, which is {most}"
                )
            }
            (Reason::Full, _) => {
                let most =
                    self.max_keys.map_or(String::new(), |most| format!("all {most} places are taken, "));
                format!(
                    "rate limit {limit:?} has no room for a new client: {most}and when one becomes free is not \
                     known; retry later"
                )
            }
            (Reason::Unavailable, _) => {
                format!("rate limit {limit:?} can't be checked at present: retry later")
            }
            (Reason::NoKey, _) => format!("rate limit {limit:?} can't identify the client of this request"),
        }
    }
}
