//! Callers that wait for a shared limit.

use crate::load::on_each_client;
use futures_util::future::join_all;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tollgate::Quota;
use tollgate_redis::{Client, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::wait::run;
use tollgate_wait::{WaitError, WaitQueue};

/// Those who wait on one machine go in their order, at the pace of the store; those who leave cost
/// nothing.
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
            // It has its place, or has gone.
            while queues.waiting() + order.lock().unwrap().len() <= number {
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(begin.elapsed() < Duration::from_secs(60));
            }
        }
        // Every other one hangs up, but for the first, who may be asking the store just now.
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

/// The store is away, and the local limiter has a smaller capacity than the quota says.
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
