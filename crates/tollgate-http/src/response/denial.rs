//! Why a request was refused, as answers are made of it.

use crate::head::RequestHead;
use http::StatusCode;
use std::time::Duration;
use tollgate::{Decision, Outcome, Source};

/// Why a request was refused.
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
    /// The request costs more than the limit ever has: no wait helps.
    TooCostly,
    /// The limiter tracks as many clients as it may, and this one is new.
    Full,
    /// There is no key, and the limit wants one.
    NoKey,
}

/// A refusal, for those who write answers of their own; see [`respond`](crate::RateLimitBuilder::respond).
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
///         let page = format!("<p>Too fast ({}). Come again in {wait} s.", denial.limit());
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
    pub(crate) violated: &'a [&'a str],
    pub(crate) decision: Option<&'a Decision>,
    pub(crate) request: RequestHead<'a>,
    pub(crate) status: StatusCode,
    pub(crate) wait: Option<u64>,
}

impl<'a> Denial<'a> {
    /// The binding limit: of those that refused, the one with the longest wait.
    pub fn limit(&self) -> &'a str {
        self.limit
    }

    /// All limits that refused, the binding one first.
    pub fn violated(&self) -> &'a [&'a str] {
        self.violated
    }

    /// Why.
    pub fn reason(&self) -> Reason {
        match self.decision {
            None => Reason::NoKey,
            Some(decision) if decision.outcome() == Outcome::TooCostly => Reason::TooCostly,
            Some(decision) if decision.source() == Source::Policy => Reason::Full,
            Some(_) => Reason::Quota,
        }
    }

    /// The binding limit's decision; `None` if it found no key.
    pub fn decision(&self) -> Option<&'a Decision> {
        self.decision
    }

    /// The request.
    pub fn request(&self) -> RequestHead<'a> {
        self.request
    }

    /// The status that the layer was told to answer with.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// How long to wait, exactly; `None` if no wait can be promised.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision?.retry_after()
    }

    /// How long to wait, in whole seconds rounded up, as `Retry-After` says it.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.wait
    }

    /// One sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { limit, wait, .. } = self;
        match (self.reason(), wait) {
            (Reason::Quota, Some(1)) => format!("rate limit {limit:?} exceeded: retry after 1 second"),
            (Reason::Quota, Some(wait)) => {
                format!("rate limit {limit:?} exceeded: retry after {wait} seconds")
            }
            (Reason::Quota, None) => format!("rate limit {limit:?} exceeded"),
            (Reason::TooCostly, _) => {
                let most = self.decision.map_or(0, Decision::capacity);
                format!(
                    "the request costs more than rate limit {limit:?} ever allows at once, which is {most}"
                )
            }
            (Reason::Full, _) => format!("rate limit {limit:?} has no room for new clients: retry later"),
            (Reason::NoKey, _) => format!("rate limit {limit:?} can't tell whom this request comes from"),
        }
    }
}
