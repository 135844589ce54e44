//! A check never exceeds its deadline, whatever the server does. After the server has recovered, it
//! answers checks again, and no call to the limiter is needed.

use crate::load::{DEADLINE, Limiter, Load, median, on_server, patient, share_of_store, store_answers};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use tollgate::{DecisionSource, Quota};
use tollgate_redis::Client;
use tollgate_testing::store::faults::{FaultProxy, Mode};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until_async};

/// How long a fault is observed after its effect has appeared.
const FAULT: Duration = Duration::from_millis(500);
/// How long a temporary fault lasts. This is much longer than the fault takes to appear and to be
/// observed.
const LASTS: Duration = Duration::from_secs(4);

/// The breaker's reaction to a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The client no longer asks the server.
    Open,
    /// The store is reachable again before the fault ends.
    Heals,
    /// The server answers, but its answers are not decisions.
    Refused,
    Any,
}

fn limiter(client: &Client) -> Arc<Limiter> {
    let quota = Quota::per_second(1_000_000);
    Arc::new(Limiter::builder(client, "deadlines", quota).deadline(DEADLINE).build().unwrap())
}

/// Puts a server under load, causes and ends a fault, and examines all checks. `lasts` is the
/// duration of a temporary fault.
async fn endure(
    name: &str,
    limiter: Arc<Limiter>,
    expect: Expect,
    lasts: Duration,
    fault: impl FnOnce(),
    undo: impl FnOnce(),
) {
    store_answers(&limiter, "alice").await;
    let load = Load::start(&limiter, (0..8).map(|number| format!("key-{number}")));
    sleep(FAULT / 4).await;
    let begun = Instant::now();
    fault();
    let caused = Instant::now();
    match expect {
        Expect::Open => {
            let client = limiter.client();
            until_async("the server is not asked", async || client.stats().breakers_open == 1).await;
        }
        Expect::Heals => drop(store_answers(&limiter, "alice").await),
        Expect::Refused => {
            let by_store = async || limiter.check("alice").await.source() == DecisionSource::Store;
            until_async("checks are refused", async || !by_store().await).await;
        }
        Expect::Any => {}
    }
    let calm = Instant::now();
    sleep(FAULT).await;
    let mut over = Instant::now();
    if lasts > Duration::ZERO {
        over = over.min(begun + lasts);
        sleep_until(caused + lasts).await;
    }
    undo();
    let back = store_answers(&limiter, "alice").await;
    sleep(FAULT / 4).await;
    let ended = load.end().await;
    let during = ended.between(calm, over);
    println!(
        "{name}: {} checks, slowest {:?} (a timer was up to {:?} late), median while it lasts {:?}, back after {back:?}",
        ended.checks.len(),
        ended.slowest(),
        ended.late,
        median(&during),
    );
    assert!(back < ended.recovery(), "{name}: back after {back:?}");
    ended.assert_timely(DEADLINE);
    match expect {
        // These checks take microseconds, unless the machine is busy with other work.
        Expect::Open => {
            assert!(median(&during) < Duration::from_millis(1), "{name}: {:?}", median(&during));
            assert!(share_of_store(&during) < 0.01, "{name}: the fault is none");
        }
        Expect::Heals => assert!(share_of_store(&during) > 0.5, "{name}: {}", share_of_store(&during)),
        Expect::Refused => assert!(share_of_store(&during) == 0.0, "{name}: the fault is none"),
        Expect::Any => {}
    }
}

async fn with_proxy(mode: Mode, expect: Expect) {
    let server = Server::start();
    let proxy = FaultProxy::start(server.address()).await;
    let limiter = limiter(&Client::open(server.url_at(proxy.address())).unwrap());
    let name = format!("{mode:?}");
    endure(&name, limiter, expect, Duration::ZERO, || proxy.set(mode), || proxy.set(Mode::Pass)).await;
}

async fn with_server(name: &str, expect: Expect, fault: impl FnOnce(&Server), undo: impl FnOnce(&Server)) {
    let server = Server::start();
    let limiter = limiter(&Client::open(server.url()).unwrap());
    endure(name, limiter, expect, Duration::ZERO, || fault(&server), || undo(&server)).await;
}

/// Runs a test with a fault that ends by itself after [`LASTS`].
async fn with_pause(name: &str, fault: impl FnOnce(&Server)) {
    let server = Server::start();
    let limiter = limiter(&Client::open(server.url()).unwrap());
    endure(name, limiter, Expect::Open, LASTS, || fault(&server), || {}).await;
}

#[test]
fn a_stopped_server() {
    run(with_server("stopped", Expect::Open, Server::stop, Server::resume));
}

#[test]
fn a_killed_server() {
    run(with_server("killed", Expect::Open, Server::kill, Server::restart));
}

#[test]
fn a_paused_server() {
    let pause = |server: &Server| {
        server.command(&["CLIENT", "PAUSE", &LASTS.as_millis().to_string(), "ALL"]);
    };
    run(with_pause("paused", pause));
}

#[test]
fn a_server_that_sleeps() {
    let sleeps = |server: &Server| {
        let (client, seconds) = (server.client(), LASTS.as_secs_f64().to_string());
        std::thread::spawn(move || {
            let mut connection = client.get_connection().unwrap();
            redis::cmd("DEBUG").arg("SLEEP").arg(seconds).exec(&mut connection).unwrap();
        });
    };
    run(with_pause("asleep", sleeps));
}

#[test]
fn a_black_hole() {
    run(with_proxy(Mode::BlackHole, Expect::Open));
}

#[test]
fn a_stalled_network() {
    run(with_proxy(Mode::Hold, Expect::Open));
}

#[test]
fn a_half_open_connection_is_replaced() {
    run(with_proxy(Mode::HalfOpen, Expect::Heals));
}

#[test]
fn connections_that_are_reset() {
    run(with_proxy(Mode::Reset, Expect::Open));
}

#[test]
fn connections_that_are_half_closed() {
    run(with_proxy(Mode::HalfClose, Expect::Open));
}

#[test]
fn replies_that_are_dropped() {
    run(with_proxy(Mode::DropReplies, Expect::Open));
}

#[test]
fn bytes_that_come_one_by_one() {
    run(with_proxy(Mode::SlowBytes(Duration::from_millis(20)), Expect::Open));
}

#[test]
fn answers_that_are_always_late() {
    // Probes are answered in time but checks are not, so the server is probed less and less often.
    run(with_proxy(Mode::Delay(DEADLINE * 4 / 5), Expect::Any));
}

#[test]
fn a_master_that_becomes_a_replica_and_a_master_again() {
    // This master does not exist, so the server keeps its data and refuses writes.
    let demote = |server: &Server| drop(server.command(&["REPLICAOF", "127.0.0.1", "1"]));
    let promote = |server: &Server| drop(server.command(&["REPLICAOF", "NO", "ONE"]));
    run(with_server("read only", Expect::Refused, demote, promote));
}

#[test]
fn a_server_without_memory() {
    let full = |server: &Server| drop(server.command(&["CONFIG", "SET", "maxmemory", "1"]));
    let more = |server: &Server| drop(server.command(&["CONFIG", "SET", "maxmemory", "0"]));
    run(with_server("out of memory", Expect::Refused, full, more));
}

#[test]
fn a_server_that_is_busy_with_a_script() {
    let busy = |server: &Server| {
        server.command(&["CONFIG", "SET", "busy-reply-threshold", "50"]);
        let client = server.client();
        std::thread::spawn(move || {
            let mut connection = client.get_connection().unwrap();
            redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut connection).unwrap_err();
        });
    };
    let kill = |server: &Server| drop(server.command(&["SCRIPT", "KILL"]));
    run(with_server("busy", Expect::Refused, busy, kill));
}

#[test]
fn a_server_that_is_flushed_of_its_scripts_under_load_answers_all_the_same() {
    on_server(async |server| {
        // No check may be late here, even on a busy machine.
        let deadline = Duration::from_secs(20);
        let builder = Limiter::builder(&patient(server.url()), "deadlines", Quota::per_second(1_000_000));
        let limiter = Arc::new(builder.deadline(deadline).build().unwrap());
        store_answers(&limiter, "alice").await;
        let before = limiter.stats();
        let load = Load::start(&limiter, (0..8).map(|number| format!("key-{number}")));
        for _ in 0..20 {
            sleep(FAULT / 10).await;
            server.command(&["SCRIPT", "FLUSH"]);
        }
        let ended = load.end().await;
        ended.assert_timely(DEADLINE);
        let (stats, share) = (limiter.stats(), share_of_store(&ended.checks));
        println!("flushed 20 times: {} checks, slowest {:?}, {share}", ended.checks.len(), ended.slowest());
        assert_eq!(
            (stats.store_errors - before.store_errors, limiter.client().stats().breaker_trips),
            (0, 0)
        );
        assert!(share > 0.99, "{share}");
    });
}
