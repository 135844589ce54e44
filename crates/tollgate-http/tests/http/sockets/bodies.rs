//! Bodies pass untouched, frame by frame, with their trailers.

use crate::sockets::client::{Client, VERSIONS, Version, connected, on_all};
use crate::sockets::run::{keyed, layer, per_address, run};
use crate::sockets::server::{Failure, KINDS, Sent, Server, handler};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tollgate::{ManualClock, Quota};

/// A body whose frames come from a channel, one by one.
struct Piped(mpsc::Receiver<Frame<Bytes>>);

impl Body for Piped {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        self.0.poll_recv(context).map(|frame| frame.map(Ok))
    }
}

pub(crate) fn piped() -> (mpsc::Sender<Frame<Bytes>>, Sent) {
    let (sender, frames) = mpsc::channel(1);
    (sender, Piped(frames).boxed_unsync())
}

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([("x-checksum".parse().unwrap(), HeaderValue::from_static("7"))])
}

/// A short body whose length is unknown before its end.
pub(crate) fn of_unknown_length() -> Sent {
    let (sender, body) = piped();
    tokio::spawn(async move { sender.send(Frame::data("hello".into())).await });
    body
}

/// Some megabytes of pseudo-random bytes, in pieces of all sizes.
fn pieces() -> Vec<Bytes> {
    let mut state = 1_u32;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    (0..200).map(|_| (0..1 + next() % 60_000).map(|_| next().to_le_bytes()[1]).collect()).collect()
}

#[test]
fn a_large_body_passes_both_ways_with_its_trailers() {
    run(async {
        let pieces = pieces();
        let whole = pieces.concat();
        for (kind, version) in KINDS.into_iter().flat_map(|kind| VERSIONS.map(|version| (kind, version))) {
            // The response has the frames of the request, including the trailers.
            let echo = handler(|request| async {
                Ok(Response::builder().header("trailer", "x-checksum").body(request.into_body()).unwrap())
            });
            let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
            let (_server, mut client) = connected(kind, layer([per_address(&limiter)]), echo, version).await;
            let (sender, body) = piped();
            let sent = pieces.clone();
            tokio::spawn(async move {
                for piece in sent {
                    sender.send(Frame::data(piece)).await.ok()?;
                }
                sender.send(Frame::trailers(trailers())).await.ok()
            });
            let request = Request::post("/").header("te", "trailers").header("trailer", "x-checksum");
            let reply = client.send(request.body(body).unwrap()).await.unwrap();
            assert_eq!(reply.status, StatusCode::OK);
            assert_eq!(reply.body.len(), whole.len());
            assert!(reply.body == whole, "{kind:?} {version:?}");
            let trailers_read = reply.trailers.expect("trailers came through");
            assert_eq!(trailers_read, trailers(), "{kind:?} {version:?}");
            assert!(reply.headers.contains_key("ratelimit"));
        }
    });
}

#[test]
fn a_frame_arrives_before_the_next_one_is_made() {
    on_all(async |kind, version| {
        let (bodies, mut senders) = mpsc::unbounded_channel();
        let server = handler(move |_| {
            let (sender, body) = piped();
            bodies.send(sender).unwrap();
            async { Ok(Response::new(body)) }
        });
        let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
        let (_server, mut client) = connected(kind, layer([per_address(&limiter)]), server, version).await;
        let request = Request::get("/").body(crate::sockets::server::text("")).unwrap();
        let mut body = client.start(request).await.unwrap().into_body();
        let sender = senders.recv().await.unwrap();
        for word in ["one", "two", "three"] {
            sender.send(Frame::data(word.into())).await.unwrap();
            let frame = body.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), word, "{kind:?} {version:?}");
        }
        drop(sender);
        assert!(body.collect().await.unwrap().to_bytes().is_empty());
    });
}

#[test]
fn the_length_of_a_body_stays_known() {
    run(async {
        for kind in KINDS {
            let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
            let server =
                Server::start(kind, layer([per_address(&limiter)]), crate::sockets::server::site()).await;
            let mut client = Client::connect(&server, Version::One).await;
            let reply = client.get("/").await;
            assert_eq!(reply.number("content-length"), Some(5));
            assert_eq!(reply.text("transfer-encoding"), None);
            let head = client.ask(Request::head("/")).await;
            assert_eq!((head.number("content-length"), head.body.len()), (Some(5), 0));
        }
    });
}
