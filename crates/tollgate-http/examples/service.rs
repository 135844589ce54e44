//! A service with plans, a limit on all requests, CORS for a page, and metrics. Its tests are
//! below.
//!
//! ```sh
//! cargo run -p tollgate-http --features axum --example service -- 127.0.0.1:3000 127.0.0.1:9090
//! ```

use axum::{Router, routing::get};
use http::{HeaderName, Method, header};
use std::{error::Error, future::IntoFuture, net::SocketAddr};
use tollgate::{Clock, Limiter, Quota, SingleLimiter};
use tollgate_http::{ClassBy, KeyBy, Limit, Metrics, RateLimitLayer, WhenNoKey};
use tower_http::cors::{AllowOrigin, CorsLayer};

/// Customers and their plans: in practice from a file or a database (see `ClassBy`).
const CUSTOMERS: [(&str, &str); 1] = [("k-7f3a", "paid")];
const PAGE: &str = "https://app.example.org";

fn limits(clock: &Clock, metrics: &Metrics) -> Result<RateLimitLayer, Box<dyn Error>> {
    let all = SingleLimiter::builder(Quota::per_second(5_000)).clock(clock.clone()).build()?;
    let plans = Limiter::builder(Quota::per_minute(10)).class("paid", Quota::per_minute(1_000));
    let key = || KeyBy::header("x-api-key");
    let client = key().known(CUSTOMERS.map(|(key, _)| key)).or(KeyBy::peer());
    let per_client = Limit::new("per-client", plans.clock(clock.clone()).build()?);
    Ok(RateLimitLayer::builder()
        .limit(Limit::new("all", all))
        .limit(per_client.by(client).class_by(ClassBy::list(key(), CUSTOMERS)).when_no_key(WhenNoKey::Deny))
        .metrics(metrics)
        .build()?)
}

fn app(clock: &Clock, metrics: &Metrics) -> Result<Router, Box<dyn Error>> {
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::exact(PAGE.parse()?))
        .allow_methods([Method::GET])
        .allow_headers([HeaderName::from_static("x-api-key")])
        .expose_headers(["ratelimit", "ratelimit-policy", "retry-after"].map(HeaderName::from_static));
    // The layer that is added last is the outermost: CORS answers preflights before the limits see
    // them, and its fields are on refusals as well.
    Ok(Router::new().route("/", get(async || "hello\n")).layer(limits(clock, metrics)?).layer(cors))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (metrics, mut addresses) = (Metrics::new(), std::env::args().skip(1));
    let mut address = |default: &str| addresses.next().unwrap_or_else(|| default.to_owned());
    let listener = tokio::net::TcpListener::bind(address("127.0.0.1:3000")).await?;
    let operators = tokio::net::TcpListener::bind(address("127.0.0.1:9090")).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app(&Clock::default(), &metrics)?.into_make_service_with_connect_info::<SocketAddr>();
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    let text = Router::new().route("/metrics", get(async move || (kind, metrics.prometheus_text())));
    tokio::spawn(axum::serve(operators, text).into_future());
    Ok(axum::serve(listener, app).await?)
}

#[cfg(test)]
#[tokio::test]
async fn a_free_client_has_ten_a_minute_and_a_page_can_read_when_to_retry() {
    use axum::extract::ConnectInfo;
    use tower::ServiceExt;
    let (clock, metrics) = (tollgate::ManualClock::new(), Metrics::new());
    let app = app(&Clock::from(&clock), &metrics).unwrap();
    let send = async |key: &str| {
        let request = http::Request::get("/").header("origin", PAGE).header("x-api-key", key);
        let request = request.extension(ConnectInfo(SocketAddr::from(([192, 0, 2, 1], 4711))));
        app.clone().oneshot(request.body(axum::body::Body::empty()).unwrap()).await.unwrap()
    };
    for status in [[200; 10].as_slice(), &[429]].concat() {
        assert_eq!(send("made-up").await.status(), status);
    }
    let refused = send("made-up").await.headers().clone();
    assert_eq!([&refused["retry-after"], &refused["access-control-allow-origin"]], ["6", PAGE]);
    assert_eq!(send("k-7f3a").await.status(), 200);
    clock.advance(std::time::Duration::from_secs(6));
    assert_eq!(send("made-up").await.status(), 200);
    let denied = r#"tollgate_decisions_total{limit="per-client",class="default",outcome="denied"} 2"#;
    assert!(metrics.prometheus_text().contains(denied), "{}", metrics.prometheus_text());
}
