//! Clocks that differ or step back.

use crate::load::{Limiter, on_each_client};
use futures_util::future::join_all;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tollgate::{Algorithm, DecisionSource, Quota, Tick};
use tollgate_redis::{Client, SharedBuilder};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::until_async;

/// How far clocks step back, in microseconds. This is much longer than a test waits for a
/// condition.
const BACK: u64 = 600_000_000;

/// Allows three tokens a minute, so that the store keeps the state even while a busy machine is
/// slow.
fn builder(client: &Client, algorithm: Algorithm) -> SharedBuilder<Limiter> {
    let builder = Limiter::builder(client, algorithm.to_string(), Quota::per_minute(3));
    builder.algorithm(algorithm).deadline(Duration::from_secs(5))
}

#[test]
fn with_the_clients_clock_the_server_is_not_asked_for_its_time() {
    on_each_client(async |server, client| {
        for algorithm in Algorithm::ALL {
            let limiter = builder(&client, algorithm).client_clock().build().unwrap();
            let mut admitted = 0;
            for _ in 0..4 {
                let decision = limiter.check("alice").await;
                assert_eq!(decision.source(), DecisionSource::Store);
                admitted += u64::from(decision.is_allowed());
            }
            // Four requests may fit if a window ends between them, or if a machine needs a third of
            // a minute.
            assert!((3..=4).contains(&admitted), "{algorithm}: {admitted}");
        }
        assert_eq!(server.calls("time"), 0);
        let limiter = builder(&client, Algorithm::TokenBucket).build().unwrap();
        let _ = limiter.check("alice").await;
        assert_eq!(server.calls("time"), 1);
    });
}

#[test]
fn a_client_whose_clock_is_behind_is_given_nothing_twice() {
    on_each_client(async |_server, client| {
        // The time is the start of a window, so the store keeps the window for a minute.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 60 * 60;
        let at = |seconds: u64| Tick::from(Duration::from_secs(seconds));
        for algorithm in Algorithm::ALL {
            let limiter = builder(&client, algorithm).build().unwrap();
            for allowed in [true, true, true, false] {
                assert_eq!(limiter.at(at(now)).check("alice").await.is_allowed(), allowed, "{algorithm}");
            }
            // Such a check is judged by the preceding check's time.
            for behind in [1, 2, 120, 86_400] {
                let decision = limiter.at(at(now - behind)).check("alice").await;
                assert_eq!(
                    (decision.is_allowed(), decision.source()),
                    (false, DecisionSource::Store),
                    "{algorithm} {behind}"
                );
            }
            // The check leaves the key's time unchanged.
            assert!(limiter.at(at(now + 120)).check("alice").await.is_allowed(), "{algorithm}");
        }
    });
}

#[test]
fn a_key_that_is_used_at_the_first_moment_works_then_and_later() {
    on_each_client(async |_server, client| {
        let at = |seconds: u64| Tick::from(Duration::from_secs(seconds));
        for algorithm in Algorithm::ALL {
            let limiter = builder(&client, algorithm).build().unwrap();
            let charge = limiter.at(at(0)).check_n("alice", 2).await;
            limiter.at(at(0)).refund("alice", &charge).await;
            for left in [2, 1] {
                let decision = limiter.at(at(0)).check("alice").await;
                let figures = (decision.source(), decision.remaining());
                assert_eq!(figures, (DecisionSource::Store, left), "{algorithm}");
            }
            let later = limiter.at(at(61)).check("alice").await;
            assert_eq!((later.source(), later.is_allowed()), (DecisionSource::Store, true), "{algorithm}");
        }
    });
}

/// Moves the store's state of a key into the future.
fn into_the_future(server: &Server, algorithm: Algorithm, key: &str) {
    let left = server.ask::<i64>(&["PTTL", key]) + i64::try_from(BACK / 1_000).unwrap();
    if algorithm == Algorithm::SlidingLog {
        let members: Vec<(String, String)> = server.ask(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
        for (member, score) in members {
            let score: f64 = score.parse().unwrap();
            let moved = match &*member {
                "seen" | "paused" => score - BACK as f64,
                _ if score >= 0.0 => score + BACK as f64,
                _ => score,
            };
            server.command(&["ZADD", key, &format!("{moved:.0}"), &member]);
        }
        server.command(&["PEXPIRE", key, &left.to_string()]);
        return;
    }
    let state: Vec<u8> = server.ask(&["GET", key]);
    let (head, numbers) = state.split_at(2);
    let numbers = numbers.as_chunks().0.iter().map(|number| f64::from_le_bytes(*number));
    let mut numbers: Vec<f64> = numbers.collect();
    let back = BACK as f64;
    match algorithm.has_windows() {
        true => numbers[0] += back / numbers[3],
        false => numbers[1] += back,
    }
    // The ends of a pause and of a lease.
    numbers[4..].iter_mut().filter(|end| **end > 0.0).for_each(|end| *end += back);
    let moved: Vec<_> = numbers.into_iter().map(f64::to_le_bytes).collect();
    let state = [head, moved.as_flattened()].concat();
    let mut set = redis::cmd("SET");
    set.arg(key).arg(state).arg("PX").arg(left);
    set.exec(&mut server.client().get_connection().unwrap()).unwrap();
}

#[test]
fn a_server_whose_clock_steps_back_denies_nobody_for_long_and_gives_nothing_twice() {
    on_each_client(async |server, client| {
        let steps_back = async |algorithm: Algorithm| {
            // The period is long enough that nothing refills while the state is being moved.
            let period = Duration::from_secs(6);
            let quota = Quota::new(3, period);
            let limiter: Limiter = Limiter::builder(&client, algorithm.to_string(), quota)
                .algorithm(algorithm)
                .deadline(Duration::from_secs(5))
                .build()
                .unwrap();
            let _ = limiter.check_n("alice", 3).await;
            let prefix = format!("tollgate:{algorithm}:");
            let is_its = |key: &String| key.starts_with(&prefix);
            let key = server.keys_with_ttl().into_iter().map(|(key, _)| key).find(is_its).unwrap();
            into_the_future(&server, algorithm, &key);
            let begun = tokio::time::Instant::now();
            let denied = limiter.check_n("alice", 3).await;
            assert!(!denied.is_allowed(), "{algorithm}: {denied:?}");
            assert_eq!(denied.source(), DecisionSource::Store);
            let wait = denied.retry_after().unwrap();
            assert!(wait <= 2 * period, "{algorithm}: {wait:?}");
            until_async("they have come back", async || {
                tokio::time::sleep(Duration::from_millis(50)).await;
                limiter.check_n("alice", 3).await.is_allowed()
            })
            .await;
            println!("{algorithm}: said {wait:?}, took {:?}", begun.elapsed());
            // The key's lifetime in the store must not grow by the time that the clock stepped
            // back.
            let left = server.ask::<i64>(&["PTTL", &key]);
            assert!(left <= 14_000, "{algorithm}: {left} ms");
        };
        join_all(Algorithm::ALL.map(steps_back)).await;
    });
}

#[test]
fn a_pause_goes_back_with_the_servers_clock() {
    on_each_client(async |server, client| {
        let (period, pause) = (Duration::from_secs(6), Duration::from_secs(30));
        for algorithm in Algorithm::ALL {
            let builder = Limiter::builder(&client, algorithm.to_string(), Quota::new(3, period));
            let limiter: Limiter =
                builder.algorithm(algorithm).deadline(Duration::from_secs(5)).build().unwrap();
            let since = tokio::time::Instant::now();
            limiter.pause("alice", pause).await.unwrap();
            let (key, _) = server.keys_with_ttl().remove(0);
            into_the_future(&server, algorithm, &key);
            for _ in 0..2 {
                let denied = limiter.check("alice").await;
                let wait = denied.retry_after().unwrap();
                assert_eq!((denied.is_allowed(), denied.source()), (false, DecisionSource::Pause));
                assert!(wait <= pause + 2 * period, "{algorithm}: {wait:?}");
                assert!(wait + since.elapsed() >= pause, "{algorithm}: {wait:?}");
            }
            limiter.reset("alice").await.unwrap();
        }
    });
}
