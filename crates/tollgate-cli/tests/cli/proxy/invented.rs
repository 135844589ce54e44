//! Tests that a client cannot lock out others with invented keys. If a limit does not prevent this,
//! the proxy must log a warning.

use super::config::file;
use super::running::{Proxy, until};
use super::upstream::{Upstream, hello};
use super::wire::{Reply, get, metric};
use std::fs;

/// Sends a request from a client at this address, with or without a key.
async fn ask(proxy: &Proxy, address: &str, key: &str) -> Reply {
    let key = if key.is_empty() { String::new() } else { format!("X-Api-Key: {key}\r\n") };
    get(proxy.address, "/", &format!("X-Forwarded-For: {address}\r\n{key}")).await
}

/// Starts a proxy with a limit by `key` and room for a thousand keys. Then sends a thousand
/// requests with invented keys.
async fn attacked(upstream: &Upstream, key: &str) -> Proxy {
    let limit = format!("per-key=10/h by {key}");
    let args = ["--limit", &limit, "--max-keys", "1000", "--trust", "127.0.0.0/8"];
    let proxy = Proxy::start(upstream.address, &args);
    for number in 0..1000 {
        ask(&proxy, "203.0.113.66", &format!("made-up-{number}")).await;
    }
    proxy
}

#[tokio::test]
async fn a_thousand_made_up_keys_lock_nobody_out() {
    let upstream = Upstream::start(hello).await;
    let keys = file("known_keys", "# customers\ncustomer\n");
    let proxy = attacked(&upstream, &format!("header x-api-key known {keys} or ip")).await;
    let inventor = ask(&proxy, "203.0.113.66", "another").await;
    assert_eq!(inventor.status, 429);
    assert!(inventor.field("retry-after").is_some(), "{inventor:?}");
    assert_eq!(ask(&proxy, "192.0.2.1", "").await.status, 200);
    assert_eq!(ask(&proxy, "203.0.113.66", "customer").await.status, 200);
    assert_eq!(metric(proxy.metrics, "tollgate_keys{limit=\"per-key\"}").await, 3.0);
    assert!(!proxy.said().contains("warning"), "{}", proxy.said());
    let state = get(proxy.metrics, "/limits/per-key/keys/customer", "").await;
    assert_eq!(state.json()["remaining"], 9, "{state:?}");
}

#[tokio::test]
async fn a_full_table_is_told_apart_and_such_a_limit_is_warned_of() {
    let upstream = Upstream::start(hello).await;
    let proxy = attacked(&upstream, "header x-api-key or ip").await;
    let warning = " WARN limit per-key counts by header `x-api-key`, which any client can invent";
    assert!(proxy.said().contains(warning), "{}", proxy.said());
    assert!(proxy.said().contains("uses up that client's quota"), "{}", proxy.said());
    let refused = ask(&proxy, "192.0.2.1", "").await;
    assert_eq!((refused.status, refused.field("retry-after")), (429, None));
    assert_eq!(
        (&refused.json()["error"], &refused.json()["max_keys"]),
        (&"capacity_reduced".into(), &1000.into())
    );
    assert_eq!(ask(&proxy, "192.0.2.2", "").await.status, 429);
    let outcome =
        |outcome: &str| format!("tollgate_decisions_total{{limit=\"per-key\",outcome=\"{outcome}\"}}");
    assert_eq!(metric(proxy.metrics, &outcome("full")).await, 2.0);
    assert_eq!(metric(proxy.metrics, &outcome("denied")).await, 0.0);
    until("it says so", || {
        proxy.said().contains("limit per-key: as many keys are tracked as --max-keys allows")
    });
    assert_eq!(proxy.said().matches("as many keys are tracked").count(), 1, "at most once a minute");
}

#[tokio::test]
async fn the_file_of_known_keys_is_read_again_by_a_reload() {
    let upstream = Upstream::start(hello).await;
    let keys = file("known_keys_reloaded", "one\n");
    let limit = format!("a=9/h by header x-api-key known {keys}");
    let proxy = Proxy::start(upstream.address, &["--limit", &limit]);
    let status = async |key: &str| get(proxy.address, "/", &format!("X-Api-Key: {key}\r\n")).await.status;
    assert_eq!((status("one").await, status("two").await), (200, 403));
    fs::write(&keys, "two\n").unwrap();
    proxy.signal("HUP");
    until("it is reloaded", || proxy.said().contains(" INFO reloaded"));
    assert_eq!((status("one").await, status("two").await), (403, 200));
    // With a file that is empty by mistake, all keys would be unknown.
    fs::write(&keys, "").unwrap();
    proxy.signal("HUP");
    until("it is refused", || {
        proxy.said().contains("nothing is reloaded: --limit 'a': known keys: the file")
    });
    assert_eq!(status("two").await, 200);
}
