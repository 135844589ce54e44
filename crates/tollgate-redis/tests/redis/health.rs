//! Problems that would prevent the store from answering checks are found before the first check.

use crate::load::{AGES, Limiter, on_client, on_each_server, on_server, patient, patiently, store_answers};
use std::time::Duration;
use tollgate::{Algorithm, DecisionSource, Quota};
use tollgate_redis::{Client, SharedInFlight, StoreProblem, WhenUnavailable};
use tollgate_testing::store::cluster::Cluster;
use tollgate_testing::store::program::{Program, for_each_server};
use tollgate_testing::store::sentinel::{NAME, Watched};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::setup::Setup;
use tollgate_testing::store::wait::{run, until_async};

/// The rights that a limiter requires, as documented on the crate's page.
const RIGHTS: &str = "+ping +eval +evalsha +time +get +set +del +zadd +zrem +zmscore +zrange +zrangebyscore \
                      +zremrangebyscore +zcount +pexpire +hmget +hkeys +hset +hdel +pttl";

/// Creates a user with these rights on the keys that match this pattern.
fn set_user(server: &Server, keys: &str, rights: &[&str]) {
    let mut words = vec!["ACL", "SETUSER", "limiter", "reset", "on", ">secret", keys, "-@all"];
    words.extend(RIGHTS.split_whitespace().chain(rights.iter().copied()));
    server.command(&words);
}

fn client_of_user(server: &Server) -> Client {
    patient(format!("redis://limiter:secret@{}", server.address()))
}

fn limiter(client: &Client, algorithm: Algorithm) -> Limiter {
    let builder = Limiter::builder(client, "health", Quota::new(400, AGES)).algorithm(algorithm);
    let builder = builder.when_unavailable(WhenUnavailable::Deny);
    builder.deadline(Duration::from_secs(5)).build().unwrap()
}

/// Returns limits of each algorithm and mode.
fn all_limits(client: &Client) -> Vec<Limiter> {
    let mut limits: Vec<_> = Algorithm::ALL.into_iter().map(|algorithm| limiter(client, algorithm)).collect();
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let builder = Limiter::builder(client, "health", Quota::new(400, AGES)).algorithm(algorithm);
        limits.push(builder.max_unsynced(10).build().unwrap());
    }
    limits
}

fn permits(client: &Client) -> SharedInFlight<str> {
    SharedInFlight::builder(client, "health", 5).build().unwrap()
}

/// Returns the commands that users may not run.
fn commands(problems: &[StoreProblem]) -> Vec<String> {
    let command = |problem: &StoreProblem| {
        let text = problem.to_string();
        let (_, rest) = text.split_once("may not run the command `").expect(&text);
        rest.split_once('`').unwrap().0.to_owned()
    };
    let mut commands: Vec<_> = problems.iter().map(command).collect();
    commands.sort_unstable();
    commands.dedup();
    commands
}

#[test]
fn a_server_that_answers_checks_has_no_problems_and_keeps_no_trial() {
    on_each_server(async |server| {
        set_user(&server, "~tollgate:*", &[]);
        for client in [patient(server.url()), client_of_user(&server)] {
            client.connect().await.unwrap();
            let limits = all_limits(&client);
            let permits = permits(&client);
            client.connect().await.unwrap();
            assert_eq!(client.health().await, []);
            assert_eq!(client.stats().problems, []);
            assert_eq!(server.keys_with_ttl(), []);
            for limit in &limits {
                assert_eq!(limit.stats().by_store, 0, "a trial is not a check");
            }
            assert_eq!(permits.stats().by_store, 0);
        }
    });
}

#[test]
fn each_command_that_a_user_lacks_is_named() {
    on_each_server(async |server| {
        let client = client_of_user(&server);
        let limits = (all_limits(&client), permits(&client));
        for right in RIGHTS.split_whitespace().filter(|right| *right != "+ping") {
            let command = &right[1..];
            set_user(&server, "~tollgate:*", &[&format!("-{command}")]);
            let error = client.connect().await.unwrap_err();
            println!("{error}");
            assert_eq!(commands(&client.stats().problems), [command]);
            assert!(!error.is_warning() && !error.is_unreachable());
            let text = error.to_string();
            assert!(text.contains(&format!("`ACL SETUSER limiter +{command}`")), "{text}");
            assert!(text.contains(&server.address().to_string()) && text.contains("`health`"), "{text}");
        }
        // A dropped limit is not tried, and a limit requires only its own commands.
        drop(limits);
        let log = limiter(&client, Algorithm::SlidingLog);
        set_user(&server, "~tollgate:*", &["-pttl"]);
        assert!(client.connect().await.is_err());
        assert_eq!(commands(&client.stats().problems), ["pttl"]);
        drop(log);
        let _bucket = limiter(&client, Algorithm::TokenBucket);
        set_user(&server, "~tollgate:*", &["-zadd", "-hset"]);
        client.connect().await.unwrap();
        set_user(&server, "~tollgate:*", &["-eval", "-evalsha", "-set"]);
        assert!(client.connect().await.is_err());
        assert_eq!(commands(&client.health().await), ["eval", "evalsha"]);
    });
}

#[test]
fn a_server_that_knows_the_script_is_asked_whether_it_may_be_sent_again() {
    on_client(async |server, client| {
        store_answers(&limiter(&client, Algorithm::TokenBucket), "alice").await;
        set_user(&server, "~tollgate:*", &["-eval"]);
        let client = client_of_user(&server);
        let limiter = limiter(&client, Algorithm::TokenBucket);
        assert_eq!(limiter.check("alice").await.source(), DecisionSource::Store);
        assert!(client.connect().await.is_err());
        assert_eq!(commands(&client.stats().problems), ["eval"]);
    });
}

#[test]
fn the_page_of_the_crate_names_the_rights_that_these_tests_give() {
    let page = include_str!("../../src/lib.rs");
    let rule = page.split("ACL SETUSER limiter").nth(1).unwrap().split("```").next().unwrap();
    let mut named: Vec<_> = rule.split_whitespace().filter(|word| word.starts_with('+')).collect();
    let mut given: Vec<_> = RIGHTS.split_whitespace().collect();
    named.sort_unstable();
    given.sort_unstable();
    assert_eq!(named, given);
}

#[test]
fn a_limit_that_sends_the_time_does_not_read_it() {
    on_server(async |server| {
        set_user(&server, "~tollgate:*", &["-time"]);
        let client = client_of_user(&server);
        let builder = || Limiter::builder(&client, "timed", Quota::per_hour(5));
        let by_server = builder().build().unwrap();
        let text = client.connect().await.unwrap_err().to_string();
        assert!(text.contains("`time`") && text.contains("`client_clock`"), "{text}");
        drop(by_server);
        let _by_client = builder().client_clock().build().unwrap();
        client.connect().await.unwrap();
    });
}

#[test]
fn keys_that_a_user_may_not_use_are_named() {
    on_each_server(async |server| {
        set_user(&server, "~other:*", &[]);
        let client = client_of_user(&server);
        let limiter = limiter(&client, Algorithm::FixedWindow);
        let error = client.connect().await.unwrap_err().to_string();
        println!("{error}");
        assert!(error.contains("`tollgate:health:w:*`"), "{error}");
        assert!(error.contains("`ACL SETUSER limiter ~tollgate:health:w:*`"), "{error}");
        assert_eq!(client.stats().problems.len(), 1, "{:?}", client.stats().problems);
        // The fix in the error's text works while the client is in use.
        server.command(&["ACL", "SETUSER", "limiter", "~tollgate:health:w:*"]);
        assert_eq!(client.health().await, []);
        assert_eq!(client.stats().problems, []);
        store_answers(&limiter, "alice").await;
    });
}

#[test]
fn limits_may_be_built_before_or_after_a_client_connects() {
    for_each_server(async |program| {
        let server = Server::of(program);
        set_user(&server, "~tollgate:other:*", &["+info"]);
        let client = client_of_user(&server);
        client.connect().await.unwrap();
        assert_eq!(client.stats().problems, []);
        let _limiter = limiter(&client, Algorithm::FixedWindow);
        until_async("the limit is tried", async || !client.stats().problems.is_empty()).await;
        let text = client.stats().problems[0].to_string();
        assert!(text.contains("may not use the keys `tollgate:health:w:*`"), "{text}");
        assert_eq!(client.connect().await.unwrap_err().to_string(), text);
        server.command(&["ACL", "SETUSER", "limiter", "~tollgate:health:*"]);
        client.connect().await.unwrap();
        let _permits = permits(&client);
        assert_eq!(client.health().await, []);
        // A replica is also found if there is no limit.
        let replica = Setup::new(program).line(&format!("replicaof 127.0.0.1 {}", server.address().port()));
        let replica = replica.start();
        let client = patient(replica.url());
        until_async("the replica is loaded", async || {
            let problem = client.connect().await.unwrap_err().to_string();
            problem.contains("read-only replica")
        })
        .await;
    });
}

#[test]
fn a_read_only_replica_is_refused() {
    for_each_server(async |program| {
        let primary = Server::of(program);
        let (host, port) = ("127.0.0.1", primary.address().port());
        let replica = Setup::new(program).line(&format!("replicaof {host} {port}")).start();
        let client = patient(replica.url());
        // A replica is loading at first.
        until_async("the replica is loaded", async || {
            !client.connect().await.is_err_and(|problem| problem.is_unreachable())
        })
        .await;
        for algorithm in Algorithm::ALL {
            let _limiter = limiter(&client, algorithm);
            let error = client.connect().await.unwrap_err();
            let text = format!("{} is a read-only replica", replica.address());
            assert!(error.to_string().starts_with(&text), "{algorithm}: {error}");
        }
        replica.command(&["REPLICAOF", "NO", "ONE"]);
        client.connect().await.unwrap();
        // If a primary becomes a replica, the trial uses the connection that replaces the broken
        // one.
        let limiter = limiter(&client, Algorithm::TokenBucket);
        store_answers(&limiter, "alice").await;
        replica.command(&["REPLICAOF", host, &port.to_string()]);
        until_async("the replica is recognized", async || {
            let _ = limiter.check("alice").await;
            client.stats().problems.iter().any(|problem| problem.to_string().contains("read-only replica"))
        })
        .await;
    });
}

/// Exhausts 400 keys and fills the server. Returns how many of the keys are admitted again.
async fn forgotten(server: &Server, limiter: &Limiter) -> usize {
    let keys: Vec<_> = (0..400).map(|number| number.to_string()).collect();
    for key in &keys {
        while limiter.check_n(key, 400).await.is_allowed() {}
    }
    let value = "x".repeat(10_000);
    for number in 0..2_000 {
        // The server refuses this unless its policy makes room.
        let _ = server.try_ask::<redis::Value>(&["SET", &format!("filler:{number}"), &value, "EX", "1000"]);
    }
    let mut admitted = 0;
    for key in &keys {
        admitted += usize::from(limiter.check_n(key, 400).await.is_allowed());
    }
    admitted
}

#[test]
fn a_server_that_makes_room_forgets_throttled_keys_and_is_warned_of() {
    for_each_server(async |program| {
        for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl", "volatile-lru"] {
            let setup = Setup::new(program).line("maxmemory 4mb").line(&format!("maxmemory-policy {policy}"));
            let server = setup.start();
            let client = patient(server.url());
            let limiter = limiter(&client, Algorithm::TokenBucket);
            client.connect().await.unwrap();
            let problems = client.stats().problems;
            let [warned] = &problems[..] else { panic!("{problems:?}") };
            assert!(warned.to_string().contains(&server.address().to_string()), "{warned}");
            assert!(warned.is_warning() && warned.to_string().contains(policy), "{warned}");
            assert!(warned.to_string().contains("maxmemory-policy noeviction"), "{warned}");
            let admitted = forgotten(&server, &limiter).await;
            println!("{policy}: {admitted} of 400 are admitted again");
            assert!(policy == "volatile-ttl" || admitted > 0, "{policy}");
        }
    });
}

#[test]
fn a_policy_is_read_from_the_configuration_if_the_user_may_read_only_that() {
    run(async {
        let server = Setup::new(Program::Redis).line("maxmemory-policy allkeys-lfu").start();
        let policies = async |rights: &[&str]| {
            set_user(&server, "~tollgate:*", rights);
            let client = client_of_user(&server);
            client.connect().await.unwrap();
            client.stats().problems.len()
        };
        assert_eq!(policies(&["+info"]).await, 1);
        assert_eq!(policies(&["+config|get"]).await, 1);
        // A user who may read neither setting is not warned and not refused.
        assert_eq!(policies(&[]).await, 0);
    });
}

#[test]
fn a_full_server_denies_throttled_keys_and_leaves_admissions_to_the_fallback() {
    for_each_server(async |program| {
        let server = Setup::new(program).line("maxmemory 4mb").line("maxmemory-policy noeviction").start();
        let client = patient(server.url());
        for algorithm in Algorithm::ALL {
            server.command(&["FLUSHALL"]);
            server.command(&["CONFIG", "SET", "maxmemory", "4mb"]);
            let limiter = limiter(&client, algorithm);
            assert_eq!(client.health().await, []);
            // The fallback denies here. No state was forgotten.
            assert_eq!(forgotten(&server, &limiter).await, 0, "{algorithm}");
            assert_eq!(limiter.check("0").await.source(), DecisionSource::Store, "{algorithm}");
            // The last filler may have been refused because a client's buffer used the memory.
            server.command(&["CONFIG", "SET", "maxmemory", "1mb"]);
            let before = limiter.stats();
            assert_eq!(limiter.check("new").await.source(), DecisionSource::Policy, "{algorithm}");
            let after = limiter.stats();
            let both = (after.store_errors - before.store_errors, after.by_fallback - before.by_fallback);
            assert_eq!(both, (1, 1), "{algorithm}");
            assert_eq!(client.stats().breaker_trips, 0);
            let found = client.health().await;
            let [full] = &found[..] else { panic!("{algorithm}: {found:?}") };
            let text = format!("the memory of {} is full", server.address());
            assert!(!full.is_warning() && full.to_string().starts_with(&text), "{algorithm}: {full}");
            assert_eq!(client.connect().await, Err(full.clone()));
        }
    });
}

/// What a problem says, a command that causes it, and a command that cures it.
type Fault<'f> = (&'f str, &'f [&'f str], &'f [&'f str]);

/// Nobody asks for the client's health, and the client is idle while a fault is cured.
fn each_is_a_problem_until_it_is_cured(faults: &[Fault<'_>]) {
    for_each_server(async |program| {
        let server = Setup::new(program).line("maxmemory-policy noeviction").start();
        set_user(&server, "~tollgate:*", &["+info"]);
        let client = client_of_user(&server);
        let exact = limiter(&client, Algorithm::TokenBucket);
        let builder = Limiter::builder(&client, "health", Quota::new(400, AGES));
        let counts = builder.algorithm(Algorithm::FixedWindow).max_unsynced(10).build().unwrap();
        store_answers(&exact, "alice").await;
        for &(text, fault, cure) in faults {
            for limiter in [&exact, &counts] {
                server.command(fault);
                let _ = limiter.check("alice").await;
                until_async(text, async || {
                    let problems = client.stats().problems;
                    problems.iter().any(|it| it.to_string().contains(text) && !it.is_warning())
                })
                .await;
                server.command(cure);
                until_async("the cure is noticed", async || client.stats().problems.is_empty()).await;
            }
        }
    });
}

#[test]
fn an_answer_with_an_error_is_a_problem_until_it_is_cured() {
    each_is_a_problem_until_it_is_cured(&[
        ("is full", &["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
        (
            "the command `evalsha`",
            &["ACL", "SETUSER", "limiter", "-evalsha"],
            &["ACL", "SETUSER", "limiter", "+evalsha"],
        ),
        (
            "may not use the keys",
            &["ACL", "SETUSER", "limiter", "resetkeys"],
            &["ACL", "SETUSER", "limiter", "~tollgate:*"],
        ),
        ("read-only replica", &["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]),
    ]);
}

/// Redis 6.2 runs scripts with too few replicas.
#[test]
fn too_few_replicas_are_a_problem_until_there_are_enough() {
    each_is_a_problem_until_it_is_cured(&[(
        "NOREPLICAS",
        &["CONFIG", "SET", "min-replicas-to-write", "1"],
        &["CONFIG", "SET", "min-replicas-to-write", "0"],
    )]);
}

#[test]
fn a_server_that_comes_up_later_is_tried_then() {
    run(async {
        let server = Setup::new(Program::Redis).line("user default reset on nopass ~other:* +@all").start();
        let client = patient(server.url());
        let limiter = limiter(&client, Algorithm::TokenBucket);
        server.kill();
        let error = client.connect().await.unwrap_err();
        assert!(error.is_unreachable(), "{error}");
        // A task keeps trying.
        let problems = client.stats().problems;
        assert_eq!(problems, [error]);
        assert_eq!(limiter.check("alice").await.source(), DecisionSource::Policy);
        server.restart();
        until_async("its problem is known", async || {
            matches!(&client.stats().problems[..], [one] if one.to_string().contains("may not use the keys"))
        })
        .await;
        server.command(&["ACL", "SETUSER", "default", "~tollgate:*"]);
        store_answers(&limiter, "alice").await;
        assert_eq!(client.health().await, []);
    });
}

/// In a black hole, the first attempt to connect lasts longer than the trial.
#[test]
fn a_server_that_says_nothing_is_a_problem_at_the_first_look() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for url in [format!("redis://{address}"), format!("redis://:secret@{address}/3")] {
            let client = Client::open(&*url).unwrap();
            let problems = client.health().await;
            let text = format!("no connection to {address}: ");
            assert!(
                problems[0].is_unreachable() && problems[0].to_string().starts_with(&text),
                "{problems:?}"
            );
            let client = Client::builder(&*url).connection_timeout(Duration::from_millis(1)).build().unwrap();
            let text = client.connect().await.unwrap_err().to_string();
            assert_eq!(client.stats().problems[0].to_string(), text);
        }
    });
}

/// The text names the servers as the caller specified them, but without user and password.
#[test]
fn a_server_without_a_connection_is_named() {
    run(async {
        let url = |port| format!("redis://limiter:secret@127.0.0.1:{port}");
        let cluster = Client::cluster([url(1), url(2)]).build().unwrap();
        let sentinel = Client::sentinel("mymaster", [url(1), url(2)], url(3)).build().unwrap();
        for (client, named) in [
            (Client::open(url(1)).unwrap(), "127.0.0.1:1: "),
            (cluster, "the cluster of 127.0.0.1:1, 127.0.0.1:2: "),
            (sentinel, "the master `mymaster` of the sentinels 127.0.0.1:1, 127.0.0.1:2: "),
        ] {
            for _ in 0..2 {
                let text = client.connect().await.unwrap_err().to_string();
                println!("{text}");
                assert!(text.starts_with(&format!("no connection to {named}")), "{text}");
                assert!(!text.contains("secret") && !text.contains("limiter"), "{text}");
                assert_eq!(client.stats().problems[0].to_string(), text);
            }
        }
    });
}

#[test]
fn a_client_that_was_never_asked_to_tries_nothing() {
    on_client(async |server, client| {
        store_answers(&limiter(&client, Algorithm::TokenBucket), "alice").await;
        assert_eq!((server.calls("eval"), server.calls("del")), (1, 0));
    });
}

#[test]
fn each_primary_of_a_cluster_is_tried() {
    for_each_server(async |program| {
        let cluster = Cluster::start(program);
        let client = patiently(Client::cluster(cluster.urls()));
        let limiter = limiter(&client, Algorithm::TokenBucket);
        client.connect().await.unwrap();
        assert_eq!(client.stats().problems, []);
        let server = &cluster.nodes()[1];
        // The rights named on the crate's page are enough.
        for node in cluster.nodes() {
            set_user(node, "~tollgate:*", &["+cluster|slots", "+asking"]);
        }
        let seed = format!("redis://limiter:secret@{}", server.address());
        let least = patiently(Client::cluster([seed]));
        least.connect().await.unwrap();
        assert_eq!(least.health().await, []);
        server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        server.command(&["ACL", "SETUSER", "default", "-evalsha"]);
        let error = client.connect().await.unwrap_err().to_string();
        assert!(error.contains("`evalsha`") && error.contains(&server.address().to_string()), "{error}");
        let problems = client.stats().problems;
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[1].is_warning(), "{problems:?}");
        server.command(&["ACL", "SETUSER", "default", "+evalsha"]);
        assert_eq!(client.health().await, problems[1..]);
        store_answers(&limiter, "alice").await;
    });
}

#[test]
fn a_client_connects_to_the_primaries_of_a_cluster_that_are_there() {
    run(async {
        let cluster = Cluster::start(Program::Redis);
        for node in cluster.nodes() {
            node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
            node.command(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]);
        }
        let client = patiently(Client::cluster(cluster.urls()));
        client.connect().await.unwrap();
        // This primary serves the first slot.
        let primaries = &cluster.nodes()[..3];
        primaries[0].kill();
        client.connect().await.unwrap();
        let problems = client.stats().problems;
        let [away] = &problems[..] else { panic!("{problems:?}") };
        let text = format!("no connection to {}: ", primaries[0].address());
        assert!(away.is_unreachable() && away.to_string().starts_with(&text), "{away}");
        primaries[1..].iter().for_each(Server::kill);
        assert!(client.connect().await.unwrap_err().is_unreachable());
    });
}

#[test]
fn the_new_master_is_tried_after_a_failover() {
    run(async {
        let watched = Watched::start(Program::Redis);
        let client = patiently(Client::sentinel(NAME, watched.urls(), "redis://any-name"));
        let limiter = limiter(&client, Algorithm::TokenBucket);
        client.connect().await.unwrap();
        assert_eq!(client.stats().problems, []);
        for server in watched.servers() {
            server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
        }
        let killed = watched.kill_master();
        until_async("the new master is tried", async || {
            let _ = limiter.check("alice").await;
            matches!(&client.stats().problems[..], [one] if one.to_string().contains("maxmemory-policy"))
        })
        .await;
        tokio::task::block_in_place(|| watched.wait_for_failover(killed));
    });
}
