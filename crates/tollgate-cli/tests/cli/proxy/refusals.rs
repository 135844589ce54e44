//! Tests the fields and the body that the operator adds to refusals.

use super::config::file;
use super::running::{Proxy, until};
use super::upstream::{Upstream, hello};
use super::wire::{get, grpc};
use std::fs;

#[tokio::test]
async fn a_refusal_has_the_fields_and_the_body_of_the_operator_until_a_reload() {
    let upstream = Upstream::start(hello).await;
    let body = file("proxy_refusal.html", "<p>Too fast.");
    let settings = |fields: &str| {
        format!("limit = \"a=1/h by ip\"\nrefusal-body = \"{body}\"\nrefusal-field = [{fields}]\n")
    };
    let config = file("proxy_refusal.toml", &settings("\"Access-Control-Allow-Origin: *\", \"X-A: 1\""));
    let proxy = Proxy::start(upstream.address, &["--config", &config]);
    let passed = get(proxy.address, "/", "").await;
    assert_eq!((passed.status, passed.field("access-control-allow-origin")), (200, None));
    let refused = get(proxy.address, "/", "").await;
    assert_eq!((refused.status, &*refused.body), (429, "<p>Too fast."));
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("x-a", "1"),
        ("content-type", "text/html; charset=utf-8"),
        ("ratelimit-policy", "\"a\";q=1;w=3600"),
    ] {
        assert_eq!(refused.all(name), [value], "{name}");
    }
    assert!(refused.field("retry-after").is_some());
    let refused = grpc(proxy.address).await;
    assert_eq!(
        (refused.field("grpc-status"), &*refused.body, refused.field("x-a")),
        (Some("8"), "", Some("1"))
    );

    fs::write(&config, settings("\"X-A: 2\", \"Content-Type: text/x-note\"")).unwrap();
    fs::write(&body, "Wait.").unwrap();
    proxy.signal("HUP");
    until("it is reloaded", || proxy.said().contains(" INFO reloaded"));
    let refused = get(proxy.address, "/", "").await;
    assert_eq!((refused.status, &*refused.body), (429, "Wait."));
    assert_eq!((refused.all("x-a"), refused.all("content-type")), (vec!["2"], vec!["text/x-note"]));
    assert_eq!(refused.field("access-control-allow-origin"), None);
    let refused = grpc(proxy.address).await;
    assert_eq!((refused.all("x-a"), refused.all("content-type")), (vec!["2"], vec!["application/grpc"]));
}

#[tokio::test]
async fn fields_alone_leave_the_problem_in_json() {
    let upstream = Upstream::start(hello).await;
    let args = ["--limit", "a=1/h by ip", "--refusal-field", "Access-Control-Expose-Headers: Retry-After"];
    let proxy = Proxy::start(upstream.address, &args);
    assert_eq!(get(proxy.address, "/", "").await.status, 200);
    let refused = get(proxy.address, "/", "").await;
    assert_eq!((refused.status, &refused.json()["limit"]), (429, &"a".into()));
    assert_eq!(refused.field("access-control-expose-headers"), Some("Retry-After"));
}
