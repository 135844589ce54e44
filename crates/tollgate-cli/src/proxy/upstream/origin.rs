//! Writes the fields that report a request's origin to the upstream: `X-Forwarded-*` or
//! `Forwarded`.
//!
//! The proxy passes on these fields only if they arrive from a trusted proxy, because any other
//! peer may write arbitrary values. The proxy writes either `X-Forwarded-*` or `Forwarded`, and
//! removes the other spelling, which it has not checked. If a field with a single address names the
//! client, the proxy writes this field in addition to `X-Forwarded-*`.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use http::header::{FORWARDED, HeaderMap, HeaderName, HeaderValue, VIA};
use tollgate_http::program::{parse_address, trusts};
use tollgate_http::{ForwardedField, TrustedProxies};

use super::fields::{join_lines, remove};

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// All fields that report a request's origin.
pub(crate) static FIELDS: [HeaderName; 6] = [
    FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-real-ip"),
];

/// Returns whether the proxy writes this field in every request, whichever field names the client.
pub(crate) fn is_written(name: &HeaderName) -> bool {
    *name == VIA || (FIELDS.contains(name) && name != "x-real-ip")
}

/// The lines of the fields, in the order in which they are written. Lines of the same field are
/// joined later.
type ForwardedFields = Vec<(HeaderName, HeaderValue)>;

/// Determines whether the proxy writes `X-Forwarded-*` or `Forwarded`, and which peers' fields it
/// passes on.
#[derive(Clone, Debug)]
pub struct Origin {
    pub field: ForwardedField,
    /// The trusted proxies. If this is `None`, no peer is trusted.
    pub trusted: Option<TrustedProxies>,
}

impl Origin {
    /// Returns the fields that report the origin of the request with these `headers`.
    pub(crate) fn of(&self, headers: &HeaderMap, peer: SocketAddr, host: &HeaderValue) -> ForwardedFields {
        let trusted = self.trusted.as_ref().is_some_and(|trusted| trusts(trusted, peer.ip()));
        let before = |name: &HeaderName| headers.get_all(name).iter().filter(move |_| trusted);
        let mut fields = Vec::with_capacity(3);
        let mut tell = |name: &HeaderName, value: HeaderValue| fields.push((name.clone(), value));
        let ip = peer.ip().to_canonical();
        match &self.field {
            ForwardedField::Forwarded => {
                before(&FORWARDED).cloned().for_each(|value| tell(&FORWARDED, value));
                if let Ok(element) = HeaderValue::from_str(&forwarded(ip, host)) {
                    tell(&FORWARDED, element);
                }
            }
            field => {
                match field {
                    // A trusted proxy that reports clients in this field may pass on the list as
                    // the client sent it.
                    ForwardedField::Single(name) => {
                        let client = client(before(name), ip);
                        client.and_then(value).into_iter().for_each(|value| tell(name, value));
                        let behind = client.filter(|client| *client != ip);
                        behind.and_then(value).into_iter().for_each(|value| tell(&X_FORWARDED_FOR, value));
                    }
                    _ => before(&X_FORWARDED_FOR).cloned().for_each(|value| tell(&X_FORWARDED_FOR, value)),
                }
                value(ip).into_iter().for_each(|value| tell(&X_FORWARDED_FOR, value));
                // The first trusted proxy received the scheme and the host that the client
                // requested.
                let http = HeaderValue::from_static("http");
                for (name, own) in [(&X_FORWARDED_HOST, host), (&X_FORWARDED_PROTO, &http)] {
                    let told = before(name).next().unwrap_or(own);
                    // An HTTP/1.0 client may have sent no host.
                    if !told.is_empty() {
                        tell(name, told.clone());
                    }
                }
            }
        }
        fields
    }

    /// Removes all origin fields that the peer may have written. Then adds the fields returned by
    /// [`Origin::of`].
    pub(crate) fn write(&self, fields: ForwardedFields, headers: &mut HeaderMap) {
        let is_chosen = |name: &HeaderName| matches!(&self.field, ForwardedField::Single(it) if it == name);
        remove(headers, |name| FIELDS.contains(name) || is_chosen(name));
        for (name, value) in fields {
            headers.append(name, value);
        }
        for list in [&FORWARDED, &X_FORWARDED_FOR] {
            join_lines(headers, list, b", ");
        }
    }
}

/// Returns the client's address as the limits find it, from the lines of a field with a single
/// address.
fn client<'h>(mut lines: impl Iterator<Item = &'h HeaderValue>, peer: IpAddr) -> Option<IpAddr> {
    let (first, second) = (lines.next(), lines.next());
    match (first.map(|line| line.as_bytes().trim_ascii()), second) {
        (_, Some(_)) => None,
        (None | Some(b""), None) => Some(peer),
        (Some(address), None) => parse_address(str::from_utf8(address).ok()?),
    }
}

fn value(ip: IpAddr) -> Option<HeaderValue> {
    HeaderValue::from_str(&ip.to_string()).ok()
}

/// Returns an element of `Forwarded` (RFC 7239).
fn forwarded(ip: IpAddr, host: &HeaderValue) -> String {
    let mut element = match ip {
        IpAddr::V4(v4) => format!("for={v4};proto=http"),
        IpAddr::V6(v6) => format!("for=\"[{v6}]\";proto=http"),
    };
    // The host contains neither quotes nor backslashes, because it has been checked.
    if let Some(host) = host.to_str().ok().filter(|host| !host.is_empty()) {
        // Writing to a string cannot fail.
        let _ = write!(element, ";host=\"{host}\"");
    }
    element
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &(name, value) in fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn told(origin: &Origin, peer: &str, said: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = headers(said);
        let peer = SocketAddr::new(peer.parse().expect("an address"), 4711);
        let fields = origin.of(&headers, peer, &HeaderValue::from_static("example.org"));
        origin.write(fields, &mut headers);
        headers
    }

    const SAID: [(&str, &str); 5] = [
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "shop.example"),
        ("x-real-ip", "192.0.2.1"),
        ("forwarded", "for=192.0.2.2"),
    ];

    #[test]
    fn what_an_untrusted_peer_says_is_replaced() {
        for trusted in [None, Some(TrustedProxies::networks(["10.0.0.0/8"]))] {
            let origin = Origin { field: ForwardedField::XForwardedFor, trusted };
            let own = [
                ("x-forwarded-for", "203.0.113.9"),
                ("x-forwarded-host", "example.org"),
                ("x-forwarded-proto", "http"),
            ];
            assert_eq!(told(&origin, "203.0.113.9", &SAID), headers(&own));
        }
    }

    #[test]
    fn what_a_trusted_proxy_says_is_passed_on_with_its_own_address_added() {
        let networks = |text: &str| TrustedProxies::networks([text]);
        for trusted in [TrustedProxies::hops(1), networks("10.0.0.0/8"), networks("::ffff:10.0.0.0/104")] {
            let origin = Origin { field: ForwardedField::XForwardedFor, trusted: Some(trusted) };
            let told = told(&origin, "::ffff:10.0.0.1", &SAID);
            let own = [
                ("x-forwarded-for", "192.0.2.1, 10.0.0.1"),
                ("x-forwarded-host", "shop.example"),
                ("x-forwarded-proto", "https"),
            ];
            assert_eq!(told, headers(&own));
        }
    }

    #[test]
    fn a_field_with_one_address_is_written_with_the_client_that_the_limits_find() {
        let trusted = || Some(TrustedProxies::networks(["10.0.0.0/8"]));
        let name = HeaderName::from_static("x-real-ip");
        let origin = |trusted| Origin { field: ForwardedField::Single(name.clone()), trusted };
        let of = |trusted, peer: &str, said: &[(&'static str, &'static str)]| {
            let told = told(&origin(trusted), peer, said);
            [&name, &X_FORWARDED_FOR].map(|name| {
                assert!(told.get_all(name).iter().count() <= 1, "{told:?}");
                told.get(name).map_or("", |value| value.to_str().expect("ASCII")).to_owned()
            })
        };
        let one: &[_] = &[("x-real-ip", "192.0.2.1"), ("x-forwarded-for", "198.51.100.1")];
        assert_eq!(of(trusted(), "10.0.0.1", one), ["192.0.2.1", "192.0.2.1, 10.0.0.1"]);
        // The untrusted peer is the client.
        for (trusted, peer) in [(trusted(), "203.0.113.9"), (None, "10.0.0.1")] {
            assert_eq!(of(trusted, peer, one), [peer, peer]);
        }
        // The peer is also the client if a trusted proxy reports none.
        assert_eq!(of(trusted(), "10.0.0.1", &[("x-real-ip", "")]), ["10.0.0.1", "10.0.0.1"]);
        for said in [
            &[("x-real-ip", "unknown")][..],
            &[("x-real-ip", "192.0.2.1, 192.0.2.2")],
            &[("x-real-ip", "192.0.2.1"), ("x-real-ip", "192.0.2.2")],
        ] {
            assert_eq!(of(trusted(), "10.0.0.1", said), ["", "10.0.0.1"], "{said:?}");
        }
    }

    #[test]
    fn forwarded_is_written_in_place_of_the_others_if_it_was_chosen() {
        let origin = Origin { field: ForwardedField::Forwarded, trusted: Some(TrustedProxies::hops(1)) };
        let own = [("forwarded", "for=192.0.2.2, for=\"[2001:db8::1]\";proto=http;host=\"example.org\"")];
        assert_eq!(told(&origin, "2001:db8::1", &SAID), headers(&own));
    }
}
