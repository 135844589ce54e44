//! The response to a refused request: problem JSON (RFC 9457), plain text, gRPC, or a response of
//! the user's own.

use super::denial::{Denial, Reason};
use super::fields::{self, Fields};
use super::grpc;
use crate::head::Refusal;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use serde::Serialize;

/// The form of the responses to refused requests.
#[derive(Default)]
pub(crate) enum Answer {
    #[default]
    Problem,
    Plain,
    Custom(Box<Respond>),
}

pub(crate) type Respond = dyn Fn(&Denial<'_>) -> Response<Bytes> + Send + Sync;

impl Answer {
    /// Returns the whole response, marked as a refusal. A gRPC request gets a gRPC response,
    /// whatever the form.
    pub(crate) fn response(&self, denial: &Denial<'_>, fields: Fields) -> Response<Bytes> {
        let mut response = match (grpc::content_type(denial.request), self) {
            (Some(content_type), _) => grpc::response(denial, content_type),
            (None, Self::Problem) => with(denial, "application/problem+json", problem(denial)),
            (None, Self::Plain) => {
                with(denial, "text/plain; charset=utf-8", Bytes::from(denial.sentence() + "\n"))
            }
            (None, Self::Custom(respond)) => respond(denial),
        };
        if denial.request.method() == Method::HEAD {
            // The length that a response to GET would have. With HTTP/2, nothing else removes the
            // body.
            let length = std::mem::take(response.body_mut()).len();
            response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        let headers = response.headers_mut();
        if let Some(wait) = denial.wait {
            fields::promise(headers, wait);
        }
        fields.write(headers, false);
        response.extensions_mut().insert(Refusal { wait: denial.wait });
        response
    }
}

fn with(denial: &Denial<'_>, content_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = denial.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The members of a problem. The last four are not of the draft: `error` and `retry_after` are for
/// simple clients, `limit` names the binding limit, `max_keys` is how many clients fill it.
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

fn problem(denial: &Denial<'_>) -> Bytes {
    let (r#type, title, error) = match denial.reason() {
        Reason::Quota | Reason::TooCostly => {
            (EXCEEDED, "Request cannot be satisfied as assigned quota has been exceeded", "rate_limited")
        }
        Reason::InFlight => (
            EXCEEDED,
            "Request cannot be satisfied as assigned quota has been exceeded",
            "too_many_in_flight",
        ),
        Reason::Full | Reason::Unavailable => (
            REDUCED,
            "Request cannot be satisfied due to temporary server capacity constraints",
            "capacity_reduced",
        ),
        Reason::NoKey => ("about:blank", reason_phrase(denial.status), "client_unknown"),
    };
    let problem = Problem {
        r#type,
        title,
        status: denial.status.as_u16(),
        detail: denial.sentence(),
        violated_policies: denial.violated,
        error,
        limit: denial.limit,
        retry_after: denial.wait,
        max_keys: denial.max_keys,
    };
    // Strings and numbers can always be serialized.
    serde_json::to_vec(&problem).unwrap_or_default().into()
}

fn reason_phrase(status: StatusCode) -> &'static str {
    status.canonical_reason().unwrap_or("Refused")
}
