//! The headers of a response: `RateLimit` and `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers), and on request the older `X-RateLimit-*`.
//!
//! All figures come from one decision. They are written on the stack when the decision is made, so
//! that each header takes one allocation. Names were checked and quoted by `sfv` when the layer was
//! built.

use super::grpc;
use super::seconds::{self, MAX_INTEGER};
use crate::limit::compiled::{Class, CompiledLimit};
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use smallvec::SmallVec;
use std::io::Write;
use tollgate::Decision;

/// The text of a header, on the stack; a longer text is allocated.
pub(crate) type Text = SmallVec<[u8; 256]>;

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static LEGACY: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// The rate limit headers of one response.
#[derive(Default)]
pub(crate) struct Fields {
    pub(crate) rate_limit: Option<HeaderValue>,
    pub(crate) policy: Option<HeaderValue>,
    /// Limit, remaining and reset.
    pub(crate) legacy: Option<Box<[Option<HeaderValue>; 3]>>,
    /// Seconds until the limits whose charges stay have more tokens, for a response that an inner
    /// layer refuses; 0 if none of them is used up.
    pub(crate) wait: u64,
}

impl Fields {
    /// Adds the headers to a response.
    ///
    /// If one layer is inside another, the items of both form one list, on one line. The older
    /// headers are not lists, so those of the inner layer stay.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        if let Some(value) = self.rate_limit {
            add_items(headers, &RATELIMIT, value);
        }
        if let Some(value) = self.policy {
            add_items(headers, &RATELIMIT_POLICY, value);
        }
        for (name, value) in LEGACY.iter().zip(self.legacy.into_iter().flat_map(|it| *it)) {
            if let Some(value) = value.filter(|_| !headers.contains_key(name)) {
                headers.insert(name, value);
            }
        }
    }
}

/// Adds items to a header that is a list, and puts the whole list on one line.
fn add_items(headers: &mut HeaderMap, name: &HeaderName, items: HeaderValue) {
    let was_there = headers.append(name, items);
    if !was_there {
        return;
    }
    let mut list = Text::new();
    for line in headers.get_all(name).iter().filter(|line| !line.is_empty()) {
        if !list.is_empty() {
            list.extend_from_slice(b", ");
        }
        list.extend_from_slice(line.as_bytes());
    }
    if let Some(list) = value(&list) {
        headers.insert(name, list);
    }
}

/// Returns the seconds until this limit has more tokens, if it admitted a request and has too few
/// left for another one like it; else 0.
pub(crate) fn wait_for_more(limit: &CompiledLimit, charge: &Decision) -> u64 {
    let used_up = !limit.shadow && charge.remaining() < charge.charged();
    if used_up { seconds::until_more(charge).unwrap_or(0) } else { 0 }
}

/// Puts off the retry that a refusal promises, if it promises one earlier than in `wait` seconds.
pub(crate) fn delay(headers: &mut HeaderMap, wait: u64) {
    for (name, wait) in [(&RETRY_AFTER, wait), (&grpc::RETRY_PUSHBACK, grpc::pushback(wait))] {
        let promised = headers.get(name).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if promised.is_some_and(|promised| promised < wait) {
            headers.insert(name, wait.into());
        }
    }
}

/// A limit, the class of the caller and the decision.
#[derive(Clone, Copy)]
pub(crate) struct LimitDecision<'r> {
    pub(crate) limit: &'r CompiledLimit,
    pub(crate) class: &'r Class,
    pub(crate) decision: &'r Decision,
}

impl LimitDecision<'_> {
    /// Returns whether the limit refused the request.
    pub(crate) fn refuses(&self) -> bool {
        !self.limit.shadow && !self.decision.is_allowed()
    }
}

/// Skips the limits in shadow mode, which are not shown.
fn shown<'r>(decisions: impl Iterator<Item = LimitDecision<'r>>) -> impl Iterator<Item = LimitDecision<'r>> {
    decisions.filter(|it| !it.limit.shadow)
}

/// Returns the value of `RateLimit`, with one item for each limit.
///
/// `wait` is the value of `Retry-After`, if the request was refused: no item of that response has a
/// later time.
pub(crate) fn rate_limit<'r>(
    decisions: impl Iterator<Item = LimitDecision<'r>>,
    wait: Option<u64>,
) -> Option<HeaderValue> {
    let mut text = Text::new();
    for LimitDecision { limit, decision, .. } in shown(decisions) {
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(limit.quoted.as_bytes());
        put(&mut text, ";r=", decision.remaining());
        let after = if decision.is_allowed() {
            seconds::until_more(decision).filter(|&after| wait.is_none_or(|wait| after <= wait))
        } else {
            seconds::until_retry(decision)
        };
        if let Some(after) = after {
            put(&mut text, ";t=", after);
        }
    }
    value(&text)
}

/// Returns the values of the older headers, which describe one limit. Limit and remaining are in
/// tokens; reset is in seconds from now, until all of the limit is available again.
pub(crate) fn legacy(decision: &Decision) -> Box<[Option<HeaderValue>; 3]> {
    let reset = seconds::until_reset(decision).map(HeaderValue::from);
    Box::new([
        Some(HeaderValue::from(decision.capacity())),
        Some(HeaderValue::from(decision.remaining())),
        reset.or_else(|| (decision.remaining() == decision.capacity()).then(|| HeaderValue::from(0))),
    ])
}

/// Returns the decision of the limit that has the smallest share left.
pub(crate) fn scarcest<'r>(decisions: impl Iterator<Item = LimitDecision<'r>>) -> Option<&'r Decision> {
    let share = |decision: &Decision, other: &Decision| {
        u128::from(decision.remaining()) * u128::from(other.capacity())
    };
    shown(decisions).map(|it| it.decision).min_by(|a, b| share(a, b).cmp(&share(b, a)))
}

/// Appends a parameter. An Integer of structured fields has at most 15 digits.
pub(crate) fn put(text: &mut Text, name: &str, number: u64) {
    // Writing into memory cannot fail.
    let _ = write!(text, "{name}{}", number.min(MAX_INTEGER));
}

/// Returns the text as a header value; `None` if it is empty.
pub(crate) fn value(text: &Text) -> Option<HeaderValue> {
    if text.is_empty() { None } else { HeaderValue::from_bytes(text).ok() }
}
