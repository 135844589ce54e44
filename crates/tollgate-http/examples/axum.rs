//! Rate limits with axum, for all requests together, for each address, and for each API key.
//!
//! ```sh
//! cargo run -p tollgate-http --features axum --example axum -- 127.0.0.1:3000
//! ```

use axum::{Router, routing::get};
use std::error::Error;
use std::net::SocketAddr;
use tollgate::{Limiter, Quota, SingleLimiter};
use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};

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
        .skip(|head| head.path() == "/health")
        .build()?;

    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/health", get(async || "well\n"))
        .layer(layer);

    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    println!("listening on http://{address}");
    // Try (-i shows RateLimit, RateLimit-Policy and, from the sixth on, Retry-After):
    //   for i in 1 2 3 4 5 6 7; do curl -i http://127.0.0.1:3000/; done
    //   for i in 1 2 3 4; do curl -i -H 'x-api-key: secret' http://127.0.0.1:3000/; sleep 1; done
    //   curl -i http://127.0.0.1:3000/health
    // With its feature `axum`, the layer reads the peer's address that axum stores in each request.
    // Behind a proxy, use `KeyBy::forwarded`.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).await?;
    Ok(())
}
