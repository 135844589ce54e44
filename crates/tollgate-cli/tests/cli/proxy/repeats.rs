//! Tests upstream connections that end at an unfortunate moment. The proxy must repeat some
//! requests, and must not lose an early response.

use super::running::{Proxy, until, within};
use super::wire::{Reply, asking, get, metric, metric_is, read_until, send};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// An upstream that answers the first request on each connection with the request's method and
/// body, and closes the connection at the second request. The upstream ends when this value is
/// dropped.
struct Dropping {
    address: SocketAddr,
    /// The number of answered requests.
    answered: Arc<AtomicUsize>,
    /// The number of requests whose heads have arrived, including those whose connection was then
    /// closed.
    begun: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
    accepting: AbortHandle,
}

/// When a [`Dropping`] upstream closes a connection, and which bytes it sends first.
#[derive(Clone, Copy)]
enum Drops {
    AfterHead(&'static str),
    AfterBody,
}

impl Dropping {
    async fn start(drops: Drops) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts: [Arc<AtomicUsize>; 3] = Default::default();
        let [answered, begun, dropped] = counts.clone();
        let accepting = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let [answered, begun, dropped] = counts.clone();
                tokio::spawn(async move {
                    let Some((method, length)) = head(&mut stream).await else { return };
                    begun.fetch_add(1, SeqCst);
                    let body = body(&mut stream, length).await;
                    answered.fetch_add(1, SeqCst);
                    let text = format!("{method} {body}");
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    let Some((_, length)) = head(&mut stream).await else { return };
                    begun.fetch_add(1, SeqCst);
                    dropped.fetch_add(1, SeqCst);
                    match drops {
                        Drops::AfterHead(last) => stream.write_all(last.as_bytes()).await.unwrap(),
                        Drops::AfterBody => drop(self::body(&mut stream, length).await),
                    }
                });
            }
        });
        Self { address, answered, begun, dropped, accepting: accepting.abort_handle() }
    }

    fn dropped(&self) -> usize {
        self.dropped.load(SeqCst)
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Reads a head. Returns the method and the body's length, or `None` if the connection has ended.
async fn head(stream: &mut TcpStream) -> Option<(String, usize)> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8(bytes).unwrap();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
    let method = text.split(' ').next().unwrap().to_owned();
    Some((method, length.map_or(0, |length| length.parse().unwrap())))
}

async fn body(stream: &mut TcpStream, length: usize) -> String {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

fn request(method: &str, length: usize) -> String {
    format!("{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")
}

#[tokio::test]
async fn a_kept_connection_that_ends_costs_no_idempotent_request() {
    let upstream = Dropping::start(Drops::AfterHead("")).await;
    let log = super::config::file("repeats.log", "");
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1000/h by ip", "--access-log", &log]);
    let mut sent = 0;
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        // The proxy decides which requests use an existing connection. Most of them do.
        let before = upstream.dropped();
        while upstream.dropped() < before + 5 {
            let reply = send(proxy.address, &request(method, 0)).await;
            assert_eq!((reply.status, reply.body.as_str()), (200, format!("{method} ").as_str()));
            sent += 1;
            assert!(sent < 1000, "no connection is kept");
        }
    }
    assert_eq!(upstream.answered.load(SeqCst), sent);
    // The limit, the metrics and the log must count a repeated request only once.
    let reply = get(proxy.address, "/", "").await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.field("ratelimit").unwrap().contains(&format!("r={};", 1000 - sent - 1)), "{reply:?}");
    let dropped = upstream.dropped() as f64;
    assert_eq!(metric(proxy.metrics, "tollgate_upstream_repeated_total").await, dropped);
    assert_eq!(metric(proxy.metrics, "tollgate_upstream_errors_total{kind=\"broken\"}").await, 0.0);
    let requests = "tollgate_requests_total{status=\"2xx\"}";
    metric_is(proxy.metrics, requests, (sent + 1) as f64).await;
    until("all are logged", || std::fs::read_to_string(&log).unwrap().lines().count() == sent + 1);
}

#[tokio::test]
async fn a_request_that_could_be_carried_out_twice_is_never_repeated() {
    let upstream = Dropping::start(Drops::AfterHead("")).await;
    let proxy = Proxy::start(upstream.address, &[]);
    for method in ["POST", "PATCH", "PROPFIND"] {
        let mut failed = 0;
        let (begun, dropped) = (upstream.begun.load(SeqCst), upstream.dropped());
        for sent in 1.. {
            let reply = send(proxy.address, &request(method, 0)).await;
            failed += usize::from(reply.status == 502);
            assert_eq!(upstream.begun.load(SeqCst) - begun, sent, "{method}");
            assert_eq!(upstream.dropped() - dropped, failed, "{method}: {reply:?}");
            if failed == 3 {
                break;
            }
            assert!(sent < 1000, "no connection is kept");
        }
    }
    assert_eq!(metric(proxy.metrics, "tollgate_upstream_repeated_total").await, 0.0);
}

#[tokio::test]
async fn a_request_whose_answer_has_begun_is_not_repeated() {
    for begin in ["H", "HTTP/1.1 200 OK\r\nContent-", "HTTP/1.1 103 Early Hints\r\n\r\n"] {
        let upstream = Dropping::start(Drops::AfterHead(begin)).await;
        let proxy = Proxy::start(upstream.address, &[]);
        for sent in 1.. {
            let reply = get(proxy.address, "/", "").await;
            assert_eq!(reply.status, if upstream.dropped() > 0 { 502 } else { 200 }, "{begin}: {reply:?}");
            if upstream.dropped() > 0 {
                break;
            }
            assert!(sent < 1000, "no connection is kept");
        }
        assert_eq!(metric(proxy.metrics, "tollgate_upstream_repeated_total").await, 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_was_not_read_is_sent_with_the_second_attempt() {
    let upstream = Dropping::start(Drops::AfterHead("")).await;
    let proxy = Proxy::start(upstream.address, &[]);
    for sent in 1.. {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        let dropped = upstream.dropped();
        client.write_all(request("PUT", 5).as_bytes()).await.unwrap();
        until("the upstream has the head", || upstream.begun.load(SeqCst) == sent + upstream.dropped());
        client.write_all(b"hello").await.unwrap();
        let mut bytes = Vec::new();
        within(client.read_to_end(&mut bytes)).await.unwrap();
        let reply = Reply::parse(&bytes);
        assert_eq!((reply.status, reply.body.as_str()), (200, "PUT hello"));
        if upstream.dropped() > dropped {
            break;
        }
        assert!(sent < 1000, "no connection is kept");
    }
    assert_eq!(metric(proxy.metrics, "tollgate_upstream_repeated_total").await, 1.0);
}

#[tokio::test]
async fn a_request_whose_body_was_read_is_not_repeated() {
    let upstream = Dropping::start(Drops::AfterBody).await;
    let proxy = Proxy::start(upstream.address, &[]);
    for sent in 1.. {
        let reply = send(proxy.address, &format!("{}hello", request("PUT", 5))).await;
        assert_eq!(reply.status, if upstream.dropped() > 0 { 502 } else { 200 }, "{reply:?}");
        if upstream.dropped() > 0 {
            break;
        }
        assert!(sent < 1000, "no connection is kept");
    }
    assert_eq!(metric(proxy.metrics, "tollgate_upstream_repeated_total").await, 0.0);
}

/// How an HTTP/2 upstream reacts to the first request. The upstream always answers the second
/// request.
#[derive(Clone, Copy, Debug)]
enum First {
    /// Resets the request's stream with this code.
    Reset(u8),
    /// Sends a GOAWAY with this last stream, and ends the connection. The request is stream 1.
    GoAway(u8),
    /// Responds with 413 before the request has ended, and then resets the stream without an error.
    Answer,
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Starts an HTTP/2 upstream that writes raw frames. Returns its address, and a counter of the
/// requests that it has received.
async fn http2(first: First) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve_http2(stream, first, Arc::clone(&counter)));
        }
    });
    (address, requests)
}

/// Reads a frame, and returns its type, flags and stream.
async fn read_frame(stream: &mut TcpStream) -> Option<[u8; 3]> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let [_, high, low, kind, flags, .., id] = head;
    let mut payload = vec![0; usize::from(high) << 8 | usize::from(low)];
    stream.read_exact(&mut payload).await.ok()?;
    Some([kind, flags, id])
}

/// Serves a connection until it ends.
async fn serve_http2(mut stream: TcpStream, first: First, requests: Arc<AtomicUsize>) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.ok()?;
    stream.write_all(&[frame(4, 0, 0, b""), frame(4, 1, 0, b"")].concat()).await.ok()?;
    // The stream of the request that the upstream answers once the request is complete.
    let mut answers = None;
    loop {
        let [kind, flags, id] = read_frame(&mut stream).await?;
        if kind == 1 {
            if requests.fetch_add(1, SeqCst) > 0 {
                answers = Some(id);
            } else {
                match first {
                    First::Reset(code) => stream.write_all(&frame(3, 0, id, &[0, 0, 0, code])).await.ok()?,
                    First::GoAway(last) => {
                        assert_eq!(id, 1);
                        return stream.write_all(&frame(7, 0, 0, &[0, 0, 0, last, 0, 0, 0, 0])).await.ok();
                    }
                    First::Answer => {
                        let answer = frame(1, 5, id, b"\x08\x03413");
                        stream.write_all(&[answer, frame(3, 0, id, &[0; 4])].concat()).await.ok()?;
                    }
                }
            }
        }
        let ends = [0, 1].contains(&kind) && flags & 1 == 1;
        if ends && answers == Some(id) {
            // `:status: 200`, and the end of the stream.
            stream.write_all(&frame(1, 5, id, &[0x88])).await.ok()?;
        }
    }
}

#[tokio::test]
async fn a_request_that_an_upstream_of_http2_has_not_begun_is_sent_once_more() {
    const INTERNAL_ERROR: u8 = 2;
    const REFUSED_STREAM: u8 = 7;
    for (method, first, status) in [
        ("GET", First::Reset(REFUSED_STREAM), 200),
        ("POST", First::Reset(REFUSED_STREAM), 200),
        ("GET", First::Reset(INTERNAL_ERROR), 502),
        ("GET", First::GoAway(0), 200),
        // The request must not be repeated, because the upstream may have begun to process it and
        // the connection is new.
        ("GET", First::GoAway(1), 502),
        ("POST", First::GoAway(1), 502),
    ] {
        let (address, requests) = http2(first).await;
        let proxy = Proxy::start(address, &["--upstream-http2"]);
        let reply = send(proxy.address, &request(method, 0)).await;
        assert_eq!(reply.status, status, "{method} {first:?}: {reply:?}");
        let expected = if status == 200 { 2 } else { 1 };
        assert_eq!(requests.load(SeqCst), expected, "{method} {first:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_to_an_upstream_of_http2_is_sent_once_more_while_its_body_is_awaited() {
    for first in [First::Reset(7), First::GoAway(0)] {
        let (address, requests) = http2(first).await;
        let proxy = Proxy::start(address, &["--upstream-http2"]);
        let mut client = asking(proxy.address, request("POST", 5)).await;
        until("it is sent once more", || requests.load(SeqCst) == 2);
        client.write_all(b"hello").await.unwrap();
        let mut bytes = Vec::new();
        within(client.read_to_end(&mut bytes)).await.unwrap();
        assert_eq!(Reply::parse(&bytes).status, 200, "{first:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_http2_that_hangs_is_not_used_again_after_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // The timeout is long enough for a response, even on a busy machine.
    let args = ["--upstream-http2", "--request-timeout", "2s"];
    let proxy = Proxy::start(listener.local_addr().unwrap(), &args);
    tokio::spawn(async move {
        let _hangs = listener.accept().await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        serve_http2(stream, First::Answer, Arc::new(AtomicUsize::new(1))).await
    });
    for status in [504, 200, 200] {
        assert_eq!(get(proxy.address, "/", "").await.status, status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_for_a_stream_survives_the_end_of_the_connection() {
    let going_away = frame(7, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    let answer = frame(1, 5, 1, &[0x88]);
    // The first request is the only stream on a connection that was opened for this request.
    for (end, status_of_first) in [([going_away, answer].concat(), 200), (Vec::new(), 502)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap(), &["--upstream-http2"]);
        let address = proxy.address;
        let first = tokio::spawn(async move { get(address, "/", "").await });
        let (mut stream, _) = within(listener.accept()).await.unwrap();
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).await.unwrap();
        let one_stream = frame(4, 0, 0, &[0, 3, 0, 0, 0, 1]);
        stream.write_all(&[one_stream, frame(4, 1, 0, b"")].concat()).await.unwrap();
        let (mut has_request, mut has_settings) = (false, false);
        while !(has_request && has_settings) {
            let [kind, flags, _] = within(read_frame(&mut stream)).await.unwrap();
            has_request |= kind == 1;
            has_settings |= (kind, flags) == (4, 1);
        }
        let second = tokio::spawn(async move { get(address, "/", "").await });
        metric_is(proxy.metrics, "tollgate_requests_in_flight", 2.0).await;
        let requests = Arc::new(AtomicUsize::new(1));
        tokio::spawn(async move {
            stream.write_all(&end).await.unwrap();
            drop(stream);
            let (stream, _) = listener.accept().await.unwrap();
            serve_http2(stream, First::Answer, requests).await
        });
        assert_eq!(within(second).await.unwrap().status, 200, "{status_of_first}");
        assert_eq!(within(first).await.unwrap().status, status_of_first);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_before_the_end_of_an_upload_reaches_the_client() {
    const ANSWER: &str =
        "HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap(), &[]);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                read_until(&mut stream, "\r\n\r\n").await;
                stream.write_all(ANSWER.as_bytes()).await.unwrap();
                // Closing the connection while it contains unread bytes makes the proxy's next
                // writes fail.
            });
        }
    });
    for number in 0..100 {
        let reply = upload(proxy.address).await;
        assert_eq!((reply.status, reply.body.as_str()), (413, "big"), "upload {number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_answer_over_http2_reaches_the_client() {
    let (address, _) = http2(First::Answer).await;
    let proxy = Proxy::start(address, &["--upstream-http2"]);
    assert_eq!(upload(proxy.address).await.status, 413);
}

/// Uploads a body that is larger than all buffers between client and upstream, and returns the
/// response.
async fn upload(to: SocketAddr) -> Reply {
    let mut client = asking(to, request("POST", 8 << 20)).await;
    let (mut reader, mut writer) = client.split();
    let writing = async {
        // The proxy may close the connection after it has responded.
        let _ = writer.write_all(&vec![7; 8 << 20]).await;
    };
    let reading = async {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes).await;
        bytes
    };
    let ((), bytes) = within(async { tokio::join!(writing, reading) }).await;
    Reply::parse(&bytes)
}
