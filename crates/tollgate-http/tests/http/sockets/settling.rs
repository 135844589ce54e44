//! Tests limits whose cost is revealed by the response, in real servers. Servers differ in how far
//! they poll a body, and drop it if the client hangs up.

use crate::sockets::client::{Client, VERSIONS, Version, connected, on_all};
use crate::sockets::run::{layer, run, single};
use crate::sockets::server::{Failure, Kind, Sent, Server, handler, text};
use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tollgate::{ManualClock, Quota, SingleLimiter};
use tollgate_http::{Body, FailWhenCut, Limit, RateLimitLayer, RequestCost, ResponseCost};
use tower::util::MapResponseLayer;

const ESTIMATE: u64 = 20;

/// A limit of 100 tokens, which initially charges each request 20.
fn limited(settle: ResponseCost) -> (Arc<SingleLimiter>, RateLimitLayer) {
    let limiter = single(Quota::per_hour(100), &ManualClock::new());
    let limit = Limit::new("tokens", Arc::clone(&limiter)).cost(ESTIMATE).settle(settle);
    (limiter, layer([limit]))
}

fn charged(limiter: &SingleLimiter) -> u64 {
    100 - limiter.peek().remaining()
}

/// Waits until this many tokens are charged.
async fn until_charged(limiter: &SingleLimiter, tokens: u64, what: &str) {
    let waits = async {
        while charged(limiter) != tokens {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waits).await;
    assert!(waited.is_ok(), "{what}: {} are charged, not {tokens}", charged(limiter));
}

/// A body whose frames come from a channel.
fn piped() -> (mpsc::Sender<Frame<Bytes>>, Sent) {
    let (sender, mut frames) = mpsc::channel(1);
    let stream = futures_util::stream::poll_fn(move |context| frames.poll_recv(context).map(|it| it.map(Ok)));
    (sender, StreamBody::new(stream).boxed_unsync())
}

fn events(body: Sent) -> Response<Sent> {
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

fn get() -> Request<Sent> {
    Request::get("/").header("te", "trailers").body(text("")).unwrap()
}

#[test]
fn a_client_that_hangs_up_in_mid_stream_pays_for_what_was_sent() {
    on_all(async |kind, version| {
        let (bodies, mut senders) = mpsc::unbounded_channel();
        let (limiter, layer) = limited(ResponseCost::json("usage.total_tokens").or(ResponseCost::events()));
        let streaming = handler(move |_| {
            let (sender, body) = piped();
            bodies.send(sender).unwrap();
            async { Ok(events(body)) }
        });
        let server = Server::start(kind, layer, streaming).await;
        for (frames, cost) in [(0, ESTIMATE), (3, 3)] {
            let before = charged(&limiter);
            let mut client = Client::connect(&server, version).await;
            let mut body = client.start(get()).await.unwrap().into_body();
            let sender = senders.recv().await.unwrap();
            for number in 0..frames {
                sender.send(Frame::data(format!("data: {number}\n\n").into())).await.unwrap();
                body.frame().await.unwrap().unwrap();
            }
            assert_eq!(charged(&limiter) - before, ESTIMATE, "{kind:?} {version:?}");
            drop((body, client));
            sender.closed().await;
            until_charged(&limiter, before + cost, "hung up").await;
        }
    });
}

#[test]
fn a_whole_response_is_settled_however_the_server_asks_for_its_end() {
    const USAGE: &str = "{\"usage\":{\"total_tokens\":7}}";
    on_all(async |kind, version| {
        let settle = ResponseCost::trailer("x-tokens")
            .or(ResponseCost::json("usage.total_tokens"))
            .or(ResponseCost::bytes(2));
        let (limiter, layer) = limited(settle);
        let answering = handler(|request| async move {
            let json = Response::builder().header("content-type", "application/json");
            Ok(match request.uri().path() {
                "/json" => json.body(text(USAGE)).unwrap(),
                "/announced" => {
                    json.header("content-length", USAGE.len()).body(piping(vec![USAGE.into()])).unwrap()
                }
                "/empty" => Response::new(text("")),
                "/omitted" => json.header("content-length", USAGE.len()).body(text("")).unwrap(),
                "/trailers" => Response::builder().header("trailer", "x-tokens").body(trailing()).unwrap(),
                _ => Response::new(piping(vec!["abc".into(), "de".into()])),
            })
        });
        let (_server, mut client) = connected(kind, layer, answering, version).await;
        let paths = [("/json", 7), ("/announced", 7), ("/empty", 0), ("/trailers", 9), ("/unknown", 3)];
        let mut sum = 0;
        for (path, cost) in paths {
            let mut request = get();
            *request.uri_mut() = path.parse().unwrap();
            assert_eq!(client.send(request).await.unwrap().status, StatusCode::OK);
            sum += cost;
            until_charged(&limiter, sum, &format!("{kind:?} {version:?} {path}")).await;
        }
        // HTTP/1.1 servers omit the body of a response to HEAD, so the body reveals nothing. (With
        // HTTP/2, the handler must omit it.)
        let paths = if version == Version::One { &["/omitted", "/json"][..] } else { &["/omitted"] };
        for path in paths {
            assert_eq!(client.ask(Request::head(*path)).await.body.len(), 0);
            sum += ESTIMATE;
            until_charged(&limiter, sum, &format!("{kind:?} {version:?} HEAD {path}")).await;
        }
    });
}

/// A body of unknown length.
fn piping(data: Vec<Bytes>) -> Sent {
    frames(data.into_iter().map(Frame::data).collect())
}

/// A body whose trailers state the cost.
fn trailing() -> Sent {
    let trailers = HeaderMap::from_iter([("x-tokens".parse().unwrap(), HeaderValue::from_static("9"))]);
    frames(vec![Frame::data("abc".into()), Frame::trailers(trailers)])
}

fn frames(frames: Vec<Frame<Bytes>>) -> Sent {
    let (sender, body) = piped();
    tokio::spawn(async move {
        for frame in frames {
            sender.send(frame).await.ok()?;
        }
        Some(())
    });
    body
}

/// An endless stream of events, sent until the client stops reading.
fn endless() -> crate::sockets::server::Handler {
    handler(|_| async {
        let (sender, body) = piped();
        tokio::spawn(async move { while sender.send(Frame::data("data: x\n\n".into())).await.is_ok() {} });
        Ok(events(body))
    })
}

#[test]
fn an_endless_stream_ends_when_its_budget_is_spent() {
    on_all(async |kind, version| {
        let (limiter, layer) =
            limited(ResponseCost::events().input(RequestCost::from(30)).last_words("data: spent\n\n"));
        let (_server, mut client) = connected(kind, layer, endless(), version).await;
        let reply = client.send(get()).await.unwrap();
        assert_eq!(reply.body, "data: x\n\n".repeat(70) + "data: spent\n\n", "{kind:?} {version:?}");
        assert_eq!(charged(&limiter), 100);
        assert_eq!(client.send(get()).await.unwrap().status, StatusCode::TOO_MANY_REQUESTS);
    });
}

#[test]
fn a_cut_that_is_an_error_breaks_the_response_off() {
    run(async {
        for version in VERSIONS {
            let (limiter, layer) = limited(ResponseCost::events().cut_off());
            let endless = endless();
            let handle = move |request: Request<axum::body::Body>| {
                let answer = endless(request.map(|body| body.map_err(Failure::other).boxed_unsync()));
                async { answer.await.unwrap().map(axum::body::Body::new) }
            };
            let fail = MapResponseLayer::new(|response: Response<Body<axum::body::Body>>| {
                response.map(FailWhenCut::new)
            });
            let router = Router::new().fallback(handle).layer((fail, layer));
            let server = Server::serving(router).await;
            let mut client = Client::connect(&server, version).await;
            let mut body = client.start(get()).await.unwrap().into_body();
            let mut events = 0;
            let broken = loop {
                match body.frame().await {
                    Some(Ok(frame)) => events += frame.into_data().unwrap().len() / "data: x\n\n".len(),
                    Some(Err(error)) => break Some(error),
                    None => break None,
                }
            };
            assert!(broken.is_some(), "{version:?}: the end is not clean");
            // A reset may arrive before frames that were sent earlier.
            assert!(events <= 100 && (events == 100 || version == Version::Two), "{version:?}: {events}");
            assert_eq!(charged(&limiter), 100);
        }
    });
}

#[test]
fn a_response_of_known_length_that_is_cut_off_is_broken_off() {
    run(async {
        for version in VERSIONS {
            let (limiter, layer) = limited(ResponseCost::bytes(1).cut_off());
            let large = handler(|_| async {
                let data = vec![Bytes::from_static(&[b'x'; 60]); 2];
                Ok(Response::builder().header("content-length", 120).body(piping(data)).unwrap())
            });
            let (_server, mut client) = connected(Kind::Hyper, layer, large, version).await;
            assert!(client.send(get()).await.is_err(), "{version:?}");
            assert_eq!(charged(&limiter), 60);
        }
    });
}
