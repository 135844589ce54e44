//! Tests requests from pages of another origin (CORS): which layer must be the outer one, and which
//! fields of a refusal a page may read.

use super::site::site;
use axum::body::Body;
use axum::{Router, routing::get};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use tollgate::Quota;
use tollgate_http::{Limit, RateLimitLayer};
use tower::ServiceExt;
use tower_http::cors::{AllowOrigin, CorsLayer};

const PAGE: &str = "https://app.example.org";

fn cors() -> CorsLayer {
    let exposed = ["ratelimit", "ratelimit-policy", "retry-after"].map(HeaderName::from_static);
    CorsLayer::new()
        .allow_origin(AllowOrigin::exact(PAGE.parse().unwrap()))
        .allow_methods([Method::PUT])
        .expose_headers(exposed)
}

/// Allows one request an hour.
fn limit() -> RateLimitLayer {
    let site = site();
    let limit = Limit::new("all", site.single(Quota::per_hour(1)));
    site.limit(limit).run().layer
}

fn send(app: &Router, method: &str) -> Response<Body> {
    let request = Request::builder().method(method).uri("/").header("origin", PAGE);
    let request = match method {
        "OPTIONS" => request.header("access-control-request-method", "PUT"),
        _ => request,
    };
    pollster::block_on(app.clone().oneshot(request.body(Body::empty()).unwrap())).unwrap()
}

/// Returns the fields that a page of the origin may read according to the CORS rules.
fn readable(headers: &HeaderMap) -> Vec<&str> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !["*", PAGE].contains(&text("access-control-allow-origin")) {
        return Vec::new();
    }
    let exposed: Vec<&str> = text("access-control-expose-headers").split(',').map(str::trim).collect();
    let mut names: Vec<&str> =
        headers.keys().map(HeaderName::as_str).filter(|it| exposed.contains(it)).collect();
    names.sort_unstable();
    names
}

#[test]
fn with_cors_outside_a_page_can_read_a_refusal_and_preflights_are_free() {
    let app = Router::new().route("/", get(async || "hello")).layer(limit()).layer(cors());
    for _ in 0..3 {
        let preflight = send(&app, "OPTIONS");
        assert_eq!(preflight.status(), StatusCode::OK);
        assert_eq!(preflight.headers()["access-control-allow-methods"], "PUT");
        assert!(!preflight.headers().contains_key("ratelimit"));
    }
    let passed = send(&app, "GET");
    assert_eq!(passed.status(), StatusCode::OK);
    assert_eq!(readable(passed.headers()), ["ratelimit", "ratelimit-policy"]);
    let refused = send(&app, "GET");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(readable(refused.headers()), ["ratelimit", "ratelimit-policy", "retry-after"]);
}

#[test]
fn with_the_limit_outside_a_refusal_is_hidden_and_preflights_are_charged() {
    let app = Router::new().route("/", get(async || "hello")).layer(cors()).layer(limit());
    assert_eq!(send(&app, "OPTIONS").status(), StatusCode::OK);
    let refused = send(&app, "GET");
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(readable(refused.headers()), [""; 0]);
}

#[test]
fn a_limit_outside_leaves_preflights_out_and_writes_the_field_itself() {
    let site = site();
    let limit = Limit::new("all", site.single(Quota::per_hour(1)));
    let site = site.limit(limit).with(|it| {
        it.skip(|head| {
            head.method() == Method::OPTIONS && head.header("access-control-request-method").is_some()
        })
        .respond(|refusal| {
            let mut response = Response::new(Bytes::from_static(b"too fast"));
            *response.status_mut() = refusal.status;
            response.headers_mut().insert("access-control-allow-origin", HeaderValue::from_static("*"));
            response
        })
    });
    let app = Router::new().route("/", get(async || "hello")).layer(cors()).layer(site.run().layer);
    assert_eq!(["OPTIONS", "OPTIONS", "GET"].map(|method| send(&app, method).status()), [StatusCode::OK; 3]);
    let refused = send(&app, "GET");
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["access-control-allow-origin"]),
        (429, &"*".parse().unwrap())
    );
}

#[test]
fn the_page_of_axum_has_the_example_as_it_is_tested_in_80_lines() {
    let page = include_str!("../../../../docs/axum.md");
    let example = include_str!("../../examples/service.rs");
    let shown = page.split("```rust\n").nth(1).unwrap().split("```\n\n```toml").next().unwrap();
    assert_eq!(shown, example, "docs/axum.md shows another service than examples/service.rs");
    assert!(example.lines().count() <= 80);
}
