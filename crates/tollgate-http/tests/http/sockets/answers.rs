//! Tests the responses to refused requests: problem JSON, text and a custom page, for all methods.

use crate::sockets::client::{Version, connected, on_all};
use crate::sockets::run::{builder, keyed, layer, per_address, per_key, run, single};
use crate::sockets::server::{KINDS, Kind, site, text};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use tollgate::{ManualClock, Quota};
use tollgate_http::{Limit, RefusalReason};
use tollgate_testing::structured::rate_limit;

#[test]
fn a_refusal_is_a_problem_in_json_that_names_all_that_is_violated() {
    on_all(async |kind, version| {
        let clock = ManualClock::new();
        let layer = layer([
            per_address(&keyed(Quota::per_minute(1), &clock)),
            Limit::new("roomy", single(Quota::per_minute(100), &clock)),
            per_key(&keyed(Quota::per_hour(1), &clock)),
        ]);
        let (_server, mut client) = connected(kind, layer, site(), version).await;
        client.ask(Request::get("/").header("x-api-key", "a")).await;
        let reply = client.ask(Request::get("/").header("x-api-key", "a")).await;
        assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(reply.text("content-type"), Some("application/problem+json"));
        assert_eq!(reply.number("content-length"), Some(reply.body.len() as u64));
        let problem: Value = serde_json::from_slice(&reply.body).unwrap();
        let exceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded";
        assert_eq!(problem["type"], exceeded);
        assert_eq!(problem["status"], 429);
        assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()));
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("per-key") && detail.contains("3600"), "{detail}");
        // The limit with the longest wait binds.
        assert_eq!(problem["violated-policies"], json!(["per-key", "per-address"]));
        assert_eq!(problem["limit"], "per-key");
        assert_eq!(problem["retry_after"], 3600);
        assert_eq!(reply.retry_after(), Some(3600));
    });
}

#[test]
fn the_key_of_a_client_is_in_no_answer() {
    run(async {
        let layer = layer([per_key(&keyed(Quota::per_hour(1), &ManualClock::new()))]);
        let (_server, mut client) = connected(Kind::Axum, layer, site(), Version::One).await;
        for _ in 0..2 {
            let reply = client.ask(Request::get("/").header("x-api-key", "s3cr3t")).await;
            assert!(!format!("{reply:?}").contains("s3cr3t"));
        }
    });
}

#[test]
fn a_refusal_can_be_plain_text_and_have_another_status() {
    run(async {
        let limiter = keyed(Quota::per_minute(1), &ManualClock::new());
        let layer = builder()
            .limit(per_address(&limiter))
            .plain_text()
            .status(StatusCode::SERVICE_UNAVAILABLE)
            .build()
            .unwrap();
        let (_server, mut client) = connected(Kind::Hyper, layer, site(), Version::One).await;
        client.get("/").await;
        let reply = client.get("/").await;
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(reply.text("content-type"), Some("text/plain; charset=utf-8"));
        let body = std::str::from_utf8(&reply.body).unwrap();
        assert!(body.contains("per-address") && body.contains("60 seconds"), "{body}");
        assert_eq!(reply.retry_after(), Some(60));
    });
}

#[test]
fn an_answer_of_ones_own_keeps_all_it_says_and_gets_the_fields() {
    run(async {
        let limiter = keyed(Quota::per_minute(1), &ManualClock::new());
        let layer = builder()
            .limit(per_address(&limiter))
            .respond(|refusal| {
                assert_eq!(refusal.reason, RefusalReason::Quota);
                let wait = refusal.retry_after_seconds.unwrap();
                let page = format!("{}: {wait} s: {}", refusal.limit_name, refusal.request.uri().path());
                let mut response = Response::new(Bytes::from(page));
                *response.status_mut() = StatusCode::IM_A_TEAPOT;
                response.headers_mut().insert("x-own", "yes".parse().unwrap());
                if refusal.request.uri().path() == "/patient" {
                    response.headers_mut().insert("retry-after", "3601".parse().unwrap());
                }
                response
            })
            .build()
            .unwrap();
        for kind in KINDS {
            let (_server, mut client) = connected(kind, layer.clone(), site(), Version::One).await;
            client.get("/").await;
            for (path, wait) in [("/soon", 60), ("/patient", 3601)] {
                let reply = client.get(path).await;
                assert_eq!(reply.status, StatusCode::IM_A_TEAPOT);
                assert_eq!(reply.body, format!("per-address: 60 s: {path}"));
                assert_eq!(reply.text("x-own"), Some("yes"));
                assert_eq!(reply.retry_after(), Some(wait));
                assert_eq!(rate_limit(&reply.headers), [("per-address".into(), 0, Some(60))]);
            }
        }
    });
}

#[test]
fn head_is_limited_and_answered_without_a_body_on_a_connection_that_goes_on() {
    on_all(async |kind, version| {
        let limiter = keyed(Quota::per_minute(2), &ManualClock::new());
        let (_server, mut client) = connected(kind, layer([per_address(&limiter)]), site(), version).await;
        let passed = client.ask(Request::head("/")).await;
        assert_eq!((passed.status, passed.body.len()), (StatusCode::OK, 0));
        assert_eq!(rate_limit(&passed.headers), [("per-address".into(), 1, Some(30))]);
        assert_eq!(client.get("/").await.body, "hello");
        let refused = client.ask(Request::head("/")).await;
        assert_eq!((refused.status, refused.body.len()), (StatusCode::TOO_MANY_REQUESTS, 0));
        assert_eq!(refused.retry_after(), Some(30));
        // The refusal of the HEAD request left no stray bytes on the connection, so the next
        // refusal can be read.
        let refused = client.get("/").await;
        let problem: Value = serde_json::from_slice(&refused.body).unwrap();
        assert_eq!(problem["retry_after"], 30, "{kind:?} {version:?}");
    });
}

#[test]
fn preflights_count_unless_they_are_skipped() {
    run(async {
        let preflight = || {
            let request = Request::builder().method(Method::OPTIONS).uri("/");
            request.header("origin", "https://example.org").header("access-control-request-method", "PUT")
        };
        for skips in [false, true] {
            let limiter = keyed(Quota::per_minute(1), &ManualClock::new());
            let builder = builder().limit(per_address(&limiter));
            let builder = if skips {
                builder.skip(|head| {
                    head.method() == Method::OPTIONS && head.header("access-control-request-method").is_some()
                })
            } else {
                builder
            };
            let (_server, mut client) =
                connected(Kind::Axum, builder.build().unwrap(), site(), Version::One).await;
            let first = client.ask(preflight()).await;
            assert_eq!(first.status, StatusCode::OK);
            assert_eq!(first.headers.contains_key("ratelimit"), !skips);
            let status = client.ask(preflight()).await.status;
            assert_eq!(status.is_success(), skips);
            let options = Request::builder().method(Method::OPTIONS).uri("/");
            assert_eq!(client.ask(options).await.status.is_success(), skips, "no preflight");
            assert_eq!(client.get("/").await.status, StatusCode::TOO_MANY_REQUESTS);
        }
    });
}

#[test]
fn an_upload_that_is_refused_is_answered_before_it_was_read() {
    run(async {
        for kind in KINDS {
            let limiter = keyed(Quota::per_minute(1), &ManualClock::new());
            let (_server, mut client) =
                connected(kind, layer([per_address(&limiter)]), site(), Version::Two).await;
            client.get("/").await;
            // The upload is larger than an HTTP/2 window, and nothing reads it.
            let upload = Request::post("/").body(text(vec![7; 1 << 20])).unwrap();
            let reply = client.send(upload).await.unwrap();
            assert_eq!(reply.status, StatusCode::TOO_MANY_REQUESTS);
            assert_eq!(client.get("/").await.status, StatusCode::TOO_MANY_REQUESTS);
        }
    });
}
