//! [`Answer`]: what a response says of the server's limits.
//!
//! # Forms
//!
//! | fields | form | read by |
//! |---|---|---|
//! | `Retry-After`, `retry-after-ms` | seconds, a date, and other times | `moment` |
//! | `RateLimit`, `RateLimit-Policy` | draft-08 and later: lists of named items | `structured` |
//! | the same | draft-07: a dictionary, and a list of integers | `structured` |
//! | `RateLimit-Limit`, `-Remaining`, `-Reset` | draft-03 to draft-06 | `older` |
//! | `X-RateLimit-*` and its relatives | a number each, and a time | `older` |
//!
//! The older fields are read only where `RateLimit` says nothing, because servers that send both
//! mean one limit. A value that cannot be read is left out, and so are all but the first
//! [`MAX_LIMITS`] limits.

mod moment;
mod older;
mod structured;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use std::time::{Duration, SystemTime};

/// The most limits that are read from one response.
pub(crate) const MAX_LIMITS: usize = 8;

/// What a response says of the server's limits, and of when to call again.
///
/// Reading never fails: a field that no form fits is left out, a negative time is zero, and of
/// several times for one thing the longest counts.
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use std::time::{Duration, SystemTime};
/// use tollgate_wait::Answer;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("ratelimit-policy", "\"burst\";q=100;w=60".parse()?);
/// headers.insert("ratelimit", "\"burst\";r=0;t=17".parse()?);
/// headers.insert("retry-after", "Sun, 06 Nov 1994 08:49:55 GMT".parse()?);
/// headers.insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse()?);
///
/// let answer = Answer::read(StatusCode::TOO_MANY_REQUESTS, &headers, SystemTime::now());
/// assert!(answer.is_refusal);
/// assert_eq!(answer.retry_after, Some(Duration::from_secs(18)));
/// assert_eq!(answer.limits[0].tokens, Some(100));
/// assert_eq!(answer.limits[0].window, Some(Duration::from_secs(60)));
/// assert_eq!(answer.limits[0].remaining, Some(0));
/// assert_eq!(answer.limits[0].reset, Some(Duration::from_secs(17)));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// Whether the server refused the request for now: the status is 429 or 503.
    pub is_refusal: bool,
    /// How long not to call, by `Retry-After` of a response whose status is 400 or higher. A date
    /// is read against the response's `Date`, or else against the time of reception. Zero for a
    /// negative number or a date that is over.
    pub retry_after: Option<Duration>,
    /// The limits that the response describes.
    pub limits: Vec<ServerLimit>,
}

/// A limit of a server, as a response describes it. What the response leaves out is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimit {
    /// The name that the server gives the limit, with its partition key if it has one. Limits of
    /// the older fields have no name in the response; they are called by their fields.
    pub name: String,
    /// The quota: how much of `unit` the server admits in `window`.
    pub tokens: Option<u64>,
    /// The time in which `tokens` are available.
    pub window: Option<Duration>,
    /// How much is left.
    pub remaining: Option<u64>,
    /// How long until more is left: for some servers until any more is, for others until all is.
    pub reset: Option<Duration>,
    /// What the limit counts, if not requests: the `qu` of `RateLimit-Policy`, or `tokens`.
    pub unit: Option<String>,
}

impl Answer {
    /// Reads a response whose head was received at `received`, by the system's clock.
    ///
    /// Times are read as whole seconds, fractions, seconds or milliseconds since 1970 (from 10^9
    /// and 10^12 on), dates of HTTP, RFC 3339, and durations such as `6m0s`.
    pub fn read(status: StatusCode, headers: &HeaderMap, received: SystemTime) -> Self {
        let date = headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let now = date.unwrap_or(received);
        let is_error = status.is_client_error() || status.is_server_error();
        let mut limits = structured::limits(headers);
        if limits.is_empty() {
            limits = older::limits(headers, now);
        }
        limits.truncate(MAX_LIMITS);
        Self {
            is_refusal: [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status),
            retry_after: if is_error { retry_after(headers, now) } else { None },
            limits,
        }
    }
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let texts = headers.get_all(RETRY_AFTER).iter().filter_map(|text| text.to_str().ok());
    let seconds = texts.filter_map(|text| moment::latest(text, now)).max();
    let millis = headers.get("retry-after-ms").and_then(|text| text.to_str().ok()?.trim().parse().ok());
    millis.map(Duration::from_millis).or(seconds)
}
