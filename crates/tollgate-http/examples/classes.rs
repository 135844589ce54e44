//! Classes of callers behind one trusted proxy. Anyone may send 10 requests a minute, and paying
//! callers 1,000. The service accepts 5,000 requests a second in total.
//!
//! ```sh
//! cargo run -p tollgate-http --features axum --example classes -- 127.0.0.1:3000
//! ```

use axum::{Router, routing::get};
use std::error::Error;
use std::net::SocketAddr;
use tollgate::{Limiter, Quota, SingleLimiter};
use tollgate_http::{ClassBy, ForwardedField, KeyBy, Limit, RateLimitLayer, TrustedProxies, WhenNoKey};

/// The customers' keys and their classes. A real service reads these from a file (`ClassBy::file`),
/// a database (`ClassLookup`), or an extension verified by a middleware (`ClassBy::extension`).
const CUSTOMERS: [(&str, &str); 2] = [("k-7f3a", "paid"), ("k-90bd", "paid")];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let all = SingleLimiter::builder(Quota::per_second(5_000)).build()?;
    let classes = Limiter::builder(Quota::per_minute(10)).class("paid", Quota::per_minute(1_000)).build()?;

    // Only the proxy can connect to this service, so the last entry in the field is the client.
    let address = KeyBy::forwarded(ForwardedField::XForwardedFor, TrustedProxies::hops(1));
    // A client that invents a key is counted by its address.
    let known = CUSTOMERS.map(|(key, _)| key);
    let client = KeyBy::header("x-api-key").known(known).or(address);
    let layer = RateLimitLayer::builder()
        .limit(Limit::new("all", all))
        .limit(
            Limit::new("per-client", classes)
                .by(client)
                .class_by(ClassBy::list(KeyBy::header("x-api-key"), CUSTOMERS))
                .when_no_key(WhenNoKey::Deny),
        )
        .build()?;

    let app = Router::new().route("/", get(async || "hello\n")).layer(layer);
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Try (-i shows RateLimit-Policy with the quota of the class):
    //   curl -i -H 'x-forwarded-for: 192.0.2.1' http://127.0.0.1:3000/
    //   curl -i -H 'x-forwarded-for: 192.0.2.1' -H 'x-api-key: k-7f3a' http://127.0.0.1:3000/
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
