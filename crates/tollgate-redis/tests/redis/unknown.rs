//! If an answer is late or lost, the store has counted the request at most once.

use crate::load::{AGES, DEADLINE, Limiter, on_server, patient, store_answers};
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;
use tollgate::{Algorithm, Decision, DecisionSource, Quota};
use tollgate_redis::{Client, WhenUnavailable};
use tollgate_testing::store::faults::{FaultProxy, Mode};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until_async};

const LIMIT: u64 = 100_000;
/// The number of checks whose answers are lost.
const LOST: usize = 20;

fn limiter(client: &Client, deadline: Duration) -> Limiter {
    let builder = Limiter::builder(client, "unknown", Quota::new(LIMIT, AGES));
    let builder = builder.algorithm(Algorithm::FixedWindow).when_unavailable(WhenUnavailable::Deny);
    builder.deadline(deadline).build().unwrap()
}

/// Returns the number of tokens that the store has counted for alice. No fault disturbs this query.
async fn counted(server: &Server) -> u64 {
    let limiter = limiter(&patient(server.url()), Duration::from_secs(5));
    let peeked = limiter.peek("alice").await;
    assert_eq!(peeked.source(), DecisionSource::Store);
    LIMIT - peeked.remaining()
}

fn by_store(decisions: &[Decision]) -> u64 {
    decisions.iter().filter(|it| it.source() == DecisionSource::Store && it.is_allowed()).count() as u64
}

/// How many of the requests with lost answers must end up counted by the store.
#[derive(Clone, Copy)]
enum Executed {
    All,
    None,
    Some,
}

/// Drops the answers. If the machine is so busy that the breaker opens early and some requests are
/// not sent, this test is repeated with another server.
async fn lose(mode: Mode, in_one: bool, executed: Executed) {
    while !has_lost(mode, in_one, executed).await {}
}

/// Returns true if every request whose answer should be lost was sent.
async fn has_lost(mode: Mode, in_one: bool, executed: Executed) -> bool {
    let server = Server::start();
    let proxy = FaultProxy::start(server.address()).await;
    let client = Client::open(server.url_at(proxy.address())).unwrap();
    let limiter = limiter(&client, DEADLINE);
    store_answers(&limiter, "bob").await;
    let ask = async || match in_one {
        true => limiter.check_many(&[("alice", 1); LOST]).await,
        false => join_all((0..LOST).map(|_| limiter.check("alice"))).await,
    };
    let known = by_store(&ask().await);
    // On a busy machine, some of these requests may have been late, so their fate is also unknown.
    let before = limiter.stats().unanswered;
    proxy.set(mode);
    assert_eq!(by_store(&ask().await), 0, "{mode:?}");
    let lost = limiter.stats().unanswered - before;
    proxy.set(Mode::Pass);
    if matches!(executed, Executed::All) && lost < LOST as u64 {
        println!("{mode:?}: only {lost} were sent");
        return false;
    }
    store_answers(&limiter, "bob").await;
    let unknown = limiter.stats().unanswered;
    println!("{mode:?}: {known} known, {unknown} unknown, {} counted", counted(&server).await);
    match executed {
        Executed::All => {
            until_async("all were executed", async || counted(&server).await >= known + LOST as u64).await;
        }
        // Every request in flight that can arrive has arrived by this time.
        _ => sleep(2 * DEADLINE).await,
    }
    let counted = counted(&server).await;
    let most = known + unknown;
    assert!(
        (known..=most).contains(&counted),
        "{mode:?}: {known} known, {unknown} unknown, {counted} counted"
    );
    if matches!(executed, Executed::None) {
        assert!(counted <= known + before, "{mode:?}: {counted}");
    }
    true
}

#[test]
fn an_answer_that_is_lost_leaves_one_charge() {
    run(async {
        for in_one in [false, true] {
            lose(Mode::DropReplies, in_one, Executed::All).await;
        }
    });
}

#[test]
fn a_request_that_arrives_late_leaves_one_charge() {
    run(async {
        for in_one in [false, true] {
            lose(Mode::Hold, in_one, Executed::All).await;
            lose(Mode::Delay(DEADLINE * 6 / 5), in_one, Executed::All).await;
        }
    });
}

#[test]
fn a_request_that_is_lost_leaves_no_charge() {
    run(async {
        for in_one in [false, true] {
            lose(Mode::BlackHole, in_one, Executed::None).await;
            lose(Mode::HalfOpen, in_one, Executed::None).await;
        }
    });
}

#[test]
fn a_connection_that_breaks_leaves_one_charge_for_each_request_at_most() {
    run(async {
        for in_one in [false, true] {
            lose(Mode::Reset, in_one, Executed::Some).await;
            lose(Mode::HalfClose, in_one, Executed::Some).await;
        }
    });
}

#[test]
fn connections_that_are_killed_under_load_lose_answers_and_double_nothing() {
    on_server(async |server| {
        let limiter = Arc::new(limiter(&Client::open(server.url()).unwrap(), DEADLINE));
        store_answers(&limiter, "bob").await;
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move {
                    let mut known = 0;
                    for _ in 0..300 {
                        known += by_store(&[limiter.check("alice").await]);
                        known += by_store(&limiter.check_many(&[("alice", 1); 3]).await);
                        sleep(Duration::from_millis(1)).await;
                    }
                    known
                })
            })
            .collect();
        for _ in 0..20 {
            sleep(Duration::from_millis(20)).await;
            server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
        }
        let known: u64 = join_all(tasks).await.into_iter().map(Result::unwrap).sum();
        let (unknown, counted) = (limiter.stats().unanswered, counted(&server).await);
        println!("killed 20 times: {known} known, {unknown} unknown, {counted} counted");
        assert!(limiter.client().stats().breaker_trips > 0, "the fault is none");
        assert!(
            (known..=known + unknown).contains(&counted),
            "{known} known, {unknown} unknown, {counted} counted"
        );
    });
}

#[test]
fn scripts_that_are_flushed_under_load_lose_and_double_nothing() {
    on_server(async |server| {
        // No answer may be late here, because the store's count must equal the admissions exactly.
        let limiter = Arc::new(limiter(&patient(server.url()), Duration::from_secs(60)));
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let limiter = Arc::clone(&limiter);
                tokio::spawn(async move {
                    let mut known = 0;
                    for _ in 0..150 {
                        let decisions = match task % 2 {
                            0 => vec![limiter.check("alice").await],
                            _ => limiter.check_many(&[("alice", 1); 10]).await,
                        };
                        assert_eq!(by_store(&decisions), decisions.len() as u64);
                        known += by_store(&decisions);
                        sleep(Duration::from_millis(1)).await;
                    }
                    known
                })
            })
            .collect();
        let flushing = async {
            loop {
                sleep(Duration::from_millis(5)).await;
                server.command(&["SCRIPT", "FLUSH"]);
            }
        };
        let known: u64 = tokio::select! {
            all = join_all(tasks) => all.into_iter().map(Result::unwrap).sum(),
            () = flushing => unreachable!("it never ends"),
        };
        println!("{known} admitted, {} whole scripts sent", server.calls("eval"));
        assert!(server.calls("eval") > 10, "the fault is none");
        assert_eq!(known, 4 * 150 * 11);
        assert_eq!(counted(&server).await, known);
        assert_eq!(
            (limiter.stats().unanswered, limiter.stats().store_errors, limiter.stats().by_fallback),
            (0, 0, 0)
        );
    });
}

#[test]
fn a_batch_that_loses_its_script_half_way_is_counted_once() {
    on_server(async |server| {
        let limiter = limiter(&patient(server.url()), Duration::from_secs(60));
        store_answers(&limiter, "bob").await;
        let client = server.client();
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        // A server reads a large batch in parts, and serves other clients between the parts. The
        // flushes are slow enough that the server sometimes knows the script when a batch starts.
        let flushing = std::thread::spawn(move || {
            let mut connection = client.get_connection().unwrap();
            while !ended.load(Ordering::Relaxed) {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
                std::thread::sleep(Duration::from_millis(25));
            }
        });
        let batch = [("alice", 1); 2_000];
        let mut known = 0;
        for _ in 0..10 {
            let decisions = limiter.check_many(&batch).await;
            assert_eq!(by_store(&decisions), decisions.len() as u64);
            known += by_store(&decisions);
        }
        over.store(true, Ordering::Relaxed);
        flushing.join().unwrap();
        println!("{known} admitted in batches, {} whole scripts sent", server.calls("eval"));
        assert!(server.calls("eval") > 2, "the fault is none");
        assert_eq!(counted(&server).await, known);
    });
}
