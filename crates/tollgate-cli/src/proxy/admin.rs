//! The server for operators, which listens on the address given by `--metrics`. It serves metrics,
//! health reports, and the states of keys.
//!
//! Anyone who can connect to this server can read and reset any key, so the server's address must
//! not be public. All responses are JSON, except for the metrics. Errors are problem details (RFC
//! 9457).

mod health;
mod limits;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use tokio::net::TcpListener;

use crate::proxy::limits::Limits;
use crate::proxy::problem_details::problem_details;
use crate::proxy::telemetry::metrics::Metrics;
pub(crate) use health::Health;
use limits::AdminResponse;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The parts of the proxy that the server displays and changes.
pub(crate) struct Admin {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: Arc<ArcSwap<Limits>>,
    pub(crate) health: Health,
}

/// Serves requests until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, admin: Arc<Admin>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // The process has probably run out of file descriptors, some of which will soon be
            // closed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let admin = Arc::clone(&admin);
        let answer = service_fn(move |request: Request<Incoming>| {
            let admin = Arc::clone(&admin);
            async move { Ok::<_, Infallible>(admin.answer(&request).await) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
        // A broken connection is not the proxy's fault.
        tokio::spawn(async move { drop(server.serve_connection(TokioIo::new(stream), answer).await) });
    }
}

impl Admin {
    async fn answer(&self, request: &Request<Incoming>) -> AdminResponse {
        let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
        let reads = [Method::GET, Method::HEAD].contains(request.method());
        let deletes = request.method() == Method::DELETE;
        let decisions = &self.metrics.decisions;
        match path[..] {
            ["metrics" | "live" | "ready" | "limits"] if !reads => not_allowed("GET, HEAD"),
            ["limits", _] | ["limits", _, "keys", _] if !reads && !deletes => {
                not_allowed("GET, HEAD, DELETE")
            }
            ["metrics"] => {
                let mut response = Response::new(Full::new(Bytes::from(self.metrics.text())));
                response.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
                response
            }
            ["live"] => json(StatusCode::OK, &serde_json::json!({ "live": true })),
            ["ready"] => self.health.answer().await,
            ["limits"] => limits::list(&self.limits.load_full(), decisions, |_| true),
            ["limits", name] => {
                limits::answer(&self.limits.load_full(), decisions, name, None, deletes).await
            }
            ["limits", name, "keys", key] => {
                let key = Some((key, request.uri().query()));
                limits::answer(&self.limits.load_full(), decisions, name, key, deletes).await
            }
            _ => problem_details(
                StatusCode::NOT_FOUND,
                "Served here are /metrics, /live, /ready, /limits, /limits/NAME and /limits/NAME/keys/KEY.",
            ),
        }
    }
}

fn not_allowed(allowed: &'static str) -> AdminResponse {
    let mut response =
        problem_details(StatusCode::METHOD_NOT_ALLOWED, &format!("Allowed methods: {allowed}."));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn json(status: StatusCode, value: &Value) -> AdminResponse {
    let mut response = Response::new(Full::new(Bytes::from(value.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
