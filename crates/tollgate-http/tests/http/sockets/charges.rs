//! Tests what a request ends up costing when charges depend on the response, a handler fails, or a
//! client hangs up.

use crate::sockets::client::{Client, VERSIONS, Version, connected, on_all};
use crate::sockets::run::{keyed, layer, per_address, run, single};
use crate::sockets::server::{Handler, KINDS, Kind, Server, handler, site, text};
use http::{Response, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tollgate::{ManualClock, Quota};
use tollgate_http::Limit;

const OK: StatusCode = StatusCode::OK;
const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

#[test]
fn what_failed_with_a_server_error_is_given_back() {
    on_all(async |kind, version| {
        let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
        let limit = per_address(&limiter).charge_if(|response| !response.status().is_server_error());
        let (_server, mut client) = connected(kind, layer([limit]), site(), version).await;
        for status in [500, 503, 200, 500, 502, 404] {
            let reply = client.get(&format!("/status/{status}")).await;
            assert_eq!(reply.status, status, "{kind:?} {version:?}");
        }
        // The responses with status 200 and 404 have used up both tokens.
        assert_eq!(client.get("/status/500").await.status, TOO_MANY, "{kind:?} {version:?}");
    });
}

#[test]
fn without_a_rule_a_failure_is_charged_like_anything_else() {
    run(async {
        let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
        let (_server, mut client) =
            connected(Kind::Axum, layer([per_address(&limiter)]), site(), Version::One).await;
        for expected in [500, 500, 429] {
            assert_eq!(client.get("/status/500").await.status, expected);
        }
    });
}

/// Requests `path` on ten connections, and expects no response.
async fn fail(server: &Server, version: Version, path: &str) {
    for _ in 0..10 {
        let mut client = Client::connect(server, version).await;
        let request = http::Request::get(path).body(text("")).unwrap();
        assert!(client.send(request).await.is_err(), "{path}");
    }
}

#[test]
fn what_failed_without_a_response_is_given_back_unless_it_is_to_be_kept() {
    run(async {
        for version in VERSIONS {
            for keeps in [false, true] {
                let all = single(Quota::per_hour(30), &ManualClock::new());
                let limit = Limit::new("all", Arc::clone(&all)).charge_if(|_| true);
                let limit = if keeps { limit.keep_on_error() } else { limit };
                let server = Server::start(Kind::Hyper, layer([limit]), site()).await;
                fail(&server, version, "/error").await;
                assert_eq!(all.peek().remaining(), if keeps { 20 } else { 30 }, "{version:?} {keeps}");
            }
        }
    });
}

#[test]
fn a_handler_that_panics_leaves_no_less_than_one_that_fails() {
    on_all(async |kind, version| {
        for keeps in [false, true] {
            let all = single(Quota::per_hour(30), &ManualClock::new());
            let limit = Limit::new("all", Arc::clone(&all)).charge_if(|_| true);
            let limit = if keeps { limit.keep_on_error() } else { limit };
            let server = Server::start(kind, layer([limit]), site()).await;
            fail(&server, version, "/panic").await;
            let left = all.peek().remaining();
            assert_eq!(left, if keeps { 20 } else { 30 }, "{kind:?} {version:?} {keeps}");
        }
    });
}

#[test]
fn wrong_passwords_alone_are_charged_and_never_more_than_the_limit_under_concurrency() {
    run(async {
        const WRONG: usize = 5;
        for (kind, version) in KINDS.into_iter().flat_map(|kind| VERSIONS.map(|version| (kind, version))) {
            let limiter = keyed(Quota::per_hour(WRONG as u64), &ManualClock::new());
            let limit = per_address(&limiter).charge_if(|response| response.status() == 401);
            let server = Server::start(kind, layer([limit]), site()).await;
            let mut replies = JoinSet::new();
            for number in 0..120 {
                let mut client = Client::connect(&server, version).await;
                let path = if number % 3 == 0 { "/status/200" } else { "/status/401" };
                replies.spawn(async move { client.get(path).await.status });
            }
            let replies = replies.join_all().await;
            let count = |status: u16| replies.iter().filter(|it| **it == status).count();
            assert_eq!(count(200) + count(401) + count(429), 120);
            // A correct password holds a token while it is checked, so the layer may have refused
            // some wrong passwords early.
            assert!((1..=WRONG).contains(&count(401)), "{}", count(401));
            let mut client = Client::connect(&server, version).await;
            for _ in count(401)..WRONG {
                assert_eq!(client.get("/").await.status, OK, "a right one costs nothing");
                assert_eq!(client.get("/status/401").await.status, 401);
            }
            assert_eq!(client.get("/status/401").await.status, TOO_MANY, "{kind:?} {version:?}");
            assert_eq!(client.get("/").await.status, TOO_MANY);
        }
    });
}

#[test]
fn attempts_that_are_under_way_together_are_held_to_the_limit() {
    run(async {
        const WRONG: usize = 5;
        for kind in KINDS {
            let limiter = keyed(Quota::per_hour(WRONG as u64), &ManualClock::new());
            let limit = per_address(&limiter).charge_if(|response| response.status() == 401);
            let (seen, release) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
            let (counted, released) = (Arc::clone(&seen), release.subscribe());
            // No attempt ends before all other attempts have been refused.
            let slow = handler(move |_| {
                counted.fetch_add(1, SeqCst);
                let mut released = released.clone();
                async move {
                    released.wait_for(|&released| released).await.unwrap();
                    Ok(Response::builder().status(401).body(text("wrong")).unwrap())
                }
            });
            let server = Server::start(kind, layer([limit]), slow).await;
            let (refusals, mut refused) = mpsc::unbounded_channel();
            let mut replies = JoinSet::new();
            for _ in 0..100 {
                let mut client = Client::connect(&server, Version::One).await;
                let refusals = refusals.clone();
                replies.spawn(async move {
                    let status = client.get("/").await.status;
                    if status == TOO_MANY {
                        refusals.send(()).unwrap();
                    }
                    status
                });
            }
            for _ in WRONG..100 {
                refused.recv().await.unwrap();
            }
            assert_eq!(seen.load(SeqCst), WRONG);
            release.send_replace(true);
            let replies = replies.join_all().await;
            assert_eq!(replies.iter().filter(|status| **status == 401).count(), WRONG);
        }
    });
}

/// Sends a message when it is dropped.
struct Dropped(mpsc::UnboundedSender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

/// A handler that never answers. It reports when it is called and when it is dropped.
fn endless(told: mpsc::UnboundedSender<&'static str>) -> Handler {
    handler(move |_| {
        let dropped = Dropped(told.clone());
        async move {
            dropped.0.send("began").unwrap();
            std::future::pending::<()>().await;
            Ok(Response::new(text("never")))
        }
    })
}

#[test]
fn who_hangs_up_is_charged_all_the_same() {
    on_all(async |kind, version| {
        for decided_later in [false, true] {
            let all = single(Quota::per_hour(10), &ManualClock::new());
            let limit = Limit::new("all", Arc::clone(&all));
            let limit = if decided_later { limit.charge_if(|_| false) } else { limit };
            let (told, mut events) = mpsc::unbounded_channel();
            let server = Server::start(kind, layer([limit]), endless(told)).await;
            for left in [9, 8, 7] {
                let mut client = Client::connect(&server, version).await;
                let request = http::Request::get("/").body(text("")).unwrap();
                tokio::select! {
                    _ = client.send(request) => panic!("nobody answers"),
                    event = events.recv() => assert_eq!(event, Some("began")),
                }
                drop(client);
                assert_eq!(events.recv().await, Some("dropped"));
                assert_eq!(all.peek().remaining(), left, "{kind:?} {version:?} {decided_later}");
            }
        }
    });
}
