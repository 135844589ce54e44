//! The subjects of the benchmark: local and shared limits of this crate, and two widely used
//! methods.

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Script};
use tollgate::{Algorithm, Limiter, Quota};
use tollgate_redis::{Client, SharedLimiter};
use tollgate_testing::store::server::Server;

/// Each key's quota, which exceeds the benchmark's demand, so that no check is denied. A denial
/// would be cheaper.
const QUOTA: Quota = Quota::per_second(100_000);

pub(crate) struct Subject {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    InProcess(Box<Limiter<u64>>),
    Shared(SharedLimiter<u64>),
    Incr(MultiplexedConnection),
    Gcra(MultiplexedConnection, Script),
}

/// The simplest limiter on such a server: a count for each second, which expires by itself.
async fn incr(mut connection: MultiplexedConnection, key: u64) -> bool {
    let second = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let key = format!("incr:{key}:{second}");
    let mut pipeline = redis::pipe();
    pipeline.cmd("INCR").arg(&key).cmd("EXPIRE").arg(&key).arg(2).ignore();
    let (count,): (u64,) = pipeline.query_async(&mut connection).await.expect("INCR");
    count <= QUOTA.tokens()
}

/// GCRA with floating-point seconds for the time and the arrival time, and with strings in the
/// answer. It follows a widely used Go package.
const GCRA: &str = r"
local burst, rate, period, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local interval = period / rate
local time = redis.call('TIME')
-- Seconds since 2017, so that a double has bits left for fractions.
local now = (time[1] - 1483228800) + time[2] / 1000000
local arrival = tonumber(redis.call('GET', KEYS[1]) or now)
arrival = math.max(arrival, now) + interval * cost
local remaining = (now - (arrival - interval * burst)) / interval
if remaining < 0 then
  return { 0, 0, tostring(arrival - interval * burst - now), tostring(arrival - now) }
end
local reset = arrival - now
if reset > 0 then redis.call('SET', KEYS[1], tostring(arrival), 'EX', math.ceil(reset)) end
return { cost, math.floor(remaining), '-1', tostring(reset) }
";

impl Subject {
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) async fn check(&self, key: u64) {
        let allowed = match &self.kind {
            Kind::InProcess(limiter) => limiter.check(&key).is_allowed(),
            Kind::Shared(limiter) => limiter.check(&key).await.is_allowed(),
            Kind::Incr(connection) => incr(connection.clone(), key).await,
            Kind::Gcra(connection, script) => {
                let mut connection = connection.clone();
                let mut call = script.key(format!("gcra:{key}"));
                call.arg(QUOTA.tokens()).arg(QUOTA.tokens()).arg(1).arg(1);
                let (taken, ..): (u64, u64, String, String) =
                    call.invoke_async(&mut connection).await.expect("GCRA");
                taken == 1
            }
        };
        assert!(allowed, "{}: denied, so something else is measured", self.name);
    }

    /// Waits until no request is in flight.
    pub(crate) async fn settle(&self) {
        if let Kind::Shared(limiter) = &self.kind {
            limiter.flush().await;
        }
    }
}

pub(crate) async fn subjects(server: &Server) -> Vec<Subject> {
    let client = Client::open(server.url()).expect("an address");
    client.connect().await.expect("the server answers");
    let shared = |algorithm: Algorithm, mode: &str| {
        let builder = SharedLimiter::builder(&client, format!("{algorithm}-{mode}"), QUOTA)
            .algorithm(algorithm)
            .deadline(std::time::Duration::from_secs(5));
        let builder = match mode {
            "lease" => builder.lease(1_000),
            "unsynced" => builder.max_unsynced(1_000),
            _ => builder,
        };
        Kind::Shared(builder.build().expect("a limit"))
    };
    let in_process = |algorithm| {
        let quota = Quota::per_second(30_000);
        Kind::InProcess(Box::new(Limiter::builder(quota).algorithm(algorithm).build().expect("a limit")))
    };
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let dial = async || {
        let client = redis::Client::open(server.url()).expect("an address");
        client.get_multiplexed_async_connection_with_config(&config).await.expect("the server answers")
    };
    let subject = |name, kind| Subject { name, kind };
    vec![
        subject("token bucket, in process", in_process(Algorithm::TokenBucket)),
        subject("token bucket, exact", shared(Algorithm::TokenBucket, "exact")),
        subject("token bucket, lease of 1,000", shared(Algorithm::TokenBucket, "lease")),
        subject("sliding window, in process", in_process(Algorithm::SlidingWindow)),
        subject("sliding window, exact", shared(Algorithm::SlidingWindow, "exact")),
        subject("sliding window, lease of 1,000", shared(Algorithm::SlidingWindow, "lease")),
        subject("sliding window, 1,000 unsynced", shared(Algorithm::SlidingWindow, "unsynced")),
        subject("sliding log, exact", shared(Algorithm::SlidingLog, "exact")),
        subject("sliding log, lease of 1,000", shared(Algorithm::SlidingLog, "lease")),
        subject("INCR and EXPIRE", Kind::Incr(dial().await)),
        subject("a GCRA script in floating point", Kind::Gcra(dial().await, Script::new(GCRA))),
    ]
}
