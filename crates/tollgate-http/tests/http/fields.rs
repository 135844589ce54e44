//! `sfv` can parse the response headers. Times are rounded up, so a client that obeys them waits
//! long enough.

use super::site::{Site, from, site, with};
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Algorithm, Limiter, ManualClock, Quota, SingleLimiter, WhenFull};
use tollgate_http::{Key, KeyBy, Limit, RateLimitLayer, RequestCost, WhenNoKey};

const MILLI: Duration = Duration::from_millis(1);

fn global(quota: Quota) -> Site {
    let site = site();
    let limiter = site.single(quota);
    site.limit(Limit::new("all", limiter))
}

#[test]
fn passed_and_refused_responses_tell_policy_and_state() {
    let site = global(Quota::per_minute(2)).run();
    let first = site.send(with(&[]));
    assert_eq!(first.items("ratelimit-policy"), ["all q=2 w=60"]);
    assert_eq!(first.items("ratelimit"), ["all r=1 t=30"]);
    assert_eq!(first.header("retry-after"), None);
    assert_eq!(site.send(with(&[])).items("ratelimit"), ["all r=0 t=30"]);
    let third = site.send(with(&[]));
    assert_eq!(third.status, 429);
    assert_eq!(third.items("ratelimit-policy"), ["all q=2 w=60"]);
    assert_eq!(third.items("ratelimit"), ["all r=0 t=30"]);
    assert_eq!(third.header("retry-after"), Some("30"));
}

#[test]
fn times_are_rounded_up_and_who_waits_so_long_is_let_in() {
    let site = global(Quota::new(1, Duration::from_millis(2500))).run();
    assert_eq!(site.status(with(&[])), 200);
    // The time left is 2.5 s, 1.001 s, 1 s, and 1 ms.
    for (passed, seconds) in [(0, "3"), (1499, "2"), (1, "1"), (999, "1")] {
        let refused = site.after(MILLI * passed).send(with(&[]));
        assert_eq!(refused.header("retry-after"), Some(seconds));
        assert_eq!(refused.items("ratelimit"), [format!("all r=0 t={seconds}")]);
        assert_eq!(refused.json()["retry_after"], seconds.parse::<u64>().unwrap());
    }
    assert_eq!(site.after(MILLI).status(with(&[])), 200);
    // A nanosecond is rounded up to a second as well.
    let site = global(Quota::new(1, Duration::from_nanos(1_000_000_001))).run();
    assert_eq!(site.status(with(&[])), 200);
    assert_eq!(site.send(with(&[])).header("retry-after"), Some("2"));
    let site = global(Quota::new(1, Duration::from_nanos(100))).run();
    assert_eq!(site.status(with(&[])), 200);
    assert_eq!(site.send(with(&[])).header("retry-after"), Some("1"));
}

#[test]
fn a_retry_after_what_was_told_passes_for_every_algorithm() {
    for algorithm in [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ] {
        let clock = ManualClock::new();
        let builder = SingleLimiter::builder(Quota::new(3, Duration::from_millis(7300)));
        let limiter = builder.algorithm(algorithm).clock(&clock).build().unwrap();
        let layer = RateLimitLayer::builder().limit(Limit::new("all", limiter)).build().unwrap();
        let site = super::site::Running { clock, layer };
        let mut refused = 0;
        for step in 0..200_u32 {
            let answer = site.after(MILLI * (step * 37 % 1000)).send(with(&[]));
            if answer.status == 429 {
                refused += 1;
                let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
                assert!((1..=15).contains(&wait), "{algorithm}: {wait}");
                assert_eq!(site.after(Duration::from_secs(wait)).status(with(&[])), 200, "{algorithm}");
            }
        }
        assert!(refused > 10, "{algorithm}");
    }
}

#[test]
fn what_remains_is_what_the_decision_said_and_never_read_again() {
    let site = site();
    let limiter: Arc<Limiter<Key>> = site.limiter(Quota::per_hour(5)).into();
    let limit = Limit::new("keyed", limiter.clone()).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny);
    let site = site.limit(limit).run();
    // The headers do not show a charge made to the same key after the decision.
    let before = site.call(with(&[("x-a", "a")])).unwrap();
    let key = Key::new("keyed", ["a"]);
    assert_eq!(before.headers()["ratelimit"], "\"keyed\";r=4;t=720");
    assert!(limiter.check(&key).is_allowed());
    assert_eq!(limiter.peek(&key).remaining(), 3);
    assert_eq!(site.send(with(&[("x-a", "a")])).items("ratelimit"), ["keyed r=2 t=720"]);
}

#[test]
fn names_are_strings_of_structured_fields() {
    let odd = r#"a "b"\c;d=1, e"#;
    let site = site();
    let limiter = site.single(Quota::per_hour(5));
    let site = site.limit(Limit::new(odd, limiter)).run();
    let answer = site.send(with(&[]));
    assert_eq!(answer.items("ratelimit"), [format!("{odd} r=4 t=720")]);
    assert_eq!(answer.items("ratelimit-policy"), [format!("{odd} q=5 w=3600")]);
}

#[test]
fn integers_have_15_digits_at_the_most() {
    let site = site();
    let limiter = Limiter::builder(Quota::new(1_u64 << 58, Duration::from_secs(1 << 28))).clock(&site.clock);
    let limit = Limit::new("bytes", limiter.build().unwrap())
        .by(KeyBy::path())
        .cost(RequestCost::content_length(1, 1));
    let answer = site.limit(limit).run().send(with(&[]));
    let most = 999_999_999_999_999_u64;
    assert_eq!(answer.items("ratelimit"), [format!("bytes r={most} t=1")]);
    assert_eq!(answer.items("ratelimit-policy"), [format!("bytes q={most} w=268435456")]);
}

#[test]
fn a_changed_quota_is_told_and_so_is_one_of_a_key() {
    let site = site();
    let limiter: Arc<Limiter<Key>> = site.limiter(Quota::per_minute(6)).into();
    let limit = Limit::new("keyed", limiter.clone()).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny);
    let all = site.single(Quota::per_second(500));
    let site = site.limit(Limit::new("all", all)).limit(limit).run();
    let policy = |who| site.send(with(&[("x-a", who)])).items("ratelimit-policy")[1].clone();
    assert_eq!(policy("a"), "keyed q=6 w=60");
    limiter.set_quota(Quota::per_hour(9)).unwrap();
    assert_eq!(policy("a"), "keyed q=9 w=3600");
    limiter.set_key_quota(&Key::new("keyed", ["b"]), Quota::per_second(2)).unwrap();
    assert_eq!(
        [policy("b"), policy("a"), policy("b")],
        ["keyed q=2 w=1", "keyed q=9 w=3600", "keyed q=2 w=1"]
    );
    limiter.set_quota(Quota::new(1, Duration::from_millis(1500))).unwrap();
    assert_eq!(policy("a"), "keyed q=2 w=3");
}

#[test]
fn no_time_is_told_where_no_wait_can_be_promised() {
    let site = site();
    let full = Limiter::builder(Quota::per_hour(5)).clock(&site.clock).max_keys(1).when_full(WhenFull::Deny);
    let limit =
        Limit::new("keyed", full.build().unwrap()).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny);
    let limit = limit.cost(RequestCost::content_length(1, 1));
    let site = site.limit(limit).with(|builder| builder.legacy_fields()).run();
    assert_eq!(site.status(with(&[("x-a", "a")])), 200);
    // The limiter has no room for another key.
    let full = site.send(with(&[("x-a", "b")]));
    assert_eq!((full.status.as_u16(), full.header("retry-after")), (429, None));
    assert_eq!(full.items("ratelimit"), ["keyed r=0"]);
    assert_eq!(full.header("x-ratelimit-reset"), None);
    assert!(full.json()["type"].as_str().unwrap().ends_with("#temporary-reduced-capacity"));
    assert!(full.json().get("retry_after").is_none());
    // The cost is more than the capacity.
    let large = site.send(with(&[("x-a", "a"), ("content-length", "6")]));
    assert_eq!((large.status.as_u16(), large.header("retry-after")), (429, None));
    assert_eq!(large.items("ratelimit"), ["keyed r=4"]);
    assert!(large.json()["type"].as_str().unwrap().ends_with("#quota-exceeded"));
}

#[test]
fn nothing_is_told_of_a_limit_that_did_not_count_the_request() {
    let site = site();
    let full = Limiter::builder(Quota::per_hour(5)).clock(&site.clock).max_keys(1).when_full(WhenFull::Allow);
    let limit = Limit::new("keyed", full.build().unwrap()).by(KeyBy::header("x-a"));
    let all = Limit::new("all", site.single(Quota::per_hour(9)));
    let site = site
        .limit(limit.when_no_key(WhenNoKey::Deny))
        .limit(all)
        .with(|builder| builder.legacy_fields())
        .run();
    let counted = site.send(with(&[("x-a", "a")]));
    assert_eq!(counted.items("ratelimit"), ["keyed r=4 t=720", "all r=8 t=400"]);
    assert_eq!(counted.header("x-ratelimit-remaining"), Some("4"));
    // The limiter has no room for another key, so it cannot count the tokens of that key.
    let uncounted = site.send(with(&[("x-a", "b")]));
    assert_eq!(
        (uncounted.status.as_u16(), uncounted.items("ratelimit")),
        (200, vec!["all r=7 t=400".into()])
    );
    assert_eq!(uncounted.header("x-ratelimit-remaining"), Some("7"));
    assert_eq!(uncounted.items("ratelimit-policy").len(), 2);
}

#[test]
fn older_fields_are_there_on_request_and_know_the_scarcest_limit() {
    let site = site();
    let (many, few) = (site.single(Quota::per_hour(100)), site.limiter(Quota::per_hour(4)));
    let few = Limit::new("few", few).by(KeyBy::path());
    let site = site.limit(Limit::new("many", many)).limit(few).with(|it| it.legacy_fields()).run();
    let legacy = |answer: &super::site::Answer| {
        ["limit", "remaining", "reset"]
            .map(|name| answer.header(&format!("x-ratelimit-{name}")).unwrap().parse::<u64>().unwrap())
    };
    assert_eq!(legacy(&site.send(with(&[]))), [4, 3, 900]);
    for _ in 0..3 {
        site.send(with(&[]));
    }
    let refused = site.send(with(&[]));
    assert_eq!(legacy(&refused), [4, 0, 3600]);
    assert_eq!(refused.header("retry-after"), Some("900"));
    let other = site.send(from("", "/other", &[]));
    assert_eq!(legacy(&other), [4, 3, 900]);
}

#[test]
fn fields_may_be_left_out() {
    let site = global(Quota::per_hour(1)).with(|builder| builder.without_fields()).run();
    let [passed, refused] = [site.send(with(&[])), site.send(with(&[]))];
    for answer in [&passed, &refused] {
        assert!(answer.headers.keys().all(|name| !name.as_str().contains("ratelimit")), "{answer:?}");
    }
    assert_eq!(refused.header("retry-after"), Some("3600"));
}
