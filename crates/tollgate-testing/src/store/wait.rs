//! A runtime with a deadline for each test, and functions that poll a condition until it holds.

use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

/// The deadline of a test, so that no test hangs. It is much longer than any test takes, even on a
/// machine that is ten times slower or busier.
pub const TEST: Duration = Duration::from_secs(600);

/// The deadline of a condition. It is much longer than any condition takes to become true once its
/// causes have occurred.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The pause between two evaluations of a condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Runs a test on its own runtime. The test's tasks and connections end with the runtime.
pub fn run(test: impl Future<Output = ()>) {
    run_on(Builder::new_multi_thread().worker_threads(2), test);
}

/// Runs a test on one thread, where all ready tasks run in turn.
pub fn run_in_turn(test: impl Future<Output = ()>) {
    run_on(&mut Builder::new_current_thread(), test);
}

fn run_on(runtime: &mut Builder, test: impl Future<Output = ()>) {
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST, test).await }).expect("over in time");
}

/// Polls a condition until it holds, blocking the thread.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "it took too long until {what}");
        thread::sleep(PAUSE);
    }
}

/// Polls until there is an answer, blocking the thread.
#[track_caller]
pub fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut answer = None;
    until(what, || {
        answer = look();
        answer.is_some()
    });
    answer.expect("it was waited for")
}

/// Polls a condition until it holds. Does not block other tasks.
#[track_caller]
pub fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let from = Location::caller();
    async move {
        let begun = Instant::now();
        while !is_so().await {
            assert!(begun.elapsed() < DEADLINE, "{from}: it took too long until {what}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Returns whether a future is still pending after this time. Drops the future.
pub async fn is_silent<T: Debug>(time: Duration, future: impl Future<Output = T>) -> bool {
    tokio::time::timeout(time, future).await.is_err()
}
