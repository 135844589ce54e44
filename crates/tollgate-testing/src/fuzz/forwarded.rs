//! Tests the address of a client behind proxies. The client may claim arbitrary bytes, to which the
//! proxies append entries with a known meaning.

use super::input::Input;
use http::{HeaderName, HeaderValue, Request};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tollgate_http::program::{MAX_HOPS, check, trusts};
use tollgate_http::{ForwardedField, KeyBy, KeyPart, PeerAddr, RequestHead, TrustedProxies};

pub fn body(data: &[u8]) {
    let mut input = Input(data);
    if input.below(8) == 0 {
        return networks(&String::from_utf8_lossy(input.0));
    }
    let case = Case::read(&mut input);
    let claimed = sendable(input.0);
    let found = case.client(&claimed);
    if let Some(known) = case.known(&claimed) {
        assert_eq!(found, known, "{claimed:?} {case:?}");
    }
    // If the proxies alone determine the address, the address is the same without the client's
    // claim.
    if case.decided_by_proxies() {
        assert_eq!(case.client(b""), found, "{claimed:?} {case:?}");
    }
}

/// The proxies in front of a service, and the entries that they wrote.
#[derive(Debug)]
struct Case {
    field: ForwardedField,
    /// The number of trusted hops, or `None` if the networks of [`trusted`] are trusted instead.
    hops: Option<usize>,
    peer: Option<IpAddr>,
    ipv6_prefix: u8,
    /// The entries in the order in which they were written, leftmost first.
    written: Vec<Entry>,
    /// Whether the claim is on a separate line.
    own_line: bool,
}

/// The entry that one proxy wrote.
#[derive(Debug)]
struct Entry {
    text: String,
    /// The address in the entry, or `None` if the entry contains no address.
    address: Option<IpAddr>,
    /// The separator from the previous entry, or `None` if the entry starts a new line.
    joined: Option<&'static str>,
}

/// Returns whether a proxy with this address is trusted. This function examines only the first
/// byte, so that it shares no code with the code under test.
fn trusted(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 10,
        IpAddr::V6(address) => address.octets()[0] == 0xfd,
    }
}

/// Returns the first bits of an IPv6 address, and all bits of any other address.
fn cut(address: IpAddr, ipv6_prefix: u8) -> IpAddr {
    let IpAddr::V6(whole) = address else { return address };
    let mut octets = whole.octets();
    for bit in usize::from(ipv6_prefix)..128 {
        octets[bit / 8] &= !(0x80 >> (bit % 8));
    }
    octets.into()
}

/// Replaces the bytes that a server would not accept in a field line.
fn sendable(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .map(|&byte| if (byte < b' ' && byte != b'\t') || byte == 0x7f { b' ' } else { byte })
        .collect()
}

fn address(input: &mut Input<'_>) -> IpAddr {
    let (kind, last) = (input.below(4), input.byte());
    match kind {
        0 => Ipv4Addr::new(10, 0, 0, last).into(),
        1 => Ipv4Addr::new(192, 0, 2, last).into(),
        2 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into(),
        _ => Ipv6Addr::new(0x2001, 0xdb8, 0, last.into(), 0x1234, 0, 0, last.into()).into(),
    }
}

impl Case {
    fn read(input: &mut Input<'_>) -> Self {
        let flags = input.byte();
        let field = if flags & 1 == 0 { ForwardedField::Forwarded } else { ForwardedField::XForwardedFor };
        let hops = (flags & 2 != 0).then(|| 1 + input.below(MAX_HOPS));
        let peer = (flags & 4 == 0).then(|| address(input));
        let ipv6_prefix = if flags & 8 == 0 { 128 } else { 1 + input.byte() % 128 };
        let written = (0..input.below(6)).map(|_| Entry::read(&field, input)).collect();
        Self { field, hops, peer, ipv6_prefix, written, own_line: flags & 16 != 0 }
    }

    /// Returns the addresses on the path that do not depend on the client's claims, last hop first.
    fn on_the_way(&self) -> Vec<Option<IpAddr>> {
        let written = self.written.iter().rev().map(|entry| entry.address);
        match self.hops {
            Some(_) => written.collect(),
            None => [self.peer].into_iter().chain(written).collect(),
        }
    }

    /// Returns the index at which the walk ends, or `None` if the walk does not end at an entry
    /// that a trusted proxy wrote.
    fn end(&self) -> Option<usize> {
        let way = self.on_the_way();
        match self.hops {
            Some(hops) => (hops <= way.len()).then(|| hops - 1),
            None => way.iter().position(|hop| hop.is_none_or(|address| !trusted(address))),
        }
    }

    fn decided_by_proxies(&self) -> bool {
        self.end().is_some()
    }

    /// Returns the client's address, or `None` if the address depends on bytes that only the parser
    /// can interpret.
    fn known(&self, claimed: &[u8]) -> Option<Option<IpAddr>> {
        let mut way = self.on_the_way();
        let end = match self.end() {
            Some(end) => end,
            None => {
                way.extend(self.claims(claimed)?);
                let end = match self.hops {
                    Some(hops) => Some(hops - 1),
                    None => way.iter().position(|hop| hop.is_none_or(|address| !trusted(address))),
                };
                end.unwrap_or(usize::MAX).min(way.len().saturating_sub(1))
            }
        };
        let client = way.get(end).copied().unwrap_or(self.peer);
        Some(client.map(|client| cut(client, self.ipv6_prefix)))
    }

    /// Returns the client's claims, last one first. Returns `None` if the claims are neither empty
    /// nor a plain list of addresses.
    fn claims(&self, claimed: &[u8]) -> Option<Vec<Option<IpAddr>>> {
        let text = str::from_utf8(claimed).ok()?;
        let entries =
            text.split(',').map(|entry| entry.trim_matches([' ', '\t'])).filter(|it| !it.is_empty());
        let prefix = if self.field == ForwardedField::Forwarded { "for=" } else { "" };
        let plain =
            |entry: &str| entry.strip_prefix(prefix)?.parse().ok().map(|it: IpAddr| it.to_canonical());
        entries.rev().map(|entry| plain(entry).map(Some)).collect()
    }

    fn client(&self, claimed: &[u8]) -> Option<IpAddr> {
        let proxies = match self.hops {
            Some(hops) => TrustedProxies::hops(hops),
            None => TrustedProxies::networks(["10.0.0.0/8", "fd00::/8"]),
        };
        let mut request = Request::new(());
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(PeerAddr((peer, 4711).into()));
            assert_eq!(trusts(&proxies, peer), self.hops.is_some() || trusted(peer), "{peer}");
        }
        let name = match self.field {
            ForwardedField::Forwarded => HeaderName::from_static("forwarded"),
            _ => HeaderName::from_static("x-forwarded-for"),
        };
        for line in self.lines(claimed) {
            let value = HeaderValue::from_bytes(&line).expect("what can't be sent was replaced");
            request.headers_mut().append(&name, value);
        }
        let by = KeyBy::forwarded(self.field.clone(), proxies).ipv6_prefix(self.ipv6_prefix);
        let key = by.key("client", RequestHead::of(&request)).expect("a layer would take it")?;
        let [KeyPart::Address(address)] = key.parts() else { panic!("{key:?}") };
        Some(*address)
    }

    /// Returns the field as the service receives it.
    fn lines(&self, claimed: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = if claimed.is_empty() { Vec::new() } else { vec![claimed.to_vec()] };
        for (index, entry) in self.written.iter().enumerate() {
            // Even the first proxy may append its entry to the client's line, unless the claim is
            // on a separate line.
            let joined = entry.joined.filter(|_| index > 0 || !self.own_line);
            match (joined, lines.last_mut()) {
                (Some(comma), Some(line)) => line.extend_from_slice(comma.as_bytes()),
                _ => lines.push(Vec::new()),
            }
            let line = lines.last_mut().expect("there is one now");
            line.extend_from_slice(entry.text.as_bytes());
        }
        lines
    }
}

impl Entry {
    fn read(field: &ForwardedField, input: &mut Input<'_>) -> Self {
        let joined = [Some(", "), Some(","), Some(" ,\t"), Some(",, ,"), None][input.below(5)];
        let (text, address) = match input.below(8) {
            0 => (["unknown", "_hidden", "_h.i-d:80", "1.2.3.256"][input.below(4)].to_owned(), None),
            _ => {
                let address = address(input);
                (spelled(address, input), Some(address))
            }
        };
        let text = if *field == ForwardedField::Forwarded { pairs(&text, input) } else { text };
        Self { text, address, joined }
    }
}

/// Returns the address in one of the spellings that proxies use.
fn spelled(address: IpAddr, input: &mut Input<'_>) -> String {
    match (address, input.below(5)) {
        (IpAddr::V4(v4), 0) => format!("{v4}:{}", input.byte()),
        (IpAddr::V4(v4), 1) => format!("::ffff:{v4}"),
        (IpAddr::V4(v4), 2) => format!("[::FFFF:{v4}]:_obfuscated"),
        (IpAddr::V4(v4), _) => v4.to_string(),
        (IpAddr::V6(v6), 0) => format!("[{v6}]:{}", input.byte()),
        (IpAddr::V6(v6), 1) => format!("[{v6}]"),
        (IpAddr::V6(v6), 2) => format!("{v6}%eth0"),
        (IpAddr::V6(v6), 3) => v6.segments().map(|segment| format!("{segment:04X}")).join(":"),
        (IpAddr::V6(v6), _) => v6.to_string(),
    }
}

/// Returns a `Forwarded` element with a `for` pair and other pairs, some of which resemble `for`.
fn pairs(node: &str, input: &mut Input<'_>) -> String {
    let name = ["for", "For", "FOR"][input.below(3)];
    let quoted = match input.below(3) {
        0 => node.to_owned(),
        1 => format!("\"{node}\""),
        // Any character may be escaped.
        _ => format!("\"{}\"", node.chars().map(|it| format!("\\{it}")).collect::<String>()),
    };
    let others = [
        "proto=https",
        "by=\"a, for=198.51.100.1\"",
        "host=\"\\\", for=198.51.100.1;\\\\\"",
        "by=_hidden;host=example.com",
        "secret=\"\"",
    ];
    let other = others[input.below(others.len())];
    match input.below(4) {
        0 => format!("{name}={quoted}"),
        1 => format!("{name}={quoted};{other}"),
        2 => format!("{other}; {name}={quoted}"),
        _ => format!("{other};{name}={quoted};"),
    }
}

/// Parses any text as a list of trusted networks, one on each line, and checks the result.
fn networks(text: &str) {
    let texts: Vec<&str> = text.lines().collect();
    let proxies = TrustedProxies::networks(texts.iter().copied());
    // `None` if a network is not in the usual notation. For such a list, the test only requires
    // that nothing panics.
    let plain: Option<Vec<(IpAddr, u8)>> = texts.iter().map(|text| plain_network(text)).collect();
    if let Err(refused) = check(&proxies) {
        assert!(refused.to_string().contains(": expected "), "{refused}");
    }
    let Some(plain) = plain else { return };
    let accepted = check(&proxies).is_ok();
    let everybody = [true, false].into_iter().any(|ipv4| leave_nobody_out(&plain, ipv4));
    assert_eq!(accepted, !plain.is_empty() && !everybody, "{texts:?}");
    for &(address, prefix) in &plain {
        // Tests three addresses: the network's own address, and the addresses that differ from it
        // in the last bit of the prefix and in the first bit after the prefix.
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let neighbours =
            [prefix.checked_sub(1), (prefix < bits).then_some(prefix)].map(|bit| flipped(address, bit));
        for asked in [address, neighbours[0], neighbours[1]].into_iter().filter(|it| it.to_canonical() == *it)
        {
            let held = plain.iter().any(|&network| holds(network, asked));
            assert_eq!(trusts(&proxies, asked), accepted && held, "{asked} {texts:?}");
        }
    }
}

/// Returns the bits of an address, starting with the first bit.
fn bits(address: IpAddr) -> Vec<bool> {
    let octets = match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    octets.iter().flat_map(|octet| (0..8).map(move |bit| octet & (0x80 >> bit) != 0)).collect()
}

fn holds((network, prefix): (IpAddr, u8), asked: IpAddr) -> bool {
    let (network, asked) = (bits(network), bits(asked));
    network.len() == asked.len() && network.iter().zip(&asked).take(prefix.into()).all(|(a, b)| a == b)
}

/// Returns whether the networks cover all IPv4 addresses, or all IPv6 addresses. This function
/// walks the tree of prefixes. The walk stops at a prefix if one network contains all of its
/// addresses, or if no network lies within the prefix.
fn leave_nobody_out(networks: &[(IpAddr, u8)], ipv4: bool) -> bool {
    let prefixes = networks.iter().filter(|(address, _)| address.is_ipv4() == ipv4);
    let prefixes: Vec<Vec<bool>> =
        prefixes.map(|&(address, prefix)| bits(address)[..prefix.into()].to_vec()).collect();
    covered(&prefixes, &mut Vec::new())
}

fn covered(prefixes: &[Vec<bool>], below: &mut Vec<bool>) -> bool {
    if prefixes.iter().any(|prefix| below.starts_with(prefix)) {
        return true;
    }
    prefixes.iter().any(|prefix| prefix.starts_with(below))
        && [false, true].into_iter().all(|bit| {
            below.push(bit);
            let covered = covered(prefixes, below);
            below.pop();
            covered
        })
}

fn flipped(address: IpAddr, bit: Option<u8>) -> IpAddr {
    let flip = |octets: &mut [u8]| {
        if let Some(bit) = bit.map(usize::from) {
            octets[bit / 8] ^= 0x80 >> (bit % 8);
        }
    };
    match address {
        IpAddr::V4(v4) => {
            let mut octets = v4.octets();
            flip(&mut octets);
            octets.into()
        }
        IpAddr::V6(v6) => {
            let mut octets = v6.octets();
            flip(&mut octets);
            octets.into()
        }
    }
}

/// Parses an address and a prefix length. Refuses IPv4-mapped networks, because they only look like
/// IPv6 networks.
fn plain_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        Some(prefix) => {
            prefix.parse().ok().filter(|&number: &u8| number <= bits && number.to_string() == prefix)?
        }
        None => bits,
    };
    (address.to_canonical() == address).then_some((address, prefix))
}
