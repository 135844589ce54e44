//! Rate limits for gRPC with tonic, for all calls together, for each address, and for each API key.
//!
//! ```sh
//! cargo run -p tollgate-http --example tonic -- 127.0.0.1:3000
//! ```

use std::error::Error;
use tokio::net::TcpListener;
use tollgate::{Limiter, Quota, SingleLimiter};
use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let all = SingleLimiter::builder(Quota::per_second(5000)).build()?;
    let addresses = Limiter::builder(Quota::per_minute(60).burst(5)).build()?;
    let keys = Limiter::builder(Quota::per_hour(3)).build()?;
    let layer = RateLimitLayer::builder()
        .limit(Limit::new("all", all))
        .limit(Limit::new("per-address", addresses).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny))
        // gRPC metadata are HTTP headers. A client without an API key is limited only by its
        // address.
        .limit(Limit::new("per-key", keys).by(KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Allow))
        // tonic stores the peer's address in this extension. (With TLS it is
        // `TlsConnectInfo<TcpConnectInfo>`.)
        .peer_from(|peer: &TcpConnectInfo| peer.remote_addr())
        .build()?;

    // Replace this with a service of your own.
    let (_reporter, service) = tonic_health::server::health_reporter();

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Try, with any gRPC client or with curl, an empty message. From the sixth on, the response has
    // `grpc-status: 8`, which is RESOURCE_EXHAUSTED, and the time to wait before a retry:
    //   for i in 1 2 3 4 5 6 7; do printf '\0\0\0\0\0' | \
    //     curl -i --output - --http2-prior-knowledge \
    //     -H 'content-type: application/grpc' -H 'te: trailers' --data-binary @- \
    //     http://127.0.0.1:3000/grpc.health.v1.Health/Check; done
    // And with a key, which has three requests an hour: -H 'x-api-key: secret'
    Server::builder()
        .layer(layer)
        .add_service(service)
        .serve_with_incoming(TcpIncoming::from(listener))
        .await?;
    Ok(())
}
