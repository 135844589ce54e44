//! If a server is down, only a few requests wait for their deadline. The fallback decides all
//! others.

use crate::load::{AGES, DEADLINE, Limiter, on_client, on_server, patient, store_answers};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tollgate::{Algorithm, DecisionSource, Outcome, Quota};
use tollgate_redis::{Client, WhenUnavailable};
use tollgate_testing::store::faults::{FaultProxy, Mode};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until_async};

fn limiter(client: &Client, limit: u64, algorithm: Algorithm, on_failure: WhenUnavailable) -> Limiter {
    let builder = Limiter::builder(client, "breaker", Quota::new(limit, AGES));
    // A healthy server always answers within this time.
    let deadline = Duration::from_secs(10);
    builder.algorithm(algorithm).when_unavailable(on_failure).deadline(deadline).build().unwrap()
}

#[test]
fn ten_thousand_checks_of_a_stopped_server_cost_three_deadlines_and_a_few_probes() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let client = Client::open(server.url_at(proxy.address())).unwrap();
        let builder = Limiter::builder(&client, "many", Quota::per_second(1_000_000));
        let limiter = builder.deadline(DEADLINE).build().unwrap();
        store_answers(&limiter, "alice").await;
        server.stop();
        // A busy machine may have given up the first connection.
        let opened = client.stats().breaker_trips;
        let (before, known, begun) = (proxy.passed(), limiter.stats(), Instant::now());
        for _ in 0..10_000 {
            let _ = limiter.check("alice").await;
        }
        let (took, stats, passed) = (begun.elapsed(), limiter.stats(), proxy.passed());
        let connections = passed.connections - before.connections;
        let bytes = passed.requests - before.requests;
        println!(
            "10,000 checks took {took:?}: {} deadlines, {connections} connections, {bytes} bytes",
            stats.unanswered - known.unanswered
        );
        // On a busy machine the checks need some time, but far less than a deadline for each check.
        assert!(took < 200 * DEADLINE, "{took:?}");
        assert_eq!(stats.unanswered - known.unanswered, 3);
        assert_eq!(stats.by_fallback - known.by_fallback, 10_000);
        // Probes run one after another. The pause between them doubles until it is at least half a
        // second.
        let most = 10 + 2 * took.as_secs();
        assert!(connections <= most && bytes <= 1_000 * most, "{connections} connections, {bytes} bytes");
        assert_eq!(client.stats().breaker_trips - opened, 1);
        server.resume();
        store_answers(&limiter, "alice").await;
        assert!(client.stats().connected);
    });
}

#[test]
fn ten_thousand_checks_at_a_time_wait_one_deadline_together() {
    on_client(async |server, client| {
        let builder = Limiter::builder(&client, "many", Quota::per_second(1_000_000));
        let limiter = builder.deadline(DEADLINE).build().unwrap();
        store_answers(&limiter, "alice").await;
        server.stop();
        let (known, begun) = (limiter.stats(), Instant::now());
        futures_util::future::join_all((0..10_000).map(|_| limiter.check("alice"))).await;
        let took = begun.elapsed();
        println!("10,000 checks at a time took {took:?}");
        // The checks are created and dropped one by one, which takes longer than the deadline on a
        // busy machine. If each check waited for the previous one, the whole batch would take
        // 10,000 deadlines.
        assert!(took < 200 * DEADLINE, "{took:?}");
        let begun = Instant::now();
        futures_util::future::join_all((0..10_000).map(|_| limiter.check("alice"))).await;
        println!("and 10,000 more {:?}", begun.elapsed());
        assert!(begun.elapsed() < 200 * DEADLINE, "{:?}", begun.elapsed());
        assert_eq!(limiter.stats().by_fallback - known.by_fallback, 20_000);
        server.resume();
    });
}

/// The pauses between probes are random and grow. If a server had merely stalled, it answers over
/// its old connection once it resumes, so no machine waits for a pause to end.
#[test]
fn a_server_that_goes_on_is_used_at_once_over_its_old_connection() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let client = Client::open(server.url_at(proxy.address())).unwrap();
        let limiter = Limiter::builder(&client, "stopped", Quota::per_second(1_000))
            .deadline(DEADLINE)
            .build()
            .unwrap();
        store_answers(&limiter, "alice").await;
        let before = proxy.passed().connections;
        proxy.set(Mode::Hold);
        until_async("the pauses are long", async || {
            let _ = limiter.check("alice").await;
            proxy.passed().connections >= before + 6
        })
        .await;
        // This attempt fails after 100 ms. The next attempt follows at least 320 ms later.
        sleep(Duration::from_millis(150)).await;
        let (attempts, resumed) = (proxy.passed().connections, Instant::now());
        proxy.set(Mode::Pass);
        store_answers(&limiter, "alice").await;
        println!("back after {:?}", resumed.elapsed());
        assert_eq!(proxy.passed().connections, attempts, "it was found by another probe");
        assert!(client.stats().connected);
        assert_eq!(client.stats().problems, []);
    });
}

#[test]
fn a_policy_answers_as_it_was_told_to_and_is_counted() {
    on_client(async |server, client| {
        let open = limiter(&client, 5, Algorithm::TokenBucket, WhenUnavailable::Allow);
        let closed = limiter(&client, 5, Algorithm::TokenBucket, WhenUnavailable::Deny);
        store_answers(&open, "alice").await;
        store_answers(&closed, "alice").await;
        server.kill();
        for _ in 0..10 {
            let (yes, no) = (open.check("alice").await, closed.check("alice").await);
            assert_eq!((yes.outcome(), yes.source()), (Outcome::Allowed, DecisionSource::Policy));
            assert_eq!(
                (no.outcome(), no.source(), no.retry_after()),
                (Outcome::Denied, DecisionSource::Policy, None)
            );
        }
        for stats in [open.stats(), closed.stats()] {
            assert_eq!((stats.by_store, stats.by_fallback, stats.store_errors), (1, 10, 0));
            assert_eq!(stats.unanswered + stats.unsent, 10, "{stats:?}");
        }
        // A charge that was not counted must not be refunded.
        open.refund("alice", &open.check("alice").await).await;
        server.restart();
        store_answers(&open, "bob").await;
        assert_eq!(open.peek("alice").await.remaining(), 5);
    });
}

#[test]
fn a_local_limiter_takes_over_with_what_the_store_has_admitted() {
    run(async {
        for (share, taken, left) in [(1.0, 60, 40), (0.5, 30, 20), (0.5, 60, 0)] {
            let server = Server::start();
            let client = patient(server.url());
            let limiters: Vec<_> = Algorithm::ALL
                .into_iter()
                .map(|algorithm| limiter(&client, 100, algorithm, WhenUnavailable::Local { share }))
                .collect();
            // Some algorithms store their states under the same name, so each algorithm uses its
            // own key here.
            for (number, limiter) in limiters.iter().enumerate() {
                let key = number.to_string();
                for _ in 0..taken {
                    let decision = limiter.check(&key).await;
                    assert_eq!((decision.is_allowed(), decision.source()), (true, DecisionSource::Store));
                }
            }
            server.kill();
            for (number, limiter) in limiters.iter().enumerate() {
                let (key, mut admitted) = (number.to_string(), 0);
                for _ in 0..100 {
                    let decision = limiter.check(&key).await;
                    assert_eq!(decision.source(), DecisionSource::Key);
                    admitted += u64::from(decision.is_allowed());
                }
                let stats = limiter.stats();
                assert_eq!(admitted, left, "{limiter:?} {share} {taken}");
                assert_eq!((stats.by_store, stats.by_fallback), (taken, 100));
            }
        }
    });
}

#[test]
fn nothing_is_sent_before_it_is_needed_and_the_first_check_waits_for_the_connection() {
    on_client(async |server, client| {
        let limiter = limiter(&client, 100, Algorithm::TokenBucket, WhenUnavailable::Deny);
        assert!(!client.stats().connected && server.clients() == 0);
        let all = futures_util::future::join_all((0..50).map(|_| limiter.check("alice"))).await;
        assert!(all.iter().all(|decision| decision.source() == DecisionSource::Store));
        assert!(client.stats().connected);
        assert_eq!(server.clients(), 1);
    });
}
