//! Tests that everything that uses a layer shares its limits: connections, streams, clones, routes
//! and servers. All of these tests would fail if the layer had a separate limiter for each
//! connection, as some other layers do.

use crate::sockets::client::{Client, VERSIONS, Version, on_all};
use crate::sockets::run::{builder, keyed, layer, per_address, per_key, run, single};
use crate::sockets::server::{KINDS, Kind, Server, handler, site, text};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tollgate::{ManualClock, Quota};
use tollgate_http::Limit;

const OK: StatusCode = StatusCode::OK;
const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

#[test]
fn a_limit_holds_across_connections_that_follow_each_other() {
    on_all(async |kind, version| {
        let limiter = keyed(Quota::per_hour(3), &ManualClock::new());
        let server = Server::start(kind, layer([per_address(&limiter)]), site()).await;
        for expected in [OK, OK, OK, TOO_MANY, TOO_MANY] {
            let reply = Client::connect(&server, version).await.get("/").await;
            assert_eq!(reply.status, expected, "{kind:?} {version:?}");
        }
        // Another address has its own count.
        let mut other = Client::connect_from("127.0.0.2", &server, version).await;
        assert_eq!(other.get("/").await.status, OK, "{kind:?} {version:?}");
    });
}

#[test]
fn a_limit_holds_across_connections_that_are_open_together_and_their_requests() {
    on_all(async |kind, version| {
        let limiter = keyed(Quota::per_hour(4), &ManualClock::new());
        let server = Server::start(kind, layer([per_address(&limiter)]), site()).await;
        let mut one = Client::connect(&server, version).await;
        let mut other = Client::connect(&server, version).await;
        for expected in [OK, OK, TOO_MANY] {
            assert_eq!(one.get("/").await.status, expected, "{kind:?} {version:?}");
            assert_eq!(other.get("/").await.status, expected, "{kind:?} {version:?}");
        }
    });
}

#[test]
fn servers_before_which_clones_of_a_layer_stand_share_its_limits() {
    run(async {
        let limiter = keyed(Quota::per_hour(4), &ManualClock::new());
        let layer = layer([per_address(&limiter)]);
        let mut clients = Vec::new();
        let mut servers = Vec::new();
        for (kind, version) in KINDS.into_iter().flat_map(|kind| VERSIONS.map(|version| (kind, version))) {
            let server = Server::start(kind, layer.clone(), site()).await;
            clients.push(Client::connect(&server, version).await);
            servers.push(server);
        }
        for expected in [OK, TOO_MANY] {
            for client in &mut clients {
                assert_eq!(client.get("/").await.status, expected);
            }
        }
    });
}

#[test]
fn routes_of_one_router_share_its_limits() {
    run(async {
        use axum::{Router, routing::get};
        let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
        // axum makes a service for each route.
        let router = Router::new()
            .route("/a", get(async || "a"))
            .route("/b", get(async || "b"))
            .nest("/c", Router::new().route("/d", get(async || "d")))
            .layer(layer([per_address(&limiter)]));
        let server = Server::serving(router).await;
        let mut client = Client::connect(&server, Version::One).await;
        for (path, expected) in [("/a", OK), ("/b", OK), ("/c/d", TOO_MANY), ("/a", TOO_MANY)] {
            assert_eq!(client.get(path).await.status, expected, "{path}");
        }
    });
}

/// The number of open connections, and of requests in progress.
const CONNECTIONS: usize = 1000;
const ADMITTED: usize = 137;

/// Raises the limit on file descriptors if it is too low for two tests with `CONNECTIONS`
/// connections each. Both ends of each connection are in this process.
fn make_room_for_descriptors() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let needed = CONNECTIONS as u64 * 2 * 2 + 500;
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        if current.is_some_and(|current| current < needed) {
            let enough = maximum.is_none_or(|maximum| maximum >= needed);
            assert!(enough, "this test needs {needed} open files; `ulimit -Hn` says {maximum:?}");
            setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).unwrap();
        }
    }
}

/// Lets a thousand clients with ten addresses use the same API key. The handler waits until all
/// thousand requests have been decided, so that all of them are in progress at the same time.
async fn a_thousand(kind: Kind, version: Version) {
    let clock = ManualClock::new();
    let keys = keyed(Quota::per_hour(ADMITTED as u64), &clock);
    let all = single(Quota::per_hour(ADMITTED as u64 + 1), &clock);
    let (decided, handled) = (watch::Sender::new(0), Arc::new(AtomicUsize::new(0)));
    let watched = decided.subscribe();
    let layer = builder()
        .limit(per_key(&keys))
        .limit(Limit::new("all", Arc::clone(&all)))
        .on_decision(move |event| {
            if event.limit_name == "per-key" {
                decided.send_modify(|count| *count += 1);
            }
        })
        .build()
        .unwrap();
    let counted = Arc::clone(&handled);
    let server = Server::start(
        kind,
        layer,
        handler(move |_| {
            let (mut watched, handled) = (watched.clone(), Arc::clone(&counted));
            async move {
                handled.fetch_add(1, SeqCst);
                watched.wait_for(|&decided| decided == CONNECTIONS).await.unwrap();
                Ok(Response::new(text("hello")))
            }
        }),
    )
    .await;

    let mut clients = Vec::with_capacity(CONNECTIONS);
    for number in 0..CONNECTIONS {
        let from = format!("127.0.0.{}", 1 + number % 10);
        clients.push(Client::connect_from(&from, &server, version).await);
    }
    let mut replies = JoinSet::new();
    for mut client in clients {
        replies.spawn(async move {
            let request = Request::get("/").header("x-api-key", "secret");
            let reply = client.send(request.body(text(Bytes::new())).unwrap()).await.unwrap();
            // All connections stay open until the last request has been answered.
            (reply, client)
        });
    }
    let replies = replies.join_all().await;
    assert_eq!(replies.len(), CONNECTIONS);
    let count = |status| replies.iter().filter(|(reply, _)| reply.status == status).count();
    assert_eq!(count(OK), ADMITTED, "{kind:?} {version:?}");
    assert_eq!(count(TOO_MANY), CONNECTIONS - ADMITTED, "{kind:?} {version:?}");
    assert_eq!(handled.load(SeqCst), ADMITTED, "a refused request reached the handler");
    // The other limit was charged only for the admitted requests.
    assert_eq!(all.peek().remaining(), 1, "{kind:?} {version:?}");
}

#[test]
fn of_a_thousand_connections_to_axum_exactly_the_limit_is_admitted() {
    make_room_for_descriptors();
    run(a_thousand(Kind::Axum, Version::One));
}

#[test]
fn of_a_thousand_connections_to_hyper_with_http2_exactly_the_limit_is_admitted() {
    make_room_for_descriptors();
    run(a_thousand(Kind::Hyper, Version::Two));
}
