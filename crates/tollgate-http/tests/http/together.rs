//! Tests that a request with several limits is charged to all of them or to none, and that the
//! response names the binding limit. Also covers shadow limits, exemptions, costs and events.

use super::site::{Running, from, site, with};
use http::Method;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::{Limiter, Quota, SingleLimiter};
use tollgate_http::{Key, KeyBy, Limit, RequestCost, WhenNoKey};

/// A service that allows three requests an hour for each `x-a`, two a minute for each path, and
/// five a second in total.
fn three() -> (Running, Arc<Limiter<Key>>, Arc<SingleLimiter>) {
    let site = site();
    let keys = Arc::new(site.limiter(Quota::per_hour(3)));
    let all = Arc::new(site.single(Quota::per_second(5)));
    let paths = site.limiter(Quota::per_minute(2));
    let site = site
        .limit(Limit::new("key", keys.clone()).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Allow))
        .limit(Limit::new("path", paths).by(KeyBy::path()))
        .limit(Limit::new("all", all.clone()))
        .run();
    (site, keys, all)
}

#[test]
fn what_one_limit_refuses_is_charged_to_none() {
    let (site, keys, all) = three();
    let at = |uri| from("", uri, &[("x-a", "a")]);
    assert_eq!(site.statuses([at("/1"), at("/1")]), [200, 200]);
    for _ in 0..10 {
        let refused = site.send(at("/1"));
        assert_eq!(refused.status, 429);
        assert_eq!(refused.json()["violated-policies"], serde_json::json!(["path"]));
        // Nothing was charged, so all figures are as before.
        assert_eq!(refused.items("ratelimit"), ["key r=1", "path r=0 t=30", "all r=3 t=1"]);
        assert_eq!(refused.header("retry-after"), Some("30"));
    }
    assert_eq!(keys.peek(&Key::new("key", ["a"])).remaining(), 1);
    assert_eq!(all.peek().remaining(), 3);
}

#[test]
fn of_several_that_refuse_the_one_with_the_longest_wait_binds() {
    let (site, _, _) = three();
    let at = |uri| from("", uri, &[("x-a", "a")]);
    assert_eq!(site.statuses([at("/1"), at("/1"), at("/2")]), [200, 200, 200]);
    let refused = site.send(at("/1"));
    assert_eq!(refused.header("retry-after"), Some("1200"));
    assert_eq!(refused.json()["limit"], "key");
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["key", "path"]));
    assert_eq!(refused.items("ratelimit"), ["key r=0 t=1200", "path r=0 t=30", "all r=2 t=1"]);
}

#[test]
fn no_item_of_a_refusal_says_a_later_time_than_retry_after() {
    let (site, _, _) = three();
    let mut refused = 0;
    for step in 0..300_u32 {
        site.after(Duration::from_millis(u64::from(step * 13 % 400)));
        let answer =
            site.send(from("", ["/1", "/2", "/3"][step as usize % 3], &[("x-a", "a")][step as usize % 2..]));
        let Some(wait) = answer.header("retry-after").map(|wait| wait.parse::<u64>().unwrap()) else {
            continue;
        };
        refused += 1;
        for item in answer.items("ratelimit") {
            let told = item.rsplit_once(" t=").map_or(0, |(_, t)| t.parse::<u64>().unwrap());
            assert!(told <= wait, "{answer:?}");
        }
    }
    assert!(refused > 50);
}

#[test]
fn a_limit_that_does_not_count_for_a_request_is_no_item_of_its_state() {
    let (site, _, _) = three();
    let answer = site.send(with(&[]));
    assert_eq!(answer.items("ratelimit"), ["path r=1 t=30", "all r=4 t=1"]);
    assert_eq!(answer.items("ratelimit-policy"), ["key q=3 w=3600", "path q=2 w=60", "all q=5 w=1"]);
}

#[test]
fn exempt_requests_are_neither_charged_nor_told() {
    let site = site();
    let all = Arc::new(site.single(Quota::per_hour(1)));
    let limit = Limit::new("all", all.clone());
    let site = site
        .limit(limit.skip(|head| head.uri().path() == "/a").skip(|head| head.uri().path() == "/b"))
        .with(|it| {
            it.skip(|head| head.method() == Method::OPTIONS).skip(|head| head.header("x-friend").is_some())
        })
        .run();
    let mut preflight = with(&[]);
    *preflight.method_mut() = Method::OPTIONS;
    for _ in 0..3 {
        let answer = site.send(preflight.clone());
        assert_eq!((answer.status.as_u16(), answer.header("ratelimit")), (200, None));
        assert_eq!(
            site.statuses([with(&[("x-friend", "1")]), from("", "/a", &[]), from("", "/b", &[])]),
            [200; 3]
        );
    }
    assert_eq!(all.peek().remaining(), 1);
    assert_eq!(site.statuses([with(&[]), with(&[]), preflight]), [200, 429, 200]);
}

#[test]
fn a_request_costs_what_was_said() {
    let of = |cost| {
        let site = site();
        let limiter = site.single(Quota::per_hour(100));
        site.limit(Limit::new("all", limiter).cost(cost)).run()
    };
    let remaining = |site: &Running, headers: &[_]| {
        let items = site.send(with(headers)).items("ratelimit");
        items[0].split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(remaining(&of(RequestCost::from(7)), &[]), "r=93");
    let length = |bytes| [("content-length", bytes)];
    for (bytes, left) in [("0", "r=99"), ("1", "r=99"), ("1000", "r=99"), ("1001", "r=98"), ("99001", "r=0")]
    {
        assert_eq!(remaining(&of(RequestCost::content_length(1000, 5)), &length(bytes)), left, "{bytes}");
    }
    for unknown in [&[][..], &[("content-length", "x")], &[("content-length", "1"), ("content-length", "1")]]
    {
        assert_eq!(remaining(&of(RequestCost::content_length(1000, 5)), unknown), "r=95");
    }
    let too_large = of(RequestCost::content_length(1, 1)).send(with(&length("18446744073709551615")));
    assert_eq!((too_large.status.as_u16(), too_large.header("retry-after")), (429, None));
    let by_path = of(RequestCost::from_fn(|head| if head.uri().path() == "/" { 0 } else { 9 }));
    assert_eq!(remaining(&by_path, &[]), "r=100");
    assert_eq!(by_path.send(from("", "/x", &[])).items("ratelimit"), ["all r=91 t=36"]);
}

#[test]
fn a_shadow_decides_and_tells_and_never_refuses() {
    let site = site();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (listener, shadow) = (told.clone(), Arc::new(site.single(Quota::per_hour(1))));
    let open = site.single(Quota::per_hour(3));
    let site = site
        .limit(Limit::new("shadow", shadow.clone()).shadow())
        .limit(Limit::new("open", open))
        .with(|it| {
            it.on_decision(move |event| {
                let allowed = event.decision.unwrap().is_allowed();
                let flags = [event.is_shadow, event.would_refuse(), event.is_binding, event.is_refused];
                listener.lock().unwrap().push((event.limit_name.to_owned(), allowed, flags));
            })
        })
        .run();
    let answer = site.send(with(&[]));
    assert_eq!(answer.items("ratelimit"), ["open r=2 t=1200"]);
    assert_eq!(answer.items("ratelimit-policy"), ["open q=3 w=3600"]);
    assert_eq!(site.statuses([with(&[]), with(&[]), with(&[])]), [200, 200, 429]);
    let event =
        |limit: &str, allowed, flags: [u8; 4]| (limit.to_owned(), allowed, flags.map(|flag| flag == 1));
    let expected = [
        event("shadow", true, [1, 0, 0, 0]),
        event("open", true, [0, 0, 0, 0]),
        event("shadow", false, [1, 1, 0, 0]),
        event("open", true, [0, 0, 0, 0]),
        event("shadow", false, [1, 1, 0, 0]),
        event("open", true, [0, 0, 0, 0]),
        event("shadow", false, [1, 1, 0, 1]),
        event("open", false, [0, 0, 1, 1]),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn a_shadow_is_charged_only_for_what_passes() {
    let site = site();
    let (shadow, open) = (Arc::new(site.single(Quota::per_hour(9))), site.single(Quota::per_hour(1)));
    let limit = Limit::new("shadow", shadow.clone()).shadow();
    let site = site.limit(limit).limit(Limit::new("open", open)).run();
    assert_eq!(site.statuses([with(&[]), with(&[]), with(&[])]), [200, 429, 429]);
    assert_eq!(shadow.peek().remaining(), 8);
}

#[test]
fn a_request_without_a_key_is_told_and_a_shadow_lets_it_pass() {
    let site = site();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (listener, one, two) =
        (told.clone(), site.limiter(Quota::per_hour(1)), site.limiter(Quota::per_hour(1)));
    let site = site
        .limit(Limit::new("shadow", one).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny).shadow())
        .limit(Limit::new("real", two).by(KeyBy::header("x-b")).when_no_key(WhenNoKey::Deny))
        .with(|it| {
            let other = listener.clone();
            it.on_decision(move |event| {
                let missing = event.decision.is_none();
                // A limit that is not in shadow mode refuses or admits.
                assert_eq!(event.would_refuse(), missing && event.is_shadow);
                listener.lock().unwrap().push((event.limit_name.to_owned(), missing, event.is_refused));
            })
            .on_decision(move |_| other.lock().unwrap().push(("second".to_owned(), false, false)))
        })
        .run();
    assert_eq!(site.status(with(&[("x-b", "b")])), 200);
    assert_eq!(site.status(with(&[("x-a", "a")])), 403);
    let told: Vec<_> = told.lock().unwrap().iter().filter(|it| it.0 != "second").cloned().collect();
    let event = |limit: &str, missing, refused| (limit.to_owned(), missing, refused);
    assert_eq!(told, [event("shadow", true, false), event("real", false, false), event("real", true, true)]);
}

#[test]
fn what_is_refused_for_want_of_a_key_is_charged_to_no_other_limit() {
    let site = site();
    let all = Arc::new(site.single(Quota::per_hour(9)));
    let keyed = site.limiter(Quota::per_hour(1));
    let site = site
        .limit(Limit::new("all", all.clone()))
        .limit(Limit::new("keyed", keyed).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny))
        .run();
    assert_eq!(site.status(with(&[])), 403);
    assert_eq!(all.peek().remaining(), 9);
}
