//! Tests limits shared with other machines, over sockets. A task owns the counts, and answers over
//! a channel.

use crate::sockets::client::{Client, VERSIONS, connected, on_all};
use crate::sockets::run::{builder, run};
use crate::sockets::server::{KINDS, Kind, Server, site, text};
use http::{Request, StatusCode};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tollgate::{Decision, Limiter, ManualClock, Quota};
use tollgate_http::{AsyncLimiter, Key, KeyBy, Limit, RateLimitLayer, WhenNoKey};

const TOO_MANY: StatusCode = StatusCode::TOO_MANY_REQUESTS;

enum Call {
    Check(Key, u64, oneshot::Sender<Decision>),
    Refund(Key, Decision, u64, oneshot::Sender<()>),
    Force(Key, u64, oneshot::Sender<u64>),
}

/// One machine's limiter.
#[derive(Clone)]
struct Remote {
    calls: mpsc::UnboundedSender<Call>,
    quota: Quota,
}

impl AsyncLimiter for Remote {
    fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        let (sender, answer) = oneshot::channel();
        self.calls.send(Call::Check(key.clone(), cost, sender)).ok().unwrap();
        Box::pin(async { answer.await.unwrap() })
    }

    fn refund_n<'a>(
        &'a self,
        key: &'a Key,
        charge: &'a Decision,
        tokens: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let (sender, done) = oneshot::channel();
        self.calls.send(Call::Refund(key.clone(), *charge, tokens, sender)).ok().unwrap();
        Box::pin(async { done.await.unwrap() })
    }

    fn force<'a>(&'a self, key: &'a Key, tokens: u64) -> Pin<Box<dyn Future<Output = u64> + Send + 'a>> {
        let (sender, answer) = oneshot::channel();
        self.calls.send(Call::Force(key.clone(), tokens, sender)).ok().unwrap();
        Box::pin(async { answer.await.unwrap() })
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(task);
    }

    fn quota(&self) -> Quota {
        self.quota
    }
}

/// A limiter shared by several machines, and its counts.
fn remote(quota: Quota) -> (Remote, Arc<Limiter<Key>>) {
    let limiter: Arc<Limiter<Key>> =
        Arc::new(Limiter::builder(quota).clock(ManualClock::new()).build().unwrap());
    let (calls, mut asked) = mpsc::unbounded_channel();
    let counts = Arc::clone(&limiter);
    tokio::spawn(async move {
        while let Some(call) = asked.recv().await {
            // A client that has hung up receives no answer.
            match call {
                Call::Check(key, cost, answer) => {
                    let _ = answer.send(counts.check_n(&key, cost));
                }
                Call::Refund(key, charge, tokens, done) => {
                    counts.refund_n(&key, &charge, tokens);
                    let _ = done.send(());
                }
                Call::Force(key, tokens, answer) => {
                    let _ = answer.send(counts.force(&key, tokens));
                }
            }
        }
    });
    (Remote { calls, quota }, limiter)
}

fn per_address(remote: &Remote) -> Limit {
    Limit::new("per-address", remote.clone()).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny)
}

fn layer(limit: Limit) -> RateLimitLayer {
    builder().limit(limit).build().unwrap()
}

fn client() -> Key {
    Key::new("per-address", [std::net::IpAddr::from([127, 0, 0, 1])])
}

#[test]
fn two_machines_have_one_limit() {
    run(async {
        for version in VERSIONS {
            let (remote, _) = remote(Quota::per_hour(3));
            let mut clients = Vec::new();
            let mut servers = Vec::new();
            for kind in KINDS {
                let server = Server::start(kind, layer(per_address(&remote)), site()).await;
                clients.push(Client::connect(&server, version).await);
                servers.push(server);
            }
            for (number, left) in [(0, 2), (1, 1), (0, 0)] {
                let reply = clients[number].get("/").await;
                assert_eq!((reply.status, &reply.body[..]), (StatusCode::OK, &b"hello"[..]));
                assert!(
                    reply.text("ratelimit").unwrap().starts_with(&format!("\"per-address\";r={left};t="))
                );
            }
            for client in &mut clients {
                let reply = client.get("/").await;
                assert_eq!((reply.status, reply.retry_after()), (TOO_MANY, Some(1200)), "{version:?}");
            }
        }
    });
}

#[test]
fn right_passwords_cost_nothing_and_wrong_ones_are_never_more_than_the_limit() {
    run(async {
        const WRONG: usize = 5;
        for (kind, version) in KINDS.into_iter().flat_map(|kind| VERSIONS.map(|version| (kind, version))) {
            let (remote, counts) = remote(Quota::per_hour(WRONG as u64));
            let limit = per_address(&remote).charge_if(|response| response.status() == 401);
            let server = Server::start(kind, layer(limit), site()).await;
            let mut replies = JoinSet::new();
            for number in 0..60 {
                let mut client = Client::connect(&server, version).await;
                let path = if number % 3 == 0 { "/status/200" } else { "/status/401" };
                replies.spawn(async move { client.get(path).await.status });
            }
            let replies = replies.join_all().await;
            let count = |status: u16| replies.iter().filter(|it| **it == status).count();
            assert_eq!(count(200) + count(401) + count(429), 60);
            assert!((1..=WRONG).contains(&count(401)), "{}", count(401));
            // A client that has its response can rely on the refund.
            assert_eq!(counts.peek(&client()).remaining(), (WRONG - count(401)) as u64);
            let mut client = Client::connect(&server, version).await;
            for _ in count(401)..WRONG {
                assert_eq!(client.get("/").await.status, StatusCode::OK);
                assert_eq!(client.get("/status/401").await.status, 401);
            }
            assert_eq!(client.get("/").await.status, TOO_MANY, "{kind:?} {version:?}");
        }
    });
}

#[test]
fn a_handler_that_panics_leaves_no_less_than_one_that_fails() {
    run(async {
        for (path, keeps) in [("/panic", false), ("/panic", true), ("/error", false), ("/error", true)] {
            let (remote, counts) = remote(Quota::per_hour(9));
            let limit = per_address(&remote).charge_if(|_| true);
            let limit = if keeps { limit.keep_on_error() } else { limit };
            let server = Server::start(Kind::Hyper, layer(limit), site()).await;
            for _ in 0..3 {
                let mut client = Client::connect(&server, VERSIONS[0]).await;
                assert!(client.send(Request::get(path).body(text("")).unwrap()).await.is_err(), "{path}");
            }
            assert_eq!(counts.peek(&client()).remaining(), if keeps { 6 } else { 9 }, "{path} {keeps}");
        }
    });
}

#[test]
fn who_hangs_up_while_he_waits_lets_go_of_the_limiter() {
    on_all(async |kind, version| {
        // The limiter does not answer.
        let (calls, mut asked) = mpsc::unbounded_channel();
        let remote = Remote { calls, quota: Quota::per_hour(9) };
        let (_server, mut client) = connected(kind, layer(per_address(&remote)), site(), version).await;
        let mut answer = tokio::select! {
            _ = client.get("/") => panic!("nobody answers"),
            Some(Call::Check(_, 1, answer)) = asked.recv() => answer,
        };
        drop(client);
        answer.closed().await;
        // The limiter received no other calls.
        assert!(asked.try_recv().is_err(), "{kind:?} {version:?}");
    });
}
