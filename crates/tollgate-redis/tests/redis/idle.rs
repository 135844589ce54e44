//! A connection that ends while idle is not a failure of the store. The next request waits for a
//! new connection, in every mode and topology.

use crate::load::{
    AGES, DEADLINE, Limiter, on_client, on_each_server, on_server, patient, patiently, store_answers,
};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;
use tollgate::{Algorithm, DecisionSource, Quota, Settlement};
use tollgate_redis::{Client, SharedBuilder, SharedInFlight, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::cluster::Cluster;
use tollgate_testing::store::faults::{FaultProxy, Mode};
use tollgate_testing::store::program::{Program, for_each_server};
use tollgate_testing::store::sentinel::{NAME, Watched};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, run_in_turn, until, until_async};

/// A healthy server always answers within this time.
const PATIENT: Duration = Duration::from_secs(10);

fn builder(client: &Client, name: &str, algorithm: Algorithm) -> SharedBuilder<SharedLimiter<str>> {
    let builder = Limiter::builder(client, name, Quota::new(1_000, AGES)).algorithm(algorithm);
    builder.when_unavailable(WhenUnavailable::Deny).deadline(PATIENT)
}

/// Closes a client's connections, as a server or a load balancer does after a quiet period, and
/// waits until the client has noticed.
async fn end_connections(client: &Client, servers: &[&Server]) {
    until_async("its connections have ended", async || {
        for server in servers {
            let list: String = server.ask(&["CLIENT", "LIST", "TYPE", "normal"]);
            // Only the connections of sentinels are named, and this loop leaves them open. If a
            // server closed them, the sentinels would consider the server lost.
            for unnamed in list.lines().filter(|line| line.contains(" name= ")) {
                let id = unnamed.split([' ', '=']).nth(1).unwrap();
                server.command(&["CLIENT", "KILL", "ID", id]);
            }
        }
        !client.stats().connected
    })
    .await;
}

/// Asserts that the store answers in each mode after the connections have ended.
async fn every_mode_goes_on(client: &Client, servers: &[&Server]) {
    let exact = builder(client, "exact", Algorithm::TokenBucket).build().unwrap();
    let leases = builder(client, "leases", Algorithm::SlidingWindow).lease(10).build().unwrap();
    let counts = builder(client, "counts", Algorithm::FixedWindow).max_unsynced(5).build().unwrap();
    let jobs = SharedInFlight::<str>::builder(client, "jobs", 2).lifetime(AGES / 1_000).deadline(PATIENT);
    let jobs = jobs.when_unavailable(WhenUnavailable::Deny).build().unwrap();
    // A busy machine may need more than one attempt.
    until_async("it is connected", async || client.connect().await.is_ok()).await;
    let opened = client.stats().breaker_trips;

    for turn in 1..=3 {
        end_connections(client, servers).await;
        assert_eq!(exact.check("alice").await.source(), DecisionSource::Store);
        end_connections(client, servers).await;
        let all = exact.check_many(&[("alice", 1), ("bob", 1), ("carol", 1)]).await;
        assert!(all.iter().all(|decision| decision.source() == DecisionSource::Store), "{all:?}");
        end_connections(client, servers).await;
        assert_eq!(exact.peek("alice").await.remaining(), 1_000 - 2 * turn);

        // No tokens are leased for a new key.
        end_connections(client, servers).await;
        assert_eq!(leases.check(&format!("alice {turn}")).await.source(), DecisionSource::Store);

        // This request asks the store for all of its tokens at once. The store has lost nothing.
        end_connections(client, servers).await;
        assert!(counts.check_n("alice", 10).await.is_allowed());

        end_connections(client, servers).await;
        let permit = jobs.acquire("alice").await.unwrap();
        assert_eq!(permit.decision().source(), DecisionSource::Store);
        end_connections(client, servers).await;
        permit.release().await;
        let both = (jobs.acquire("alice").await.unwrap(), jobs.acquire("alice").await.unwrap());
        both.0.release().await;
        both.1.release().await;

        end_connections(client, servers).await;
        let held = exact.reserve("dora", 100).await.unwrap();
        end_connections(client, servers).await;
        assert_eq!(held.commit(10).await, Settlement { charged: 10, unpaid: 0 });
        end_connections(client, servers).await;
        exact.reset("dora").await.unwrap();
    }
    for stats in [exact.stats(), leases.stats(), counts.stats(), jobs.stats()] {
        assert_eq!((stats.by_fallback, stats.unanswered, stats.unsent), (0, 0, 0), "{stats:?}");
    }
    assert_eq!(client.stats().breaker_trips, opened, "an idle end opens no breaker");
    end_connections(client, servers).await;
    assert_eq!(client.stats().problems, []);
    assert_eq!(client.health().await, []);
}

#[test]
fn an_idle_connection_to_one_server_may_end() {
    on_each_server(async |server| {
        every_mode_goes_on(&patient(server.url()), &[&server]).await;
    });
}

#[test]
fn an_idle_connection_to_a_cluster_may_end() {
    for_each_server(async |program| {
        let cluster = Cluster::start(program);
        let nodes: Vec<_> = cluster.nodes().iter().collect();
        every_mode_goes_on(&patiently(Client::cluster(cluster.urls())), &nodes).await;
    });
}

#[test]
fn an_idle_connection_to_a_master_behind_sentinels_may_end() {
    run(async {
        let watched = Watched::start(Program::Redis);
        let client = patiently(Client::sentinel(NAME, watched.urls(), "redis://any-name"));
        let servers: Vec<_> = watched.servers().iter().collect();
        every_mode_goes_on(&client, &servers).await;
    });
}

/// The end of the connection has arrived, but the runtime's only thread was too busy to see it.
#[test]
fn an_end_that_a_busy_thread_has_not_seen_yet_is_seen_first() {
    run_in_turn(async {
        let server = Server::start();
        let limiter = builder(&patient(server.url()), "busy", Algorithm::TokenBucket).build().unwrap();
        store_answers(&limiter, "alice").await;
        for _ in 0..20 {
            // All of these calls block the thread.
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
            until("the server has ended it", || server.clients() == 0);
            thread::sleep(Duration::from_millis(5));
            assert_eq!(limiter.check("alice").await.source(), DecisionSource::Store, "{:?}", limiter.stats());
        }
    });
}

/// New connections are impossible, so a check that finds no connection must yield its thread. The
/// runtime cannot end before the thread is free.
#[test]
fn a_runtime_ends_under_a_check_that_finds_its_connection_ended() {
    let server = Server::start();
    let limiter = builder(&patient(server.url()), "ending", Algorithm::TokenBucket).build().unwrap();
    let limiter = Arc::new(limiter);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(store_answers(&limiter, "alice"));
    let (has_begun, begin) = mpsc::channel();
    let task = Arc::downgrade(&limiter);
    runtime.spawn(async move {
        has_begun.send(()).unwrap();
        // This call blocks the thread. The other thread drops the task of the connection.
        until("its connection has ended", || !limiter.client().stats().connected);
        let _ = limiter.check("alice").await;
    });
    begin.recv().unwrap();
    runtime.shutdown_background();
    until("the check is dropped", || task.strong_count() == 0);
}

/// Requests in progress are not sent again, because the server may have executed them.
#[test]
fn a_connection_that_ends_under_a_request_leaves_its_fate_unknown() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let client = patient(server.url_at(proxy.address()));
        let limiter = builder(&client, "under way", Algorithm::TokenBucket).build().unwrap();
        store_answers(&limiter, "alice").await;
        let (before, calls) = (limiter.stats(), server.calls("evalsha"));
        proxy.set(Mode::DropReplies);
        let check = async { limiter.check("alice").await };
        let end = async {
            until_async("the server has executed it", async || server.calls("evalsha") > calls).await;
            proxy.set(Mode::Reset);
            proxy.set(Mode::Pass);
        };
        let (decision, ()) = tokio::join!(check, end);
        assert_eq!(decision.source(), DecisionSource::Policy);
        assert_eq!(limiter.stats().unanswered - before.unanswered, 1);
        assert_eq!(server.calls("evalsha"), calls + 1);
    });
}

/// A server disappeared while the connection was idle. The next request notices this, at the cost
/// of one attempt to connect.
#[test]
fn a_server_that_went_away_meanwhile_is_known_to_be_away_after_one_attempt() {
    on_client(async |server, client| {
        let builder = builder(&client, "away", Algorithm::TokenBucket).deadline(DEADLINE);
        let limiter = builder.build().unwrap();
        store_answers(&limiter, "alice").await;
        server.kill();
        until("its end is seen", || !client.stats().connected);
        assert_eq!(client.stats().problems, [], "nothing is known against the server");
        assert_eq!(limiter.check("alice").await.source(), DecisionSource::Policy);
        let problems = client.stats().problems;
        let address = server.address();
        assert!(
            problems[0].to_string().starts_with(&format!("no connection to {address}: ")),
            "{problems:?}"
        );
        server.restart();
        store_answers(&limiter, "alice").await;
        assert_eq!(client.stats().problems, []);
    });
}
