//! Reservations against shared limits are made, recorded, settled and dropped, and their owners may
//! die.

use crate::load::{
    AGES, Limiter, has_burst, on_client, on_each_client, on_each_server, patient, patiently, store_answers,
};
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tollgate::{Algorithm, DecisionSource, Outcome, Quota, Settlement, Tick};
use tollgate_redis::{
    Client, SharedBuilder, SharedError, SharedLimiter, SharedReservation, SharedReservationSet,
    WhenUnavailable,
};
use tollgate_testing::store::cluster::Cluster;
use tollgate_testing::store::nodes::{Nodes, node};
use tollgate_testing::store::program::for_each_server;
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until_async};

const LIMIT: u64 = 100;

fn builder(client: &Client, name: &str, algorithm: Algorithm) -> SharedBuilder<SharedLimiter<str>> {
    Limiter::builder(client, name, Quota::new(LIMIT, AGES))
        .algorithm(algorithm)
        .deadline(Duration::from_secs(5))
        .when_unavailable(WhenUnavailable::Deny)
}

/// Returns limiters of every algorithm, with a debt if the algorithm allows one. Each algorithm has
/// a limiter without leases and, if it grants leases, another limiter with them.
fn limiters(client: &Client, debt: u64) -> Vec<(String, Algorithm, Limiter)> {
    let mut limiters = Vec::new();
    for algorithm in Algorithm::ALL {
        let debt = if algorithm == Algorithm::SlidingLog { 0 } else { debt };
        let build = |name: &str| builder(client, name, algorithm).max_debt(debt);
        let name = format!("{algorithm}, exact");
        limiters.push((name.clone(), algorithm, build(&name).build().unwrap()));
        if algorithm != Algorithm::LeakyQueue {
            let name = format!("{algorithm}, leases");
            limiters.push((name.clone(), algorithm, build(&name).lease(2).build().unwrap()));
        }
    }
    limiters
}

/// Returns how many of a key's tokens remain: those in the store, and those that this machine has
/// leased.
async fn left(limiter: &Limiter, key: &str) -> u64 {
    limiter.peek(key).await.remaining() + limiter.stats().leased
}

#[test]
fn a_commit_gives_back_the_rest_or_charges_what_is_missing() {
    on_each_client(async |_server, client| {
        for (name, _, limiter) in limiters(&client, 0) {
            let settled = limiter.reserve("alice", 80).await.unwrap().commit(30).await;
            assert_eq!(settled, Settlement { charged: 30, unpaid: 0 }, "{name}");
            assert_eq!(left(&limiter, "alice").await, 70, "{name}");
            let settled = limiter.reserve("alice", 20).await.unwrap().commit(50).await;
            assert_eq!(settled, Settlement { charged: 50, unpaid: 0 }, "{name}");
            assert_eq!(left(&limiter, "alice").await, 20, "{name}");
            limiter.reserve("alice", 15).await.unwrap().release().await;
            assert_eq!(left(&limiter, "alice").await, 20, "{name}");
        }
    });
}

#[test]
fn a_commit_goes_into_debt_up_to_the_bound_and_tells_the_rest() {
    on_each_client(async |_server, client| {
        for (name, algorithm, limiter) in limiters(&client, 30) {
            let debt = if algorithm == Algorithm::SlidingLog { 0 } else { 30 };
            // The cost is more than any lease can hold, so the store decides.
            let settled = limiter.reserve("alice", 90).await.unwrap().commit(150).await;
            let leased = limiter.stats().leased;
            assert_eq!(settled, Settlement { charged: 100 + debt - leased, unpaid: 50 - debt + leased });
            let denied = limiter.check_n("alice", 9).await;
            assert_eq!(denied.outcome(), Outcome::Denied, "{name}");
            assert_eq!(limiter.peek("alice").await.remaining(), 0, "{name}");
            assert_eq!(limiter.force("alice", 1).await, 0, "{name}");
            // An owed token is paid back before other tokens return.
            if has_burst(algorithm) && leased == 0 {
                let second = AGES / u32::try_from(LIMIT).unwrap();
                let wait = limiter.peek("alice").await.retry_after().unwrap();
                assert!(wait > second * 30 && wait <= second * 31, "{name}: {wait:?}");
            }
        }
    });
}

/// In another project's proxy, refused requests drained their bucket.
#[test]
fn a_refused_reservation_drains_nothing() {
    on_each_client(async |_server, client| {
        for (name, _, limiter) in limiters(&client, 30) {
            let held = limiter.reserve("alice", 60).await.unwrap();
            for _ in 0..20 {
                let denied = limiter.reserve("alice", 60).await.unwrap_err().decision();
                assert_eq!(denied.outcome(), Outcome::Denied, "{name}");
            }
            let never = limiter.reserve("alice", 101).await.unwrap_err().decision();
            assert_eq!((never.outcome(), never.retry_after()), (Outcome::TooCostly, None), "{name}");
            assert_eq!(left(&limiter, "alice").await, 40, "{name}");
            held.release().await;
            assert_eq!(left(&limiter, "alice").await, 100, "{name}");
            // A machine with leases remembers a denial, and forgets it after giving tokens back.
            assert!(limiter.check_n("alice", 60).await.is_allowed(), "{name}");
        }
    });
}

/// In another project, a client that hung up early received all tokens back, and therefore paid
/// nothing.
#[test]
fn a_drop_keeps_what_was_reserved_or_recorded() {
    on_each_client(async |_server, client| {
        for (name, _, limiter) in limiters(&client, 0) {
            let mut held = limiter.reserve("alice", 30).await.unwrap();
            assert!(held.record(0).await.is_ok(), "{name}: nothing is recorded");
            drop(held);
            let mut held = limiter.reserve("alice", 30).await.unwrap();
            assert!(held.record(4).await.is_ok() && held.record(6).await.is_ok());
            drop(held);
            until_async("the rest is back", async || left(&limiter, "alice").await == 60).await;
            drop(limiter.reserve("alice", 30).await.unwrap().release_on_drop());
            until_async("all of it is back", async || left(&limiter, "alice").await == 60).await;
            let mut held = limiter.reserve("alice", 30).await.unwrap().release_on_drop();
            assert!(held.record(10).await.is_ok());
            // Any thread may drop a response body.
            std::thread::spawn(move || drop(held)).join().unwrap();
            until_async("the rest is back", async || left(&limiter, "alice").await == 50).await;
            // No more tokens are returned, and none by the first reservation.
            tokio::time::sleep(Duration::from_millis(50)).await;
            assert_eq!(left(&limiter, "alice").await, 50, "{name}");
        }
    });
}

#[test]
fn a_drop_after_its_runtime_keeps_everything() {
    let server = Server::start();
    let client = patient(server.url());
    let build = || builder(&client, "late", Algorithm::TokenBucket).build().unwrap();
    let mut held = None;
    run(async {
        held = Some(build().reserve("alice", 30).await.unwrap().release_on_drop());
    });
    drop(held);
    let client = patient(server.url());
    run(async {
        let limiter: Limiter = builder(&client, "late", Algorithm::TokenBucket).build().unwrap();
        assert_eq!(limiter.peek("alice").await.remaining(), 70);
    });
}

/// A stream is cut exactly when its budget is spent, neither a record too late nor a record too
/// early.
#[test]
fn a_record_is_refused_at_the_limit_and_changes_nothing() {
    on_each_client(async |server, client| {
        for algorithm in Algorithm::ALL {
            let limiter = builder(&client, &format!("{algorithm}"), algorithm).build().unwrap();
            let mut held = limiter.reserve("alice", 32).await.unwrap();
            let before = server.calls("evalsha");
            for _ in 0..4 {
                assert!(held.record(8).await.is_ok());
            }
            assert_eq!(server.calls("evalsha"), before, "{algorithm}: what is reserved is spent here");
            let mut sent = 4;
            while held.record(8).await.is_ok() {
                sent += 1;
            }
            assert_eq!((sent, held.recorded(), held.unspent()), (12, 96, 0), "{algorithm}");
            let denied = held.record(8).await.unwrap_err().decision();
            assert_eq!((denied.outcome(), denied.remaining()), (Outcome::Denied, 4), "{algorithm}");
            let never = held.record(u64::MAX).await.unwrap_err().decision();
            assert_eq!(never.outcome(), Outcome::TooCostly, "{algorithm}");
            assert!(held.record(4).await.is_ok(), "{algorithm}: a smaller one fits");
            // Tokens charged for growth are not given back.
            assert_eq!(held.commit(5).await, Settlement { charged: 68, unpaid: 0 }, "{algorithm}");
            assert_eq!(limiter.peek("alice").await.remaining(), 32, "{algorithm}");
        }
    });
}

/// Returns the time of the system's clock plus `time`.
fn from_now(time: Duration) -> Tick {
    Tick::from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + time)
}

/// In other projects, a late refund was taken from the next window or from charges made by others.
#[test]
fn a_settlement_after_its_window_gives_nothing_of_others_back() {
    on_each_client(async |_server, client| {
        for algorithm in Algorithm::ALL {
            let period = Duration::from_secs(3_600);
            let late = |name: &str| {
                let builder =
                    Limiter::builder(&client, format!("{algorithm}-{name}"), Quota::new(LIMIT, period));
                // This clock is behind the other machines' clocks, so the request is judged by the
                // other machines' time.
                builder.algorithm(algorithm).deadline(Duration::from_secs(5)).client_clock().build().unwrap()
            };
            let limiter = late("over");
            let held = limiter.reserve("alice", 60).await.unwrap();
            let then = from_now(2 * period);
            // Other callers charge more than the reservation, so a wrong refund would find enough
            // tokens.
            assert!(limiter.at(then).check_n("alice", 70).await.is_allowed(), "{algorithm}");
            held.release().await;
            assert_eq!(limiter.at(then).peek("alice").await.remaining(), 30, "{algorithm}");
            if has_burst(algorithm) {
                // Half of the reserved tokens have refilled, and only the other half is given back.
                let limiter = late("half");
                let held = limiter.reserve("alice", 60).await.unwrap();
                let then = from_now(period * 30 / 100);
                assert!(limiter.at(then).check_n("alice", 40).await.is_allowed());
                held.release().await;
                let left = limiter.at(then).peek("alice").await.remaining();
                assert!((59..=60).contains(&left), "{algorithm}: {left}");
            }
        }
    });
}

#[test]
#[ignore = "a node that other tests start"]
fn dying_node() {
    node(|node| {
        run(async {
            let client = patient(node.var("URL"));
            let mut held = Vec::new();
            for algorithm in Algorithm::ALL {
                let limiter = builder(&client, &algorithm.to_string(), algorithm).build().unwrap();
                held.push(limiter.reserve("alice", 30).await.unwrap().release_on_drop());
                let mut spending = limiter.reserve("alice", 20).await.unwrap();
                spending.record(5).await.unwrap();
                held.push(spending);
            }
            node.ready();
            node.hear();
        });
    });
}

#[test]
fn what_a_dead_process_has_reserved_is_spent_until_it_is_over() {
    let server = Server::start();
    let mut nodes = Nodes::start(1, "reservations::dying_node", &[("URL", &server.url())]);
    nodes.go();
    nodes.kill(0);
    run(async {
        let client = patient(server.url());
        for algorithm in Algorithm::ALL {
            let limiter = builder(&client, &algorithm.to_string(), algorithm).build().unwrap();
            assert_eq!(limiter.peek("alice").await.remaining(), 50, "{algorithm}");
            // The charge ends like every charge, without any cleanup.
            assert_eq!(limiter.at(from_now(2 * AGES)).peek("alice").await.remaining(), LIMIT, "{algorithm}");
        }
    });
}

#[test]
fn open_reservations_on_two_clients_never_hold_more_than_the_bound() {
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        for algorithm in Algorithm::ALL {
            let debt = if algorithm == Algorithm::SlidingLog { 0 } else { 40 };
            let build = |client| {
                let builder = builder(client, &algorithm.to_string(), algorithm);
                Arc::new(builder.max_debt(debt).build().unwrap())
            };
            let machines = clients.each_ref().map(build);
            let tasks = (0..8).map(|number| {
                let limiter = Arc::clone(&machines[number % 2]);
                tokio::spawn(async move {
                    let mut held = Vec::new();
                    while let Ok(reservation) = limiter.reserve("alice", 3).await {
                        held.push(reservation);
                    }
                    held
                })
            });
            // All tasks are spawned before the first one is awaited.
            let tasks: Vec<_> = tasks.collect();
            let held: Vec<SharedReservation> =
                join_all(tasks).await.into_iter().flat_map(|held| held.unwrap()).collect();
            assert_eq!(held.len(), 33, "{algorithm}");
            assert_eq!(machines[0].peek("alice").await.remaining(), 1, "{algorithm}");
            join_all(held.into_iter().map(SharedReservation::release)).await;
            assert_eq!(machines[1].peek("alice").await.remaining(), LIMIT, "{algorithm}");
        }
    });
}

/// At the end, the number of missing tokens is exactly the sum of the settlements.
#[test]
fn random_reservations_on_two_clients_leave_the_exact_sum() {
    const ENOUGH: u64 = 1_000_000;
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow] {
            let build = |client| {
                let builder = Limiter::builder(client, algorithm.to_string(), Quota::new(ENOUGH, AGES));
                Arc::new(builder.algorithm(algorithm).deadline(Duration::from_secs(20)).build().unwrap())
            };
            let machines: [Arc<Limiter>; 2] = clients.each_ref().map(build);
            let tasks = [3, 5, 7, 11].into_iter().enumerate().map(|(number, seed)| {
                let limiter = Arc::clone(&machines[number % 2]);
                tokio::spawn(async move {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut spent = 0;
                    for _ in 0..250 {
                        let estimate = random.u64(..9);
                        let mut held = limiter.reserve("alice", estimate).await.unwrap();
                        for _ in 0..random.u64(..3) {
                            held.record(random.u64(..5)).await.unwrap();
                        }
                        let (recorded, growth) = (held.recorded(), held.recorded().saturating_sub(estimate));
                        spent += match random.u64(..5) {
                            0 => held.commit(random.u64(..20)).await.charged,
                            1 => held.commit(recorded).await.charged,
                            2 => {
                                held.release().await;
                                growth
                            }
                            3 => {
                                drop(held.release_on_drop());
                                recorded
                            }
                            _ => {
                                drop(held);
                                if recorded > 0 { recorded } else { estimate }
                            }
                        };
                    }
                    spent
                })
            });
            let tasks: Vec<_> = tasks.collect();
            let spent: u64 = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
            assert!(spent > 1_000, "{spent}");
            let all_back = async || machines[0].peek("alice").await.remaining() == ENOUGH - spent;
            until_async("the drops have given back", all_back).await;
            let stats = machines.each_ref().map(|machine| machine.stats());
            assert!(stats.iter().all(|stats| (stats.by_fallback, stats.unanswered) == (0, 0)), "{stats:?}");
        }
    });
}

#[test]
fn several_limits_are_reserved_grow_and_settle_all_or_none() {
    for_each_server(async |program| {
        let server = Server::of(program);
        let client = patient(server.url());
        // The other limits are on different servers.
        let cluster = Cluster::start(program);
        let nodes = patiently(Client::cluster(cluster.urls()));
        let wide = builder(&client, "wide", Algorithm::TokenBucket).max_debt(20);
        let wide = wide.class("paid", Quota::new(200, AGES)).build().unwrap();
        let paid = wide.class("paid").unwrap();
        let narrow = SharedLimiter::<()>::builder(&nodes, "narrow", Quota::new(50, AGES));
        let narrow =
            narrow.algorithm(Algorithm::SlidingWindow).deadline(Duration::from_secs(5)).build().unwrap();
        let remaining = async || (paid.peek("alice").await.remaining(), narrow.peek(&()).await.remaining());
        let limits =
            |wide_cost, narrow_cost| [(paid.for_key("alice"), wide_cost), (narrow.clone(), narrow_cost)];
        let denied = SharedReservationSet::reserve(limits(160, 51)).await.unwrap_err();
        assert_eq!((denied.index(), denied.decision().outcome()), (Some(1), Outcome::TooCostly));
        assert_eq!(remaining().await, (200, 50));
        let mut held = SharedReservationSet::reserve(limits(160, 20)).await.unwrap();
        assert_eq!(remaining().await, (40, 30));
        // The first limit grows before the second one denies.
        assert_eq!(held.record(|limit| [170, 55][limit]).await.unwrap_err().index(), Some(1));
        assert_eq!(remaining().await, (40, 30));
        assert_eq!(held.record(|limit| [201, 5][limit]).await.unwrap_err().index(), Some(0));
        assert_eq!(held[1].recorded(), 0);
        held.record(|_| 45).await.unwrap();
        assert_eq!(remaining().await, (40, 5));
        let settled = held.commit(|limit| [230, 40][limit]).await;
        assert_eq!(settled[0], Settlement { charged: 220, unpaid: 10 });
        assert_eq!(settled[1], Settlement { charged: 40, unpaid: 0 });
        assert_eq!(remaining().await, (0, 10));
        paid.reset("alice").await.unwrap();
        SharedReservationSet::reserve(limits(9, 9)).await.unwrap().release().await;
        drop(SharedReservationSet::reserve(limits(9, 9)).await.unwrap().release_on_drop());
        until_async("a drop gives all back", async || remaining().await == (200, 10)).await;
        assert_eq!(
            wide.peek("alice").await.remaining(),
            LIMIT,
            "the default class has nothing to do with it"
        );
    });
}

#[test]
fn an_unsynced_count_gives_back_what_the_store_was_not_told() {
    on_client(async |_server, client| {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let limiter =
                builder(&client, &algorithm.to_string(), algorithm).max_unsynced(50).build().unwrap();
            let mut held = limiter.reserve("alice", 30).await.unwrap();
            assert_eq!(held.decision().source(), DecisionSource::Lease);
            held.record(35).await.unwrap();
            limiter.flush().await;
            assert_eq!(held.commit(40).await, Settlement { charged: 40, unpaid: 0 }, "{algorithm}");
            assert_eq!(limiter.peek("alice").await.remaining(), 60, "{algorithm}");
            limiter.flush().await;
            let held = limiter.reserve("alice", 30).await.unwrap();
            limiter.flush().await;
            held.release().await;
            assert_eq!(limiter.peek("alice").await.remaining(), 30, "{algorithm}: the store was told");
            // There is no debt, so at most the remaining room is charged.
            assert_eq!(limiter.force("alice", 45).await, 30, "{algorithm}");
            assert_eq!(limiter.force("alice", 1).await, 0, "{algorithm}");
        }
    });
}

#[test]
fn a_debt_that_cannot_be_is_refused_with_the_most_that_can() {
    let client = Client::open("redis://127.0.0.1:6379").unwrap();
    for algorithm in Algorithm::ALL {
        let build = |debt| builder(&client, "debt", algorithm).max_debt(debt).build();
        if algorithm == Algorithm::SlidingLog {
            let refused = build(7).unwrap_err().to_string();
            assert!(refused.starts_with("max_debt 7 has no meaning for a sliding-log"), "{refused}");
            continue;
        }
        let most = largest_debt(&build(u64::MAX).unwrap_err());
        assert!(build(most).is_ok() && build(most + 1).is_err(), "{algorithm}: {most}");
    }
    let unsynced = builder(&client, "debt", Algorithm::FixedWindow).max_unsynced(5).max_debt(7);
    let refused = unsynced.build().unwrap_err();
    assert_eq!(refused.setting(), "max_debt");
    assert!(refused.to_string().starts_with("max_debt 7 excludes max_unsynced"), "{refused}");
}

/// Returns the largest allowed debt, as reported by the error for a debt that is too large.
fn largest_debt(refused: &SharedError) -> u64 {
    assert_eq!(refused.setting(), "max_debt");
    let text = refused.to_string();
    let most = text.split_once("does not fit beside the capacity; allowed: 0 to ").expect(&text).1;
    most.split_once(';').unwrap().0.parse().unwrap()
}

#[test]
fn the_largest_debt_is_exact_in_the_store() {
    on_each_client(async |_server, client| {
        // A token refills in a prime number of microseconds, so any rounding is noticed.
        let quota = Quota::new(1, Duration::from_micros(1_000_000_007));
        for algorithm in Algorithm::ALL.into_iter().filter(|it| *it != Algorithm::SlidingLog) {
            let build = |name: &str, debt| {
                let builder = Limiter::builder(&client, name, quota).algorithm(algorithm).max_debt(debt);
                builder.deadline(Duration::from_secs(5)).when_unavailable(WhenUnavailable::Deny).build()
            };
            let most = largest_debt(&build("refused", u64::MAX).unwrap_err());
            let limiter = build(&algorithm.to_string(), most).unwrap();
            let now = Tick::from(Duration::from_micros(1_790_000_000_000_001));
            for (tokens, charged, owed) in [(most, most, most), (u64::MAX, 1, most + 1)] {
                assert_eq!(limiter.at(now).force("alice", tokens).await, charged, "{algorithm}");
                let denied = limiter.at(now).check("alice").await;
                assert_eq!(denied.outcome(), Outcome::Denied, "{algorithm}");
                if has_burst(algorithm) {
                    let wait = u128::from(owed) * 1_000_000_007;
                    assert_eq!(denied.retry_after().unwrap().as_micros(), wait, "{algorithm}");
                }
            }
        }
    });
}

#[test]
fn machines_with_other_debts_each_judge_by_their_own() {
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        for algorithm in Algorithm::ALL.into_iter().filter(|it| *it != Algorithm::SlidingLog) {
            let build =
                |client, debt| builder(client, &algorithm.to_string(), algorithm).max_debt(debt).build();
            let (small, large) = (build(&clients[0], 10).unwrap(), build(&clients[1], 50).unwrap());
            assert_eq!(large.force("alice", 500).await, 150, "{algorithm}");
            assert_eq!(small.force("alice", 500).await, 0, "{algorithm}");
            assert!(!small.check("alice").await.is_allowed(), "{algorithm}");
            let (ours, theirs) = (small.peek("alice").await, large.peek("alice").await);
            assert_eq!((ours.remaining(), theirs.remaining()), (0, 0), "{algorithm}");
            if has_burst(algorithm) {
                assert!(ours.retry_after() < theirs.retry_after(), "{algorithm}");
            }
            // A denial writes nothing, so the debt is unchanged.
            assert_eq!(large.force("alice", 1).await, 0, "{algorithm}");
        }
    });
}

#[test]
fn a_store_that_is_away_gives_nothing_back_and_the_fallback_is_charged() {
    on_client(async |server, client| {
        let build = |name: &str, when| {
            let builder = builder(&client, name, Algorithm::TokenBucket).max_debt(20);
            builder.when_unavailable(when).build().unwrap()
        };
        let local = build("local", WhenUnavailable::Local { share: 0.5 });
        let [open, closed] =
            [WhenUnavailable::Allow, WhenUnavailable::Deny].map(|when| build("policy", when));
        store_answers(&local, "known").await;
        let held = local.reserve("alice", 20).await.unwrap();
        let more = local.reserve("alice", 20).await.unwrap();
        let denied = closed.reserve("alice", 20).await.unwrap();
        assert_eq!(local.force("carol", 30).await, 30);
        server.kill();
        assert_eq!(local.peek("carol").await.remaining(), 20, "the local limiter knows of it");
        assert_eq!(held.commit(5).await, Settlement { charged: 5, unpaid: 0 }, "what it was asked");
        // The local limiter has half of the quota and half of the debt, and knows the earlier
        // charges.
        assert_eq!(more.commit(50).await, Settlement { charged: 40, unpaid: 10 });
        assert_eq!(denied.commit(50).await, Settlement { charged: 20, unpaid: 30 });
        let held = local.reserve("bob", 40).await.unwrap();
        assert_eq!(held.decision().source(), DecisionSource::Key);
        assert_eq!(held.commit(10).await.charged, 10);
        assert_eq!(local.peek("bob").await.remaining(), 40, "the local limiter gives back");
        let mut free = open.reserve("alice", 10).await.unwrap();
        free.record(20).await.unwrap();
        assert_eq!(free.commit(20).await, Settlement { charged: 0, unpaid: 20 }, "nobody charged it");
        assert!(closed.reserve("alice", 1).await.is_err());
    });
}

#[test]
fn a_reservation_says_what_it_holds() {
    on_client(async |_server, client| {
        let limiter = builder(&client, "said", Algorithm::TokenBucket).build().unwrap();
        let held = limiter.reserve("alice", 7).await.unwrap();
        let said = format!("{held:?} {:?}", limiter.for_key("alice"));
        assert!(said.contains("charged: 7") && said.contains("name: \"said\""), "{said}");
        assert!(!said.contains("alice"), "{said}");
    });
}
