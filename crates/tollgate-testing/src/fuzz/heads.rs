//! Tests the heads of messages that pass through `tollgate proxy`. A forwarded head must have only
//! one possible reading, and must not contain any statement that only the proxy may make.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version, request};
use http_body_util::BodyExt;
use std::net::{Ipv4Addr, SocketAddr};
use tollgate_cli::proxy::upstream::head::{self, Heads, Outgoing};
use tollgate_cli::proxy::upstream::hop;
use tollgate_cli::proxy::upstream::origin::Origin;
use tollgate_http::{ForwardedField, PeerAddr, TrustedProxies};

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 4711);

/// Fields that the proxy never forwards, in any message.
const NEVER: [&str; 6] = [
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "transfer-encoding",
    "http2-settings",
];
const ORIGIN: [&str; 6] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-real-ip",
];

/// The first byte selects the settings. The other bytes are a message with trailers in place of a
/// body.
pub fn body(data: &[u8]) {
    let (&chosen, message) = data.split_first().unwrap_or((&0, &[]));
    let is_chosen = |bit: u8| chosen >> bit & 1 == 1;
    let mut lines = message.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let first_line = lines.next().unwrap_or_default();
    let headers = fields(&mut lines);
    trailers(fields(&mut lines));
    response(headers.clone());
    let Some(head) = request(first_line, headers) else { return };
    let trusts = is_chosen(0);
    let field = if is_chosen(1) { ForwardedField::Forwarded } else { ForwardedField::XForwardedFor };
    let trusted = trusts.then(|| TrustedProxies::networks(["10.0.0.0/8"]));
    let heads =
        Heads { origin: Origin { field, trusted }, preserves_host: is_chosen(2), http2: is_chosen(3) };
    let given = head.headers.clone();
    if let Ok(outgoing) = heads.outgoing(head, is_chosen(4)) {
        let expected = if is_chosen(1) { &ORIGIN[..1] } else { &ORIGIN[1..4] };
        is_plain(&outgoing, &given, expected);
        let ours = outgoing.headers.get(expected[0]).expect("the proxy adds the peer");
        assert!(String::from_utf8_lossy(ours.as_bytes()).contains("10.0.0.1"), "{outgoing:?}");
        if let Some(connection) = outgoing.headers.get("connection") {
            let is_ours = (connection == "te" && !is_chosen(3))
                || (connection == "upgrade" && is_chosen(4))
                || (connection == "te, upgrade" && !is_chosen(3) && is_chosen(4));
            assert!(is_ours, "{outgoing:?}");
        }
        assert!(is_chosen(4) || !outgoing.headers.contains_key("upgrade"), "{outgoing:?}");
    }
}

/// Parses fields up to an empty line, and omits those that hyper would refuse.
fn fields<'d>(lines: &mut impl Iterator<Item = &'d [u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.take_while(|line| !line.is_empty()).take(64) {
        let mut parts = line.splitn(2, |&byte| byte == b':');
        let name = parts.next().and_then(|name| HeaderName::from_bytes(name).ok());
        let value = parts.next().and_then(|value| HeaderValue::from_bytes(value.trim_ascii()).ok());
        if let (Some(name), Some(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn request(first_line: &[u8], headers: HeaderMap) -> Option<request::Parts> {
    let mut words = first_line.split(|&byte| byte == b' ');
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = Method::from_bytes(words.next()?).ok()?;
    head.uri = Uri::try_from(words.next()?).ok()?;
    head.version = match words.next()? {
        b"HTTP/1.0" => Version::HTTP_10,
        b"HTTP/2" => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    head.headers = headers;
    head.extensions.insert(PeerAddr(PEER));
    Some(head)
}

fn is_plain(outgoing: &Outgoing, given: &HeaderMap, origin: &[&str]) {
    let headers = &outgoing.headers;
    has_plain_names(headers);
    let path = outgoing.path.as_str();
    assert!(path.starts_with('/') || path == "*", "{outgoing:?}");
    let single = ["host", "content-length", "cookie", "te", "connection", "upgrade", "via"];
    for name in single.iter().chain(origin) {
        assert!(headers.get_all(*name).iter().count() <= 1, "{name}: {outgoing:?}");
    }
    has_plain_length(headers);
    assert!(headers.get("te").is_none_or(|te| te == "trailers"), "{outgoing:?}");
    for name in ORIGIN.iter().filter(|name| !origin.contains(name)) {
        assert!(!headers.contains_key(*name), "{name}: {outgoing:?}");
    }
    // All other fields must be as the client sent them.
    let own = ["via", "host", "content-length", "cookie", "te", "connection", "upgrade"];
    for name in
        headers.keys().filter(|name| !own.contains(&name.as_str()) && !ORIGIN.contains(&name.as_str()))
    {
        assert!(headers.get_all(name).iter().eq(given.get_all(name).iter()), "{name}: {outgoing:?}");
    }
}

fn has_plain_names(headers: &HeaderMap) {
    for name in headers.keys() {
        let is_plain = name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        assert!(is_plain && !NEVER.contains(&name.as_str()), "{headers:?}");
    }
}

fn has_plain_length(headers: &HeaderMap) {
    if let Some(length) = headers.get(CONTENT_LENGTH) {
        let number: u64 = length.to_str().expect("digits").parse().expect("a number");
        assert_eq!(length, &number.to_string());
    }
}

fn response(mut headers: HeaderMap) {
    let is_coded = headers.contains_key("transfer-encoding");
    let had_length = headers.contains_key(CONTENT_LENGTH);
    if head::incoming(&mut headers, Version::HTTP_11).is_ok() {
        assert!(!(is_coded && had_length), "{headers:?}");
        assert!(headers.get_all(CONTENT_LENGTH).iter().count() <= 1, "{headers:?}");
        has_plain_length(&headers);
        for name in NEVER.iter().chain(&["connection", "upgrade", "te"]) {
            assert!(!headers.contains_key(*name), "{name}: {headers:?}");
        }
    }
}

fn trailers(headers: HeaderMap) {
    let body = http_body_util::Empty::<Bytes>::new().with_trailers(std::future::ready(Some(Ok(headers))));
    let frame = pollster::block_on(Box::pin(body).frame()).expect("trailers").expect("they don't fail");
    let cleaned = hop::clean_trailers(frame).into_trailers().expect("they stay trailers");
    has_plain_names(&cleaned);
    let of_the_head = ["host", "content-length", "content-type", "cookie", "authorization", "via"];
    for name in ORIGIN.iter().chain(&of_the_head) {
        assert!(!cleaned.contains_key(*name), "{name}: {cleaned:?}");
    }
}
