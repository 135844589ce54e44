//! Tests the requests that an operator sends to the metrics address, for health reports and key
//! states.

use super::running::{Proxy, until, within};
use super::shared::reaches_its_store;
use super::upstream::{Upstream, hello};
use super::wire::{Reply, asking, get, metric, metric_is, read_until, send};
use serde_json::{Value, json};
use tollgate_testing::store::server::Server;

async fn delete(proxy: &Proxy, path: &str) -> Reply {
    let request = format!("DELETE {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    send(proxy.metrics, &request).await
}

#[tokio::test]
async fn a_proxy_is_alive_and_ready_as_long_as_the_upstream_is() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &[]);
    assert_eq!(get(proxy.metrics, "/live", "").await.status, 200);
    let ready = get(proxy.metrics, "/ready", "").await;
    assert_eq!(ready.status, 200);
    assert_eq!(
        ready.json(),
        json!({ "ready": true, "draining": false, "upstream": "reachable", "store_problems": null })
    );
    drop(upstream);
    let ready = within(async {
        loop {
            let ready = get(proxy.metrics, "/ready", "").await;
            if ready.status != 200 {
                return ready;
            }
        }
    })
    .await;
    assert_eq!((ready.status, &ready.json()["ready"]), (503, &json!(false)), "{ready:?}");
    assert!(ready.json()["upstream"].as_str().unwrap().starts_with("unreachable: "), "{ready:?}");
    assert_eq!(get(proxy.metrics, "/live", "").await.status, 200);
}

#[tokio::test]
async fn a_proxy_that_ends_is_not_ready() {
    let (upstream, go) = super::operation::on_command().await;
    let mut proxy = Proxy::start(upstream.address, &[]);
    let mut client = asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 1.0).await;
    proxy.signal("TERM");
    until("it ends", || proxy.said().contains("ending: "));
    let ready = get(proxy.metrics, "/ready", "").await;
    assert_eq!((ready.status, &ready.json()["draining"]), (503, &json!(true)), "{ready:?}");
    assert_eq!(get(proxy.metrics, "/live", "").await.status, 200);
    go.notify_one();
    read_until(&mut client, "at last").await;
    assert!(proxy.ended().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_told_and_counts_where_it_is_needed() {
    let upstream = Upstream::start(hello).await;
    for (policy, away) in [("deny", 503), ("local", 200)] {
        let store = Server::start();
        let url = store.url();
        let args = ["--limit", "a=9/h by ip", "--redis", &url, "--redis-when-unavailable", policy];
        let proxy = Proxy::start(upstream.address, &args);
        reaches_its_store(&proxy).await;
        assert_eq!(get(proxy.metrics, "/ready", "").await.status, 200);
        store.kill();
        let ready = within(async {
            loop {
                let ready = get(proxy.metrics, "/ready", "").await;
                if ready.json()["store_problems"] != json!([]) {
                    return ready;
                }
            }
        })
        .await;
        assert_eq!(ready.status, away, "{policy}: {ready:?}");
    }
}

#[tokio::test]
async fn the_limits_are_listed() {
    let upstream = Upstream::start(hello).await;
    let limits = ["--limit", "all=9/h by nothing", "--limit", "per-ip=2/h by ip", "--shadow", "per-ip"];
    let proxy = Proxy::start(upstream.address, &limits);
    get(proxy.address, "/", "").await;
    let listed = get(proxy.metrics, "/limits", "").await.json();
    let [all, per_ip] = &listed["limits"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&all["name"], &all["key"], &all["keys"]), (&json!("all"), &json!(null), &json!(null)));
    let expected = json!({
        "name": "per-ip", "quota": "2/h", "classes": {}, "key": "ip", "algorithm": "token-bucket",
        "penalty_seconds": null, "shadow": true, "shared": false, "keys": 1, "decisions": 1,
    });
    assert_eq!(*per_ip, expected);
    assert_eq!(get(proxy.metrics, "/limits/per-ip", "").await.json(), expected);
}

#[tokio::test]
async fn a_refused_client_stays_refused_for_its_penalty() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "per-ip=2/s by ip then pause 10min"]);
    assert_eq!(get(proxy.metrics, "/limits/per-ip", "").await.json()["penalty_seconds"], 600.0);
    while get(proxy.address, "/", "").await.status == 200 {}
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    let refused = get(proxy.address, "/", "").await;
    let wait: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!(refused.status == 429 && (590..600).contains(&wait), "{refused:?}");
    assert_eq!(
        metric(proxy.metrics, "tollgate_decisions_total{limit=\"per-ip\",outcome=\"paused\"}").await,
        1.0
    );
    let state = get(proxy.metrics, "/limits/per-ip/keys/127.0.0.1", "").await.json();
    assert!(state["retry_after_seconds"].as_f64().unwrap() > 590.0, "{state}");
    assert_eq!(delete(&proxy, "/limits/per-ip/keys/127.0.0.1").await.status, 204);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
}

#[tokio::test]
async fn a_limit_of_several_rates_is_described_by_its_parts() {
    let upstream = Upstream::start(hello).await;
    let limits = ["--limit", "api=9/s and 99/h by ip for /api/{*path}", "--limit", "all=9/h by ip"];
    let proxy = Proxy::start(upstream.address, &limits);
    get(proxy.address, "/", "").await;
    let listed = get(proxy.metrics, "/limits/api", "").await.json();
    let names: Vec<_> = listed["limits"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["api-per-s", "api-per-h"]);
    // A limit that has matched no request is seen here and in the metrics.
    assert_eq!(listed["limits"][0]["decisions"], 0);
    let matched = "tollgate_decisions_total{limit=\"api-per-s\",outcome=\"allowed\"}";
    assert_eq!(metric(proxy.metrics, matched).await, 0.0);
    let key = get(proxy.metrics, "/limits/api/keys/127.0.0.1", "").await;
    assert_eq!(key.status, 400);
    assert!(key.body.contains("name one of api-per-s, api-per-h"), "{key:?}");
}

#[tokio::test]
async fn the_state_of_a_key_is_read_and_reset() {
    let upstream = Upstream::start(hello).await;
    for algorithm in tollgate::Algorithm::ALL {
        let algorithm = algorithm.to_string();
        // The windows are years long, so none ends during the test.
        let args = ["--limit", "per-ip=2/1000d by ip", "--algorithm", &algorithm];
        let proxy = Proxy::start(upstream.address, &args);
        let path = "/limits/per-ip/keys/127.0.0.1";
        let remaining = async || get(proxy.metrics, path, "").await.json()["remaining"].clone();
        let fresh = remaining().await;
        while get(proxy.address, "/", "").await.status == 200 {}
        let state = get(proxy.metrics, path, "").await.json();
        assert_eq!(
            (&state["allowed"], &state["remaining"]),
            (&json!(false), &json!(0)),
            "{algorithm}: {state}"
        );
        assert!(state["retry_after_seconds"].as_f64().unwrap() > 60.0, "{algorithm}: {state}");
        assert_eq!(delete(&proxy, path).await.status, 204);
        assert_eq!(remaining().await, fresh, "{algorithm}");
        assert_eq!(get(proxy.address, "/", "").await.status, 200, "{algorithm}");
    }
}

#[tokio::test]
async fn a_key_with_requests_in_flight_has_no_time_of_reset() {
    let (upstream, go) = super::operation::on_command().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1 at once by ip"]);
    let mut client = asking(proxy.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    metric_is(proxy.metrics, "tollgate_requests_in_flight", 1.0).await;
    let path = "/limits/a/keys/127.0.0.1";
    let state = get(proxy.metrics, path, "").await.json();
    let times = |state: &Value| [state["retry_after_seconds"].clone(), state["reset_after_seconds"].clone()];
    assert_eq!((&state["allowed"], times(&state)), (&json!(false), [json!(null), json!(null)]), "{state}");
    go.notify_one();
    read_until(&mut client, "at last").await;
    let state = within(async {
        loop {
            let state = get(proxy.metrics, path, "").await.json();
            if state["allowed"] == json!(true) {
                return state;
            }
        }
    })
    .await;
    assert_eq!(times(&state), [json!(0.0), json!(0.0)], "{state}");
}

#[tokio::test]
async fn a_limit_without_keys_has_one_state() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "all=1/h by nothing"]);
    assert_eq!(get(proxy.metrics, "/limits/all", "").await.json()["remaining"], json!(1));
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    assert_eq!(get(proxy.metrics, "/limits/all", "").await.json()["remaining"], json!(0));
    assert_eq!(delete(&proxy, "/limits/all").await.status, 204);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
}

#[tokio::test]
async fn keys_of_several_parts_and_alternatives_are_found_as_requests_find_them() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(
        upstream.address,
        &[
            "--limit",
            "page=9/h by ip+path",
            "--limit",
            "api=9/h by header x-api-key or ip",
            "--limit",
            "user=9/h by query user+method else allow",
        ],
    );
    get(proxy.address, "/a+b/c?user=one%20two", "X-Api-Key: k 1\r\n").await;
    get(proxy.address, "/other", "").await;
    get(proxy.address, "/<\"`", "").await;
    get(proxy.address, "/what%3F", "").await;
    for (path, remaining) in [
        ("/limits/page/keys/127.0.0.1+%2Fa%2Bb%2Fc", 8),
        ("/limits/page/keys/127.0.0.1+%2F%3C%22%60", 8),
        ("/limits/page/keys/127.0.0.1+%2F%253c%2522%2560", 8),
        ("/limits/page/keys/127.0.0.1+%2Fwhat%3F", 8),
        ("/limits/page/keys/127.0.0.1+%2F", 9),
        ("/limits/api/keys/k%201", 8),
        ("/limits/api/keys/k%201?alternative=1", 8),
        ("/limits/api/keys/127.0.0.1?alternative=2", 6),
        ("/limits/api/keys/127.0.0.1", 9),
        ("/limits/user/keys/one%20two+GET", 8),
        ("/limits/user/keys/one+POST", 9),
    ] {
        let state = get(proxy.metrics, path, "").await;
        assert_eq!(state.status, 200, "{path}: {state:?}");
        assert_eq!(state.json()["remaining"], json!(remaining), "{path}");
    }
}

#[tokio::test]
async fn keys_that_are_not_utf8_are_read_and_reset() {
    let upstream = Upstream::start(hello).await;
    let limits = ["--limit", "h=9/h by header x-api-key", "--limit", "q=9/h by query user+path"];
    let proxy = Proxy::start(upstream.address, &limits);
    let request = b"GET /a%ff?user=%fe%20b HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\xff\xc3\xa4\r\n\r\n";
    let mut client = asking(proxy.address, request).await;
    read_until(&mut client, "hello").await;
    for path in ["/limits/h/keys/k%ff%c3%a4", "/limits/q/keys/%fe%20b+%2Fa%ff"] {
        let state = get(proxy.metrics, path, "").await;
        assert_eq!((state.status, &state.json()["remaining"]), (200, &json!(8)), "{path}: {state:?}");
        assert_eq!(delete(&proxy, path).await.status, 204);
        assert_eq!(get(proxy.metrics, path, "").await.json()["remaining"], json!(9), "{path}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_a_problem_with_the_reason() {
    let upstream = Upstream::start(hello).await;
    let limits = ["--limit", "all=9/h by nothing", "--limit", "page=2/h by ip+path"];
    let proxy = Proxy::start(upstream.address, &limits);
    for (path, status, part) in [
        ("/", 404, "/limits/NAME/keys/KEY"),
        ("/limits/none", 404, "no limit `none`"),
        ("/limits/%1b%5b2J", 404, "no limit `\\u{1b}[2J`"),
        ("/limits/page/keys/127.0.0.1", 400, "has 2 parts"),
        ("/limits/page/keys/here+%2F", 400, "`here` is not an address"),
        ("/limits/page/keys/127.0.0.1+a", 400, "`a` is not a path"),
        (
            "/limits/page/keys/127.0.0.1+%2F?alternative=2",
            400,
            "has no alternatives: leave `alternative` out",
        ),
        ("/limits/page/keys/127.0.0.1+%2F?class=paid", 400, "has no classes: leave `class=paid` out"),
        ("/limits/page/keys/%ff+%2F", 400, "`\\xff` is not an address"),
        ("/limits/%ff/keys/a", 400, "UTF-8"),
        ("/limits/all/keys/1", 400, "has no keys"),
    ] {
        let reply = get(proxy.metrics, path, "").await;
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        assert!(reply.json()["detail"].as_str().unwrap().contains(part), "{path}: {reply:?}");
    }
    let reply = delete(&proxy, "/limits/page").await;
    assert_eq!(reply.status, 400, "{reply:?}");
    let reply = delete(&proxy, "/metrics").await;
    assert_eq!((reply.status, reply.field("allow")), (405, Some("GET, HEAD")));
    // Clients cannot reach /limits.
    assert_eq!(get(proxy.address, "/limits", "").await.body, "hello");
}
