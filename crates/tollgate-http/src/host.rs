//! The canonical form of a host.
//!
//! HTTP/2 sends the host in `:authority`, HTTP/1.1 in the field `Host` or in the target. A client
//! that spells the host differently still requests the same host, so the spelling must not earn the
//! client a new quota.

use std::borrow::Cow;

/// Returns the canonical form of a host, such as `shop.example:8080`. Limits count a host under
/// this form.
///
/// The canonical form is in lower case, without a user name before `@`, without a trailing dot, and
/// without port 80 or 443. Both ports are removed for every scheme, because the scheme is not known
/// over HTTP/1.1.
pub(crate) fn canonical_host(host: &[u8]) -> Cow<'_, [u8]> {
    let host = host.trim_ascii();
    let host = host.iter().rposition(|&byte| byte == b'@').map_or(host, |at| &host[at + 1..]);
    let (name, port) = split(host);
    let name = name.strip_suffix(b".").unwrap_or(name);
    let is_lower = !name.iter().any(u8::is_ascii_uppercase);
    let Some(port) = port.filter(|&port| !matches!(port, b"" | b"80" | b"443")) else {
        return if is_lower { Cow::Borrowed(name) } else { Cow::Owned(name.to_ascii_lowercase()) };
    };
    if is_lower && host.len() == name.len() + 1 + port.len() {
        return Cow::Borrowed(host);
    }
    Cow::Owned([&name.to_ascii_lowercase(), &b":"[..], port].concat())
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
            ("[2001:db8::1]", &["[2001:db8::1]", "[2001:DB8::1]", "[2001:db8::1]:80"]),
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
}
