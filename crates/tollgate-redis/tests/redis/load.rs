//! A limiter under steady load, and how long its checks take before, during and after a fault.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tollgate::Source;
use tollgate_redis::SharedLimiter;
use tollgate_testing::store::wait::until_async;

pub(crate) type Limiter = SharedLimiter<str>;

/// What limiters of these tests are given to answer by.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);
/// A check may take so much longer, on a machine that is busy with other tests, besides what a timer was late meanwhile.
pub(crate) const MARGIN: Duration = Duration::from_millis(100);
/// After a fault, the store answers again within so long: probes are a second and a half apart at the most.
pub(crate) const RECOVERY: Duration = Duration::from_secs(4);

/// A period in which next to nothing comes back, and which ends once in years: what was admitted can be counted.
pub(crate) const AGES: Duration = Duration::from_secs(1_000 * 86_400);

/// One check: when it began, how long it took, who answered.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    pub(crate) begun: Instant,
    pub(crate) took: Duration,
    pub(crate) source: Source,
}

/// Tasks that check again and again, each with a key of its own.
pub(crate) struct Load {
    checks: Arc<Mutex<Vec<Check>>>,
    /// How late a timer was at the most.
    late: Arc<Mutex<Duration>>,
    over: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// A task for each of the keys.
    pub(crate) fn start<S: Into<String>>(limiter: &Arc<Limiter>, keys: impl IntoIterator<Item = S>) -> Self {
        let (checks, late): (Arc<Mutex<Vec<Check>>>, Arc<Mutex<Duration>>) = Default::default();
        let over = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for key in keys {
            let key = key.into();
            let (limiter, checks, over) = (Arc::clone(limiter), Arc::clone(&checks), Arc::clone(&over));
            tasks.push(tokio::spawn(async move {
                // Relaxed, here and below: a flag, and nothing else hangs on it.
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
    /// How late a timer was at the most.
    pub(crate) late: Duration,
}

impl Ended {
    /// No check took longer than its deadline and what the machine was late.
    #[track_caller]
    pub(crate) fn assert_timely(&self) {
        let most = DEADLINE + MARGIN + self.late;
        assert!(self.slowest() < most, "{:?}, allowed {most:?}", self.slowest());
    }

    pub(crate) fn slowest(&self) -> Duration {
        self.checks.iter().map(|check| check.took).max().expect("there were checks")
    }

    /// Of these checks that began between the two.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Vec<Check> {
        self.checks.iter().copied().filter(|check| (from..to).contains(&check.begun)).collect()
    }
}

/// The middle of how long they took.
pub(crate) fn median(checks: &[Check]) -> Duration {
    let mut took: Vec<_> = checks.iter().map(|check| check.took).collect();
    took.sort();
    took[took.len() / 2]
}

pub(crate) fn share_of_store(checks: &[Check]) -> f64 {
    let by_store = checks.iter().filter(|check| check.source == Source::Remote).count();
    by_store as f64 / checks.len() as f64
}

/// Checks until the store answers; how long that took.
pub(crate) async fn store_answers(limiter: &Limiter, key: &str) -> Duration {
    let begun = Instant::now();
    let by_store = async || limiter.check(key).await.source() == Source::Remote;
    until_async("the store answers", by_store).await;
    begun.elapsed()
}
