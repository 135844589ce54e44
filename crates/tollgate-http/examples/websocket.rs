//! One limit for the messages on all WebSockets of a user, and one for new WebSockets of an
//! address. The test is below.
//!
//! ```sh
//! cargo run -p tollgate-http --features axum --example websocket -- 127.0.0.1:3000
//! ```

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use http::{HeaderMap, StatusCode};
use std::{error::Error, net::SocketAddr, sync::Arc, time::Duration};
use tollgate::{Clock, Limiter, Quota};
use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};

/// The messages of each user, on whatever sockets they arrive.
type Messages = Arc<Limiter<str>>;

fn app(clock: &Clock) -> Result<Router, Box<dyn Error>> {
    let messages: Messages = Arc::new(Limiter::builder(Quota::per_minute(240)).clock(clock.clone()).build()?);
    // The layer sees only the request that opens a socket.
    let sockets = Limiter::builder(Quota::per_minute(20)).clock(clock.clone()).build()?;
    let sockets = Limit::new("sockets", sockets).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny);
    let layer = RateLimitLayer::builder().limit(sockets).build()?;
    Ok(Router::new().route("/echo", get(open)).layer(layer).with_state(messages))
}

async fn open(State(messages): State<Messages>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    // In practice, authentication finds the user.
    let user = headers.get("x-user").and_then(|user| user.to_str().ok()).map(str::to_owned);
    match user {
        Some(user) => upgrade.on_upgrade(async move |socket| echo(socket, &user, &messages).await),
        None => StatusCode::UNAUTHORIZED.into_response(),
    }
}

/// Answers messages until the socket is closed or the user has sent too many. Pings count as well,
/// because each of them is answered.
async fn echo(mut socket: WebSocket, user: &str, messages: &Limiter<str>) {
    while let Some(Ok(message)) = socket.recv().await {
        let decision = messages.check(user);
        if !decision.is_allowed() {
            let wait = decision.retry_after().unwrap_or(Duration::ZERO).as_secs_f64().ceil();
            let reason = format!("240 messages a minute, on all sockets: retry after {wait} s").into();
            let close = CloseFrame { code: close_code::AGAIN, reason };
            // The client may have left already.
            let _ = socket.send(Message::Close(Some(close))).await;
            return;
        }
        if matches!(message, Message::Text(_) | Message::Binary(_)) && socket.send(message).await.is_err() {
            return;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let app = app(&Clock::default())?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, app).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{SinkExt, StreamExt};
    use std::future::IntoFuture;
    use tokio::net::TcpStream;
    use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};
    use tokio_tungstenite::{WebSocketStream, client_async};

    async fn socket(address: SocketAddr, user: &str) -> WebSocketStream<TcpStream> {
        let mut request = format!("ws://{address}/echo").into_client_request().unwrap();
        request.headers_mut().insert("x-user", user.parse().unwrap());
        client_async(request, TcpStream::connect(address).await.unwrap()).await.unwrap().0
    }

    /// Sends messages until the server closes the socket or has answered `most` of them. Returns
    /// the number of answers, and the code and the reason with which the server has closed the
    /// socket.
    async fn send(socket: &mut WebSocketStream<TcpStream>, most: usize) -> (usize, Option<(u16, String)>) {
        for answers in 0..most {
            socket.send(Message::text("hello")).await.unwrap();
            match socket.next().await.unwrap().unwrap() {
                Message::Text(text) => assert_eq!(text, "hello"),
                Message::Close(close) => {
                    let close = close.unwrap();
                    return (answers, Some((close.code.into(), close.reason.to_string())));
                }
                other => panic!("{other}"),
            }
        }
        (most, None)
    }

    #[tokio::test]
    async fn the_sockets_of_a_user_share_one_limit_and_are_closed_with_1013() {
        let clock = tollgate::ManualClock::new();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app(&Clock::from(&clock)).unwrap().into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(axum::serve(listener, app).into_future());

        let mut sockets = Vec::new();
        for _ in 0..5 {
            sockets.push(socket(address, "alice").await);
        }
        // Each socket sends 40 messages, and then up to 200 more: 240 a minute, on each of five.
        for socket in &mut sockets {
            assert_eq!(send(socket, 40).await, (40, None));
        }
        let close = || Some((1013, "240 messages a minute, on all sockets: retry after 1 s".to_owned()));
        let mut rest = Vec::new();
        for socket in &mut sockets {
            rest.push(send(socket, 200).await);
        }
        assert_eq!(rest, [(40, close()), (0, close()), (0, close()), (0, close()), (0, close())]);
        // Another user is not affected, and a new socket is no new limit.
        assert_eq!(send(&mut socket(address, "bob").await, 1).await, (1, None));
        assert_eq!(send(&mut socket(address, "alice").await, 1).await, (0, close()));
        clock.advance(Duration::from_millis(250));
        assert_eq!(send(&mut socket(address, "alice").await, 2).await, (1, close()));
    }
}
