//! Tests permits for downloads. A download keeps its permit until the body has been sent or the
//! client hangs up.

use crate::sockets::bodies::piped;
use crate::sockets::client::{Client, on_all};
use crate::sockets::run::layer;
use crate::sockets::server::{Handler, Server, handler, text};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tollgate::InFlight;
use tollgate_http::{Key, KeyBy, Limit, WhenNoKey};

const PLACES: usize = 3;

fn places() -> InFlight<Key> {
    InFlight::builder(PLACES as u64).build().unwrap()
}

fn per_address(places: &InFlight<Key>) -> Limit {
    Limit::new("downloads", places.clone()).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny)
}

/// Returns how many permits of the one address are taken.
fn out(places: &InFlight<Key>) -> u64 {
    places.in_flight(&Key::new("downloads", [std::net::IpAddr::from([127, 0, 0, 1])]))
}

/// Waits until this many permits are taken, at most until the test's deadline.
async fn until_out(places: &InFlight<Key>, taken: usize) {
    while out(places) != taken as u64 {
        tokio::task::yield_now().await;
    }
}

/// Returns a handler that responds immediately. For each response, the channel delivers a sender
/// for the frames of the body.
fn downloads() -> (Handler, mpsc::UnboundedReceiver<mpsc::Sender<Frame<Bytes>>>) {
    let (bodies, senders) = mpsc::unbounded_channel();
    let handler = handler(move |_| {
        let (sender, body) = piped();
        bodies.send(sender).unwrap();
        async { Ok(Response::new(body)) }
    });
    (handler, senders)
}

fn request() -> Request<crate::sockets::server::Sent> {
    Request::get("/").body(text("")).unwrap()
}

#[test]
fn slow_downloads_hold_their_places_until_their_last_byte() {
    on_all(async |kind, version| {
        let places = places();
        let (handler, mut senders) = downloads();
        let server = Server::start(kind, layer([per_address(&places)]), handler).await;
        let mut under_way = Vec::new();
        for _ in 0..PLACES {
            let mut client = Client::connect(&server, version).await;
            let response = client.start(request()).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{kind:?} {version:?}");
            let (sender, mut body) = (senders.recv().await.unwrap(), response.into_body());
            sender.send(Frame::data("begun".into())).await.unwrap();
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "begun");
            under_way.push((client, sender, body));
        }
        let mut client = Client::connect(&server, version).await;
        for _ in 0..2 {
            let refused = client.get("/").await;
            assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{kind:?} {version:?}");
            assert_eq!(refused.retry_after(), None);
            assert_eq!(refused.text("ratelimit"), Some("\"downloads\";r=0"));
        }
        // One download ends, then a client hangs up in the middle of a body. Each releases a
        // permit.
        let (_client, sender, body) = under_way.pop().unwrap();
        drop(sender);
        assert!(body.collect().await.unwrap().to_bytes().is_empty());
        until_out(&places, PLACES - 1).await;
        let (client, sender, body) = under_way.pop().unwrap();
        drop((client, body));
        sender.closed().await;
        until_out(&places, PLACES - 2).await;
        for _ in 0..2 {
            let mut client = Client::connect(&server, version).await;
            let response = client.start(request()).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK, "{kind:?} {version:?}");
            under_way.push((client, senders.recv().await.unwrap(), response.into_body()));
        }
        assert_eq!(out(&places), PLACES as u64);
        drop(under_way);
        until_out(&places, 0).await;
    });
}

#[test]
fn a_client_that_hangs_up_before_the_response_frees_its_place() {
    on_all(async |kind, version| {
        let places = places();
        let (began, mut beginnings) = mpsc::unbounded_channel();
        let taken = places.clone();
        let endless = handler(move |_| {
            began.send(out(&taken)).unwrap();
            async {
                std::future::pending::<()>().await;
                Ok(Response::new(text("never")))
            }
        });
        let server = Server::start(kind, layer([per_address(&places)]), endless).await;
        for _ in 0..2 * PLACES {
            let mut client = Client::connect(&server, version).await;
            tokio::select! {
                _ = client.send(request()) => panic!("nobody answers"),
                taken = beginnings.recv() => assert_eq!(taken, Some(1), "{kind:?} {version:?}"),
            }
            drop(client);
            until_out(&places, 0).await;
        }
    });
}
