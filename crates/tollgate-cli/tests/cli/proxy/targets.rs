//! Tests which target the upstream receives for each target that a client sends. Connections stay
//! open between requests.

use super::bad_requests::raw;
use super::recording::{OK, Recorder};
use super::running::{Proxy, within};
use super::upstream::{Upstream, hello};
use super::wire::{asking, metric, metric_is, read_until};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_testing::paths::RAW_PATHS;

/// Targets that a client sends, each with the target that the upstream receives, or with the status
/// if the proxy refuses the target.
const TARGETS: &[(&[u8], Result<&str, u16>)] = &[
    (b"/items?filter={\"name\":\"x\"}", Ok("/items?filter={%22name%22:%22x%22}")),
    (b"/?a<b>c", Ok("/?a%3Cb%3Ec")),
    (b"/?caf\xe9", Ok("/?caf%E9")),
    (b"/<>", Ok("/%3C%3E")),
    (b"/`", Ok("/%60")),
    (b"/caf\xe9", Ok("/caf%E9")),
    (b"http://a/<?\"", Ok("/%3C?%22")),
    (b"http://a?\"", Ok("/?%22")),
    // Existing encodings are not encoded again, and bytes that a URI may contain are passed on
    // unchanged.
    (b"/%3c?%22", Ok("/%3c?%22")),
    (b"/%<%zz%", Ok("/%%3C%zz%")),
    (b"/?`", Ok("/?`")),
    (b"/a\"b", Ok("/a\"b")),
    (b"/!$&'()*+,-.:;=@[\\]^_{|}~", Ok("/!$&'()*+,-.:;=@[\\]^_{|}~")),
    (b"/?!$&'()*+,-.:;=@[\\]^_`{|}~/?", Ok("/?!$&'()*+,-.:;=@[\\]^_`{|}~/?")),
    (b"/caf\xc3\xa9?\xe2\x82\xac", Ok("/caf\u{e9}?\u{20ac}")),
    // Every byte of an incomplete character is encoded.
    (b"/\xe2\x82", Ok("/%E2%82")),
    (b"/\xe2\x82/\xf0\x9f\x98\x80\xf0\x9f\x98?\xff\xc3", Ok("/%E2%82/\u{1f600}%F0%9F%98?%FF%C3")),
    (b"/\xc0\xaf\xed\xa0\x80", Ok("/%C0%AF%ED%A0%80")),
    // No client should send a fragment, so the fragment is removed.
    (b"/a#<\xe9", Ok("/a")),
    (b"/a?b#\"?\xe9", Ok("/a?b")),
    // nginx also refuses these targets.
    (b"/a b", Err(400)),
    (b"/a\tb", Err(400)),
    (b"/a\x7f", Err(400)),
    (b"/a\x00", Err(400)),
    (b"http://a<b/", Err(400)),
    (b"http://caf\xe9/", Err(400)),
    (b"<", Err(400)),
    (b"\xe9", Err(400)),
    (b"*<", Err(400)),
];

fn request(target: &[u8], fields: &str) -> Vec<u8> {
    [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n", fields.as_bytes(), b"\r\n"].concat()
}

/// Returns the targets of all requests that the upstream has received since the last call.
async fn targets(upstream: &Recorder) -> Vec<String> {
    let requests = upstream.take().await;
    requests.iter().map(|it| it.split(' ').nth(1).unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn a_target_is_passed_on_with_what_a_uri_cannot_hold_encoded() {
    let upstream = Recorder::start(OK).await;
    let proxy = Proxy::start(upstream.address, &[]);
    let mut wrong = Vec::new();
    for &(sent, expected) in TARGETS {
        let answer = raw(proxy.address, &request(sent, "")).await;
        let (status, seen) =
            (answer.split(' ').nth(1).unwrap_or_default().to_owned(), targets(&upstream).await);
        let is_expected = match expected {
            Ok(target) => status == "200" && seen == [target],
            Err(refused) => status == refused.to_string() && seen.is_empty(),
        };
        if !is_expected {
            wrong.push(format!(
                "{:?}: {status} {seen:?}, expected {expected:?}",
                String::from_utf8_lossy(sent)
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), TARGETS.len(), wrong.join("\n"));
}

#[tokio::test]
async fn a_byte_and_its_encoding_are_one_key() {
    let upstream = Recorder::start(OK).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by header x-row+path"]);
    for (row, (sent, passed_on, form)) in RAW_PATHS.into_iter().enumerate() {
        let send = async |target: &[u8], row: String| raw(proxy.address, &request(target, &row)).await;
        let first = send(form.as_bytes(), format!("X-Row: {row}\r\n")).await;
        let again = send(sent, format!("X-Row: {row}\r\n")).await;
        assert!(first.starts_with("HTTP/1.1 200 ") && again.starts_with("HTTP/1.1 429 "), "{form}: {again}");
        assert_eq!(targets(&upstream).await, [form]);
        send(sent, format!("X-Row: again-{row}\r\n")).await;
        assert_eq!(targets(&upstream).await, [passed_on]);
    }
}

/// Requests sent over a single connection. Each target needs encoding, and some bodies look like
/// requests.
const KEPT: &[&[u8]] = &[
    b"GET /1< HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /2< HTTP/1.1\r\nHost: a\r\nContent-Length: 25\r\n\r\nGET /< HTTP/1.1\r\na: b\r\n\r\n",
    b"\r\n\r\nPOST /3?\" HTTP/1.1\nHost: a\nX-A: GET /< HTTP/1.1\nTransfer-Encoding: chunked\n\n\
      14;<=\"\r\nGET /< HTTP/1.1\r\n\r\n\"\r\n3\r\n\r\nz\r\n0\r\nX-A: <\r\n\r\n",
    b"PUT /4\xe9 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n",
    b"GET /5\xe2\x82\xac\xe2\x82 HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    b"GET /6> HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
];

/// The first line and the body of each request in [`KEPT`], as the upstream receives them.
const KEPT_SEEN: [(&str, &str); 6] = [
    ("GET /1%3C ", ""),
    ("POST /2%3C ", "GET /< HTTP/1.1\r\na: b\r\n\r\n"),
    ("POST /3?%22 ", "GET /< HTTP/1.1\r\n\r\n\"\r\nz"),
    ("PUT /4%E9 ", ""),
    ("GET /5\u{20ac}%E2%82 ", ""),
    ("GET /6%3E ", ""),
];

#[tokio::test]
async fn requests_on_a_kept_connection_are_found_and_their_bodies_are_as_they_came() {
    let upstream = Recorder::start(OK).await;
    let proxy = Proxy::start(upstream.address, &[]);
    let all = KEPT.concat();
    for piece in [all.len(), 1, 7, 40] {
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        client.set_nodelay(true).unwrap();
        for piece in all.chunks(piece) {
            client.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut answers = String::new();
        within(client.read_to_string(&mut answers)).await.unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200 ").count(), KEPT.len(), "{answers}");
        let seen = upstream.take().await;
        assert_eq!(seen.len(), KEPT.len(), "{seen:?}");
        for (seen, (first, body)) in seen.iter().zip(KEPT_SEEN) {
            let (head, rest) = seen.split_once("\n\n").unwrap();
            assert!(head.starts_with(first) && !head.contains("GET /%3C"), "{head}");
            let sent = if head.contains("chunked") { joined(rest) } else { rest.to_owned() };
            assert_eq!(sent, body, "{seen}");
        }
    }
}

/// Joins the chunks of a body. The chunks depend on how much the proxy received in each read.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let (chunk, rest) = rest.split_at(usize::from_str_radix(size, 16).unwrap());
        body.push_str(chunk);
        chunks = if chunk.is_empty() { "" } else { rest.strip_prefix("\r\n").unwrap() };
    }
    body
}

/// Answers a request by opening a tunnel, and returns the first `length` bytes that arrive through
/// it.
async fn first_in_tunnel(listener: TcpListener, length: usize) -> Vec<u8> {
    let (mut stream, _) = listener.accept().await.unwrap();
    read_until(&mut stream, "\r\n\r\n").await;
    let answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(answer).await.unwrap();
    let mut bytes = vec![0; length];
    within(stream.read_exact(&mut bytes)).await.unwrap();
    bytes
}

#[tokio::test]
async fn what_goes_through_a_tunnel_is_as_it_came() {
    const FRAMES: &[u8] = b"GET /< HTTP/1.1\r\n\r\nGET /\" HTTP/1.1\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap(), &[]);
    let arrived = tokio::spawn(first_in_tunnel(listener, FRAMES.len()));
    let mut client = TcpStream::connect(proxy.address).await.unwrap();
    let handshake = b"GET /< HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Key: x\r\n\r\n";
    // This client does not wait for the response to its handshake before it sends the first frames.
    client.write_all(&[handshake, &FRAMES[..25]].concat()).await.unwrap();
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    client.write_all(&FRAMES[25..]).await.unwrap();
    assert_eq!(within(arrived).await.unwrap(), FRAMES);
}

/// Requests a path over HTTP/2. Returns the types of the received frames, except SETTINGS, up to
/// the first frame that ends the stream or the connection.
async fn over_http2(to: SocketAddr, path: &[u8]) -> Vec<u8> {
    let literal = |name: &[u8], value: &[u8]| {
        let length = |text: &[u8]| u8::try_from(text.len()).unwrap();
        [&[0, length(name)], name, &[length(value)], value].concat()
    };
    let block = [&b"\x82\x86\x41\x01a"[..], &literal(b":path", path)].concat();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00".to_vec();
    sent.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 5, 0, 0, 0, 1]);
    sent.extend(block);
    let mut client = asking(to, &sent).await;
    let mut frames = Vec::new();
    loop {
        let mut head = [0; 9];
        if within(client.read_exact(&mut head)).await.is_err() {
            return frames;
        }
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        within(client.read_exact(&mut payload)).await.unwrap();
        if head[8] == 1 || head[3] == 7 {
            frames.push(head[3]);
        }
        if head[3] == 3 || head[3] == 7 || (head[8] == 1 && head[4] & 1 == 1) {
            return frames;
        }
    }
}

#[tokio::test]
async fn what_http2_refuses_resets_one_request_and_is_no_malformed_one() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--bad-request-limit", "1/h"]);
    for path in [&b"/a<b"[..], b"/a>b", b"/`", b"/?\"", b"/?<"] {
        // RST_STREAM.
        assert_eq!(over_http2(proxy.address, path).await, [3], "{path:?}");
    }
    // HEADERS, DATA.
    assert_eq!(over_http2(proxy.address, b"/a\"b").await, [1, 0]);
    assert_eq!(over_http2(proxy.address, "/caf\u{e9}".as_bytes()).await, [1, 0]);
    for kind in ["malformed", "http2"] {
        let name = format!("tollgate_bad_requests_total{{kind=\"{kind}\"}}");
        assert_eq!(metric(proxy.metrics, &name).await, 0.0);
    }
    // A byte that is not UTF-8 is an error in the field encoding, which the proxy answers with
    // GOAWAY.
    assert_eq!(over_http2(proxy.address, b"/caf\xe9").await, [7]);
    metric_is(proxy.metrics, "tollgate_bad_requests_total{kind=\"http2\"}", 1.0).await;
}
