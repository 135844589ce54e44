//! Tests that no spelling of a request evades a limit of the proxy.

use super::running::Proxy;
use super::upstream::{Upstream, hello};
use super::wire::send;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use tollgate_testing::spellings::{KNOWN, SPELLED, Sent};

async fn status(to: SocketAddr, sent: &Sent) -> u16 {
    let mut request = format!("{} {} HTTP/1.1\r\nConnection: close\r\n", sent.method, sent.target);
    for host in sent.hosts() {
        request += &format!("Host: {host}\r\n");
    }
    for (name, value) in sent.others() {
        request += &format!("{name}: {value}\r\n");
    }
    send(to, &format!("{request}X-Forwarded-For: {}\r\n\r\n", sent.client)).await.status
}

#[tokio::test]
async fn no_spelling_of_a_request_evades_a_limit() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("spellings_known");
    fs::write(&file, KNOWN).unwrap();
    let upstream = Upstream::start(hello).await;
    let mut evading = Vec::new();
    for spelled in SPELLED {
        let text = format!("a=1/h {}", spelled.limit.replace("KNOWN", file.to_str().unwrap()));
        let proxy = Proxy::start(upstream.address, &["--limit", &text, "--trust-hops", "1"]);
        assert_eq!(status(proxy.address, &spelled.plain).await, 200, "{text}");
        for other in spelled.others {
            let status = status(proxy.address, other).await;
            if !(400..500).contains(&status) {
                evading.push(format!("{text}: {other:?}: {status}"));
            }
        }
    }
    assert!(evading.is_empty(), "{}:\n{}", evading.len(), evading.join("\n"));
}

#[tokio::test]
async fn a_registered_method_in_another_case_is_refused() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &[]);
    for (method, expected) in [
        ("POST", 200),
        ("post", 400),
        ("Get", 400),
        ("PURGE", 200),
        ("purge", 200),
        ("MKCOL", 200),
        ("mkcol", 400),
    ] {
        let sent = Sent { method, target: "/", fields: &[], client: "192.0.2.1" };
        assert_eq!(status(proxy.address, &sent).await, expected, "{method}");
    }
}
