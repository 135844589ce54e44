//! Tests that each customer is counted as a single client. An IPv6 address is cut to a prefix, an
//! IPv4-mapped address counts as IPv4, and each IPv4 address is one client.

use crate::sockets::client::{Client, Version, connected};
use crate::sockets::proxies::{Counted, addresses, counted};
use crate::sockets::run::{layer, run};
use crate::sockets::server::{KINDS, Kind, Server, site};
use http::{Request, StatusCode};
use std::net::SocketAddr;
use std::sync::Arc;
use tollgate::Quota;
use tollgate_http::{ForwardedField, KeyBy, Limit, TrustedProxies, WhenNoKey};

/// Returns a per-client limit for a server whose peer is a proxy.
fn behind_a_proxy(limiter: &Counted) -> KeyedBy {
    let proxies = TrustedProxies::networks(["127.0.0.1"]);
    KeyedBy { limiter: Arc::clone(limiter), by: KeyBy::forwarded(ForwardedField::XForwardedFor, proxies) }
}

struct KeyedBy {
    limiter: Counted,
    by: KeyBy,
}

impl KeyedBy {
    fn prefix(self, bits: u8) -> Self {
        Self { by: self.by.ipv6_prefix(bits), ..self }
    }

    fn limit(self) -> Limit {
        Limit::new("per-client", self.limiter).by(self.by).when_no_key(WhenNoKey::Deny)
    }
}

async fn ask(client: &mut Client, address: &str) -> StatusCode {
    client.ask(Request::get("/").header("x-forwarded-for", address)).await.status
}

#[test]
fn who_rotates_through_his_64_bits_is_one_client_and_his_neighbours_are_others() {
    run(async {
        for kind in KINDS {
            let limiter = counted(Quota::per_hour(2));
            let (_server, mut client) =
                connected(kind, layer([behind_a_proxy(&limiter).limit()]), site(), Version::Two).await;
            let mut admitted = 0;
            for number in 0..200_u32 {
                let address = format!("2001:db8:7:1:{:x}:{:x}::{:x}", number * 327, number, number + 1);
                admitted += u32::from(ask(&mut client, &address).await == StatusCode::OK);
            }
            assert_eq!(admitted, 2);
            assert_eq!(addresses(&limiter), ["2001:db8:7:1::".to_owned()].into());
            for neighbour in 2..50 {
                let address = format!("2001:db8:7:{neighbour:x}::1");
                assert_eq!(ask(&mut client, &address).await, StatusCode::OK, "{address}");
            }
            assert_eq!(addresses(&limiter).len(), 49);
        }
    });
}

#[test]
fn the_prefix_can_be_set() {
    run(async {
        for (bits, clients) in [(48, 1), (56, 2), (60, 3), (64, 4), (128, 5)] {
            let limiter = counted(Quota::per_hour(10));
            let limit = behind_a_proxy(&limiter).prefix(bits).limit();
            let (_server, mut client) = connected(Kind::Axum, layer([limit]), site(), Version::One).await;
            for address in [
                "2001:db8:0:1::1",
                "2001:db8:0:1::2",
                "2001:db8:0:2::1",
                "2001:db8:0:11::1",
                "2001:db8:0:100::1",
            ] {
                assert_eq!(ask(&mut client, address).await, StatusCode::OK);
            }
            assert_eq!(addresses(&limiter).len(), clients, "/{bits}: {:?}", addresses(&limiter));
        }
    });
}

#[test]
fn a_mapped_address_is_the_ipv4_client_in_every_spelling() {
    run(async {
        let limiter = counted(Quota::per_hour(100));
        let (_server, mut client) =
            connected(Kind::Axum, layer([behind_a_proxy(&limiter).limit()]), site(), Version::One).await;
        for spelled in [
            "1.2.3.4",
            "1.2.3.4:443",
            "::ffff:1.2.3.4",
            "::FFFF:1.2.3.4",
            "::ffff:102:304",
            "::FFFF:0102:0304",
            "0:0:0:0:0:ffff:1.2.3.4",
            "0:0:0:0:0:FFFF:102:304",
            "0000:0000:0000:0000:0000:ffff:0102:0304",
            "0::ffff:1.2.3.4",
            "[::ffff:1.2.3.4]",
            "[::ffff:1.2.3.4]:443",
            "[::FFFF:102:304]:65535",
            "[0:0:0:0:0:ffff:1.2.3.4]:1",
            "::ffff:1.2.3.4%eth0",
            "[::ffff:102:304%25eth0]:443",
        ] {
            assert_eq!(ask(&mut client, spelled).await, StatusCode::OK, "{spelled}");
            assert_eq!(addresses(&limiter), ["1.2.3.4".to_owned()].into(), "{spelled}");
        }
    });
}

#[test]
fn mapped_addresses_are_not_one_client_whatever_the_ipv6_prefix_is() {
    run(async {
        for bits in [1, 48, 64, 96, 128] {
            let limiter = counted(Quota::per_hour(1));
            let limit = behind_a_proxy(&limiter).prefix(bits).limit();
            let (_server, mut client) = connected(Kind::Hyper, layer([limit]), site(), Version::One).await;
            for number in 0..50 {
                let address = format!("::ffff:198.51.100.{number}");
                assert_eq!(ask(&mut client, &address).await, StatusCode::OK, "/{bits} {address}");
                assert_eq!(ask(&mut client, &address).await, StatusCode::TOO_MANY_REQUESTS);
            }
            assert_eq!(addresses(&limiter).len(), 50);
        }
    });
}

#[test]
fn peers_of_a_socket_for_both_families_are_their_ipv4_addresses() {
    run(async {
        for kind in KINDS {
            let limiter = counted(Quota::per_hour(2));
            let limit = || {
                Limit::new("per-address", Arc::clone(&limiter)).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny)
            };
            // One layer serves an IPv4 socket and an IPv6 socket. The IPv6 socket also accepts IPv4
            // connections, and reports their peers as mapped addresses.
            let layer = layer([limit()]);
            let plain = Server::start(kind, layer.clone(), site()).await;
            let mapped = "[::ffff:127.0.0.1]:0".parse().unwrap();
            let mapped = Server::listen(mapped, kind, layer, site()).await;
            assert!(mapped.address.is_ipv6());
            let port = mapped.address.port();
            let ask = async |server: SocketAddr, from: &str| {
                let from = SocketAddr::new(from.parse().unwrap(), 0);
                Client::to(server, Some(from), Version::One).await.get("/").await.status
            };
            let through_mapped = SocketAddr::from(([127, 0, 0, 1], port));
            for from in ["127.0.0.1", "127.0.0.2"] {
                assert_eq!(ask(through_mapped, from).await, StatusCode::OK);
                assert_eq!(ask(plain.address, from).await, StatusCode::OK);
                assert_eq!(ask(through_mapped, from).await, StatusCode::TOO_MANY_REQUESTS);
                assert_eq!(ask(plain.address, from).await, StatusCode::TOO_MANY_REQUESTS);
            }
            assert_eq!(addresses(&limiter), ["127.0.0.1".to_owned(), "127.0.0.2".to_owned()].into());
        }
    });
}

#[test]
fn a_peer_of_ipv6_is_its_prefix() {
    run(async {
        let Ok(_) = std::net::TcpListener::bind("[::1]:0") else {
            return eprintln!("NOT DONE: this machine has no IPv6");
        };
        let limiter = counted(Quota::per_hour(1));
        let limit =
            Limit::new("per-address", Arc::clone(&limiter)).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny);
        let server = Server::listen("[::1]:0".parse().unwrap(), Kind::Axum, layer([limit]), site()).await;
        let mut client = Client::connect(&server, Version::One).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        assert_eq!(client.get("/").await.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(addresses(&limiter), ["::".to_owned()].into());
    });
}
