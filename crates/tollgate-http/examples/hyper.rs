//! Rate limits with plain hyper over HTTP/1.1 and HTTP/2, for all requests together, for each
//! address, and for each API key.
//!
//! ```sh
//! cargo run -p tollgate-http --example hyper -- 127.0.0.1:3000
//! ```

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::error::Error;
use tokio::net::TcpListener;
use tollgate::{Limiter, Quota, SingleLimiter};
use tollgate_http::{KeyBy, Limit, PeerAddr, RateLimitLayer, WhenNoKey};
use tower::{Layer, ServiceExt, service_fn};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let all = SingleLimiter::builder(Quota::per_second(5000)).build()?;
    let addresses = Limiter::builder(Quota::per_minute(60).burst(5)).build()?;
    let keys = Limiter::builder(Quota::per_hour(3)).build()?;
    let layer = RateLimitLayer::builder()
        .limit(Limit::new("all", all))
        .limit(Limit::new("per-address", addresses).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny))
        // A client without an API key is limited only by its address.
        .limit(
            Limit::new("per-key", keys)
                .by(KeyBy::api_key("x-api-key", "api_key"))
                .when_no_key(WhenNoKey::Allow),
        )
        .build()?;
    let service = layer.layer(service_fn(hello));

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Try (-i shows RateLimit, RateLimit-Policy and, from the sixth on, Retry-After):
    //   for i in 1 2 3 4 5 6 7; do curl -i http://127.0.0.1:3000/; done
    //   for i in 1 2 3 4; do
    //     curl -i --http2-prior-knowledge 'http://127.0.0.1:3000/?api_key=secret'; sleep 1; done
    loop {
        let (stream, peer) = listener.accept().await?;
        // hyper does not report the peer's address, so each connection adds the address to its
        // requests.
        let service = service.clone().map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddr(peer));
            request
        });
        tokio::spawn(async move {
            let (stream, service) = (TokioIo::new(stream), TowerToHyperService::new(service));
            let connection = auto::Builder::new(TokioExecutor::new());
            if let Err(error) = connection.serve_connection(stream, service).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}
