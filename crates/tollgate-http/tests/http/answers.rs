//! The responses to refused requests: problem JSON, text, custom responses, gRPC.

use super::site::{self, Running, Site, from, site, with};
use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body::Body as _;
use serde_json::json;
use std::time::Duration;
use tollgate::Quota;
use tollgate_http::{KeyBy, Limit, RefusalReason, WhenNoKey};

fn exhausted(site: Site) -> Running {
    let limiter = site.limiter(Quota::new(1, Duration::from_millis(2500)));
    let limit = Limit::new("per-path", limiter).by(KeyBy::path());
    let site = site.limit(limit).run();
    assert_eq!(site.status(with(&[])), 200);
    site
}

fn grpc(content_type: &str) -> http::Request<()> {
    site::grpc(with(&[]), content_type)
}

#[test]
fn a_refusal_is_a_problem_in_json() {
    let answer = exhausted(site()).send(with(&[]));
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    let expected = json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 429,
        "detail": "rate limit \"per-path\" exceeded: retry after 3 seconds",
        "violated-policies": ["per-path"],
        "error": "rate_limited",
        "limit": "per-path",
        "retry_after": 3,
    });
    assert_eq!(answer.json(), expected);
}

#[test]
fn the_status_is_settable_and_stands_in_the_problem() {
    let site = exhausted(site().with(|it| it.status(StatusCode::SERVICE_UNAVAILABLE)));
    let answer = site.send(with(&[]));
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["status"], 503);
}

#[test]
fn a_refusal_may_be_a_line_of_text() {
    let answer = exhausted(site().with(|builder| builder.plain_text())).send(with(&[]));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.body, "rate limit \"per-path\" exceeded: retry after 3 seconds\n");
    assert_eq!(answer.header("retry-after"), Some("3"));
}

#[test]
fn a_refusal_may_be_ones_own_and_has_the_fields_all_the_same() {
    let own = |set_wait: bool| {
        exhausted(site().with(|builder| {
            builder.respond(move |refusal| {
                assert_eq!((refusal.limit_name, refusal.violated), ("per-path", &["per-path"][..]));
                assert_eq!((refusal.reason, refusal.status.as_u16()), (RefusalReason::Quota, 429));
                assert_eq!(
                    refusal.decision.and_then(tollgate::Decision::retry_after),
                    Some(Duration::from_millis(2500))
                );
                assert_eq!(refusal.retry_after_seconds, Some(3));
                assert!(!refusal.decision.unwrap().is_allowed());
                let mut response = Response::new(Bytes::from(refusal.request.uri().path().to_owned()));
                *response.status_mut() = StatusCode::IM_A_TEAPOT;
                if set_wait {
                    response.headers_mut().insert("retry-after", "99".parse().unwrap());
                }
                response
            })
        }))
    };
    let answer = own(false).send(with(&[]));
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (418, "/"));
    assert_eq!(answer.header("retry-after"), Some("3"));
    assert_eq!(answer.items("ratelimit"), ["per-path r=0 t=3"]);
    assert_eq!(own(true).send(with(&[])).header("retry-after"), Some("99"));
}

#[test]
fn grpc_is_answered_with_trailers_only() {
    for content_type in
        ["application/grpc", "application/grpc+proto", "Application/GRPC;x=y", "application/grpc\t ; x=y"]
    {
        let site = exhausted(site().with(|builder| builder.plain_text()));
        let response = site.call(grpc(content_type)).unwrap();
        assert!(response.body().is_end_stream());
        assert_eq!(response.body().size_hint().exact(), Some(0));
        let answer = site.send(grpc(content_type));
        assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, ""));
        assert_eq!(answer.header("content-type"), Some("application/grpc"));
        assert_eq!(answer.header("grpc-status"), Some("8"));
        let message = "rate limit \"per-path\" exceeded: retry after 3 seconds";
        assert_eq!(answer.header("grpc-message"), Some(message));
        assert_eq!(answer.header("grpc-retry-pushback-ms"), Some("2500"));
        assert_eq!(answer.items("ratelimit"), ["per-path r=0 t=3"]);
    }
    // A gRPC-Web request receives a response of its own type.
    let web = exhausted(site()).send(grpc("application/grpc-web+proto"));
    assert_eq!(web.header("content-type"), Some("application/grpc-web+proto"));
    assert_eq!(web.header("grpc-status"), Some("8"));
    for other in [
        "application/grpcx",
        "application/grpc +proto",
        "application/json",
        "application/grp",
        "text/application/grpc",
    ] {
        assert_eq!(exhausted(site()).send(grpc(other)).status, 429, "{other}");
    }
}

/// gRPC always uses POST. A cache could keep a response with status 200 to GET or HEAD.
#[test]
fn a_request_for_grpc_with_another_method_is_refused_as_any_other() {
    for method in [Method::GET, Method::HEAD, Method::PUT] {
        let mut request = grpc("application/grpc");
        *request.method_mut() = method.clone();
        let answer = exhausted(site()).send(request);
        assert_eq!((answer.status.as_u16(), answer.header("grpc-status")), (429, None), "{method}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    }
}

#[test]
fn a_message_of_grpc_is_percent_encoded() {
    let site = site();
    let limiter = site.single(Quota::per_hour(1));
    let site = site.limit(Limit::new("50% off", limiter)).run();
    assert_eq!(site.send(grpc("application/grpc")).header("grpc-status"), None);
    let answer = site.send(grpc("application/grpc"));
    let message = "rate limit \"50%25 off\" exceeded: retry after 3600 seconds";
    assert_eq!(answer.header("grpc-message"), Some(message));
}

#[test]
fn who_has_no_key_is_told_so_and_not_to_come_again() {
    let refuse = |site: Site| {
        let limiter = site.limiter(Quota::per_hour(1));
        site.limit(
            Limit::new("per-tenant", limiter).by(KeyBy::header("x-tenant")).when_no_key(WhenNoKey::Deny),
        )
        .run()
    };
    let answer = refuse(site()).send(with(&[]));
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (403, None));
    assert_eq!(answer.json()["type"], "about:blank");
    assert_eq!(answer.json()["title"], "Forbidden");
    assert_eq!(answer.json()["limit"], "per-tenant");
    let bad = refuse(site().with(|builder| builder.no_key_status(StatusCode::BAD_REQUEST))).send(with(&[]));
    assert_eq!(bad.status, 400);
    let grpc = refuse(site()).send(grpc("application/grpc"));
    assert_eq!((grpc.status.as_u16(), grpc.header("grpc-status")), (200, Some("7")));
    let own = refuse(site().with(|builder| {
        builder.respond(|refusal| {
            assert_eq!(
                (refusal.reason, refusal.decision.and_then(tollgate::Decision::retry_after)),
                (RefusalReason::NoKey, None)
            );
            Response::new(Bytes::new())
        })
    }));
    assert_eq!(own.send(with(&[])).status, 200);
}

#[test]
fn bodies_know_their_size_and_end() {
    let site = exhausted(site());
    let refused = site.call(with(&[])).unwrap();
    let size = refused.body().size_hint().exact().unwrap();
    assert!(size > 100 && !refused.body().is_end_stream());
    assert_eq!(site.send(with(&[])).body.len() as u64, size);
    let passed = site.call(from("", "/other", &[])).unwrap();
    assert_eq!(passed.body().size_hint().exact(), Some(7));
    assert_eq!(site.send(from("", "/third", &[])).body, "handled");
}
