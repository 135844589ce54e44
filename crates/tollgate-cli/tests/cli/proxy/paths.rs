//! Tests that the proxy counts all spellings of a path together, but passes on each spelling
//! unchanged.

use super::running::Proxy;
use super::upstream::{Upstream, hello};
use super::wire::get;
use tollgate_testing::paths::PATHS;

#[tokio::test]
async fn every_spelling_of_a_path_is_counted_as_one_and_passed_on_as_it_came() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by header x-row+path"]);
    for (row, (sent, form)) in PATHS.into_iter().enumerate() {
        let status = async |path: &str| get(proxy.address, path, &format!("X-Row: {row}\r\n")).await.status;
        assert_eq!((status(form).await, status(sent).await), (200, 429), "{sent}");
        let passed = get(proxy.address, sent, &format!("X-Row: again-{row}\r\n")).await;
        let target = sent.strip_prefix("http://example.org").unwrap_or(sent);
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        assert!(passed.body.starts_with(&format!("GET {target} HTTP/1.1\n")), "{sent}: {passed:?}");
    }
}

#[tokio::test]
async fn a_path_is_skipped_in_any_spelling() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by nothing", "--except", "/health"]);
    for (path, status) in [("/", 200), ("/health", 200), ("//%68ealth", 200), ("/a/../health", 200)] {
        assert_eq!(get(proxy.address, path, "").await.status, status, "{path}");
    }
    assert_eq!(get(proxy.address, "/health/", "").await.status, 429);
}

#[tokio::test]
async fn templates_make_one_key_of_many_paths_also_for_operators() {
    let upstream = Upstream::start(hello).await;
    let templates = ["--path-template", "/users/{id}", "--path-template", "/files/{*path}"];
    let proxy = Proxy::start(upstream.address, &[&["--limit", "a=1/h by ip+path"][..], &templates].concat());
    for (path, status) in [
        ("/users/1", 200),
        ("/users/2", 429),
        ("/files/a/b", 200),
        ("/files/c", 429),
        ("/login", 200),
        ("/login;1", 429),
        ("/users/1/x", 429),
    ] {
        assert_eq!(get(proxy.address, path, "").await.status, status, "{path}");
    }
    for (path, remaining) in [("%2Fusers%2F9", 0), ("%2Fanything", 0)] {
        let state = get(proxy.metrics, &format!("/limits/a/keys/127.0.0.1+{path}"), "").await;
        assert_eq!(state.json()["remaining"], remaining, "{state:?}");
    }
    assert!(!proxy.said().contains("warning"), "{}", proxy.said());
}
