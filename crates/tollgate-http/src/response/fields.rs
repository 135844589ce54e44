//! Writes a response's fields: `RateLimit` and `RateLimit-Policy`
//! (draft-ietf-httpapi-ratelimit-headers) and, if enabled, the older `X-RateLimit-*`.
//!
//! All figures for a limit come from one decision. They are formatted on the stack when the
//! decision is made, so each field requires only one allocation. `sfv` checked and quoted the names
//! when the layer was built.
//!
//! # Fields that are present already
//!
//! An upstream, the handler or an inner layer may have written the same fields. `standing` keeps
//! valid existing items together with this layer's items. The older fields and `Retry-After` can
//! contain only one value each, so one of two values is dropped. An existing value that no client
//! can read is always replaced.

use super::grpc;
use super::seconds::{self, MAX_INTEGER};
use super::standing;
use crate::head::number;
use crate::key::parts::KeyPart;
use crate::limit::compiled::{Class, CompiledLimit};
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use smallvec::SmallVec;
use std::io::Write;
use tollgate::{Decision, DecisionSource};

/// The text of a field, stored on the stack. Longer text is stored on the heap.
pub(crate) type FieldText = SmallVec<[u8; 256]>;

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
static LEGACY: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// The rate limit fields of one response.
#[derive(Default)]
pub(crate) struct Fields {
    pub(crate) rate_limit: Option<HeaderValue>,
    pub(crate) policy: Option<HeaderValue>,
    pub(crate) legacy: Option<Box<Legacy>>,
    /// The number of seconds until the limits with final charges have more tokens, or 0 if none of
    /// these limits is used up. This number is used if an inner layer refuses the request.
    pub(crate) wait: u64,
}

impl Fields {
    /// Returns whether there is any field.
    #[cfg(feature = "unstable-program")]
    pub(crate) fn is_some(&self) -> bool {
        self.rate_limit.is_some() || self.policy.is_some() || self.legacy.is_some()
    }

    /// Adds the fields to a response, which may be an inner layer's refusal.
    ///
    /// The items of two layers form one list on one line. The older fields describe only one limit.
    /// If an inner layer refused the request, they describe the limit that refused it, and
    /// otherwise the limit with the smaller share left.
    pub(crate) fn write(self, headers: &mut HeaderMap, is_refused_inside: bool) {
        if let Some(items) = self.rate_limit {
            standing::add_items(headers, &RATELIMIT, "r", items);
        }
        if let Some(items) = self.policy {
            standing::add_items(headers, &RATELIMIT_POLICY, "q", items);
        }
        if let Some(ours) = self.legacy {
            let stays = |standing: Legacy| is_refused_inside || !ours.is_scarcer_than(&standing);
            if !Legacy::of(headers).is_some_and(stays) {
                ours.write(headers);
            }
        }
    }
}

/// The values of the older fields, which describe one limit. Limit and remaining are numbers of
/// tokens. Reset is the number of seconds until the whole limit is available again.
pub(crate) struct Legacy {
    limit: u64,
    remaining: u64,
    reset: Option<u64>,
}

impl Legacy {
    pub(crate) fn new(decision: &Decision) -> Self {
        let (limit, remaining) = (decision.capacity(), decision.remaining());
        let reset = seconds::until_reset(decision).or_else(|| (remaining == limit).then_some(0));
        Self { limit, remaining, reset }
    }

    /// Reads a response's older fields, which together describe one limit. Returns `None` if one of
    /// the fields is not a number, or if limit or remaining is missing.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let [limit, remaining, reset] = LEGACY.each_ref().map(|name| number(headers, name));
        if reset.is_none() && headers.contains_key(&LEGACY[2]) {
            return None;
        }
        Some(Self { limit: limit?, remaining: remaining?, reset })
    }

    /// Returns whether this limit has a smaller share left than the other limit.
    fn is_scarcer_than(&self, other: &Self) -> bool {
        u128::from(self.remaining) * u128::from(other.limit)
            < u128::from(other.remaining) * u128::from(self.limit)
    }

    fn write(&self, headers: &mut HeaderMap) {
        for (name, value) in LEGACY.iter().zip([Some(self.limit), Some(self.remaining), self.reset]) {
            match value {
                Some(value) => drop(headers.insert(name, value.into())),
                None => drop(headers.remove(name)),
            }
        }
    }
}

/// Returns the number of seconds until this limit has more tokens. Returns 0 unless the limit
/// admitted a request and has too few tokens left for another request of the same cost.
pub(crate) fn wait_for_more(limit: &CompiledLimit, charge: &Decision) -> u64 {
    let used_up = !limit.shadow && charge.remaining() < charge.charged();
    if used_up { seconds::until_more(charge).unwrap_or(0) } else { 0 }
}

/// Adds a `Retry-After` of `wait` seconds. Does nothing if the user's own response already contains
/// exactly one `Retry-After` with a valid value, that is, a number of seconds or a date.
pub(crate) fn promise(headers: &mut HeaderMap, wait: u64) {
    let mut lines = headers.get_all(RETRY_AFTER).iter();
    let stands =
        matches!((lines.next(), lines.next()), (Some(line), None) if line.as_bytes().ends_with(b" GMT"));
    if !stands && number(headers, &RETRY_AFTER).is_none() {
        headers.insert(RETRY_AFTER, wait.into());
    }
}

/// Raises the retry time in an inner layer's refusal to at least `wait` seconds from now. `inside`
/// is the wait that the inner layer computed; it is used if `Retry-After` is a date.
pub(crate) fn delay(headers: &mut HeaderMap, inside: Option<u64>, wait: u64) {
    let promised = number(headers, &RETRY_AFTER).or(inside);
    if headers.contains_key(RETRY_AFTER) && promised.unwrap_or(0) < wait {
        headers.insert(RETRY_AFTER, wait.into());
    }
    let wait = grpc::pushback(wait);
    // A negative number forbids retries.
    if number(headers, &grpc::RETRY_PUSHBACK).is_some_and(|promised| promised < wait) {
        headers.insert(&grpc::RETRY_PUSHBACK, wait.into());
    }
}

/// A limit, the caller's class and the decision.
#[derive(Clone, Copy)]
pub(crate) struct LimitDecision<'r> {
    pub(crate) limit: &'r CompiledLimit,
    pub(crate) class: &'r Class,
    pub(crate) key: &'r [KeyPart<'r>],
    pub(crate) decision: &'r Decision,
}

impl LimitDecision<'_> {
    /// Returns whether the limit refused the request.
    pub(crate) fn refuses(&self) -> bool {
        !self.limit.shadow && !self.decision.is_allowed()
    }
}

/// Skips the limits in shadow mode, which are not shown, and the limits that did not count the
/// request.
fn shown<'r>(decisions: impl Iterator<Item = LimitDecision<'r>>) -> impl Iterator<Item = LimitDecision<'r>> {
    decisions.filter(|it| !it.limit.shadow && is_counted(it.decision))
}

/// Returns whether a limiter has decided. A policy may also allow a request without a limiter,
/// because the limiter is full or its store is unreachable. It is then unknown how many tokens the
/// client has left.
pub(super) fn is_counted(decision: &Decision) -> bool {
    !decision.is_allowed() || decision.source() != DecisionSource::Policy
}

/// Returns the value of `RateLimit`, with one item for each limit.
///
/// If the request was refused, `wait` is the value of `Retry-After`, and no item contains a later
/// time.
pub(crate) fn rate_limit<'r>(
    decisions: impl Iterator<Item = LimitDecision<'r>>,
    wait: Option<u64>,
) -> Option<HeaderValue> {
    let mut text = FieldText::new();
    for LimitDecision { limit, decision, .. } in shown(decisions) {
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        put_item(&mut text, &limit.quoted, decision, wait);
    }
    value(&text)
}

/// Appends the item of a limit with this quoted name to the value of `RateLimit`.
pub(super) fn put_item(text: &mut FieldText, quoted: &str, decision: &Decision, wait: Option<u64>) {
    text.extend_from_slice(quoted.as_bytes());
    put(text, ";r=", decision.remaining());
    let after = if decision.is_allowed() {
        seconds::until_more(decision).filter(|&after| wait.is_none_or(|wait| after <= wait))
    } else {
        seconds::until_retry(decision)
    };
    if let Some(after) = after {
        put(text, ";t=", after);
    }
}

/// Returns the decision of the limit with the smallest share left.
pub(crate) fn scarcest<'r>(decisions: impl Iterator<Item = LimitDecision<'r>>) -> Option<&'r Decision> {
    let share = |decision: &Decision, other: &Decision| {
        u128::from(decision.remaining()) * u128::from(other.capacity())
    };
    shown(decisions).map(|it| it.decision).min_by(|a, b| share(a, b).cmp(&share(b, a)))
}

/// Appends a parameter. The number is capped, because an Integer in structured fields has at most
/// 15 digits.
pub(crate) fn put(text: &mut FieldText, name: &str, number: u64) {
    // Writing into memory cannot fail.
    let _ = write!(text, "{name}{}", number.min(MAX_INTEGER));
}

/// Converts the text to a field value. Returns `None` if the text is empty.
pub(crate) fn value(text: &FieldText) -> Option<HeaderValue> {
    if text.is_empty() { None } else { HeaderValue::from_bytes(text).ok() }
}
