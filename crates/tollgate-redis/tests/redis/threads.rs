//! Checks by threads that have no runtime: they decide here or have the store asked, whatever
//! becomes of the thread, the runtime or the store.

use crate::load::{AGES, MARGIN};
use serde_json::json;
use std::fs;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use tollgate::{Algorithm, Decision, DecisionSource, Quota};
use tollgate_redis::{Client, ClientBuilder, SharedBuilder, SharedInFlight, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::nodes::{Nodes, node};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until};

type Limiter = SharedLimiter<str>;

/// Long enough for a check to wait on a busy machine.
const PATIENT: Duration = Duration::from_secs(5);

fn patient(builder: ClientBuilder) -> ClientBuilder {
    builder.connection_timeout(Duration::from_secs(2))
}

/// Returns a client with a thread.
fn client(url: &str) -> Client {
    patient(Client::builder(url)).runtime_thread().build().unwrap()
}

fn builder(client: &Client, quota: Quota, algorithm: Algorithm) -> SharedBuilder<Limiter> {
    let builder = Limiter::builder(client, "threads", quota).algorithm(algorithm);
    builder.deadline(PATIENT).when_unavailable(WhenUnavailable::Deny)
}

/// Returns how many threads of this process are called `tollgate-redis`. Each test that counts them
/// runs in a process of its own.
fn client_threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end while its name is read.
    let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim() == "tollgate-redis").count()
}

/// An executor that is not tokio's.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park_timeout(Duration::from_secs(1));
    }
}

/// The ways to share a limit. Their checks decide here never, mostly, and always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Exact,
    Lease,
    Unsynced,
}

impl Way {
    const ALL: [Self; 3] = [Self::Exact, Self::Lease, Self::Unsynced];

    fn limiter(self, client: &Client, limit: u64) -> Limiter {
        let builder = builder(client, Quota::new(limit, AGES), Algorithm::FixedWindow);
        match self {
            Self::Exact => builder,
            Self::Lease => builder.lease(limit / 10),
            Self::Unsynced => builder.max_unsynced(limit / 10),
        }
        .build()
        .unwrap()
    }
}

/// Checks in each of the ways in turn.
fn check(limiter: &Limiter, turn: usize, key: &str) -> Decision {
    match turn % 4 {
        0 => limiter.check_blocking(key),
        1 => limiter.try_check(key).unwrap_or_else(|pending| pending.wait()),
        2 => limiter.try_check(key).unwrap_or_else(block_on),
        _ => block_on(limiter.check(key)),
    }
}

#[test]
fn threads_without_a_runtime_share_the_limit_exactly_in_any_way_to_check() {
    for way in Way::ALL {
        let server = Server::start();
        let client = client(&server.url());
        let limiter = way.limiter(&client, 500);
        let admitted = AtomicU64::new(0);
        let unpaid = AtomicBool::new(false);
        thread::scope(|scope| {
            for number in 0..4 {
                let (limiter, admitted, unpaid) = (limiter.clone(), &admitted, &unpaid);
                scope.spawn(move || {
                    let mut denied = 0;
                    for turn in number.. {
                        let decision = check(&limiter, turn, "alice");
                        unpaid.fetch_or(decision.source() == DecisionSource::Policy, SeqCst);
                        if decision.is_allowed() {
                            admitted.fetch_add(1, SeqCst);
                        } else if denied == 3 {
                            return;
                        } else {
                            denied += 1;
                        }
                    }
                });
            }
        });
        assert!(!unpaid.into_inner(), "{way:?}: the store answers in time");
        // A lease that arrives after the last check stays unspent.
        let least = if way == Way::Lease { 500 - limiter.stats().leased } else { 500 };
        let admitted = admitted.into_inner();
        assert!((least..=500).contains(&admitted), "{way:?}: {admitted} of 500");
        let stats = limiter.stats();
        assert_eq!(stats.by_lease == 0, way == Way::Exact, "{way:?}: {stats:?}");
    }
}

#[test]
fn what_this_machine_can_decide_needs_no_store() {
    for way in [Way::Lease, Way::Unsynced] {
        let server = Server::start();
        let client = client(&server.url());
        let limiter = way.limiter(&client, 1_000);
        until("a check is decided here", || limiter.try_check("alice").is_ok());
        for _ in 0..20 {
            let _ = limiter.check_blocking("alice");
        }
        server.stop();
        let here = limiter.try_check("alice").expect("tokens are here");
        assert!(here.is_allowed() && here.source() == DecisionSource::Lease, "{way:?}: {here:?}");
        server.resume();
    }
    // A denial is repeated without a request to the store.
    let server = Server::start();
    let client = client(&server.url());
    let limiter = Way::Lease.limiter(&client, 20);
    until("the limit is used up", || !limiter.check_blocking("alice").is_allowed());
    let denied = limiter.try_check("alice").expect("a denial is remembered");
    assert!(!denied.is_allowed() && denied.source() == DecisionSource::Lease, "{denied:?}");
    assert!(denied.retry_after().unwrap() > Duration::from_secs(86_400), "{denied:?}");
}

#[test]
fn a_pending_check_that_is_dropped_at_once_still_has_tokens_leased() {
    let server = Server::start();
    let client = client(&server.url());
    let limiter = Way::Lease.limiter(&client, 1_000);
    // Without a connection, the request is sent later.
    drop(limiter.try_check("alice"));
    until("the store has answered", || server.keys_with_ttl().len() == 1);
    until("a lease is here", || limiter.try_check("alice").is_ok());
    // Many checks may be out while the store is asked. One of them asks, and the others are
    // forgotten before the tokens arrive.
    server.stop();
    for _ in 0..500 {
        drop(limiter.try_check("bob"));
    }
    let last = limiter.try_check("bob").unwrap_err();
    thread::sleep(Duration::from_millis(100));
    server.resume();
    assert!(last.wait().is_allowed());
    let used = 1_000 - block_on(limiter.peek("bob")).remaining();
    assert!(used < 50, "{used} tokens for forgotten checks");
}

#[test]
fn a_thread_that_ends_leaves_a_check_that_others_complete() {
    let server = Server::start();
    let client = client(&server.url());
    let limiter = Way::Exact.limiter(&client, 1_000);
    let checked = limiter.clone();
    let pending = thread::spawn(move || checked.try_check("alice").unwrap_err()).join().unwrap();
    let decision = pending.wait();
    assert!(decision.is_allowed() && decision.source() == DecisionSource::Store, "{decision:?}");
    // A lease that was requested by a thread that has ended serves all others.
    let limiter = Way::Lease.limiter(&client, 1_000);
    until("a lease is here", || {
        let checked = limiter.clone();
        thread::spawn(move || checked.try_check("bob").is_ok()).join().unwrap()
    });
}

#[test]
fn a_denial_with_a_penalty_is_confirmed_by_the_store_first() {
    for way in Way::ALL {
        let server = Server::start();
        let machine = || {
            let client = client(&server.url());
            let builder = builder(&client, Quota::new(4, AGES), Algorithm::FixedWindow);
            let builder = builder.penalty(AGES * 2);
            match way {
                Way::Exact => builder,
                Way::Lease => builder.lease(2),
                Way::Unsynced => builder.max_unsynced(4),
            }
            .build()
            .unwrap()
        };
        let (here, there) = (machine(), machine());
        for _ in 0..4 {
            assert!(here.check_blocking("alice").is_allowed(), "{way:?}");
        }
        let denied = here.try_check("alice").expect_err("the store must learn of the pause").wait();
        assert!(!denied.is_allowed() && denied.retry_after().unwrap() >= AGES * 2, "{way:?}: {denied:?}");
        if way == Way::Unsynced {
            // The other machine learns of the pause with its first report.
            let _ = there.check_blocking("alice");
            block_on(there.flush());
        }
        let paused = there.check_blocking("alice");
        assert_eq!(paused.source(), DecisionSource::Pause, "{way:?}: {paused:?}");
        // A pause that this machine knows of needs no further request.
        let again = here.check_blocking("alice");
        assert_eq!(again.source(), DecisionSource::Pause, "{way:?}: {again:?}");
        let again = here.try_check("alice");
        assert_eq!(again.is_ok(), way != Way::Exact, "{way:?}: {again:?}");
    }
}

#[test]
fn a_store_that_is_stopped_is_waited_for_until_the_deadline() {
    let server = Server::start();
    let client = client(&server.url());
    let deadline = Duration::from_millis(150);
    for (policy, allows) in [(WhenUnavailable::Allow, true), (WhenUnavailable::Deny, false)] {
        let builder = builder(&client, Quota::per_second(1_000), Algorithm::TokenBucket);
        let limiter = builder.when_unavailable(policy).deadline(deadline).build().unwrap();
        until("the store answers", || limiter.check_blocking("alice").source() == DecisionSource::Store);
        server.stop();
        let begun = Instant::now();
        let decision = limiter.check_blocking("alice");
        let took = begun.elapsed();
        assert!(took >= deadline && took < deadline + MARGIN, "{took:?}");
        assert_eq!((decision.is_allowed(), decision.source()), (allows, DecisionSource::Policy));
        // The task has decided, so the request is counted once.
        let stats = limiter.stats();
        assert_eq!((stats.by_fallback, stats.unanswered), (1, 1), "{stats:?}");
        server.resume();
    }
}

#[test]
fn all_methods_of_a_client_with_a_thread_work_under_any_executor() {
    let server = Server::start();
    let client = client(&server.url());
    block_on(async {
        client.connect().await.unwrap();
        assert!(client.health().await.is_empty());
        for way in Way::ALL {
            let limiter = way.limiter(&client, 1_000);
            let key = &*format!("{way:?}");
            let decision = limiter.check_n(key, 5).await;
            limiter.refund(key, &decision).await;
            assert!(limiter.check_many(&[(key, 1), (key, 2)]).await.iter().all(Decision::is_allowed));
            assert!(limiter.peek(key).await.is_allowed());
            assert_eq!(limiter.force(key, 3).await, 3);
            let mut held = limiter.reserve(key, 10).await.unwrap();
            held.record(4).await.unwrap();
            assert_eq!(held.commit(4).await.unpaid, 0);
            limiter.pause(key, Duration::from_secs(60)).await.unwrap();
            assert_eq!(limiter.check(key).await.source(), DecisionSource::Pause);
            limiter.reset(key).await.unwrap();
            limiter.flush().await;
        }
        let jobs = SharedInFlight::<str>::builder(&client, "jobs", 2).deadline(PATIENT).build().unwrap();
        let permit = jobs.acquire("alice").await.unwrap();
        assert_eq!(jobs.in_flight("alice").await, 1);
        permit.release().await;
        assert_eq!(jobs.in_flight("alice").await, 0);
    });
}

#[test]
fn a_runtime_that_is_given_runs_the_tasks_until_it_ends() {
    for way in Way::ALL {
        let server = Server::start();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client =
            patient(Client::builder(server.url())).runtime(runtime.handle().clone()).build().unwrap();
        let limiter = way.limiter(&client, 100);
        for turn in 0..3 {
            let decision = check(&limiter, turn, "alice");
            assert!(decision.is_allowed() && decision.source() != DecisionSource::Policy, "{decision:?}");
        }
        // The connection is in the given runtime, whoever opened it.
        let other = Builder::new_current_thread().enable_all().build().unwrap();
        other.block_on(client.connect()).unwrap();
        drop(other);
        thread::sleep(Duration::from_millis(50));
        assert_eq!(server.clients(), 1, "{way:?}: the connection outlives the other runtime");
        until("the store answers", || limiter.check_blocking("carol").is_allowed());
        let out = limiter.try_check_n("bob", 100);
        drop(runtime);
        // The store may have answered before the runtime ended.
        let _ = out.unwrap_or_else(|pending| pending.wait());
        let begun = Instant::now();
        let denied = limiter.check_n_blocking("bob", 50);
        assert!(!denied.is_allowed() && begun.elapsed() < PATIENT, "{way:?}: {denied:?}");
        if way == Way::Exact {
            assert_eq!(denied.source(), DecisionSource::Policy);
            assert!(limiter.stats().unanswered > 0, "{:?}", limiter.stats());
        }
    }
}

#[test]
fn a_runtime_that_does_not_run_delays_nobody_beyond_the_deadline() {
    let server = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let client = patient(Client::builder(server.url())).runtime(runtime.handle().clone()).build().unwrap();
    let deadline = Duration::from_millis(100);
    let builder = builder(&client, Quota::per_second(1_000), Algorithm::TokenBucket);
    let limiter = builder.deadline(deadline).build().unwrap();
    let begun = Instant::now();
    let decision = limiter.check_blocking("alice");
    assert_eq!((decision.is_allowed(), decision.source()), (false, DecisionSource::Policy));
    assert!((deadline..deadline + MARGIN).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[test]
fn a_check_with_leases_does_not_wait_for_a_runtime_that_does_not_run() {
    let server = Server::start();
    let given = Builder::new_current_thread().enable_all().build().unwrap();
    let client = patient(Client::builder(server.url())).runtime(given.handle().clone()).build().unwrap();
    let deadline = Duration::from_millis(100);
    let builder = builder(&client, Quota::new(1_000, AGES), Algorithm::FixedWindow);
    let limiter = builder.lease(10).deadline(deadline).build().unwrap();
    run(async move {
        // The first check asks the store in a task of the given runtime, the second one directly.
        for _ in 0..2 {
            let begun = Instant::now();
            let decision = limiter.check("alice").await;
            assert_eq!((decision.is_allowed(), decision.source()), (false, DecisionSource::Policy));
            assert!((deadline..deadline + MARGIN).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        }
    });
    drop(given);
}

#[test]
fn without_any_runtime_the_fallback_decides_and_the_remedy_is_told() {
    let server = Server::start();
    let client = patient(Client::builder(server.url())).build().unwrap();
    let limiter = Way::Exact.limiter(&client, 1_000);
    let begun = Instant::now();
    let decision = limiter.check_blocking("alice");
    assert_eq!((decision.is_allowed(), decision.source()), (false, DecisionSource::Policy));
    assert!(begun.elapsed() < PATIENT);
    assert_eq!((limiter.stats().unsent, limiter.stats().by_fallback), (1, 1));
    let problem = client.stats().problems[0].to_string();
    assert!(problem.contains("`runtime_thread`") && problem.contains("`runtime`"), "{problem}");
    // The runtime of a caller is enough.
    run(async move {
        let decision = limiter.try_check("alice").unwrap_err().await;
        assert_eq!(decision.source(), DecisionSource::Store);
    });
}

#[test]
#[ignore = "a node that other tests start"]
fn counting_node() {
    node(|node| {
        let url = node.var("URL");
        node.ready();
        assert_eq!(client_threads(), 0);
        let (first, second) = (client(&url), client(&url));
        assert_eq!(client_threads(), 2);
        drop(second);
        until("one thread is left", || client_threads() == 1);
        // A limit keeps the client.
        let limiter = Way::Lease.limiter(&first, 1_000);
        drop(first);
        for turn in 0..8 {
            assert!(check(&limiter, turn, "alice").is_allowed());
        }
        assert!(client_threads() >= 1);
        // So does a check whose answer is forgotten, until it ends.
        drop(limiter.try_check("bob"));
        drop(limiter);
        until("the thread has ended", || client_threads() == 0);

        // A permit keeps the client until the store has taken the permit back.
        let jobs = SharedInFlight::<str>::builder(&client(&url), "jobs", 1).deadline(PATIENT);
        let jobs = jobs.lifetime(Duration::from_secs(600)).build().unwrap();
        let permit = block_on(jobs.acquire("alice")).unwrap();
        drop(jobs);
        assert_eq!(client_threads(), 1);
        drop(permit);
        until("the thread has ended", || client_threads() == 0);
        let jobs =
            SharedInFlight::<str>::builder(&client(&url), "jobs", 1).deadline(PATIENT).build().unwrap();
        assert_eq!(block_on(jobs.in_flight("alice")), 0);
        drop(jobs);

        // A reservation that is dropped gives back what it did not spend.
        let limiter = Way::Exact.limiter(&client(&url), 1_000);
        let mut held = block_on(limiter.reserve("carol", 100)).unwrap();
        block_on(held.record(1)).unwrap();
        drop(limiter);
        drop(held);
        until("the thread has ended", || client_threads() == 0);
        let limiter = Way::Exact.limiter(&client(&url), 1_000);
        assert_eq!(block_on(limiter.peek("carol")).remaining(), 999);

        // The last drop may be in a runtime, where nothing may block.
        run(async move {
            assert!(limiter.check("alice").await.is_allowed());
            drop(limiter);
        });
        until("the thread has ended", || client_threads() == 0);

        // Or on the thread itself: the last reference is in a task there.
        let (tell, told) = mpsc::channel();
        let limiter = Way::Exact.limiter(&client(&url), 1_000);
        let pending = limiter.try_check("alice").unwrap_err();
        drop(limiter);
        thread::spawn(move || tell.send(pending.wait().is_allowed()).unwrap());
        assert!(told.recv().unwrap());
        until("the thread has ended", || client_threads() == 0);
        node.say(json!("ended"));
    });
}

#[test]
fn the_thread_of_a_client_ends_with_the_last_of_its_limits_and_permits() {
    let server = Server::start();
    let mut nodes = Nodes::start(1, "threads::counting_node", &[("URL", &server.url())]);
    nodes.go();
    assert_eq!(nodes.finish(), [json!("ended")]);
}

#[test]
#[ignore = "a node that other tests start"]
fn exiting_node() {
    node(|node| {
        let client = client(&node.var("URL"));
        let limiter = builder(&client, Quota::per_second(1_000), Algorithm::TokenBucket);
        let limiter = limiter.deadline(Duration::from_secs(60)).build().unwrap();
        assert!(limiter.check_blocking("alice").is_allowed());
        node.ready();
        let out: Vec<_> = (0..100).map(|_| limiter.try_check("alice")).collect();
        let waiting = limiter.clone();
        thread::spawn(move || waiting.check_blocking("alice"));
        assert!(out.iter().all(Result::is_err));
        node.say(json!("exits"));
        // Nothing is dropped.
        std::process::exit(0);
    });
}

#[test]
fn a_process_exits_while_its_checks_are_out() {
    let server = Server::start();
    let mut nodes = Nodes::start(1, "threads::exiting_node", &[("URL", &server.url())]);
    server.stop();
    let begun = Instant::now();
    nodes.go();
    assert_eq!(nodes.finish(), [json!("exits")]);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    server.resume();
}

#[test]
fn a_pending_check_ends_at_the_deadline_as_a_future() {
    let server = Server::start();
    let given = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let caller = Builder::new_current_thread().enable_all().build().unwrap();
    let builders = [
        Client::builder(server.url()).runtime_thread(),
        Client::builder(server.url()).runtime(given.handle().clone()),
        Client::builder(server.url()),
    ];
    for (number, builder) in builders.into_iter().enumerate() {
        let deadline = Duration::from_millis(150);
        let ask = |limiter: Limiter| async move {
            let begun = Instant::now();
            let decision = limiter.try_check("alice").unwrap_err().await;
            (decision.source(), begun.elapsed())
        };
        let client = patient(builder).build().unwrap();
        let limiter = Limiter::builder(&client, "future", Quota::per_second(1_000));
        let limiter = limiter.when_unavailable(WhenUnavailable::Deny).deadline(deadline).build().unwrap();
        let executors: &[&dyn Fn(Limiter) -> (DecisionSource, Duration)] =
            &[&|limiter| caller.block_on(ask(limiter)), &|limiter| block_on(ask(limiter))];
        // Without a runtime, the task is in the runtime of the caller.
        for executor in &executors[..if number == 2 { 1 } else { 2 }] {
            until("the store answers", || executor(limiter.clone()).0 == DecisionSource::Store);
            server.stop();
            let (source, took) = executor(limiter.clone());
            server.resume();
            assert_eq!(source, DecisionSource::Policy, "client {number}");
            assert!((deadline..deadline + MARGIN).contains(&took), "client {number}: {took:?}");
        }
    }
}

#[test]
fn a_check_that_a_thread_no_longer_waits_for_is_counted_once() {
    let server = Server::start();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let client = patient(Client::builder(server.url())).runtime(runtime.handle().clone()).build().unwrap();
    let builder = Limiter::builder(&client, "once", Quota::new(10, AGES));
    let limiter = builder.deadline(Duration::from_millis(50)).build().unwrap();
    let decision = limiter.check_blocking("alice");
    assert_eq!((decision.source(), decision.remaining()), (DecisionSource::Key, 9));
    // The runtime runs the task after the thread has decided.
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(200)).await });
    let stats = limiter.stats();
    assert_eq!((stats.by_fallback, stats.unanswered, stats.unsent), (1, 1, 0), "{stats:?}");
    assert_eq!(limiter.check_blocking("alice").remaining(), 8);
    assert_eq!(server.keys_with_ttl().len(), 0, "the store has counted the request as well");
}

#[test]
fn every_request_that_no_runtime_could_send_is_counted() {
    let client = Client::open("redis://127.0.0.1:1").unwrap();
    let builder = builder(&client, Quota::new(4, AGES), Algorithm::FixedWindow);
    let limiter = builder.max_unsynced(4).penalty(AGES).build().unwrap();
    assert!((0..4).all(|_| limiter.check_blocking("alice").is_allowed()));
    assert_eq!(limiter.stats().unsent, 0);
    assert!(limiter.check_blocking("alice").retry_after().unwrap() >= AGES);
    assert_eq!(limiter.stats().unsent, 1, "the pause was not sent");

    let jobs = SharedInFlight::<str>::builder(&client, "jobs", 1).build().unwrap();
    let _permit = block_on(jobs.acquire("alice")).unwrap();
    assert_eq!((jobs.stats().unsent, jobs.stats().by_fallback), (1, 1));
    assert!(client.stats().problems[0].to_string().contains("`runtime_thread`"));
}

#[test]
fn asynchronous_methods_need_no_runtime_to_answer() {
    let server = Server::start();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    for given in [None, Some(runtime.handle().clone())] {
        let client = patient(Client::builder(server.url()));
        let client = match &given {
            Some(handle) => client.runtime(handle.clone()),
            None => client,
        };
        let client = client.build().unwrap();
        for way in Way::ALL {
            let limiter = way.limiter(&client, 1_000);
            let key = &*format!("{way:?}");
            // Tasks in a runtime may hold the right to ask the store.
            if given.is_some() {
                assert!(limiter.check_blocking(key).is_allowed());
            }
            block_on(async {
                let decision = limiter.check_n(key, 5).await;
                let is_asked = given.is_some() || way == Way::Unsynced;
                assert_eq!(decision.is_allowed(), is_asked, "{way:?}: {decision:?}");
                limiter.refund(key, &decision).await;
                assert_eq!(limiter.check_many(&[(key, 1), (key, 200)]).await.len(), 2);
                let _ = limiter.peek(key).await;
                let _ = limiter.force(key, 3).await;
                if let Ok(held) = limiter.reserve(key, 10).await {
                    let _ = held.commit(4).await;
                }
                assert!(limiter.pause(key, Duration::from_secs(60)).await.is_err());
                assert!(limiter.reset(key).await.is_err());
                limiter.flush().await;
            });
        }
        let jobs = SharedInFlight::<str>::builder(&client, "jobs", 2);
        let jobs = jobs.when_unavailable(WhenUnavailable::Deny).build().unwrap();
        block_on(async {
            match jobs.acquire("alice").await {
                Ok(permit) => permit.release().await,
                Err(_) => assert!(given.is_none()),
            }
            let _ = jobs.in_flight("alice").await;
            let problem = client.connect().await.unwrap_err().to_string();
            assert!(problem.contains("`runtime_thread`"), "{problem}");
            assert_eq!(client.health().await[0].to_string(), problem);
        });
        // In a runtime, everything works.
        run(async move { client.connect().await.unwrap() });
    }
}

/// Lets the system refuse new threads, whose stacks need more memory than the process may have.
/// With `None`, lifts the limit.
fn limit_memory(spare: Option<u64>) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    let most = spare.map_or("unlimited".to_owned(), |spare| ((size + spare) * 1024).to_string());
    let limit = [format!("--pid={}", std::process::id()), format!("--as={most}:unlimited")];
    assert!(std::process::Command::new("prlimit").args(limit).status().unwrap().success());
}

#[test]
#[ignore = "a node that other tests start"]
fn threadless_node() {
    node(|node| {
        let url = node.var("URL");
        node.ready();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        // The counts of a window are removed when it has ended.
        let own = patient(Client::builder(&*url)).build().unwrap();
        let limiter = Limiter::builder(&own, "threadless", Quota::new(50, Duration::from_millis(20)));
        let limiter = limiter.algorithm(Algorithm::FixedWindow).max_unsynced(50).build().unwrap();
        // The name of a server needs a thread as well.
        let named = client(&url.replace("127.0.0.1", "localhost"));
        let by_name = builder(&named, Quota::per_second(1_000), Algorithm::TokenBucket);
        let deadline = Duration::from_millis(300);
        let by_name = by_name.deadline(deadline).build().unwrap();
        let panics = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&panics);
        std::panic::set_hook(Box::new(move |_| {
            counted.fetch_add(1, SeqCst);
        }));
        limit_memory(Some(1_024));
        assert!(thread::Builder::new().spawn(|| {}).is_err(), "threads are refused");
        let mut admitted = 0;
        runtime.block_on(async {
            for _ in 0..20 {
                admitted += u64::from(limiter.check("alice").await.is_allowed());
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let swept = panics.load(SeqCst);
        let begun = Instant::now();
        let denied = by_name.check_blocking("alice");
        let is_in_time = begun.elapsed() < deadline + MARGIN;
        limit_memory(None);
        until("the store answers", || by_name.check_blocking("alice").is_allowed());
        node.say(json!([admitted, swept, denied.is_allowed(), is_in_time]));
    });
}

#[test]
fn a_system_that_refuses_threads_breaks_no_check() {
    let server = Server::start();
    let mut nodes = Nodes::start(1, "threads::threadless_node", &[("URL", &server.url())]);
    nodes.go();
    assert_eq!(nodes.finish(), [json!([20, 0, false, true])]);
}
