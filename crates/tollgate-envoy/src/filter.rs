//! The filter of a single stream. It checks the request, answers a refused request, and holds the
//! unsettled charges and places until the stream ends.

use crate::abi::{self, EnvoyStream, ModuleHeader};
use crate::limits::Limits;
use crate::request::{copy, first_of_response};
use bytes::Bytes;
use http::header::HeaderName;
use http::{Response, StatusCode};
use smallvec::SmallVec;
use tollgate_http::program::{self, Checked, Held};

/// Fields that a response may already contain. The limits add their values to the existing ones.
static FIELDS: [HeaderName; 2] =
    [HeaderName::from_static("ratelimit"), HeaderName::from_static("ratelimit-policy")];

/// The details of a local reply in Envoy's access log (`RESPONSE_CODE_DETAILS`).
const DETAILS: &str = "tollgate_refused";

/// The filter of a stream.
pub(crate) struct Filter<'l> {
    limits: &'l Limits,
    /// The charges and places that must still be settled, if any.
    held: Option<Held>,
}

impl<'l> Filter<'l> {
    pub(crate) fn new(limits: &'l Limits) -> Self {
        Self { limits, held: None }
    }

    /// Checks the request. If the request is refused, returns the response. A request is refused
    /// without a check if its target is too long for the limits.
    pub(crate) fn check(&mut self, stream: *mut EnvoyStream) -> Option<Response<Bytes>> {
        let Some(request) = self.limits.head.read(stream) else {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::URI_TOO_LONG;
            return Some(response);
        };
        match program::check_request(&self.limits.layer, &request) {
            Checked::Passed(held) => {
                self.held = Some(held).filter(|it| !it.is_empty() || it.awaits_answer());
                None
            }
            Checked::Refused(response) => Some(response),
            // Limits in this process never delay a request.
            Checked::Waits => None,
        }
    }

    /// Adds the limits' fields to the response, and settles charges according to the response's
    /// status.
    pub(crate) fn response_headers(&mut self, stream: *mut EnvoyStream) {
        let Some(held) = self.held.as_mut().filter(|it| it.awaits_answer()) else { return };
        let mut response = Response::new(());
        let status = first_of_response(stream, ":status");
        *response.status_mut() =
            status.and_then(|it| StatusCode::from_bytes(it).ok()).unwrap_or(StatusCode::OK);
        for name in &FIELDS {
            copy(stream, abi::RESPONSE_HEADERS, name.as_str(), name, response.headers_mut());
        }
        held.answered(&mut response);
        for name in &FIELDS {
            if let Some(value) = response.headers().get(name) {
                set(stream, name.as_str(), value.as_bytes());
            }
        }
    }

    /// Frees the places that the stream holds.
    pub(crate) fn complete(&mut self) {
        self.held = None;
    }
}

#[allow(unsafe_code)]
fn set(stream: *mut EnvoyStream, name: &str, value: &[u8]) {
    // SAFETY: the stream belongs to the running hook, and the name and the value outlive the call.
    unsafe {
        abi::envoy_dynamic_module_callback_http_set_header(
            stream,
            abi::RESPONSE_HEADERS,
            name.into(),
            value.into(),
        );
    }
}

/// Sends a response. Before this function returns, Envoy calls the hook for the response headers.
#[allow(unsafe_code)]
pub(crate) fn answer(stream: *mut EnvoyStream, response: &Response<Bytes>) {
    let headers: SmallVec<[ModuleHeader<'_>; 8]> = response
        .headers()
        .iter()
        .map(|(name, value)| ModuleHeader::new(name.as_str(), value.as_bytes()))
        .collect();
    // SAFETY: the stream belongs to the running hook, and the headers, the body and the details
    // outlive the call.
    unsafe {
        abi::envoy_dynamic_module_callback_http_send_response(
            stream,
            response.status().as_u16().into(),
            headers.as_ptr(),
            headers.len(),
            response.body()[..].into(),
            DETAILS.into(),
        );
    }
}
