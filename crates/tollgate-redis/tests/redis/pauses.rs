//! Paused keys in each mode of a shared limit. `vectors` tests that the store and a limiter in
//! memory make the same decisions.

use crate::load::{MARGIN, on_each_client, on_server, patient};
use futures_util::future::join_all;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tollgate::{Algorithm, Decision, DecisionSource, Outcome, Quota, Tick};
use tollgate_redis::{SharedBuilder, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::wait::until_async;

/// Long enough for a check to wait on a busy machine.
const PATIENT: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

fn builder(url: String, algorithm: Algorithm) -> SharedBuilder<SharedLimiter<str>> {
    let builder = SharedLimiter::<str>::builder(&patient(url), "paused", Quota::per_minute(1_000));
    builder.algorithm(algorithm).deadline(PATIENT).when_unavailable(WhenUnavailable::Deny)
}

/// Asserts that `decision` denies a key that was paused for `time`, at `since` or later.
#[track_caller]
fn is_held_back(decision: &Decision, time: Duration, since: Instant) {
    let wait = decision.retry_after().unwrap();
    assert_eq!((decision.outcome(), decision.remaining()), (Outcome::Denied, 0), "{decision:?}");
    assert!(wait <= time && wait + since.elapsed() >= time, "{decision:?}");
}

#[test]
fn a_pause_holds_on_all_machines_until_its_end_or_a_reset() {
    on_each_client(async |server, client| {
        let there = builder(server.url(), Algorithm::TokenBucket).build().unwrap();
        let here = SharedLimiter::<str>::builder(&client, "paused", Quota::per_minute(1_000));
        let here = here.deadline(PATIENT).build().unwrap();
        let since = Instant::now();
        there.pause("alice", MINUTE).await.unwrap();
        here.pause("alice", MINUTE / 2).await.unwrap();
        is_held_back(&here.check("alice").await, MINUTE, since);
        is_held_back(&here.peek_n("alice", 7).await, MINUTE, since);
        is_held_back(&here.reserve("alice", 5).await.unwrap_err().decision(), MINUTE, since);
        let decisions = here.check_many(&[("alice", 1), ("bob", 1), ("alice", 0)]).await;
        assert_eq!(decisions.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [false, true, true]);
        assert_eq!(here.check_n("alice", 1_001).await.outcome(), Outcome::TooCostly);
        assert_eq!(here.force("alice", 5).await, 5);
        there.reset("alice").await.unwrap();
        assert_eq!(here.check("alice").await.remaining(), 999);
    });
}

#[test]
fn a_pause_by_a_machine_with_another_quota_changes_no_tokens() {
    on_each_client(async |server, client| {
        // The start of a minute, so that windows of a minute still contain the later times.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 60 * 60;
        let at = |seconds: u64| Tick::from(Duration::from_secs(now + seconds));
        for algorithm in Algorithm::ALL {
            let with = |quota| {
                let builder = SharedLimiter::<str>::builder(&client, algorithm.to_string(), quota);
                builder.algorithm(algorithm).deadline(PATIENT).build().unwrap()
            };
            let (here, keys) = (with(Quota::new(60, MINUTE)), ["alice", "bob"]);
            for tokens in [12, 60] {
                let there = with(Quota::new(tokens, MINUTE / 6));
                for key in keys {
                    assert!(here.at(at(0)).check_n(key, 50).await.is_allowed());
                }
                there.at(at(0)).pause("alice", Duration::from_secs(1)).await.unwrap();
                for later in [9, 30] {
                    let left = keys.map(async |key| here.at(at(later)).peek_n(key, 0).await.remaining());
                    let [alice, bob] = join_all(left).await.try_into().unwrap();
                    assert_eq!(alice, bob, "{algorithm} {tokens} {later}");
                }
                let lives = server.keys_with_ttl();
                assert!(lives.len() == 2 && lives.iter().all(|(_, left)| *left > 15_000), "{lives:?}");
                for key in keys {
                    here.reset(key).await.unwrap();
                }
            }
        }
    });
}

/// The store keeps the state of an idle key for a second after the state stops counting. It keeps
/// the state of a paused key until the pause has ended.
#[test]
fn the_store_keeps_the_pause_of_an_idle_key_until_its_end() {
    on_server(async |server| {
        for algorithm in Algorithm::ALL {
            let builder =
                SharedLimiter::<str>::builder(&patient(server.url()), "short", Quota::per_second(9));
            let limiter = builder.algorithm(algorithm).deadline(PATIENT).build().unwrap();
            let (time, since) = (Duration::from_millis(3_500), Instant::now());
            limiter.pause(&algorithm.to_string(), time).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            is_held_back(&limiter.check(&algorithm.to_string()).await, time, since);
            until_async("it has ended", async || limiter.peek(&algorithm.to_string()).await.is_allowed())
                .await;
            assert!(since.elapsed() >= time);
            assert_eq!(limiter.check(&algorithm.to_string()).await.remaining(), 8, "{algorithm}");
        }
    });
}

/// The key of the first denial is paused for all machines. Later denials do not extend the pause,
/// which ends to the microsecond.
#[test]
fn a_penalty_starts_with_a_denial_and_holds_on_all_machines_until_its_end() {
    on_each_client(async |server, client| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let at = |micros: u64| Tick::from(Duration::from_secs(now) + Duration::from_micros(micros));
        for algorithm in Algorithm::ALL {
            let builder = |client| {
                let quota = Quota::per_second(3);
                let builder = SharedLimiter::<str>::builder(client, algorithm.to_string(), quota);
                builder.algorithm(algorithm).deadline(PATIENT).penalty(MINUTE)
            };
            let other = patient(server.url());
            let (there, here) = (builder(&other).build().unwrap(), builder(&client).build().unwrap());
            assert!(here.at(at(0)).check_n("alice", 3).await.is_allowed(), "{algorithm}");
            let peeked = here.at(at(5)).peek("alice").await;
            assert_eq!((peeked.source(), peeked.retry_after()), (DecisionSource::Store, Some(MINUTE)));
            assert_eq!(here.at(at(5)).check_n("alice", 4).await.outcome(), Outcome::TooCostly);
            let denied = here.at(at(5)).check("alice").await;
            assert_eq!((denied.source(), denied.retry_after()), (DecisionSource::Store, Some(MINUTE)));
            for limiter in [&there, &here] {
                let many = limiter.at(at(30_000_005)).check_many(&[("alice", 1), ("alice", 2)]).await;
                for denied in many {
                    let told = (denied.source(), denied.retry_after());
                    assert_eq!(told, (DecisionSource::Pause, Some(MINUTE / 2)), "{algorithm}");
                }
                let denied = limiter.at(at(60_000_004)).check("alice").await;
                assert_eq!(denied.retry_after(), Some(Duration::from_micros(1)), "{algorithm}");
            }
            assert!(there.at(at(60_000_005)).check_n("alice", 3).await.is_allowed(), "{algorithm}");
            let many = there.at(at(60_000_006)).check_many(&[("bob", 3), ("bob", 1), ("bob", 1)]).await;
            assert_eq!(many[1].retry_after(), Some(MINUTE), "{algorithm}");
            let denied = here.at(at(60_000_006)).check("bob").await;
            assert_eq!((denied.source(), denied.retry_after()), (DecisionSource::Pause, Some(MINUTE)));
        }
        let builder = SharedLimiter::<str>::builder(&client, "none", Quota::per_second(3));
        let refused = builder.penalty(Duration::ZERO).build().unwrap_err().to_string();
        assert!(refused.starts_with("penalty 0 would pause no key"), "{refused}");
    });
}

#[test]
fn leases_and_unsynchronized_counts_have_the_penalty() {
    on_server(async |server| {
        for leases in [true, false] {
            let limiter = || {
                let quota = Quota::new(40, Duration::from_secs(1));
                let client = patient(server.url());
                let builder = SharedLimiter::<str>::builder(&client, format!("{leases}"), quota);
                let builder =
                    builder.deadline(PATIENT).when_unavailable(WhenUnavailable::Deny).penalty(MINUTE);
                match leases {
                    true => builder.lease(10).build().unwrap(),
                    false => builder.algorithm(Algorithm::SlidingWindow).max_unsynced(10).build().unwrap(),
                }
            };
            let (here, there) = (limiter(), limiter());
            until_async("they are connected", async || {
                here.client().connect().await.is_ok() && there.client().connect().await.is_ok()
            })
            .await;
            let since = Instant::now();
            let denied = loop {
                let decision = here.check("alice").await;
                if !decision.is_allowed() {
                    break decision;
                }
            };
            assert!(matches!(denied.source(), DecisionSource::Store | DecisionSource::Lease), "{denied:?}");
            assert_eq!(denied.retry_after(), Some(MINUTE), "{denied:?}");
            // A full second would refill the quota, and each of these denials could extend the
            // pause.
            let ends = Instant::now() + MINUTE;
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            for _ in 0..20 {
                let denied = here.check("alice").await;
                assert_eq!((denied.source(), denied.remaining()), (DecisionSource::Pause, 0), "{denied:?}");
                let retry_at = Instant::now() + denied.retry_after().unwrap();
                // A lease repeats the time of a denial in whole milliseconds.
                let earliest = since + MINUTE - Duration::from_millis(1);
                assert!((earliest..=ends + MARGIN).contains(&retry_at), "{denied:?}");
            }
            until_async("the other machine denies the key", async || {
                !there.check("alice").await.is_allowed()
            })
            .await;
            assert_eq!(there.check("alice").await.source(), DecisionSource::Pause);
        }
    });
}

#[test]
fn with_leases_a_key_that_keeps_to_its_limit_has_no_penalty() {
    on_server(async |server| {
        let builder = SharedLimiter::<str>::builder(&patient(server.url()), "kept", Quota::per_second(10));
        let builder = builder.deadline(PATIENT).when_unavailable(WhenUnavailable::Deny);
        let limiter = builder.lease(5).penalty(MINUTE).build().unwrap();
        // The burst leaves no token. Later, a request arrives whenever there is a token for it.
        for _ in 0..10 {
            assert!(limiter.check("alice").await.is_allowed());
        }
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(101)).await;
            let decision = limiter.check("alice").await;
            assert!(decision.is_allowed(), "{decision:?}");
        }
    });
}

#[test]
fn without_a_store_the_fallback_has_the_penalty() {
    on_server(async |server| {
        let builder = builder(server.url(), Algorithm::TokenBucket).penalty(MINUTE);
        let builder = builder.when_unavailable(WhenUnavailable::Local { share: 0.002 });
        let limiter = builder.deadline(Duration::from_millis(300)).build().unwrap();
        drop(server);
        assert_eq!(limiter.check_n("alice", 2).await.source(), DecisionSource::Key);
        assert_eq!(limiter.check("alice").await.retry_after(), Some(MINUTE));
        assert_eq!(limiter.check("alice").await.source(), DecisionSource::Pause);
    });
}

#[test]
fn another_machine_spends_its_leases_and_no_more() {
    const LEASE: u64 = 20;
    on_server(async |server| {
        for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingLog] {
            let limiter = || builder(server.url(), algorithm).lease(LEASE).build().unwrap();
            let (here, there) = (limiter(), limiter());
            for _ in 0..100 {
                assert!(here.check("alice").await.is_allowed());
                assert!(there.check("alice").await.is_allowed());
            }
            assert!(there.stats().leased > 0 && here.stats().leased > 0);
            let since = Instant::now();
            here.pause("alice", MINUTE).await.unwrap();
            is_held_back(&here.check("alice").await, MINUTE, since);
            let mut spent = 0;
            while there.check("alice").await.is_allowed() {
                spent += 1;
            }
            assert!(spent <= 2 * LEASE, "{spent} of a {algorithm}");
            is_held_back(&there.peek("alice").await, MINUTE, since);
            here.reset("alice").await.unwrap();
        }
    });
}

#[test]
fn a_machine_that_counts_by_itself_hears_of_a_pause() {
    const MOST: u64 = 30;
    on_server(async |server| {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let limiter = || {
                let builder = builder(server.url(), algorithm).max_unsynced(MOST);
                builder.when_unavailable(WhenUnavailable::Deny).build().unwrap()
            };
            let (here, there) = (limiter(), limiter());
            until_async("they are connected", async || {
                here.client().connect().await.is_ok() && there.client().connect().await.is_ok()
            })
            .await;
            let key = &*algorithm.to_string();
            let since = Instant::now();
            here.pause(key, MINUTE).await.unwrap();
            is_held_back(&here.check(key).await, MINUTE, since);
            is_held_back(&here.peek(key).await, MINUTE, since);
            for tokens in [3, MOST + 3] {
                assert_eq!(here.force(key, tokens).await, tokens);
            }
            let mut admitted = 0;
            until_async("the other has heard of it", async || {
                let decision = there.check(key).await;
                admitted += decision.charged();
                !decision.is_allowed()
            })
            .await;
            assert!(admitted <= MOST, "{admitted}");
            is_held_back(&there.check(key).await, MINUTE, since);
            is_held_back(&there.check_n(key, MOST + 1).await, MINUTE, since);
            // A machine learns of the pause from the answer that denies its first request.
            let new = limiter();
            until_async("it is connected", async || new.client().connect().await.is_ok()).await;
            is_held_back(&new.check_n(key, MOST + 1).await, MINUTE, since);
            here.reset(key).await.unwrap();
            assert!(here.check(key).await.is_allowed());
        }
    });
}

#[test]
fn without_a_store_this_machine_keeps_the_pause() {
    on_server(async |server| {
        let builder = builder(server.url(), Algorithm::TokenBucket);
        let builder = builder.when_unavailable(WhenUnavailable::Local { share: 1.0 });
        let limiter = builder.deadline(Duration::from_millis(300)).build().unwrap();
        assert!(limiter.check("alice").await.is_allowed());
        drop(server);
        let since = Instant::now();
        let error = limiter.pause("alice", MINUTE).await.unwrap_err();
        assert!(error.is_unreachable(), "{error}");
        assert!(error.to_string().starts_with("the key may not be paused: "), "{error}");
        is_held_back(&limiter.check("alice").await, MINUTE, since);
        assert!(limiter.check("bob").await.is_allowed());
        limiter.reset("alice").await.unwrap_err();
        assert!(limiter.check("alice").await.is_allowed());
    });
}
