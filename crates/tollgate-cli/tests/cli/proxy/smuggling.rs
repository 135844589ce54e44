//! Tests malformed and ambiguous messages, sent as raw bytes. One server may read such a message as
//! a single message, and another server as two. Each case contains the response to the client and
//! the bytes that the upstream receives.

use super::recording::{OK, Recorder};
use super::running::{Proxy, within};
use super::wire::{Reply, asking};
use std::net::SocketAddr;
use tokio::io::AsyncReadExt;

/// A request, the status of the response, and the request that the upstream receives, which is
/// empty if the upstream receives nothing.
struct Case {
    about: &'static str,
    sent: &'static [u8],
    status: u16,
    seen: &'static str,
}

const fn refused(about: &'static str, sent: &'static [u8], status: u16) -> Case {
    Case { about, sent, status, seen: "" }
}

const fn passed(about: &'static str, sent: &'static [u8], seen: &'static str) -> Case {
    Case { about, sent, status: 200, seen }
}

/// Requests whose end may be interpreted differently by two servers.
const FRAMING: &[Case] = &[
    passed(
        "both lengths: chunks count, the other is removed, and the connection ends",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
          5\r\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\nhost: a\ntransfer-encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n",
    ),
    passed(
        "both lengths, in the other order",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n\
          0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\nhost: a\ntransfer-encoding: chunked\n\n0\r\n\r\n",
    ),
    passed(
        "the same length twice",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\ncontent-length: 5\nhost: a\n\nhello",
    ),
    refused(
        "two lengths",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        400,
    ),
    refused("a list of lengths", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello", 400),
    refused("a length with a sign", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello", 400),
    refused("a negative length", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello", 400),
    refused("a length in hex", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello", 400),
    refused("an empty length", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\nhello", 400),
    refused(
        "a length beyond 64 bits",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\nhello",
        400,
    ),
    passed(
        "a length with zeros in front",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0005\r\n\r\nhello",
        "POST / HTTP/1.1\ncontent-length: 5\nhost: a\n\nhello",
    ),
    passed(
        "a length that Connection names",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close, content-length\r\nContent-Length: 5\r\n\r\nhello",
        "POST / HTTP/1.1\ncontent-length: 5\nhost: a\n\nhello",
    ),
    refused(
        "a coding that the proxy does not know",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        400,
    ),
    refused(
        "a coding within chunks",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        501,
    ),
    refused(
        "two codings in two fields",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n\
          5\r\nhello\r\n0\r\n\r\n",
        501,
    ),
    refused(
        "chunks within another coding",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        400,
    ),
    refused(
        "a coding that only looks like chunks",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    refused(
        "a coding in quotes",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
        400,
    ),
    refused(
        "a coding after a vertical tab",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    passed(
        "a coding in capitals",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\nhost: a\ntransfer-encoding: chunked\n\n0\r\n\r\n",
    ),
    refused(
        "a coding of a version that has none",
        b"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    passed(
        "extensions of chunks",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
          5;a=b;c=\"d\"\r\nhello\r\n0;e\r\n\r\n",
        "POST / HTTP/1.1\nhost: a\ntransfer-encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n",
    ),
    refused(
        "a line feed within the extension of a chunk",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a\nb\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    refused(
        "a chunk beyond 64 bits",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    refused(
        "a chunk without a size",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    refused(
        "a size of a chunk with a sign",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    refused(
        "a size of a chunk with a prefix",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    refused(
        "a chunk that is longer than it says",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
        400,
    ),
    refused(
        "lines of a chunk that end with a line feed only",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\n0\n\n",
        400,
    ),
];

/// Heads that different servers may interpret differently.
const HEADS: &[Case] = &[
    refused("a folded line", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\n c\r\n\r\n", 400),
    refused("a line that begins with a space", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    refused("a space before the colon", b"GET / HTTP/1.1\r\nHost: a\r\nX-A : b\r\n\r\n", 400),
    refused(
        "a space before the colon of a length",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello",
        400,
    ),
    refused("a line without a colon", b"GET / HTTP/1.1\r\nHost: a\r\nX-A\r\n\r\n", 400),
    refused("a field without a name", b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
    refused("a NUL in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\0c\r\n\r\n", 400),
    refused("a NUL in a name", b"GET / HTTP/1.1\r\nHost: a\r\nX\0A: b\r\n\r\n", 400),
    refused("a carriage return in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\rX-B: c\r\n\r\n", 400),
    refused("a carriage return at the end", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: b\r\r\n\r\n", 400),
    passed(
        "lines that end with a line feed only, which a recipient may accept (RFC 9112, 2.2)",
        b"GET / HTTP/1.1\nHost: a\nConnection: close\nX-A: b\n\n",
        "GET / HTTP/1.1\nhost: a\nx-a: b\n\n",
    ),
    refused("a line of capitals and a tab", b"GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", 400),
    refused("two spaces in the first line", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    refused("a target with a space", b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    refused("a version that is none", b"GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
    refused("a version of the future", b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 400),
    refused("a request of HTTP/0.9", b"GET /\r\n\r\n", 400),
    refused("no method", b" / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    refused("a method with a parenthesis", b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    passed(
        "fields whose names differ by an underscore or a dot from what the proxy writes",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX_Forwarded_For: 192.0.2.1\r\n\
          X-Forwarded_Proto: https\r\nX.Real.IP: 192.0.2.1\r\nX_Real_IP: 192.0.2.1\r\nX-Api_Key: x\r\n\
          Content_Length: 50\r\nTransfer_Encoding: chunked\r\nX-Kept-1: y\r\n\r\n",
        "GET / HTTP/1.1\nhost: a\nx-kept-1: y\n\n",
    ),
    passed(
        "forwarded fields that Connection names",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, x-forwarded-for, X-Forwarded-Host, host, via\r\n\
          X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Port: 1\r\nForwarded: for=192.0.2.1\r\n\r\n",
        "GET / HTTP/1.1\nhost: a\n\n",
    ),
    passed(
        "an upgrade to HTTP/2",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n\
          HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
        "GET / HTTP/1.1\nhost: a\n\n",
    ),
    passed(
        "an upgrade to HTTP/2 of which Connection does not know",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nUpgrade: h2c\r\n\
          HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
        "GET / HTTP/1.1\nhost: a\n\n",
    ),
    passed(
        "an upgrade to several protocols, one of them a WebSocket",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: h2c, websocket\r\n\
          Sec-WebSocket-Key: x\r\n\r\n",
        "GET / HTTP/1.1\nconnection: upgrade\nhost: a\nsec-websocket-key: x\nupgrade: websocket\n\n",
    ),
    passed(
        "a WebSocket with a body",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\
          Sec-WebSocket-Key: x\r\nContent-Length: 5\r\n\r\nhello",
        "GET / HTTP/1.1\ncontent-length: 5\nhost: a\nsec-websocket-key: x\n\nhello",
    ),
    passed(
        "trailers that say where the request came from, or how long it is",
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\
          Trailer: X-Forwarded-For, X_Forwarded_For, Forwarded, Content-Length, Cookie, X-Sum\r\n\r\n\
          5\r\nhello\r\n0\r\nX-Forwarded-For: 192.0.2.1\r\nX_Forwarded_For: 192.0.2.1\r\n\
          Forwarded: for=192.0.2.1\r\nContent-Length: 3\r\nCookie: a=1\r\nX-Sum: 7\r\n\r\n",
        "POST / HTTP/1.1\nconnection: te\nhost: a\nte: trailers\n\
         trailer: X-Forwarded-For, X_Forwarded_For, Forwarded, Content-Length, Cookie, X-Sum\n\
         transfer-encoding: chunked\n\n5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n",
    ),
];

/// Requests that name no host, two hosts, or another host.
const HOSTS: &[Case] = &[
    refused("no host", b"GET / HTTP/1.1\r\n\r\n", 400),
    refused("no field for the host beside a target with a host", b"GET http://b/ HTTP/1.1\r\n\r\n", 400),
    refused("two hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    refused("the same host twice", b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    refused("two hosts in a list", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400),
    refused("a host with a path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    refused("a host with a user", b"GET / HTTP/1.1\r\nHost: b@a\r\n\r\n", 400),
    refused("a host with a port that is none", b"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400),
    passed(
        "no host in a version without hosts",
        b"GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\nhost: UPSTREAM\n\n",
    ),
    passed(
        "an empty host",
        b"GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\nhost: UPSTREAM\n\n",
    ),
    passed(
        "a target with another host, which counts (RFC 9112, 3.2.2)",
        b"GET http://b/c?d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /c?d HTTP/1.1\nhost: b\n\n",
    ),
    passed(
        "a target with a query and no path",
        b"GET http://b?d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET /?d HTTP/1.1\nhost: b\n\n",
    ),
    refused("a target for the whole server", b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    refused("a target with a user", b"GET http://c@b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    refused("a target beside an invalid host", b"GET http://a/ HTTP/1.1\r\nHost: b@a\r\n\r\n", 400),
    refused("a target of another scheme", b"GET ftp://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    refused("a target that is only a host", b"GET b:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    refused("a tunnel", b"CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\nConnection: close\r\n\r\n", 501),
];

async fn sent(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = asking(to, bytes).await;
    let mut answer = Vec::new();
    // The proxy may close the connection while unread bytes are still in transit.
    let _ = within(stream.read_to_end(&mut answer)).await;
    answer
}

async fn hold(cases: &[Case]) {
    let upstream = Recorder::start(OK).await;
    let proxy = Proxy::start(upstream.address, &[]);
    let mut wrong = Vec::new();
    for case in cases {
        let answer = sent(proxy.address, case.sent).await;
        let text = String::from_utf8_lossy(&answer);
        let status = text.split(' ').nth(1).unwrap_or("(no response)");
        let seen = upstream.take().await.join("\nthen:\n");
        // The proxy may pass on part of a body before it finds that the body is malformed.
        let is_cut =
            case.seen.is_empty() && !seen.ends_with("0\r\n\r\n") && seen.contains("transfer-encoding");
        let expected = case.seen.replace("UPSTREAM", &upstream.address.to_string());
        if status != case.status.to_string() || (seen != expected && !is_cut) {
            wrong.push(format!("{}: {status}, expected {}\n{seen:?}\n{expected:?}", case.about, case.status));
        }
        if text.matches("HTTP/1.1 ").count() > 1 {
            wrong.push(format!("{}: two responses: {text}", case.about));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[tokio::test]
async fn the_end_of_a_request_is_the_same_for_the_upstream() {
    hold(FRAMING).await;
}

#[tokio::test]
async fn heads_that_can_be_read_in_two_ways_are_refused_or_made_plain() {
    hold(HEADS).await;
}

#[tokio::test]
async fn one_host_is_asked_for() {
    hold(HOSTS).await;
}

/// The upstream's response, and the status and body that the client receives.
const RESPONSES: &[(&str, &[u8], u16, &str)] = &[
    ("a length", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"),
    ("no length", b"HTTP/1.1 200 OK\r\n\r\nhello", 200, "5\r\nhello\r\n0\r\n\r\n"),
    (
        "chunks",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n",
        200,
        "5\r\nhello\r\n0\r\n\r\n",
    ),
    (
        "both lengths",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        502,
        "",
    ),
    (
        "both lengths, in the other order",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        502,
        "",
    ),
    ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 2\r\n\r\nhello", 502, ""),
    (
        "the same length twice",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        200,
        "hello",
    ),
    ("a list of one length", b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello", 200, "hello"),
    ("a length with a sign", b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello", 502, ""),
    ("a coding", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello", 502, ""),
    (
        "a coding within chunks",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        502,
        "",
    ),
    (
        "chunks of an old version",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        502,
        "",
    ),
    ("a folded line", b"HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\nContent-Length: 5\r\n\r\nhello", 502, ""),
    ("a space before the colon", b"HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nhello", 502, ""),
    ("a NUL in a value", b"HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 5\r\n\r\nhello", 502, ""),
    (
        "a carriage return in a value",
        b"HTTP/1.1 200 OK\r\nX-A: b\rc\r\nContent-Length: 5\r\n\r\nhello",
        502,
        "",
    ),
    ("a status of two digits", b"HTTP/1.1 20 OK\r\nContent-Length: 5\r\n\r\nhello", 502, ""),
    (
        "a protocol that nobody asked for",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n",
        502,
        "",
    ),
    (
        "a response too many",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother",
        200,
        "hello",
    ),
    ("a body where there is none", b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello", 204, ""),
    (
        "trailers",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Forwarded-For, X-Sum\r\n\r\n\
          5\r\nhello\r\n0\r\nX-Forwarded-For: 192.0.2.1\r\nX_Sum: 1\r\nSet-Cookie: a=1\r\nX-Sum: 7\r\n\r\n",
        200,
        "5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n",
    ),
];

#[tokio::test]
async fn responses_that_can_be_read_in_two_ways_are_a_502() {
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close, te\r\nTE: trailers\r\n\r\n";
    let mut wrong = Vec::new();
    for &(about, answer, status, body) in RESPONSES {
        let upstream = Recorder::start(answer).await;
        let proxy = Proxy::start(upstream.address, &[]);
        let reply = Reply::parse(&sent(proxy.address, request).await);
        if reply.status != status || (status != 502 && reply.body != body) {
            wrong.push(format!("{about}: {reply:?}"));
        }
        if reply.all("content-length").len() > 1 {
            wrong.push(format!("{about}: more than one length: {reply:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), RESPONSES.len(), wrong.join("\n"));
}

/// The name and the value of a field.
type Field<'f> = (&'f str, &'f [u8]);

/// Encodes a field's name and value as plain literals, without Huffman coding or an index.
fn literal(name: &str, value: &[u8]) -> Vec<u8> {
    let length = |text: &[u8]| u8::try_from(text.len()).unwrap();
    [&[0, length(name.as_bytes())], name.as_bytes(), &[length(value)], value].concat()
}

/// Sends a POST with the body `hello` and these fields to the authority `a` over HTTP/2. Reads
/// until the stream or the connection has ended, and returns whether the response was complete.
async fn posted(to: SocketAddr, fields: &[Field<'_>]) -> bool {
    let mut block = b"\x83\x86\x84\x41\x01a".to_vec();
    fields.iter().for_each(|(name, value)| block.extend(literal(name, value)));
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00".to_vec();
    sent.extend([0, 0, u8::try_from(block.len()).unwrap(), 1, 4, 0, 0, 0, 1]);
    sent.extend(block);
    sent.extend(b"\x00\x00\x05\x00\x01\x00\x00\x00\x01hello");
    let mut client = asking(to, &sent).await;
    loop {
        let mut head = [0; 9];
        if within(client.read_exact(&mut head)).await.is_err() {
            return false;
        }
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        within(client.read_exact(&mut payload)).await.unwrap();
        match (head[3], head[4] & 1, head[8]) {
            // DATA or HEADERS that end the stream.
            (0 | 1, 1, 1) => return true,
            // RST_STREAM, GOAWAY.
            (3, _, 1) | (7, ..) => return false,
            _ => {}
        }
    }
}

#[tokio::test]
async fn requests_over_http2_are_made_plain_or_never_whole() {
    let upstream = Recorder::start(OK).await;
    let proxy = Proxy::start(upstream.address, &[]);
    let passed: &[(&[Field<'_>], &str)] = &[
        (&[("content-length", b"5")], "POST / HTTP/1.1\ncontent-length: 5\nhost: a\n\nhello"),
        (&[], "POST / HTTP/1.1\nhost: a\ntransfer-encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n"),
        (
            &[("content-length", b"5"), ("x_forwarded_for", b"192.0.2.1"), ("x-forwarded-for", b"192.0.2.1")],
            "POST / HTTP/1.1\ncontent-length: 5\nhost: a\n\nhello",
        ),
        // The authority takes precedence (RFC 9113, 8.3.1).
        (&[("content-length", b"5"), ("host", b"b")], "POST / HTTP/1.1\ncontent-length: 5\nhost: a\n\nhello"),
    ];
    for (fields, seen) in passed {
        assert!(posted(proxy.address, fields).await, "{seen}");
        assert_eq!(upstream.take().await, [*seen]);
    }
    let refused: &[&[Field<'_>]] = &[
        &[("transfer-encoding", b"chunked")],
        &[("connection", b"close")],
        &[("upgrade", b"h2c")],
        &[("content-length", b"3")],
        &[("content-length", b"7")],
        &[("content-length", b"5"), ("content-length", b"6")],
        &[("x-a", b"b\r\nx-b: c")],
        &[("x-a", b"b\0c")],
        &[("X-A", b"b")],
        &[("x a", b"b")],
        &[("x-a:", b"b")],
    ];
    for fields in refused {
        let _ = posted(proxy.address, fields).await;
        let whole = |seen: &String| seen.ends_with("hello") || seen.ends_with("0\r\n\r\n");
        let seen = upstream.take().await;
        assert!(!seen.iter().any(whole), "{fields:?}: {seen:?}");
    }
}
