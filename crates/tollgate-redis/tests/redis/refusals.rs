//! Servers that answer with a refusal.

use crate::load::{DEADLINE, Limiter, on_each_client, patient, store_answers};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tollgate::{Algorithm, DecisionSource, Quota};
use tollgate_redis::{Client, WhenUnavailable};
use tollgate_testing::store::program::{Program, for_each_server};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::setup::Setup;
use tollgate_testing::store::wait::{run, until_async};

fn limiter(client: &Client, algorithm: Algorithm) -> Limiter {
    with_deadline(client, algorithm, Duration::from_secs(5))
}

fn with_deadline(client: &Client, algorithm: Algorithm, deadline: Duration) -> Limiter {
    let builder = Limiter::builder(client, "refusals", Quota::per_hour(100)).algorithm(algorithm);
    builder.when_unavailable(WhenUnavailable::Deny).readable_keys().deadline(deadline).build().unwrap()
}

/// Asserts that the fallback decides, and that it does so soon.
async fn falls_back(client: &Client) -> Limiter {
    let limiter = with_deadline(client, Algorithm::TokenBucket, DEADLINE);
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(limiter.check("alice").await.source(), DecisionSource::Policy);
    }
    // Few of the checks wait for their deadline.
    assert!(begun.elapsed() < 50 * DEADLINE, "{:?}", begun.elapsed());
    limiter
}

#[test]
fn a_password_that_is_wrong_or_missing_is_reported_and_the_fallback_answers() {
    for_each_server(async |program| {
        let server = Setup::new(program).password("right").start();
        for (url, word) in [
            (format!("redis://:wrong@{}", server.address()), "WRONGPASS"),
            (format!("redis://{}", server.address()), "NOAUTH"),
        ] {
            let client = patient(url);
            let refused = client.connect().await.unwrap_err().to_string();
            assert!(refused.starts_with(&format!("no connection to {}: ", server.address())), "{refused}");
            assert!(!refused.contains("wrong@"), "{refused}");
            assert!(refused.contains(word) || refused.to_lowercase().contains("auth"), "{refused}");
            assert!(refused.ends_with("; correct the user and the password in the address"), "{refused}");
            println!("{refused}");
            let limiter = falls_back(&client).await;
            assert_eq!(limiter.stats().by_store, 0);
        }
        let client = patient(server.url());
        client.connect().await.unwrap();
        store_answers(&limiter(&client, Algorithm::TokenBucket), "alice").await;
        assert!(!format!("{client:?}").contains("right"));
    });
}

#[test]
fn what_a_server_says_when_it_closes_a_new_connection_is_reported() {
    for_each_server(async |program| {
        let server = Setup::new(program).line("maxclients 2").start();
        // The test's own queries need one connection.
        let held = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        let other = tokio::net::TcpStream::connect(server.address()).await.unwrap();
        for url in [server.url(), server.url().replace("redis://", "redis://:secret@")] {
            let client = patient(url);
            let refused = client.connect().await.unwrap_err().to_string();
            println!("{refused}");
            assert!(refused.contains("max number of clients reached"), "{refused}");
            assert!(
                refused.contains(&server.address().to_string()) && !refused.contains("secret"),
                "{refused}"
            );
            assert_eq!(client.stats().problems[0].to_string(), refused);
        }
        drop((held, other));
        let client = patient(server.url());
        until_async("there is room", async || client.connect().await.is_ok()).await;
    });
}

#[test]
fn a_server_that_is_loading_leaves_it_to_the_fallback() {
    run(async {
        // The server answers LOADING to every command.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut buffer = vec![0; 16 << 10];
                    while let Ok(length @ 1..) = client.read(&mut buffer).await {
                        let commands = buffer[..length].iter().filter(|&&byte| byte == b'*').count();
                        let answer = "-LOADING Redis is loading the dataset in memory\r\n".repeat(commands);
                        if client.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        let client = patient(url);
        let refused = client.connect().await.unwrap_err().to_string();
        assert!(refused.contains("LOADING") || refused.contains("loading"), "{refused}");
        let limiter = falls_back(&client).await;
        assert_eq!((limiter.stats().by_store, limiter.stats().unanswered), (0, 0), "{:?}", limiter.stats());
    });
}

#[test]
fn a_key_that_holds_something_else_is_refused_alone() {
    on_each_client(async |server, client| {
        client.connect().await.unwrap();
        for algorithm in Algorithm::ALL {
            let limiter = limiter(&client, algorithm);
            store_answers(&limiter, "alice").await;
            let key = server.keys_with_ttl().remove(0).0;
            for words in [
                &["SET", &key, "nonsense"][..],
                &["LPUSH", &key, "nonsense"][..],
                &["ZADD", &key, "1", "nonsense"][..],
            ] {
                server.command(&["DEL", &key]);
                server.command(words);
                let before = limiter.stats();
                let decision = limiter.check("alice").await;
                // A malformed member of a log is not an admission.
                if algorithm == Algorithm::SlidingLog && words[0] == "ZADD" {
                    continue;
                }
                assert_eq!(decision.source(), DecisionSource::Policy, "{algorithm} {words:?}");
                assert_eq!(limiter.stats().store_errors, before.store_errors + 1);
                assert_eq!(limiter.check("bob").await.source(), DecisionSource::Store);
                let peeked = limiter.peek("alice").await;
                assert_eq!(peeked.source(), DecisionSource::Policy);
                let both = limiter.check_many(&[("alice", 1), ("bob", 1)]).await;
                assert_eq!(both[0].source(), DecisionSource::Policy);
                assert_eq!(both[1].source(), DecisionSource::Store);
            }
            assert_eq!(client.stats().breaker_trips, 0);
            limiter.reset("alice").await.unwrap();
            assert_eq!(limiter.check("alice").await.source(), DecisionSource::Store);
            server.command(&["FLUSHALL"]);
        }
    });
}

#[test]
fn a_state_of_another_version_or_kind_is_refused_with_the_reason() {
    on_each_client(async |server, client| {
        let state = |head: &[u8], numbers: usize| [head, &vec![0; 8 * numbers]].concat();
        for (algorithm, [ours, other]) in
            [(Algorithm::TokenBucket, [b'b', b'w']), (Algorithm::SlidingWindow, [b'w', b'b'])]
        {
            let limiter = limiter(&client, algorithm);
            limiter.pause("alice", Duration::from_secs(60)).await.unwrap();
            let key = server.keys_with_ttl().remove(0).0;
            let state_length = server.ask::<Vec<u8>>(&["GET", &key]).len();
            // This state has the same length as a state of this version.
            let mut old = b"3 1790000000000000 36000 1 17900000600000".to_vec();
            old.resize(state_length, b'0');
            let another_version = "another version of tollgate wrote the state";
            let another_kind = "the key holds no ";
            for (state, reason) in [
                // The states of versions without a version byte, also during a pause.
                (b"3 1790000000000000 36 1".to_vec(), another_version),
                (b"3 1790000000000000 36 1 1790000060000000".to_vec(), another_version),
                (old, another_version),
                (state(&[ours, b'2'], 5), another_version),
                (state(&[ours, b'2'], 6), another_version),
                (state(&[ours, b'0'], 1), another_version),
                (state(&[other, b'1'], 5), another_kind),
                (vec![0; state_length], another_kind),
                (b"nonsense".to_vec(), another_kind),
                (Vec::new(), another_kind),
            ] {
                let mut connection = server.client().get_connection().unwrap();
                redis::cmd("SET").arg(&key).arg(&state).exec(&mut connection).unwrap();
                let refused = limiter.pause("alice", Duration::from_secs(1)).await.unwrap_err().to_string();
                assert!(refused.contains(reason), "{algorithm}: {state:?}: {refused}");
                assert_eq!(limiter.check("alice").await.source(), DecisionSource::Policy, "{state:?}");
                // The refused state stays as it is, until a reset deletes it.
                assert_eq!(server.ask::<Vec<u8>>(&["GET", &key]), state);
            }
            limiter.reset("alice").await.unwrap();
            assert_eq!(limiter.check("alice").await.source(), DecisionSource::Store);
            limiter.reset("alice").await.unwrap();
        }
    });
}

#[test]
fn a_user_may_do_only_what_the_limiter_needs() {
    for_each_server(async |program: Program| {
        let server = Server::of(program);
        let rights = "+ping +eval +evalsha +time +get +set +del +zadd +zrem +zmscore +zrange +zrangebyscore \
                      +zremrangebyscore +pexpire +hmget +hkeys +hset +hdel +pttl";
        let words: Vec<_> = ["ACL", "SETUSER", "limiter", "on", ">secret", "~tollgate:*", "-@all"]
            .into_iter()
            .chain(rights.split_whitespace())
            .collect();
        server.command(&words);
        let client = patient(format!("redis://limiter:secret@{}", server.address()));
        client.connect().await.unwrap();
        for algorithm in Algorithm::ALL {
            let limiter = limiter(&client, algorithm);
            assert_eq!(limiter.check("alice").await.source(), DecisionSource::Store, "{algorithm}");
            limiter.reset("alice").await.unwrap();
        }
        // If permissions are missing, the server refuses the request, so the fate of the request is
        // known.
        server.command(&["ACL", "SETUSER", "limiter", "-@all", "+ping"]);
        let limiter = limiter(&client, Algorithm::TokenBucket);
        assert_eq!(limiter.check("alice").await.source(), DecisionSource::Policy);
        assert_eq!(limiter.stats().store_errors, 1, "{:?}", limiter.stats());
    });
}
