//! Refusals for gRPC, which consist of nothing but trailers sent as headers.
//!
//! The HTTP status is always 200, and clients read `grpc-status` instead. `grpc-retry-pushback-ms`
//! specifies when clients with automatic retries should retry.

use super::refusal::{Refusal, RefusalReason};
use crate::head::RequestHead;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Method, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::time::Duration;
use tollgate::Decision;

static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
pub(crate) static RETRY_PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");
const PERMISSION_DENIED: HeaderValue = HeaderValue::from_static("7");
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// The characters to be percent-encoded in a `grpc-message`: the percent sign, and all characters
/// except printable ASCII.
const ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Returns the content type of the response if the request is for gRPC. The method of such a
/// request is `POST`: a cache must never keep a refusal, whose status is 200, for `GET` or `HEAD`.
/// The type is `application/grpc`, even if the request's type continues with `+` or `;`. For
/// gRPC-Web, it is the type of the request.
pub(crate) fn content_type(request: RequestHead<'_>) -> Option<HeaderValue> {
    if request.method() != Method::POST {
        return None;
    }
    let asked = request.headers().get(CONTENT_TYPE)?;
    let (prefix, rest) = asked.as_bytes().trim_ascii().split_at_checked(b"application/grpc".len())?;
    if !prefix.eq_ignore_ascii_case(b"application/grpc") {
        return None;
    }
    if rest.is_empty() || rest.starts_with(b"+") || rest.trim_ascii_start().starts_with(b";") {
        return Some(HeaderValue::from_static("application/grpc"));
    }
    rest.starts_with(b"-web").then(|| asked.clone())
}

pub(crate) fn response(refusal: &Refusal<'_>, content_type: HeaderValue) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    let status = match refusal.reason {
        RefusalReason::NoKey | RefusalReason::Blocked => PERMISSION_DENIED,
        RefusalReason::AmbiguousKey => INVALID_ARGUMENT,
        RefusalReason::Unavailable => UNAVAILABLE,
        _ => RESOURCE_EXHAUSTED,
    };
    headers.insert(&GRPC_STATUS, status);
    let message = utf8_percent_encode(&refusal.sentence(), ENCODED).to_string();
    if let Ok(message) = HeaderValue::try_from(message) {
        headers.insert(&GRPC_MESSAGE, message);
    }
    if let Some(wait) = refusal.decision.and_then(Decision::retry_after) {
        headers.insert(&RETRY_PUSHBACK, milliseconds(wait).into());
    }
    response
}

/// Returns the pushback for a wait in seconds.
pub(crate) fn pushback(wait: u64) -> u64 {
    milliseconds(Duration::from_secs(wait))
}

/// Returns the wait in milliseconds, rounded up and capped at the largest pushback (a signed 32-bit
/// number).
fn milliseconds(wait: Duration) -> u64 {
    const MOST: u128 = i32::MAX as u128;
    u64::try_from(wait.as_nanos().div_ceil(1_000_000).min(MOST)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pushback_is_rounded_up_and_fits_an_int32() {
        for (nanos, millis) in [(1, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(milliseconds(Duration::from_nanos(nanos)), millis);
        }
        assert_eq!(milliseconds(Duration::from_secs(86_400 * 365)), 2_147_483_647);
    }
}
