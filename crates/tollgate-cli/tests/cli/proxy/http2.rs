//! Tests HTTP/2 on both sides of the proxy, and gRPC over HTTP/2.

use super::running::{Proxy, within};
use super::upstream::{Body, Sent, Upstream, echo, hello};
use super::wire::metric_is;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

pub(crate) async fn connect<B>(to: SocketAddr) -> SendRequest<B>
where
    B: http_body::Body<Data = Bytes> + Unpin + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TcpStream::connect(to).await.unwrap();
    let (client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A body of this size that consists of small frames.
pub(crate) struct Uploading(usize);

impl Uploading {
    pub(crate) fn of(bytes: usize) -> Self {
        Self(bytes)
    }
}

impl http_body::Body for Uploading {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static ZEROS: [u8; 10_000] = [0; 10_000];
        let length = self.0.min(ZEROS.len());
        self.0 -= length;
        Poll::Ready((length > 0).then(|| Ok(Frame::data(Bytes::from_static(&ZEROS[..length])))))
    }
}

async fn text(response: Response<Incoming>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn clients_of_http2_are_served_over_one_connection_and_the_upstream_speaks_http1() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=3/h by ip"]);
    let mut client = connect::<Empty<Bytes>>(proxy.address).await;
    let request = || {
        Request::get("http://example.org/a?b")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(Empty::new())
            .unwrap()
    };
    let together =
        [client.send_request(request()), client.send_request(request()), client.send_request(request())];
    for response in together {
        let response = within(response).await.unwrap();
        assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
        let text = text(response).await;
        assert!(text.starts_with("GET /a?b HTTP/1.1\n"), "{text}");
        for line in [
            "host: example.org\n",
            "cookie: a=1; b=2\n",
            "via: 2.0 tollgate\n",
            "x-forwarded-for: 127.0.0.1\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
    let refused = within(client.send_request(request())).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn grpc_passes_with_trailers_and_is_refused_in_its_own_words() {
    let upstream = Upstream::start(async |request: Request<Incoming>| {
        assert_eq!(request.version(), Version::HTTP_2);
        assert_eq!(request.headers()["te"], "trailers");
        assert!(!request.headers().contains_key("connection"));
        let (head, body) = request.into_parts();
        let asked = body.collect().await.unwrap();
        let trailers = asked.trailers().cloned().unwrap_or_default();
        let (sender, body) = Sent::new(2);
        tokio::spawn(async move {
            sender.send(Frame::data(asked.to_bytes())).await.unwrap();
            let mut ends = HeaderMap::new();
            ends.insert("grpc-status", "0".parse().unwrap());
            ends.insert("asked-with", trailers["checksum"].clone());
            sender.send(Frame::trailers(ends)).await.unwrap();
        });
        let mut response: Response<Body> = Response::new(body.boxed_unsync());
        response.headers_mut().insert("content-type", head.headers["content-type"].clone());
        response
    })
    .await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by ip", "--upstream-http2"]);
    let mut client = connect(proxy.address).await;
    let request = || {
        let mut ends = HeaderMap::new();
        ends.insert("checksum", "7".parse().unwrap());
        let body = Full::new(Bytes::from_static(b"message")).with_trailers(async { Some(Ok(ends)) });
        let request = Request::post("http://example.org/package.Service/Method");
        request
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Box::pin(body))
            .unwrap()
    };
    let response = within(client.send_request(request())).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let passed = within(response.into_body().collect()).await.unwrap();
    let trailers = passed.trailers().unwrap().clone();
    assert_eq!(
        (&trailers["grpc-status"], &trailers["asked-with"]),
        (&"0".parse().unwrap(), &"7".parse().unwrap())
    );
    assert_eq!(passed.to_bytes(), "message");
    let refused = within(client.send_request(request())).await.unwrap();
    assert_eq!(
        (refused.status(), &refused.headers()["grpc-status"]),
        (StatusCode::OK, &"8".parse().unwrap())
    );
    assert_eq!(upstream.requests(), 1);
}

#[tokio::test]
async fn clients_of_http1_reach_an_upstream_of_http2() {
    let upstream = Upstream::start(echo).await;
    let proxy = Proxy::start(upstream.address, &["--upstream-http2"]);
    let reply = super::wire::get(proxy.address, "/a", "Cookie: a=1\r\n").await;
    assert!(reply.body.starts_with(&format!("GET http://{}/a HTTP/2.0\n", upstream.address)), "{reply:?}");
    assert_eq!(reply.echoed("x-forwarded-host"), ["example.org"]);
    assert_eq!(reply.echoed("host"), [""; 0]);
    assert_eq!(reply.field("via"), Some("2.0 tollgate"));
}

#[tokio::test]
async fn the_host_is_one_key_in_both_versions_and_in_any_spelling() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=3/h by header host"]);
    let mut client = connect::<Empty<Bytes>>(proxy.address).await;
    let request = || Request::get("http://Example.ORG:80/").body(Empty::new()).unwrap();
    assert_eq!(within(client.send_request(request())).await.unwrap().status(), StatusCode::OK);
    assert_eq!(super::wire::get(proxy.address, "/", "").await.status, 200);
    assert_eq!(super::wire::get(proxy.address, "http://example.org/", "").await.status, 200);
    assert_eq!(super::wire::get(proxy.address, "http://example.org?a", "").await.status, 429);
    let refused = within(client.send_request(request())).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    // An operator may also spell the host in any case.
    let state = super::wire::get(proxy.metrics, "/limits/a/keys/EXAMPLE.org", "").await.json();
    assert_eq!((&state["remaining"], &state["allowed"]), (&0.into(), &false.into()), "{state}");
}

#[tokio::test]
async fn a_request_of_http2_has_at_most_a_hundred_fields() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=2/h by ip", "--bad-request-limit", "2/h"]);
    let mut client = connect::<Empty<Bytes>>(proxy.address).await;
    let request = |fields: usize| {
        let request = Request::get("http://example.org/").header("x-a", "1");
        // Over HTTP/1, all cookies are in one field.
        let request = (0..50).fold(request, |request, at| request.header("cookie", format!("c{at}=1")));
        let request = (2..fields).fold(request, |request, _| request.header("x-b", "1"));
        request.body(Empty::new()).unwrap()
    };
    // The upstream also allows a hundred fields, and the proxy adds some. The request that is too
    // large is not charged.
    for (fields, status) in [(90, 200), (101, 431), (90, 200), (90, 429)] {
        let response = within(client.send_request(request(fields))).await.unwrap();
        assert_eq!(response.status(), status, "{fields}");
    }
    metric_is(proxy.metrics, "tollgate_bad_requests_total{kind=\"head-too-large\"}", 1.0).await;
}
