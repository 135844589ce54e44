//! The filter of a single stream. It checks the request, waits for a store if necessary, answers a
//! refused request, and holds the unsettled charges and places until the stream ends.

use crate::abi::{self, EnvoyStream, ModuleHeader};
use crate::limits::Limits;
use crate::request::{copy, first_of_response};
use crate::suspended::{Begun, Suspended};
use bytes::Bytes;
use http::header::HeaderName;
use http::{Response, StatusCode};
use smallvec::SmallVec;
use std::task::Poll;
use tollgate_http::program::{self, Checked, Held};

/// Fields that a response may already contain. The limits add their values to the existing ones.
static FIELDS: [HeaderName; 2] =
    [HeaderName::from_static("ratelimit"), HeaderName::from_static("ratelimit-policy")];

/// The details of a local reply in Envoy's access log (`RESPONSE_CODE_DETAILS`).
const DETAILS: &str = "tollgate_refused";

/// How a request goes on.
pub(crate) enum Next {
    /// The request passes.
    Continue,
    /// The request is answered with this response.
    Answer(Response<Bytes>),
    /// The request waits for a store.
    Suspend,
}

/// The filter of a stream.
pub(crate) struct Filter<'l> {
    limits: &'l Limits,
    /// The check that the request waits for. `None` unless Envoy holds the request back.
    suspended: Option<Box<Suspended>>,
    /// The charges and places that must still be settled, if any.
    held: Option<Held>,
}

impl<'l> Filter<'l> {
    pub(crate) fn new(limits: &'l Limits) -> Self {
        Self { limits, suspended: None, held: None }
    }

    /// Checks the request, in the hook for the request headers. A request is refused without a
    /// check if its target is too long for the limits.
    pub(crate) fn check(&mut self, stream: *mut EnvoyStream) -> Next {
        let Some(request) = self.limits.head.read(stream) else {
            let mut response = Response::new(Bytes::new());
            *response.status_mut() = StatusCode::URI_TOO_LONG;
            return Next::Answer(response);
        };
        if let Some(checked) = program::check_request(&self.limits.layer, &request) {
            return self.decided(checked);
        }
        let _entered = self.limits.enter();
        let check = program::check_later(&self.limits.layer, request);
        match Suspended::begin(check, stream) {
            Begun::Waits(suspended) => {
                self.suspended = Some(suspended);
                Next::Suspend
            }
            Begun::Decided(checked) => self.decided_with_store(stream, checked),
        }
    }

    /// Goes on with the check that the request waits for, in a hook of the stream. Returns `None`
    /// if the request waits for nothing.
    pub(crate) fn resume(&mut self, stream: *mut EnvoyStream) -> Option<Next> {
        // If the check panics, it has ended.
        let mut suspended = self.suspended.take()?;
        let _entered = self.limits.enter();
        Some(match suspended.poll() {
            Poll::Pending => {
                self.suspended = Some(suspended);
                Next::Suspend
            }
            Poll::Ready(checked) => self.decided_with_store(stream, checked),
        })
    }

    fn decided_with_store(&mut self, stream: *mut EnvoyStream, checked: Checked) -> Next {
        self.limits.figures.publish(stream);
        self.decided(checked)
    }

    fn decided(&mut self, checked: Checked) -> Next {
        match checked {
            Checked::Passed(held) => {
                self.held = Some(held).filter(|it| !it.is_empty() || it.awaits_answer());
                Next::Continue
            }
            Checked::Refused(response) => Next::Answer(response),
        }
    }

    /// Adds the limits' fields to the response, and settles charges according to the response's
    /// status.
    ///
    /// The charges of shared limits are given back by requests to the store that are sent before
    /// the response is passed on. The response does not wait for the answers, because the store
    /// executes the requests of a connection in their order: it gives the tokens back before it
    /// decides the client's next request to this Envoy.
    pub(crate) fn response_headers(&mut self, stream: *mut EnvoyStream) {
        // Envoy itself has answered the request, for example after a timeout.
        self.suspended = None;
        let Some(held) = self.held.as_mut().filter(|it| it.awaits_answer()) else { return };
        let mut response = Response::new(());
        let status = first_of_response(stream, ":status");
        *response.status_mut() =
            status.and_then(|it| StatusCode::from_bytes(it).ok()).unwrap_or(StatusCode::OK);
        for name in &FIELDS {
            copy(stream, abi::RESPONSE_HEADERS, name.as_str(), name, response.headers_mut());
        }
        if let (Some(refunds), Some(runtime)) = (held.answered(&mut response), self.limits.runtime()) {
            runtime.run(refunds);
        }
        for name in &FIELDS {
            if let Some(value) = response.headers().get(name) {
                set(stream, name.as_str(), value.as_bytes());
            }
        }
    }

    /// Frees the places that the stream holds. If the request still waits for a store, its charges
    /// are kept.
    pub(crate) fn complete(&mut self) {
        self.suspended = None;
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
