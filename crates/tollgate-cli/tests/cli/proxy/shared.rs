//! Tests limits that several proxies share through a store.

use super::running::{Proxy, until};
use super::upstream::{Upstream, as_asked, hello};
use super::wire::{asking, get, grpc, metric, metric_is};
use serde_json::json;
use std::time::Duration;
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::until_async;

/// Starts a proxy that counts its limits in `store`.
fn sharing(upstream: &Upstream, store: &Server, more: &[&str]) -> Proxy {
    let url = store.url();
    // Even on a busy machine, the store answers within this deadline. Otherwise, a proxy would
    // decide alone. The windows are years long, so none ends during the test.
    let options = ["--limit", "per-ip=4/1000d by ip", "--redis", &url, "--redis-deadline", "10s"];
    Proxy::start(upstream.address, &[&options[..], more].concat())
}

/// Waits until a proxy has reached its store. On a busy machine, the first attempt may fail.
pub(crate) async fn reaches_its_store(proxy: &Proxy) {
    until_async("the store is reached", async || {
        get(proxy.metrics, "/ready", "").await.json()["store_problems"] == json!([])
    })
    .await;
}

async fn statuses(proxies: &[&Proxy], times: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for at in 0..times {
        statuses.push(get(proxies[at % proxies.len()].address, "/", "").await.status);
    }
    statuses
}

async fn count(proxy: &Proxy, name: &str) -> f64 {
    metric(proxy.metrics, &format!("tollgate_{name}{{limit=\"per-ip\"}}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_proxies_enforce_one_limit_and_go_on_alone_when_the_store_is_gone() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    let (one, other) =
        (sharing(&upstream, &store, &[]), sharing(&upstream, &store, &["--redis-share", "0.25"]));
    reaches_its_store(&one).await;
    reaches_its_store(&other).await;
    assert_eq!(statuses(&[&one, &other], 6).await, [200, 200, 200, 200, 429, 429]);
    let refused = get(one.address, "/", "").await;
    assert_eq!(refused.field("ratelimit-policy"), Some("\"per-ip\";q=4;w=86400000"));
    assert!(refused.field("retry-after").is_some(), "{refused:?}");
    assert_eq!(count(&one, "shared_by_store_total").await, 4.0);

    // Each proxy has admitted two requests. Without the store, the first proxy's quota is four, so
    // it admits two more. The second proxy's share is a quota of one, so it admits none.
    store.kill();
    assert_eq!(statuses(&[&one], 3).await, [200, 200, 429]);
    assert_eq!(statuses(&[&other], 1).await, [429]);
    assert!(count(&one, "shared_by_fallback_total").await >= 3.0);
    assert!(count(&one, "store_breaker_trips_total").await >= 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_count_only_responses_with_certain_statuses_together() {
    let upstream = Upstream::start(as_asked).await;
    let store = Server::start();
    let failures = ["--charge-if", "per-ip=401"];
    let proxies = [(); 2].map(|()| sharing(&upstream, &store, &failures));
    for proxy in &proxies {
        reaches_its_store(proxy).await;
    }
    let mut statuses = Vec::new();
    for (number, answer) in [401, 200, 200, 401, 401, 200, 200, 401, 200, 200].into_iter().enumerate() {
        statuses.push(get(proxies[number % 2].address, &format!("/{answer}"), "").await.status);
    }
    assert_eq!(statuses, [401, 200, 200, 401, 401, 200, 200, 401, 429, 429]);
}

/// The quota of a second refills, but a client that one proxy has refused stays refused by both.
#[tokio::test(flavor = "multi_thread")]
async fn a_penalty_of_one_proxy_holds_for_the_other() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    let url = store.url();
    let limit = ["--limit", "per-ip=2/s by ip then pause 10min"];
    let options = [&limit[..], &["--redis", &url, "--redis-deadline", "10s"]].concat();
    let proxies = [(); 2].map(|()| Proxy::start(upstream.address, &options));
    for proxy in &proxies {
        reaches_its_store(proxy).await;
    }
    while get(proxies[0].address, "/", "").await.status == 200 {}
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let refused = get(proxies[1].address, "/", "").await;
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!(refused.status == 429 && (500..600).contains(&wait), "{refused:?}");
    let paused = "tollgate_decisions_total{limit=\"per-ip\",outcome=\"paused\"}";
    assert_eq!(metric(proxies[1].metrics, paused).await, 1.0);
}

/// A count that has been reported to the store cannot be given back.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_tells_later_warns_that_it_may_count_other_statuses() {
    let upstream = Upstream::start(as_asked).await;
    let store = Server::start();
    let warning = "limit per-ip: --charge-if may count other statuses, too";
    let unsynced = ["--redis-max-unsynced", "1", "--algorithm", "fixed-window"];
    let proxy = sharing(&upstream, &store, &[&unsynced[..], &["--charge-if", "per-ip=401"]].concat());
    assert!(proxy.said().contains(warning), "{}", proxy.said());
    reaches_its_store(&proxy).await;
    until_async("a success is counted", async || {
        get(proxy.address, "/200", "").await.field("ratelimit").is_some_and(|it| !it.contains("r=3"))
    })
    .await;
    for options in [&unsynced[..], &["--charge-if", "per-ip=401", "--redis-lease", "1"]] {
        let proxy = sharing(&upstream, &store, options);
        assert!(!proxy.said().contains(warning), "{options:?}: {}", proxy.said());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_leases_or_tells_later_shares_the_limit_too() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    for more in [&["--redis-lease", "2"][..], &["--redis-max-unsynced", "1", "--algorithm", "fixed-window"]] {
        let one = sharing(&upstream, &store, more);
        let other = sharing(&upstream, &store, more);
        reaches_its_store(&one).await;
        reaches_its_store(&other).await;
        let admitted = statuses(&[&one, &other], 12).await.iter().filter(|&&status| status == 200).count();
        // The second proxy may exceed the limit by as many tokens as the first proxy has not yet
        // reported.
        let most = if more.len() > 2 { 5 } else { 4 };
        assert!((4..=most).contains(&admitted), "{more:?}: {admitted}");
        store.command(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_starts_without_its_store_and_says_so() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    store.kill();
    let proxy = sharing(&upstream, &store, &["--redis-when-unavailable", "deny"]);
    assert_eq!(statuses(&[&proxy], 1).await, [503]);
    store.restart();
    until_async("the store is found", async || get(proxy.address, "/", "").await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_says_at_its_start_what_is_wrong_with_its_store() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    store.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    // On a busy machine, a proxy may fail to reach the store in time. Such an attempt is repeated.
    let starting = || sharing(&upstream, &store, &[]);
    let in_time = |proxy: &Proxy| !proxy.said().contains("no connection to ");
    let started = || (0..20).map(|_| starting()).find(in_time).expect("an attempt in time");
    let proxy = started();
    assert!(proxy.said().contains("limits are shared with all proxies"), "{}", proxy.said());
    assert!(proxy.said().contains(" WARN the maxmemory-policy of 127.0.0.1:"), "{}", proxy.said());
    store.command(&["ACL", "SETUSER", "default", "-evalsha"]);
    let proxy = started();
    assert!(proxy.said().contains("may not run the command `evalsha`"), "{}", proxy.said());
    assert!(proxy.said().contains("limits are not shared until the store answers"), "{}", proxy.said());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_lost_is_an_outcome_a_gauge_and_a_line_and_so_is_its_return() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    let proxy = sharing(&upstream, &store, &["--redis-when-unavailable", "deny"]);
    reaches_its_store(&proxy).await;
    assert_eq!(statuses(&[&proxy], 1).await, [200]);
    metric_is(proxy.metrics, "tollgate_store_up{limit=\"per-ip\"}", 1.0).await;
    store.kill();
    let refused = get(proxy.address, "/", "").await;
    assert_eq!((refused.status, refused.field("retry-after")), (503, None), "{refused:?}");
    assert_eq!(refused.json()["error"], "unavailable");
    let grpc = grpc(proxy.address).await;
    assert_eq!(grpc.field("grpc-status"), Some("14"), "{grpc:?}");
    let unavailable = "tollgate_decisions_total{limit=\"per-ip\",outcome=\"unavailable\"}";
    metric_is(proxy.metrics, unavailable, 2.0).await;
    metric_is(proxy.metrics, "tollgate_store_up{limit=\"per-ip\"}", 0.0).await;
    until("its loss is told", || {
        proxy.said().contains(" WARN the store is lost: no connection to 127.0.0.1:")
    });
    store.restart();
    until_async("the store is found", async || get(proxy.address, "/", "").await.status == 200).await;
    until("its return is told", || proxy.said().contains(" INFO the store is found: "));
    metric_is(proxy.metrics, "tollgate_store_up{limit=\"per-ip\"}", 1.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_refuses_is_lost_until_it_is_cured() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    let proxy = sharing(&upstream, &store, &["--redis-when-unavailable", "deny"]);
    reaches_its_store(&proxy).await;
    let count = |line: &str| proxy.said().matches(line).count();
    let faults: [(&[&str], &[&str]); 3] = [
        (&["CONFIG", "SET", "maxmemory", "1"], &["CONFIG", "SET", "maxmemory", "0"]),
        (&["ACL", "SETUSER", "default", "-evalsha"], &["ACL", "SETUSER", "default", "+evalsha"]),
        (&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"]),
    ];
    for (turn, (fault, cure)) in (1..).zip(faults) {
        store.command(fault);
        assert_eq!(statuses(&[&proxy], 1).await, [503], "{fault:?}");
        metric_is(proxy.metrics, "tollgate_store_up{limit=\"per-ip\"}", 0.0).await;
        until("its loss is told", || count(" WARN the store is lost: ") == turn);
        assert_eq!(get(proxy.metrics, "/ready", "").await.status, 503, "{fault:?}");
        // Nobody asks whether the store has returned.
        store.command(cure);
        until("its return is told", || count(" INFO the store is found: ") == turn);
        metric_is(proxy.metrics, "tollgate_store_up{limit=\"per-ip\"}", 1.0).await;
        assert_eq!(get(proxy.metrics, "/ready", "").await.status, 200, "{cure:?}");
    }
}

/// The store does not answer until the remaining requests have been cut off.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_cuts_off_requests_reports_its_counts() {
    let (upstream, _go) = super::operation::on_command().await;
    let store = Server::start();
    let unsynced = ["--redis-max-unsynced", "4", "--algorithm", "fixed-window"];
    let ending = [&unsynced[..], &["--shutdown-timeout", "100ms"]].concat();
    let mut one = sharing(&upstream, &store, &ending);
    reaches_its_store(&one).await;
    store.stop();
    let _client = asking(one.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    metric_is(one.metrics, "tollgate_requests_in_flight", 1.0).await;
    until("the request is admitted", || upstream.requests() == 1);
    one.signal("TERM");
    until("the request is cut off", || one.said().contains("1 requests were cut off"));
    // The proxy waits for the store, for at most the deadline.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(one.is_running());
    store.resume();
    assert_eq!(one.ended().code(), Some(0), "{}", one.said());
    assert_ne!(store.keys_with_ttl(), []);
}
