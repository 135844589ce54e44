//! Tests the limits' decisions, and the fields that report these decisions.

use super::running::{Proxy, until};
use super::upstream::{Upstream, as_asked, hello};
use super::wire::{get, metric, send};

#[tokio::test]
async fn what_the_limit_allows_passes_and_the_rest_never_reaches_the_upstream() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "per-ip=2/h by ip"]);
    for left in ["r=1", "r=0"] {
        let reply = get(proxy.address, "/a?b=c", "").await;
        assert_eq!(reply.status, 200, "{reply:?}");
        assert!(reply.body.starts_with("GET /a?b=c HTTP/1.1\n"), "{reply:?}");
        assert!(reply.field("ratelimit").unwrap().contains(left), "{reply:?}");
    }
    let reply = get(proxy.address, "/a", "").await;
    assert_eq!(reply.status, 429);
    assert_eq!(reply.field("ratelimit-policy"), Some("\"per-ip\";q=2;w=3600"));
    let wait: u64 = reply.field("retry-after").unwrap().parse().unwrap();
    assert!((1700..=1800).contains(&wait), "{wait}");
    assert_eq!(reply.field("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json()["violated-policies"][0], "per-ip");
    assert_eq!(upstream.requests(), 2);
}

#[tokio::test]
async fn several_limits_hold_at_once_and_are_charged_together() {
    let upstream = Upstream::start(hello).await;
    let limits = ["--limit", "all=3/h by nothing", "--limit", "per-path=1/h by ip+path"];
    let proxy = Proxy::start(upstream.address, &limits);
    let mut statuses = Vec::new();
    for path in ["/a", "/a", "/a", "/b", "/c", "/d"] {
        let reply = get(proxy.address, path, "").await;
        let violated = (reply.status == 429).then(|| reply.json()["violated-policies"].to_string());
        statuses.push((path, violated.unwrap_or_default()));
    }
    // If one limit refuses a request, the other limit must not be charged.
    let (path, all) = (r#"["per-path"]"#.to_owned(), r#"["all"]"#.to_owned());
    let expected = [("/a", String::new()), ("/a", path.clone()), ("/a", path), ("/b", String::new())];
    assert_eq!(statuses[..4], expected);
    assert_eq!(statuses[4..], [("/c", String::new()), ("/d", all)]);
    let decisions = |limit: &str, outcome: &str| {
        let name = format!("tollgate_decisions_total{{limit=\"{limit}\",outcome=\"{outcome}\"}}");
        async move { metric(proxy.metrics, &name).await }
    };
    assert_eq!((decisions("all", "allowed").await, decisions("all", "denied").await), (3.0, 1.0));
    assert_eq!((decisions("per-path", "allowed").await, decisions("per-path", "denied").await), (3.0, 2.0));
}

#[tokio::test]
async fn a_forged_x_forwarded_for_is_no_second_client() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &["--limit", "per-ip=1/h by ip"]);
    let mut statuses = Vec::new();
    for forged in ["192.0.2.1", "192.0.2.2", "127.0.0.1, 192.0.2.3"] {
        let fields =
            format!("X-Forwarded-For: {forged}\r\nForwarded: for={forged}\r\nX-Real-IP: {forged}\r\n");
        statuses.push(get(proxy.address, "/", &fields).await.status);
    }
    assert_eq!(statuses, [200, 429, 429]);
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_client_is_who_it_says_and_nobody_further_left() {
    let upstream = Upstream::start(hello).await;
    for trust in [["--trust", "127.0.0.0/8"], ["--trust-hops", "1"]] {
        let limit = ["--limit", "per-ip=1/h by ip"];
        let proxy = Proxy::start(upstream.address, &[&limit[..], &trust[..]].concat());
        let mut statuses = Vec::new();
        for said in ["192.0.2.1", "192.0.2.2", "198.51.100.7, 192.0.2.1"] {
            let fields = format!("X-Forwarded-For: {said}\r\n");
            statuses.push(get(proxy.address, "/", &fields).await.status);
        }
        assert_eq!(statuses, [200, 200, 429], "{trust:?}");
    }
}

#[tokio::test]
async fn the_forwarded_field_that_was_chosen_is_the_one_that_counts() {
    let upstream = Upstream::start(hello).await;
    let args = ["--limit", "a=1/h by ip", "--trust", "127.0.0.1", "--forwarded-field", "forwarded"];
    let proxy = Proxy::start(upstream.address, &args);
    let mut statuses = Vec::new();
    for (forwarded, other) in [("192.0.2.1", "1.1.1.1"), ("192.0.2.1", "2.2.2.2"), ("192.0.2.2", "1.1.1.1")] {
        let fields = format!("Forwarded: for={forwarded}\r\nX-Forwarded-For: {other}\r\n");
        statuses.push(get(proxy.address, "/", &fields).await.status);
    }
    assert_eq!(statuses, [200, 429, 200]);
}

#[tokio::test]
async fn behind_a_content_delivery_network_the_client_is_in_one_field() {
    let upstream = Upstream::start(hello).await;
    let field = ["--limit", "per-ip=1/h by ip", "--forwarded-field", "CF-Connecting-IP"];
    let statuses = async |trust: &[&str], said: &[&str]| {
        let proxy = Proxy::start(upstream.address, &[&field[..], trust].concat());
        let mut statuses = Vec::new();
        for said in said {
            let fields = format!("X-Forwarded-For: {said}\r\nCF-Connecting-IP: {said}\r\n");
            statuses.push(get(proxy.address, "/", &fields).await.status);
        }
        (statuses, proxy.said())
    };
    let clients =
        ["192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::1", "2001:db8::2:0:0:1", "192.0.2.3, ::1"];
    for trust in [["--trust", "127.0.0.0/8"], ["--trust-hops", "1"]] {
        let (statuses, said) = statuses(&trust, &clients).await;
        assert_eq!(statuses, [200, 200, 429, 200, 429, 403], "{trust:?}");
        assert!(!said.contains("has sent a request without the field"), "{said}");
    }
    // Without trust, the field is the client's own, and the client is the peer.
    for trust in [&[][..], &["--trust", "10.0.0.0/8"]] {
        assert_eq!(statuses(trust, &clients[..3]).await.0, [200, 429, 429], "{trust:?}");
    }
}

#[tokio::test]
async fn a_field_in_which_no_trusted_proxy_reports_clients_is_a_warning() {
    let upstream = Upstream::start(hello).await;
    let warning = " WARN --forwarded-field x-real-ip names the client to the upstream only, because no proxy is trusted";
    let field = ["--forwarded-field", "X-Real-IP"];
    for (args, warns) in [
        (&field[..], true),
        (&[&field[..], &["--trust", "127.0.0.1"]].concat(), false),
        (&["--forwarded-field", "forwarded"], false),
        (&[], false),
    ] {
        let said = Proxy::start(upstream.address, args).said();
        assert_eq!(said.contains(warning), warns, "{args:?}: {said}");
        assert_eq!(said.contains("WARN --forwarded-field"), warns, "{args:?}: {said}");
    }
}

#[tokio::test]
async fn a_trusted_proxy_that_does_not_report_its_clients_is_warned_of_once() {
    let upstream = Upstream::start(hello).await;
    let args = ["--limit", "per-ip=9/h by ip", "--trust", "127.0.0.1", "--forwarded-field", "x-real-ip"];
    let proxy = Proxy::start(upstream.address, &args);
    for _ in 0..3 {
        assert_eq!(get(proxy.address, "/", "X-Forwarded-For: 192.0.2.1\r\n").await.status, 200);
    }
    let warning =
        "WARN the trusted proxy 127.0.0.1 has sent a request without the field `x-real-ip`, so all clients";
    until("it is warned of", || proxy.said().contains(warning));
    assert_eq!(proxy.said().matches("without the field").count(), 1, "{}", proxy.said());
}

/// Sends the attempts to log in whose responses have these statuses.
async fn attempts<const N: usize>(proxy: &Proxy, answers: [u16; N]) -> [u16; N] {
    let mut statuses = [0; N];
    for (status, answer) in statuses.iter_mut().zip(answers) {
        *status = get(proxy.address, &format!("/login/{answer}"), "").await.status;
    }
    statuses
}

#[tokio::test]
async fn only_responses_with_the_statuses_of_charge_if_are_counted() {
    let upstream = Upstream::start(as_asked).await;
    let limits =
        ["--limit", "logins=5/15min by ip for /login/{*path}", "--limit", "all=99/h and 9 at once by ip"];
    let proxy = Proxy::start(upstream.address, &[&limits[..], &["--charge-if", "logins=401,403"]].concat());
    // Four wrong passwords, and any number of right ones.
    assert_eq!(
        attempts(&proxy, [401, 200, 200, 401, 200, 403, 500, 401]).await,
        [401, 200, 200, 401, 200, 403, 500, 401]
    );
    assert_eq!(attempts(&proxy, [200; 9]).await, [200; 9]);
    let left = get(proxy.address, "/login/200", "").await;
    assert!(left.field("ratelimit").unwrap().starts_with("\"logins\";r=0;"), "{left:?}");
    // After the fifth one, no attempt reaches the upstream.
    assert_eq!(attempts(&proxy, [401]).await, [401]);
    let before = upstream.requests();
    assert_eq!(attempts(&proxy, [401, 200]).await, [429, 429]);
    assert_eq!(upstream.requests(), before);
    // The other limit has counted every request that passed.
    let allowed =
        metric(proxy.metrics, "tollgate_decisions_total{limit=\"all-per-h\",outcome=\"allowed\"}").await;
    assert_eq!(allowed, 19.0);
}

#[tokio::test]
async fn keys_may_be_headers_parameters_or_alternatives() {
    let upstream = Upstream::start(hello).await;
    let by = |by: &str| format!("a=1/h by {by}");
    let statuses = async |by: &str, asked: &[(&str, &str)]| {
        let proxy = Proxy::start(upstream.address, &["--limit", by]);
        let mut statuses = Vec::new();
        for (path, fields) in asked {
            statuses.push(get(proxy.address, path, fields).await.status);
        }
        statuses
    };
    let (one, two) = ("X-Api-Key: one\r\n", "X-Api-Key: two\r\n");
    let asked = [("/", one), ("/", one), ("/", two), ("/", ""), ("/", "")];
    assert_eq!(statuses(&by("header x-api-key"), &asked).await, [200, 429, 200, 403, 403]);
    assert_eq!(statuses(&by("header x-api-key else allow"), &asked).await, [200, 429, 200, 200, 200]);
    assert_eq!(statuses(&by("header x-api-key else share"), &asked).await, [200, 429, 200, 200, 429]);
    assert_eq!(statuses(&by("header x-api-key or ip"), &asked).await, [200, 429, 200, 200, 429]);
    assert_eq!(statuses(&by("method"), &asked[..2]).await, [200, 429]);
    let asked = [("/?key=a", ""), ("/?key=b", ""), ("/x?key=a", "")];
    assert_eq!(statuses(&by("query key"), &asked).await, [200, 200, 429]);
}

#[tokio::test]
async fn a_shadow_refuses_nothing_and_is_counted() {
    let upstream = Upstream::start(hello).await;
    let args = ["--limit", "trial=1/h by ip", "--limit", "real=3/h by ip", "--shadow", "trial"];
    let proxy = Proxy::start(upstream.address, &args);
    assert!(
        proxy.said().contains("limit trial: 1/h by ip, token-bucket (shadow: refuses nothing)"),
        "{}",
        proxy.said()
    );
    for status in [200, 200, 200, 429] {
        assert_eq!(get(proxy.address, "/", "").await.status, status);
    }
    let counted = metric(proxy.metrics, "tollgate_decisions_total{limit=\"trial\",outcome=\"shadow\"}").await;
    assert!(counted >= 2.0, "{counted}");
}

#[tokio::test]
async fn paths_are_skipped_and_statuses_chosen() {
    let upstream = Upstream::start(hello).await;
    let args = ["--limit", "a=1/h by nothing", "--except", "/health", "--status", "503"];
    let proxy = Proxy::start(upstream.address, &args);
    for (path, status) in [("/", 200), ("/", 503), ("/health?x", 200), ("/health", 200), ("/healthy", 503)] {
        assert_eq!(get(proxy.address, path, "").await.status, status, "{path}");
    }
}

#[tokio::test]
async fn every_algorithm_can_be_chosen() {
    let upstream = Upstream::start(hello).await;
    for algorithm in tollgate::Algorithm::ALL.map(|algorithm| algorithm.to_string()) {
        let limits = ["--limit", "a=1/d by ip", "--limit", "all=9/d by nothing"];
        let proxy = Proxy::start(upstream.address, &[&limits[..], &["--algorithm", &algorithm]].concat());
        for status in [200, 429] {
            assert_eq!(get(proxy.address, "/", "").await.status, status, "{algorithm}");
        }
        assert_eq!(metric(proxy.metrics, "tollgate_keys{limit=\"a\"}").await, 1.0);
    }
}

#[tokio::test]
async fn a_full_table_answers_new_keys_as_it_was_told() {
    let upstream = Upstream::start(hello).await;
    for (full, status) in [("deny", 429), ("allow", 200)] {
        let args = ["--limit", "a=1000/d by path", "--max-keys", "1", "--when-full", full];
        let proxy = Proxy::start(upstream.address, &args);
        assert_eq!(get(proxy.address, "/known", "").await.status, 200);
        assert_eq!(get(proxy.address, "/new", "").await.status, status, "{full}");
        assert_eq!(get(proxy.address, "/known", "").await.status, 200);
        assert_eq!(
            metric(proxy.metrics, "tollgate_decisions_total{limit=\"a\",outcome=\"full\"}").await,
            f64::from(u8::from(full == "deny"))
        );
    }
}

#[tokio::test]
async fn without_limits_everything_passes_and_nothing_is_added() {
    let upstream = Upstream::start(hello).await;
    let proxy = Proxy::start(upstream.address, &[]);
    assert!(proxy.said().contains("no limits: everything passes"), "{}", proxy.said());
    let reply = get(proxy.address, "/", "").await;
    assert_eq!((reply.status, reply.field("ratelimit")), (200, None));
}

#[tokio::test]
async fn a_refusal_comes_before_the_body_was_asked_for() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--limit", "a=1/h by ip"]);
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n";
    let first = send(proxy.address, &format!("{head}\r\nhello")).await;
    assert!(first.status == 200 && first.body.ends_with("\nhello"), "{first:?}");
    // The proxy must not send 100 Continue before the refusal.
    let second = send(proxy.address, &format!("{head}Expect: 100-continue\r\n\r\n")).await;
    assert_eq!(second.status, 429);
}
