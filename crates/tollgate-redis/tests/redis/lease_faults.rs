//! Leases while requests fail: no token is lost for longer than a lease lasts, and none is spent
//! twice.

use crate::load::{self, AGES, on_server, patient};
use futures_util::FutureExt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Algorithm, DecisionSource, Quota};
use tollgate_redis::{SharedLimiter, WhenUnavailable};
use tollgate_testing::store::faults::{FaultProxy, Mode};
use tollgate_testing::store::wait::until_async;

const LIMIT: u64 = 1_000;

/// A proxy between client and server, which replaces the server's next reply.
struct Impostor {
    address: SocketAddr,
    next: Arc<Mutex<Option<&'static [u8]>>>,
}

impl Impostor {
    async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let next = Arc::<Mutex<Option<&[u8]>>>::default();
        let replaced = Arc::clone(&next);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
                let replaced = Arc::clone(&replaced);
                tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                tokio::spawn(async move {
                    let mut buffer = vec![0; 16 << 10];
                    while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
                        let next = replaced.lock().unwrap().take();
                        to_client.write_all(next.unwrap_or(&buffer[..length])).await.unwrap();
                    }
                });
            }
        });
        Self { address, next }
    }
}

/// Returns a machine that is connected, and how many tokens it has spent. It has leased at least 60
/// tokens, and no request is under way.
async fn leasing(url: &str) -> (SharedLimiter<str>, u64) {
    let builder = SharedLimiter::<str>::builder(&patient(url), "faults", Quota::new(LIMIT, AGES));
    let builder = builder.algorithm(Algorithm::FixedWindow).when_unavailable(WhenUnavailable::Deny);
    let machine = builder.lease(100).deadline(Duration::from_secs(5)).build().unwrap();
    machine.client().connect().await.unwrap();
    let mut spent = 0;
    while machine.stats().leased < 60 {
        assert!(machine.check("alice").await.is_allowed());
        spent += 1;
        // A lease that is requested early arrives before the answer to this request.
        assert_eq!(machine.check_n("alice", 0).await.source(), DecisionSource::Store);
    }
    (machine, spent)
}

#[test]
fn tokens_of_a_request_that_may_have_been_executed_are_not_spent_again() {
    let replies: [&[u8]; 4] =
        [b"-upstream failure\r\n", b"-ERR upstream failure\r\n", b":1\r\n", b"$8\r\n........\r\n"];
    for reply in replies {
        on_server(async |server| {
            let impostor = Impostor::start(server.address()).await;
            let (machine, spent) = leasing(&server.url_at(impostor.address)).await;
            *impostor.next.lock().unwrap() = Some(reply);
            // No lease pays this cost, so the request returns all leases to the store.
            assert_eq!(machine.check_n("alice", 300).await.source(), DecisionSource::Policy);
            assert_eq!(impostor.next.lock().unwrap().take(), None, "the reply was replaced");
            assert_eq!(machine.stats().leased, 0, "{reply:?}");
            until_async("the store answers", async || {
                machine.peek("alice").await.source() == DecisionSource::Store
            })
            .await;
            // The store has counted the request and the lease that it asked for.
            let used = LIMIT - spent - machine.peek("alice").await.remaining();
            assert!((300..=400).contains(&used), "{reply:?}: {used}");
            let rest = load::spend(&machine, "alice", LIMIT).await;
            assert!(spent + 300 + rest <= LIMIT, "{reply:?}: {spent} {rest}");
        });
    }
}

#[test]
fn leases_stay_if_the_server_refuses_the_request() {
    on_server(async |server| {
        let (machine, _) = leasing(&server.url()).await;
        let leased = machine.stats().leased;
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(machine.check_n("alice", 300).await.source(), DecisionSource::Policy);
        assert_eq!(machine.stats().leased, leased);
        assert_eq!(machine.check("alice").await.source(), DecisionSource::Lease);
    });
}

#[test]
fn a_forced_charge_that_is_given_up_takes_no_leases_with_it() {
    on_server(async |server| {
        let (machine, spent) = leasing(&server.url()).await;
        server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        until_async("the connection has ended", async || !machine.client().stats().connected).await;
        // The charge exceeds the leases. The caller goes away before the client has connected.
        assert_eq!(machine.force("alice", 300).now_or_never(), None);
        until_async("the charge and the leases are settled", async || {
            let remaining = machine.peek("alice").await.remaining();
            remaining == LIMIT - spent - 300
        })
        .await;
    });
}

#[test]
fn the_lease_after_a_forced_charge_whose_answer_is_lost_is_small() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let (machine, _) = leasing(&server.url_at(proxy.address())).await;
        proxy.set(Mode::DropReplies);
        assert_eq!(machine.force("alice", 300).await, 0);
        assert_eq!(machine.stats().leased, 0);
        proxy.set(Mode::Pass);
        until_async("the store answers", async || {
            machine.peek("alice").await.source() == DecisionSource::Store
        })
        .await;
        assert_eq!(machine.check("alice").await.source(), DecisionSource::Store);
        let leased = machine.stats().leased;
        assert!(leased <= 1, "{leased}");
    });
}
