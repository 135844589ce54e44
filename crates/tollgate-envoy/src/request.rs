//! The head of a request, as seen by the limits. It contains copies of the headers that at least
//! one limit needs.

use crate::abi::{self, EnvoyBuffer, EnvoyStream, HeaderType, WARN};
use crate::log::log;
use crate::settings::{RouteMetadata, Settings};
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri};
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use std::net::SocketAddr;
use std::ptr;
use tollgate_http::program::{self, Fact, FieldWatch, canonical_path, facts, facts_of_scope, printable};
use tollgate_http::{ForwardedField, KeyBy, LayerError, PeerAddr, RequestHead};

/// An Envoy stream and its client's address. This value is stored as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamExtension {
    stream: usize,
    pub(crate) peer: Option<SocketAddr>,
}

impl StreamExtension {
    /// Returns the stream, which must be used only in the stream's own hooks.
    pub(crate) fn stream(&self) -> *mut EnvoyStream {
        self.stream as *mut EnvoyStream
    }
}

/// Reads those parts of a request's head that the limits need.
pub(crate) struct HeadReader {
    needs_client: bool,
    needs_host: bool,
    needs_path: bool,
    needs_query: bool,
    headers: Vec<HeaderName>,
    route_metadata: Vec<(HeaderName, RouteMetadata)>,
    /// How the client is found behind proxies that report it in a field with a single address;
    /// `None` if Envoy alone determines the client.
    reported: Option<Reported>,
    /// The name of the filter, for warnings.
    filter: String,
}

/// The proxies in front of Envoy that report the client in a field with a single address.
struct Reported {
    header: HeaderName,
    by: KeyBy,
    watch: FieldWatch,
}

impl HeadReader {
    /// Determines which parts of a request the limits in these settings need.
    ///
    /// # Errors
    ///
    /// Returns an error if the proxies in front of Envoy are not valid.
    pub(crate) fn new(filter: &str, settings: &Settings) -> Result<Self, LayerError> {
        let limits = settings.limits.limits.iter().flat_map(facts);
        let facts: Vec<Fact> = limits.chain(settings.limits.except.iter().flat_map(facts_of_scope)).collect();
        let is_metadata = |name: &HeaderName| settings.own.route_metadata.iter().any(|(it, _)| it == name);
        // If a request uses gRPC, its refusal must be a gRPC response.
        let mut headers = vec![CONTENT_TYPE];
        for name in facts.iter().flat_map(Fact::headers) {
            if let Ok(name) = name.parse::<HeaderName>()
                && !headers.contains(&name)
            {
                headers.push(name);
            }
        }
        headers.retain(|name| !is_metadata(name));
        program::check_client(&settings.limits)?;
        let watch = program::field_watch(&settings.limits);
        let reported = match (watch, &settings.limits.forwarded_field) {
            (Some(watch), ForwardedField::Single(header)) => {
                Some(Reported { header: header.clone(), by: program::client(&settings.limits), watch })
            }
            _ => None,
        };
        Ok(Self {
            needs_client: facts.contains(&Fact::Ip),
            needs_host: facts.contains(&Fact::Host) && !is_metadata(&HOST),
            needs_path: facts.contains(&Fact::Path),
            needs_query: facts.iter().any(|fact| matches!(fact, Fact::Query(_))),
            headers,
            route_metadata: settings.own.route_metadata.clone(),
            reported,
            filter: filter.to_owned(),
        })
    }

    /// Reads the head of a stream's request. Must be called in the hook for the request headers.
    /// Returns `None` if the target is longer than `http::Uri` can represent.
    pub(crate) fn read(&self, stream: *mut EnvoyStream) -> Option<Request<()>> {
        let mut request = Request::new(());
        if let Some(method) = first(stream, ":method") {
            *request.method_mut() = Method::from_bytes(method).unwrap_or_default();
        }
        if (self.needs_path || self.needs_query)
            && let Some(path) = first(stream, ":path")
        {
            let query = path.iter().position(|&byte| byte == b'?').filter(|_| !self.needs_query);
            *request.uri_mut() = target(&path[..query.unwrap_or(path.len())])?;
        }
        if self.needs_host {
            copy(stream, abi::REQUEST_HEADERS, ":authority", &HOST, request.headers_mut());
        }
        for name in &self.headers {
            copy(stream, abi::REQUEST_HEADERS, name.as_str(), name, request.headers_mut());
        }
        for (name, RouteMetadata { namespace, key }) in &self.route_metadata {
            if let Some(value) = route_metadata(stream, namespace, key)
                && let Ok(value) = HeaderValue::from_bytes(value)
            {
                request.headers_mut().insert(name, value);
            }
        }
        let peer = if self.needs_client { self.client(stream) } else { None };
        request.extensions_mut().insert(StreamExtension { stream: stream as usize, peer });
        Some(request)
    }

    /// Returns the client's address, as Envoy or a trusted proxy in front of Envoy reports it.
    fn client(&self, stream: *mut EnvoyStream) -> Option<SocketAddr> {
        let peer = client(stream);
        let Some(Reported { header, by, watch }) = &self.reported else { return peer };
        let mut request = Request::new(());
        copy(stream, abi::REQUEST_HEADERS, header.as_str(), header, request.headers_mut());
        if let Some(peer) = peer {
            request.extensions_mut().insert(PeerAddr(peer));
        }
        let head = RequestHead::of(&request);
        if let Some(warning) = watch.look(head) {
            log(
                WARN,
                format_args!("filter {}: {warning} (forwarded-field)", printable(self.filter.as_bytes())),
            );
        }
        program::address(by, head).map(|address| SocketAddr::new(address, 0))
    }
}

/// Copies all values of a header.
pub(crate) fn copy(
    stream: *mut EnvoyStream,
    of: HeaderType,
    envoy_name: &str,
    name: &HeaderName,
    headers: &mut HeaderMap,
) {
    let mut index = 0;
    let mut values = 0;
    while let Some(value) = value(stream, of, envoy_name, index, &mut values) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, value);
        }
        index += 1;
        if index >= values {
            break;
        }
    }
}

/// Returns the first value of a response header.
pub(crate) fn first_of_response<'h>(stream: *mut EnvoyStream, name: &str) -> Option<&'h [u8]> {
    value(stream, abi::RESPONSE_HEADERS, name, 0, &mut 0)
}

fn first<'h>(stream: *mut EnvoyStream, name: &str) -> Option<&'h [u8]> {
    value(stream, abi::REQUEST_HEADERS, name, 0, &mut 0)
}

#[allow(unsafe_code)]
fn value<'h>(
    stream: *mut EnvoyStream,
    of: HeaderType,
    name: &str,
    index: usize,
    values: &mut usize,
) -> Option<&'h [u8]> {
    let mut found = EnvoyBuffer::NONE;
    // SAFETY: the stream belongs to the running hook, and the other arguments outlive the call.
    let is_there = unsafe {
        abi::envoy_dynamic_module_callback_http_get_header(
            stream,
            of,
            name.into(),
            &raw mut found,
            index,
            ptr::from_mut(values),
        )
    };
    // SAFETY: Envoy preserves the value until the hook ends or a header is set, and callers copy
    // the value before that.
    is_there.then(|| unsafe { found.bytes() })
}

#[allow(unsafe_code)]
fn route_metadata<'h>(stream: *mut EnvoyStream, namespace: &str, key: &str) -> Option<&'h [u8]> {
    let mut found = EnvoyBuffer::NONE;
    // SAFETY: as in `value`.
    let is_there = unsafe {
        abi::envoy_dynamic_module_callback_http_get_metadata_string(
            stream,
            abi::ROUTE,
            namespace.into(),
            key.into(),
            &raw mut found,
        )
    };
    // SAFETY: as in `value`.
    is_there.then(|| unsafe { found.bytes() })
}

/// Returns the client address that Envoy has determined, or `None` if the client is connected
/// through a pipe.
#[allow(unsafe_code)]
fn client(stream: *mut EnvoyStream) -> Option<SocketAddr> {
    let mut found = EnvoyBuffer::NONE;
    // SAFETY: as in `value`.
    let is_there = unsafe {
        abi::envoy_dynamic_module_callback_http_filter_get_attribute_string(
            stream,
            abi::SOURCE_ADDRESS,
            &raw mut found,
        )
    };
    // SAFETY: as in `value`.
    let text = is_there.then(|| unsafe { found.bytes() })?;
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The characters that must be percent-encoded in a query.
const NOT_IN_QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'<').add(b'>').add(b'`');

/// Returns the target of a request. If `http::Uri` cannot represent the client's target, the target
/// is percent-encoded, and its path then has the canonical form in which limits compare paths.
/// Returns `None` if `http::Uri` cannot represent this form either.
fn target(path: &[u8]) -> Option<Uri> {
    if let Ok(uri) = Uri::try_from(path) {
        return Some(uri);
    }
    let (path, query) = match path.iter().position(|&byte| byte == b'?') {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    };
    let mut target = String::from_utf8_lossy(&canonical_path(path)).into_owned();
    if let Some(query) = query {
        target.push('?');
        target.extend(percent_encode(query, NOT_IN_QUERY));
    }
    Uri::try_from(target).ok()
}
