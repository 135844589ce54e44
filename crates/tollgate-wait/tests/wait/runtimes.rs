//! Tests queues in real time, with threads, tokio tasks, services and streams.

use futures_util::{SinkExt, StreamExt, stream};
use http::{Request, Response};
use std::env;
use std::io;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Limiter, ManualClock, Quota, SingleLimiter};
use tollgate_wait::{Paced, WaitError, WaitLayer, WaitQueue, WaitServiceError};
use tower::{Layer, Service, ServiceExt, service_fn};

/// Threads that wait for the same key take exactly the tokens of its quota.
#[test]
fn threads_wait_for_their_turns() {
    let limiter: Limiter<str> = Limiter::builder(Quota::per_second(2_000).burst(10)).build().unwrap();
    let queues = WaitQueue::new(limiter);
    let (begin, last) = (Instant::now(), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let turn = queues.block_until_ready("disk").unwrap();
                    last.fetch_max(turn.at().as_nanos(), Relaxed);
                }
            });
        }
    });
    // The threads take 800 tokens at 2,000 a second. Ten of the tokens are available at once.
    assert!(begin.elapsed() >= Duration::from_millis(395), "{:?}", begin.elapsed());
    assert_eq!(queues.waiting(), 0);
}

/// Far more threads than the quota can serve in time. The threads that are refused sleep for as
/// long as their error says, so they use hardly any processor time.
#[test]
fn eighty_threads_with_short_patience_use_little_processor_time() {
    let queue = WaitQueue::new(SingleLimiter::builder(Quota::per_second(20).burst(1)).build().unwrap());
    let (begin, patience) = (Instant::now(), Duration::from_millis(250));
    let (starts, refusals, nanos) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..80 {
            scope.spawn(|| {
                while begin.elapsed() < Duration::from_secs(1) {
                    match queue.block_until_ready_within(&(), patience) {
                        Ok(_) => starts.fetch_add(1, Relaxed),
                        Err(WaitError::TooLong { wait, .. }) => {
                            thread::sleep(wait.saturating_sub(patience));
                            refusals.fetch_add(1, Relaxed)
                        }
                        Err(WaitError::Expired { .. }) => refusals.fetch_add(1, Relaxed),
                        Err(other) => panic!("{other}"),
                    };
                }
                nanos.fetch_add(processor_time(), Relaxed);
            });
        }
    });
    let (starts, refusals) = (starts.into_inner(), refusals.into_inner());
    let (elapsed, used) = (begin.elapsed(), Duration::from_nanos(nanos.into_inner()));
    println!("{starts} starts and {refusals} refusals in {elapsed:?}, {used:?} of a processor");
    let most = 1.0 + 20.0 * elapsed.as_secs_f64();
    assert!(starts >= 15 && starts as f64 <= most, "{starts} starts in {elapsed:?}");
    assert!(refusals > 75 && used < elapsed / 2, "{refusals} refusals, {used:?}");
}

/// Returns the nanoseconds for which this thread has run, or 0 on systems that do not report them.
fn processor_time() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    times.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

#[test]
fn a_thread_is_refused_at_once() {
    let limiter = SingleLimiter::builder(Quota::per_hour(1)).build().unwrap();
    let queue = WaitQueue::new(&limiter);
    queue.block_until_ready(&()).unwrap();
    let begin = Instant::now();
    let refused = queue.block_until_n_within(&(), 1, Duration::from_secs(60)).unwrap_err();
    assert!(matches!(refused, WaitError::TooLong { .. }), "{refused}");
    assert!(begin.elapsed() < Duration::from_secs(30));
}

/// Callers run on all threads of a runtime, and half of them hang up.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_of_a_runtime_wait_and_hang_up() {
    let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(2_000).burst(20)).build().unwrap();
    let queues = Arc::new(WaitQueue::new(limiter));
    let tasks: Vec<_> = (0..600_u64)
        .map(|number| {
            let queues = Arc::clone(&queues);
            tokio::spawn(async move {
                let key = number % 3;
                let wait = queues.until_n(&key, 1 + number % 2);
                if number % 4 < 2 {
                    let _ = tokio::time::timeout(Duration::from_millis(number % 50), wait).await;
                } else {
                    wait.await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0));
}

/// If a service kept its limit in each clone, or waited in `poll_ready`, all of these calls would
/// pass.
#[tokio::test]
async fn clones_of_a_service_share_the_limit() {
    let limiter: Limiter<&str> = Limiter::builder(Quota::per_hour(5)).build().unwrap();
    let queues = Arc::new(WaitQueue::new(Paced::new(limiter)));
    let layer = WaitLayer::new(queues, |_: &Request<()>| ("api", 1)).max_wait(Duration::from_secs(1));
    let service = layer.layer(service_fn(async |_: Request<()>| Ok::<_, io::Error>(Response::new(()))));
    let calls = (0..50).map(|_| {
        let mut clone = service.clone();
        async move { clone.ready().await?.call(Request::new(())).await }
    });
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5);
    let refused = answers.into_iter().find_map(Result::err).unwrap();
    assert!(matches!(refused, WaitServiceError::Wait(WaitError::TooLong { .. })), "{refused}");
}

#[tokio::test]
async fn a_stream_and_a_sink_keep_the_pace() {
    let limiter: Limiter<str> = Limiter::builder(Quota::per_second(100).burst(1)).build().unwrap();
    let queues = WaitQueue::new(limiter);
    let begin = Instant::now();
    let items: Vec<_> = queues.pace_stream("disk", stream::iter(0..5)).collect().await;
    assert_eq!(items, [Ok(0), Ok(1), Ok(2), Ok(3), Ok(4)]);
    assert!(begin.elapsed() >= Duration::from_millis(39));

    let written = AtomicU64::new(0);
    let sink = futures_util::sink::unfold(&written, async |written: &AtomicU64, item| {
        written.fetch_add(item, Relaxed);
        Ok::<_, WaitError>(written)
    });
    let mut paced = std::pin::pin!(queues.pace_sink("disk", sink));
    for item in 1..=3 {
        paced.send(item).await.unwrap();
    }
    assert_eq!(written.load(Relaxed), 6);
    assert!(begin.elapsed() >= Duration::from_millis(69), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_sink_goes_on_after_a_wait_that_failed() {
    let clock = ManualClock::new();
    let limiter: Limiter<str> =
        Limiter::builder(Quota::per_second(1).burst(1)).clock(&clock).build().unwrap();
    let queue = WaitQueue::new(limiter).max_waiters(0);
    let written = AtomicU64::new(0);
    let sink = futures_util::sink::unfold(&written, async |written: &AtomicU64, item| {
        written.fetch_add(item, Relaxed);
        Ok::<_, WaitError>(written)
    });
    let mut paced = std::pin::pin!(queue.pace_sink("disk", sink));
    paced.send(1).await.unwrap();
    assert!(matches!(paced.send(10).await, Err(WaitError::Full { .. })));
    clock.advance(Duration::from_secs(1));
    paced.send(100).await.unwrap();
    assert!(matches!(paced.send(1_000).await, Err(WaitError::Full { .. })));
    paced.close().await.unwrap();
    assert_eq!(written.load(Relaxed), 101);
}

/// The example's client starts with a guess of 200 calls a second, and learns that the limit is 20.
/// It pauses for as long as the server requests, even if the server sends a date or no time at all.
/// `cargo test` builds the example together with the tests.
#[test]
fn the_client_of_the_example_learns_the_servers_limit() {
    let tests = env::current_exe().unwrap().with_file_name("");
    let program =
        tests.with_file_name("examples").join("outbound").with_extension(env::consts::EXE_EXTENSION);
    if !program.exists() {
        assert!(env::var_os("CI").is_none(), "{} was not built", program.display());
        println!("NOT DONE: {} was not built", program.display());
        return;
    }
    let start = |retry_after: &str| {
        Command::new(&program).arg(retry_after).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let fields = ["1", "date", "0.5", "0", ""];
    for (field, program) in fields.map(|field| (field, start(field))) {
        let refused = |program: std::process::Child| {
            let output = program.wait_with_output().unwrap();
            let text = format!("{field:?}: {}", String::from_utf8(output.stdout).unwrap());
            println!("{text}");
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
            assert!(text.contains("40 calls served"), "{text}");
            text.trim_end().rsplit(' ').next().unwrap().parse::<u32>().unwrap()
        };
        // The server refuses requests in the first burst, and requests that were in transit when it
        // became busy. On a busy machine, more of them are in transit, so the program then runs
        // again, up to twice.
        let mut most = refused(program);
        for _ in 0..2 {
            if most >= 25 {
                most = refused(start(field));
            }
        }
        assert!((1..25).contains(&most), "{field:?}: {most} refused");
    }
}
