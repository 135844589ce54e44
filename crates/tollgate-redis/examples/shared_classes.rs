//! Classes of callers that all processes share. Free callers may send 10 requests a minute, paying
//! callers 1,000, and all callers together 5,000 a second. Start as many processes as you like:
//!
//! ```sh
//! cargo run -p tollgate-redis --example shared_classes -- redis://127.0.0.1:6379 free bob 20
//! ```

use std::error::Error;
use std::time::Duration;
use tollgate::{Denied, Quota};
use tollgate_redis::{Client, SharedError, SharedLimiter, SharedReservationSet, WhenUnavailable};

pub(crate) struct Service {
    callers: SharedLimiter<str>,
    all: SharedLimiter<()>,
}

impl Service {
    pub(crate) fn new(client: &Client) -> Result<Self, SharedError> {
        // While Redis is unreachable, each of two processes uses half of the limit.
        let away = WhenUnavailable::Local { share: 0.5 };
        let callers = SharedLimiter::builder(client, "callers", Quota::per_minute(10))
            .default_class("free")
            .class("paid", Quota::per_minute(1_000))
            .deadline(Duration::from_secs(1))
            .when_unavailable(away)
            .build()?;
        let all = SharedLimiter::builder(client, "all", Quota::per_second(5_000));
        let all = all.deadline(Duration::from_secs(1)).when_unavailable(away).build()?;
        Ok(Self { callers, all })
    }

    /// Charges two limits, or neither: the caller's limit in its class, and the limit for all
    /// callers.
    pub(crate) async fn admit(&self, class: &str, caller: &str) -> Result<(), Denied> {
        // Callers of an unknown class count as free callers.
        let class = self.callers.class(class).unwrap_or_else(|| self.callers.clone());
        let limits = [(class.for_key(caller), 1), (self.all.clone(), 1)];
        // The charge is kept after the reservations are dropped.
        SharedReservationSet::reserve(limits).await.map(drop)
    }

    /// Sends a caller's requests, and returns how many were admitted.
    pub(crate) async fn admitted(&self, class: &str, caller: &str, requests: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += usize::from(self.admit(class, caller).await.is_ok());
        }
        admitted
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, class, caller, requests] = &args[..] else {
        return Err("shared_classes URL CLASS CALLER REQUESTS".into());
    };
    let client = Client::open(url)?;
    let service = Service::new(&client)?;
    client.connect().await?;
    println!("{}", service.admitted(class, caller, requests.parse()?).await);
    Ok(())
}
