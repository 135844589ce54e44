//! The entries in the store. Every key has a namespace and a bounded size, does not reveal its
//! owner, and expires.

use crate::load::{AGES, Limiter, on_client, on_each_client};
use std::time::Duration;
use tollgate::{Algorithm, Quota};
use tollgate_redis::{SharedBuilder, SharedLimiter};
use tollgate_testing::store::server::field;
use tollgate_testing::store::wait::until_async;

/// Long enough that no state ends while a busy machine creates the next one.
const PERIOD: Duration = AGES;

type Set = fn(SharedBuilder<SharedLimiter<str>>) -> SharedBuilder<SharedLimiter<str>>;

/// Returns each way in which state is written to the store: an algorithm, a name, and the builder's
/// settings.
fn ways() -> Vec<(Algorithm, &'static str, Set)> {
    let mut ways: Vec<(Algorithm, &'static str, Set)> = Vec::new();
    for algorithm in Algorithm::ALL {
        ways.push((algorithm, "exact", |builder| builder));
        if algorithm != Algorithm::LeakyQueue {
            ways.push((algorithm, "lease", |builder| builder.lease(5)));
        }
        if algorithm.has_windows() {
            ways.push((algorithm, "unsynced", |builder| builder.max_unsynced(5)));
        }
    }
    ways
}

/// Uses every operation on one key.
async fn use_all(limiter: &Limiter, key: &str) {
    for cost in [1, 3, 0, 10, 60, 200] {
        let decision = limiter.check_n(key, cost).await;
        let _ = limiter.peek(key).await;
        if cost == 3 {
            limiter.refund(key, &decision).await;
        }
    }
    limiter.check_many(&[(key, 1), (key, 2)]).await;
    limiter.flush().await;
}

#[test]
fn every_key_is_namespaced_bounded_and_expires_about_when_its_state_is_over() {
    on_each_client(async |server, client| {
        let long = "a key of a client who is ".repeat(1_000);
        for (algorithm, mode, set) in ways() {
            let name = format!("store-{algorithm}-{mode}");
            let builder = Limiter::builder(&client, &*name, Quota::new(100, PERIOD)).algorithm(algorithm);
            let limiter = set(builder).deadline(Duration::from_secs(5)).build().unwrap();
            for key in ["alice@example.com", "{tag}", "", &*long] {
                use_all(&limiter, key).await;
            }
        }
        let keys = server.keys_with_ttl();
        for (algorithm, mode, _) in ways() {
            let prefix = format!("tollgate:store-{algorithm}-{mode}:");
            let mine: Vec<_> = keys.iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
            assert_eq!(mine.len(), 4, "{prefix} {mine:?}");
            for (key, left) in mine {
                // A state lasts for at most two windows and one more second.
                let (least, most) = (500, 2 * i64::try_from(PERIOD.as_millis()).unwrap() + 1_000);
                assert!((least..=most).contains(left), "{key} has {left} ms left");
                assert_eq!(key.len(), prefix.len() + 2 + 32, "{key}");
            }
        }
        for (key, _) in &keys {
            assert!(key.starts_with("tollgate:store-"), "{key}");
            assert!(!key.contains("alice") && !key.contains("tag") && !key.contains("client"), "{key}");
        }
        assert_eq!(keys.len(), 4 * ways().len());
    });
}

#[test]
fn a_state_is_gone_when_it_is_over() {
    on_client(async |server, client| {
        for (algorithm, mode, set) in ways() {
            let name = format!("short-{algorithm}-{mode}");
            let builder = Limiter::builder(&client, name, Quota::new(100, Duration::from_millis(400)));
            let limiter = set(builder.algorithm(algorithm)).deadline(Duration::from_secs(5)).build().unwrap();
            use_all(&limiter, "alice").await;
        }
        // The entries expire after two windows and a second. The store removes expired keys ten
        // times a second.
        until_async("all are gone", async || server.keys_with_ttl().is_empty()).await;
        let info: String = server.ask(&["INFO", "stats"]);
        let expired: usize = field(&info, "expired_keys").unwrap().parse().unwrap();
        assert!(expired >= ways().len(), "{expired}: they were there, and nobody deleted them");
    });
}

#[test]
fn a_key_can_be_read_only_if_that_was_asked_for() {
    on_client(async |server, client| {
        let builder = Limiter::builder(&client, "a limit: 100%", Quota::per_hour(100)).readable_keys();
        let limiter: Limiter = builder.deadline(Duration::from_secs(5)).build().unwrap();
        let long = "x".repeat(10_000);
        for key in ["alice@example.com", "a b", &*long] {
            let _ = limiter.check(key).await;
        }
        let keys: Vec<_> = server.keys_with_ttl().into_iter().map(|(key, _)| key).collect();
        let name = "tollgate:a%20limit%3a%20100%25:b:";
        assert!(keys.contains(&format!("{name}=alice@example.com")), "{keys:?}");
        assert!(keys.contains(&format!("{name}=a%20b")), "{keys:?}");
        assert!(keys.iter().all(|key| key.len() < 100), "{keys:?}");
    });
}

#[test]
fn a_reset_deletes_the_key() {
    on_client(async |server, client| {
        for algorithm in Algorithm::ALL {
            let builder = Limiter::builder(&client, "reset", Quota::new(3, AGES)).algorithm(algorithm);
            let limiter: Limiter = builder.deadline(Duration::from_secs(5)).build().unwrap();
            for allowed in [true, true, true, false] {
                assert_eq!(limiter.check("alice").await.is_allowed(), allowed);
            }
            limiter.reset("alice").await.unwrap();
            assert_eq!(server.keys_with_ttl(), []);
            assert_eq!(limiter.check("alice").await.remaining(), 2);
            limiter.reset("alice").await.unwrap();
        }
        server.kill();
        let builder = Limiter::builder(&client, "reset", Quota::per_hour(3));
        let limiter: Limiter = builder.build().unwrap();
        let failed = limiter.reset("alice").await.unwrap_err().to_string();
        assert!(failed.starts_with("the key may not be reset: "), "{failed}");
    });
}

#[test]
fn a_denial_by_a_full_log_reads_the_log_with_few_commands() {
    on_client(async |server, client| {
        let builder = Limiter::builder(&client, "full", Quota::new(5_000, AGES));
        let builder = builder.algorithm(Algorithm::SlidingLog).deadline(Duration::from_secs(30));
        let limiter: Limiter = builder.build().unwrap();
        limiter.check_many(&[("alice", 1); 5_000]).await;
        let before = server.calls("zrangebyscore");
        assert!(!limiter.check_n("alice", 5_000).await.is_allowed());
        let calls = server.calls("zrangebyscore") - before;
        assert!(calls <= 10, "{calls}");
    });
}
