//! Tests failures of the upstream and of clients, and how the proxy responds to them.

use super::running::{Proxy, until, within};
use super::upstream::{Upstream, hello, nobody};
use super::wire::{Reply, asking, get, metric, metric_is, read_until};
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

#[tokio::test]
async fn an_upstream_that_is_down_is_a_502_until_it_is_back() {
    let address = nobody();
    let proxy = Proxy::start(address, &["--limit", "per-ip=1000/s by ip"]);
    for _ in 0..2 {
        let reply = get(proxy.address, "/", "").await;
        assert_eq!(reply.status, 502);
        assert_eq!(reply.field("content-type"), Some("application/problem+json"));
        let problem = reply.json();
        assert_eq!((&problem["status"], &problem["title"]), (&502.into(), &"Bad Gateway".into()));
        // The response must not reveal the upstream's address.
        assert!(!reply.body.contains(&address.port().to_string()), "{reply:?}");
    }
    assert_eq!(metric(proxy.metrics, "tollgate_upstream_errors_total{kind=\"connect\"}").await, 2.0);
    // The upstream closes its connection after each response, so it is unreachable as soon as it is
    // dropped.
    let closing = async |request| {
        let mut response = hello(request).await;
        response.headers_mut().insert("connection", "close".parse().unwrap());
        response
    };
    let upstream = Upstream::on(address, closing).await;
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    drop(upstream);
    until("it is told", || proxy.said().contains("answers again"));
    // The failure is reported at most once a minute, not once per request or per change.
    assert_eq!(get(proxy.address, "/", "").await.status, 502);
    let upstream = Upstream::on(address, closing).await;
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    drop(upstream);
    assert_eq!(get(proxy.address, "/", "").await.status, 502);
    let said = proxy.said();
    assert_eq!(said.matches("can't be reached").count(), 1, "{said}");
    assert_eq!(said.matches("answers again").count(), 1, "{said}");
}

#[tokio::test]
async fn an_upstream_that_hangs_up_before_it_answers_is_a_502() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap(), &[]);
    tokio::spawn(async move {
        let answers = ["", "nonsense\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n"];
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_until(&mut stream, "\r\n\r\n").await;
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    for _ in 0..3 {
        assert_eq!(get(proxy.address, "/", "").await.status, 502);
    }
    assert_eq!(metric(proxy.metrics, "tollgate_upstream_errors_total{kind=\"broken\"}").await, 3.0);
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_in_time_is_a_504_and_is_left_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // The timeout is long enough for the request to arrive, even on a busy machine.
    let proxy = Proxy::start(listener.local_addr().unwrap(), &["--request-timeout", "2s"]);
    let silent = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_until(&mut stream, "\r\n\r\n").await;
        // The proxy gives up.
        assert!(within(stream.read_u8()).await.is_err());
    };
    let (reply, ()) = tokio::join!(get(proxy.address, "/", ""), silent);
    assert_eq!((reply.status, &reply.json()["title"]), (504, &"Gateway Timeout".into()));
    assert_eq!(metric(proxy.metrics, "tollgate_upstream_errors_total{kind=\"timeout\"}").await, 1.0);
}

/// Returns an address to which no connection can be made, because the listener's queue is full and
/// nothing accepts from it.
async fn full_queue() -> (TcpListener, Vec<TcpStream>, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    let short = Duration::from_millis(300);
    while let Ok(stream) = tokio::time::timeout(short, TcpStream::connect(address)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 1000, "the queue has no end");
    }
    (listener, waiting, address)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_upstream_that_takes_no_connection_in_time_is_a_504() {
    let (_listener, _waiting, address) = full_queue().await;
    let proxy = Proxy::start(address, &["--connect-timeout", "100ms"]);
    let reply = get(proxy.address, "/", "").await;
    assert_eq!(reply.status, 504, "{reply:?}");
    assert_eq!(metric(proxy.metrics, "tollgate_upstream_errors_total{kind=\"connect-timeout\"}").await, 1.0);
}

#[tokio::test]
async fn a_client_that_stops_in_the_middle_of_its_request_is_told_that_it_was_too_slow() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--request-timeout", "2s"]);
    let mut stream =
        asking(proxy.address, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello").await;
    let mut bytes = Vec::new();
    within(stream.read_to_end(&mut bytes)).await.unwrap();
    assert_eq!(Reply::parse(&bytes).status, 408);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_along() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap(), &[]);
    let client = asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (mut server, _) = within(listener.accept()).await.unwrap();
    read_until(&mut server, "\r\n\r\n").await;
    drop(client);
    assert!(within(server.read_u8()).await.is_err());
    metric_is(proxy.metrics, "tollgate_requests_total{status=\"none\"}", 1.0).await;
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 0.0).await;
}

#[tokio::test]
async fn an_upstream_that_never_answers_one_client_does_not_keep_another_waiting() {
    let upstream = Upstream::start(async |request| match request.uri().path() {
        "/never" => pending().await,
        _ => hello(request).await,
    })
    .await;
    let proxy = Proxy::start(upstream.address, &[]);
    let mut stuck = Vec::new();
    for _ in 0..50 {
        let stream = asking(proxy.address, b"GET /never HTTP/1.1\r\nHost: a\r\n\r\n").await;
        stuck.push(stream);
    }
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 50.0).await;
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    drop(stuck);
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 0.0).await;
}

#[tokio::test]
async fn a_connection_too_many_waits_until_another_ends() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--max-connections", "1"]);
    let mut first = asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    read_until(&mut first, "hello").await;
    let address = proxy.address;
    let mut second = tokio::spawn(async move { get(address, "/", "").await });
    // The kernel has accepted the connection, but the proxy has not.
    let short = tokio::time::timeout(Duration::from_millis(300), &mut second).await;
    assert!(short.is_err(), "{short:?}");
    assert_eq!(metric(proxy.metrics, "tollgate_open_connections").await, 1.0);
    drop(first);
    assert_eq!(within(second).await.unwrap().status, 200);
}
