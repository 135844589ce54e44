//! Parses client addresses in every spelling, turns IPv4-mapped addresses into IPv4, and cuts IPv6
//! addresses to a prefix.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The prefix length of the smallest IPv6 network that providers assign to one customer.
pub(crate) const DEFAULT_IPV6_PREFIX: u8 = 64;

/// Turns an IPv4-mapped address into IPv4, and cuts an IPv6 address to its first `prefix` bits.
pub(crate) fn client(address: IpAddr, prefix: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let kept = u32::from(prefix.min(128));
            let mask = u128::MAX.checked_shl(128 - kept).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
        address => address,
    }
}

/// Parses a node of `Forwarded` or an entry of `X-Forwarded-For`, and turns an IPv4-mapped address
/// into IPv4. The address may have a port, brackets and a zone. Returns `None` for anything else,
/// such as `unknown` and obfuscated names (`_hidden`).
pub(crate) fn parse_node(text: &str) -> Option<IpAddr> {
    let text = text.trim_matches([' ', '\t']);
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let has_port = port.strip_prefix(':').is_some_and(is_port);
        return if port.is_empty() || has_port { parse_v6(address) } else { None };
    }
    if let Some((address, port)) = text.split_once(':') {
        if !port.contains(':') {
            let address: Ipv4Addr = address.parse().ok()?;
            return if is_port(port) { Some(IpAddr::V4(address)) } else { None };
        }
        return parse_v6(text);
    }
    text.parse().ok().map(IpAddr::V4)
}

fn parse_v6(text: &str) -> Option<IpAddr> {
    // A zone has a meaning only on the machine that wrote the zone, and reveals nothing about the
    // client.
    let address = match text.split_once('%') {
        Some((_, "")) => return None,
        Some((address, _)) => address,
        None => text,
    };
    address.parse().ok().map(|address: Ipv6Addr| address.to_canonical())
}

/// Returns whether the text is a port number, or an obfuscated port (RFC 7239, section 6).
fn is_port(text: &str) -> bool {
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let obfuscated = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !name.is_empty() && name.bytes().all(allowed)
    };
    digits || text.strip_prefix('_').is_some_and(obfuscated)
}

/// Returns the address of a peer. An IPv4-mapped address becomes an IPv4 address.
pub(crate) fn of_socket(peer: SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_mapped_address_is_the_ipv4_address_however_it_is_spelled() {
        for spelled in [
            "192.0.2.33",
            "192.0.2.33:80",
            "::ffff:192.0.2.33",
            "::FFFF:192.0.2.33",
            "::ffff:c000:221",
            "::ffff:C000:0221",
            "0:0:0:0:0:ffff:c000:221",
            "0000:0000:0000:0000:0000:ffff:192.0.2.33",
            "[::ffff:192.0.2.33]",
            "[::ffff:c000:221]:443",
            "[::ffff:192.0.2.33]:_hidden",
            " ::ffff:192.0.2.33%eth0 ",
        ] {
            assert_eq!(parse_node(spelled), Some(ip("192.0.2.33")), "{spelled}");
        }
        // IPv4-compatible and IPv4-translated addresses are not IPv4-mapped.
        assert_eq!(parse_node("::192.0.2.33"), Some(ip("::192.0.2.33")));
        assert_eq!(parse_node("64:ff9b::192.0.2.33"), Some(ip("64:ff9b::c000:221")));
    }

    #[test]
    fn ports_brackets_and_zones_are_no_part_of_an_address() {
        for spelled in [
            "2001:db8::1",
            "2001:DB8:0::1",
            "[2001:db8::1]",
            "[2001:db8::1]:8080",
            "[2001:db8::1]:_port",
            "2001:db8::1%eth0",
            "[2001:db8::1%25eth0]:8080",
        ] {
            assert_eq!(parse_node(spelled), Some(ip("2001:db8::1")), "{spelled}");
        }
    }

    #[test]
    fn what_is_no_address_is_none() {
        for spelled in [
            "",
            "unknown",
            "_hidden",
            "_hidden:80",
            "localhost",
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "01.2.3.4",
            "1.2.3.4:",
            "1.2.3.4:x",
            "1.2.3.4:123456",
            "1.2.3.4:_",
            "[1.2.3.4]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]80",
            "[2001:db8::1]:",
            "2001:db8::1%",
            "1.2.3.4 5.6.7.8",
            "\"1.2.3.4\"",
        ] {
            assert_eq!(parse_node(spelled), None, "{spelled}");
        }
    }

    #[test]
    fn ipv6_is_cut_and_ipv4_is_not_also_when_it_came_mapped() {
        assert_eq!(client(ip("2001:db8:1:2:3:4:5:6"), 64), ip("2001:db8:1:2::"));
        assert_eq!(client(ip("2001:db8:1:2:3:4:5:6"), 56), ip("2001:db8:1::"));
        assert_eq!(client(ip("2001:db8::6"), 128), ip("2001:db8::6"));
        assert_eq!(client(ip("8001::"), 1), ip("8000::"));
        assert_eq!(client(ip("::ffff:192.0.2.33"), 64), ip("192.0.2.33"));
        assert_eq!(client(ip("192.0.2.33"), 1), ip("192.0.2.33"));
    }
}
