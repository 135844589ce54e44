//! Builds the response to a refused request, which is problem JSON (RFC 9457), plain text, gRPC, or
//! the user's own response.

use super::fields::{self, Fields};
use super::grpc;
use super::refusal::{Refusal, RefusalReason};
use crate::head::RefusalMark;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Response};
use serde::Serialize;

/// The form of the responses to refused requests.
#[derive(Default)]
pub(crate) enum Answer {
    #[default]
    Problem,
    Plain,
    Custom(Box<Respond>),
}

pub(crate) type Respond = dyn Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync;

impl Answer {
    /// Returns the complete response, marked as a refusal. A gRPC request always receives a gRPC
    /// response.
    pub(crate) fn response(&self, refusal: &Refusal<'_>, fields: Fields) -> Response<Bytes> {
        let mut response = match (grpc::content_type(refusal.request), self) {
            (Some(content_type), _) => grpc::response(refusal, content_type),
            (None, Self::Problem) => problem_response(refusal).map(Bytes::from),
            (None, Self::Plain) => {
                with(refusal, "text/plain; charset=utf-8", refusal.sentence() + "\n").map(Bytes::from)
            }
            (None, Self::Custom(respond)) => respond(refusal),
        };
        if refusal.request.method() == Method::HEAD {
            // `Content-Length` is the length that the response to GET would have. The body is
            // removed here, because nothing else removes it over HTTP/2.
            let length = std::mem::take(response.body_mut()).len();
            response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        let headers = response.headers_mut();
        if let Some(wait) = refusal.retry_after_seconds {
            fields::promise(headers, wait);
        }
        fields.write(headers, false);
        response.extensions_mut().insert(RefusalMark { wait: refusal.retry_after_seconds });
        response
    }
}

/// Returns the status and the problem JSON of a refusal.
pub(super) fn problem_response(refusal: &Refusal<'_>) -> Response<String> {
    with(refusal, "application/problem+json", problem(refusal))
}

fn with(refusal: &Refusal<'_>, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = refusal.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The members of a problem. The draft does not define the last four: `error` and `retry_after` are
/// for simple clients, `limit` is the name of the binding limit, and `max_keys` is the maximum
/// number of clients that this limit tracks.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: String,
    #[serde(rename = "violated-policies")]
    violated_policies: &'a [&'a str],
    error: &'static str,
    limit: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_keys: Option<usize>,
}

const EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const REDUCED: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

fn problem(refusal: &Refusal<'_>) -> String {
    let exceeded = (EXCEEDED, "Request cannot be satisfied as assigned quota has been exceeded");
    let reduced = (REDUCED, "Request cannot be satisfied due to temporary server capacity constraints");
    let blank = ("about:blank", refusal.status.canonical_reason().unwrap_or("Refused"));
    let ((r#type, title), error) = match refusal.reason {
        RefusalReason::Quota | RefusalReason::Paused | RefusalReason::TooCostly => (exceeded, "rate_limited"),
        RefusalReason::InFlight => (exceeded, "too_many_in_flight"),
        RefusalReason::Full => (reduced, "capacity_reduced"),
        RefusalReason::Unavailable => (reduced, "unavailable"),
        RefusalReason::NoKey => (blank, "client_unknown"),
        RefusalReason::AmbiguousKey => (blank, "client_ambiguous"),
        RefusalReason::Blocked => (blank, "blocked"),
    };
    let problem = Problem {
        r#type,
        title,
        status: refusal.status.as_u16(),
        detail: refusal.sentence(),
        violated_policies: refusal.violated,
        error,
        limit: refusal.limit_name,
        retry_after: refusal.retry_after_seconds,
        max_keys: refusal.max_keys,
    };
    // Strings and numbers can always be serialized.
    serde_json::to_string(&problem).unwrap_or_default()
}
