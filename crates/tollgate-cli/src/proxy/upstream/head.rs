//! Makes message heads unambiguous. The proxy passes on a message only if it can be read in a
//! single way.
//!
//! hyper refuses bytes that are not HTTP. If a message states the same fact twice, this module
//! removes the repetition. If the two statements contradict each other, this module refuses the
//! message. Request smuggling relies on two servers that read the same bytes differently; see also
//! RFC 9112, sections 6.3 and 11.

use std::net::SocketAddr;

use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TE, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery};
use http::{Method, StatusCode, Version, request};
use tollgate_http::{PeerAddr, program};

use super::hop;
use super::origin::Origin;
use super::tunnel;

/// The status and the message with which the proxy refuses to forward a request.
pub type Refusal = (StatusCode, &'static str);

/// Settings for writing the heads of requests.
#[derive(Debug)]
pub struct Heads {
    pub origin: Origin,
    /// Whether the upstream receives the client's Host.
    pub preserves_host: bool,
    /// Whether the upstream speaks HTTP/2.
    pub http2: bool,
}

/// The head of a request that the upstream receives.
#[derive(Debug)]
pub struct Outgoing {
    pub method: Method,
    pub path: PathAndQuery,
    pub headers: HeaderMap,
}

/// The error for a message whose length can be interpreted in two ways.
#[derive(Debug)]
pub struct Ambiguous;

/// The peer's address if a request has none, which never occurs.
const NOBODY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

const fn bad(detail: &'static str) -> Refusal {
    (StatusCode::BAD_REQUEST, detail)
}

impl Heads {
    /// Returns the head that the upstream receives for a request.
    ///
    /// # Errors
    ///
    /// Returns an error if the request has no host or several hosts, or if its length is invalid.
    /// Also returns an error if the target has a scheme other than http or https, if the target is
    /// not a path, if the method differs from a registered method only in case, or if the request
    /// uses a transfer coding other than `chunked`.
    pub fn outgoing(&self, head: request::Parts, wants_tunnel: bool) -> Result<Outgoing, Refusal> {
        let request::Parts { method, uri, version, mut headers, extensions, .. } = head;
        if !is_only_chunked(&headers) {
            return Err((
                StatusCode::NOT_IMPLEMENTED,
                "The only transfer coding that this proxy knows is chunked.",
            ));
        }
        if program::is_respelled(&method) {
            return Err(bad("The method of the request is not in capitals."));
        }
        let target = uri.into_parts();
        match &target.scheme {
            Some(scheme) if !["http", "https"].contains(&scheme.as_str()) => {
                return Err(bad("The target of the request has another scheme than http."));
            }
            None if target.authority.is_some() => {
                return Err(bad("The target of the request is a host, and not a path."));
            }
            _ => {}
        }
        if let Some(length) = length(&headers).map_err(|_| bad("The length of the request is invalid."))? {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let host = asked_host(&headers, target.authority.as_ref(), version)?;
        let peer = extensions.get().map_or(NOBODY, |&PeerAddr(peer)| peer);
        let came_from = self.origin.of(&headers, peer, &host);
        let takes_trailers = hop::lists(&headers, &TE, "trailers");
        hop::strip(&mut headers);
        hop::remove_lookalikes(&mut headers);
        self.origin.write(came_from, &mut headers);
        headers.remove(HOST);
        if self.preserves_host && !host.is_empty() {
            headers.insert(HOST, host);
        }
        if takes_trailers {
            hop::accept_trailers(&mut headers, self.http2);
        }
        if wants_tunnel {
            tunnel::announce(&mut headers);
        }
        hop::join_cookies(&mut headers);
        hop::sign(&mut headers, version);
        let path = target.path_and_query.map_or(Ok(PathAndQuery::from_static("/")), whole_path)?;
        if path.as_str() == "*" && method != Method::OPTIONS {
            return Err(bad("Only OPTIONS may ask for `*`."));
        }
        Ok(Outgoing { method, path, headers })
    }
}

/// Removes ambiguities from a response's fields.
///
/// # Errors
///
/// Returns an error if a response has both a length and a transfer coding, two different lengths,
/// or a coding other than `chunked`. RFC 9112 allows a proxy to repair the first case. Like nginx,
/// this proxy refuses it, because an attacker may have tricked the upstream into writing one of the
/// two fields.
pub fn incoming(headers: &mut HeaderMap, version: Version) -> Result<(), Ambiguous> {
    let is_coded = headers.contains_key(TRANSFER_ENCODING);
    if !is_only_chunked(headers) || (is_coded && headers.contains_key(CONTENT_LENGTH)) {
        return Err(Ambiguous);
    }
    if let Some(length) = length(headers)? {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    hop::strip(headers);
    hop::sign(headers, version);
    Ok(())
}

/// Returns the path and the query. Adds the missing slash for a target such as `http://host?query`.
fn whole_path(path: PathAndQuery) -> Result<PathAndQuery, Refusal> {
    if path.as_str().starts_with('/') || path.as_str() == "*" {
        return Ok(path);
    }
    PathAndQuery::try_from(format!("/{}", path.as_str()))
        .map_err(|_| bad("The target of the request is not a path."))
}

/// Returns the length that these fields state. The fields may repeat the same length.
fn length(headers: &HeaderMap) -> Result<Option<u64>, Ambiguous> {
    if !headers.contains_key(CONTENT_LENGTH) {
        return Ok(None);
    }
    let mut lengths = hop::elements(headers, &CONTENT_LENGTH);
    let first = lengths.next().ok_or(Ambiguous)?;
    let is_number = first.iter().all(u8::is_ascii_digit) && lengths.all(|length| length == first);
    let text = std::str::from_utf8(first).ok().filter(|_| is_number);
    text.and_then(|text| text.parse().ok()).map(Some).ok_or(Ambiguous)
}

/// Returns true if the message has no transfer coding, or if `chunked` is its only coding.
fn is_only_chunked(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    }
}

/// Returns the host that the client requested. The host in the target takes precedence over the
/// field `Host`. HTTP/1.1 requires exactly one such field, even if the target has a host (RFC 9112,
/// 3.2). A client that uses an older version may omit the host; the result is then empty.
fn asked_host(
    headers: &HeaderMap,
    target: Option<&Authority>,
    version: Version,
) -> Result<HeaderValue, Refusal> {
    let mut fields = headers.get_all(HOST).iter();
    let (first, second) = (fields.next(), fields.next());
    if second.is_some() {
        return Err(bad("The request has more than one field Host."));
    }
    if first.is_none() && version == Version::HTTP_11 {
        return Err(bad("The request has no field Host."));
    }
    let is_host = |text: &[u8]| {
        Authority::try_from(text).is_ok_and(|host| {
            // A host must not contain a user name, and its port, if any, must consist of digits.
            !text.contains(&b'@') && (host.port_u16().is_some() || host.as_str().len() == host.host().len())
        })
    };
    // A field `Host` must be valid even if the target takes precedence over it.
    let given = [first.map(HeaderValue::as_bytes), target.map(|target| target.as_str().as_bytes())];
    let asked = match target {
        Some(target) => HeaderValue::from_str(target.as_str()).ok(),
        None => Some(first.cloned().unwrap_or(HeaderValue::from_static(""))),
    };
    asked
        .filter(|_| given.into_iter().flatten().all(|host| host.is_empty() || is_host(host)))
        .ok_or(bad("The host of the request is invalid."))
}
