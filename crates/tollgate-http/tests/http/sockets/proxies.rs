//! Tests clients behind proxies. A client counts under the address that the proxies saw, whatever
//! it writes into the headers.
//!
//! The server's peer is the last proxy, 127.0.0.1. The limiter stores exact keys, from which the
//! tests read which client was counted.

use crate::sockets::client::{Client, Version, connected};
use crate::sockets::run::{builder, layer, run};
use crate::sockets::server::{KINDS, Kind, Server, site};
use http::{Request, StatusCode};
use std::collections::BTreeSet;
use std::sync::Arc;
use tollgate::store::ExactKeys;
use tollgate::{Limiter, ManualClock, Quota};
use tollgate_http::{ForwardedField, Key, KeyBy, KeyPart, Limit, TrustedProxies, WhenNoKey};

pub(crate) type Counted = Arc<Limiter<Key, ExactKeys<Key>>>;

pub(crate) fn counted(quota: Quota) -> Counted {
    Arc::new(Limiter::builder(quota).exact_keys().clock(ManualClock::new()).build().unwrap())
}

/// Returns the addresses that have been counted so far.
pub(crate) fn addresses(limiter: &Counted) -> BTreeSet<String> {
    let address = |key: &Key| match key.parts() {
        [KeyPart::Address(address)] => address.to_string(),
        parts => panic!("{parts:?}"),
    };
    limiter.keys().map(|tracked| address(tracked.key())).collect()
}

/// The client, and the first of two proxies between the client and the server. The second proxy is
/// the server's peer.
const CLIENT: &str = "203.0.113.9";
const PROXY: &str = "10.1.2.3";

/// Entries that a client forges to look like another client, or like no client.
const SPOOFS: [&str; 20] = [
    "198.51.100.1",
    "198.51.100.1:443",
    "::ffff:198.51.100.1",
    "2001:db8::1",
    "[2001:db8::1]:443",
    "fe80::1%eth0",
    "127.0.0.1",
    "10.1.2.3",
    "10.9.9.9",
    "::1",
    "0.0.0.0",
    "unknown",
    "_hidden",
    "localhost",
    "",
    "\"",
    "for=198.51.100.1",
    "198.51.100.1;203.0.113.9",
    "%00",
    "1.2.3",
];

fn trusts() -> [TrustedProxies; 2] {
    [TrustedProxies::networks(["127.0.0.0/8", "10.0.0.0/8"]), TrustedProxies::hops(2)]
}

fn by_client(limiter: &Counted, field: &ForwardedField, proxies: TrustedProxies, no_key: WhenNoKey) -> Limit {
    Limit::new("per-client", Arc::clone(limiter))
        .by(KeyBy::forwarded(field.clone(), proxies))
        .when_no_key(no_key)
}

/// Trusts 127.0.0.1 only.
fn behind_the_proxy(limiter: &Counted) -> Limit {
    let proxies = TrustedProxies::networks(["127.0.0.1"]);
    by_client(limiter, &ForwardedField::XForwardedFor, proxies, WhenNoKey::Allow)
}

fn name(field: &ForwardedField) -> &'static str {
    if *field == ForwardedField::Forwarded { "forwarded" } else { "x-forwarded-for" }
}

/// Returns an entry of the header, as a proxy writes it.
fn entry(field: &ForwardedField, address: &str) -> String {
    match field {
        ForwardedField::Forwarded if address.contains(':') => format!("for=\"{address}\""),
        ForwardedField::Forwarded => format!("for={address}"),
        _ => address.to_owned(),
    }
}

/// Returns the entries that a client may forge for an address: well-formed ones, and the bare
/// address.
fn spoofs(field: &ForwardedField, address: &str) -> Vec<String> {
    match field {
        ForwardedField::Forwarded => vec![
            entry(field, address),
            format!("For=\"{address}\";proto=https"),
            format!("by={address};for={address};host=\"a,b\""),
            address.to_owned(),
        ],
        _ => vec![address.to_owned()],
    }
}

/// Sends each of `lines` as a line of its own.
async fn send(client: &mut Client, field: &ForwardedField, lines: &[String]) -> StatusCode {
    let request = lines.iter().fold(Request::get("/"), |it, line| it.header(name(field), line));
    client.ask(request).await.status
}

#[test]
fn a_spoofed_entry_in_any_position_changes_nothing() {
    run(async {
        for field in &[ForwardedField::XForwardedFor, ForwardedField::Forwarded] {
            for proxies in trusts() {
                let limiter = counted(Quota::per_hour(1));
                let limit = by_client(&limiter, field, proxies.clone(), WhenNoKey::Allow);
                let (_server, mut client) =
                    connected(Kind::Hyper, layer([limit]), site(), Version::One).await;
                let honest = format!("{}, {}", entry(field, CLIENT), entry(field, PROXY));
                assert_eq!(send(&mut client, field, std::slice::from_ref(&honest)).await, StatusCode::OK);
                let mut tried = 0;
                for spoof in SPOOFS.iter().flat_map(|spoof| spoofs(field, spoof)) {
                    // Up to two other entries precede or follow the forged entry.
                    for (others, position) in [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)] {
                        let mut entries = vec![entry(field, "192.0.2.77"); others];
                        entries.insert(position, spoof.clone());
                        let written = entries.join(", ");
                        // The proxies append to the client's line, share a new line, or each start
                        // a line.
                        let own = [entry(field, CLIENT), entry(field, PROXY)];
                        for lines in [
                            vec![format!("{written}, {honest}")],
                            vec![format!("{written},{}", honest.replace(' ', ""))],
                            vec![written.clone(), honest.clone()],
                            [entries, own.to_vec()].concat(),
                        ] {
                            let status = send(&mut client, field, &lines).await;
                            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{proxies:?} {lines:?}");
                            tried += 1;
                        }
                    }
                }
                assert!(tried >= 20 * 6 * 4);
                assert_eq!(addresses(&limiter), [CLIENT.to_owned()].into(), "{field:?} {proxies:?}");
            }
        }
    });
}

#[test]
fn proxies_may_write_ports_brackets_and_mapped_addresses() {
    run(async {
        for field in &[ForwardedField::XForwardedFor, ForwardedField::Forwarded] {
            for proxies in trusts() {
                let limiter = counted(Quota::per_hour(100));
                let limit = by_client(&limiter, field, proxies, WhenNoKey::Deny);
                let (_server, mut client) = connected(Kind::Axum, layer([limit]), site(), Version::Two).await;
                for written in [CLIENT, "203.0.113.9:51000", "::ffff:203.0.113.9", "[::FFFF:cb00:7109]:8080"]
                {
                    for proxy in [PROXY, "10.1.2.3:80", "::ffff:10.1.2.3", "[::ffff:a01:203]:80"] {
                        let line = format!("192.0.2.1, {}, {}", entry(field, written), entry(field, proxy));
                        assert_eq!(send(&mut client, field, &[line]).await, StatusCode::OK);
                    }
                }
                assert_eq!(addresses(&limiter), [CLIENT.to_owned()].into());
            }
        }
    });
}

#[test]
fn who_comes_past_the_trusted_networks_is_who_he_is() {
    run(async {
        let limiter = counted(Quota::per_hour(1));
        for kind in KINDS {
            let server = Server::start(kind, layer([behind_the_proxy(&limiter)]), site()).await;
            let from = if kind == Kind::Axum { "127.0.0.2" } else { "127.0.0.3" };
            let mut client = Client::connect_from(from, &server, Version::One).await;
            let first = client.ask(Request::get("/").header("x-forwarded-for", "198.51.100.1")).await;
            assert_eq!(first.status, StatusCode::OK);
            for spoof in SPOOFS {
                let reply = client.ask(Request::get("/").header("x-forwarded-for", spoof)).await;
                assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{spoof}");
            }
        }
        assert_eq!(addresses(&limiter), ["127.0.0.2".to_owned(), "127.0.0.3".to_owned()].into());
    });
}

#[test]
fn other_fields_are_not_believed() {
    run(async {
        let limiter = counted(Quota::per_hour(1));
        let (_server, mut client) =
            connected(Kind::Axum, layer([behind_the_proxy(&limiter)]), site(), Version::One).await;
        client.ask(Request::get("/").header("x-forwarded-for", CLIENT)).await;
        for (name, value) in [
            ("forwarded", "for=198.51.100.1"),
            ("x-real-ip", "198.51.100.1"),
            ("true-client-ip", "198.51.100.1"),
            ("cf-connecting-ip", "198.51.100.1"),
            ("x-client-ip", "198.51.100.1"),
            ("x-forwarded", "198.51.100.1"),
            ("x-cluster-client-ip", "198.51.100.1"),
        ] {
            let request = Request::get("/").header("x-forwarded-for", CLIENT).header(name, value);
            assert_eq!(client.ask(request).await.status, StatusCode::TOO_MANY_REQUESTS, "{name}");
        }
        assert_eq!(addresses(&limiter), [CLIENT.to_owned()].into());
        // Without any entry of a proxy, only the proxy is known.
        client.ask(Request::get("/").header("forwarded", "for=198.51.100.1")).await;
        assert_eq!(addresses(&limiter), [CLIENT.to_owned(), "127.0.0.1".to_owned()].into());
    });
}

#[test]
fn an_entry_that_a_proxy_wrote_and_nobody_can_read_leaves_no_key() {
    run(async {
        for field in &[ForwardedField::XForwardedFor, ForwardedField::Forwarded] {
            for proxies in trusts() {
                let limiter = counted(Quota::per_hour(1));
                let limit = by_client(&limiter, field, proxies, WhenNoKey::Deny);
                let (_server, mut client) = connected(Kind::Axum, layer([limit]), site(), Version::One).await;
                for garbage in ["unknown", "_hidden", "1.2.3", "10.0.0.256", "2001:db8::1::2", "a b"] {
                    let line = format!("198.51.100.1, {}, {}", entry(field, garbage), entry(field, PROXY));
                    assert_eq!(send(&mut client, field, &[line]).await, StatusCode::FORBIDDEN);
                }
                assert!(addresses(&limiter).is_empty());
            }
        }
    });
}

#[test]
fn a_zone_names_no_other_client() {
    run(async {
        for field in &[ForwardedField::XForwardedFor, ForwardedField::Forwarded] {
            let limiter = counted(Quota::per_hour(100));
            let layer = builder()
                .limit(by_client(&limiter, field, TrustedProxies::hops(1), WhenNoKey::Deny))
                .build()
                .unwrap();
            let (_server, mut client) = connected(Kind::Hyper, layer, site(), Version::One).await;
            for written in ["fe80::1", "fe80::1%eth0", "fe80::1%25eth1", "[fe80::1%2]", "[fe80::1%lo]:443"] {
                let line = entry(field, written);
                assert_eq!(send(&mut client, field, &[line]).await, StatusCode::OK, "{written}");
            }
            assert_eq!(addresses(&limiter), ["fe80::".to_owned()].into());
        }
    });
}
