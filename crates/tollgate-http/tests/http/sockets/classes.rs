//! Tests classes of callers over sockets. One test reads the class from a trusted hop's header, the
//! other from a database in another task.

use crate::sockets::client::{Client, Reply, Version, on_all};
use crate::sockets::run::{builder, run};
use crate::sockets::server::{Kind, Server, site};
use http::{Request, StatusCode};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tollgate::{Limiter, ManualClock, Quota};
use tollgate_http::{ClassBy, ClassLookup, KeyBy, Limit, RateLimitLayer, TrustedProxies, WhenNoKey};

/// Two an hour for each user, and four for paying users.
fn tiers(by: ClassBy) -> RateLimitLayer {
    let limiter = Limiter::builder(Quota::per_hour(2)).clock(ManualClock::new());
    let limiter = limiter.class("paid", Quota::per_hour(4)).build().unwrap();
    let limit = Limit::new("tier", limiter).by(KeyBy::header("x-user")).class_by(by);
    builder().limit(limit.when_no_key(WhenNoKey::Deny)).build().unwrap()
}

async fn ask(client: &mut Client, user: &str) -> Reply {
    client.ask(Request::get("/").header("x-user", user).header("x-plan", "paid")).await
}

#[test]
fn a_header_counts_if_a_trusted_hop_connects() {
    on_all(async |kind, version| {
        let layer = tiers(ClassBy::header("x-plan", TrustedProxies::networks(["127.0.0.2"])));
        let server = Server::start(kind, layer, site()).await;
        for (from, quota) in [("127.0.0.2", 4), ("127.0.0.3", 2)] {
            let mut client = Client::connect_from(from, &server, version).await;
            for left in (0..quota).rev() {
                let reply = ask(&mut client, from).await;
                assert_eq!(reply.status, StatusCode::OK, "{kind:?} {version:?}");
                let policy = format!("\"tier\";q={quota};w=3600");
                assert_eq!(reply.text("ratelimit-policy"), Some(&*policy));
                let state = format!("\"tier\";r={left};t={}", 3600 / quota);
                assert_eq!(reply.text("ratelimit"), Some(&*state));
            }
            let refused = ask(&mut client, from).await;
            assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS, "{kind:?} {version:?}");
            assert_eq!(refused.retry_after(), Some(3600 / quota));
        }
    });
}

/// A question to the database, and the channel for its answer.
type Question = (String, oneshot::Sender<Option<String>>);

#[test]
fn many_connections_wait_for_one_question_of_each_user() {
    run(async {
        let (database, mut questions) = mpsc::unbounded_channel::<Question>();
        let who = |head: tollgate_http::RequestHead<'_>| {
            Some(String::from_utf8_lossy(&head.header("x-user")?).into_owned())
        };
        let lookup = ClassLookup::new(who, move |user| {
            let (sender, answer) = oneshot::channel();
            let sent = database.send((user, sender));
            // Real lookups should also have a timeout, because it limits how long a request waits.
            async move {
                sent.map_err(|_| "no database")?;
                let answer = tokio::time::timeout(Duration::from_secs(30), answer).await;
                answer.map_err(|_| "too late")?.map_err(|_| "no answer")
            }
        });
        let layer = tiers(ClassBy::from(lookup.clock(ManualClock::new())));
        let server = Arc::new(Server::start(Kind::Hyper, layer, site()).await);
        let mut clients = JoinSet::new();
        for number in 0..8 {
            let server = Arc::clone(&server);
            let version = if number < 4 { Version::One } else { Version::Two };
            clients.spawn(async move {
                let user = ["alice", "bob"][number % 2];
                let mut client = Client::connect(&server, version).await;
                (user, ask(&mut client, user).await)
            });
        }
        let mut open = HashMap::new();
        while open.len() < 2 {
            let (user, answer) = questions.recv().await.unwrap();
            assert!(open.insert(user, answer).is_none(), "one question at a time");
        }
        for (user, answer) in open {
            answer.send((user == "alice").then(|| "paid".to_owned())).unwrap();
        }
        let mut passed = HashMap::new();
        while let Some(done) = clients.join_next().await {
            let (user, reply) = done.unwrap();
            let quota = if user == "alice" { "\"tier\";q=4;w=3600" } else { "\"tier\";q=2;w=3600" };
            assert_eq!(reply.text("ratelimit-policy"), Some(quota), "{user}");
            *passed.entry(user).or_insert(0) += u64::from(reply.status == StatusCode::OK);
        }
        assert_eq!(passed, HashMap::from([("alice", 4), ("bob", 2)]));
        assert!(questions.try_recv().is_err(), "what is known is not asked again");
    });
}
