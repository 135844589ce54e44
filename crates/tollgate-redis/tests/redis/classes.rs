//! Classes of callers. Each class has its quota in the store, in leases, in unsynchronized counts
//! and in the fallback.

use crate::load::{
    AGES, Limiter, exhaust, on_client, on_each_client, on_each_server, on_server, patient, patiently, spend,
    store_answers,
};
use futures_util::future::join_all;
use std::time::Duration;
use tollgate::{Algorithm, Decision, DecisionSource, Quota};
use tollgate_redis::{Client, SharedBuilder, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::cluster::Cluster;
use tollgate_testing::store::program::for_each_server;
use tollgate_testing::store::server::Server;

const FREE: u64 = 10;
const PAID: u64 = 100;

fn builder(client: &Client, name: &str, algorithm: Algorithm) -> SharedBuilder<SharedLimiter<str>> {
    Limiter::builder(client, name, Quota::new(FREE, AGES))
        .class("paid", Quota::new(PAID, AGES))
        .algorithm(algorithm)
        .deadline(Duration::from_secs(5))
}

/// Returns the limits of the default class and of the class `paid`.
fn classes(limiter: &Limiter) -> [Limiter; 2] {
    ["default", "paid"].map(|class| limiter.class(class).unwrap())
}

#[test]
fn a_key_that_changes_its_class_begins_anew_and_returns_to_what_it_used() {
    on_each_client(async |server, client| {
        for algorithm in Algorithm::ALL {
            let limiter = builder(&client, &format!("changed-{algorithm}"), algorithm).build().unwrap();
            let [free, paid] = classes(&limiter);
            assert_eq!(exhaust(&free, "alice").await, FREE, "{algorithm}");
            // Tokens used in the other class do not count here.
            assert_eq!(paid.check_n("alice", 30).await.remaining(), 70, "{algorithm}");
            assert!(!limiter.check("alice").await.is_allowed());
            assert_eq!(paid.peek("alice").await.remaining(), 70);
            limiter.reset("alice").await.unwrap();
            assert_eq!(limiter.peek("alice").await.remaining(), FREE);
            assert_eq!(paid.peek("alice").await.remaining(), 70, "{algorithm}");
            paid.reset("alice").await.unwrap();
            assert_eq!(paid.peek("alice").await.remaining(), PAID);
            assert_eq!((paid.quota().capacity(), free.quota().capacity()), (PAID, FREE));
        }
        assert_eq!(server.keys_with_ttl(), []);
    });
}

#[test]
fn the_names_of_a_class_are_its_own_and_expire() {
    on_client(async |server, client| {
        let builder =
            Limiter::builder(&client, "api", Quota::per_hour(FREE)).class("a:b", Quota::per_hour(PAID));
        let limiter = builder.deadline(Duration::from_secs(5)).readable_keys().build().unwrap();
        let class = limiter.class("a:b").unwrap();
        let _ = limiter.check("alice").await;
        let _ = class.check("alice").await;
        let keys = server.keys_with_ttl();
        let names: Vec<_> = keys.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["tollgate:api:b:=alice", "tollgate:api:b:a%3ab:=alice"]);
        assert!(keys.iter().all(|(_, left)| (1..=3_602_000).contains(left)), "{keys:?}");
    });
}

#[test]
fn batches_peeks_and_refunds_are_of_the_class() {
    for_each_server(async |program| {
        let server = Server::of(program);
        let client = patient(server.url());
        let cluster = Cluster::start(program);
        let nodes = patiently(Client::cluster(cluster.urls()));
        for (client, algorithm) in Algorithm::ALL.into_iter().flat_map(|it| [(&client, it), (&nodes, it)]) {
            let limiter = builder(client, &format!("batches-{algorithm}"), algorithm).build().unwrap();
            let [free, paid] = classes(&limiter);
            // The server does not know the script yet.
            let (of_free, of_paid) = tokio::join!(free.check_many(&[("alice", 9), ("alice", 9)]), async {
                paid.check_many(&[("alice", 9), ("bob", 99)]).await
            });
            let decisions = [of_free, of_paid].concat();
            let left: Vec<_> = decisions.iter().map(Decision::remaining).collect();
            assert_eq!(left, [1, 1, 91, 1], "{algorithm}");
            assert!(
                decisions.iter().all(|decision| decision.source() == DecisionSource::Store),
                "{algorithm}"
            );
            paid.refund_n("alice", &decisions[2], 4).await;
            paid.refund("bob", &decisions[3]).await;
            free.refund("alice", &decisions[1]).await;
            assert_eq!(paid.peek_n("alice", 5).await.remaining(), 95, "{algorithm}");
            assert_eq!(paid.peek("bob").await.remaining(), PAID, "{algorithm}");
            assert_eq!(limiter.peek("alice").await.remaining(), 1, "{algorithm}");
        }
    });
}

#[test]
fn machines_with_other_quotas_of_a_class_each_judge_by_their_own() {
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        for algorithm in Algorithm::ALL {
            let machine = |client, paid| {
                let builder = Limiter::builder(client, format!("both-{algorithm}"), Quota::new(FREE, AGES));
                let builder = builder.class("paid", Quota::new(paid, AGES)).algorithm(algorithm);
                builder.deadline(Duration::from_secs(5)).build().unwrap()
            };
            let machines = [machine(&clients[0], 50), machine(&clients[1], PAID)];
            let [old, new] = machines.map(|machine| machine.class("paid").unwrap());
            assert_eq!(old.check_n("alice", 30).await.remaining(), 20, "{algorithm}");
            assert_eq!(new.peek("alice").await.remaining(), 70, "{algorithm}");
            // Charged tokens stay charged.
            assert!(new.check_n("alice", 30).await.is_allowed(), "{algorithm}");
            assert!(!old.check_n("alice", 1).await.is_allowed(), "{algorithm}");
            assert_eq!(new.check_n("alice", 40).await.remaining(), 0, "{algorithm}");
        }
    });
}

#[test]
fn a_refund_by_a_machine_with_a_smaller_quota_leaves_the_charges_of_others() {
    on_each_client(async |_server, client| {
        let with = |quota, max_debt| {
            let builder = Limiter::builder(&client, "smaller", quota).max_debt(max_debt);
            builder.deadline(Duration::from_secs(5)).build().unwrap()
        };
        let quota = Quota::new(PAID, AGES);
        let large = with(quota, 50);
        for small in [with(quota, 0), with(quota.burst(FREE), 0), with(Quota::new(FREE, AGES), 0)] {
            let charge = small.check_n("alice", 4).await;
            assert_eq!(large.force("alice", 136).await, 136);
            small.refund("alice", &charge).await;
            // The refund is rounded down, to a part of a token.
            let free = large.force("alice", 1_000).await;
            assert!((13..=14).contains(&free), "{free}: {:?}", small.quota());
            large.reset("alice").await.unwrap();
        }
    });
}

/// Returns the class `paid` on two machines. The quota of the class is 50 on one machine and 100 on
/// the other.
fn old_and_new(
    clients: &[Client; 2],
    name: &str,
    algorithm: Algorithm,
    set: fn(SharedBuilder<SharedLimiter<str>>) -> SharedBuilder<SharedLimiter<str>>,
) -> [Limiter; 2] {
    let machine = |client, paid| {
        let builder = Limiter::builder(client, name, Quota::new(FREE, AGES)).algorithm(algorithm);
        let builder = builder.class("paid", Quota::new(paid, AGES)).deadline(Duration::from_secs(5));
        set(builder).build().unwrap().class("paid").unwrap()
    };
    [machine(&clients[0], 50), machine(&clients[1], PAID)]
}

#[test]
fn leases_of_machines_with_other_quotas_of_a_class_exceed_neither() {
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        for algorithm in Algorithm::ALL.into_iter().filter(|it| *it != Algorithm::LeakyQueue) {
            let name = format!("leases-of-both-{algorithm}");
            let [old, new] = old_and_new(&clients, &name, algorithm, |builder| builder.lease(5));
            let by_old = spend(&old, "alice", 30).await;
            assert_eq!(by_old, 30, "{algorithm}");
            let mut by_new = spend(&new, "alice", 30).await;
            assert_eq!(by_new, 30, "{algorithm}");
            // The old machine admits only the tokens that it had already leased.
            let leased = old.stats().leased;
            let more = exhaust(&old, "alice").await;
            assert!(more <= leased, "{algorithm}: {more}, of {leased}");
            by_new += exhaust(&new, "alice").await;
            assert!(by_old + more + by_new <= PAID, "{algorithm}: {by_old} {more} {by_new}");
            assert!(by_new > PAID / 2, "{algorithm}: {by_new}");
            assert!(old.stats().by_lease > 0 && new.stats().by_lease > 0, "{algorithm}");
        }
    });
}

#[test]
fn unsynced_counts_of_machines_with_other_quotas_of_a_class_are_added_up() {
    for_each_server(async |program| {
        const UNSYNCED: u64 = 4;
        let server = Server::of(program);
        let clients = [(); 2].map(|()| patient(server.url()));
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let name = format!("unsynced-of-both-{algorithm}");
            let [old, new] =
                old_and_new(&clients, &name, algorithm, |builder| builder.max_unsynced(UNSYNCED));
            for _ in 0..60 {
                assert!(new.check("alice").await.is_allowed(), "{algorithm}");
            }
            new.flush().await;
            // The old machine admits these tokens before it learns of other machines' counts.
            let by_old = exhaust(&old, "alice").await;
            assert!(by_old <= UNSYNCED, "{algorithm}: {by_old}");
            old.flush().await;
            let by_new = 60 + exhaust(&new, "alice").await;
            let all = by_old + by_new;
            assert!((PAID..=PAID + UNSYNCED).contains(&all), "{algorithm}: {by_old} {by_new}");
        }
    });
}

#[test]
fn unsynced_counts_of_machines_with_other_periods_are_separate() {
    on_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        let machine = |number: usize, period| {
            let builder = Limiter::builder(&clients[number], "periods", Quota::new(FREE, AGES));
            let builder = builder.algorithm(Algorithm::FixedWindow).max_unsynced(4);
            let builder = builder.class("paid", Quota::new(20, period)).deadline(Duration::from_secs(5));
            builder.build().unwrap().class("paid").unwrap()
        };
        let (old, new) = (machine(0, AGES), machine(1, AGES / 2));
        assert_eq!(exhaust(&old, "alice").await, 20);
        old.flush().await;
        assert_eq!(exhaust(&new, "alice").await, 20);
        new.flush().await;
        assert!(!old.check("alice").await.is_allowed());
    });
}

/// Two machines check one key in two classes at the same time, from many tasks, until both classes
/// are exhausted. Returns the number of tokens that each class admitted.
async fn race(machines: &[Limiter; 2]) -> [u64; 2] {
    let tasks = (0..32).map(|number| {
        let index = number / 2 % 2;
        let [free, paid] = classes(&machines[number % 2]);
        let class = if index == 0 { free } else { paid };
        tokio::spawn(async move { (index, exhaust(&class, "alice").await) })
    });
    // All tasks are spawned before the first one is awaited.
    let tasks: Vec<_> = tasks.collect();
    let mut admitted = [0, 0];
    for task in join_all(tasks).await {
        let (index, of_task) = task.unwrap();
        admitted[index] += of_task;
    }
    admitted
}

#[test]
fn machines_that_race_admit_the_quota_of_each_class_and_no_more() {
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        for algorithm in Algorithm::ALL {
            let name = format!("race-{algorithm}");
            let machines = clients.each_ref().map(|client| builder(client, &name, algorithm));
            let machines = machines.map(|builder| builder.build().unwrap());
            assert_eq!(race(&machines).await, [FREE, PAID], "{algorithm}");
        }
    });
}

#[test]
fn leases_of_two_classes_never_exceed_either_quota() {
    on_each_server(async |server| {
        let clients = [(); 2].map(|()| patient(server.url()));
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let name = format!("leases-{algorithm}");
            let machines = clients.each_ref().map(|client| builder(client, &name, algorithm).lease(5));
            let machines = machines.map(|builder| builder.build().unwrap());
            let [free, paid] = race(&machines).await;
            // A machine that was denied may still have leased tokens.
            assert!(free <= FREE && paid <= PAID && paid > PAID / 2, "{algorithm}: {free} {paid}");
            let stats = machines.each_ref().map(|machine| machine.stats());
            assert!(stats.iter().any(|stats| stats.by_lease > 0), "{stats:?}");
            let leased: u64 = stats.iter().map(|stats| stats.leased).sum();
            assert!(free + paid + leased <= FREE + PAID, "{algorithm}: {free} {paid} {leased}");
        }
    });
}

#[test]
fn a_lease_goes_back_to_the_class_that_it_was_taken_for() {
    on_client(async |_server, client| {
        let builder = builder(&client, "back", Algorithm::FixedWindow);
        let limiter = builder.class("tiny", Quota::new(1, AGES)).lease(5).build().unwrap();
        let paid = limiter.class("paid").unwrap();
        let mut charge = paid.check("alice").await;
        while charge.source() != DecisionSource::Lease {
            charge = paid.check("alice").await;
        }
        let before = limiter.stats().leased;
        // The charge does not belong to the default class.
        limiter.refund("alice", &charge).await;
        assert_eq!(limiter.stats().leased, before);
        // A class whose quota allows no lease is exact.
        let tiny = limiter.class("tiny").unwrap();
        for allowed in [true, false, false] {
            let decision = tiny.check("bob").await;
            assert_eq!((decision.is_allowed(), decision.source()), (allowed, DecisionSource::Store));
        }
    });
}

#[test]
fn unsynced_counts_of_two_classes_exceed_each_quota_by_the_bound_at_most() {
    for_each_server(async |program| {
        const UNSYNCED: u64 = 4;
        let server = Server::of(program);
        let clients = [(); 2].map(|()| patient(server.url()));
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let name = format!("unsynced-{algorithm}");
            let machines = clients.each_ref().map(|client| {
                let builder = builder(client, &name, algorithm).max_unsynced(UNSYNCED);
                builder.class("tiny", Quota::new(2, AGES)).build().unwrap()
            });
            let [free, paid] = race(&machines).await;
            assert!((FREE..=FREE + UNSYNCED).contains(&free), "{algorithm}: {free}");
            assert!((PAID..=PAID + UNSYNCED).contains(&paid), "{algorithm}: {paid}");
            // A class of two tokens has at most two unsynchronized tokens.
            let tiny = machines[0].class("tiny").unwrap();
            assert_eq!(exhaust(&tiny, "bob").await, 2, "{algorithm}");
            for machine in &machines {
                machine.flush().await;
                assert_eq!(machine.stats().unsynced, 0, "{algorithm}");
            }
            let [_, class] = classes(&machines[1]);
            assert!(!class.peek("alice").await.is_allowed(), "{algorithm}");
        }
    });
}

#[test]
fn the_fallback_of_a_class_has_its_share_of_its_own_quota() {
    on_client(async |server, client| {
        for algorithm in Algorithm::ALL {
            let builder = builder(&client, &format!("fallback-{algorithm}"), algorithm);
            let share = WhenUnavailable::Local { share: 0.5 };
            let limiter = builder.when_unavailable(share).build().unwrap();
            let [free, paid] = classes(&limiter);
            store_answers(&limiter, "known").await;
            // The fallback of a class knows the store's admissions for that class.
            assert!(paid.check_n("alice", 20).await.is_allowed());
            server.kill();
            assert_eq!(exhaust(&paid, "alice").await, PAID / 2 - 20, "{algorithm}");
            assert_eq!(exhaust(&free, "alice").await, FREE / 2, "{algorithm}");
            let charge = paid.check_n("bob", 50).await;
            assert_eq!(charge.source(), DecisionSource::Key);
            paid.refund("bob", &charge).await;
            assert!(paid.peek_n("bob", 50).await.is_allowed(), "{algorithm}");
            server.restart();
        }
    });
}

#[test]
fn the_keys_of_each_class_are_tried_when_a_client_connects() {
    on_server(async |server| {
        server.command(&[
            "ACL",
            "SETUSER",
            "default",
            "resetkeys",
            "~tollgate:tried:b:=*",
            "~tollgate:tried:b:t*",
        ]);
        let client = patient(server.url());
        let _limiter = builder(&client, "tried", Algorithm::TokenBucket).build().unwrap();
        let error = client.connect().await.unwrap_err().to_string();
        assert!(error.contains("may not use the keys `tollgate:tried:b:paid:*` of limit `tried`"), "{error}");
        server.command(&["ACL", "SETUSER", "default", "~tollgate:tried:b:paid:*"]);
        client.connect().await.unwrap();
    });
}

#[test]
fn a_class_that_cannot_be_is_refused_by_name() {
    let client = Client::open("redis://127.0.0.1:6379").unwrap();
    let refused = |set: fn(SharedBuilder<SharedLimiter<str>>) -> SharedBuilder<SharedLimiter<str>>| {
        let builder = builder(&client, "refused", Algorithm::FixedWindow);
        set(builder).build().unwrap_err().to_string()
    };
    assert_eq!(
        refused(|builder| builder.class("", Quota::per_second(1))),
        "invalid class name \"\" of 0 bytes: expected 1 to 128 bytes"
    );
    assert_eq!(
        refused(|builder| builder.class("paid", Quota::per_second(1))),
        "class \"paid\" was given two quotas; expected one for each name"
    );
    let zero = refused(|builder| builder.class("none", Quota::per_second(0)));
    assert!(zero.starts_with("class \"none\": 0 tokens would deny every request"), "{zero}");
    let burst = refused(|builder| builder.class("burst", Quota::per_second(5).burst(9)));
    assert!(burst.starts_with("class \"burst\": "), "{burst}");
    // The limit's own quota must allow the requested lease. A class's quota need not allow it.
    let lease = refused(|builder| builder.lease(6));
    assert_eq!(lease, "invalid lease of 6 tokens: expected 1 to 5 under this quota");
    // A range of one number is not written as a range.
    let small = |tokens| SharedLimiter::<str>::builder(&client, "small", Quota::new(tokens, AGES));
    let refused = |builder: SharedBuilder<SharedLimiter<str>>| builder.build().unwrap_err().to_string();
    let lease = refused(small(3).algorithm(Algorithm::FixedWindow).lease(9));
    assert_eq!(lease, "invalid lease of 9 tokens: expected 1 under this quota");
    let unsynced = refused(small(1).algorithm(Algorithm::FixedWindow).max_unsynced(9));
    assert_eq!(unsynced, "invalid max_unsynced 9: expected 1 under this quota");
    let fine = builder(&client, "fine", Algorithm::FixedWindow).class("tiny", Quota::per_second(1)).lease(5);
    assert!(fine.build().is_ok());
}

#[test]
fn the_default_class_has_a_name_that_the_store_is_not_told() {
    on_client(async |server, client| {
        let build = |name: Option<&str>| {
            let mut builder = builder(&client, "named", Algorithm::TokenBucket).readable_keys();
            if let Some(name) = name {
                builder = builder.default_class(name);
            }
            builder.build().unwrap()
        };
        let (plain, named) = (build(None), build(Some("free")));
        assert!(plain.class("free").is_none() && named.class("default").is_none());
        for handle in [plain.class("default"), named.class("free"), Some(named.clone())] {
            let handle = handle.unwrap();
            assert_eq!(handle.quota(), Quota::new(FREE, AGES));
            assert!(handle.check("alice").await.is_allowed());
        }
        assert_eq!(named.peek("alice").await.remaining(), FREE - 3);
        assert_eq!(server.keys_with_ttl()[0].0, "tollgate:named:b:=alice");
        // A class of a class is a class of the limit.
        let paid = named.class("paid").unwrap();
        assert_eq!(paid.class("free").unwrap().peek("alice").await.remaining(), FREE - 3);
    });
}

#[test]
fn a_limit_of_one_key_changes_its_class_and_its_time() {
    on_client(async |_server, client| {
        let limiter = builder(&client, "bound", Algorithm::FixedWindow).build().unwrap();
        let [free, paid] = classes(&limiter);
        let alice = limiter.for_key("alice");
        assert!(alice.check_n(&(), 4).await.is_allowed());
        assert!(alice.class("paid").unwrap().check_n(&(), 4).await.is_allowed());
        assert_eq!(free.peek("alice").await.remaining(), FREE - 4);
        assert_eq!(paid.peek("alice").await.remaining(), PAID - 4);
        // A limit of one key remains a limit of one key.
        let again = alice.for_key(&()).class("paid").unwrap().class("default").unwrap();
        let charge = again.check_n(&(), 6).await;
        assert_eq!(free.peek("alice").await.remaining(), 0);
        again.refund(&(), &charge).await;
        let later = alice.at(charge.at() + 2 * AGES);
        assert_eq!(later.peek(&()).await.remaining(), FREE);
        assert_eq!(later.check_many(&[(&(), 3), (&(), 3)]).await[1].remaining(), FREE - 6);
        later.reset(&()).await.unwrap();
        assert_eq!(alice.peek(&()).await.remaining(), FREE);
    });
}

#[cfg(feature = "http")]
#[test]
fn a_layer_gets_the_classes_of_a_shared_limit() {
    use std::sync::Arc;
    use tollgate_http::{AsyncLimiter, Key};
    on_client(async |_server, client| {
        let limiter: SharedLimiter<Key> = SharedLimiter::builder(&client, "api", Quota::new(FREE, AGES))
            .class("paid", Quota::new(PAID, AGES))
            .class("trial", Quota::new(1, AGES))
            .deadline(Duration::from_secs(5))
            .build()
            .unwrap();
        let limiter = Arc::new(limiter);
        let key = Key::new("api", ["alice"]);
        let mut found = Vec::new();
        for (name, its) in Arc::clone(&limiter).classes() {
            let charge = its.check_n(&key, 1).await;
            assert_eq!(charge.remaining() + 1, its.quota().capacity());
            its.refund_n(&key, &charge, u64::MAX).await;
            let class = limiter.class(&name).unwrap();
            let (left, most) = (async || class.peek(&key).await.remaining(), class.quota().capacity());
            assert_eq!(left().await, most, "{name}");
            assert_eq!((its.force(&key, 1).await, left().await), (1, most - 1));
            found.push((name, most));
        }
        let expected = [("default", FREE), ("paid", PAID), ("trial", 1)];
        assert_eq!(found, expected.map(|(name, most)| (name.to_owned(), most)));
        // A limiter that is bound to one class has no other classes.
        assert_eq!(Arc::new(limiter.class("paid").unwrap()).classes().len(), 0);
    });
}
