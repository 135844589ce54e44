//! Creates the proxy's own responses, which contain problem details in JSON (RFC 9457).

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;

/// After a response with one of these statuses, an HTTP/1.1 connection is closed.
const ENDING: [StatusCode; 4] = [
    StatusCode::BAD_REQUEST,
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    StatusCode::NOT_IMPLEMENTED,
];

/// Returns a response that describes the problem in one sentence.
pub(crate) fn problem_details(status: StatusCode, detail: &str) -> Response<Full<Bytes>> {
    let title = status.canonical_reason().unwrap_or("Error");
    let body = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    if ENDING.contains(&status) {
        // The remaining bytes of the request may still arrive, and would be mistaken for the next
        // request. After an invalid request, the start of the next request is uncertain.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
