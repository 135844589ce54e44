//! Shadow limits, limits with exemptions, costs, and requests without a key.

use crate::sockets::client::{Client, VERSIONS, Version, connected, on_all};
use crate::sockets::run::{builder, keyed, layer, per_address, run, single};
use crate::sockets::server::{Kind, Server, site, text};
use http::{Request, StatusCode};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tollgate::{ManualClock, Quota};
use tollgate_http::{KeyBy, Limit, RequestCost, WhenNoKey};
use tollgate_testing::structured::{policies, rate_limit};

const OK: StatusCode = StatusCode::OK;
const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

#[test]
fn a_limit_in_shadow_mode_reports_and_never_refuses() {
    on_all(async |kind, version| {
        let clock = ManualClock::new();
        let trial = single(Quota::per_hour(2), &clock);
        let events: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
        let told = Arc::clone(&events);
        let layer = builder()
            .limit(Limit::new("trial", Arc::clone(&trial)).shadow())
            .limit(per_address(&keyed(Quota::per_hour(5), &clock)))
            .on_decision(move |event| {
                told.lock().unwrap().push((event.limit_name.to_owned(), event.would_refuse()));
            })
            .build()
            .unwrap();
        let (_server, mut client) = connected(kind, layer, site(), version).await;
        for number in 0..7 {
            let reply = client.get("/").await;
            assert_eq!(reply.status, if number < 5 { OK } else { TOO_MANY }, "{kind:?} {version:?}");
            let names: Vec<String> = rate_limit(&reply.headers).into_iter().map(|it| it.0).collect();
            assert_eq!(names, ["per-address"], "a shadow stands in no field");
            assert!(policies(&reply.headers).iter().all(|policy| policy.0 != "trial"));
            let mut events = std::mem::take(&mut *events.lock().unwrap());
            events.sort();
            let would = [("per-address".to_owned(), false), ("trial".to_owned(), number >= 2)];
            assert_eq!(events, would, "request {number}");
        }
    });
}

#[test]
fn a_shadow_is_charged_for_what_passes_and_for_nothing_else() {
    run(async {
        let clock = ManualClock::new();
        let trial = single(Quota::per_hour(10), &clock);
        let layer = builder()
            .limit(Limit::new("trial", Arc::clone(&trial)).shadow())
            .limit(per_address(&keyed(Quota::per_hour(3), &clock)))
            .on_decision(|_| {})
            .build()
            .unwrap();
        let (_server, mut client) = connected(Kind::Axum, layer, site(), Version::One).await;
        for _ in 0..6 {
            client.get("/").await;
        }
        assert_eq!(trial.peek().remaining(), 7);
    });
}

#[test]
fn what_is_skipped_is_not_counted_and_has_no_fields() {
    run(async {
        let clock = ManualClock::new();
        let (all, addresses) = (single(Quota::per_hour(4), &clock), keyed(Quota::per_hour(2), &clock));
        let layer = builder()
            .limit(Limit::new("all", Arc::clone(&all)))
            .limit(per_address(&addresses).skip(|head| head.header("x-friend").is_some()))
            .skip(|head| head.uri().path() == "/health")
            .build()
            .unwrap();
        let (_server, mut client) = connected(Kind::Hyper, layer, site(), Version::Two).await;
        for _ in 0..10 {
            let reply = client.get("/health").await;
            assert_eq!(reply.status, OK);
            assert!(reply.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
        }
        assert_eq!(all.peek().remaining(), 4);
        for expected in [OK, OK, TOO_MANY] {
            assert_eq!(client.get("/").await.status, expected);
        }
        // This client is exempt from only one of the limits.
        for (expected, left) in [(OK, 1), (OK, 0), (TOO_MANY, 0)] {
            let reply = client.ask(Request::get("/").header("x-friend", "1")).await;
            assert_eq!(reply.status, expected);
            let items: Vec<_> = rate_limit(&reply.headers).into_iter().map(|it| (it.0, it.1)).collect();
            assert_eq!(items, [("all".to_owned(), left)]);
        }
    });
}

#[test]
fn a_body_costs_what_its_length_says() {
    run(async {
        for version in VERSIONS {
            let limiter = keyed(Quota::per_hour(100), &ManualClock::new());
            let limit = per_address(&limiter).cost(RequestCost::content_length(1000, 40));
            let (server, mut client) = connected(Kind::Axum, layer([limit]), site(), version).await;
            let mut upload = async |bytes: usize| {
                let request = Request::post("/").header("content-length", bytes);
                client.send(request.body(text(vec![1; bytes])).unwrap()).await.unwrap()
            };
            for (bytes, left) in [(1, 99), (1000, 98), (1001, 96), (50_000, 46)] {
                let reply = upload(bytes).await;
                assert_eq!((reply.status, rate_limit(&reply.headers)[0].1), (OK, left), "{bytes}");
            }
            let refused = upload(47_000).await;
            assert_eq!((refused.status, rate_limit(&refused.headers)[0].1), (TOO_MANY, 46));
            assert_eq!(refused.retry_after(), Some(36), "for one token more");
            // A body whose length is unknown beforehand.
            let mut client = Client::connect(&server, version).await;
            let request = Request::post("/").body(crate::sockets::bodies::of_unknown_length()).unwrap();
            let reply = client.send(request).await.unwrap();
            assert_eq!((reply.status, rate_limit(&reply.headers)[0].1), (OK, 6), "{version:?}");
        }
    });
}

/// A limit by API key, of two requests an hour.
fn without_a_key(choice: WhenNoKey) -> Limit {
    let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
    Limit::new("per-key", limiter).by(KeyBy::api_key("x-api-key", "api_key")).when_no_key(choice)
}

#[test]
fn each_choice_for_requests_without_a_key_is_kept() {
    on_all(async |kind, version| {
        for choice in [WhenNoKey::Deny, WhenNoKey::Allow, WhenNoKey::Share] {
            let server = Server::start(kind, layer([without_a_key(choice)]), site()).await;
            // With `Share`, all requests without a key share one key, even if their addresses
            // differ.
            let mut one = Client::connect(&server, version).await;
            let mut other = Client::connect_from("127.0.0.2", &server, version).await;
            let found = [
                one.get("/").await.status,
                other.get("/").await.status,
                one.get("/").await.status,
                other.ask(Request::get("/?api_key=").header("x-api-key", "")).await.status,
            ];
            let expected = match choice {
                WhenNoKey::Deny => [StatusCode::FORBIDDEN; 4],
                WhenNoKey::Allow => [OK; 4],
                _ => [OK, OK, TOO_MANY, TOO_MANY],
            };
            assert_eq!(found, expected, "{kind:?} {version:?} {choice:?}");
            // Clients with a key are not affected.
            for expected in [OK, OK, TOO_MANY] {
                let reply = one.ask(Request::get("/").header("x-api-key", "secret")).await;
                assert_eq!(reply.status, expected);
            }
        }
    });
}

#[test]
fn a_refusal_for_want_of_a_key_is_a_problem_and_promises_no_wait() {
    run(async {
        let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
        let limit =
            Limit::new("per-key", limiter).by(KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Deny);
        let layer = builder().limit(limit).no_key_status(StatusCode::UNAUTHORIZED).build().unwrap();
        let (_server, mut client) = connected(Kind::Axum, layer, site(), Version::One).await;
        let reply = client.get("/").await;
        assert_eq!((reply.status, reply.retry_after()), (StatusCode::UNAUTHORIZED, None));
        assert_eq!(reply.text("content-type"), Some("application/problem+json"));
        let problem: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!((&problem["status"], &problem["limit"]), (&401.into(), &"per-key".into()));
    });
}

#[test]
fn a_key_is_the_same_client_in_the_header_and_in_the_query_and_another_than_an_address() {
    run(async {
        let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
        let by = KeyBy::api_key("x-api-key", "api_key").or(KeyBy::peer());
        let limit = Limit::new("per-client", limiter).by(by).when_no_key(WhenNoKey::Deny);
        let (_server, mut client) = connected(Kind::Axum, layer([limit]), site(), Version::One).await;
        // The client's address, sent as an API key.
        assert_eq!(client.ask(Request::get("/").header("x-api-key", "127.0.0.1")).await.status, OK);
        assert_eq!(client.get("/?api_key=127.0.0.1").await.status, OK);
        assert_eq!(client.get("/?x=1&api_key=127.0.0.%31").await.status, TOO_MANY);
        for expected in [OK, OK, TOO_MANY] {
            assert_eq!(client.get("/").await.status, expected);
        }
    });
}
