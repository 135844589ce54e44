//! Tests slow clients and upstreams, and clients that demand too much.

use super::http2::{Uploading, connect};
use super::recording::Recorder;
use super::running::{Proxy, within};
use super::upstream::{Body, Sent, Upstream, echo, full};
use super::wire::{asking, get, metric, metric_is, read_until};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Returns an endless response, for which the upstream always has more data.
async fn endless(_: Request<Incoming>) -> Response<Body> {
    let (sender, body) = Sent::new(1);
    tokio::spawn(async move {
        let chunk = Bytes::from(vec![7; 64 << 10]);
        while sender.send(Frame::data(chunk.clone())).await.is_ok() {}
    });
    Response::new(body.boxed_unsync())
}

#[tokio::test]
async fn a_response_whose_upstream_falls_silent_is_cut_off() {
    let upstream = Recorder::silent(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello").await;
    let proxy = Proxy::start(upstream.address, &["--idle-timeout", "300ms"]);
    let mut stream = asking(proxy.address, GET).await;
    let mut bytes = Vec::new();
    let _ = within(stream.read_to_end(&mut bytes)).await;
    assert!(bytes.ends_with(b"hello"), "{}", String::from_utf8_lossy(&bytes));
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 0.0).await;
}

#[tokio::test]
async fn a_stream_whose_upstream_falls_silent_ends_and_leaves_the_others_alone() {
    let (upstream, mut handed) = Upstream::handing_over().await;
    let proxy = Proxy::start(upstream.address, &["--idle-timeout", "300ms"]);
    let mut client = connect::<Empty<Bytes>>(proxy.address).await;
    let request = || Request::get("http://a/").body(Empty::new()).unwrap();
    let response = within(client.send_request(request())).await.unwrap();
    let _sender = within(handed.recv()).await.unwrap();
    assert!(within(response.into_body().collect()).await.is_err());
    // The connection continues.
    assert_eq!(within(client.send_request(request())).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn an_upload_that_moves_keeps_a_silent_response_open() {
    let upstream = Upstream::start(async |request: Request<Incoming>| {
        let (sender, body) = Sent::new(1);
        tokio::spawn(async move {
            // The upstream sends its response head before it has received the whole request.
            let read = request.into_body().collect().await.unwrap().to_bytes().len();
            sender.send(Frame::data(read.to_string().into())).await.unwrap();
        });
        Response::new(body.boxed_unsync()) as Response<Body>
    })
    .await;
    // The timeout is much longer than the pauses, even on a busy machine, but much shorter than the
    // whole upload.
    let proxy = Proxy::start(upstream.address, &["--idle-timeout", "2s"]);
    let mut client = connect::<Sent>(proxy.address).await;
    let (sender, body) = Sent::new(1);
    let response = within(client.send_request(Request::post("http://a/").body(body).unwrap())).await.unwrap();
    for _ in 0..50 {
        within(sender.send(Frame::data(Bytes::from_static(b"x")))).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(sender);
    assert_eq!(within(response.into_body().collect()).await.unwrap().to_bytes(), "50");
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off() {
    let upstream = Upstream::start(endless).await;
    let proxy = Proxy::start(upstream.address, &["--idle-timeout", "300ms"]);
    let mut client = asking(proxy.address, GET).await;
    // The client reads only the head.
    read_until(&mut client, "\r\n\r\n").await;
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 0.0).await;
    metric_is(proxy.metrics, "tollgate_open_connections", 0.0).await;
}

#[tokio::test]
async fn a_client_of_http2_that_opens_no_window_is_cut_off_though_it_answers_pings() {
    let upstream = Upstream::start(endless).await;
    let proxy = Proxy::start(upstream.address, &["--idle-timeout", "300ms"]);
    let mut client = connect::<Empty<Bytes>>(proxy.address).await;
    let request = Request::get("http://a/").body(Empty::new()).unwrap();
    let response = within(client.send_request(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 0.0).await;
    metric_is(proxy.metrics, "tollgate_open_connections", 0.0).await;
    drop(response);
}

#[tokio::test]
async fn a_client_that_is_slow_but_moves_is_served_to_the_end() {
    let upstream = Upstream::start(async |_| Response::new(full(vec![7; 16 << 20]))).await;
    // The timeouts are much longer than the pauses, even on a busy machine. The whole response
    // takes three times as long as a timeout.
    let proxy = Proxy::start(upstream.address, &["--idle-timeout", "2s", "--header-timeout", "2s"]);
    let begun = Instant::now();
    let socket = TcpSocket::new_v4().unwrap();
    // The window is small, so the proxy must repeatedly wait for the client.
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut client = socket.connect(proxy.address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut read = 0;
    let mut buffer = vec![0; 128 << 10];
    loop {
        let length = within(client.read(&mut buffer)).await.unwrap();
        if length == 0 {
            break;
        }
        read += length;
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert!(read > 16 << 20, "{read}");
    assert!(begun.elapsed() > Duration::from_secs(6), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_end_of_a_response_waits_for_a_client_of_http2_that_opens_its_window_late() {
    // The client's window has room for all bytes but the last one.
    const LENGTH: usize = (2 << 20) + 1;
    let upstream = Upstream::start(async |_| Response::new(full(vec![7; LENGTH]))).await;
    let proxy = Proxy::start(upstream.address, &["--header-timeout", "1s"]);
    let mut client = connect::<Empty<Bytes>>(proxy.address).await;
    let request = Request::get("http://a/").body(Empty::new()).unwrap();
    let response = within(client.send_request(request)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(within(response.into_body().collect()).await.unwrap().to_bytes().len(), LENGTH);
}

#[tokio::test]
async fn the_ends_of_responses_wait_for_a_client_of_http2_that_reads_late() {
    const RESPONSES: usize = 100;
    // The proxy buffers each response to its end, but the socket has no room for all of them.
    let upstream = Upstream::start(async |_| Response::new(full(vec![7; 60_000]))).await;
    let proxy = Proxy::start(upstream.address, &["--header-timeout", "1s"]);
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut client = socket.connect(proxy.address).await.unwrap();
    // The client opens the connection's window, and sends its requests as HEADERS frames.
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00".to_vec();
    sent.extend_from_slice(b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x01\x00\x00\x00");
    for stream in (1_u32..).step_by(2).take(RESPONSES) {
        sent.extend_from_slice(b"\x00\x00\x06\x01\x05");
        sent.extend_from_slice(&stream.to_be_bytes());
        sent.extend_from_slice(b"\x82\x86\x84\x41\x01a");
    }
    client.write_all(&sent).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let mut ended = 0;
    while ended < RESPONSES {
        let (kind, flags, ..) = frame(&mut client).await;
        ended += usize::from(kind == 0 && flags & 1 == 1);
    }
}

#[tokio::test]
async fn a_connection_of_http2_that_becomes_idle_ends_as_soon_as_any_other() {
    let (upstream, mut handed) = Upstream::handing_over().await;
    // A response may stall for longer than this test waits for the end of the connection.
    let proxy = Proxy::start(upstream.address, &["--header-timeout", "1s", "--idle-timeout", "10m"]);
    let mut client = connect::<Empty<Bytes>>(proxy.address).await;
    let request = Request::get("http://a/").body(Empty::new()).unwrap();
    let response = within(client.send_request(request)).await.unwrap();
    let sender = within(handed.recv()).await.unwrap();
    // The response outlasts the first check of the connection.
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(sender);
    within(response.into_body().collect()).await.unwrap();
    metric_is(proxy.metrics, "tollgate_open_connections", 0.0).await;
    drop(client);
}

#[tokio::test]
async fn a_client_that_sends_no_head_in_time_is_cut_off() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--header-timeout", "1s"]);
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    // The last client begins an HTTP/2 head and never finishes it.
    let half = [preface, b"\x00\x00\x01\x01\x00\x00\x00\x00\x01\x82"].concat();
    for sent in [b"".as_slice(), b"GET", b"GET / HTTP/1.1\r\nHost: a\r\nX-", b"PRI * HT", preface, &half] {
        let mut client = asking(proxy.address, sent).await;
        let mut bytes = Vec::new();
        let _ = within(client.read_to_end(&mut bytes)).await;
    }
    // The proxy also disconnects a client that sends no further request after a response.
    let mut client = asking(proxy.address, GET).await;
    let mut bytes = Vec::new();
    let _ = within(client.read_to_end(&mut bytes)).await;
    assert!(bytes.starts_with(b"HTTP/1.1 200"));
    metric_is(proxy.metrics, "tollgate_open_connections", 0.0).await;
}

/// A client that is idle has a little more time, because it may have sent a request meanwhile.
#[tokio::test]
async fn a_head_that_begins_and_never_ends_has_the_stated_time() {
    let upstream = Upstream::start(async |_| Response::new(full(b"hello".to_vec()))).await;
    let proxy = Proxy::start(upstream.address, &["--header-timeout", "4s"]);
    let preface: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
    let request = b"\x00\x00\x06\x01\x05\x00\x00\x00\x01\x82\x86\x84\x41\x01a";
    let half = b"\x00\x00\x01\x01\x00\x00\x00\x00\x03\x82";
    let [first, second] = [[preface, half].concat(), [preface, request, half].concat()];
    let sent = [
        b"GET".as_slice(),
        b"GET / HTTP/1.1\r\nHost: a\r\nX-",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n",
        &first,
        &second,
    ];
    let clients = sent.map(|sent| {
        let (address, sent) = (proxy.address, sent.to_vec());
        tokio::spawn(async move {
            let mut client = asking(address, sent).await;
            let (begun, mut bytes) = (Instant::now(), Vec::new());
            let _ = within(client.read_to_end(&mut bytes)).await;
            begun.elapsed()
        })
    });
    for client in clients {
        let took = client.await.unwrap();
        // Twice the time, or the time and the grace of an idle client, would be longer.
        assert!(took > Duration::from_millis(3_900) && took < Duration::from_millis(5_700), "{took:?}");
    }
}

#[tokio::test]
async fn a_head_has_a_size_that_is_stated() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--max-header-size", "16384"]);
    let sized = |bytes: usize| format!("X-A: {}\r\n", "a".repeat(bytes - 5));
    assert_eq!(get(proxy.address, "/", &sized(16_000)).await.status, 200);
    // The first size is the smallest one that is too large. A head of the second size is never read
    // completely.
    for bytes in [16_385, 500_000] {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", sized(bytes));
        let _ = client.write_all(head.as_bytes()).await;
        let mut answer = [0; 12];
        within(client.read_exact(&mut answer)).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 431", "{bytes}");
    }
    let many = "A: b\r\n".repeat(200);
    assert_eq!(get(proxy.address, "/", &many).await.status, 431);
    let mut client = connect::<Empty<Bytes>>(proxy.address).await;
    let request =
        |bytes| Request::get("http://a/").header("x-a", "a".repeat(bytes)).body(Empty::new()).unwrap();
    assert_eq!(within(client.send_request(request(16_000))).await.unwrap().status(), 200);
    match within(client.send_request(request(17_000))).await {
        Ok(response) => assert_eq!(response.status(), 431),
        // A client that knows the maximum size does not even send the request.
        Err(error) => assert!(error.is_user(), "{error:?}"),
    }
    assert_eq!(upstream.requests(), 2);
    // A limit also exists by default.
    let proxy = Proxy::start(upstream.address, &[]);
    assert_eq!(get(proxy.address, "/", &sized(30_000)).await.status, 200);
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    let _ = client.write_all(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", sized(500_000)).as_bytes()).await;
    let mut answer = [0; 12];
    within(client.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 431");
}

#[tokio::test]
async fn an_address_has_as_many_connections_as_stated() {
    let upstream = Upstream::echo().await;
    let args = ["--max-connections-per-address", "2"];
    let proxy = Proxy::start(upstream.address, &args);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = asking(proxy.address, GET).await;
        read_until(&mut client, "\r\n\r\n").await;
        held.push(client);
    }
    let mut third = TcpStream::connect(proxy.address).await.unwrap();
    assert!(!matches!(within(third.read(&mut [0])).await, Ok(1..)));
    assert_eq!(metric(proxy.metrics, "tollgate_connections_refused_total").await, 1.0);
    // Another address is served. The first address is served again once one of its connections has
    // ended.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(proxy.address).await.unwrap();
    other.write_all(GET).await.unwrap();
    read_until(&mut other, "\r\n\r\n").await;
    drop(held.pop());
    metric_is(proxy.metrics, "tollgate_open_connections", 2.0).await;
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    // Trusted proxies may open the connections of many clients.
    let proxy = Proxy::start(upstream.address, &[&args[..], &["--trust", "127.0.0.1"]].concat());
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut client = asking(proxy.address, GET).await;
        read_until(&mut client, "\r\n\r\n").await;
        held.push(client);
    }
}

#[tokio::test]
async fn a_web_socket_keeps_its_place() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap(), &["--max-connections-per-address", "1"]);
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    let asked = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
    client.write_all(asked.as_bytes()).await.unwrap();
    let (mut server, _) = within(listener.accept()).await.unwrap();
    read_until(&mut server, "\r\n\r\n").await;
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    server.write_all(switched.as_bytes()).await.unwrap();
    read_until(&mut client, "\r\n\r\n").await;
    metric_is(proxy.metrics, "tollgate_open_tunnels", 1.0).await;
    assert_eq!(metric(proxy.metrics, "tollgate_open_connections").await, 1.0);
    let mut second = TcpStream::connect(proxy.address).await.unwrap();
    assert!(!matches!(within(second.read(&mut [0])).await, Ok(1..)));
    drop((client, server));
    metric_is(proxy.metrics, "tollgate_open_connections", 0.0).await;
}

#[tokio::test]
async fn a_client_that_resets_its_streams_at_once_loses_its_connection() {
    let upstream = Upstream::start(async |_| pending().await).await;
    let proxy = Proxy::start(upstream.address, &[]);
    let mut client =
        asking(proxy.address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await;
    let mut sent = Vec::new();
    for stream in (1_u32..4_001).step_by(2) {
        // A HEADERS frame that ends the stream (method GET, scheme http, path /, authority `a`),
        // and a RST_STREAM frame.
        sent.extend_from_slice(b"\x00\x00\x06\x01\x05");
        sent.extend_from_slice(&stream.to_be_bytes());
        sent.extend_from_slice(b"\x82\x86\x84\x41\x01a");
        sent.extend_from_slice(b"\x00\x00\x04\x03\x00");
        sent.extend_from_slice(&stream.to_be_bytes());
        sent.extend_from_slice(b"\x00\x00\x00\x08");
    }
    // The proxy closes while the client is still sending.
    let _ = client.write_all(&sent).await;
    let _ = within(client.read_to_end(&mut Vec::new())).await;
    assert!(upstream.requests() < 500, "{}", upstream.requests());
    metric_is(proxy.metrics, "tollgate_open_connections", 0.0).await;
}

#[tokio::test]
async fn a_connection_of_http2_has_a_hundred_requests_at_a_time() {
    let upstream = Upstream::start(async |_| pending().await).await;
    let proxy = Proxy::start(upstream.address, &[]);
    let mut client = connect::<Empty<Bytes>>(proxy.address).await;
    let request = || Request::get("http://a/").body(Empty::new()).unwrap();
    let asked: Vec<_> = (0..150).map(|_| tokio::spawn(client.send_request(request()))).collect();
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 100.0).await;
    asked.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_uploads_end_with_the_whole_refusal_on_their_own_connections_or_on_one() {
    let upstream = Upstream::start(echo).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by ip"]);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    for size in [100_000, 3_000_000, 30_000_000] {
        let shared = connect::<Uploading>(proxy.address).await;
        let mut uploads = Vec::new();
        for index in 0..40 {
            let mut client =
                if index % 2 == 0 { shared.clone() } else { connect::<Uploading>(proxy.address).await };
            let body = Uploading::of(size);
            uploads.push(tokio::spawn(async move {
                let response = client.send_request(Request::post("http://a/").body(body).unwrap()).await?;
                let status = response.status();
                response.into_body().collect().await.map(|body| (status, body.to_bytes()))
            }));
        }
        for upload in uploads {
            let (status, body) =
                within(upload).await.unwrap().unwrap_or_else(|error| panic!("{size}: {error:?}"));
            assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
            assert!(body.ends_with(b"}"), "{body:?}");
        }
        // The shared connection remains usable.
        let mut shared = shared;
        let request = Request::post("http://a/").body(Uploading::of(5)).unwrap();
        assert_eq!(within(shared.send_request(request)).await.unwrap().status(), 429);
    }
    assert_eq!(upstream.requests(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_uploads_over_http1_end_with_the_whole_refusal() {
    let upstream = Upstream::start(echo).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by ip"]);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    for size in [100_000, 3_000_000] {
        let mut uploads = Vec::new();
        for _ in 0..30 {
            let address = proxy.address;
            uploads.push(tokio::spawn(async move {
                let mut client = TcpStream::connect(address).await.unwrap();
                let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
                // This client sends its whole request before it reads any response.
                client.write_all(head.as_bytes()).await?;
                client.write_all(&vec![b'x'; size]).await?;
                let mut answer = [0; 12];
                client.read_exact(&mut answer).await?;
                Ok::<_, std::io::Error>(answer)
            }));
        }
        for upload in uploads {
            assert_eq!(&within(upload).await.unwrap().unwrap(), b"HTTP/1.1 429", "{size}");
        }
    }
}

#[tokio::test]
async fn a_refused_upload_that_waits_for_permission_is_not_asked_for_it() {
    let upstream = Upstream::start(echo).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by ip"]);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\nExpect: 100-continue\r\n\r\n";
    let mut shortest = Duration::MAX;
    // On a busy machine, some attempts may be slow, but not all of them.
    for _ in 0..5 {
        let begun = Instant::now();
        let mut client = asking(proxy.address, head).await;
        let mut answer = String::new();
        within(client.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 429") && !answer.contains("100 Continue"), "{answer}");
        shortest = shortest.min(begun.elapsed());
    }
    // The proxy must not wait for the upload either.
    assert!(shortest < Duration::from_secs(2), "{shortest:?}");
}

/// Reads an HTTP/2 frame. Returns its type, flags, stream and payload.
async fn frame(stream: &mut TcpStream) -> (u8, u8, u32, Vec<u8>) {
    let mut head = [0; 9];
    within(stream.read_exact(&mut head)).await.unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let mut payload = vec![0; length];
    within(stream.read_exact(&mut payload)).await.unwrap();
    (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload)
}

/// Uploads half of a body over HTTP/2, reads the whole response, and then sends the rest. Returns
/// whether the response has status 429, and whether the stream was reset.
async fn refused_in_the_middle(to: std::net::SocketAddr) -> (bool, bool) {
    const DATA: [u8; 10_000] = [0; 10_000];
    let mut client =
        asking(to, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00").await;
    // A request with POST, http, /, and the authority `a`.
    client.write_all(b"\x00\x00\x06\x01\x04\x00\x00\x00\x01\x83\x86\x84\x41\x01a").await.unwrap();
    let data = [b"\x00\x27\x10\x00\x00\x00\x00\x00\x01".as_slice(), &DATA].concat();
    client.write_all(&data).await.unwrap();
    let (mut is_429, mut was_reset) = (false, false);
    loop {
        let (kind, flags, stream, payload) = frame(&mut client).await;
        // The first field is `:status` with the Huffman-coded value `429`.
        is_429 |= kind == 1 && payload.starts_with(b"\x48\x83\x68\x4f\xff");
        was_reset |= kind == 3;
        if stream == 1 && flags & 1 == 1 && kind <= 1 || was_reset {
            break;
        }
    }
    client.write_all(&data).await.unwrap();
    client.write_all(b"\x00\x00\x00\x00\x01\x00\x00\x00\x01").await.unwrap();
    // All frames of the stream precede the answer to this ping.
    client.write_all(b"\x00\x00\x08\x06\x00\x00\x00\x00\x00pingping").await.unwrap();
    loop {
        let (kind, flags, ..) = frame(&mut client).await;
        was_reset |= kind == 3;
        if kind == 6 && flags & 1 == 1 {
            return (is_429, was_reset);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_upload_over_http2_is_not_reset() {
    let upstream = Upstream::start(echo).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by ip"]);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    let clients: Vec<_> = (0..40).map(|_| tokio::spawn(refused_in_the_middle(proxy.address))).collect();
    for client in clients {
        assert_eq!(within(client).await.unwrap(), (true, false));
    }
}
