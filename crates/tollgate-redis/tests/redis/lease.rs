//! Leases never exceed the limit, no matter which machines spend tokens, die or lose their
//! connection. Leases need few round trips.

use crate::load::{self, AGES, on_client, on_server, patient};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tollgate::{Algorithm, DecisionSource, Quota};
use tollgate_redis::{Client, SharedBuilder, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::admissions::{Admission, Admissions, now};
use tollgate_testing::store::faults::{FaultProxy, Mode};
use tollgate_testing::store::nodes::{Nodes, node};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until_async};

const PROCESSES: usize = 3;
/// Long enough for a check to wait on a busy machine.
const PATIENT: Duration = Duration::from_secs(5);

fn builder(url: &str, quota: Quota, algorithm: Algorithm, lease: u64) -> SharedBuilder<SharedLimiter<str>> {
    let client = patient(url);
    SharedLimiter::<str>::builder(&client, "spending", quota)
        .algorithm(algorithm)
        .lease(lease)
        .deadline(PATIENT)
        .when_unavailable(WhenUnavailable::Deny)
}

#[test]
#[ignore = "a node that other tests start"]
fn spending_node() {
    node(|node| {
        let number = |name| node.var(name).parse::<u64>().unwrap();
        let algorithm = Algorithm::ALL.into_iter().find(|a| a.to_string() == node.var("ALGORITHM")).unwrap();
        let mut quota = Quota::new(number("LIMIT"), Duration::from_millis(number("PERIOD")));
        if algorithm.has_burst() {
            quota = quota.burst(number("BURST"));
        }
        let limiter = Arc::new(builder(&node.var("URL"), quota, algorithm, number("LEASE")).build().unwrap());
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(limiter.client().connect()).unwrap();
        node.ready();
        let over = Arc::new(AtomicBool::new(false));
        let checks = Arc::new(AtomicU64::new(0));
        let admitted = Arc::new(Mutex::new(Vec::new()));
        let tasks = (0..4).map(|_| {
            let (limiter, over) = (Arc::clone(&limiter), Arc::clone(&over));
            let (checks, admitted) = (Arc::clone(&checks), Arc::clone(&admitted));
            runtime.spawn(async move {
                while !over.load(SeqCst) {
                    let begin = now();
                    let decision = limiter.check("key").await;
                    let end = now();
                    checks.fetch_add(1, SeqCst);
                    if decision.is_allowed() {
                        admitted.lock().unwrap().push((begin, end));
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(Duration::from_micros(500)).await;
                    }
                }
            })
        });
        let tasks: Vec<_> = tasks.collect();
        node.hear();
        over.store(true, SeqCst);
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        let stats = limiter.stats();
        let admitted = admitted.lock().unwrap();
        let said =
            json!({ "checks": checks.load(SeqCst), "by_store": stats.by_store, "admitted": *admitted });
        node.say(said);
    });
}

/// The admissions of several processes under full load.
struct Run {
    admitted: Admissions,
    /// The number of denied checks.
    denied: u64,
    /// The time of the first admission.
    begun: u64,
    /// The time at which the processes were told to stop.
    ended: u64,
}

impl Run {
    /// Returns true if most checks found no tokens, so nearly all of the limit must have been
    /// admitted. On a very busy machine, there are too few checks for that.
    fn is_greedy(&self) -> bool {
        let is_greedy = self.denied > self.admitted.len();
        if !is_greedy {
            println!("NOT SHOWN that all is admitted: {} checks were denied", self.denied);
        }
        is_greedy
    }
}

/// Runs the processes up to three times. A lease saves two calls of three if the clients are
/// greedy, but if other work slows the machine, the processes make few checks between two calls.
fn run_processes(
    algorithm: Algorithm,
    limit: u64,
    period: Duration,
    burst: u64,
    lease: u64,
    time: Duration,
) -> Run {
    let mut turns = 0;
    loop {
        let (run, calls, checks) = run_once(algorithm, limit, period, burst, lease, time);
        turns += 1;
        if calls * 3 < checks || !run.is_greedy() {
            return run;
        }
        assert!(turns < 3, "{algorithm}: {calls} calls for {checks} checks");
    }
}

fn run_once(
    algorithm: Algorithm,
    limit: u64,
    period: Duration,
    burst: u64,
    lease: u64,
    time: Duration,
) -> (Run, u64, u64) {
    let server = Server::start();
    let of = |number: u64| number.to_string();
    let period_ms = u64::try_from(period.as_millis()).unwrap();
    let variables = [
        ("URL", server.url()),
        ("ALGORITHM", algorithm.to_string()),
        ("LIMIT", of(limit)),
        ("PERIOD", of(period_ms)),
        ("BURST", of(burst)),
        ("LEASE", of(lease)),
    ];
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut nodes = Nodes::start(PROCESSES, "lease::spending_node", &variables);
    nodes.go();
    std::thread::sleep(time);
    let ended = now();
    nodes.tell_all("stop");
    let said = nodes.finish();
    let mut admitted = Vec::new();
    let mut checks = 0;
    for node in &said {
        checks += node["checks"].as_u64().unwrap();
        let of_node: Vec<(u64, u64)> = serde_json::from_value(node["admitted"].clone()).unwrap();
        assert!(!of_node.is_empty(), "{algorithm}: a process was never admitted");
        admitted.extend(of_node.into_iter().map(|(begin, end)| Admission { begin, end }));
    }
    let begun = admitted.iter().map(|admission: &Admission| admission.begin).min().unwrap();
    // EVAL loads the script. The failed EVALSHA before it also counts as a call.
    let calls = server.calls("evalsha");
    println!("{algorithm}: {} admitted in {checks} checks, by {calls} calls", admitted.len());
    let granted = admitted.len() as u64;
    assert!(calls < granted, "{algorithm}: {calls} calls for {granted} admissions");
    let run = Run { admitted: Admissions::new(admitted), denied: checks - granted, begun, ended };
    (run, calls, checks)
}

#[test]
fn processes_that_share_a_bucket_stay_within_it_over_any_interval() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        let time = Duration::from_millis(1500);
        let run = run_processes(algorithm, 2000, Duration::from_secs(1), 400, 50, time);
        run.admitted.assert_bucket(400, 2000);
        let most = 400 + 2000 * (run.ended - run.begun) / 1_000_000_000;
        let admitted = run.admitted.len();
        assert!(admitted * 10 > most * 7 || !run.is_greedy(), "{algorithm}: {admitted} of {most}");
    }
}

#[test]
fn leased_tokens_are_missing_from_the_bucket_until_their_lease_ends() {
    on_server(async |server| {
        let quota = Quota::per_second(1000).burst(400);
        let build = || builder(&server.url(), quota, Algorithm::TokenBucket, 100).build().unwrap();
        let (early, late) = (build(), build());
        let mut most = 0;
        for _ in 0..5 {
            while early.stats().leased < 60 {
                let _ = early.check("key").await;
            }
            // The bucket refills, but for the leased tokens. Leases last for at least 200 ms.
            tokio::time::sleep(Duration::from_millis(185)).await;
            let begin = now();
            let mut admitted = 0;
            let mut cost = 400;
            while cost > 0 {
                match late.check_n("key", cost).await.is_allowed() {
                    true => admitted += cost,
                    false => cost = cost * 9 / 10,
                }
            }
            while early.stats().leased > 0 && early.check("key").await.source() == DecisionSource::Lease {
                admitted += 1;
            }
            let time = now() - begin;
            assert!(admitted <= 401 + time / 1_000_000, "{admitted} in {time} ns");
            most = most.max(admitted);
            until_async("they are over", async || early.stats().leased + late.stats().leased == 0).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(most > 300, "{most}");
    });
}

#[test]
fn processes_that_share_a_log_stay_within_it_in_any_trailing_period() {
    let period = Duration::from_millis(500);
    let run = run_processes(Algorithm::SlidingLog, 600, period, 0, 30, Duration::from_millis(2000));
    run.admitted.assert_log(600, period);
    assert!(run.admitted.len() > 600 * 5 / 2 || !run.is_greedy(), "{}", run.admitted.len());
}

#[test]
fn processes_that_share_a_window_admit_exactly_the_limit_in_each() {
    let period = Duration::from_millis(500);
    let run = run_processes(Algorithm::FixedWindow, 1000, period, 0, 40, Duration::from_millis(2500));
    let windows = run.admitted.windows(period, run.begun, run.ended);
    assert!(windows.len() >= 3, "{windows:?}");
    for (surely, possibly) in windows {
        assert!(surely <= 1000 && (possibly >= 1000 || !run.is_greedy()), "{surely} to {possibly}");
    }
}

#[test]
fn processes_that_share_a_sliding_window_stay_within_it_in_each() {
    let period = Duration::from_millis(500);
    let run = run_processes(Algorithm::SlidingWindow, 1000, period, 0, 40, Duration::from_millis(2500));
    let windows = run.admitted.windows(period, run.begun, run.ended);
    for &(surely, _) in &windows {
        assert!(surely <= 1000, "{windows:?}");
    }
    // At this demand, the estimate admits the limit in every period.
    assert!(run.admitted.len() > 2000 || !run.is_greedy(), "{}", run.admitted.len());
}

#[test]
#[ignore = "a node that other tests start"]
fn obeying_node() {
    node(|node| {
        let limiter = builder(&node.var("URL"), Quota::new(2000, AGES), Algorithm::FixedWindow, 100);
        let limiter = limiter.build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        node.ready();
        loop {
            let tries: u64 = node.hear().parse().unwrap();
            let admitted = runtime.block_on(load::spend(&limiter, "key", tries));
            node.say(json!([admitted, limiter.stats().leased]));
        }
    });
}

#[test]
fn a_process_that_is_killed_takes_no_more_with_it_than_its_leases() {
    let server = Server::start();
    let mut nodes = Nodes::start(2, "lease::obeying_node", &[("URL", &server.url())]);
    nodes.go();
    nodes.tell(0, "700");
    let said = nodes.hear(0);
    let (first, leased) = (said[0].as_u64().unwrap(), said[1].as_u64().unwrap());
    assert_eq!(first, 700);
    assert!((1..=200).contains(&leased), "{leased}");
    nodes.kill(0);
    nodes.tell(1, "3000");
    let second = nodes.hear(1)[0].as_u64().unwrap();
    // A lease in flight also counts.
    assert!(first + second <= 2000 - leased && first + second >= 2000 - 200, "{first} {second} {leased}");
}

/// Returns three machines in this process, behind one proxy.
async fn machines(
    server: &Server,
    quota: Quota,
    algorithm: Algorithm,
) -> (FaultProxy, Vec<SharedLimiter<str>>) {
    let proxy = FaultProxy::start(server.address()).await;
    let url = server.url_at(proxy.address());
    let build = |_| builder(&url, quota, algorithm, 20).deadline(Duration::from_millis(500)).build().unwrap();
    let machines: Vec<_> = (0..3).map(build).collect();
    for machine in &machines {
        machine.client().connect().await.unwrap();
    }
    (proxy, machines)
}

/// Sends this many checks to each machine and returns how many were admitted.
async fn spend(machines: &[SharedLimiter<str>], checks: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..checks {
        for machine in machines {
            admitted += u64::from(machine.check("key").await.is_allowed());
        }
    }
    admitted
}

fn leased(machines: &[SharedLimiter<str>]) -> u64 {
    machines.iter().map(|machine| machine.stats().leased).sum()
}

#[test]
fn without_a_store_only_leases_are_spent() {
    run(async {
        for mode in [Mode::BlackHole, Mode::DropReplies, Mode::Hold] {
            let server = Server::start();
            let (proxy, machines) = machines(&server, Quota::new(1000, AGES), Algorithm::FixedWindow).await;
            let before = spend(&machines, 60).await;
            assert_eq!(before, 180);
            let calls = server.calls("evalsha");
            proxy.set(mode);
            let left = leased(&machines);
            let after = spend(&machines, 60).await;
            // Each machine may have had one lease in flight.
            assert!(after <= left + 60, "{mode:?}: {after} of {left}");
            proxy.set(Mode::Pass);
            until_async("the store is reached again", async || {
                machines.iter().all(|machine| machine.client().stats().connected)
            })
            .await;
            let calls = server.calls("evalsha") - calls;
            let rest = spend(&machines, 1200).await;
            let (all, held) = (before + after + rest, leased(&machines));
            assert!(all <= 1000, "{mode:?}: {before} {after} {rest}");
            // No more is lost than the charges and leases of requests that reached the store during
            // the fault.
            let lost = 1000 - all - held;
            assert!(lost <= 21 * calls, "{mode:?}: {lost} lost in {calls} calls, {held} held");
            println!("{mode:?}: {lost} lost in {calls} calls, {held} held");
        }
    });
}

#[test]
fn when_the_server_is_killed_only_leases_are_spent_until_it_is_back() {
    on_server(async |server| {
        let (_proxy, machines) = machines(&server, Quota::new(300, AGES), Algorithm::FixedWindow).await;
        assert_eq!(spend(&machines, 60).await, 180);
        server.kill();
        let left = leased(&machines);
        let after = spend(&machines, 100).await;
        assert!(after <= left + 60, "{after} of {left}");
        server.restart();
        // The server has lost its state, so up to a whole limit may be admitted again, but never
        // more.
        until_async("it is reached again", async || {
            machines.iter().all(|machine| machine.client().stats().connected) || spend(&machines, 0).await > 0
        })
        .await;
        let again = spend(&machines, 500).await;
        assert!(again <= 300, "{again}");
    });
}

#[test]
fn over_a_slow_network_it_is_never_over_the_limit() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let url = server.url_at(proxy.address());
        // A busy machine meets this deadline. With a shorter deadline, the fallback would deny
        // requests.
        let build = |_| builder(&url, Quota::new(600, AGES), Algorithm::FixedWindow, 20).build().unwrap();
        let machines: Vec<_> = (0..3).map(build).map(Arc::new).collect();
        for machine in &machines {
            machine.client().connect().await.unwrap();
        }
        proxy.set(Mode::Delay(Duration::from_millis(15)));
        let mut tasks = Vec::new();
        for machine in machines.iter().flat_map(|machine| vec![machine; 10]) {
            let machine = Arc::clone(machine);
            tasks.push(tokio::spawn(async move { load::spend(&machine, "key", 60).await }));
        }
        let mut admitted = 0;
        for task in tasks {
            admitted += task.await.unwrap();
        }
        assert!((500..=600).contains(&admitted), "{admitted}");
        assert!(server.calls("evalsha") < 300, "{}", server.calls("evalsha"));
    });
}

#[test]
fn a_check_ends_by_its_deadline_also_if_it_has_waited_for_another() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let deadline = Duration::from_millis(400);
        let builder =
            builder(&server.url_at(proxy.address()), Quota::new(1000, AGES), Algorithm::FixedWindow, 20);
        let machine = Arc::new(builder.deadline(deadline).build().unwrap());
        machine.client().connect().await.unwrap();
        proxy.set(Mode::Hold);
        let mut tasks = Vec::new();
        for number in 0..30 {
            let machine = Arc::clone(&machine);
            tasks.push(tokio::spawn(async move {
                // The tasks start one after the other. Some therefore take over from tasks whose
                // time has run out.
                tokio::time::sleep(Duration::from_millis(number * 20)).await;
                let begun = Instant::now();
                let check = async {
                    let _ = machine.check("key").await;
                    begun.elapsed()
                };
                // A timer runs at the same time as the check, because on a busy machine both are
                // late.
                let timer = async {
                    tokio::time::sleep(deadline).await;
                    begun.elapsed()
                };
                tokio::join!(check, timer)
            }));
        }
        for task in tasks {
            let (took, timer) = task.await.unwrap();
            assert!(took < timer + deadline / 4, "{took:?} of {deadline:?}, which took {timer:?}");
        }
    });
}

#[test]
fn requests_that_are_given_up_take_no_leases_with_them() {
    on_server(async |server| {
        let (proxy, machines) = machines(&server, Quota::new(1000, AGES), Algorithm::FixedWindow).await;
        let machine = &machines[0];
        assert_eq!(spend(&machines[..1], 200).await, 200);
        // A lease that is requested early must not be taken for the requests below. The store
        // answers in order.
        assert!(machine.check_n("key", 0).await.is_allowed());
        proxy.set(Mode::Delay(Duration::from_millis(50)));
        for _ in 0..10 {
            let before = proxy.passed().requests;
            let arrives = async {
                while proxy.passed().requests == before {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            // The cost is more than the leases ever hold, so the store must be asked. The request
            // is given up once it has reached the store.
            tokio::select! {
                decision = machine.check_n("key", 45) => assert!(decision.is_allowed()),
                () = arrives => {}
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        proxy.set(Mode::Pass);
        let rest = spend(&machines[..1], 1000).await;
        assert!((350 - 40..=350).contains(&rest), "{rest} of 350");
    });
}

#[test]
fn what_is_leased_and_idle_is_bounded_and_comes_back() {
    on_server(async |server| {
        let quota = Quota::per_second(1000).burst(500);
        let build = || builder(&server.url(), quota, Algorithm::TokenBucket, 50).build().unwrap();
        let (idle, busy) = (build(), build());
        // A machine hoards no leases if its requests cost more than any lease can pay for.
        for cost in [1, 1, 1, 1, 1, 1, 1, 1, 60, 60, 60] {
            let _ = idle.check_n("key", cost).await;
            assert!(idle.stats().leased <= 100, "{}", idle.stats().leased);
        }
        for key in 0..500 {
            let _ = idle.check(&format!("rare {key}")).await;
        }
        let stranded = idle.stats().leased;
        assert!(stranded <= 100, "keys that come once lease nothing: {stranded}");
        until_async("the leases are over", async || idle.stats().leased == 0).await;
        // All leased tokens return.
        until_async("the burst is there", async || busy.check_n("key", 500).await.is_allowed()).await;
    });
}

#[test]
fn what_remains_is_told_with_what_is_held() {
    on_server(async |server| {
        let quota = Quota::new(100, AGES);
        let limiter = builder(&server.url(), quota, Algorithm::FixedWindow, 10).build().unwrap();
        for taken in 1..=100 {
            let decision = limiter.check("key").await;
            assert!(decision.is_allowed());
            // While the next lease is in flight, its tokens are counted neither as remaining nor as
            // taken.
            let off = 100 - taken - i64::try_from(decision.remaining()).unwrap();
            assert!((-20..=20).contains(&off), "{taken} taken, {} remain", decision.remaining());
        }
        let begun = Instant::now();
        let denied = limiter.check("key").await;
        let again = limiter.check("key").await;
        let between = begun.elapsed();
        assert_eq!((denied.source(), again.source()), (DecisionSource::Store, DecisionSource::Lease));
        // The denial is remembered for at most a second, but its whole retry time is reported.
        let (told, retold) = (denied.retry_after().unwrap(), again.retry_after().unwrap());
        assert!(told.abs_diff(retold) < Duration::from_millis(100) + between, "{told:?} {retold:?}");
        // A check of no tokens returns the store's state.
        let nothing = limiter.check_n("fresh", 0).await;
        assert_eq!(
            (nothing.is_allowed(), nothing.remaining(), nothing.source()),
            (true, 100, DecisionSource::Store)
        );
        assert!(!limiter.check_n("fresh", 101).await.is_allowed());
        limiter.reset("key").await.unwrap();
        assert!(limiter.check("key").await.is_allowed());
    });
}

#[test]
fn a_machine_alone_spends_the_whole_limit_whatever_the_costs() {
    on_server(async |server| {
        for algorithm in Algorithm::ALL.into_iter().filter(|it| *it != Algorithm::LeakyQueue) {
            let limiter = builder(&server.url(), Quota::new(186, AGES), algorithm, 40).build().unwrap();
            for turn in 0..20 {
                let (key, mut random) = (format!("{algorithm} {turn}"), fastrand::Rng::with_seed(turn));
                let mut spent = 0;
                for _ in 0..60 {
                    // Cheap requests lease tokens, which expensive requests cannot spend.
                    let cost = if turn == 0 || random.bool() { 31 } else { random.u64(1..=3) };
                    let decision = limiter.check_n(&key, cost).await;
                    assert_eq!(decision.is_allowed(), spent + cost <= 186, "{key}: {spent} + {cost}");
                    spent += decision.charged();
                }
            }
        }
    });
}

#[test]
fn a_machine_alone_reserves_and_batches_the_whole_limit() {
    on_server(async |server| {
        for algorithm in Algorithm::ALL.into_iter().filter(|it| *it != Algorithm::LeakyQueue) {
            let limiter = builder(&server.url(), Quota::new(186, AGES), algorithm, 40).build().unwrap();
            for turn in 0..20 {
                let (key, mut random) = (format!("{algorithm} {turn}"), fastrand::Rng::with_seed(turn));
                let mut spent = 0;
                for step in 0..30 {
                    let costs: Vec<u64> =
                        (0..3).map(|_| if random.bool() { 31 } else { random.u64(1..=3) }).collect();
                    let fits = |spent: u64, cost: u64| spent + cost <= 186;
                    if step % 3 == 0 {
                        let held = limiter.reserve(&key, costs[0]).await;
                        assert_eq!(held.is_ok(), fits(spent, costs[0]), "{key}: {spent} + {}", costs[0]);
                        spent += held.map_or(0, |held| held.decision().charged());
                        continue;
                    }
                    let batch: Vec<(&str, u64)> = costs.iter().map(|cost| (&*key, *cost)).collect();
                    for (cost, decision) in costs.iter().zip(limiter.check_many(&batch).await) {
                        assert_eq!(decision.is_allowed(), fits(spent, *cost), "{key}: {spent} + {cost}");
                        spent += decision.charged();
                    }
                }
            }
        }
    });
}

#[test]
fn a_machine_alone_is_charged_for_all_that_its_work_has_cost() {
    on_server(async |server| {
        for algorithm in Algorithm::ALL.into_iter().filter(|it| *it != Algorithm::LeakyQueue) {
            let limiter = builder(&server.url(), Quota::new(186, AGES), algorithm, 40).build().unwrap();
            for turn in 0..20 {
                let (key, mut random) = (format!("{algorithm} {turn}"), fastrand::Rng::with_seed(turn));
                let mut spent = 0;
                for _ in 0..30 {
                    let Ok(held) = limiter.reserve(&key, random.u64(1..=3)).await else { continue };
                    // Some work costs more than its estimate, and more than this machine has
                    // leased.
                    let actual = if random.bool() { 3 } else { random.u64(3..=60) };
                    let settled = held.commit(actual).await;
                    assert_eq!(settled.charged, actual.min(186 - spent), "{key}: {spent} + {actual}");
                    assert_eq!(settled.charged + settled.unpaid, actual);
                    spent += settled.charged;
                }
            }
            assert!(limiter.stats().by_lease > 0);
        }
    });
}

#[test]
fn a_batch_spends_leases_and_asks_about_different_keys_at_the_same_time() {
    on_server(async |server| {
        let limiter = builder(&server.url(), Quota::new(1_000, AGES), Algorithm::FixedWindow, 100).build();
        let limiter = limiter.unwrap();
        let keys: Vec<String> = (0..50).map(|number| number.to_string()).collect();
        let batch: Vec<(&str, u64)> = keys.iter().chain(&keys).map(|key| (&**key, 1)).collect();
        let mut left = vec![1_000; keys.len()];
        for round in 0..20 {
            for (number, decision) in limiter.check_many(&batch).await.into_iter().enumerate() {
                left[number % 50] -= 1;
                assert_eq!(
                    (decision.is_allowed(), decision.remaining()),
                    (true, left[number % 50]),
                    "{round}"
                );
            }
        }
        let stats = limiter.stats();
        assert!(stats.by_lease > 4 * stats.by_store, "{stats:?}");
        // At another time, no lease pays.
        let before = limiter.stats().by_store;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let decisions = limiter.at(now.into()).check_many(&batch).await;
        assert!(decisions.iter().all(|it| it.source() == DecisionSource::Store));
        assert_eq!(limiter.stats().by_store, before + 100);

        // One key after the other would take five times as long as the deadline.
        let proxy = FaultProxy::start(server.address()).await;
        let limiter =
            builder(&server.url_at(proxy.address()), Quota::new(9, AGES), Algorithm::FixedWindow, 4)
                .deadline(Duration::from_secs(2))
                .build()
                .unwrap();
        limiter.client().connect().await.unwrap();
        proxy.set(Mode::Delay(Duration::from_millis(200)));
        let decisions = limiter.check_many(&batch[..50]).await;
        assert!(decisions.iter().all(|it| it.source() == DecisionSource::Store), "{decisions:?}");
    });
}

#[test]
fn a_bucket_that_gets_its_tokens_back_has_all_of_them() {
    on_server(async |server| {
        let quota = Quota::new(30, AGES);
        let build = || builder(&server.url(), quota, Algorithm::TokenBucket, 10).build().unwrap();
        let (machine, other) = (build(), build());
        let mut spent = 0;
        while machine.stats().leased == 0 {
            assert!(machine.check("alice").await.is_allowed());
            spent += 1;
        }
        let rest = other.check_n("alice", 30 - spent).await;
        assert!(!rest.is_allowed(), "the other tokens are leased: {rest:?}");
        let rest = machine.check_n("alice", 30 - spent).await;
        assert!(rest.is_allowed() && machine.stats().leased == 0, "{rest:?}");
    });
}

/// If the leases of others are in the way, the reported times count on their ends, because the
/// store does not know when they are given back.
#[test]
fn a_denial_beside_leases_reports_when_they_have_ended() {
    on_server(async |server| {
        // Half of the capacity refills in five seconds.
        let quota = Quota::per_second(10).burst(100);
        let build = || builder(&server.url(), quota, Algorithm::TokenBucket, 50).build().unwrap();
        let (machine, other) = (build(), build());
        while machine.stats().leased == 0 {
            assert!(machine.check("key").await.is_allowed());
        }
        // Only the spent tokens refill in this time.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let [denied, peeked] = [other.check_n("key", 100).await, other.peek("key").await];
        let retry = denied.retry_after().unwrap();
        assert!(retry > Duration::from_secs(3) && retry <= Duration::from_secs(15), "{denied:?}");
        // The time of the next token is rounded to milliseconds.
        for decision in [denied, peeked] {
            let off = decision.reset_after().abs_diff(decision.refill_after());
            assert!(off <= Duration::from_millis(1), "{decision:?}");
        }
        assert_eq!(denied.reset_after(), retry, "{denied:?}");
        assert!(peeked.remaining() < 100 && peeked.refill_after() > Duration::ZERO, "{peeked:?}");
    });
}

#[test]
fn a_denial_is_not_remembered_beyond_the_reported_reset() {
    on_server(async |server| {
        let quota = Quota::per_second(10).burst(100);
        let build = || builder(&server.url(), quota, Algorithm::TokenBucket, 50).build().unwrap();
        let (machine, other) = (build(), build());
        while machine.stats().leased == 0 {
            assert!(machine.check("key").await.is_allowed());
        }
        assert!(!other.check_n("key", 100).await.is_allowed());
        assert!(other.check("key").await.is_allowed());
        let denied = other.check_n("key", 100).await;
        assert_eq!((denied.is_allowed(), denied.source()), (false, DecisionSource::Lease));
        assert!(denied.reset_after() >= denied.retry_after().unwrap(), "{denied:?}");
    });
}

/// A queue beside leases of another algorithm, as during a change of the algorithm.
#[test]
fn leases_do_not_delay_the_turns_of_a_queue() {
    on_server(async |server| {
        let quota = Quota::per_second(10).burst(100);
        let machine = builder(&server.url(), quota, Algorithm::TokenBucket, 50).build().unwrap();
        while machine.stats().leased < 10 {
            assert!(machine.check("key").await.is_allowed());
        }
        let queue = SharedLimiter::<str>::builder(&patient(server.url()), "spending", quota);
        let queue = queue.algorithm(Algorithm::LeakyQueue).deadline(PATIENT).build().unwrap();
        let turns = [queue.check("key").await, queue.check("key").await].map(|turn| turn.start_after());
        assert!(turns[0] < turns[1] && turns[1] < Duration::from_secs(3), "{turns:?}");
    });
}

/// A rarely used key leases few tokens, and no more than these are missing from the burst of
/// another machine.
#[test]
fn a_slow_key_costs_the_others_no_more_than_its_leases() {
    on_server(async |server| {
        // Half of the capacity refills in five seconds.
        let quota = Quota::per_second(100).burst(1_000);
        let build = || builder(&server.url(), quota, Algorithm::TokenBucket, 100).build().unwrap();
        let (slow, fast) = (build(), build());
        for _ in 0..5 {
            assert!(slow.check("key").await.is_allowed());
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let leased = slow.stats().leased;
        let admitted = load::spend(&fast, "key", 1_000).await;
        assert!(
            leased > 0 && admitted + 2 * leased + fast.stats().leased + 1 >= 1_000,
            "{admitted} {leased}"
        );
    });
}

#[test]
fn charges_are_given_back_where_they_came_from() {
    on_server(async |server| {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingLog] {
            let limiter = builder(&server.url(), Quota::new(100, AGES), algorithm, 10).build().unwrap();
            if algorithm == Algorithm::SlidingLog {
                // If the store made a charge together with a lease, a refund of the charge does not
                // include the lease.
                let first = limiter.check("key").await;
                let second = limiter.check("key").await;
                assert_eq!((first.source(), second.source()), (DecisionSource::Store, DecisionSource::Store));
                limiter.refund("key", &first).await;
                limiter.refund("key", &second).await;
                assert_eq!(limiter.peek("key").await.remaining(), 100 - limiter.stats().leased);
            }
            let admitted = load::spend(&limiter, "key", 300).await;
            let least = if algorithm == Algorithm::SlidingLog { 90 } else { 100 };
            assert!((least..=100).contains(&admitted), "{algorithm}: {admitted}");
        }
    });
}

#[test]
fn a_machine_whose_clock_is_in_an_earlier_window_gets_no_leases() {
    on_client(async |server, client| {
        let builder = SharedLimiter::<str>::builder(&client, "behind", Quota::new(100, AGES));
        let builder = builder.algorithm(Algorithm::FixedWindow).deadline(Duration::from_secs(5));
        let limiter = builder.lease(20).client_clock().readable_keys().build().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros();
        // The state of an unused key in the next window.
        let numbers = [(now / AGES.as_micros() + 1) as f64, 0.0, 0.0, AGES.as_micros() as f64, 0.0];
        let state = [b"w1".as_slice(), numbers.map(f64::to_le_bytes).as_flattened()].concat();
        let mut set = redis::cmd("SET");
        set.arg("tollgate:behind:w:=alice").arg(state).arg("PX").arg(60_000);
        set.exec(&mut server.client().get_connection().unwrap()).unwrap();
        for left in (80..100).rev() {
            let decision = limiter.check("alice").await;
            assert_eq!((decision.source(), decision.remaining()), (DecisionSource::Store, left));
        }
        assert_eq!(limiter.stats().leased, 0);
    });
}

#[test]
fn after_the_last_token_of_a_bucket_the_store_is_not_asked() {
    on_server(async |server| {
        let limiter = builder(&server.url(), Quota::new(100, AGES), Algorithm::TokenBucket, 20);
        let limiter = limiter.build().unwrap();
        assert_eq!(load::spend(&limiter, "key", 100).await, 100);
        let by_store = limiter.stats().by_store;
        let denied = limiter.check("key").await;
        assert_eq!((denied.is_allowed(), denied.source()), (false, DecisionSource::Lease));
        assert_eq!(limiter.stats().by_store, by_store);
        let (wait, of_token) = (denied.retry_after().unwrap(), AGES / 100);
        assert!(wait > of_token - Duration::from_secs(60) && wait <= of_token, "{denied:?}");
    });
}

#[test]
fn a_bucket_is_not_denied_for_longer_than_it_takes_to_refill() {
    on_server(async |server| {
        // The bucket refills in ten milliseconds.
        let quota = Quota::per_second(10_000).burst(100);
        let limiter = builder(&server.url(), quota, Algorithm::TokenBucket, 50).build().unwrap();
        let repeated = async || loop {
            let decision = limiter.check_n("key", 40).await;
            if !decision.is_allowed() && decision.source() == DecisionSource::Lease {
                return decision.retry_after().unwrap();
            }
        };
        for _ in 0..20 {
            let wait = repeated().await;
            assert!(wait <= Duration::from_millis(11), "{wait:?}");
        }
    });
}

#[test]
fn a_slow_key_keeps_its_lease() {
    on_server(async |server| {
        // Half of the capacity refills in 5 s, and a lease lasts at least as long.
        let quota = Quota::per_second(100).burst(1_000);
        let limiter = builder(&server.url(), quota, Algorithm::TokenBucket, 100).build().unwrap();
        // Twenty requests a second lease more than ten tokens.
        for _ in 0..40 {
            assert!(limiter.check("key").await.is_allowed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(limiter.stats().leased > 0);
        let by_store = limiter.stats().by_store;
        tokio::time::sleep(Duration::from_millis(4_500)).await;
        assert_eq!(limiter.check("key").await.source(), DecisionSource::Lease, "{:?}", limiter.stats());
        assert_eq!(limiter.stats().by_store, by_store);
        // Only the tokens of two leases may be missing, and those that were spent last.
        let remaining = limiter.peek("key").await.remaining();
        assert!(remaining >= 800, "{remaining}");
    });
}

#[test]
fn a_queue_gives_no_leases() {
    let client = Client::open("redis://127.0.0.1:1").unwrap();
    let builder = SharedLimiter::<str>::builder(&client, "x", Quota::per_second(1000));
    let refused = builder.algorithm(Algorithm::LeakyQueue).lease(10).build().unwrap_err();
    assert_eq!(refused.setting(), "algorithm");
    assert!(refused.to_string().contains("expected token-bucket"));
}
