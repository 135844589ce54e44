//! Unsynchronized counts. They exceed the limit by no more than their bound, and no count is lost
//! or counted twice.

use crate::load::{self, AGES, on_server};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tollgate::{Algorithm, Quota, Tick};
use tollgate_redis::{Client, SharedLimiter, WhenUnavailable};
use tollgate_testing::store::faults::{FaultProxy, Mode};
use tollgate_testing::store::nodes::{Me, Nodes, node};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{run, until_async};

const PROCESSES: u32 = 3;
const LIMIT: u64 = 600;
const MOST: u64 = 30;

fn limiter(url: &str, algorithm: Algorithm, period: Duration, deadline: Duration) -> SharedLimiter<str> {
    let client = Client::open(url).unwrap();
    SharedLimiter::<str>::builder(&client, "counting", Quota::new(LIMIT, period))
        .algorithm(algorithm)
        .max_unsynced(MOST)
        .deadline(deadline)
        .build()
        .unwrap()
}

/// Connects the client. A busy machine may need more than one attempt.
async fn connected(limiter: &SharedLimiter<str>) {
    until_async("it is connected", async || limiter.client().connect().await.is_ok()).await;
}

/// One number for each window.
type Windows = BTreeMap<u64, u64>;

fn add(all: &mut Windows, more: Windows) {
    more.into_iter().for_each(|(window, figure)| *all.entry(window).or_default() += figure);
}

/// Returns the admissions and the denials in each window.
async fn demand(
    limiter: &SharedLimiter<str>,
    period: u64,
    pause: Duration,
    over: &AtomicBool,
) -> [Windows; 2] {
    let (mut admitted, mut denied) = (Windows::new(), Windows::new());
    while !over.load(SeqCst) {
        let decision = limiter.check("key").await;
        let windows = if decision.is_allowed() { &mut admitted } else { &mut denied };
        *windows.entry(decision.at().as_nanos() / 1000 / period).or_default() += 1;
        tokio::time::sleep(pause).await;
    }
    [admitted, denied]
}

#[test]
#[ignore = "a node that other tests start"]
fn counting_node() {
    node(|node: &Me| {
        let number = |name| node.var(name).parse::<u64>().unwrap();
        let algorithm = Algorithm::ALL.into_iter().find(|a| a.to_string() == node.var("ALGORITHM")).unwrap();
        let period = Duration::from_millis(number("PERIOD"));
        let limiter = limiter(&node.var("URL"), algorithm, period, Duration::from_millis(number("DEADLINE")));
        let limiter = Arc::new(limiter);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(connected(&limiter));
        node.ready();
        let over = Arc::new(AtomicBool::new(false));
        let period = number("PERIOD") * 1000;
        let tasks = (0..4).map(|_| {
            let (limiter, over) = (Arc::clone(&limiter), Arc::clone(&over));
            runtime.spawn(async move { demand(&limiter, period, Duration::from_millis(2), &over).await })
        });
        let tasks: Vec<_> = tasks.collect();
        node.hear();
        over.store(true, SeqCst);
        let mut windows = [Windows::new(), Windows::new()];
        for task in tasks {
            windows.iter_mut().zip(runtime.block_on(task).unwrap()).for_each(|(all, more)| add(all, more));
        }
        // Waits until the store has confirmed everything. After a new connection, the machine
        // accepts no confirmations for some time.
        let begun = Instant::now();
        while limiter.stats().unsynced > 0 && begun.elapsed() < Duration::from_secs(60) {
            runtime.block_on(limiter.flush());
        }
        let stats = limiter.stats();
        node.say(json!({ "windows": windows, "unsynced": stats.unsynced, "unknown": stats.unanswered }));
    });
}

/// Returns the store's counts: for each window, the sum of all nodes.
fn counted(server: &Server) -> Windows {
    let keys = server.keys_with_ttl();
    assert!(keys.len() <= 1 && keys.iter().all(|(_, left)| *left > 0), "{keys:?}");
    let fields: BTreeMap<String, u64> =
        keys.first().map_or_else(BTreeMap::new, |(key, _)| server.ask(&["HGETALL", key]));
    let mut shares = Windows::new();
    for (field, count) in &fields {
        if let Some((window, _)) = field.split_once(':') {
            *shares.entry(window.parse().unwrap()).or_default() += count;
        }
    }
    for (window, sum) in &shares {
        assert_eq!(fields.get(&window.to_string()), Some(sum), "the sum of the shares: {fields:?}");
    }
    shares
}

/// Runs several processes whose demand exceeds the limit, and runs `happen` at the same time.
/// Returns the admissions and the denials in each window.
fn run_processes(
    algorithm: Algorithm,
    period: Duration,
    windows: u32,
    deadline: Duration,
    happen: impl AsyncFn(&Server, &FaultProxy),
) -> [Windows; 2] {
    let (mut all, mut denied) = (Windows::new(), Windows::new());
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let url = server.url_at(proxy.address());
        let (period_ms, deadline_ms) = (period.as_millis().to_string(), deadline.as_millis().to_string());
        let name = algorithm.to_string();
        let variables =
            [("URL", &*url), ("ALGORITHM", &name), ("PERIOD", &period_ms), ("DEADLINE", &deadline_ms)];
        let start =
            || Nodes::start(usize::try_from(PROCESSES).unwrap(), "unsynced::counting_node", &variables);
        let mut nodes = tokio::task::block_in_place(start);
        nodes.go();
        let begun = Instant::now();
        happen(&server, &proxy).await;
        tokio::time::sleep((period * windows).saturating_sub(begun.elapsed())).await;
        nodes.tell_all("stop");
        let said = tokio::task::block_in_place(|| nodes.finish());
        for node in &said {
            assert_eq!(node["unsynced"], 0, "all is told at the end: {node}");
            let of_node: [Windows; 2] = serde_json::from_value(node["windows"].clone()).unwrap();
            [&mut all, &mut denied].into_iter().zip(of_node).for_each(|(all, more)| add(all, more));
        }
        println!(
            "{algorithm}: {all:?}, {:?} unknown",
            said.iter().map(|n| n["unknown"].clone()).collect::<Vec<Value>>()
        );
        let counted = counted(&server);
        let last = all.keys().next_back().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() / period.as_nanos();
        // A busy machine may take so long that the window no longer counts and is dropped.
        assert!(
            counted.get(last) == all.get(last) || now > u128::from(last + 1),
            "the store's sum of the last window: {counted:?}, {all:?}"
        );
        for (window, sum) in &counted {
            // The previous window is still in the store, unless it was lost after it stopped
            // counting.
            assert!(sum <= all.get(window).unwrap_or(&0), "counted twice in {window}: {counted:?}, {all:?}");
        }
    });
    let most = LIMIT + u64::from(PROCESSES - 1) * MOST;
    for (window, &admitted) in &all {
        assert!(admitted <= most, "{admitted} of {most} in {window}: {all:?}");
    }
    [all, denied]
}

/// Returns the admissions in complete, undisturbed windows whose demand exceeded the limit. A busy
/// machine may send too few requests to exceed the limit.
fn inner([admitted, denied]: &[Windows; 2]) -> Vec<u64> {
    let (first, last) = (admitted.keys().next().unwrap(), admitted.keys().next_back().unwrap());
    let is_inner = |window: &u64| first < window && window < last && denied.contains_key(window);
    let inner: Vec<_> =
        admitted.iter().filter(|(window, _)| is_inner(window)).map(|(_, admitted)| *admitted).collect();
    assert!(!inner.is_empty(), "nobody was ever denied: {admitted:?}");
    inner
}

const SECOND: Duration = Duration::from_secs(1);
const DEADLINE: Duration = Duration::from_millis(100);
/// A deadline that even a busy machine meets.
const PATIENT: Duration = Duration::from_secs(10);

#[test]
fn in_calm_each_window_is_filled_and_the_bound_holds() {
    let windows = run_processes(Algorithm::FixedWindow, 2 * SECOND, 4, SECOND, async |_, _| {});
    for admitted in inner(&windows) {
        assert!(admitted >= LIMIT, "{windows:?}");
    }
}

#[test]
fn in_calm_windows_that_slide_are_filled_nearly_and_the_bound_holds() {
    let windows = run_processes(Algorithm::SlidingWindow, 2 * SECOND, 5, SECOND, async |_, _| {});
    // Apart from its error, the estimate admits about as many requests in each period as the limit
    // allows.
    let inner = inner(&windows);
    let sum: u64 = inner.iter().sum();
    assert!(sum >= LIMIT * inner.len() as u64 * 7 / 10, "{windows:?}");
}

#[test]
fn the_bound_holds_when_the_server_is_killed_and_comes_back_empty() {
    let happen = async |server: &Server, _: &FaultProxy| {
        // The server is killed in the middle of windows, after many pushes.
        for pause in [1300, 2900] {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            server.kill();
            tokio::time::sleep(Duration::from_millis(300)).await;
            tokio::task::block_in_place(|| server.restart());
        }
    };
    run_processes(Algorithm::FixedWindow, 2 * SECOND, 4, DEADLINE, happen);
}

#[test]
fn the_bound_holds_while_nothing_comes_through() {
    for mode in [Mode::BlackHole, Mode::DropReplies] {
        let happen = async |_: &Server, proxy: &FaultProxy| {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            proxy.set(mode);
            tokio::time::sleep(Duration::from_millis(900)).await;
            proxy.set(Mode::Pass);
        };
        run_processes(Algorithm::FixedWindow, SECOND, 4, DEADLINE, happen);
    }
}

#[test]
fn the_bound_holds_over_a_slow_network_and_while_the_server_is_stopped() {
    let happen = async |server: &Server, proxy: &FaultProxy| {
        proxy.set(Mode::Delay(Duration::from_millis(30)));
        tokio::time::sleep(Duration::from_millis(2300)).await;
        server.stop();
        tokio::time::sleep(Duration::from_millis(500)).await;
        server.resume();
    };
    run_processes(Algorithm::FixedWindow, SECOND, 5, Duration::from_millis(200), happen);
}

/// Sends this many checks and returns how many were admitted.
async fn spend(limiter: &SharedLimiter<str>, checks: u64) -> u64 {
    load::spend(limiter, "key", checks).await
}

#[test]
fn a_machine_without_requests_tells_its_count_again_when_the_server_has_lost_it() {
    on_server(async |server| {
        let [idle, busy] = [0, 1].map(|_| limiter(&server.url(), Algorithm::FixedWindow, AGES, PATIENT));
        connected(&idle).await;
        connected(&busy).await;
        let keys = ["one", "another"];
        for key in keys {
            for _ in 0..400 {
                assert!(idle.check(key).await.is_allowed());
            }
        }
        // The busy machine has no information about the idle machine's keys.
        assert_eq!(spend(&busy, 1).await, 1);
        until_async("all is told", async || idle.stats().unsynced + busy.stats().unsynced == 0).await;
        tokio::task::block_in_place(|| server.restart());
        // The demand starts immediately and lasts longer than the recovery.
        let mut admitted = [400; 2];
        let begun = Instant::now();
        let is_over = |admitted: &[u64]| admitted.iter().all(|&admitted| admitted >= LIMIT);
        while begun.elapsed() < Duration::from_millis(3500) || !is_over(&admitted) {
            assert!(begun.elapsed() < 60 * SECOND, "{admitted:?}");
            for (key, admitted) in keys.iter().zip(&mut admitted) {
                for _ in 0..20 {
                    *admitted += u64::from(busy.check(key).await.is_allowed());
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for admitted in admitted {
            assert!((LIMIT..=LIMIT + MOST).contains(&admitted), "{admitted}");
        }
        until_async("all is told", async || idle.stats().unsynced + busy.stats().unsynced == 0).await;
    });
}

/// The fault ends while the client connects anew. The server has lost nothing, so no machine waits
/// for the others to report again, which would take two seconds.
#[test]
fn counts_are_confirmed_at_once_after_a_stall() {
    on_server(async |server| {
        for mode in [Mode::Hold, Mode::HalfOpen] {
            for _ in 0..5 {
                let proxy = FaultProxy::start(server.address()).await;
                let url = server.url_at(proxy.address());
                let limiter = limiter(&url, Algorithm::FixedWindow, AGES, Duration::from_millis(150));
                connected(&limiter).await;
                assert_eq!(spend(&limiter, 10).await, 10);
                let is_confirmed = async || limiter.stats().unsynced == 0;
                until_async("the counts are confirmed", is_confirmed).await;
                proxy.set(mode);
                assert_eq!(spend(&limiter, 10).await, 10);
                let before = proxy.passed().connections;
                until_async("it connects anew", async || proxy.passed().connections > before).await;
                let ended = Instant::now();
                proxy.set(Mode::Pass);
                until_async("the counts are confirmed", is_confirmed).await;
                assert!(ended.elapsed() < Duration::from_millis(1_800), "{mode:?}: {:?}", ended.elapsed());
            }
        }
    });
}

#[test]
fn no_check_waits_while_there_is_room_though_the_server_is_away() {
    run(async {
        // Long enough to distinguish a waiting check from an ordinary check on a busy machine.
        let deadline = 2 * SECOND;
        let server = Server::start();
        let proxy = FaultProxy::start(server.address()).await;
        let limiter = limiter(&server.url_at(proxy.address()), Algorithm::FixedWindow, AGES, deadline);
        assert_eq!(spend(&limiter, 10).await, 10);
        until_async("all is told", async || limiter.stats().unsynced == 0).await;
        proxy.set(Mode::BlackHole);
        let mut longest = Duration::ZERO;
        let mut sum = Duration::ZERO;
        for _ in 0..MOST {
            let begun = Instant::now();
            assert!(limiter.check("key").await.is_allowed());
            longest = longest.max(begun.elapsed());
            sum += begun.elapsed();
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        println!("longest {longest:?}, mean {:?}", sum / u32::try_from(MOST).unwrap());
        assert!(longest < deadline / 2, "{sum:?}, longest {longest:?}");
        let stats = limiter.stats();
        assert_eq!((stats.unsynced, stats.most_unsynced), (MOST, MOST));
        assert!(stats.unsynced_sent <= MOST);
        // The next check is denied no later than its deadline.
        let begun = Instant::now();
        assert!(!limiter.check("key").await.is_allowed());
        assert!(begun.elapsed() < 2 * deadline, "{:?}", begun.elapsed());
        // If the store is unreachable, nothing hangs or spins.
        let begun = Instant::now();
        limiter.flush().await;
        assert!(begun.elapsed() < 2 * deadline, "{:?}", begun.elapsed());
        proxy.set(Mode::Pass);
        until_async("all is told", async || {
            limiter.flush().await;
            limiter.stats().unsynced == 0
        })
        .await;
        assert_eq!(counted(&server).values().sum::<u64>(), 10 + MOST);
    });
}

#[test]
fn a_flush_ends_by_its_deadline_though_there_is_no_server() {
    run(async {
        let limiter = limiter("redis://127.0.0.1:1", Algorithm::FixedWindow, AGES, SECOND);
        assert_eq!(spend(&limiter, MOST).await, MOST);
        until_async("it is known", async || limiter.client().stats().breakers_open == 1).await;
        let begun = Instant::now();
        limiter.flush().await;
        assert!(begun.elapsed() < 3 * SECOND, "{:?}", begun.elapsed());
        assert_eq!(limiter.stats().unsynced, MOST);
        assert_eq!(spend(&limiter, 100).await, 0);
    });
}

#[test]
fn costs_above_what_may_be_unsynced_ask_the_store_and_are_counted_once() {
    on_server(async |server| {
        let machines: Vec<_> =
            (0..2).map(|_| limiter(&server.url(), Algorithm::FixedWindow, AGES, PATIENT)).collect();
        for machine in &machines {
            connected(machine).await;
        }
        let mut admitted = 0;
        for round in 0..30 {
            for machine in &machines {
                for cost in [MOST + 1 + round % 3, 1, 0, LIMIT + 1] {
                    let decision = machine.check_n("key", cost).await;
                    assert!(cost <= LIMIT || !decision.is_allowed());
                    admitted += if decision.is_allowed() { cost } else { 0 };
                }
            }
        }
        assert!((LIMIT..=LIMIT + MOST).contains(&admitted), "{admitted}");
        for machine in &machines {
            until_async("all is told", async || machine.stats().unsynced == 0).await;
        }
        assert_eq!(counted(&server).values().sum::<u64>(), admitted);
    });
}

#[test]
fn a_cost_of_zero_is_allowed_above_the_limit() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let urls = [server.url_at(proxy.address()), server.url()];
        let [late, busy] = urls.map(|url| limiter(&url, Algorithm::FixedWindow, AGES, PATIENT));
        connected(&late).await;
        connected(&busy).await;
        proxy.set(Mode::Hold);
        assert_eq!(spend(&late, MOST).await, MOST);
        assert_eq!(spend(&busy, LIMIT).await, LIMIT);
        proxy.set(Mode::Pass);
        until_async("all is told", async || late.stats().unsynced + busy.stats().unsynced == 0).await;
        assert!(!late.check("key").await.is_allowed());
        assert!(late.check_n("key", 0).await.is_allowed());
        assert!(late.peek_n("key", 0).await.is_allowed());
    });
}

#[test]
fn what_was_told_with_a_request_whose_answer_is_lost_stays_counted() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let limiter = limiter(&server.url_at(proxy.address()), Algorithm::FixedWindow, AGES, DEADLINE);
        connected(&limiter).await;
        proxy.set(Mode::DropReplies);
        let admitted = spend(&limiter, 5).await;
        assert_eq!(admitted, 5);
        assert!(!limiter.check_n("key", MOST + 1).await.is_allowed());
        assert_eq!(limiter.stats().unsynced, 5);
        proxy.set(Mode::Pass);
        until_async("all is told", async || limiter.stats().unsynced == 0).await;
        assert!(counted(&server).values().sum::<u64>() >= 5);
    });
}

#[test]
fn requests_that_are_given_up_leave_nothing_untold() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let limiter = limiter(&server.url_at(proxy.address()), Algorithm::FixedWindow, AGES, SECOND);
        connected(&limiter).await;
        proxy.set(Mode::Delay(Duration::from_millis(4)));
        let mut admitted = 0;
        for _ in 0..5 {
            admitted += spend(&limiter, 3).await;
            let dear = limiter.check_n("key", MOST + 5);
            admitted += match tokio::time::timeout(Duration::from_millis(3), dear).await {
                Ok(decision) if decision.is_allowed() => MOST + 5,
                _ => 0,
            };
        }
        // No further request is sent.
        until_async("all is told", async || limiter.stats().unsynced == 0).await;
        let counted = counted(&server).values().sum::<u64>();
        // The store may have counted more than was admitted, but never less.
        assert!(counted >= admitted && counted <= admitted + 5 * (MOST + 5), "{counted} for {admitted}");
    });
}

#[test]
fn a_limiter_goes_on_in_another_runtime_and_with_many_keys() {
    let server = Server::start();
    let limiter = Arc::new(limiter(&server.url(), Algorithm::SlidingWindow, AGES, SECOND));
    let admitted = Arc::new(AtomicU64::new(0));
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    for round in 0..3 {
        // Each runtime shuts down in the middle of a push.
        run(async {
            connected(&limiter).await;
            for key in 0..1000 {
                let key = format!("{round} {}", key % 700);
                admitted.fetch_add(u64::from(limiter.check(&key).await.is_allowed()), SeqCst);
                keys.lock().unwrap().push(key);
            }
        });
    }
    run(async {
        connected(&limiter).await;
        until_async("all is told", async || {
            limiter.flush().await;
            limiter.stats().unsynced == 0
        })
        .await;
    });
    let mut sum = 0;
    for (key, ttl) in server.keys_with_ttl() {
        assert!(ttl > 0, "{key}");
        let fields: BTreeMap<String, u64> = server.ask(&["HGETALL", &key]);
        sum += fields.iter().filter(|(field, _)| field.contains(':')).map(|(_, count)| count).sum::<u64>();
    }
    assert_eq!(sum, admitted.load(SeqCst));
}

#[test]
fn what_was_not_told_yet_is_given_back_and_a_reset_key_is_new() {
    on_server(async |server| {
        let limiter = limiter(&server.url(), Algorithm::FixedWindow, AGES, PATIENT);
        connected(&limiter).await;
        let charge = limiter.check_n("key", 5).await;
        limiter.refund("key", &charge).await;
        assert_eq!(limiter.stats().unsynced, 0);
        assert_eq!(spend(&limiter, LIMIT).await, LIMIT);
        assert!(!limiter.check("key").await.is_allowed());
        until_async("all is told", async || limiter.stats().unsynced == 0).await;
        limiter.reset("key").await.unwrap();
        assert!(limiter.check("key").await.is_allowed());
        let closed = Client::open("redis://127.0.0.1:1").unwrap();
        let open = SharedLimiter::<str>::builder(&closed, "x", Quota::per_hour(10))
            .algorithm(Algorithm::FixedWindow)
            .max_unsynced(2)
            .when_unavailable(WhenUnavailable::Allow)
            .build()
            .unwrap();
        assert_eq!(spend(&open, 20).await, 20);
    });
}

/// Returns a time three periods ahead.
fn ahead() -> Tick {
    Tick::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + 3 * AGES)
}

#[test]
fn a_machine_whose_clock_is_ahead_deletes_no_counts() {
    on_server(async |server| {
        let [here, there] = [0, 1].map(|_| limiter(&server.url(), Algorithm::FixedWindow, AGES, PATIENT));
        connected(&here).await;
        connected(&there).await;
        assert_eq!(spend(&here, 100).await, 100);
        until_async("all is told", async || here.stats().unsynced == 0).await;
        assert_eq!(spend(&there.at(ahead()), 1).await, 1);
        until_async("all is told", async || there.stats().unsynced == 0).await;
        assert_eq!(counted(&server).into_values().collect::<Vec<_>>(), [100, 1]);
    });
}

#[test]
fn a_reset_removes_the_counts_at_the_handles_time() {
    on_server(async |server| {
        let limiter = limiter(&server.url(), Algorithm::FixedWindow, AGES, PATIENT);
        connected(&limiter).await;
        let limiter = limiter.at(ahead());
        assert_eq!(spend(&limiter, LIMIT).await, LIMIT);
        assert!(!limiter.check("key").await.is_allowed());
        limiter.reset("key").await.unwrap();
        assert!(limiter.check("key").await.is_allowed());
    });
}

#[test]
fn a_reset_at_a_time_also_removes_the_present_counts() {
    on_server(async |server| {
        let limiter = limiter(&server.url(), Algorithm::FixedWindow, AGES, PATIENT);
        connected(&limiter).await;
        assert_eq!(spend(&limiter, 5).await, 5);
        until_async("all is told", async || limiter.stats().unsynced == 0).await;
        limiter.at(ahead()).reset("key").await.unwrap();
        assert_eq!(limiter.check("key").await.remaining(), LIMIT - 1);
        until_async("all is told", async || limiter.stats().unsynced == 0).await;
        assert_eq!(counted(&server).into_values().collect::<Vec<_>>(), [1]);
    });
}

#[test]
fn counts_that_a_reset_has_removed_are_not_told() {
    on_server(async |server| {
        let limiter = limiter(&server.url(), Algorithm::FixedWindow, AGES, PATIENT);
        connected(&limiter).await;
        assert_eq!(spend(&limiter, 5).await, 5);
        limiter.reset("key").await.unwrap();
        assert!(limiter.check("other").await.is_allowed());
        until_async("all is told", async || limiter.stats().unsynced == 0).await;
        assert_eq!(counted(&server).into_values().collect::<Vec<_>>(), [1]);
    });
}
