//! Permits in flight on several machines. They never exceed the limit, and no permit is lost for
//! longer than a lifetime.

use crate::load::{on_client, on_each_client, on_each_server, on_server, patient, patiently};
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tollgate::DecisionSource;
use tollgate_redis::{Client, SharedBuilder, SharedInFlight, WhenUnavailable};
use tollgate_testing::store::cluster::Cluster;
use tollgate_testing::store::nodes::{Nodes, node};
use tollgate_testing::store::program::for_each_server;
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until, until_async};

type Jobs = SharedInFlight<str>;

/// Longer than any test, so that no permit expires during a test.
const LONG: Duration = Duration::from_secs(3_600);
/// This lifetime is short enough for tests to see renewals. It is long enough for a busy machine to
/// meet the deadline, which is a sixth of the lifetime.
const SHORT: Duration = Duration::from_secs(6);

fn builder(client: &Client, limit: u64, lifetime: Duration) -> SharedBuilder<SharedInFlight<str>> {
    let builder = Jobs::builder(client, "jobs", limit).lifetime(lifetime);
    builder.deadline((lifetime / 6).min(Duration::from_secs(5))).when_unavailable(WhenUnavailable::Deny)
}

fn jobs(client: &Client, limit: u64) -> Jobs {
    builder(client, limit, LONG).build().unwrap()
}

/// Lets `time` pass for the places in the store, by moving the ends of their lifetimes.
fn pass(server: &Server, time: Duration) {
    let micros = time.as_micros();
    for (key, _) in server.keys_with_ttl() {
        let members: Vec<(String, String)> = server.ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]);
        for (member, score) in members {
            let score: f64 = score.parse().unwrap();
            server.command(&["ZADD", &key, &format!("{:.0}", score - micros as f64), &member]);
        }
    }
}

#[test]
fn tasks_on_two_clients_never_hold_more_than_the_limit_at_once() {
    const LIMIT: u64 = 5;
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        let machines = clients.each_ref().map(|client| Arc::new(jobs(client, LIMIT)));
        let (out, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..16).map(|number| {
            let jobs = Arc::clone(&machines[number % 2]);
            let (out, most) = (Arc::clone(&out), Arc::clone(&most));
            tokio::spawn(async move {
                let mut held = 0;
                for turn in 0..100 {
                    let Ok(permit) = jobs.acquire("alice").await else { continue };
                    let now = out.fetch_add(1, SeqCst) + 1;
                    assert!(now <= LIMIT, "{now} at once");
                    most.fetch_max(now, SeqCst);
                    assert!(permit.is_held());
                    tokio::task::yield_now().await;
                    held += 1;
                    out.fetch_sub(1, SeqCst);
                    if turn % 2 == 0 { permit.release().await } else { drop(permit) }
                }
                held
            })
        });
        // All tasks are spawned before the first one is awaited.
        let tasks: Vec<_> = tasks.collect();
        let held: u64 = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
        assert!(held >= 100, "{held}");
        assert_eq!(most.load(SeqCst), LIMIT);
        until_async("all are back", async || machines[0].in_flight("alice").await == 0).await;
        assert_eq!(server.keys_with_ttl(), [], "and nothing is left in the store");
    });
}

/// The oracle is a list of the granted permits. Each permit has an end.
#[test]
fn random_permits_are_given_as_an_oracle_gives_them() {
    const STEP: Duration = Duration::from_secs(600);
    on_each_client(async |server, client| {
        // All lifetimes end between two steps, so the test's duration does not matter.
        let lifetimes = [STEP * 7 / 2, STEP * 3 / 2];
        let machines = [3, 5].into_iter().zip(lifetimes);
        let machines = machines.map(|(limit, lifetime)| builder(&client, limit, lifetime).build().unwrap());
        let machines: Vec<Jobs> = machines.collect();
        let mut random = fastrand::Rng::with_seed(1);
        let (mut now, mut given, mut refused) = (Duration::ZERO, Vec::new(), 0);
        for step in 0..600 {
            let out = given.iter().filter(|(_, end)| *end > now).count() as u64;
            let jobs = &machines[random.usize(..2)];
            match random.u64(..5) {
                0..=2 => match jobs.acquire("alice").await {
                    Ok(permit) => {
                        assert!(out < jobs.limit(), "step {step}: {out} were out");
                        let lifetime = lifetimes[usize::from(jobs.limit() == 5)];
                        given.push((permit, now + lifetime));
                    }
                    Err(denied) => {
                        assert!(out >= jobs.limit(), "step {step}: {out} were out");
                        assert_eq!(denied.decision().remaining(), 0);
                        refused += 1;
                    }
                },
                3 if !given.is_empty() => {
                    let one = random.usize(..given.len());
                    given.swap_remove(one).0.release().await;
                }
                _ => {
                    pass(&server, STEP);
                    now += STEP;
                }
            }
            let out = given.iter().filter(|(_, end)| *end > now).count() as u64;
            assert_eq!(jobs.in_flight("alice").await, out, "step {step}");
        }
        assert!(refused > 50, "{refused}");
    });
}

#[test]
#[ignore = "a node that other tests start"]
fn working_node() {
    node(|node| {
        run(async {
            let jobs = jobs(&patient(node.var("URL")), 2);
            let held = [jobs.acquire("alice").await.unwrap(), jobs.acquire("alice").await.unwrap()];
            node.ready();
            node.hear();
            drop(held);
        });
    });
}

#[test]
fn the_places_of_a_killed_process_come_back_after_the_lifetime_and_not_before() {
    let server = Server::start();
    let mut nodes = Nodes::start(1, "in_flight::working_node", &[("URL", &server.url())]);
    nodes.go();
    nodes.kill(0);
    run(async {
        let jobs = jobs(&patient(server.url()), 2);
        assert!(jobs.acquire("alice").await.is_err());
        // This test has run for far less than a minute, so the places have not expired.
        let minute = Duration::from_secs(60);
        pass(&server, LONG - minute);
        assert!(jobs.acquire("alice").await.is_err());
        assert_eq!(jobs.in_flight("alice").await, 2);
        pass(&server, minute);
        assert_eq!(jobs.in_flight("alice").await, 0);
        let held = [jobs.acquire("alice").await.unwrap(), jobs.acquire("alice").await.unwrap()];
        assert!(jobs.acquire("alice").await.is_err());
        drop(held);
    });
}

#[test]
fn a_release_that_comes_late_or_twice_frees_no_place_of_others() {
    on_each_server(async |server| {
        let jobs = jobs(&patient(server.url()), 1);
        let late = jobs.acquire("alice").await.unwrap();
        pass(&server, LONG);
        let held = jobs.acquire("alice").await.unwrap();
        let [(key, _)] = &server.keys_with_ttl()[..] else { panic!("one entry") };
        assert_eq!(server.ask::<u64>(&["ZCARD", key]), 1, "the place that is over is removed");
        late.release().await;
        assert_eq!(jobs.in_flight("alice").await, 1);
        assert!(jobs.acquire("alice").await.is_err());
        held.release().await;
        assert_eq!(jobs.in_flight("alice").await, 0);
    });
}

#[test]
fn a_permit_is_renewed_while_it_lives_and_free_at_once_when_it_is_dropped() {
    on_client(async |server, client| {
        let jobs = builder(&client, 1, SHORT).build().unwrap();
        let permit = jobs.acquire("alice").await.unwrap();
        let renewals = server.calls("zadd") + 6;
        until_async("it was renewed six times", async || {
            assert!(jobs.acquire("alice").await.is_err(), "it lives");
            server.calls("zadd") >= renewals
        })
        .await;
        assert!(permit.is_held());
        // Any thread may drop a response body.
        std::thread::spawn(move || drop(permit)).join().unwrap();
        until_async("the place is free", async || jobs.in_flight("alice").await == 0).await;
        let after = server.calls("zadd");
        tokio::time::sleep(SHORT).await;
        assert_eq!(server.calls("zadd"), after, "nobody renews it any more");
    });
}

#[test]
fn a_permit_whose_place_went_to_another_is_not_held_until_one_is_free() {
    on_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        let ours = builder(&clients[0], 1, SHORT).build().unwrap();
        let theirs = jobs(&clients[1], 1);
        let permit = ours.acquire("alice").await.unwrap();
        let other = loop {
            pass(&server, SHORT);
            // On a busy machine, a renewal may arrive before the request for the other permit.
            if let Ok(other) = theirs.acquire("alice").await {
                break other;
            }
        };
        until_async("it knows", async || !permit.is_held()).await;
        assert_eq!(theirs.in_flight("alice").await, 1);
        other.release().await;
        until_async("it has a place again", async || permit.is_held()).await;
        assert_eq!(theirs.in_flight("alice").await, 1);
    });
}

#[test]
fn a_store_that_comes_back_empty_learns_what_is_out() {
    on_client(async |server, client| {
        let jobs = builder(&client, 2, SHORT).build().unwrap();
        let held = [jobs.acquire("alice").await.unwrap(), jobs.acquire("alice").await.unwrap()];
        server.kill();
        until_async("no renewal has come through", async || !held[0].is_held() && !held[1].is_held()).await;
        server.restart();
        until_async("the store knows of both", async || held.iter().all(|permit| permit.is_held())).await;
        assert_eq!(jobs.in_flight("alice").await, 2);
        assert!(jobs.acquire("alice").await.is_err());
    });
}

#[test]
fn a_place_for_which_nobody_waits_any_more_goes_back() {
    on_client(async |server, client| {
        let patient = jobs(&client, 1);
        assert_eq!(patient.in_flight("alice").await, 0);
        // The answer is late, so the permit that it grants is returned.
        let hasty = builder(&client, 1, LONG).deadline(Duration::from_millis(50)).build().unwrap();
        server.stop();
        assert_eq!(hasty.acquire("alice").await.unwrap_err().decision().source(), DecisionSource::Policy);
        server.resume();
        until_async("the server answers", async || patient.acquire("other").await.is_ok()).await;
        until_async("it is back", async || patient.in_flight("alice").await == 0).await;
        // The caller stops waiting.
        let given = server.calls("zadd");
        server.stop();
        let waits = tokio::time::timeout(Duration::from_millis(50), patient.acquire("alice")).await;
        assert!(waits.is_err());
        server.resume();
        until_async("it was given", async || server.calls("zadd") > given).await;
        until_async("it is back", async || patient.in_flight("alice").await == 0).await;
    });
}

/// While the breaker is open, nothing is sent. If a permit is granted late or ends during this
/// time, it is returned when the store answers again.
#[test]
fn places_given_or_ended_while_the_store_stands_still_go_back_when_it_answers() {
    on_client(async |server, client| {
        let hasty = builder(&client, 9, LONG).deadline(Duration::from_millis(500)).build().unwrap();
        let other = jobs(&patient(server.url()), 9);
        until_async("the store answers", async || other.in_flight("alice").await == 0).await;
        // On a busy machine some answers are late.
        let held = loop {
            if let Ok(held) = hasty.acquire("alice").await {
                break held;
            }
        };
        server.stop();
        let late = join_all((0..8).map(|_| hasty.acquire("alice"))).await;
        assert!(late.iter().all(Result::is_err), "no answer");
        until_async("nothing is sent any more", async || client.stats().breaker_trips > 0).await;
        let asked = hasty.stats().unsent;
        drop(held);
        until("it was given back in vain", || hasty.stats().unsent > asked);
        server.resume();
        until_async("all are back", async || other.in_flight("alice").await == 0).await;
    });
}

#[test]
fn a_permit_that_outlives_its_runtime_is_free_after_the_lifetime() {
    let server = Server::start();
    let mut held = None;
    run(async {
        let jobs = jobs(&patient(server.url()), 1);
        held = Some(jobs.acquire("alice").await.unwrap());
    });
    drop(held);
    run(async {
        let jobs = jobs(&patient(server.url()), 1);
        assert_eq!(jobs.in_flight("alice").await, 1);
        pass(&server, LONG);
        assert_eq!(jobs.in_flight("alice").await, 0);
    });
}

#[test]
fn a_refusal_writes_nothing_and_promises_no_time() {
    on_each_server(async |server| {
        let jobs = jobs(&patient(server.url()), 2);
        let expired = jobs.acquire("alice").await.unwrap();
        pass(&server, LONG);
        let held = [jobs.acquire("alice").await.unwrap(), jobs.acquire("alice").await.unwrap()];
        let writes = || ["zadd", "zrem", "zremrangebyscore", "pexpire"].map(|command| server.calls(command));
        let before = writes();
        for _ in 0..5 {
            let denied = jobs.acquire("alice").await.unwrap_err();
            assert_eq!(denied.to_string(), "limit exceeded; it is unknown when a retry passes");
            let decision = denied.decision();
            assert_eq!((decision.retry_after(), decision.remaining()), (None, 0));
            assert_eq!((decision.capacity(), decision.source()), (2, DecisionSource::Store));
        }
        assert_eq!(writes(), before);
        drop((expired, held));
    });
}

#[test]
fn the_entry_is_namespaced_and_expires_with_the_last_lifetime() {
    on_client(async |server, client| {
        let short = builder(&client, 3, LONG / 60).build().unwrap();
        let jobs = jobs(&client, 3);
        let held = [short.acquire("alice").await.unwrap(), jobs.acquire("alice").await.unwrap()];
        // The permit with the shorter lifetime does not shorten the entry's lifetime.
        let third = short.acquire("alice").await.unwrap();
        let keys = server.keys_with_ttl();
        let [(key, left)] = &keys[..] else { panic!("{keys:?}") };
        assert!(key.starts_with("tollgate:jobs:p:") && !key.contains("alice"), "{key}");
        // The grace in `common.lua` is a second and a millisecond.
        let long = i64::try_from(LONG.as_millis()).unwrap() + 1_001;
        assert!((long - 60_000..=long).contains(left), "{left}");
        drop((held, third));
        let readable = builder(&client, 1, LONG).readable_keys().build().unwrap();
        let held = readable.acquire("alice").await.unwrap();
        until("it can be read", || {
            server.keys_with_ttl().iter().any(|(key, _)| key == "tollgate:jobs:p:=alice")
        });
        drop(held);
    });
}

#[test]
fn machines_with_other_limits_each_judge_by_their_own() {
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        let (small, large) = (jobs(&clients[0], 1), jobs(&clients[1], 3));
        let held = [large.acquire("alice").await.unwrap(), large.acquire("alice").await.unwrap()];
        assert_eq!(small.acquire("alice").await.unwrap_err().decision().remaining(), 0);
        let third = large.acquire("alice").await.unwrap();
        assert!(large.acquire("alice").await.is_err());
        assert!(small.acquire("bob").await.is_ok());
        drop((held, third));
    });
}

#[test]
fn a_cluster_holds_permits_too() {
    for_each_server(async |program| {
        let cluster = Cluster::start(program);
        let client = patiently(Client::cluster(cluster.urls()));
        let jobs = jobs(&client, 1);
        client.connect().await.unwrap();
        let mut held = Vec::new();
        for key in ["alice", "bob", "carol", "{tag}", ""] {
            held.push(jobs.acquire(key).await.unwrap());
            assert_eq!(jobs.acquire(key).await.unwrap_err().decision().source(), DecisionSource::Store);
        }
        join_all(held.into_iter().map(tollgate_redis::SharedPermit::release)).await;
        assert_eq!(jobs.in_flight("bob").await, 0);
    });
}

#[test]
fn while_the_store_is_away_the_fallback_decides() {
    on_client(async |server, client| {
        let build =
            |when| builder(&client, 4, LONG).deadline(Duration::from_millis(200)).when_unavailable(when);
        let local = build(WhenUnavailable::Local { share: 0.5 }).build().unwrap();
        let open = build(WhenUnavailable::Allow).build().unwrap();
        let closed = build(WhenUnavailable::Deny).build().unwrap();
        until_async("the store answers", async || {
            let _ = local.acquire("known").await;
            local.stats().by_store > 0
        })
        .await;
        let held = local.acquire("alice").await.unwrap();
        server.kill();
        // The local limiter knows the permit that the store has granted.
        let second = local.acquire("alice").await.unwrap();
        assert!(second.is_held());
        assert_eq!(local.in_flight("alice").await, 2);
        assert_eq!(local.acquire("alice").await.unwrap_err().decision().source(), DecisionSource::Key);
        drop(held);
        let third = local.acquire("alice").await.unwrap();
        assert!(local.acquire("alice").await.is_err());
        second.release().await;
        third.release().await;
        assert_eq!(local.in_flight("alice").await, 0);
        assert!(!open.acquire("alice").await.unwrap().is_held());
        assert_eq!(closed.acquire("alice").await.unwrap_err().decision().source(), DecisionSource::Policy);
        assert!(local.stats().by_fallback >= 4 && local.stats().unsent > 0, "{:?}", local.stats());
    });
}

#[test]
fn what_cannot_be_is_refused_with_what_is_allowed() {
    let client = Client::open("redis://127.0.0.1:6379").unwrap();
    let refused = |builder: SharedBuilder<SharedInFlight<str>>| builder.build().unwrap_err();
    for limit in [0, 1_000_001] {
        let text = refused(Jobs::builder(&client, "jobs", limit)).to_string();
        let range = format!("{limit} in flight is out of range; allowed: 1 to 1000000");
        assert!(text.starts_with(&range), "{text}");
    }
    let jobs = || Jobs::builder(&client, "jobs", 3);
    let day = Duration::from_secs(86_400);
    for lifetime in [Duration::ZERO, Duration::from_millis(299), day + Duration::from_nanos(1)] {
        let refused = refused(jobs().lifetime(lifetime));
        let text = format!("invalid lifetime {lifetime:?} of permits: expected 300ms to 86400s");
        assert_eq!((refused.setting(), refused.to_string()), ("lifetime", text));
    }
    assert!(jobs().lifetime(day).build().is_ok() && jobs().lifetime(day / 288_000).build().is_ok());
    // After a late renewal, there must be time for another renewal.
    let slow = jobs().deadline(Duration::from_secs(60));
    assert!(refused(slow).to_string().ends_with("expected 360s to 86400s"));
    let late = refused(jobs().deadline(Duration::from_secs(61)));
    assert_eq!(late.to_string(), "invalid deadline 61s: expected 1ms to 60s");
    let share = refused(jobs().when_unavailable(WhenUnavailable::Local { share: 1.5 }));
    assert_eq!(share.to_string(), "invalid share 1.5: expected a number above 0 and up to 1");
    assert_eq!(share.setting(), "when_unavailable");
    assert_eq!(refused(Jobs::builder(&client, "", 3)).setting(), "name");
    let none = refused(jobs().max_keys(0).when_unavailable(WhenUnavailable::Deny));
    assert!(none.to_string().starts_with("max_keys 0 is out of range"), "{none}");
}
