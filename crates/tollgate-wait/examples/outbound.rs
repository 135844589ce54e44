//! A client that keeps to a server's limit which it does not know: it learns it from the fields
//! `RateLimit-Policy`, `RateLimit` and `Retry-After` of responses, and its callers wait in order.
//!
//! `cargo run -p tollgate-wait --features tokio --example outbound`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Limiter, Quota, SingleLimiter};
use tollgate_wait::{TokioSleep, WaitQueues};

type Client = WaitQueues<Limiter<String>, TokioSleep>;

/// One call in its turn, and again until it is served. Returns how often it was refused.
async fn call(client: &Client, host: String) -> Result<u32, Box<dyn Error + Send + Sync>> {
    for refused in 0.. {
        client.until_ready(&host).await?;
        let mut stream = TcpStream::connect(&host).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n").await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        let served = response.starts_with("HTTP/1.1 200");
        let seconds = |text: &str| text.trim().parse().map(Duration::from_secs).ok();
        if let (false, Some(wait)) = (served, field(&response, "retry-after").and_then(seconds)) {
            // One call after the time that the server asked for, not all that are waiting.
            client.limiter().set_key_quota(&host, Quota::new(1, wait.max(Duration::from_millis(1))))?;
        } else if let Some(quota) = field(&response, "ratelimit-policy").and_then(policy) {
            // What is left is less than the policy allows if others share the limit.
            let left = field(&response, "ratelimit").and_then(|text| parameter(text, "r")).unwrap_or(1);
            let quota = quota.burst(left.clamp(1, quota.tokens()));
            let same = |known: Quota| (known.tokens(), known.period()) == (quota.tokens(), quota.period());
            if !client.limiter().key_quota(&host).is_some_and(same) {
                client.limiter().set_key_quota(&host, quota)?;
            }
        }
        if served {
            return Ok(refused);
        }
    }
    unreachable!("the loop ends with a response")
}

/// The value of a response's field.
fn field<'r>(response: &'r str, name: &str) -> Option<&'r str> {
    let lines = response.lines().skip(1).take_while(|line| !line.is_empty());
    lines
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|it| it.1)
}

/// A number in `"name";q=10;w=60`.
fn parameter(text: &str, name: &str) -> Option<u64> {
    let mut parameters = text.split(';').filter_map(|part| part.trim().split_once('='));
    parameters.find(|(found, _)| *found == name)?.1.parse().ok()
}

fn policy(text: &str) -> Option<Quota> {
    let (tokens, window) = (parameter(text, "q")?, parameter(text, "w")?);
    (tokens > 0 && window > 0).then(|| Quota::new(tokens, Duration::from_secs(window)))
}

/// A server that admits twenty requests a second, five at once, and is busy once.
async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error + Send + Sync>> {
    let limiter = SingleLimiter::builder(Quota::per_second(20).burst(5)).build()?;
    for number in 0.. {
        let (mut stream, _) = listener.accept().await?;
        let mut request = [0; 512];
        let _read = stream.read(&mut request).await?;
        let decision = limiter.check();
        let admitted = decision.is_allowed() && number != 10;
        let status = if admitted { "200 OK" } else { "429 Too Many Requests\r\nRetry-After: 1" };
        let fields =
            format!("RateLimit-Policy: \"api\";q=20;w=1\r\nRateLimit: \"api\";r={}", decision.remaining());
        let response = format!("HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(response.as_bytes()).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let host = listener.local_addr()?.to_string();
    tokio::spawn(serve(listener));
    // It begins with a guess that is far too high.
    let client = Arc::new(Client::new(Limiter::builder(Quota::per_second(200).burst(20)).build()?));
    let calls: Vec<_> = (0..60)
        .map(|_| {
            let (client, host) = (Arc::clone(&client), host.clone());
            tokio::spawn(async move { call(&client, host).await })
        })
        .collect();
    let mut refused = 0;
    for call in calls {
        refused += call.await??;
    }
    println!("60 calls served; the server refused {refused}");
    println!("learned: {:?}", client.limiter().key_quota(&host).map(|quota| quota.to_string()));
    Ok(())
}
