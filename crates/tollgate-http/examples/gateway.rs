//! A gateway in front of a model that streams its answers. Each user, each team and all users
//! together have a token budget and a request budget. The gateway and a fake model both run here.
//!
//! ```sh
//! cargo run -p tollgate-http --example gateway -- 127.0.0.1:3000
//! ```

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, StatusCode, header};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tollgate::{ConfigError, Limiter, Quota, SingleLimiter};
use tollgate_http::{
    Estimator, KeyBy, LayerError, Limit, RateLimitLayer, RequestCost, RequestHead, ResponseCost, WhenNoKey,
};

/// The callers with their keys, users and teams. A real gateway would query a database.
const KEYS: [(&str, &str, &str); 3] =
    [("key-alice", "alice", "red"), ("key-bob", "bob", "red"), ("key-carol", "carol", "blue")];

/// The data that `identify` has found in a request.
#[derive(Clone)]
struct Asked {
    user: &'static str,
    team: &'static str,
    /// The number of tokens in the prompt: about one for every four bytes.
    prompt: u64,
    /// The maximum length of the answer in tokens, from each field that can declare one.
    declared: [Option<u64>; 2],
}

/// Reads the key and the body of a request. This middleware runs outside of the limits, because the
/// limits need both.
async fn identify(request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let bearer =
        head.headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok()?.strip_prefix("Bearer "));
    let Some((_, user, team)) = KEYS.iter().find(|(key, ..)| Some(*key) == bearer) else {
        return (StatusCode::UNAUTHORIZED, "unknown key\n").into_response();
    };
    let Ok(body) = to_bytes(body, 1 << 20).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let Ok(text) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let prompt = text["prompt"].as_str().map_or(0, |prompt| prompt.len() as u64).div_ceil(4);
    let declared = ["max_tokens", "max_completion_tokens"].map(|field| text[field].as_u64());
    head.extensions.insert(Asked { user, team, prompt, declared });
    next.run(Request::from_parts(head, body.into())).await
}

fn asked<'a>(head: RequestHead<'a>) -> Option<&'a Asked> {
    head.extensions().get()
}

/// To share these budgets among several gateways, replace `Limiter` with
/// `tollgate_redis::SharedLimiter`. Nothing else changes.
fn limits() -> Result<RateLimitLayer, Box<dyn Error>> {
    let keyed = |tokens| Limiter::builder(Quota::per_day(tokens)).max_debt(tokens).build();
    let single = |tokens| SingleLimiter::builder(Quota::per_day(tokens)).max_debt(tokens).build();
    let user = || KeyBy::from_fn(|head| asked(head).map(|it| it.user.into()));
    let team = || KeyBy::from_fn(|head| asked(head).map(|it| it.team.into()));

    // Until its cost is known, an answer is charged an estimate that most answers do not exceed.
    // The estimate is never more than the request allows.
    let estimator = Arc::new(Estimator::new(0.9, 100, ["red", "blue"])?);
    let tokens = |limit: Limit| {
        let estimate = RequestCost::estimated(Arc::clone(&estimator), |head| match asked(head) {
            Some(it) => (it.team, it.declared.map(|most| Some(most?.saturating_add(it.prompt)))),
            None => ("", [None; 2]),
        });
        let usage = ResponseCost::json("usage.total_tokens").or(ResponseCost::events());
        let settle = usage
            .input(RequestCost::from_fn(|head| asked(head).map_or(0, |it| it.prompt)))
            .last_words("\n\ndata: {\"error\":\"the budget of tokens is spent\"}\n\ndata: [DONE]\n\n");
        // If the model could not be reached, the request costs nothing.
        limit.cost(estimate).settle(settle).charge_if(|response| response.status().is_success())
    };
    let keyed_by = |name, tokens, by| -> Result<Limit, ConfigError> {
        Ok(Limit::new(name, keyed(tokens)?).by(by).when_no_key(WhenNoKey::Deny))
    };
    let built: Result<RateLimitLayer, LayerError> = RateLimitLayer::builder()
        .limit(tokens(keyed_by("user-tokens", 300, user())?))
        .limit(tokens(keyed_by("team-tokens", 500, team())?))
        .limit(tokens(Limit::new("all-tokens", single(2000)?)))
        .limit(keyed_by("user-requests", 20, user())?)
        .limit(keyed_by("team-requests", 30, team())?)
        .limit(Limit::new("all-requests", single(100)?))
        .build();
    Ok(built?)
}

/// Passes a request on to the model, and passes its answer back frame by frame.
async fn forward(State(model): State<SocketAddr>, headers: HeaderMap, body: Bytes) -> Response {
    let answer = async {
        let stream = TokioIo::new(TcpStream::connect(model).await?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        tokio::spawn(connection);
        let mut request =
            http::Request::post("/").header(header::HOST, model.to_string()).body(Full::new(body))?;
        request
            .headers_mut()
            .extend(headers.get(header::CONTENT_TYPE).map(|it| (header::CONTENT_TYPE, it.clone())));
        Ok::<_, Box<dyn Error + Send + Sync>>(sender.send_request(request).await?)
    };
    match answer.await {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error}\n")).into_response(),
    }
}

/// The fake model. It answers with as many tokens as the field `answer` specifies, up to the
/// declared maximum.
async fn model(body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let prompt = asked["prompt"].as_str().map_or(0, str::len).div_ceil(4);
    let most = ["max_tokens", "max_completion_tokens"].iter().filter_map(|field| asked[field].as_u64()).max();
    let answer = asked["answer"].as_u64().unwrap_or(10).min(most.unwrap_or(u64::MAX));
    let usage = json!({"usage": {"total_tokens": answer.saturating_add(prompt as u64)}});
    if asked["fail"] == true {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if asked["stream"] != true {
        return ([(header::CONTENT_TYPE, "application/json")], usage.to_string()).into_response();
    }
    // If the gateway hangs up, the stream is dropped and stops, like the stream of a real model.
    let words = (0..answer).map(|word| json!({"word": word}).to_string());
    let data = words.chain([usage.to_string(), "[DONE]".to_owned()]);
    let events = stream::iter(data.map(|data| Ok::<_, Infallible>(format!("data: {data}\n\n"))));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(events)).into_response()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let upstream = TcpListener::bind("127.0.0.1:0").await?;
    let model_at = upstream.local_addr()?;
    tokio::spawn(async move { axum::serve(upstream, Router::new().route("/", post(model))).await });

    let app = Router::new()
        .route("/", post(forward))
        .with_state(model_at)
        .layer(limits()?)
        // The layer that is added last is the outermost.
        .layer(from_fn(identify));
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Try (the first stream is cut off, and the second one refused):
    //   for i in 1 2; do curl -iN http://127.0.0.1:3000/ -H 'authorization: Bearer key-alice' \
    //     -d '{"prompt":"tell me a story","stream":true,"answer":500}'; done
    axum::serve(listener, app).await?;
    Ok(())
}
