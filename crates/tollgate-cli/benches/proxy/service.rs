//! A rate limit service for Envoy that admits every request: the least that a service can do.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::net::SocketAddr;

/// The argument with which this program runs as the service. The address follows.
pub(crate) const ARGUMENT: &str = "--rate-limit-service";

/// A `RateLimitResponse` with `overall_code: OK`, after gRPC's flag for compression and the length.
const OK: &[u8] = &[0, 0, 0, 0, 2, 0x08, 0x01];

/// Serves at this address until the process ends.
pub(crate) fn serve(address: &str) -> Result<(), String> {
    let address: SocketAddr = address.parse().map_err(|error| format!("{address}: {error}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let serve = async {
        let listener = tokio::net::TcpListener::bind(address).await.map_err(|error| error.to_string())?;
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            // Errors are ignored, because the option affects only latency.
            let _ = stream.set_nodelay(true);
            let connection = http2::Builder::new(TokioExecutor::new());
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    };
    runtime.map_err(|error| error.to_string())?.block_on(serve)
}

async fn answer(
    request: Request<Incoming>,
) -> Result<Response<impl Body<Data = Bytes, Error = Infallible>>, Infallible> {
    // Envoy has sent the whole request before it reads the answer.
    let _ = request.into_body().collect().await;
    let trailers = async {
        Some(Ok(HeaderMap::from_iter([("grpc-status".parse().ok()?, HeaderValue::from_static("0"))])))
    };
    let mut response = Response::new(Full::new(Bytes::from_static(OK)).with_trailers(trailers));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    Ok(response)
}
