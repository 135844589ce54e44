//! [`Answer`]: the server's limits, as described by a response.
//!
//! # Forms
//!
//! | fields | form | read by |
//! |---|---|---|
//! | `Retry-After`, `X-Rate-Limit-Retry-After-Seconds` | seconds, a date, and other times | `moment` |
//! | `retry-after-ms`, `x-ms-retry-after-ms` | milliseconds | `moment` |
//! | `RateLimit`, `RateLimit-Policy` | draft-08 and later: lists of named items | `structured` |
//! | the same | draft-07: a dictionary, and a list of integers | `structured` |
//! | `RateLimit-Limit`, `-Remaining`, `-Reset` | draft-03 to draft-06 | `older` |
//! | `X-RateLimit-*` and its relatives | a number each, perhaps with a window, and a time | `older` |
//! | `*-Api-Call-Limit` | the used and the total amount, such as `39/40` | `older` |
//!
//! The older fields are read only if `RateLimit` contains no remaining amount, because servers that
//! send both describe the same limit twice. A limit of the older fields completes the policy with
//! the same quota, if `RateLimit-Policy` contains one. Values that cannot be parsed are ignored,
//! and so are all limits after the first [`MAX_LIMITS`].

mod moment;
mod older;
mod structured;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use std::time::{Duration, SystemTime};

/// The maximum number of limits read from one response.
pub(crate) const MAX_LIMITS: usize = 8;

/// The statuses of refusals: "Too Many Requests", "Service Unavailable", and the status 529 of some
/// overloaded servers, which is not registered.
const REFUSALS: [u16; 3] = [429, 503, 529];

/// The server's limits, and how long to wait before the next call, as described by a response.
///
/// Reading never fails. A field in an unknown form is ignored, and a negative time is treated as
/// zero. If a field contains more than one time, the longest counts.
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
    /// True if the server refused the request for now, with the status 429, 503 or 529.
    pub is_refusal: bool,
    /// True if the pause applies to all keys of a [`Paced`](crate::Paced), and not only to the key
    /// of the request. [`read`](Self::read) always returns false, because there is no standard
    /// field for this. Set it in [`Paced::read_with`](crate::Paced::read_with).
    pub is_global: bool,
    /// How long to wait before calling the server again, according to the field `Retry-After`,
    /// `retry-after-ms`, `x-ms-retry-after-ms` or `X-Rate-Limit-Retry-After-Seconds` of a response
    /// whose status is 400 or higher. Milliseconds take precedence, because they are more precise.
    /// A date is compared with the response's `Date`, or with the time of reception if the response
    /// has no `Date`. The result is zero for a negative number or a date in the past.
    pub retry_after: Option<Duration>,
    /// The limits that the response describes.
    pub limits: Vec<ServerLimit>,
}

/// A server's limit, as described by a response. Values that the response omits are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLimit {
    /// The limit's name in the response, followed by its partition key if it has one, and by its
    /// quota if an earlier policy has the same name. Limits in the older fields have no name in the
    /// response, so they are named after the field, or after the policy with the same quota.
    pub name: String,
    /// The quota, which is the amount of `unit` that the server admits in `window`.
    pub tokens: Option<u64>,
    /// The time in which `tokens` are available.
    pub window: Option<Duration>,
    /// The remaining amount.
    pub remaining: Option<u64>,
    /// The time until the remaining amount grows. Some servers report the time until any amount
    /// becomes available; others report the time until the whole quota is available.
    pub reset: Option<Duration>,
    /// The unit that the limit counts, if it does not count requests: the `qu` of
    /// `RateLimit-Policy`, or `tokens`.
    pub unit: Option<String>,
}

impl Answer {
    /// Reads a response whose head was received at `received`, according to the system clock.
    ///
    /// Times may be whole or fractional seconds, or durations such as `6m0s`. They may also be
    /// dates in the format of HTTP or RFC 3339. Numbers of at least 10^9 are seconds since 1970,
    /// and numbers of at least 10^12 are milliseconds since 1970.
    pub fn read(status: StatusCode, headers: &HeaderMap, received: SystemTime) -> Self {
        let date = headers.get(DATE).and_then(|date| moment::date(date.to_str().ok()?));
        let now = date.unwrap_or(received);
        let is_error = status.is_client_error() || status.is_server_error();
        let mut limits = structured::limits(headers);
        if limits.iter().all(|limit| limit.remaining.is_none()) {
            let mut older = older::limits(headers, now);
            older.retain(|limit| !structured::complete(&mut limits, limit));
            limits.append(&mut older);
        }
        limits.truncate(MAX_LIMITS);
        Self {
            is_refusal: REFUSALS.contains(&status.as_u16()),
            is_global: false,
            retry_after: if is_error { retry_after(headers, now) } else { None },
            limits,
        }
    }
}

fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let texts = |name| headers.get_all(name).iter().filter_map(|text| text.to_str().ok());
    let millis = ["retry-after-ms", "x-ms-retry-after-ms"].into_iter().flat_map(texts);
    let seconds = [RETRY_AFTER.as_str(), "x-rate-limit-retry-after-seconds"].into_iter().flat_map(texts);
    let millis = millis.filter_map(moment::millis).max();
    millis.or_else(|| seconds.filter_map(|text| moment::latest(text, now)).max())
}
