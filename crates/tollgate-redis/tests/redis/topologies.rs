//! Several topologies: one server, with a password or with TLS, and a master that sentinels watch.
//! The tests of clusters are in `cluster`.

use crate::load::{
    AGES, DEADLINE, Limiter, Load, median, on_server, patient, patiently, share_of_store, store_answers,
};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tollgate::{Algorithm, DecisionSource, Quota};
use tollgate_redis::{Client, WhenUnavailable};
use tollgate_testing::store::certificates::Authority;
use tollgate_testing::store::program::{Program, for_each_server};
use tollgate_testing::store::sentinel::{NAME, Watched};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::setup::Setup;
use tollgate_testing::store::wait::{run, until_async};

fn limiter(client: &Client, algorithm: Algorithm) -> Limiter {
    let builder = Limiter::builder(client, "topologies", Quota::new(1_000, AGES)).algorithm(algorithm);
    builder.when_unavailable(WhenUnavailable::Deny).deadline(Duration::from_secs(5)).build().unwrap()
}

/// Asserts that all algorithms work through a new client.
async fn works(client: &Client) {
    // A busy machine may need more than one attempt.
    until_async("it is connected", async || client.connect().await.is_ok()).await;
    for algorithm in Algorithm::ALL {
        let limiter = limiter(client, algorithm);
        let key = algorithm.to_string();
        assert_eq!(limiter.check_n(&key, 5).await.source(), DecisionSource::Store, "{algorithm}");
        let all = limiter.check_many(&[(&*key, 5), ("other", 1), (&*key, 5)]).await;
        let left: Vec<_> = all.iter().map(|decision| decision.remaining()).collect();
        assert_eq!((left[0], left[2]), (990, 985), "{algorithm}");
        assert_eq!(limiter.peek(&key).await.remaining(), 985);
        limiter.reset(&key).await.unwrap();
        limiter.reset("other").await.unwrap();
    }
}

#[test]
fn one_server_with_and_without_a_password_and_a_database() {
    for_each_server(async |program| {
        works(&patient(Server::of(program).url())).await;
    });
    for_each_server(async |program| {
        let server = Setup::new(program).password("p@ss").start();
        let url = format!("redis://:p%40ss@{}/3", server.address());
        works(&patient(url)).await;
    });
}

#[test]
fn a_server_with_tls_is_trusted_by_those_who_trust_its_authority() {
    // Some builds of Valkey lack TLS. The client is the same for both servers.
    run(async {
        let authority = Authority::new();
        let server = Setup::new(Program::Redis).tls(&authority).password("secret").start();
        // A TLS handshake may be slow on a busy machine.
        let builder = || Client::builder(server.url()).connection_timeout(Duration::from_secs(2));
        let trusting = builder().root_certificate(authority.pem()).build().unwrap();
        works(&trusting).await;
        let stranger = builder().root_certificate(Authority::new().pem());
        for other in [builder().build().unwrap(), stranger.build().unwrap()] {
            let refused = other.connect().await.unwrap_err().to_string();
            println!("{refused}");
            assert!(refused.to_lowercase().contains("certificate"), "{refused}");
            assert_eq!(
                limiter(&other, Algorithm::TokenBucket).check("alice").await.source(),
                DecisionSource::Policy
            );
        }
    });
}

#[test]
fn tls_to_a_server_that_speaks_none_is_refused_in_time() {
    on_server(async |server| {
        let client = Client::open(server.url().replace("redis:", "rediss:")).unwrap();
        // Neither side sends anything else, so a client without a timeout would wait forever.
        let refused = timeout(Duration::from_secs(60), client.connect()).await.expect("it ends").unwrap_err();
        println!("{refused}");
        let refused = Client::builder(server.url()).root_certificate("no certificate").build().unwrap_err();
        assert!(refused.to_string().starts_with("invalid client settings: "), "{refused}");
    });
}

#[test]
fn sentinels_name_the_master_and_after_a_failover_the_new_one() {
    for_each_server(async |program| {
        let watched = Watched::start(program);
        let client = Client::sentinel(NAME, watched.urls(), "redis://any-name").build().unwrap();
        works(&client).await;
        let builder = Limiter::builder(&client, "failover", Quota::per_second(1_000_000));
        let limiter = Arc::new(builder.deadline(DEADLINE).build().unwrap());
        store_answers(&limiter, "alice").await;
        let load = Load::start(&limiter, ["a", "b", "c", "d"]);
        sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        let killed = watched.kill_master();
        let now = tokio::task::block_in_place(|| watched.wait_for_failover(killed));
        let (failover, over) = (begun.elapsed(), Instant::now());
        let back = store_answers(&limiter, "alice").await;
        sleep(Duration::from_millis(100)).await;
        let ended = load.end().await;
        let during = ended.between(begun + failover / 2, over);
        println!(
            "failover in {failover:?}, back {back:?} later; slowest {:?}, median meanwhile {:?}",
            ended.slowest(),
            median(&during)
        );
        ended.assert_timely(DEADLINE);
        assert!(back < ended.recovery(), "{back:?}");
        let last = ended.between(over + back, Instant::now());
        assert!(share_of_store(&last) > 0.9, "{}", share_of_store(&last));
        // The new master decides.
        let before = watched.server(now).calls("evalsha");
        for _ in 0..10 {
            let _ = limiter.check("alice").await;
        }
        assert!(watched.server(now).calls("evalsha") >= before + 10);
    });
}

#[test]
fn a_sentinel_that_is_gone_is_not_needed_while_the_master_is_there() {
    run(async {
        let watched = Watched::start(Program::Redis);
        // One of the sentinels never existed.
        let sentinels = ["redis://127.0.0.1:1".to_owned()].into_iter().chain(watched.urls());
        let client = patiently(Client::sentinel(NAME, sentinels, "redis://master"));
        client.connect().await.unwrap();
        watched.sentinel().kill();
        let limiter = limiter(&client, Algorithm::TokenBucket);
        for _ in 0..10 {
            assert_eq!(limiter.check("alice").await.source(), DecisionSource::Store);
        }
        let other = Client::sentinel("another", watched.urls(), "redis://master").build().unwrap();
        assert!(other.connect().await.is_err());
    });
}

#[test]
fn a_sentinel_that_never_answers_does_not_keep_the_client_from_the_others() {
    run(async {
        let watched = Watched::start(Program::Redis);
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let sentinels =
            [format!("redis://{}", silent.local_addr().unwrap())].into_iter().chain(watched.urls());
        // With the default timeout, an attempt to connect takes at most 400 ms.
        let client = Client::sentinel(NAME, sentinels, "redis://master").build().unwrap();
        until_async("it is connected", async || client.connect().await.is_ok()).await;
    });
}

#[test]
fn sentinels_have_their_own_user_and_their_own_scheme() {
    run(async {
        let watched = Watched::start(Program::Redis);
        let sentinel = watched.sentinel();
        sentinel.command(&["ACL", "SETUSER", "watcher", "on", ">secret", "&*", "+@all"]);
        let url = format!("redis://watcher:secret@{}", sentinel.address());
        patiently(Client::sentinel(NAME, [url], "redis://master")).connect().await.unwrap();
    });
    // The certificate is for the servers with TLS.
    let (plain, secure) = ("redis://127.0.0.1:1", "rediss://127.0.0.1:2");
    let build = |sentinels: &[&str], master| {
        let builder = Client::sentinel(NAME, sentinels.iter().copied(), master);
        builder.root_certificate(Authority::new().pem()).build()
    };
    build(&[plain], secure).unwrap();
    build(&[plain, secure], plain).unwrap();
    build(&[secure], secure).unwrap();
    build(&[plain], plain).unwrap_err();
    let none = Client::sentinel(NAME, [""; 0], plain).build().unwrap_err().to_string();
    assert!(none.contains("needs at least one sentinel"), "{none}");
}
