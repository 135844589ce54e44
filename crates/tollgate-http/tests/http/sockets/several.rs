//! Tests that a request with several limits is charged to all of them or to none, and that the
//! response names the binding limit.

use crate::sockets::client::{Client, Version, connected, on_all};
use crate::sockets::run::{builder, keyed, layer, per_address, per_key, run, single};
use crate::sockets::server::{Kind, Server, site};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;
use tollgate::{ManualClock, Quota};
use tollgate_http::Limit;
use tollgate_testing::structured::rate_limit;

fn left(reply: &crate::sockets::client::Reply) -> Vec<(String, u64)> {
    rate_limit(&reply.headers).into_iter().map(|(name, left, _)| (name, left)).collect()
}

#[test]
fn what_the_others_were_charged_is_given_back_and_the_binding_limit_is_named() {
    on_all(async |kind, version| {
        let clock = ManualClock::new();
        let all = single(Quota::per_hour(10), &clock);
        let addresses = keyed(Quota::per_hour(5), &clock);
        let keys = keyed(Quota::per_minute(2), &clock);
        // The limit that refuses may be at any position.
        for place in 0..3 {
            let mut limits = vec![Limit::new("all", Arc::clone(&all)), per_address(&addresses)];
            limits.insert(place, per_key(&keys));
            let (_server, mut client) = connected(kind, layer(limits), site(), version).await;
            let mut ask = async || client.ask(Request::get("/").header("x-api-key", "secret")).await;
            if place == 0 {
                for _ in 0..2 {
                    assert_eq!(ask().await.status, StatusCode::OK);
                }
            }
            for _ in 0..20 {
                let reply = ask().await;
                assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS, "{kind:?} {version:?} {place}");
                let problem: Value = serde_json::from_slice(&reply.body).unwrap();
                assert_eq!(problem["violated-policies"], json!(["per-key"]));
                let mut expected = vec![("all".to_owned(), 8), ("per-address".to_owned(), 3)];
                expected.insert(place, ("per-key".to_owned(), 0));
                assert_eq!(left(&reply), expected);
            }
            assert_eq!(all.peek().remaining(), 8);
        }
    });
}

#[test]
fn of_two_that_refuse_the_one_with_the_longer_wait_binds() {
    run(async {
        for swapped in [false, true] {
            let clock = ManualClock::new();
            let mut limits = vec![
                per_address(&keyed(Quota::per_hour(1), &clock)),
                Limit::new("all", single(Quota::per_minute(1), &clock)),
            ];
            if swapped {
                limits.reverse();
            }
            let events: Arc<Mutex<Vec<(String, bool, bool)>>> = Arc::default();
            let told = Arc::clone(&events);
            let layer = limits.into_iter().fold(builder(), |builder, limit| builder.limit(limit));
            let layer = layer.on_decision(move |event| {
                let event = (event.limit_name.to_owned(), event.is_binding, event.is_refused);
                told.lock().unwrap().push(event);
            });
            let (_server, mut client) =
                connected(Kind::Axum, layer.build().unwrap(), site(), Version::One).await;
            client.get("/").await;
            events.lock().unwrap().clear();
            let reply = client.get("/").await;
            let problem: Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!(problem["violated-policies"], json!(["per-address", "all"]));
            assert_eq!(reply.retry_after(), Some(3600));
            // Each item states its own limit's wait, which never exceeds `Retry-After`.
            let mut items = rate_limit(&reply.headers);
            items.sort();
            assert_eq!(items, [("all".into(), 0, Some(60)), ("per-address".into(), 0, Some(3600))]);
            let mut told = events.lock().unwrap().clone();
            told.sort();
            assert_eq!(told, [("all".into(), false, true), ("per-address".into(), true, true)]);
        }
    });
}

#[test]
fn under_concurrency_no_limit_is_exceeded_and_nothing_stays_charged_for_the_refused() {
    on_all(async |kind, version| {
        let clock = ManualClock::new();
        let all = single(Quota::per_hour(1000), &clock);
        let keys = keyed(Quota::per_hour(7), &clock);
        let limits = [Limit::new("all", Arc::clone(&all)), per_key(&keys)];
        let server = Server::start(kind, layer(limits), site()).await;
        let mut replies = JoinSet::new();
        for number in 0..100 {
            let mut client = Client::connect(&server, version).await;
            let key = format!("key-{}", number % 5);
            replies.spawn(async move { client.ask(Request::get("/").header("x-api-key", key)).await.status });
        }
        let replies = replies.join_all().await;
        let passed = replies.iter().filter(|status| status.is_success()).count();
        assert_eq!(passed, 5 * 7, "{kind:?} {version:?}");
        assert_eq!(all.peek().remaining(), 1000 - 35, "{kind:?} {version:?}");
    });
}
