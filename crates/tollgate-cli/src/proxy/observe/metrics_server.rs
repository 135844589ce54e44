//! The server that Prometheus asks: `/metrics`, and nothing else.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use super::metrics::Metrics;
use crate::proxy::problem::problem;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Serves until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely out of files: some will be closed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let metrics = Arc::clone(&metrics);
        let answer = service_fn(move |request: Request<Incoming>| {
            let response = answer(&request, &metrics);
            async { Ok::<_, Infallible>(response) }
        });
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
        // A broken connection is not an error of the proxy.
        tokio::spawn(async move { drop(server.serve_connection(TokioIo::new(stream), answer).await) });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return problem(StatusCode::NOT_FOUND, "Only /metrics is served here.");
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "Metrics can be read only.");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let mut response = Response::new(Full::new(Bytes::from(metrics.text())));
    response.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
    response
}
