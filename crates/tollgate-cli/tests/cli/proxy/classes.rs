//! Tests classes of callers. A trusted proxy's header or a file of keys determines a caller's
//! class.

use super::config::file;
use super::running::{Proxy, until};
use super::upstream::{Upstream, hello};
use super::wire::{Reply, get, metric, send};
use serde_json::json;
use std::fs;
use tollgate_testing::store::server::Server;

/// Each address may send two requests an hour, and each paying caller may send four.
const TIERS: &str = "tier=2/h class paid 4/h by ip";

/// Returns the quota that a response shows.
fn quota(reply: &Reply) -> &str {
    let policy = reply.field("ratelimit-policy").unwrap_or_else(|| panic!("{reply:?}"));
    policy.strip_prefix("\"tier\";q=").and_then(|rest| rest.strip_suffix(";w=3600")).expect(policy)
}

/// Sends a request with an API key.
async fn with_key(proxy: &Proxy, key: &str) -> Reply {
    get(proxy.address, "/", &format!("X-Api-Key: {key}\r\n")).await
}

/// Reloads a proxy's settings. The reload must fail with the message `refused`, or succeed if
/// `refused` is `None`.
fn reload(proxy: &Proxy, times: usize, refused: Option<&str>) {
    proxy.signal("HUP");
    let said = refused.unwrap_or(" INFO reloaded");
    until("it is reloaded or refused", || proxy.said().matches(said).count() == times);
}

#[tokio::test]
async fn a_header_of_a_trusted_hop_names_the_class() {
    let upstream = Upstream::start(hello).await;
    let limit = format!("{TIERS} class by header x-plan");
    let paid = |address: &str| format!("X-Forwarded-For: {address}\r\nX-Plan: paid\r\n");
    let proxy = Proxy::start(upstream.address, &["--limit", &limit, "--trust", "127.0.0.0/8"]);
    assert_eq!(quota(&get(proxy.address, "/", &paid("192.0.2.1")).await), "4");
    assert_eq!(quota(&get(proxy.address, "/", "X-Forwarded-For: 192.0.2.2\r\n").await), "2");
    assert!(
        proxy.said().contains("limit tier: 2/h class paid 4/h by ip class by header x-plan, token-bucket"),
        "{}",
        proxy.said()
    );
    // In this case, the client is not a trusted proxy.
    let proxy = Proxy::start(upstream.address, &["--limit", &limit, "--trust", "10.0.0.0/8"]);
    assert_eq!(quota(&get(proxy.address, "/", &paid("192.0.2.1")).await), "2");
    assert!(!proxy.said().contains("warning"), "{}", proxy.said());
}

#[tokio::test]
async fn a_file_has_the_classes_of_keys_and_is_read_again_by_a_reload() {
    let upstream = Upstream::start(hello).await;
    let plans = file("class_plans", "# customers\none,paid\n");
    let limit =
        format!("tier=2/h class paid 4/h by header x-api-key or ip class by header x-api-key in {plans}");
    let proxy = Proxy::start(upstream.address, &["--limit", &limit]);
    assert_eq!((quota(&with_key(&proxy, "one").await), quota(&with_key(&proxy, "two").await)), ("4", "2"));
    fs::write(&plans, "two,paid\n").unwrap();
    reload(&proxy, 1, None);
    assert_eq!((quota(&with_key(&proxy, "one").await), quota(&with_key(&proxy, "two").await)), ("2", "4"));
    // If the proxy accepted one of these faulty files, paying callers would move to the default
    // class.
    for (text, refused) in [
        ("", "nothing is reloaded: --limit 'tier': classes of keys: the file"),
        ("two", "nothing is reloaded: --limit 'tier': classes of keys: line 1 of the file"),
        (
            "two,gold",
            "nothing is reloaded: --limit 'tier': the file has the class `gold`, which the limit does not",
        ),
    ] {
        fs::write(&plans, text).unwrap();
        reload(&proxy, 1, Some(refused));
        assert_eq!(quota(&with_key(&proxy, "two").await), "4", "{text}");
    }
}

#[tokio::test]
async fn a_reload_changes_the_quota_of_a_class_and_keeps_what_was_used() {
    let upstream = Upstream::start(hello).await;
    let plans = file("class_plans_reloaded", "one,paid\n");
    let settings = |classes: &str| {
        format!(
            "limit = [\n\"tier=2/h {classes} by header x-api-key class by header x-api-key in {plans}\"\n]\n"
        )
    };
    for algorithm in ["token-bucket", "sliding-log"] {
        let name = format!("classes_{algorithm}.toml");
        let path = file(&name, &settings("class paid 4/h"));
        let proxy = Proxy::start(upstream.address, &["--config", &path, "--algorithm", algorithm]);
        for _ in 0..4 {
            assert_eq!(with_key(&proxy, "one").await.status, 200);
        }
        assert_eq!(with_key(&proxy, "two").await.status, 200);
        // The reload raises the paying caller's quota from four tokens, all used, to six. The other
        // caller's quota is unchanged.
        fs::write(&path, settings("class paid 6/h")).unwrap();
        reload(&proxy, 1, None);
        let reply = with_key(&proxy, "one").await;
        assert_eq!(quota(&reply), "6");
        let left: u64 = reply.field("ratelimit").unwrap().split(['=', ';']).nth(2).unwrap().parse().unwrap();
        assert!(left < 3, "{algorithm}: the state was translated, not forgotten: {left}");
        assert_eq!(with_key(&proxy, "two").await.status, 200);
        assert_eq!(with_key(&proxy, "two").await.status, 429);
        // A limit with different classes is a new limit.
        fs::write(&path, settings("class paid 6/h class gold 9/h")).unwrap();
        reload(&proxy, 2, None);
        assert_eq!(with_key(&proxy, "two").await.status, 200);
        // A class that cannot be enforced must not change anything.
        fs::write(&path, settings("class paid 6/h class gold 0/h")).unwrap();
        reload(&proxy, 1, Some("`0/h` allows no request"));
        assert_eq!(with_key(&proxy, "two").await.status, 200);
        assert_eq!(with_key(&proxy, "two").await.status, 429);
    }
}

#[tokio::test]
async fn a_reload_reads_the_file_of_keys_and_forgets_nobody_else() {
    let upstream = Upstream::start(hello).await;
    let plans = file("customers_reloaded.csv", "one,paid\ntwo,default\n");
    let text = format!(
        "limit = [\"tier=2/h class paid 4/h by header x-api-key known else allow class by key in {plans}\"]\n"
    );
    let path = file("customers_reloaded.toml", &text);
    let proxy = Proxy::start(upstream.address, &["--config", &path]);
    for status in [200, 200, 429] {
        assert_eq!(with_key(&proxy, "two").await.status, status);
    }
    assert_eq!(quota(&with_key(&proxy, "one").await), "4");
    assert!(with_key(&proxy, "three").await.field("ratelimit").is_none(), "it is not known");
    // Giving a key its own quota adds a class. The other keys keep their states.
    fs::write(&plans, "one,5/h\ntwo,default\nthree,default\n").unwrap();
    reload(&proxy, 1, None);
    assert_eq!(quota(&with_key(&proxy, "one").await), "5");
    assert_eq!(with_key(&proxy, "two").await.status, 429);
    assert_eq!(quota(&with_key(&proxy, "three").await), "2");
    // A file that cannot be read must not change anything.
    fs::write(&plans, "one,gold\n").unwrap();
    let refused = format!(
        "{path}:1: --limit 'tier': the file has the class `gold`, which the limit does not have: expected default, \
         paid, or a quota such as 100/s"
    );
    reload(&proxy, 1, Some(&refused));
    assert_eq!(with_key(&proxy, "two").await.status, 429);
}

#[tokio::test]
async fn operators_see_classes_and_reset_a_key_in_one() {
    let upstream = Upstream::start(hello).await;
    let limit = format!("{TIERS} class by header x-plan");
    let proxy = Proxy::start(upstream.address, &["--limit", &limit, "--trust-hops", "1"]);
    let paid = "X-Forwarded-For: 192.0.2.1\r\nX-Plan: paid\r\n";
    for status in [200, 200, 200, 200, 429] {
        assert_eq!(get(proxy.address, "/", paid).await.status, status);
    }
    assert_eq!(get(proxy.address, "/", "X-Forwarded-For: 192.0.2.1\r\n").await.status, 200);
    let described = get(proxy.metrics, "/limits/tier", "").await.json();
    assert_eq!((&described["classes"], &described["keys"]), (&json!({ "paid": "4/h" }), &json!(2)));
    let key = "/limits/tier/keys/192.0.2.1";
    let left = async |query: &str| {
        get(proxy.metrics, &format!("{key}{query}"), "").await.json()["remaining"].clone()
    };
    assert_eq!((left("").await, left("?class=paid").await), (json!(1), json!(0)));
    let unknown = get(proxy.metrics, &format!("{key}?class=gold"), "").await;
    assert_eq!(unknown.status, 400);
    let expected = "The limit has no class `gold`: expected one of default, paid; without a class, the default class is \
         meant.";
    assert_eq!(unknown.json()["detail"], expected);
    assert_eq!(get(proxy.metrics, &format!("{key}?kind=paid"), "").await.status, 400);
    let reset =
        format!("DELETE {key}?alternative=1&class=paid HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(send(proxy.metrics, &reset).await.status, 204);
    assert_eq!((left("").await, left("?class=paid").await), (json!(1), json!(4)));
    let decisions =
        async |labels: &str| metric(proxy.metrics, &format!("tollgate_decisions_total{{{labels}}}")).await;
    assert_eq!(decisions("limit=\"tier\",class=\"paid\",outcome=\"denied\"").await, 1.0);
    assert_eq!(decisions("limit=\"tier\",class=\"paid\",outcome=\"allowed\"").await, 4.0);
    assert_eq!(decisions("limit=\"tier\",class=\"default\",outcome=\"allowed\"").await, 1.0);
    assert_eq!(metric(proxy.metrics, "tollgate_keys_max{limit=\"tier\",class=\"paid\"}").await, 500_000.0);
    assert_eq!(metric(proxy.metrics, "tollgate_keys_max{limit=\"tier\",class=\"default\"}").await, 500_000.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_share_the_classes_of_a_limit() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    let url = store.url();
    let limit = format!("{TIERS} class by header x-plan");
    let args = ["--limit", &limit, "--trust-hops", "1", "--redis", &url, "--redis-deadline", "10s"];
    let proxies = [0, 1].map(|_| Proxy::start(upstream.address, &args));
    for proxy in &proxies {
        super::shared::reaches_its_store(proxy).await;
    }
    let mut statuses = Vec::new();
    for at in 0..5 {
        let reply = get(proxies[at % 2].address, "/", "X-Plan: paid\r\n").await;
        assert_eq!(quota(&reply), "4");
        statuses.push(reply.status);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    assert_eq!(quota(&get(proxies[0].address, "/", "").await), "2");
    let key = "/limits/tier/keys/127.0.0.1";
    let left = async |query: &str| {
        get(proxies[1].metrics, &format!("{key}{query}"), "").await.json()["remaining"].clone()
    };
    assert_eq!((left("").await, left("?class=paid").await), (json!(1), json!(0)));
    let reset = format!("DELETE {key}?class=paid HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(send(proxies[0].metrics, &reset).await.status, 204);
    assert_eq!((left("").await, left("?class=paid").await), (json!(1), json!(4)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_counts_nothing_has_no_state_to_read_or_reset() {
    let upstream = Upstream::start(hello).await;
    let store = Server::start();
    let url = store.url();
    let plans = file("class_uncounted.csv", "one,paid\n");
    let redis = ["--redis", &url, "--redis-deadline", "10s"];
    for (shared, quota) in [(&[][..], "2/h"), (&redis, "2/h"), (&redis, "2 at once")] {
        let limit = format!(
            "tier={quota} class paid unlimited class out blocked by header x-api-key class by key in {plans}"
        );
        let proxy = Proxy::start(upstream.address, &[&["--limit", &limit], shared].concat());
        if !shared.is_empty() {
            super::shared::reaches_its_store(&proxy).await;
        }
        // The key is also used in the default class, whose state must stay.
        assert_eq!(with_key(&proxy, "two").await.status, 200);
        let key = "/limits/tier/keys/two";
        let left = async |query: &str| {
            get(proxy.metrics, &format!("{key}{query}"), "").await.json()["remaining"].clone()
        };
        let before = if quota == "2/h" { json!(1) } else { json!(2) };
        for (class, says) in [("paid", "unlimited"), ("out", "blocked")] {
            for method in ["GET", "DELETE"] {
                let request =
                    format!("{method} {key}?class={class} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
                let reply = send(proxy.metrics, &request).await;
                assert_eq!(reply.status, 400, "{shared:?} {quota} {method} {class}: {reply:?}");
                let detail = format!("The limit counts nothing here: it says `{says}`.");
                assert_eq!(reply.json()["detail"], *detail, "{shared:?} {quota} {method} {class}");
            }
        }
        assert_eq!((left("").await, left("?class=default").await), (before.clone(), before));
        store.command(&["FLUSHALL"]);
    }
}
