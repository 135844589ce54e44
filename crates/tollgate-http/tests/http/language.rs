//! Tests limits written as text, with scopes, allowances, and files of keys and networks.

use crate::classes::scratch;
use crate::site::{Running, from, grpc, with};
use http::{Method, Request};
use std::sync::{Arc, Mutex};
use tollgate::ManualClock;
use tollgate_http::program;
use tollgate_http::settings::{LayerSettings, LimitText};
use tollgate_http::{LayerError, Metrics, PeerAddr, RefusalReason};

fn settings(limits: &[&str]) -> LayerSettings {
    let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    LayerSettings { limits, ..LayerSettings::default() }
}

/// A layer with a manual clock.
fn running(settings: &LayerSettings) -> Running {
    let clock = ManualClock::new();
    let time = tollgate::Clock::from(&clock);
    let builder = settings.builder_with(|part| program::local(settings, part, Some(&time)));
    let builder = builder.unwrap_or_else(|error: LayerError| panic!("{error}"));
    Running { clock, layer: builder.build().unwrap() }
}

fn request(method: &str, path: &str, address: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = from(address, path, headers);
    *request.method_mut() = method.parse().unwrap();
    request
}

fn refused(settings: &LayerSettings) -> String {
    match settings.builder() {
        Ok(builder) => builder.build().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_limit_is_for_the_requests_of_its_scope() {
    let counted = |scope: &str, request: Request<()>| {
        let site = running(&settings(&[&format!("a=1/h by nothing {scope}")]));
        let answer = site.send(request);
        answer.header("ratelimit").is_some()
    };
    let at = |method: &str, path: &str, headers: &[(&str, &str)]| request(method, path, "192.0.2.1", headers);
    let host = |name: &'static str| at("GET", "/", &[("host", name)]);
    let preflight =
        || at("OPTIONS", "/login", &[("origin", "https://a"), ("access-control-request-method", "POST")]);
    let table = [
        ("for POST /login", at("POST", "//l%6fgin?x", &[]), true),
        ("for POST /login", at("GET", "/login", &[]), false),
        ("for POST /login", at("POST", "/login/", &[]), true),
        ("for POST /login", at("POST", "/logins", &[]), false),
        ("for /admin/{*path}", at("GET", "/admin", &[]), true),
        ("for /admin/{*path}", at("GET", "/administration", &[]), false),
        ("for method PURGE", at("PURGE", "/", &[]), true),
        ("for method PURGE", at("GET", "/", &[]), false),
        ("for GET", at("HEAD", "/", &[]), true),
        ("for HEAD", at("GET", "/", &[]), false),
        ("for GET,DELETE", at("DELETE", "/", &[]), true),
        ("for /users/{id} or DELETE", at("GET", "/users/7", &[]), true),
        ("for /users/{id} or DELETE", at("DELETE", "/", &[]), true),
        ("for /users/{id} or DELETE", at("GET", "/users/7/x", &[]), false),
        ("for host API.example.com", host("api.EXAMPLE.com."), true),
        ("for host api.example.com", host("api.example.com:80"), true),
        ("for host api.example.com", host("example.com"), false),
        ("for host api.example.com", host("api.example.com:8443"), true),
        ("for host api.example.com:8443", host("api.example.com:8443"), true),
        ("for host api.example.com:8443", host("api.example.com:8444"), false),
        ("for host api.example.com:8443", host("api.example.com"), false),
        ("for host *.example.com:8443", host("a.example.com:8443"), true),
        ("for host *.example.com", host("a.b.example.com"), true),
        ("for host *.example.com", host("example.com"), false),
        ("for host *.example.com", host("badexample.com"), false),
        ("for header x-beta", at("GET", "/", &[("x-beta", "")]), true),
        ("for header x-beta", at("GET", "/", &[]), false),
        ("for header x-plan=\"free trial\"", at("GET", "/", &[("x-plan", "free trial")]), true),
        ("for header x-plan=free", at("GET", "/", &[("x-plan", "Free")]), false),
        ("for from 192.0.2.0/24", at("GET", "/", &[]), true),
        ("for from 198.51.100.0/24", at("GET", "/", &[]), false),
        ("for from ::ffff:192.0.2.0/120", at("GET", "/", &[]), true),
        ("except from 192.0.2.1", at("GET", "/", &[]), false),
        ("except preflight", preflight(), false),
        ("except preflight", at("OPTIONS", "/login", &[]), true),
        ("for /login except POST /login", at("GET", "/login", &[]), true),
        ("for /login except POST /login", at("POST", "/login", &[]), false),
    ];
    for (scope, request, is_counted) in table {
        let shown = format!("{scope}: {request:?}");
        assert_eq!(counted(scope, request), is_counted, "{shown}");
    }
    // A request without an address does not belong to any network, so no network exempts it.
    assert!(!counted("for from 0.0.0.0/0", with(&[])));
    assert!(counted("except from 0.0.0.0/0", with(&[])));
}

#[test]
fn the_client_of_a_scope_is_the_one_whom_trusted_proxies_name() {
    let settings = LayerSettings {
        trust: vec!["192.0.2.0/24".to_owned()],
        except: vec!["from 10.0.0.0/8".parse().unwrap()],
        ..settings(&["a=1/h by nothing"])
    };
    let site = running(&settings);
    let status = |address: &str| site.status(from("192.0.2.1", "/", &[("x-forwarded-for", address)]));
    assert_eq!(["10.1.1.1", "198.51.100.1", "198.51.100.1", "10.2.2.2"].map(status), [200, 200, 429, 200]);
    // A client that is not a proxy cannot claim another address.
    assert_eq!(site.status(from("198.51.100.9", "/", &[("x-forwarded-for", "10.1.1.1")])), 429);
}

#[test]
fn only_and_skip_of_a_limit_in_code_are_opposites() {
    use tollgate::{Quota, SingleLimiter};
    use tollgate_http::{Limit, RateLimitLayer};
    let limiter = SingleLimiter::builder(Quota::per_hour(1)).build().unwrap();
    let limit = Limit::new("a", limiter)
        .only(|head| head.method() == Method::POST)
        .only(|head| head.path() == "/login")
        .skip(|head| head.header("x-test").is_some());
    let layer = RateLimitLayer::builder().limit(limit).build().unwrap();
    let site = Running { clock: ManualClock::new(), layer };
    let status = |method: &str, path: &str, headers: &[(&str, &str)]| {
        site.status(request(method, path, "192.0.2.1", headers))
    };
    assert_eq!([(); 2].map(|()| status("GET", "/login", &[])), [200; 2]);
    assert_eq!([(); 2].map(|()| status("POST", "/", &[])), [200; 2]);
    assert_eq!([(); 2].map(|()| status("POST", "/login", &[("x-test", "1")])), [200; 2]);
    assert_eq!([(); 2].map(|()| status("POST", "/login", &[])), [200, 429]);
}

#[test]
fn a_limit_that_never_applies_is_refused_and_what_is_never_reached_is_told() {
    let dead = LayerSettings {
        except: vec!["/health or from 10.0.0.0/8".parse().unwrap()],
        ..settings(&["a=1/s by ip for POST /health or GET /health"])
    };
    assert!(refused(&dead).starts_with("limit \"a\" applies to no request, because `except` exempts all"));
    let alive = LayerSettings { limits: vec!["a=1/s by ip for /health or /b".parse().unwrap()], ..dead };
    assert!(alive.builder().is_ok());
    let warnings = |limit: &str| {
        let builder = settings(&[limit]).builder().unwrap();
        builder.warnings().iter().map(ToString::to_string).collect::<String>()
    };
    assert!(warnings("a=1/s by ip else share").contains("`else share` behind a key that every request has"));
    assert!(warnings("a=1/s by ip or header x else deny").contains("`or header x` behind a key"));
    assert!(warnings("a=1/s by ip else allow").contains("so it is never reached: leave it out"));
    assert_eq!(warnings("a=1/s by header host+ip else share"), "");
    assert!(
        warnings("a=1/s by ip except header x-test").contains("by the header `x-test`, which any client can")
    );
    let exempt =
        LayerSettings { except: vec!["header x-test".parse().unwrap()], ..settings(&["a=1/s by ip"]) };
    let told = |settings: &LayerSettings| settings.builder().unwrap().warnings().len();
    assert_eq!(told(&exempt), 1);
    // A trusted proxy may set the header.
    assert_eq!(told(&LayerSettings { trust_hops: Some(1), ..exempt }), 0);
}

#[test]
fn several_rates_are_charged_together_and_each_has_a_policy() {
    let site = running(&settings(&["api=2/s and 3/d and 5 at once by ip"]));
    let ask = || site.send(from("192.0.2.1", "/", &[]));
    let first = ask();
    assert_eq!(
        first.header("ratelimit-policy").unwrap(),
        "\"api-per-s\";q=2;w=1, \"api-per-d\";q=3;w=86400, \"api-at-once\";q=5;qu=\"concurrent-requests\""
    );
    assert_eq!((ask().status.as_u16(), ask().status.as_u16()), (200, 429));
    // The refused request was not charged to the daily limit.
    site.clock.advance(std::time::Duration::from_secs(1));
    assert_eq!([ask(), ask()].map(|it| it.status.as_u16()), [200, 429]);
    assert!(ask().body.contains("\"limit\":\"api-per-d\""));
}

#[test]
fn requests_at_once_end_with_their_responses() {
    let site = running(&settings(&["jobs=1 at once by header x-key", "all=2 at once by nothing"]));
    let ask = |key: &str| site.call(request("GET", "/", "192.0.2.1", &[("x-key", key)])).unwrap();
    let first = ask("a");
    assert_eq!((ask("a").status().as_u16(), ask("b").status().as_u16()), (429, 200));
    let held = ask("b");
    assert_eq!(ask("c").status().as_u16(), 429, "two are in flight in all");
    drop((first, held));
    assert_eq!(ask("a").status().as_u16(), 200);
}

#[test]
fn a_refused_client_stays_refused_for_its_penalty() {
    use std::time::Duration;
    // The limit with the penalty is first or second, and beside a limit that has room.
    for texts in [
        &["logins=2/min by ip for POST /login then pause 10min"][..],
        &["logins=2/min by ip for POST /login then pause 10min", "all=99/min by nothing"],
        &["all=99/min by nothing", "logins=2/min by ip for POST /login then pause 10min"],
    ] {
        let metrics = Metrics::new();
        let settings = settings(texts);
        let clock = ManualClock::new();
        let time = tollgate::Clock::from(&clock);
        let builder = settings.builder_with(|part| program::local(&settings, part, Some(&time)));
        let builder = builder.unwrap_or_else(|error: LayerError| panic!("{error}"));
        let site = Running { layer: builder.metrics(&metrics).build().unwrap(), clock };
        let login = |address: &str| site.send(request("POST", "/login", address, &[]));
        assert_eq!([(); 2].map(|()| login("192.0.2.1").status.as_u16()), [200, 200]);
        let first = login("192.0.2.1");
        assert_eq!((first.status.as_u16(), first.header("retry-after")), (429, Some("600")));
        assert!(first.json()["detail"].as_str().unwrap().contains("exceeded: retry after 600 seconds"));
        // The quota has refilled, but the penalty lasts. A request during the penalty does not
        // extend it.
        site.clock.advance(Duration::from_secs(599));
        let second = login("192.0.2.1");
        assert_eq!((second.status.as_u16(), second.header("retry-after")), (429, Some("1")));
        let told = "rate limit \"logins\" refuses this client for a while, because it was exceeded: retry after 1 second";
        assert_eq!(second.json()["detail"], told);
        assert_eq!(login("192.0.2.2").status.as_u16(), 200);
        assert_eq!(site.status(from("192.0.2.1", "/", &[])), 200, "the limit is not for this path");
        site.clock.advance(Duration::from_secs(1));
        assert_eq!([(); 3].map(|()| login("192.0.2.1").status.as_u16()), [200, 200, 429]);
        let text = metrics.prometheus_text();
        for (outcome, count) in [("allowed", 5), ("denied", 2), ("paused", 1)] {
            let line =
                format!("tollgate_decisions_total{{limit=\"logins\",outcome=\"{outcome}\"}} {count}\n");
            assert!(text.contains(&line), "{line}{text}");
        }
    }
}

/// One path has a larger quota than the others.
#[test]
fn a_limit_replaces_a_general_one_that_exempts_its_requests() {
    let site = running(&settings(&["path=100/2s by ip for /path1", "default=1/s by ip except /path1"]));
    let ask = |path: &str| site.status(from("192.0.2.1", path, &[]));
    assert_eq!([(); 100].map(|()| ask("/path1")), [200; 100]);
    assert_eq!([ask("/path1"), ask("/"), ask("/path2")], [429, 200, 429]);
}

#[test]
fn a_blocked_client_is_refused_for_a_reason_of_its_own() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let settings = settings(&["admin=blocked by nothing for /admin/{*path}", "all=9/h by nothing"]);
    let events = Arc::clone(&seen);
    let builder = settings.builder().unwrap().on_decision(move |event| {
        events.lock().unwrap().push((event.limit_name.to_owned(), event.reason, event.is_refused));
    });
    let site = Running { clock: ManualClock::new(), layer: builder.build().unwrap() };
    let answer = site.send(from("192.0.2.1", "/admin/users", &[]));
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (403, None));
    assert_eq!(answer.json()["error"], "blocked");
    assert_eq!(
        seen.lock().unwrap().drain(..).collect::<Vec<_>>(),
        [("admin".to_owned(), Some(RefusalReason::Blocked), true)]
    );
    let other = site.send(from("192.0.2.1", "/", &[]));
    assert_eq!(other.header("ratelimit-policy"), Some("\"all\";q=9;w=3600"));
    let rpc = grpc(from("192.0.2.1", "/admin/users", &[]), "application/grpc");
    assert_eq!(site.send(rpc).header("grpc-status"), Some("7"));
}

#[test]
fn a_blocked_class_in_shadow_mode_refuses_nothing() {
    let text = "a=9/h class bad blocked by ip class by header x-class";
    let settings = LayerSettings {
        trust_hops: Some(1),
        shadows: vec!["a".to_owned()],
        ..settings(&[text, "b=9/h by nothing"])
    };
    let site = running(&settings);
    assert_eq!(site.status(from("192.0.2.1", "/", &[("x-class", "bad")])), 200);
}

#[test]
fn one_file_lists_keys_networks_classes_and_quotas() {
    let file = scratch(
        "customers.csv",
        "# customers\nk-1,paid\nk-2,default\nk-3, 7/h \n\"k,4\",paid\n203.0.113.0/24,blocked\n\
         203.0.113.7,unlimited\n2001:db8::/32,9/h\n2001:db8:7::1,11/h\n198.51.100.4,3/h and 2 at once\n",
    );
    let text = format!("api=2/h class paid 5/h by header x-key known or ip class by key in {file}");
    let site = running(&settings(&[&text]));
    let policy = |address: &str, key: &str| {
        let headers = [("x-key", key)];
        let answer = site.send(from(address, "/", if key.is_empty() { &[] } else { &headers }));
        let policy = answer.header("ratelimit-policy").unwrap_or_default();
        format!("{} {policy}", answer.status.as_u16())
    };
    let rate = |tokens: u64| format!("200 \"api-per-h\";q={tokens};w=3600");
    // Keys in the file are known from any address.
    assert_eq!(policy("203.0.113.1", "k-1"), rate(5));
    assert_eq!(policy("192.0.2.1", "k-2"), rate(2));
    assert_eq!(policy("192.0.2.1", "k-3"), rate(7));
    assert_eq!(policy("192.0.2.1", "k,4"), rate(5));
    // A request with an invented key counts against its address.
    assert_eq!(policy("192.0.2.1", "k-9"), rate(2));
    assert_eq!(policy("203.0.113.1", "k-9"), "403 ");
    assert_eq!(policy("203.0.113.7", ""), "200 ", "the longest network wins");
    assert_eq!(policy("2001:db8::1", ""), rate(9));
    assert_eq!(policy("2001:db8:7::2", ""), rate(11), "an address means the network of its client");
    let several = "200 \"api-per-h\";q=3;w=3600, \"api-at-once\";q=2;qu=\"concurrent-requests\"";
    assert_eq!(policy("198.51.100.4", ""), several);
}

#[test]
fn the_rows_of_a_composite_key_are_spelled_out() {
    let file = scratch("composite.csv", "192.0.2.1,/l%6Fgin,5/h\n\"203.0.113.9\",\"/a,b\",6/h\nk-1,4/h\n");
    let text = format!("a=2/h by ip+path or header k class by key in {}", file);
    let site = running(&settings(&[&text]));
    let quota = |address: &str, path: &str| {
        let answer = site.send(from(address, path, &[]));
        answer.header("ratelimit-policy").unwrap().to_owned()
    };
    assert_eq!(quota("192.0.2.1", "//login"), "\"a\";q=5;w=3600");
    assert_eq!(quota("192.0.2.1", "/other"), "\"a\";q=2;w=3600");
    assert_eq!(quota("203.0.113.9", "/a,b"), "\"a\";q=6;w=3600");
    for (rows, part) in [
        (
            "10.0.0.0/8,/login,5/h",
            "has the network `10.0.0.0/8` in a key of several parts: expected an address",
        ),
        ("1,2,3,5/h", "has 3 values before its class: expected 1 or 2"),
        ("192.0.2.1,/login,fast", "has no class \"fast\": expected one of its limiter (default); correct"),
        ("192.0.2.1,/login,fast", "and it is no quota: "),
        ("192.0.2.1,/login,5/h\n192.0.2.1,//login,6/h", "line 2 of the file"),
    ] {
        let file = scratch("composite-bad.csv", rows);
        let text = format!("a=2/h by ip+path or header k class by key in {}", file);
        let message = refused(&settings(&[&text]));
        assert!(message.contains(part), "{rows}: {message}");
    }
}

#[test]
fn a_class_by_address_is_another_thing_than_the_key() {
    let file = scratch("offices.csv", "10.0.0.0/8,unlimited\n10.9.0.0/16,default\n");
    let text = format!("a=1/h by header x-key class by ip in {}", file);
    let site = running(&settings(&[&text]));
    let status = |address: &str| site.status(from(address, "/", &[("x-key", "k")]));
    assert_eq!(
        ["10.1.1.1", "10.1.1.1", "10.9.1.1", "10.9.1.1", "192.0.2.1"].map(status),
        [200, 200, 200, 429, 429]
    );
}

#[test]
fn a_limit_is_a_table_in_a_file() {
    use serde_json::json;
    let read = |value: serde_json::Value| -> Result<LimitText, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    };
    let limit = read(json!({
        "name": "api",
        "quota": "10/min and 8 at once",
        "by": "header x-key known or ip else share",
        "for": ["/api/{*path}", "host api.example.com"],
        "except": "preflight",
        "class": { "paid": "1000/min", "bot": "blocked" },
        "class-by": "key in f.csv",
    }));
    assert_eq!(
        limit.unwrap().to_string(),
        "api=10/min and 8 at once class bot blocked class paid 1000/min by header x-key known or ip else share for \
         /api/{*path} or host api.example.com except preflight class by key in f.csv"
    );
    let limit = read(json!({ "name": "a", "quota": "1/s", "by": "ip", "then": "pause 10min" }));
    assert_eq!(limit.unwrap().to_string(), "a=1/s by ip then pause 10min");
    let table = [
        (json!({ "name": "a", "quota": "1/s" }), "missing field `by`"),
        (json!({ "name": "a=1/s by ip", "quota": "1/s", "by": "ip" }), "invalid name `a=1/s by ip`"),
        (json!({ "name": "a", "quota": "1/s by ip", "by": "ip" }), "\"by\" is unexpected"),
        (
            json!({ "name": "a", "quota": "1/s", "by": "ip for POST" }),
            "`for` after the key: expected the end",
        ),
        (
            json!({ "name": "a", "quota": "1/s", "by": "ip", "fro": "POST" }),
            "unknown field `fro`, expected one of",
        ),
        (json!({ "name": "a", "quota": "1/s", "by": "ip", "for": "post" }), "invalid condition `post`"),
        (json!({ "name": "a", "quota": "1/s", "by": "ip", "class": { "b": "2/s" } }), "without `class by`"),
        (json!({ "name": "a", "quota": "1/s", "by": "ip", "then": "10min" }), "invalid words after `then`"),
        (json!({ "name": "a", "quota": "1/s", "by": "ip", "then": "pause 1s x" }), "words after the time in"),
    ];
    for (value, part) in table {
        let message = read(value.clone()).unwrap_err();
        assert!(message.contains(part), "{value}: {message}");
    }
}

#[test]
fn the_peer_may_be_any_extension() {
    let mut request = with(&[]);
    request.extensions_mut().insert(PeerAddr(([10, 1, 1, 1], 9).into()));
    let site = running(&settings(&["a=1/h by nothing except from 10.0.0.0/8"]));
    assert!(site.send(request).header("ratelimit").is_none());
}
