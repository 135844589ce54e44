//! Tests that the layer finds the address of a client behind proxies, no matter what the client
//! writes into the headers.

use super::site::{Running, from, site};
use http::Request;
use tollgate_http::{ForwardedField, Key, KeyBy, KeyPart, RequestHead, TrustedProxies};

const XFF: ForwardedField = ForwardedField::XForwardedFor;
const PROXY: &str = "10.0.0.1";

fn ours() -> TrustedProxies {
    TrustedProxies::networks(["10.0.0.0/8", "fd00::/8"])
}

/// Returns the key of a request, or `None` if the request has no key.
fn client(field: ForwardedField, proxies: TrustedProxies, request: &Request<()>) -> Option<String> {
    let by = KeyBy::forwarded(field, proxies).ipv6_prefix(128);
    let key = by.key("x", RequestHead::of(request)).unwrap()?;
    let [KeyPart::Address(address)] = key.parts() else { panic!("{key:?}") };
    Some(address.to_string())
}

/// Makes a request from a proxy, with lines of `X-Forwarded-For`.
fn xff(proxies: TrustedProxies, peer: &str, lines: &[&str]) -> Option<String> {
    let lines: Vec<(&str, &str)> = lines.iter().map(|line| ("X-Forwarded-For", *line)).collect();
    client(XFF, proxies, &from(peer, "/", &lines))
}

fn some(address: &str) -> Option<String> {
    Some(address.to_owned())
}

#[test]
fn the_client_is_the_first_from_the_right_that_is_not_trusted() {
    assert_eq!(xff(ours(), PROXY, &["9.9.9.9"]), some("9.9.9.9"));
    assert_eq!(xff(ours(), PROXY, &["9.9.9.9, 10.0.0.2"]), some("9.9.9.9"));
    assert_eq!(xff(ours(), PROXY, &["9.9.9.9,10.0.0.2 ,\t10.0.0.3"]), some("9.9.9.9"));
    assert_eq!(xff(ours(), "fd00::1", &["2001:db8::9, fd00::2"]), some("2001:db8::9"));
}

#[test]
fn what_a_client_writes_is_not_believed_in_any_position() {
    // The proxies append these three entries after the client's entries.
    let appended = "9.9.9.9, 10.0.0.2, 10.0.0.3";
    for spoofed in [
        "1.1.1.1",
        "10.0.0.9",
        "1.1.1.1, 10.0.0.9",
        "10.0.0.9, 1.1.1.1",
        "unknown",
        "_hidden",
        "",
        ",,,",
        "\"",
        "garbage ; for=1.1.1.1",
        "127.0.0.1",
        "::1",
        "9.9.9.9, 9.9.9.9",
    ] {
        let joined = format!("{spoofed}, {appended}");
        assert_eq!(xff(ours(), PROXY, &[&joined]), some("9.9.9.9"), "{spoofed}");
        assert_eq!(xff(ours(), PROXY, &[spoofed, appended]), some("9.9.9.9"), "{spoofed}");
        assert_eq!(xff(TrustedProxies::hops(3), PROXY, &[&joined]), some("9.9.9.9"), "{spoofed}");
        assert_eq!(xff(TrustedProxies::hops(3), PROXY, &[spoofed, appended]), some("9.9.9.9"), "{spoofed}");
    }
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client_whatever_it_sends() {
    for lines in [&["1.1.1.1"][..], &["10.0.0.2"], &["unknown"], &[]] {
        assert_eq!(xff(ours(), "9.9.9.9", lines), some("9.9.9.9"), "{lines:?}");
    }
    assert_eq!(xff(ours(), "", &["1.1.1.1"]), None);
}

#[test]
fn if_all_are_trusted_it_is_the_leftmost_one() {
    assert_eq!(xff(ours(), PROXY, &["10.0.0.4, 10.0.0.3", "10.0.0.2"]), some("10.0.0.4"));
    assert_eq!(xff(ours(), PROXY, &[]), some(PROXY));
    assert_eq!(xff(ours(), PROXY, &["", " , "]), some(PROXY));
}

#[test]
fn where_the_walk_has_to_stop_at_no_address_there_is_no_key() {
    for entry in ["unknown", "_hidden", "garbage", "1.2.3", "1.2.3.4.5", "\"9.9.9.9\"", "[::1", "for=9.9.9.9"]
    {
        assert_eq!(xff(ours(), PROXY, &[&format!("9.9.9.9, {entry}")]), None, "{entry}");
        assert_eq!(xff(ours(), PROXY, &[&format!("9.9.9.9, {entry}, 10.0.0.2")]), None, "{entry}");
        assert_eq!(xff(TrustedProxies::hops(1), PROXY, &[&format!("9.9.9.9, {entry}")]), None, "{entry}");
        // Only the entry that identifies the client is parsed, not the entries to its left and
        // right.
        assert_eq!(xff(TrustedProxies::hops(2), PROXY, &[&format!("9.9.9.9, {entry}")]), some("9.9.9.9"));
        assert_eq!(xff(TrustedProxies::hops(1), PROXY, &[&format!("{entry}, 9.9.9.9")]), some("9.9.9.9"));
    }
}

#[test]
fn entries_are_understood_in_all_spellings() {
    for (spelled, address) in [
        ("9.9.9.9:80", "9.9.9.9"),
        ("::ffff:9.9.9.9", "9.9.9.9"),
        ("::FFFF:909:909", "9.9.9.9"),
        ("[::ffff:9.9.9.9]:80", "9.9.9.9"),
        ("0:0:0:0:0:ffff:9.9.9.9", "9.9.9.9"),
        ("2001:DB8::9", "2001:db8::9"),
        ("[2001:db8::9]", "2001:db8::9"),
        ("[2001:db8::9]:443", "2001:db8::9"),
        ("2001:db8::9%eth0", "2001:db8::9"),
    ] {
        assert_eq!(xff(ours(), PROXY, &[spelled]), some(address), "{spelled}");
        assert_eq!(xff(TrustedProxies::hops(1), PROXY, &[spelled]), some(address), "{spelled}");
        let quoted = format!("for=\"{spelled}\"");
        let request = from(PROXY, "/", &[("Forwarded", &quoted)]);
        assert_eq!(client(ForwardedField::Forwarded, ours(), &request), some(address), "{quoted}");
    }
    // A proxy that is trusted by its IPv4 address is also trusted by the mapped address.
    assert_eq!(xff(ours(), "::ffff:10.0.0.1", &["9.9.9.9, ::ffff:10.0.0.2"]), some("9.9.9.9"));
    assert_eq!(xff(TrustedProxies::networks(["::ffff:10.0.0.0/104"]), PROXY, &["9.9.9.9"]), some("9.9.9.9"));
    assert_eq!(xff(TrustedProxies::networks(["10.0.0.1"]), PROXY, &["9.9.9.9, 10.0.0.2"]), some("10.0.0.2"));
}

#[test]
fn hops_count_from_the_right_and_fewer_entries_are_what_there_is() {
    let entries = "1.1.1.1, 2.2.2.2, 3.3.3.3";
    for (hops, address) in [(1, "3.3.3.3"), (2, "2.2.2.2"), (3, "1.1.1.1"), (4, "1.1.1.1"), (16, "1.1.1.1")] {
        assert_eq!(xff(TrustedProxies::hops(hops), PROXY, &[entries]), some(address));
    }
    assert_eq!(xff(TrustedProxies::hops(2), PROXY, &[]), some(PROXY));
    // The field is also read if the peer's address is unknown, as on a Unix socket.
    assert_eq!(xff(TrustedProxies::hops(1), "", &[entries]), some("3.3.3.3"));
    assert_eq!(xff(TrustedProxies::hops(1), "", &[]), None);
}

#[test]
fn lines_are_one_list_in_their_order() {
    assert_eq!(xff(ours(), PROXY, &["1.1.1.1", "9.9.9.9", "10.0.0.2"]), some("9.9.9.9"));
    assert_eq!(xff(TrustedProxies::hops(2), PROXY, &["1.1.1.1, 9.9.9.9", "10.0.0.2"]), some("9.9.9.9"));
    assert_eq!(xff(TrustedProxies::hops(1), PROXY, &["1.1.1.1", "9.9.9.9", ""]), some("9.9.9.9"));
}

#[test]
fn only_the_field_that_was_chosen_is_read() {
    let both = from(PROXY, "/", &[("X-Forwarded-For", "1.1.1.1"), ("Forwarded", "for=9.9.9.9")]);
    assert_eq!(client(XFF, ours(), &both), some("1.1.1.1"));
    assert_eq!(client(ForwardedField::Forwarded, ours(), &both), some("9.9.9.9"));
    let others = from(PROXY, "/", &[("X-Real-IP", "1.1.1.1"), ("CF-Connecting-IP", "1.1.1.1")]);
    assert_eq!(client(XFF, ours(), &others), some(PROXY));
}

#[test]
fn forwarded_is_read_by_its_own_rules() {
    let read =
        |line: &str| client(ForwardedField::Forwarded, ours(), &from(PROXY, "/", &[("forwarded", line)]));
    for line in [
        "for=9.9.9.9",
        "FOR=9.9.9.9;proto=https;by=10.0.0.1",
        "proto=https; for=\"9.9.9.9:80\" ;host=\"a,b;for=1.1.1.1\"",
        "for=1.1.1.1, for=9.9.9.9, for=10.0.0.2",
        "for=\"1.1.1.1, for=9.9.9.9;by=\"_x\", for=10.0.0.2",
        "for=\", for=9.9.9.9",
        "for=\"\\, for=9.9.9.9",
        "for=1.1.1.1;for=1.1.1.1, for=9.9.9.9",
        // Pairs may be empty.
        ";for=9.9.9.9",
        "proto=https;;for=9.9.9.9; ;",
    ] {
        assert_eq!(read(line), some("9.9.9.9"), "{line}");
    }
    assert_eq!(read("for=\"[2001:db8::9]:443\""), some("2001:db8::9"));
    for line in [
        "for=unknown",
        "for=_hidden",
        "for=\"_hidden:80\"",
        "proto=https",
        "for",
        "9.9.9.9",
        "for=9.9.9.9;for=9.9.9.9",
        "for=9.9.9.9;;for=9.9.9.9",
        ";",
    ] {
        assert_eq!(read(line), None, "{line}");
        assert_eq!(read(&format!("for=1.1.1.1, {line}")), None, "{line}");
    }
}

/// Makes a request from a peer, with lines of a field for a single address.
fn single(proxies: TrustedProxies, peer: &str, lines: &[&str]) -> Option<String> {
    let lines: Vec<(&str, &str)> = lines.iter().map(|line| ("CF-Connecting-IP", *line)).collect();
    client("cf-connecting-ip".parse().unwrap(), proxies, &from(peer, "/", &lines))
}

#[test]
fn a_field_with_one_address_names_the_client_if_its_sender_is_trusted() {
    for proxies in [ours(), TrustedProxies::hops(1), TrustedProxies::hops(16)] {
        let of = |lines: &[&str]| single(proxies.clone(), PROXY, lines);
        for (spelled, address) in [
            ("9.9.9.9", "9.9.9.9"),
            (" 9.9.9.9:80 ", "9.9.9.9"),
            ("::ffff:9.9.9.9", "9.9.9.9"),
            ("[2001:DB8::9]:443", "2001:db8::9"),
            // The client may also have a trusted address.
            ("10.0.0.7", "10.0.0.7"),
        ] {
            assert_eq!(of(&[spelled]), some(address), "{spelled}");
        }
        // Without the field, the client is the peer, as without an entry of a list.
        assert_eq!([of(&[]), of(&[""]), of(&[" "])], [some(PROXY), some(PROXY), some(PROXY)]);
        for lines in [&["unknown"][..], &["9.9.9.9, 8.8.8.8"], &["9.9.9.9", "8.8.8.8"], &["for=9.9.9.9"]] {
            assert_eq!(of(lines), None, "{lines:?}");
        }
        // The lists are ignored.
        let request = from(PROXY, "/", &[("X-Forwarded-For", "1.1.1.1"), ("Forwarded", "for=1.1.1.1")]);
        assert_eq!(client("x-real-ip".parse().unwrap(), proxies, &request), some(PROXY));
    }
    for lines in [&["1.1.1.1"][..], &["unknown"], &["1.1.1.1", "1.1.1.1"]] {
        assert_eq!(single(ours(), "9.9.9.9", lines), some("9.9.9.9"), "{lines:?}");
    }
    // Without a peer, nobody knows who has sent the field, unless every peer is trusted.
    assert_eq!(single(ours(), "", &["1.1.1.1"]), None);
    assert_eq!(single(TrustedProxies::hops(1), "", &["9.9.9.9"]), some("9.9.9.9"));
}

#[test]
fn the_clients_of_a_content_delivery_network_have_a_quota_each() {
    let site = site().hourly(KeyBy::forwarded("true-client-ip".parse().unwrap(), ours()));
    let send = |peer: &str, client: &str| site.status(from(peer, "/", &[("true-client-ip", client)]));
    assert_eq!([send(PROXY, "9.9.9.9"), send(PROXY, "8.8.8.8"), send(PROXY, "9.9.9.9")], [200, 200, 429]);
    // All addresses of an IPv6 network are one client.
    assert_eq!([send(PROXY, "2001:db8::1"), send("10.0.0.2", "2001:db8::2:0:0:1")], [200, 429]);
    // A client that is not behind the network cannot choose its address.
    assert_eq!([send("7.7.7.7", "6.6.6.6"), send("7.7.7.7", "5.5.5.5")], [200, 429]);
    assert_eq!(send(PROXY, "unknown"), 403);
}

#[test]
fn the_name_of_a_list_is_the_list_however_it_is_chosen() {
    let request = from(PROXY, "/", &[("X-Forwarded-For", "1.1.1.1, 9.9.9.9")]);
    let names = ["X-Forwarded-For".parse().unwrap(), http::HeaderName::from_static("x-forwarded-for")];
    for field in [ForwardedField::XForwardedFor].into_iter().chain(names.map(ForwardedField::Single)) {
        assert_eq!(client(field.clone(), ours(), &request), some("9.9.9.9"), "{field:?}");
    }
    assert_eq!("X-Forwarded-For".parse(), Ok(ForwardedField::XForwardedFor));
    assert_eq!("Forwarded".parse(), Ok(ForwardedField::Forwarded));
    assert_eq!(ForwardedField::Forwarded.to_string(), "forwarded");
}

#[test]
fn clients_behind_one_proxy_are_limited_each_and_can_not_choose_another_name() {
    let Running { clock: _, ref layer } = site().hourly(KeyBy::forwarded(XFF, ours()));
    let site = Running { clock: tollgate::ManualClock::new(), layer: layer.clone() };
    let send = |entries: &str| site.status(from(PROXY, "/", &[("x-forwarded-for", entries)]));
    assert_eq!([send("9.9.9.9"), send("8.8.8.8"), send("9.9.9.9")], [200, 200, 429]);
    for i in 0..50 {
        assert_eq!(send(&format!("1.1.1.{i}, 9.9.9.9")), 429);
    }
    // An IPv6 customer has one limit for the whole network.
    assert_eq!([send("2001:db8::1"), send("2001:db8::2:0:0:1")], [200, 429]);
    assert_eq!(send("unknown"), 403);
}

#[test]
fn the_key_of_a_forwarded_client_is_that_of_a_peer() {
    let request = from(PROXY, "/", &[("x-forwarded-for", "2001:db8::1:2:3:4")]);
    let key = KeyBy::forwarded(XFF, ours()).key("a", RequestHead::of(&request)).unwrap().unwrap();
    let network: std::net::IpAddr = "2001:db8::".parse().unwrap();
    assert_eq!(key, Key::new("a", [network]));
}
