//! Tests that bodies are streamed in both directions, and never buffered as a whole.

use super::http2::connect;
use super::running::{Proxy, within};
use super::upstream::{Body, Sent, Upstream, full};
use super::wire::{asking, get, metric, metric_is, read_until};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

const CHUNK: usize = 64 * 1024;
const LARGE: usize = 256 * 1024 * 1024;
/// How much memory the proxy may use, including its buffers. This is much less than the size of the
/// bodies.
const MEMORY: u64 = 48 * 1024 * 1024;

fn assert_small(proxy: &Proxy) {
    match proxy.peak_memory() {
        Some(peak) => assert!(peak < MEMORY, "{} MiB", peak >> 20),
        None if cfg!(target_os = "linux") => panic!("the system does not tell"),
        None => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_large_streams_through_a_small_proxy() {
    let (upstream, mut handed) = Upstream::handing_over().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=10/s by ip"]);
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let asked = tokio::spawn(client.get(format!("http://{}/", proxy.address).parse().unwrap()));
    let sender = within(handed.recv()).await.unwrap();
    sender.send(Frame::data(Bytes::from_static(b"first"))).await.unwrap();
    let mut body = within(asked).await.unwrap().unwrap().into_body();
    // The first piece must arrive before the upstream has sent the others.
    assert_eq!(within(body.frame()).await.unwrap().unwrap().into_data().unwrap(), "first");
    let sending = tokio::spawn(async move {
        let chunk = Bytes::from(vec![7; CHUNK]);
        for _ in 0..LARGE / CHUNK {
            sender.send(Frame::data(chunk.clone())).await.unwrap();
        }
    });
    let mut read = 0;
    while let Some(frame) = within(body.frame()).await {
        read += frame.unwrap().into_data().unwrap().len();
    }
    assert_eq!(read, LARGE);
    sending.await.unwrap();
    assert_small(&proxy);
    metric_is(proxy.metrics, "tollgate_response_body_bytes_total", (LARGE + 5) as f64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_large_streams_through_a_small_proxy() {
    let (progress, mut heard) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |request: Request<Incoming>| {
        let progress = progress.clone();
        async move {
            let mut body = request.into_body();
            let mut read = 0;
            while let Some(frame) = body.frame().await {
                read += frame.unwrap().into_data().unwrap().len();
                progress.send(read).unwrap();
            }
            Response::new(full(read.to_string()))
        }
    })
    .await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=10/s by ip"]);
    let client = Client::builder(TokioExecutor::new()).build_http::<Sent>();
    let (sender, body) = Sent::new(1);
    let request = Request::post(format!("http://{}/", proxy.address)).body(body).unwrap();
    let asked = tokio::spawn(client.request(request));
    sender.send(Frame::data(Bytes::from_static(b"first"))).await.unwrap();
    assert_eq!(within(heard.recv()).await, Some(5));
    let chunk = Bytes::from(vec![7; CHUNK]);
    for _ in 0..LARGE / CHUNK {
        within(sender.send(Frame::data(chunk.clone()))).await.unwrap();
    }
    drop(sender);
    let reply = within(asked).await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(reply, (LARGE + 5).to_string());
    assert_small(&proxy);
    assert_eq!(metric(proxy.metrics, "tollgate_request_body_bytes_total").await, (LARGE + 5) as f64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_the_upstream_back_and_nobody_else() {
    unread_responses_hold_back_nobody_else(1, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read_hold_back_nobody_else_on_one_connection_to_the_upstream() {
    unread_responses_hold_back_nobody_else(4, &["--upstream-http2"]).await;
}

async fn unread_responses_hold_back_nobody_else(clients: usize, args: &[&str]) {
    let (upstream, mut handed) = Upstream::handing_over().await;
    let proxy = Proxy::start(upstream.address, args);
    let mut slow = Vec::new();
    let mut sending = JoinSet::new();
    let sent = Arc::new(AtomicU64::new(0));
    for _ in 0..clients {
        slow.push(asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await);
        let sender = within(handed.recv()).await.unwrap();
        let counter = Arc::clone(&sent);
        sending.spawn(async move {
            let chunk = Bytes::from(vec![7; CHUNK]);
            while sender.send(Frame::data(chunk.clone())).await.is_ok() {
                counter.fetch_add(CHUNK as u64, SeqCst);
            }
        });
    }
    // The upstream must stop sending once all buffers between it and the slow clients are full.
    // Socket buffers may hold a few megabytes. Other clients must be served while the slow clients
    // wait.
    let mut last = u64::MAX;
    let mut stood = 0;
    while stood < 20 {
        let now = sent.load(SeqCst);
        stood = if now == last { stood + 1 } else { 0 };
        last = now;
        assert!(now < LARGE as u64, "nothing holds the upstream back");
        get(proxy.metrics, "/metrics", "").await;
        let asking = tokio::spawn(get_from(proxy.address));
        let quick = within(handed.recv()).await.unwrap();
        quick.send(Frame::data(Bytes::from_static(b"quick"))).await.unwrap();
        drop(quick);
        assert!(within(asking).await.unwrap().contains("quick"));
    }
    assert_small(&proxy);
    // When the slow clients disconnect, the proxy must release the upstream.
    drop(slow);
    within(sending.join_all()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_the_upstream_does_not_read_holds_back_no_other_on_its_connection() {
    let upstream = Upstream::start(async |request: Request<Incoming>| {
        if request.uri().path() == "/unread" {
            pending::<()>().await;
        }
        Response::new(full(request.into_body().collect().await.unwrap().to_bytes()))
    })
    .await;
    let proxy = Proxy::start(upstream.address, &[]);
    let mut client = connect::<Sent>(proxy.address).await;
    let mut upload = |path| {
        let (sender, body) = Sent::new(1);
        let request = Request::post(format!("http://a{path}")).body(body).unwrap();
        (sender, tokio::spawn(client.send_request(request)))
    };
    let (sender, unread) = upload("/unread");
    // The upload stands still once all buffers between the client and the upstream are full.
    let chunk = Bytes::from(vec![7; CHUNK]);
    while timeout(Duration::from_millis(500), sender.send(Frame::data(chunk.clone()))).await.is_ok() {}
    let (sender, asked) = upload("/");
    sender.send(Frame::data(Bytes::from_static(b"other"))).await.unwrap();
    drop(sender);
    let body = within(asked).await.unwrap().unwrap().into_body();
    assert_eq!(within(body.collect()).await.unwrap().to_bytes(), "other");
    assert_small(&proxy);
    unread.abort();
}

async fn get_from(address: std::net::SocketAddr) -> String {
    get(address, "/", "").await.body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_in_the_middle_of_a_response_lets_the_upstream_go() {
    let (upstream, mut handed) = Upstream::handing_over().await;
    let proxy = Proxy::start(upstream.address, &[]);
    let mut client = asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let sender = within(handed.recv()).await.unwrap();
    sender.send(Frame::data(Bytes::from_static(b"first"))).await.unwrap();
    read_until(&mut client, "first").await;
    drop(client);
    within(async { while sender.send(Frame::data(Bytes::from_static(b"more"))).await.is_ok() {} }).await;
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_in_the_middle_of_an_upload_is_no_complete_request() {
    let (tell, mut told) = mpsc::unbounded_channel();
    let upstream = Upstream::start(move |request: Request<Incoming>| {
        let tell = tell.clone();
        async move {
            let mut body = request.into_body();
            // The upstream first reports whether a piece has arrived, and then whether the rest has
            // arrived.
            tell.send(body.frame().await.is_some_and(|frame| frame.is_ok())).unwrap();
            tell.send(body.collect().await.is_ok()).unwrap();
            Response::new(full("")) as Response<Body>
        }
    })
    .await;
    let proxy = Proxy::start(upstream.address, &[]);
    for framing in ["Content-Length: 100", "Transfer-Encoding: chunked"] {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n5\r\nhello\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(within(told.recv()).await, Some(true), "{framing}");
        drop(client);
        assert_eq!(within(told.recv()).await, Some(false), "{framing}");
    }
}
