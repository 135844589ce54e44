//! A client that obeys a server's limit without knowing it in advance. The client learns the limit
//! from responses, sends its requests in order, and repeats refused requests.
//!
//! `cargo run -p tollgate-wait --features tokio,tower --example outbound [RETRY-AFTER]`
//!
//! The argument is the value of `Retry-After` that the server sends while it is busy. The default
//! is `1`. If the argument is empty, the server omits the field; if it is `date`, the server sends
//! a date.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpListener;
use tollgate::{Limiter, Quota};
use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
use tollgate_wait::{Paced, WaitLayer, WaitQueue, idempotent};
use tower::{ServiceBuilder, ServiceExt};

type Failure = Box<dyn Error + Send + Sync>;
type Outbound = http::Request<Empty<Bytes>>;

const BUSY_MILLIS: u32 = 1_000;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // With an empty argument, responses do not have the field.
    let retry_after = env::args().nth(1).unwrap_or_else(|| "1".to_owned());
    let server = Arc::new(Server {
        retry_after,
        begin: Instant::now(),
        busy_from: AtomicU32::new(u32::MAX),
        served: AtomicU32::new(0),
        refused: AtomicU32::new(0),
    });
    let address = serve(Arc::clone(&server)).await?;

    // The quota is a guess that is far too high. It applies until the first response.
    let limiter: Limiter<String> = Limiter::builder(Quota::per_second(200).burst(20)).build()?;
    let queue = Arc::new(WaitQueue::new(Paced::new(limiter)));
    let host = |request: &Outbound| (request.uri().host().unwrap_or_default().to_owned(), 1);
    let client = ServiceBuilder::new()
        .layer(WaitLayer::new(queue, host).max_wait(Duration::from_secs(30)).retries(5, idempotent))
        .service(Client::builder(TokioExecutor::new()).build_http());

    let calls: Vec<_> = (0..40)
        .map(|_| {
            let (client, request) = (client.clone(), http::Request::get(format!("http://{address}/")));
            tokio::spawn(async move {
                let response = client.oneshot(request.body(Empty::new())?).await?;
                Ok::<_, Failure>(response.status())
            })
        })
        .collect();
    let mut served = 0;
    for call in calls {
        served += u32::from(call.await?? == StatusCode::OK);
    }
    let refused = server.refused.load(Relaxed);
    println!("{served} calls served in {:.1?}; the server refused {refused}", server.begin.elapsed());
    Ok(())
}

/// A server that admits twenty requests a second, and at most five at once. After serving ten
/// requests, it is busy for a second.
struct Server {
    retry_after: String,
    begin: Instant,
    /// The start of the busy period, in milliseconds after `begin`, or the largest number if it has
    /// not started.
    busy_from: AtomicU32,
    served: AtomicU32,
    refused: AtomicU32,
}

async fn serve(server: Arc<Server>) -> Result<String, Failure> {
    let limiter = Limiter::builder(Quota::per_second(20).burst(5)).build()?;
    let limit = Limit::new("api", limiter).by(KeyBy::header("api-key")).when_no_key(WhenNoKey::Share);
    let limits = RateLimitLayer::builder().limit(limit).build()?;
    let app = Router::new().fallback(async || "served").layer(limits);
    let app = app.layer(from_fn_with_state(server, serve_unless_busy));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

async fn serve_unless_busy(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let now = u32::try_from(server.begin.elapsed().as_millis()).unwrap_or(u32::MAX);
    let is_busy = server.served.load(Relaxed) == 10
        && now.saturating_sub(server.busy_from.fetch_min(now, Relaxed)) < BUSY_MILLIS;
    let response = if is_busy { server.busy() } else { next.run(request).await };
    let count = if response.status().is_success() { &server.served } else { &server.refused };
    count.fetch_add(1, Relaxed);
    response
}

impl Server {
    fn busy(&self) -> Response {
        let date = || httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(1));
        let time = match &*self.retry_after {
            "" => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
            "date" => date(),
            text => text.to_owned(),
        };
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", time)]).into_response()
    }
}
