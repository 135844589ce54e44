//! Callers that wait for a shared limit.

use crate::load::{AGES, on_client, on_each_client, on_server, patient};
use futures_util::future::{join, join_all};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tollgate::{Algorithm, Quota};
use tollgate_redis::{Client, SharedBuilder, SharedInFlight, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::wait::{run, until_async};
use tollgate_wait::{WaitError, WaitQueue};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3_600);

/// Callers on one machine are served in order of arrival, as fast as the store allows. Callers that
/// give up cost nothing.
#[test]
fn callers_wait_for_a_shared_limit_in_their_order() {
    on_each_client(async |_server, client| {
        let limiter: SharedLimiter<str> =
            SharedLimiter::builder(&client, "turns", Quota::per_second(2).burst(1))
                .deadline(Duration::from_secs(20))
                .build()
                .unwrap();
        let (queues, order) = (Arc::new(WaitQueue::new(limiter)), Arc::new(Mutex::new(Vec::new())));
        let begin = Instant::now();
        assert!(queues.until_ready("alice").await.is_ok());
        let mut callers = Vec::new();
        for number in 0..6 {
            let (shared, list) = (Arc::clone(&queues), Arc::clone(&order));
            callers.push(tokio::spawn(async move {
                shared.until_ready("alice").await.unwrap();
                list.lock().unwrap().push(number);
            }));
            // The caller is in the queue or has finished.
            while queues.waiting() + order.lock().unwrap().len() <= number {
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(begin.elapsed() < Duration::from_secs(60));
            }
        }
        // Every other caller hangs up, except the first one, which may be asking the store at this
        // moment.
        callers.iter().skip(2).step_by(2).for_each(|caller| caller.abort());
        let never = queues.until_n("alice", 2).await;
        assert_eq!(never, Err(WaitError::Never { cost: 2, capacity: 1 }));
        let refused = queues.until_n_within("alice", 1, Duration::from_millis(10)).await;
        assert!(matches!(refused, Err(WaitError::TooLong { .. })), "{refused:?}");

        let ended = join_all(callers).await;
        assert!(ended.iter().filter(|caller| caller.is_ok()).count() >= 4);
        let order = order.lock().unwrap();
        assert!(order.is_sorted(), "{order:?}");
        assert!(begin.elapsed() >= Duration::from_millis(500 * (order.len() as u64 - 1)));
        assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0));
    });
}

/// Two machines share a leaky queue, whose burst would admit all callers at once. A caller whose
/// start is too late is refused at once, and takes no start.
#[test]
fn a_shared_leaky_queue_starts_its_waiters_evenly() {
    on_each_client(async |_server, client| {
        let queues = [(); 2].map(|()| {
            let limiter: SharedLimiter<str> = SharedLimiter::builder(&client, "turns", Quota::per_second(5))
                .algorithm(Algorithm::LeakyQueue)
                .deadline(Duration::from_secs(20))
                .build()
                .unwrap();
            Arc::new(WaitQueue::new(limiter))
        });
        let waits = |number: usize| {
            let queue = Arc::clone(&queues[number % 2]);
            tokio::spawn(async move { queue.until_ready("alice").await.unwrap() })
        };
        let begin = Instant::now();
        let callers: Vec<_> = (0..6).map(waits).collect();
        while queues.iter().map(|queue| queue.waiting()).sum::<usize>() < 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        // Two or three callers wait in this queue, so its last one starts after 400 ms or more.
        let refused = queues[0].until_ready_within("alice", Duration::from_millis(10)).await;
        assert!(matches!(refused, Err(WaitError::TooLong { .. })), "{refused:?}");
        let mut starts = Vec::new();
        for turn in join_all(callers).await {
            let turn = turn.unwrap();
            assert_eq!(turn.start_after(), Duration::ZERO);
            starts.push(turn.at());
        }
        starts.sort_unstable();
        for pair in starts.windows(2) {
            assert!(pair[1].since(pair[0]) >= Duration::from_millis(199), "{starts:?}");
        }
    });
}

/// The store is unreachable, and the local limiter has a smaller capacity than the quota.
#[test]
fn callers_with_a_deadline_wait_behind_the_share_that_stands_in_for_the_store() {
    run(async {
        let client = Client::open("redis://127.0.0.1:1").unwrap();
        let limiter: SharedLimiter<str> =
            SharedLimiter::builder(&client, "turns", Quota::per_second(20).burst(5))
                .when_unavailable(WhenUnavailable::Local { share: 0.5 })
                .build()
                .unwrap();
        let queues = Arc::new(WaitQueue::new(limiter));
        let callers = (0..8).map(|_| {
            let queues = Arc::clone(&queues);
            tokio::spawn(async move { queues.until_n_within("alice", 1, Duration::from_secs(60)).await })
        });
        for caller in join_all(callers).await {
            assert_eq!(caller.unwrap().map(|turn| turn.charged()), Ok(1));
        }
    });
}

/// A local limiter with half of the quota replaces the store, so callers wait at half of the rate.
#[test]
fn a_wait_is_told_at_the_rate_of_the_share_that_stands_in() {
    run(async {
        let client = Client::open("redis://127.0.0.1:1").unwrap();
        let quota = Quota::per_hour(60).burst(5);
        let build = |builder: SharedBuilder<SharedLimiter<str>>| {
            let builder = builder.when_unavailable(WhenUnavailable::Local { share: 0.5 });
            Arc::new(WaitQueue::new(builder.build().unwrap()))
        };
        let builder = |name| SharedLimiter::builder(&client, name, quota);
        let classes = build(builder("class").class("paid", quota));
        let paid = Arc::new(WaitQueue::new(classes.limiter().class("paid").unwrap()));
        for queue in [build(builder("exact")), build(builder("lease").lease(2)), paid] {
            for _ in 0..3 {
                assert!(queue.until_ready("alice").await.is_ok());
            }
            // Five callers wait, and each receives a token after two minutes.
            let callers: Vec<_> = (0..5)
                .map(|_| {
                    let queue = Arc::clone(&queue);
                    tokio::spawn(async move { queue.until_ready("alice").await.map(|_| ()) })
                })
                .collect();
            until_async("five wait", async || queue.waiting() == 5).await;
            let day = Duration::from_secs(86_400);
            let dear = queue.until_n_within("alice", 5, day).await;
            assert_eq!(dear, Err(WaitError::NoRetryTime));
            let never = Err(WaitError::Never { cost: 6, capacity: 5 });
            assert_eq!(queue.until_n_within("alice", 6, day).await, never);
            match queue.until_n_within("alice", 1, Duration::from_secs(1)).await {
                Err(WaitError::TooLong { wait, .. }) => {
                    let expected = Duration::from_secs(6 * 120);
                    assert!((expected - Duration::from_secs(60)..=expected).contains(&wait), "{wait:?}");
                }
                other => panic!("{other:?}"),
            }
            callers.iter().for_each(|caller| caller.abort());
        }

        // The window may be ahead of the store by two tokens. The local share has five tokens.
        let builder = SharedLimiter::builder(&client, "window", Quota::new(10, AGES))
            .algorithm(Algorithm::FixedWindow)
            .max_unsynced(2);
        let queue = build(builder);
        for _ in 0..5 {
            assert!(queue.until_ready("alice").await.is_ok());
        }
        let shared = Arc::clone(&queue);
        let first = tokio::spawn(async move { shared.until_ready("alice").await.map(|_| ()) });
        until_async("one waits", async || queue.waiting() == 1).await;
        let late = queue.until_n_within("alice", 1, Duration::from_secs(1)).await;
        assert!(matches!(late, Err(WaitError::TooLong { .. })), "{late:?}");
        first.abort();
    });
}

/// The local limiter has three tokens, and refills one in two minutes. The key is paused on this
/// machine only, because the store is unreachable.
#[test]
fn a_paused_key_waits_at_the_rate_of_the_share_that_stands_in() {
    run(async {
        let client = Client::open("redis://127.0.0.1:1").unwrap();
        let limiter: SharedLimiter<str> =
            SharedLimiter::builder(&client, "turns", Quota::per_hour(60).burst(5))
                .when_unavailable(WhenUnavailable::Local { share: 0.5 })
                .build()
                .unwrap();
        let queue = Arc::new(WaitQueue::new(limiter));
        let hour = Duration::from_secs(3_600);
        assert!(queue.limiter().pause("alice", hour).await.is_err());
        let dear = queue.until_n_within("alice", 5, LONG).await;
        assert_eq!(dear, Err(WaitError::NoRetryTime));
        let callers: Vec<_> = (0..5)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move { queue.until_ready("alice").await.map(|_| ()) })
            })
            .collect();
        until_async("five wait", async || queue.waiting() == 5).await;
        match queue.until_n_within("alice", 1, Duration::from_secs(1)).await {
            Err(WaitError::TooLong { wait, .. }) => {
                // Three of the six callers receive their tokens at the end of the pause.
                let expected = hour + Duration::from_secs(3 * 120);
                assert!((expected - Duration::from_secs(60)..=expected).contains(&wait), "{wait:?}");
            }
            other => panic!("{other:?}"),
        }
        callers.iter().for_each(|caller| caller.abort());
    });
}

/// The local share has four tokens, and the store has eight. With leases they have 30 and 60,
/// because leases require a larger burst.
#[test]
fn nobody_is_told_never_while_the_store_comes_and_goes() {
    on_server(async |server| {
        let client = patient(server.url());
        let quota = Quota::per_second(200);
        let builder = |name, burst| {
            let bucket = SharedLimiter::<str>::builder(&client, name, quota.burst(burst));
            bucket.when_unavailable(WhenUnavailable::Local { share: 0.5 })
        };
        let window = SharedLimiter::builder(&client, "window", Quota::new(8, Duration::from_millis(40)))
            .algorithm(Algorithm::SlidingWindow)
            .when_unavailable(WhenUnavailable::Local { share: 0.5 });
        let limiters = [
            builder("exact", 8).build().unwrap(),
            builder("lease", 60).lease(2).build().unwrap(),
            builder("class", 2).class("paid", quota.burst(8)).build().unwrap().class("paid").unwrap(),
            window.max_unsynced(2).build().unwrap(),
        ];
        let over = Arc::new(AtomicBool::new(false));
        let callers = limiters.into_iter().map(WaitQueue::new).map(Arc::new).flat_map(|queue| {
            (0..4).map(move |_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move {
                    for _ in 0..25 {
                        let cost = fastrand::u64(1..=8);
                        let turn = queue.until_n_within("alice", cost, Duration::from_secs(120)).await;
                        let told_no_time = cost > 4 && turn == Err(WaitError::NoRetryTime);
                        assert!(turn.is_ok() || told_no_time, "{cost} of {queue:?}: {turn:?}");
                    }
                })
            })
        });
        let callers = callers.collect::<Vec<_>>();
        let ended = Arc::clone(&over);
        let faults = async {
            while !ended.load(Relaxed) {
                server.stop();
                sleep(Duration::from_millis(fastrand::u64(20..300))).await;
                server.resume();
                sleep(Duration::from_millis(fastrand::u64(20..300))).await;
            }
        };
        let all = async {
            for caller in join_all(callers).await {
                caller.unwrap();
            }
            over.store(true, Relaxed);
        };
        join(all, faults).await;
    });
}

/// Returns a queue of jobs that asks again only when it is woken.
fn jobs(client: &Client, limit: u64) -> Arc<WaitQueue<SharedInFlight<str>>> {
    let jobs = SharedInFlight::builder(client, "jobs", limit).deadline(Duration::from_secs(5));
    let queue = WaitQueue::new(jobs.lifetime(LONG).build().unwrap());
    Arc::new(queue.recheck(LONG).patience(LONG))
}

/// A job that holds a permit. At most two jobs hold permits at the same time, even if jobs hang up.
struct Work(Arc<AtomicU64>);

impl Work {
    fn begin(out: &Arc<AtomicU64>) -> Self {
        assert!(out.fetch_add(1, Relaxed) < 2);
        Self(Arc::clone(out))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A permit passes from one caller to the next. A caller wakes when the store has a permit.
#[test]
fn a_shared_permit_that_is_dropped_is_in_the_store_when_the_next_is_woken() {
    on_client(async |_server, client| {
        let queue = jobs(&client, 1);
        let callers = (0..3).map(|_| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move {
                for _ in 0..300 {
                    drop(queue.until_ready("alice").await.unwrap());
                }
            })
        });
        join_all(callers.collect::<Vec<_>>()).await.into_iter().for_each(Result::unwrap);
    });
}

/// Only woken callers ask, so the test would fail if a permit were returned unnoticed.
#[test]
fn each_shared_permit_that_comes_back_goes_to_the_next_of_this_machine() {
    on_each_client(async |_server, client| {
        let queue = jobs(&client, 2);
        let (order, out) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let mut callers = Vec::new();
        for number in 0..60_u64 {
            let (shared, list, out) = (Arc::clone(&queue), Arc::clone(&order), Arc::clone(&out));
            callers.push(tokio::spawn(async move {
                let permit = shared.until_ready("alice").await.unwrap();
                list.lock().unwrap().push(number);
                let work = Work::begin(&out);
                assert!(permit.is_held());
                sleep(Duration::from_millis(number % 4)).await;
                drop(work);
                if number % 2 == 0 { permit.release().await } else { drop(permit) }
            }));
            if number < 8 {
                let came = async || (queue.waiting() + order.lock().unwrap().len()) as u64 > number;
                until_async("it waits or has begun", came).await;
            }
        }
        // Some callers hang up, including callers that are waiting for the store's answer.
        callers.iter().skip(8).step_by(3).for_each(|caller| caller.abort());
        for caller in join_all(callers).await {
            assert!(caller.is_ok() || caller.unwrap_err().is_cancelled());
        }
        let begun: Vec<_> = order.lock().unwrap().iter().copied().filter(|number| *number < 8).collect();
        assert!(begun.is_sorted() && begun.len() == 8, "{begun:?}");
        until_async("all are back", async || queue.limiter().in_flight("alice").await == 0).await;
        assert_eq!((queue.waiting(), queue.waiting_keys()), (0, 0));
    });
}

#[test]
fn a_permit_that_another_machine_gives_back_is_found_at_the_interval() {
    on_client(async |server, client| {
        let other = patient(server.url());
        let there = jobs(&other, 1);
        let here = SharedInFlight::<str>::builder(&client, "jobs", 1).deadline(Duration::from_secs(5));
        let here = WaitQueue::new(here.lifetime(LONG).build().unwrap());
        let here = Arc::new(here.recheck(Duration::from_millis(200)));
        let permit = there.until_ready("alice").await.unwrap();
        let expired = |max_wait| WaitError::Expired { max_wait, in_flight: Some(1) };
        for max_wait in [Duration::ZERO, Duration::from_millis(300)] {
            assert_eq!(here.until_ready_within("alice", max_wait).await.unwrap_err(), expired(max_wait));
        }
        let never = WaitError::Never { cost: 2, capacity: 1 };
        assert_eq!(here.until_n("alice", 2).await.unwrap_err(), never);
        let shared = Arc::clone(&here);
        let waits = tokio::spawn(async move { shared.until_ready("alice").await.unwrap() });
        until_async("it waits", async || here.waiting() == 1).await;
        permit.release().await;
        let begin = Instant::now();
        let permit = waits.await.unwrap();
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        assert!(permit.is_held());
    });
}

/// The rate and the permit are charged together or not at all, whether the store or its fallback
/// decides.
#[test]
fn a_shared_rate_and_a_shared_permit_are_taken_together() {
    on_client(async |server, client| {
        let rate = SharedLimiter::<str>::builder(&client, "rate", Quota::new(20, AGES));
        let rate = rate.deadline(Duration::from_secs(2)).build().unwrap();
        let jobs = SharedInFlight::<str>::builder(&client, "jobs", 2).deadline(Duration::from_secs(2));
        let jobs = jobs.lifetime(LONG).build().unwrap();
        let queue = Arc::new(WaitQueue::new((rate.clone(), jobs.clone())).recheck(LONG).patience(LONG));
        // At first, most callers ask in vain, while there are tokens but no permit.
        let callers = (0..20).map(|_| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move {
                let (turn, permit) = queue.until_ready("alice").await.unwrap();
                assert_eq!(turn.charged(), 1);
                sleep(Duration::from_millis(3)).await;
                permit.release().await;
            })
        });
        let callers: Vec<_> = callers.collect();
        join_all(callers).await.into_iter().for_each(Result::unwrap);
        let late = queue.until_ready_within("alice", LONG).await.map(|_| ());
        assert!(matches!(late, Err(WaitError::TooLong { .. })), "{late:?}");
        until_async("all are back", async || jobs.in_flight("alice").await == 0).await;
        assert_eq!(rate.peek("alice").await.remaining(), 0);

        server.kill();
        let (_turn, permit) = queue.until_ready_within("bob", LONG).await.unwrap();
        assert_eq!(jobs.in_flight("bob").await, 1);
        drop(permit);
        until_async("it is back", async || jobs.in_flight("bob").await == 0).await;
    });
}
