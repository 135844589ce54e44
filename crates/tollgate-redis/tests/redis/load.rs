//! A limiter under steady load. The latency of its checks is measured before, during and after a
//! fault.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tollgate::{Algorithm, DecisionSource};
use tollgate_redis::{Client, ClientBuilder, SharedLimiter};
use tollgate_testing::store::program::for_each_server;
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until_async};

pub(crate) type Limiter = SharedLimiter<str>;

/// The deadline of the limiters in these tests. Even on a busy machine, most answers arrive sooner.
pub(crate) const DEADLINE: Duration = Duration::from_millis(150);
/// The additional time allowed for a check on a machine that is busy with other tests. The measured
/// lateness of timers is added to it.
pub(crate) const MARGIN: Duration = Duration::from_millis(100);
/// How soon after a fault the store answers again. Probes are at most a second and a half apart.
const RECOVERY: Duration = Duration::from_secs(4);

/// A period so long that almost nothing refills during a test. Windows of this length end only once
/// in years, so admissions can be counted.
pub(crate) const AGES: Duration = Duration::from_secs(1_000 * 86_400);

/// Returns whether an algorithm is a bucket, which may have a burst.
pub(crate) fn has_burst(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue)
}

/// Makes checks until one is denied, and returns how many requests were admitted.
pub(crate) async fn exhaust(limiter: &Limiter, key: &str) -> u64 {
    let mut admitted = 0;
    while limiter.check(key).await.is_allowed() {
        admitted += 1;
    }
    admitted
}

/// Sends this many checks and returns how many were admitted.
pub(crate) async fn spend(limiter: &Limiter, key: &str, checks: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..checks {
        admitted += u64::from(limiter.check(key).await.is_allowed());
    }
    admitted
}

/// Runs a test with a server, which ends with the test.
pub(crate) fn on_server(test: impl AsyncFnOnce(Server)) {
    run(test(Server::start()));
}

/// Runs a test with a server and a client that waits a long time for the server.
pub(crate) fn on_client(test: impl AsyncFnOnce(Server, Client)) {
    on_server(async |server| {
        let client = patient(server.url());
        test(server, client).await;
    });
}

/// Runs a test with a server of each program.
pub(crate) fn on_each_server(test: impl AsyncFn(Server)) {
    for_each_server(|program| test(Server::of(program)));
}

/// Runs a test with a server of each program, and a client that waits a long time for the server.
pub(crate) fn on_each_client(test: impl AsyncFn(Server, Client)) {
    on_each_server(async |server| {
        let client = patient(server.url());
        test(server, client).await;
    });
}

/// Returns a client that has enough time to connect even if the machine is busy with other tests.
/// With the default of 100 ms, which tests of lost networks use, a busy machine would not connect
/// in time, and the fallback would decide.
pub(crate) fn patient(url: impl Into<String>) -> Client {
    patiently(Client::builder(url))
}

/// Builds a client of a cluster or of sentinels, as [`patient`] does for a single server.
pub(crate) fn patiently(builder: ClientBuilder) -> Client {
    builder.connection_timeout(Duration::from_secs(2)).build().unwrap()
}

/// One check: its start, its duration, and the source of its answer.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    pub(crate) begun: Instant,
    pub(crate) took: Duration,
    pub(crate) source: DecisionSource,
}

/// Tasks that make checks repeatedly, each with its own key.
pub(crate) struct Load {
    checks: Arc<Mutex<Vec<Check>>>,
    /// The greatest lateness of a timer.
    late: Arc<Mutex<Duration>>,
    over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts a task for each of the keys.
    pub(crate) fn start<S: Into<String>>(limiter: &Arc<Limiter>, keys: impl IntoIterator<Item = S>) -> Self {
        let (checks, late): (Arc<Mutex<Vec<Check>>>, Arc<Mutex<Duration>>) = Default::default();
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for key in keys {
            let key = key.into();
            let (limiter, checks, over) = (Arc::clone(limiter), Arc::clone(&checks), Arc::clone(&over));
            tasks.push(tokio::spawn(async move {
                // The ordering is relaxed, here and below, because the flag is independent of all
                // other data.
                while !over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let source = limiter.check(&key).await.source();
                    let took = begun.elapsed();
                    checks.lock().unwrap().push(Check { begun, took, source });
                    sleep(Duration::from_millis(1)).await;
                }
            }));
        }
        let (most, ended) = (Arc::clone(&late), Arc::clone(&over));
        tasks.push(tokio::spawn(async move {
            while !ended.load(Ordering::Relaxed) {
                let begun = Instant::now();
                sleep(Duration::from_millis(5)).await;
                let late = begun.elapsed().saturating_sub(Duration::from_millis(7));
                let mut most = most.lock().unwrap();
                *most = late.max(*most);
            }
        }));
        Self { checks, late, over, tasks }
    }

    pub(crate) async fn end(self) -> Ended {
        self.over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        let mut checks = std::mem::take(&mut *self.checks.lock().unwrap());
        checks.sort_by_key(|check| check.begun);
        let late = *self.late.lock().unwrap();
        Ended { checks, late }
    }
}

pub(crate) struct Ended {
    pub(crate) checks: Vec<Check>,
    /// The greatest lateness of a timer.
    pub(crate) late: Duration,
}

impl Ended {
    /// Asserts that no check exceeded its deadline by more than the machine's lateness.
    #[track_caller]
    pub(crate) fn assert_timely(&self, deadline: Duration) {
        let most = deadline + MARGIN + self.late;
        assert!(self.slowest() < most, "{:?}, allowed {most:?}", self.slowest());
    }

    /// Returns how soon after a fault the store answers again on this machine. Each step, from a
    /// probe to the answer of a check, may be as late as a timer was.
    pub(crate) fn recovery(&self) -> Duration {
        RECOVERY + 20 * self.late
    }

    pub(crate) fn slowest(&self) -> Duration {
        self.checks.iter().map(|check| check.took).max().expect("there were checks")
    }

    /// Returns the checks that started and ended between the two moments. If a check is under way
    /// when a fault ends, the store may answer it.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Vec<Check> {
        let is_between = |check: &&Check| check.begun >= from && check.begun + check.took < to;
        self.checks.iter().filter(is_between).copied().collect()
    }
}

/// Returns the median duration.
pub(crate) fn median(checks: &[Check]) -> Duration {
    let mut took: Vec<_> = checks.iter().map(|check| check.took).collect();
    took.sort();
    took[took.len() / 2]
}

pub(crate) fn share_of_store(checks: &[Check]) -> f64 {
    let by_store = checks.iter().filter(|check| check.source == DecisionSource::Store).count();
    by_store as f64 / checks.len() as f64
}

/// Sends checks until the store answers, and returns how long that took.
pub(crate) async fn store_answers(limiter: &Limiter, key: &str) -> Duration {
    let begun = Instant::now();
    let by_store = async || limiter.check(key).await.source() == DecisionSource::Store;
    until_async("the store answers", by_store).await;
    begun.elapsed()
}
