//! Tests that the proxy counts and logs requests that are not valid HTTP, and that it can limit
//! them.

use super::config::file;
use super::http2::connect;
use super::running::{Proxy, until, within};
use super::upstream::{Upstream, hello};
use super::wire::{get, metric, metric_is, send};
use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::body::Incoming;
use std::fs;
use std::future::pending;
use std::net::SocketAddr;
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends bytes, and returns everything received until the connection is closed.
pub(crate) async fn raw(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = within(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn they_are_in_the_metrics_and_the_access_log() {
    let upstream = Upstream::start(hello).await;
    let log = file("bad_requests.log", "");
    let mut proxy = Proxy::start(upstream.address, &["--access-log", &log]);
    let long_uri = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(70_000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(200));
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(40_000));
    let mut http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    // A HEADERS frame on stream 0 is a connection error.
    http2.extend(b"\0\0\x01\x01\x04\0\0\0\0\x82");
    for (kind, bytes, status) in [
        ("malformed", &b"hello\r\n\r\n"[..], "400"),
        ("malformed", b"GET / HTTP/1.1\r\n: a\r\n\r\n", "400"),
        ("head-too-large", large.as_bytes(), "431"),
        ("head-too-large", many.as_bytes(), "431"),
        ("http2", &http2, "400"),
    ] {
        let name = format!("tollgate_bad_requests_total{{kind=\"{kind}\"}}");
        let before = metric(proxy.metrics, &name).await;
        let lines = fs::read_to_string(&log).unwrap().lines().count();
        let answer = raw(proxy.address, bytes).await;
        if kind != "http2" {
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{kind}: {answer}");
        }
        metric_is(proxy.metrics, &name, before + 1.0).await;
        until("it is logged", || fs::read_to_string(&log).unwrap().lines().count() == lines + 1);
        let text = fs::read_to_string(&log).unwrap();
        let line = text.lines().last().unwrap();
        assert!(line.starts_with("127.0.0.1 - - [") && line.contains(&format!("\" {status} -")), "{line}");
    }
    // The status is 414 only if the whole head is below the maximum size. Otherwise, it is 431.
    let uri = raw(proxy.address, long_uri.as_bytes()).await;
    assert!(uri.starts_with("HTTP/1.1 431 ") || uri.starts_with("HTTP/1.1 414 "), "{uri}");
    // Neither valid requests nor clients that disconnect are counted.
    drop(TcpStream::connect(proxy.address).await.unwrap());
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    assert_eq!(metric(proxy.metrics, "tollgate_bad_requests_total{kind=\"malformed\"}").await, 2.0);
    proxy.signal("TERM");
    assert!(proxy.ended().success());
    // The log can be replayed unchanged.
    let replay = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["replay", &log, "--strict", "--limit", "1/h"])
        .output()
        .unwrap();
    assert!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
}

#[tokio::test]
async fn a_target_that_is_too_long_is_a_kind_of_its_own() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--max-header-size", "200000"]);
    let request = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(70_000));
    assert_eq!(send(proxy.address, &request).await.status, 414);
    metric_is(proxy.metrics, "tollgate_bad_requests_total{kind=\"uri-too-long\"}", 1.0).await;
}

#[tokio::test]
async fn an_address_that_has_sent_too_many_is_refused_at_the_door() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--bad-request-limit", "2/h"]);
    let large = format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(40_000));
    assert!(raw(proxy.address, b"hello\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    // A head that is too large also counts.
    assert!(raw(proxy.address, large.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    metric_is(proxy.metrics, "tollgate_bad_requests_total{kind=\"head-too-large\"}", 1.0).await;
    assert_eq!(raw(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await, "");
    metric_is(proxy.metrics, "tollgate_connections_blocked_total", 1.0).await;
    // The metrics address has no limit.
    assert_eq!(get(proxy.metrics, "/live", "").await.status, 200);
}

#[tokio::test]
async fn a_trusted_proxy_is_never_refused() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--bad-request-limit", "1/h", "--trust", "127.0.0.0/8"]);
    for _ in 0..3 {
        assert!(raw(proxy.address, b"hello\r\n\r\n").await.starts_with("HTTP/1.1 400 "));
    }
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
}

#[tokio::test]
async fn an_open_connection_of_an_address_that_has_sent_too_many_ends() {
    let upstream = Upstream::start(async |request: Request<Incoming>| match request.uri().path() {
        "/waits" => pending().await,
        _ => hello(request).await,
    })
    .await;
    let limit = ["--bad-request-limit", "2/h"];
    for (args, ends) in [(&limit[..], true), (&[&limit[..], &["--trust", "127.0.0.0/8"]].concat(), false)] {
        let proxy = Proxy::start(upstream.address, args);
        let mut client = connect::<Empty<Bytes>>(proxy.address).await;
        let request = |path: &str, fields: usize| {
            let request = Request::get(format!("http://a{path}"));
            let request = (0..fields).fold(request, |request, _| request.header("x-a", "1"));
            request.body(Empty::new()).unwrap()
        };
        // This request never has a response, and must not keep the connection open.
        let waits = tokio::spawn(client.send_request(request("/waits", 0)));
        metric_is(proxy.metrics, "tollgate_requests_in_flight", 1.0).await;
        let mut ask = async |fields: usize| {
            let response = within(client.send_request(request("/", fields))).await;
            response.map(|response| response.status().as_u16())
        };
        for (fields, status) in [(101, 431), (0, 200), (101, 431)] {
            assert_eq!(ask(fields).await.unwrap(), status, "{fields}");
        }
        if ends {
            metric_is(proxy.metrics, "tollgate_open_connections", 0.0).await;
            assert!(within(waits).await.unwrap().is_err());
            assert!(ask(0).await.is_err());
            assert_eq!(raw(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await, "");
        } else {
            assert_eq!(ask(101).await.unwrap(), 431);
            assert_eq!(ask(0).await.unwrap(), 200);
            waits.abort();
        }
    }
}
