//! Tiers that all processes share: free callers 10 requests a minute, paying ones 1,000, and 5,000
//! a second in all. Start it as often as you like:
//!
//! ```sh
//! cargo run -p tollgate-redis --example shared_tiers -- redis://127.0.0.1:6379 free bob 20
//! ```

use std::error::Error;
use std::time::Duration;
use tollgate::{DeniedBy, Quota};
use tollgate_redis::{BuildError, Client, SharedLimiter, WhenUnavailable, reserve_all};

pub(crate) struct Service {
    tiers: SharedLimiter<str>,
    all: SharedLimiter<()>,
}

impl Service {
    pub(crate) fn new(client: &Client) -> Result<Self, BuildError> {
        // While Redis is away, each of two processes has half.
        let away = WhenUnavailable::Local { share: 0.5 };
        let tiers = SharedLimiter::builder(client, "tiers", Quota::per_minute(10))
            .class("paid", Quota::per_minute(1_000))
            .deadline(Duration::from_secs(1))
            .when_unavailable(away)
            .build()?;
        let all = SharedLimiter::builder(client, "all", Quota::per_second(5_000));
        let all = all.deadline(Duration::from_secs(1)).when_unavailable(away).build()?;
        Ok(Self { tiers, all })
    }

    /// Charges the caller's tier and the limit of all, or neither.
    pub(crate) async fn admit(&self, plan: &str, caller: &str) -> Result<(), DeniedBy> {
        // A plan that is not a class of its own, such as the free one, is the default class.
        let class = self.tiers.class(plan).unwrap_or_default();
        let limits = [(self.tiers.for_key_as(class, caller), 1), (self.all.for_key(&()), 1)];
        // What is dropped stays charged.
        reserve_all(limits).await.map(drop)
    }

    /// Sends requests of a caller, and returns how many were admitted.
    pub(crate) async fn admitted(&self, plan: &str, caller: &str, requests: usize) -> usize {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += usize::from(self.admit(plan, caller).await.is_ok());
        }
        admitted
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, plan, caller, requests] = &args[..] else {
        return Err("tiers URL PLAN CALLER REQUESTS".into());
    };
    let client = Client::open(url)?;
    let service = Service::new(&client)?;
    client.connect().await?;
    println!("{}", service.admitted(plan, caller, requests.parse()?).await);
    Ok(())
}
