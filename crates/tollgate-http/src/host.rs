//! The canonical form of a host.
//!
//! HTTP/2 sends the host in `:authority`, HTTP/1.1 in the field `Host` or in the target. A client
//! that spells the host differently still requests the same host, so the spelling must not earn the
//! client a new quota.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// Returns the canonical form of a host, such as `shop.example:8080`. Limits count a host under
/// this form.
///
/// The canonical form is in lower case, without a user name before `@`, without a trailing dot, and
/// without port 80 or 443. Both ports are removed for every scheme, because the scheme is not known
/// over HTTP/1.1. An IPv6 address has the form of RFC 5952.
pub(crate) fn canonical_host(host: &[u8]) -> Cow<'_, [u8]> {
    let host = host.trim_ascii();
    let host = host.iter().rposition(|&byte| byte == b'@').map_or(host, |at| &host[at + 1..]);
    let (name, port) = split(host);
    let name = spelled(name.strip_suffix(b".").unwrap_or(name));
    let Some(port) = port.filter(|&port| !matches!(port, b"" | b"80" | b"443")) else { return name };
    match name {
        Cow::Borrowed(name) if host.len() == name.len() + 1 + port.len() => Cow::Borrowed(host),
        name => Cow::Owned([&name, &b":"[..], port].concat()),
    }
}

/// Returns a name in lower case, or an IPv6 address in its usual form.
fn spelled(name: &[u8]) -> Cow<'_, [u8]> {
    match address(name) {
        Some(address) => Cow::Owned(format!("[{address}]").into_bytes()),
        None if name.iter().any(u8::is_ascii_uppercase) => Cow::Owned(name.to_ascii_lowercase()),
        None => Cow::Borrowed(name),
    }
}

/// Returns the address in the brackets of a name, if the address is not in its usual form.
fn address(name: &[u8]) -> Option<Ipv6Addr> {
    let text = std::str::from_utf8(name.strip_prefix(b"[")?.strip_suffix(b"]")?).ok()?;
    let address: Ipv6Addr = text.parse().ok()?;
    (address.to_string() != text).then_some(address)
}

/// Returns whether a host in canonical form has a port.
pub(crate) fn has_port(host: &[u8]) -> bool {
    without_port(host).len() < host.len()
}

/// Returns a host in canonical form without its port, even if the port is not a number.
pub(crate) fn without_port(host: &[u8]) -> &[u8] {
    let brackets = host.iter().position(|&byte| byte == b']').filter(|_| host.starts_with(b"["));
    let from = brackets.unwrap_or(0);
    let colon = host[from..].iter().position(|&byte| byte == b':');
    colon.map_or(host, |at| &host[..from + at])
}

/// Returns whether a host in canonical form, without its port, contains only bytes that servers
/// compare one by one. A server may decode other bytes, such as the bytes of `%2E`.
pub(crate) fn is_plain(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_~[]:".contains(byte);
    !name.is_empty() && name.iter().all(is_plain)
}

/// Splits a host into its name and its port, and removes the port's leading zeros. The port is
/// `None` if it is missing.
fn split(host: &[u8]) -> (&[u8], Option<&[u8]>) {
    let colon = host.iter().rposition(|&byte| byte == b':');
    let Some((name, port)) = colon.map(|at| (&host[..at], &host[at + 1..])) else { return (host, None) };
    // The colons of an IPv6 address are in brackets.
    if !port.iter().all(u8::is_ascii_digit) || name.contains(&b':') && !name.ends_with(b"]") {
        return (host, None);
    }
    let zeros = port.iter().take_while(|&&byte| byte == b'0').count();
    (name, Some(&port[zeros..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_one_form_however_it_is_spelled() {
        for (form, spellings) in [
            (
                "shop.example",
                &[
                    "shop.example",
                    "Shop.EXAMPLE",
                    "shop.example.",
                    "shop.example:",
                    "shop.example:80",
                    "shop.example:443",
                    "SHOP.example.:0080",
                    "me@shop.example",
                    "a:b@c@shop.example:443",
                    "\tshop.example ",
                ][..],
            ),
            ("shop.example:8080", &["shop.example:8080", "Shop.example:8080", "shop.example.:08080"]),
            ("[2001:db8::1]", &["[2001:db8::1]", "[2001:DB8::1]", "[2001:db8::1]:80", "[2001:db8:0::1]:"]),
            ("[2001:db8::1]:81", &["[2001:db8::1]:81", "[2001:DB8::1]:81"]),
            ("192.0.2.1", &["192.0.2.1", "192.0.2.1:443"]),
            ("shop.example:port", &["shop.example:port", "SHOP.example:PORT"]),
            ("2001:db8::80", &["2001:db8::80"]),
            ("", &["", ":80", "me@", "."]),
        ] {
            for spelling in spellings {
                let found = canonical_host(spelling.as_bytes());
                assert_eq!(String::from_utf8_lossy(&found), form, "{spelling}");
                assert_eq!(canonical_host(&found), found, "the form of {spelling}");
            }
            assert!(matches!(canonical_host(spellings[0].as_bytes()), Cow::Borrowed(_)), "{form}");
        }
        assert_eq!(*canonical_host(b"\xff.Example"), *b"\xff.example");
    }

    #[test]
    fn a_port_is_found_behind_names_and_brackets() {
        for (host, name) in [
            ("a.example", "a.example"),
            ("a.example:8443", "a.example"),
            ("a.example:port", "a.example"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("[2001:db8::1]:81", "[2001:db8::1]"),
            ("", ""),
        ] {
            assert_eq!(without_port(host.as_bytes()), name.as_bytes(), "{host}");
            assert_eq!(has_port(host.as_bytes()), host != name, "{host}");
        }
        assert!(is_plain(b"[2001:db8::1]") && is_plain(b"my_host.example"));
        assert!(!is_plain(b"a%2eexample") && !is_plain(b"") && !is_plain(b"\xff"));
    }
}
