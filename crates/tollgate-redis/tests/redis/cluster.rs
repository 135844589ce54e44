//! Clusters. Each key is requested from its node, and a node's fault affects only that node's keys.

use crate::load::{AGES, DEADLINE, Limiter, Load, patiently, share_of_store, store_answers};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tollgate::{Algorithm, DecisionSource, Quota};
use tollgate_redis::{Client, WhenUnavailable};
use tollgate_testing::store::cluster::Cluster;
use tollgate_testing::store::faults::{FaultProxy, Mode};
use tollgate_testing::store::program::{Program, for_each_server};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until_async};

const LIMIT: u64 = 100_000;

fn limiter(client: &Client, algorithm: Algorithm, deadline: Duration) -> Limiter {
    let builder = Limiter::builder(client, "c", Quota::new(LIMIT, AGES)).algorithm(algorithm);
    builder.when_unavailable(WhenUnavailable::Deny).readable_keys().deadline(deadline).build().unwrap()
}

fn patient(client: &Client) -> Limiter {
    limiter(client, Algorithm::TokenBucket, Duration::from_secs(5))
}

/// Returns the name of `key` in the store, for a bucket.
fn named(key: &str) -> String {
    format!("tollgate:c:b:={key}")
}

/// Returns three keys, each on a different master.
fn spread(cluster: &Cluster) -> [String; 3] {
    let masters: Vec<_> = cluster.nodes()[..3].iter().map(Server::address).collect();
    masters
        .iter()
        .map(|master| {
            let mut keys = (0..).map(|number| format!("key{number}"));
            keys.find(|key| cluster.master_of(&named(key)).address() == *master).unwrap()
        })
        .collect::<Vec<_>>()
        .try_into()
        .unwrap()
}

#[test]
fn keys_are_asked_for_where_they_are_and_where_they_go() {
    for_each_server(async |program| {
        let cluster = Cluster::start(program);
        for node in cluster.nodes() {
            node.command(&["ACL", "SETUSER", "limiter", "on", ">secret", "~tollgate:*", "+@all"]);
        }
        // The client knows one node, which reports the others. The client queries these nodes as
        // the same user.
        let first = cluster.nodes()[0].address();
        let client = patiently(Client::cluster([format!("redis://limiter:secret@{first}")]));
        client.connect().await.unwrap();

        // The keys cover all slots. They are checked both one by one and together.
        for algorithm in Algorithm::ALL {
            let limiter = limiter(&client, algorithm, Duration::from_secs(5));
            let keys: Vec<_> = (0..100).map(|number| format!("{algorithm}{number}")).collect();
            let decisions = join_all(keys.iter().map(|key| limiter.check(key))).await;
            assert!(
                decisions
                    .iter()
                    .all(|it| (it.source(), it.remaining()) == (DecisionSource::Store, LIMIT - 1))
            );
            let twice: Vec<_> = keys.iter().chain(&keys).map(|key| (&**key, 1)).collect();
            let decisions = limiter.check_many(&twice).await;
            let left: Vec<_> = decisions.iter().map(|decision| decision.remaining()).collect();
            assert_eq!(left, [[LIMIT - 2; 100], [LIMIT - 3; 100]].concat(), "{algorithm}");
        }
        for master in &cluster.nodes()[..3] {
            assert!(master.ask::<u64>(&["DBSIZE"]) > 100);
            assert!(master.ask::<String>(&["CLIENT", "LIST"]).contains("user=limiter"));
        }

        // One slot has moved, and another slot is being moved.
        let limiter = patient(&client);
        let (key, name) = ("wanderer", named("wanderer"));
        let left = async |expected: u64| {
            let one = limiter.check(key).await;
            assert_eq!((one.source(), one.remaining()), (DecisionSource::Store, expected - 1));
            let many = limiter.check_many(&[(key, 1), ("other", 1), (key, 1)]).await;
            assert!(many.iter().all(|decision| decision.source() == DecisionSource::Store));
            assert_eq!((many[0].remaining(), many[2].remaining()), (expected - 2, expected - 3));
            assert_eq!(limiter.peek(key).await.remaining(), expected - 3);
        };
        left(LIMIT).await;
        cluster.move_slot_of(&name);
        left(LIMIT - 3).await;
        let moving = cluster.begin_move_of(&name);
        left(LIMIT - 6).await;
        cluster.migrate(moving, &name);
        left(LIMIT - 9).await;
        // The new master does not know the script.
        cluster.node(moving.to).command(&["SCRIPT", "FLUSH"]);
        left(LIMIT - 12).await;
        cluster.finish_move(moving);
        left(LIMIT - 15).await;
        cluster.fail_over(&name);
        // The replica has all the data that was replicated.
        store_answers(&limiter, key).await;
        limiter.reset(key).await.unwrap();
        left(LIMIT).await;
        assert_eq!(limiter.stats().unanswered, 0);
        // The client has learned of the moves, so no node redirects it anymore.
        let moved = || -> u64 {
            cluster
                .nodes()
                .iter()
                .map(|node| node.ask::<String>(&["INFO", "errorstats"]))
                .map(count_moved)
                .sum()
        };
        until_async("the map is learned", async || {
            let before = moved();
            let _ = limiter.check(key).await;
            moved() == before
        })
        .await;
    });
}

fn count_moved(info: String) -> u64 {
    let figure = info.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
    figure.map_or(0, |figure| figure.trim().parse().unwrap())
}

/// Puts all nodes' keys under load, takes one node away, and examines the answers for the other
/// nodes' keys.
async fn without_one(program: Program, away: impl FnOnce(&Server), back: impl FnOnce(&Server)) {
    let cluster = Cluster::start(program);
    // By default, all nodes refuse to answer while some slots have no master.
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let client = Client::cluster(cluster.urls()).build().unwrap();
    let limiter = Arc::new(limiter(&client, Algorithm::TokenBucket, DEADLINE));
    let [lost, others @ ..] = spread(&cluster);
    store_answers(&limiter, &lost).await;
    for key in &others {
        store_answers(&limiter, key).await;
    }
    let master = cluster.master_of(&named(&lost));
    let (theirs, its) = (Load::start(&limiter, others), Load::start(&limiter, [lost.clone(), lost.clone()]));
    sleep(Duration::from_millis(200)).await;
    let begun = Instant::now();
    away(master);
    let mut recovered = Duration::ZERO;
    until_async("a failover", async || {
        sleep(Duration::from_millis(20)).await;
        recovered = begun.elapsed();
        // An answer does not count if it arrived before the fault was noticed.
        limiter.check(&lost).await.source() == DecisionSource::Store && recovered > Duration::from_millis(500)
    })
    .await;
    sleep(Duration::from_millis(300)).await;
    let over = Instant::now();
    let (theirs, its) = (theirs.end().await, its.end().await);
    println!(
        "back after {recovered:?}; slowest {:?} there, {:?} elsewhere, where {} of {} were answered by the store",
        its.slowest(),
        theirs.slowest(),
        share_of_store(&theirs.checks),
        theirs.checks.len(),
    );
    theirs.assert_timely(DEADLINE);
    its.assert_timely(DEADLINE);
    // The other nodes notice the fault after a second, and then vote.
    assert!(recovered < 3 * its.recovery(), "{recovered:?}");
    assert!(share_of_store(&theirs.checks) > 0.97, "{}", share_of_store(&theirs.checks));
    assert!(share_of_store(&its.between(begun + recovered, over)) > 0.8);
    back(master);
    for number in 0..50 {
        let key = format!("any{number}");
        store_answers(&limiter, &key).await;
    }
}

#[test]
fn a_master_that_is_killed_takes_no_other_keys_with_it_and_has_a_successor() {
    for_each_server(async |program| without_one(program, Server::kill, |_| {}).await);
}

#[test]
fn a_master_that_hangs_takes_no_other_keys_with_it_and_has_a_successor() {
    run(without_one(Program::Redis, Server::stop, Server::resume));
}

/// A deadline that even a busy machine meets.
const LONG: Duration = Duration::from_millis(500);

/// Starts a proxy for each node. Clients then learn the proxies' addresses rather than the servers'
/// addresses.
async fn proxies_of(cluster: &Cluster) -> Vec<FaultProxy> {
    let mut proxies = Vec::new();
    for node in cluster.nodes() {
        let proxy = FaultProxy::start(node.address()).await;
        node.command(&["CONFIG", "SET", "cluster-announce-port", &proxy.address().port().to_string()]);
        proxies.push(proxy);
    }
    let told = async || {
        let answers = cluster.nodes().iter().map(|node| node.ask::<String>(&["CLUSTER", "NODES"]));
        let port = |proxy: &FaultProxy| format!(":{}@", proxy.address().port());
        answers.into_iter().all(|told| proxies.iter().all(|proxy| told.contains(&port(proxy))))
    };
    until_async("all nodes have heard of it", told).await;
    proxies
}

#[test]
fn a_batch_that_waits_for_one_node_asks_the_other_nodes_at_once() {
    run(async {
        let cluster = Cluster::start(Program::Redis);
        let [lost, others @ ..] = spread(&cluster);
        let proxies = proxies_of(&cluster).await;
        // An attempt to connect to this node lasts longer than a check's deadline.
        proxies[0].set(Mode::BlackHole);
        let urls = proxies[1..3].iter().map(|proxy| format!("redis://{}", proxy.address()));
        let limiter = limiter(&patiently(Client::cluster(urls)), Algorithm::TokenBucket, LONG);
        for key in &others {
            store_answers(&limiter, key).await;
        }
        let before = limiter.stats().unanswered;
        for _ in 0..3 {
            let many = limiter.check_many(&[(&*lost, 1), (&*others[0], 1), (&*others[1], 1)]).await;
            let sources: Vec<_> = many.iter().map(|decision| decision.source()).collect();
            assert_eq!(sources, [DecisionSource::Policy, DecisionSource::Store, DecisionSource::Store]);
        }
        assert_eq!(limiter.stats().unanswered, before);
    });
}

#[test]
fn redirected_requests_of_a_batch_are_repeated_at_the_same_time() {
    run(async {
        let cluster = Cluster::start(Program::Redis);
        let proxies = proxies_of(&cluster).await;
        let urls = proxies[..3].iter().map(|proxy| format!("redis://{}", proxy.address()));
        let client = patiently(Client::cluster(urls));
        let limiter = limiter(&client, Algorithm::TokenBucket, Duration::from_secs(2));
        for key in (0..50).map(|number| format!("warm{number}")) {
            store_answers(&limiter, &key).await;
        }
        let slot_of = |key: &str| crc16::State::<crc16::XMODEM>::calculate(named(key).as_bytes()) % 16_384;
        let mut keys = (0..).map(|number| format!("key{number}")).filter(|key| slot_of(key) == 0);
        let keys: Vec<_> = keys.by_ref().take(12).collect();
        // The first master has the slot, and the second receives it.
        let id: String = cluster.nodes()[1].ask(&["CLUSTER", "MYID"]);
        for node in [1, 0, 2] {
            cluster.nodes()[node].command(&["CLUSTER", "SETSLOT", "0", "NODE", &id]);
        }
        proxies.iter().for_each(|proxy| proxy.set(Mode::Delay(Duration::from_millis(100))));
        let batch: Vec<_> = keys.iter().chain(&keys[..1]).map(|key| (&**key, 1)).collect();
        let decisions = limiter.check_many(&batch).await;
        let left: Vec<_> = decisions.iter().map(|it| (it.source(), it.remaining())).collect();
        let [first, second] = [1, 2].map(|taken| (DecisionSource::Store, LIMIT - taken));
        assert_eq!(left, [[first; 12].as_slice(), &[second]].concat());
    });
}

#[test]
fn a_redirection_without_a_host_leads_to_the_host_that_answered() {
    for_each_server(async |program| {
        let cluster = Cluster::start(program);
        let limiter = patient(&patiently(Client::cluster(cluster.urls())));
        let (key, name) = ("wanderer", named("wanderer"));
        store_answers(&limiter, key).await;
        limiter.reset(key).await.unwrap();
        let moving = cluster.begin_move_of(&name);
        // The first name is `:port`, and the second is `?:port`.
        for (kind, left) in [("unknown-endpoint", LIMIT - 1), ("hostname", LIMIT - 3)] {
            let setting = ["CONFIG", "SET", "cluster-preferred-endpoint-type", kind];
            cluster.node(moving.from).command(&setting);
            let one = limiter.check(key).await;
            assert_eq!((one.source(), one.remaining()), (DecisionSource::Store, left), "{kind}");
            let many = limiter.check_many(&[(key, 1)]).await;
            assert_eq!((many[0].source(), many[0].remaining()), (DecisionSource::Store, left - 1), "{kind}");
        }
    });
}

#[test]
fn a_request_whose_answer_was_lost_is_not_repeated() {
    run(async {
        let cluster = Cluster::start(Program::Redis);
        let proxies = proxies_of(&cluster).await;
        let client = Client::cluster(proxies.iter().map(|proxy| format!("redis://{}", proxy.address())));
        let client = client.build().unwrap();
        let holder_of = |key: &str| {
            let slot =
                cluster.nodes()[0].ask::<u16>(&["CLUSTER", "KEYSLOT", &format!("tollgate:c:w:={key}")]);
            usize::from(slot) * 3 / 16_384
        };
        // For each master, finds a key that is on another master.
        let elsewhere = [0, 1, 2].map(|holder| {
            let mut keys = (0..).map(|number| format!("other{number}"));
            keys.find(|key| holder_of(key) != holder).unwrap()
        });
        let direct = |server: &Server| crate::load::patient(server.url());
        let limiter = limiter(&client, Algorithm::FixedWindow, LONG);
        for (round, mode) in [Mode::DropReplies, Mode::Reset, Mode::HalfClose, Mode::Hold, Mode::BlackHole]
            .into_iter()
            .enumerate()
        {
            let key = format!("alice{round}");
            // From here on, late requests have an unknown fate.
            let before = limiter.stats();
            store_answers(&limiter, &key).await;
            for key in &elsewhere {
                store_answers(&limiter, key).await;
            }
            let holder = holder_of(&key);
            proxies[holder].set(mode);
            let decisions = join_all((0..20).map(|_| limiter.check(&key))).await;
            assert!(decisions.iter().all(|decision| decision.source() == DecisionSource::Policy), "{mode:?}");
            // Keys of other nodes are answered in the same batch.
            let many = limiter.check_many(&[(&*key, 1), (&*elsewhere[holder], 1), (&*key, 1)]).await;
            let sources: Vec<_> = many.iter().map(|decision| decision.source()).collect();
            assert_eq!(
                sources,
                [DecisionSource::Policy, DecisionSource::Store, DecisionSource::Policy],
                "{mode:?}"
            );
            sleep(LONG).await;
            proxies[holder].set(Mode::Pass);
            store_answers(&limiter, &key).await;
            sleep(2 * LONG).await;
            let stats = limiter.stats();
            let (known, unknown) = (1 + 1, stats.unanswered - before.unanswered);
            let at_it = self::limiter(
                &direct(&cluster.nodes()[holder]),
                Algorithm::FixedWindow,
                Duration::from_secs(5),
            );
            let peeked = at_it.peek(&key).await;
            assert_eq!(peeked.source(), DecisionSource::Store);
            let counted = LIMIT - peeked.remaining();
            println!("{mode:?}: {known} known, {unknown} unknown, {counted} counted");
            assert!((known..=known + unknown).contains(&counted), "{mode:?}: {counted}");
            if mode == Mode::DropReplies {
                assert!(counted >= known + 20, "{counted}: the fault is none");
            }
        }
    });
}

#[test]
fn a_cluster_that_is_not_there_costs_no_more_than_a_server_that_is_not() {
    run(async {
        let client = Client::cluster(["redis://127.0.0.1:1", "redis://127.0.0.1:2"]).build().unwrap();
        assert!(client.connect().await.is_err());
        let limiter = limiter(&client, Algorithm::TokenBucket, DEADLINE);
        let begun = Instant::now();
        for number in 0..1_000 {
            assert_eq!(limiter.check(&number.to_string()).await.source(), DecisionSource::Policy);
        }
        // Few of the checks wait for their deadline.
        assert!(begun.elapsed() < 200 * DEADLINE, "{:?}", begun.elapsed());
        assert!(Client::cluster(Vec::<String>::new()).build().is_err());
        // If a server is not part of a cluster, the error states this.
        let server = Server::start();
        let refused = Client::cluster([server.url()]).build().unwrap().connect().await.unwrap_err();
        assert!(refused.to_string().contains("cluster"), "{refused}");
    });
}
