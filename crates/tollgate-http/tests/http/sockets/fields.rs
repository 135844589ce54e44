//! The rate limit headers of responses agree with the decisions.

use crate::sockets::client::{Client, VERSIONS, Version, connected, on_all};
use crate::sockets::run::{builder, keyed, layer, per_address, per_key, run, single};
use crate::sockets::server::{KINDS, Kind, Server, handler, site, text};
use http::{Request, Response, StatusCode};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::{Algorithm, Decision, Limiter, ManualClock, Quota, Tick};
use tollgate_http::{KeyBy, Limit, PeerAddr, RequestHead, WhenNoKey};
use tollgate_testing::structured::{policies, rate_limit};

fn rounded_up(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000_000)).unwrap()
}

/// The headers of one limit, computed from its decision.
fn expected(decision: &Decision) -> (u64, Option<u64>, Option<u64>) {
    let wait = decision.retry_after().map(|wait| rounded_up(wait).max(1));
    (decision.remaining(), wait, wait.filter(|_| !decision.is_allowed()))
}

#[test]
fn figures_are_those_of_the_decision_also_when_others_come_in_between() {
    on_all(async |kind, version| {
        let clock = ManualClock::new();
        let limiter = keyed(Quota::per_minute(7), &clock);
        let key = {
            let mut request = Request::new(());
            request.extensions_mut().insert(PeerAddr(([127, 0, 0, 1], 1).into()));
            KeyBy::peer().key("per-address", RequestHead::of(&request)).unwrap().unwrap()
        };
        let decided: Arc<Mutex<Vec<Decision>>> = Arc::default();
        let told = Arc::clone(&decided);
        // Between a decision and its response, other requests charge the key: once before the
        // handler runs, and once while it runs.
        let (before, within) = ((Arc::clone(&limiter), key.clone()), (Arc::clone(&limiter), key));
        let layer = builder()
            .limit(per_address(&limiter))
            .on_decision(move |event| {
                told.lock().unwrap().extend(event.decision.copied());
                let _ = before.0.check(&before.1);
            })
            .build()
            .unwrap();
        let within = handler(move |_| {
            let _ = within.0.check(&within.1);
            async { Ok(Response::new(text("hello"))) }
        });
        let (_server, mut client) = connected(kind, layer, within, version).await;
        let mut passed = 0;
        for _ in 0..12 {
            let reply = client.get("/").await;
            let decision = decided.lock().unwrap().pop().unwrap();
            let (remaining, wait, _) = expected(&decision);
            let fields = rate_limit(&reply.headers);
            assert_eq!(fields.len(), 1);
            assert_eq!((fields[0].0.as_str(), fields[0].1), ("per-address", remaining));
            assert_eq!(reply.retry_after(), wait.filter(|_| !decision.is_allowed()));
            if decision.is_allowed() {
                passed += 1;
                assert!(fields[0].2.is_some_and(|after| after >= 1));
            } else {
                assert_eq!(fields[0].2, wait, "t is Retry-After");
            }
            assert_eq!(reply.status.is_success(), decision.is_allowed());
            clock.advance(Duration::from_millis(1_700));
        }
        assert!((3..9).contains(&passed), "both were seen: {passed}");
    });
}

#[test]
fn who_waits_as_long_as_retry_after_says_passes_and_a_second_less_is_too_early() {
    run(async {
        let quotas = [
            Quota::new(1, Duration::from_millis(7_500)),
            Quota::new(3, Duration::from_secs(10)),
            Quota::new(7, Duration::from_secs(60)).burst(2),
            Quota::new(3, Duration::from_millis(1_001)),
            Quota::per_day(2),
        ];
        let mut denials = 0;
        for (algorithm, quota) in
            Algorithm::PACKED.into_iter().flat_map(|algorithm| quotas.map(|quota| (algorithm, quota)))
        {
            let clock = ManualClock::new();
            clock.set(Tick::from_nanos(123_456_789));
            let built = Limiter::builder(quota).algorithm(algorithm).clock(clock.clone()).build();
            // A window has no separate burst.
            let Ok(limiter) = built else { continue };
            let (_server, mut client) =
                connected(Kind::Hyper, layer([per_address(&Arc::new(limiter))]), site(), Version::One).await;
            for _ in 0..20 {
                let reply = client.get("/").await;
                if reply.status == StatusCode::OK {
                    assert_eq!(reply.retry_after(), None);
                    continue;
                }
                denials += 1;
                let wait = reply.retry_after().unwrap();
                assert!(wait >= 1, "{algorithm:?} {quota:?}");
                assert_eq!(rate_limit(&reply.headers)[0].2, Some(wait));
                let denied_at = clock.now();
                clock.advance(Duration::from_secs(wait - 1));
                let early = client.get("/").await;
                assert_eq!(early.status, StatusCode::TOO_MANY_REQUESTS, "{algorithm:?} {quota:?} {wait}");
                assert_eq!(early.retry_after(), Some(1), "{algorithm:?} {quota:?}");
                clock.set(denied_at);
                clock.advance(Duration::from_secs(wait));
                let late = client.get("/").await;
                assert_eq!(late.status, StatusCode::OK, "{algorithm:?} {quota:?} {wait}");
            }
        }
        assert!(denials > 100, "denials were seen: {denials}");
    });
}

#[test]
fn retry_after_is_a_second_at_least() {
    run(async {
        // A token is available again after a millisecond.
        let limiter = keyed(Quota::per_second(1000).burst(1), &ManualClock::new());
        for kind in KINDS {
            let (_server, mut client) =
                connected(kind, layer([per_address(&limiter)]), site(), Version::Two).await;
            client.get("/").await;
            let reply = client.get("/").await;
            assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(reply.retry_after(), Some(1));
            assert_eq!(rate_limit(&reply.headers), [("per-address".into(), 0, Some(1))]);
        }
    });
}

#[test]
fn policies_are_the_quotas_in_whole_seconds() {
    run(async {
        let clock = ManualClock::new();
        let layer = layer([
            Limit::new("all \"of them\"", single(Quota::per_second(5000), &clock)),
            per_address(&keyed(Quota::per_hour(100).burst(20), &clock)),
            per_key(&keyed(Quota::new(5, Duration::from_millis(500)), &clock)),
        ]);
        let (_server, mut client) = connected(Kind::Axum, layer, site(), Version::One).await;
        let reply = client.get("/").await;
        let stated = [
            ("all \"of them\"".into(), 5000, Some(1)),
            ("per-address".into(), 100, Some(3600)),
            ("per-key".into(), 10, Some(1)),
        ];
        assert_eq!(policies(&reply.headers), stated);
        let left = rate_limit(&reply.headers);
        assert_eq!((left[0].0.as_str(), left[0].1), ("all \"of them\"", 4999));
        assert_eq!((left[1].0.as_str(), left[1].1), ("per-address", 19));
        assert_eq!(left.len(), 2, "a limit that does not count for the request says nothing of what is left");
    });
}

#[test]
fn a_changed_quota_is_told_from_the_next_response_on() {
    run(async {
        let limiter = keyed(Quota::per_hour(2), &ManualClock::new());
        let (_server, mut client) =
            connected(Kind::Hyper, layer([per_address(&limiter)]), site(), Version::One).await;
        let reply = client.get("/").await;
        assert_eq!(policies(&reply.headers), [("per-address".into(), 2, Some(3600))]);
        limiter.set_quota(Quota::per_minute(10)).unwrap();
        let reply = client.get("/").await;
        assert_eq!(policies(&reply.headers), [("per-address".into(), 10, Some(60))]);
    });
}

#[test]
fn the_older_fields_are_there_on_request_only() {
    run(async {
        let older = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
        for legacy in [false, true] {
            let limiter = keyed(Quota::per_minute(2), &ManualClock::new());
            let builder = builder().limit(per_address(&limiter));
            let layer = if legacy { builder.legacy_fields() } else { builder }.build().unwrap();
            let (_server, mut client) = connected(Kind::Axum, layer, site(), Version::One).await;
            for figures in [[2, 1, 30], [2, 0, 60], [2, 0, 60]] {
                let reply = client.get("/").await;
                let found = older.map(|name| reply.number(name));
                assert_eq!(found, figures.map(|figure| Some(figure).filter(|_| legacy)));
            }
        }
    });
}

#[test]
fn fields_can_be_left_out_but_not_retry_after() {
    run(async {
        let limiter = keyed(Quota::per_minute(1), &ManualClock::new());
        let layer = builder().limit(per_address(&limiter)).without_fields().build().unwrap();
        let (_server, mut client) = connected(Kind::Axum, layer, site(), Version::One).await;
        for (status, wait) in [(StatusCode::OK, None), (StatusCode::TOO_MANY_REQUESTS, Some(60))] {
            let reply = client.get("/").await;
            assert_eq!((reply.status, reply.retry_after()), (status, wait));
            assert!(reply.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
        }
    });
}

#[test]
fn the_fields_of_two_layers_are_one_list() {
    run(async {
        use axum::{Router, routing::get};
        let clock = ManualClock::new();
        let all = Limit::new("all", single(Quota::per_minute(10), &clock));
        let logins = per_address(&keyed(Quota::per_minute(1), &clock));
        let router = Router::new()
            .merge(Router::new().route("/login", get(async || "in")).layer(layer([logins])))
            .layer(layer([all]));
        let server = Server::serving(router).await;
        let mut client = Client::connect(&server, Version::One).await;
        for (status, remaining) in [(StatusCode::OK, 9), (StatusCode::TOO_MANY_REQUESTS, 8)] {
            let reply = client.get("/login").await;
            assert_eq!(reply.status, status);
            for name in ["ratelimit", "ratelimit-policy"] {
                assert_eq!(reply.headers.get_all(name).iter().count(), 1, "{name} is one line");
            }
            let mut left: Vec<_> =
                rate_limit(&reply.headers).into_iter().map(|(name, left, _)| (name, left)).collect();
            left.sort();
            assert_eq!(left, [("all".to_owned(), remaining), ("per-address".to_owned(), 0)]);
        }
    });
}

/// A service with a layer by address, then a middleware that identifies the user, then a layer by
/// user.
#[test]
fn what_the_limit_of_a_user_refuses_is_not_charged_to_the_address() {
    #[derive(Clone)]
    struct User(u64);
    run(async {
        use axum::{Router, extract, middleware, routing::get};
        for version in VERSIONS {
            let clock = ManualClock::new();
            let [addresses, users] =
                [Quota::per_minute(3), Quota::per_minute(1)].map(|quota| keyed(quota, &clock));
            let by_user = KeyBy::from_fn(|head| head.extensions().get::<User>().map(|user| user.0.into()));
            let per_user = Limit::new("per-user", users).by(by_user).when_no_key(WhenNoKey::Deny);
            let authenticate = async |mut request: extract::Request, next: middleware::Next| {
                let Some(user) =
                    request.headers().get("x-user").and_then(|it| it.to_str().ok()?.parse().ok())
                else {
                    return Err(StatusCode::UNAUTHORIZED);
                };
                request.extensions_mut().insert(User(user));
                Ok(next.run(request).await)
            };
            let router = Router::new()
                .route("/", get(async || "hello"))
                .layer(layer([per_user]))
                .layer(middleware::from_fn(authenticate))
                .layer(layer([per_address(&addresses).charge_if(|response| !response.is_refusal())]));
            let server = Server::serving(router).await;
            let mut client = Client::connect(&server, version).await;
            let (ok, refused, unknown) =
                (StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::UNAUTHORIZED);
            // The second and third requests of user 1 are refused, and cost the address nothing. A
            // request without a user and a request of another user each cost the address a token.
            for (user, status, wait) in [
                ("1", ok, None),
                ("1", refused, Some(60)),
                ("1", refused, Some(60)),
                ("", unknown, None),
                ("2", ok, None),
                ("3", refused, Some(20)),
            ] {
                let reply = client.ask(Request::get("/").header("x-user", user)).await;
                assert_eq!((reply.status, reply.retry_after()), (status, wait), "{version:?} {user}");
                for name in ["ratelimit", "ratelimit-policy"] {
                    assert_eq!(reply.headers.get_all(name).iter().count(), 1, "{name} is one line");
                }
                let fields = rate_limit(&reply.headers);
                let names: Vec<_> = fields.iter().map(|(name, ..)| name.as_str()).collect();
                let both = ["per-user", "per-address"];
                let outer_only = user.is_empty() || user == "3";
                assert_eq!(names, if outer_only { &both[1..] } else { &both[..] });
            }
        }
    });
}

#[test]
fn no_wait_is_promised_where_none_helps() {
    run(async {
        use tollgate_http::RequestCost;
        let limiter = keyed(Quota::per_minute(5), &ManualClock::new());
        let by = KeyBy::peer();
        let limit = Limit::new("uploads", limiter)
            .by(by)
            .when_no_key(WhenNoKey::Deny)
            .cost(RequestCost::from_fn(|head| if head.uri().path() == "/large" { 6 } else { 1 }));
        let (_server, mut client) = connected(Kind::Axum, layer([limit]), site(), Version::One).await;
        let reply = client.get("/large").await;
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(reply.retry_after(), None);
        assert_eq!(rate_limit(&reply.headers), [("uploads".into(), 5, None)]);
        assert_eq!(client.get("/small").await.status, StatusCode::OK);
    });
}
