//! Handles hop-by-hop fields, and the field `Via`, to which each hop adds itself (RFC 9110, 7.6).

use http::Version;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, COOKIE, HOST,
    HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SET_COOKIE, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http_body::Frame;

use super::fields::{add_element, join_lines, remove};
use super::origin;

const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// The fixed hop-by-hop fields. `Connection` may name additional hop-by-hop fields.
static OF_THIS_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields that are meaningless in trailers, or mean something else there than in a head.
static OF_THE_HEAD: [HeaderName; 10] = [
    AUTHORIZATION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    HOST,
    SET_COOKIE,
    TRAILER,
    VIA,
];

/// Removes the hop-by-hop fields. `Connection` cannot cause the removal of the proxy's own fields,
/// because the proxy adds them later.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        elements(headers, &CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok()).collect();
    remove(headers, |name| OF_THIS_HOP.contains(name) || named.contains(name));
}

/// Removes fields whose names contain characters other than letters, digits and hyphens. Many
/// servers interpret `X_Forwarded_For` and `X.Forwarded.For` as `X-Forwarded-For`. A client could
/// use such a name to replace a field that the proxy has checked, or to hide the key that a limit
/// counts. nginx also removes these fields by default.
pub(crate) fn remove_lookalikes(headers: &mut HeaderMap) {
    remove(headers, |name| name.as_str().bytes().any(|it| !it.is_ascii_alphanumeric() && it != b'-'));
}

/// Removes trailer fields that are meant to be read before the body (RFC 9110, 6.5.1): fields about
/// framing, the host, the request's origin, and credentials. A server that merges trailers into the
/// head would mistake such fields for checked ones.
pub fn clean_trailers<D>(frame: Frame<D>) -> Frame<D> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            strip(&mut trailers);
            remove_lookalikes(&mut trailers);
            remove(&mut trailers, |name| origin::FIELDS.contains(name) || OF_THE_HEAD.contains(name));
            Frame::trailers(trailers)
        }
        Err(frame) => frame,
    }
}

/// Returns whether the list fields with this name contain the element, ignoring case.
pub(crate) fn lists(headers: &HeaderMap, name: &HeaderName, element: &str) -> bool {
    elements(headers, name).any(|found| found.eq_ignore_ascii_case(element.as_bytes()))
}

/// Returns the elements of all list fields with this name, without empty elements.
pub(crate) fn elements<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    let values = headers.get_all(name).iter();
    let elements = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}

/// Announces to the next hop that the proxy accepts trailers, which gRPC requires.
pub(crate) fn accept_trailers(headers: &mut HeaderMap, upstream_http2: bool) {
    headers.insert(TE, TRAILERS);
    if !upstream_http2 {
        add_element(headers, &CONNECTION, HeaderValue::from_static("te"));
    }
}

/// Adds this hop to the `Via` field of a message. `version` is the HTTP version in which the
/// message arrived.
pub(crate) fn sign(headers: &mut HeaderMap, version: Version) {
    let hop = match version {
        Version::HTTP_09 => "0.9 tollgate",
        Version::HTTP_10 => "1.0 tollgate",
        Version::HTTP_2 => "2.0 tollgate",
        Version::HTTP_3 => "3.0 tollgate",
        _ => "1.1 tollgate",
    };
    add_element(headers, &VIA, HeaderValue::from_static(hop));
}

/// Joins cookies into a single field. An HTTP/2 client may split cookies into several fields (RFC
/// 9113, 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    join_lines(headers, &COOKIE, b"; ");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        fields.iter().map(field).collect()
    }

    #[test]
    fn what_connection_names_goes_with_what_always_goes() {
        let mut found = headers(&[
            ("connection", "close, X-Secret"),
            ("connection", ",,x-other , not a name"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("x-kept", "3"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic x"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
        ]);
        strip(&mut found);
        assert_eq!(found, headers(&[("x-kept", "3")]));
    }

    #[test]
    fn elements_are_found_in_any_case_and_only_whole() {
        let found = headers(&[("te", "gzip;q=1, Trailers")]);
        assert!(lists(&found, &TE, "trailers"));
        assert!(!lists(&found, &TE, "trailer") && !lists(&found, &TE, "gzip"));
    }

    #[test]
    fn cookies_and_signatures_are_on_one_line() {
        let mut found =
            headers(&[("cookie", "a=1"), ("cookie", "b=2"), ("via", "1.0 a"), ("via", ""), ("via", "1.1 b")]);
        join_cookies(&mut found);
        sign(&mut found, Version::HTTP_2);
        assert_eq!(found, headers(&[("cookie", "a=1; b=2"), ("via", "1.0 a, 1.1 b, 2.0 tollgate")]));
    }
}
