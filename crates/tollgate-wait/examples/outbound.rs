//! A client that keeps to a server's limit which it does not know: it learns it from the fields
//! `RateLimit-Policy`, `RateLimit` and `Retry-After` of responses, and its callers wait in order.
//!
//! `cargo run -p tollgate-wait --features tokio --example outbound [RETRY-AFTER]`
//!
//! The argument is what the server says in `Retry-After` while it is busy: `1` by default, else for
//! example a date, or nothing.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};
use tollgate::{Limiter, Quota, QuotaError, SingleLimiter};
use tollgate_wait::WaitQueue;

type Failure = Box<dyn Error + Send + Sync>;

struct Client {
    queues: WaitQueue<Limiter<String>>,
    slow: Mutex<HashMap<String, Slow>>,
}

/// A host that has refused calls a short time ago.
struct Slow {
    /// The refusals whose waiting time is not over.
    refusals: usize,
    /// The quota of the host after that time.
    usual: Quota,
}

impl Client {
    /// Makes one call in its turn, and again until it is served. Returns how often it was refused.
    async fn call(self: &Arc<Self>, host: &str) -> Result<u32, Failure> {
        for refused in 0.. {
            self.queues.until_ready(host).await?;
            let mut stream = TcpStream::connect(host).await?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n").await?;
            let mut response = String::new();
            stream.read_to_string(&mut response).await?;
            if let Some(quota) = field(&response, "ratelimit-policy").and_then(policy) {
                // What is left is less than the policy allows if others share the limit.
                let left = field(&response, "ratelimit").and_then(|text| parameter(text, "r"));
                self.learn(host, quota.burst(left.unwrap_or(1).clamp(1, quota.tokens())))?;
            }
            if response.starts_with("HTTP/1.1 200") {
                return Ok(refused);
            }
            self.slow_down(host, waiting_time(field(&response, "retry-after")))?;
        }
        unreachable!("the loop ends with a response")
    }

    /// Sets the quota of a host, now or when its slow time is over.
    fn learn(&self, host: &str, quota: Quota) -> Result<(), QuotaError> {
        let limiter = self.queues.limiter();
        let mut slow = self.slow();
        let usual = slow.get(host).map(|slow| slow.usual).or_else(|| limiter.key_quota(host));
        if usual.is_some_and(|usual| (usual.tokens(), usual.period()) == (quota.tokens(), quota.period())) {
            return Ok(());
        }
        match slow.get_mut(host) {
            Some(slow) => slow.usual = quota,
            None => limiter.set_key_quota(host, quota)?,
        }
        Ok(())
    }

    /// Lets only one call of a host pass in the time `wait`, until that time is over.
    fn slow_down(self: &Arc<Self>, host: &str, wait: Duration) -> Result<(), QuotaError> {
        let limiter = self.queues.limiter();
        let mut slow = self.slow();
        // A burst is what the server has refused, so only the rate comes back.
        let usual = limiter.key_quota(host).unwrap_or_else(|| limiter.quota()).burst(1);
        limiter.set_key_quota(host, Quota::new(1, wait))?;
        // Takes the token that is left of the usual quota, so that no call passes before the time.
        let _ = limiter.check(host);
        slow.entry(host.to_owned()).or_insert(Slow { refusals: 0, usual }).refusals += 1;
        drop(slow);
        // The call may end or be dropped before the time is over, so a task waits for it.
        let (client, host) = (Arc::clone(self), host.to_owned());
        tokio::spawn(async move {
            sleep(wait).await;
            client.speed_up(&host)
        });
        Ok(())
    }

    /// Ends the waiting time of one refusal. The last one brings the usual quota back.
    fn speed_up(&self, host: &str) -> Result<(), QuotaError> {
        let mut slow = self.slow();
        let Some(Slow { refusals, usual }) = slow.get_mut(host) else { return Ok(()) };
        *refusals -= 1;
        if *refusals > 0 {
            return Ok(());
        }
        let usual = *usual;
        slow.remove(host);
        self.queues.limiter().set_key_quota(host, usual)
    }

    fn slow(&self) -> MutexGuard<'_, HashMap<String, Slow>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how long a refused client waits: the seconds of `Retry-After`, at most an hour. A field
/// that is missing, a date or a fraction is no permission to call at once, and neither is 0.
fn waiting_time(retry_after: Option<&str>) -> Duration {
    let seconds = retry_after.and_then(|text| text.trim().parse().ok()).unwrap_or(1_u64);
    Duration::from_secs(seconds.clamp(1, 3_600))
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

/// A server that admits twenty requests a second, five at once. It says so in its first responses.
/// After ten served requests it is busy for a second.
async fn serve(listener: TcpListener, retry_after: Option<String>) -> Result<(), Failure> {
    let limiter = SingleLimiter::builder(Quota::per_second(20).burst(5)).build()?;
    let busy_field = retry_after.map(|text| format!("\r\nRetry-After: {text}")).unwrap_or_default();
    let (mut served, mut busy_until) = (0, None);
    loop {
        let (mut stream, _) = listener.accept().await?;
        let mut request = [0; 512];
        let _read = stream.read(&mut request).await?;
        let head =
            if served == 10 && Instant::now() < *busy_until.get_or_insert_with(|| Instant::now() + BUSY) {
                format!("503 Service Unavailable{busy_field}")
            } else {
                let decision = limiter.check();
                served += usize::from(decision.is_allowed());
                let status =
                    if decision.is_allowed() { "200 OK" } else { "429 Too Many Requests\r\nRetry-After: 1" };
                let left = decision.remaining();
                let fields = format!("\r\nRateLimit-Policy: \"api\";q=20;w=1\r\nRateLimit: \"api\";r={left}");
                format!("{status}{}", if busy_until.is_none() { &fields } else { "" })
            };
        let response = format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(response.as_bytes()).await?;
    }
}

const BUSY: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // An empty argument is a response without the field.
    let retry_after =
        Some(env::args().nth(1).unwrap_or_else(|| "1".to_owned())).filter(|text| !text.is_empty());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let host = listener.local_addr()?.to_string();
    tokio::spawn(serve(listener, retry_after));
    // It begins with a guess that is far too high.
    let queues = WaitQueue::new(Limiter::builder(Quota::per_second(200).burst(20)).build()?);
    let client = Arc::new(Client { queues, slow: Mutex::default() });
    let calls: Vec<_> = (0..40)
        .map(|_| {
            let (client, host) = (Arc::clone(&client), host.clone());
            tokio::spawn(async move { client.call(&host).await })
        })
        .collect();
    let mut refused = 0;
    for call in calls {
        refused += call.await??;
    }
    println!("40 calls served; the server refused {refused}");
    println!("learned: {:?}", client.queues.limiter().key_quota(&host).map(|quota| quota.to_string()));
    Ok(())
}
