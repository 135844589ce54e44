//! Tests requests that HTTP/1.1 and HTTP/2 express differently.

use super::site::{from, site, with};
use http::{HeaderValue, Request, Version};
use tollgate::{Limiter, ManualClock, Quota};
use tollgate_http::{
    ClassBy, KeyBy, Limit, RateLimitLayer, RequestCost, RequestHead, TrustedProxies, WhenNoKey,
};

const OK: u16 = 200;
const REFUSED: u16 = 429;
const NO_KEY: u16 = 403;

/// Creates an HTTP/2 request as servers pass it on, with the host in the target.
fn two(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = from("10.0.0.1", uri, headers);
    *request.version_mut() = Version::HTTP_2;
    request
}

fn one(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
    from("10.0.0.1", uri, headers)
}

#[test]
fn a_host_is_one_key_in_both_versions_and_in_any_spelling() {
    let same = || {
        [
            one("/", &[("host", "shop.example")]),
            two("https://shop.example/", &[]),
            two("http://shop.example/a?b", &[]),
            one("http://shop.example/", &[("host", "Shop.example:80")]),
            two("/", &[("host", "shop.example")]),
            one("/", &[("host", "Shop.EXAMPLE")]),
            two("https://Shop.EXAMPLE/", &[]),
            one("/", &[("host", "shop.example:80")]),
            one("/", &[("host", "shop.example:443")]),
            two("https://shop.example:443/", &[]),
            one("http://shop.example:80/", &[]),
            one("/", &[("host", "shop.example.")]),
            one("http://me@shop.example/", &[]),
        ]
    };
    for first in 0..same().len() {
        let site = site().hourly(KeyBy::header("host"));
        assert_eq!(site.status(same().into_iter().nth(first).unwrap()), OK, "{first}");
        for (number, request) in same().into_iter().enumerate() {
            assert_eq!(site.status(request), REFUSED, "{first} {number}");
        }
        for other in [
            one("/", &[("host", "other.example")]),
            two("https://shop.example:8443/", &[]),
            two("https://a.shop.example/", &[]),
        ] {
            assert_eq!(site.status(other), OK);
        }
        for none in [one("/", &[]), one("/", &[("host", "")]), two("/", &[])] {
            assert_eq!(site.status(none), NO_KEY);
        }
        // A server may use either of two hosts.
        for several in [
            one("/", &[("host", "a"), ("host", "a")]),
            one("http://shop.example/", &[("host", "other.example")]),
            two("https://shop.example/", &[("host", "shop.example"), ("host", "shop.example")]),
        ] {
            assert_eq!(site.status(several), 400);
        }
    }
}

#[test]
fn cookies_are_one_key_however_they_are_split() {
    let site = site().hourly(KeyBy::header("cookie"));
    assert_eq!(site.status(one("/", &[("cookie", "a=1; b=2")])), OK);
    assert_eq!(site.status(two("https://shop.example/", &[("cookie", "a=1"), ("cookie", "b=2")])), REFUSED);
    let spaced = [("cookie", ""), ("cookie", " a=1 "), ("cookie", "b=2")];
    assert_eq!(site.status(two("https://shop.example/", &spaced)), REFUSED);
    assert_eq!(site.status(two("https://shop.example/", &[("cookie", "a=1")])), OK);
    assert_eq!(site.status(two("https://shop.example/", &[])), NO_KEY);
}

/// HTTP/1.1 servers remove spaces around a value, but HTTP/2 servers may keep them.
#[test]
fn spaces_around_a_value_make_no_other_key() {
    for by in [KeyBy::header("x-api-key"), KeyBy::api_key("x-api-key", "key")] {
        let site = site().hourly(by);
        let key = |value: &str| {
            let mut request = two("https://shop.example/", &[]);
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            request.headers_mut().insert("x-api-key", value);
            request
        };
        assert_eq!(site.statuses(["k", " k", "k  ", "\tk\t"].map(key)), [OK, REFUSED, REFUSED, REFUSED]);
        assert_eq!(site.statuses(["k k", "kk"].map(key)), [OK, OK]);
        assert_eq!(site.status(key("  ")), NO_KEY);
    }
}

#[test]
fn a_listed_host_is_known_in_any_spelling() {
    let site = site().hourly(KeyBy::header("host").known(["Shop.Example:80", "[2001:DB8::1]"]));
    assert_eq!(site.status(two("https://shop.example/", &[])), OK);
    assert_eq!(site.status(one("/", &[("host", "SHOP.example")])), REFUSED);
    assert_eq!(site.status(one("/", &[("host", "[2001:db8::1]:80")])), OK);
    assert_eq!(site.status(two("https://other.example/", &[])), NO_KEY);
    // Two spellings of one host cannot have different classes.
    let twice = [("shop.example", "paid"), ("SHOP.example", "gold")];
    let limiter = Limiter::builder(Quota::per_hour(2)).class("paid", Quota::per_hour(4));
    let limit = Limit::new("tier", limiter.build().unwrap()).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny);
    let limit = limit.class_by(ClassBy::list(KeyBy::header("host"), twice));
    let refused = RateLimitLayer::builder().limit(limit).build().unwrap_err().to_string();
    assert!(refused.contains("key 2 of the list is there twice"), "{refused}");
}

#[test]
fn the_class_and_the_cost_of_a_host_are_the_same_in_both_versions() {
    let ways = [
        ClassBy::list(KeyBy::header("host"), [("Shop.Example", "shop.example")]),
        ClassBy::header("host", TrustedProxies::networks(["10.0.0.0/8"])),
    ];
    for by in ways {
        let limiter = Limiter::builder(Quota::per_hour(2)).clock(ManualClock::new());
        let limiter = limiter.class("shop.example", Quota::per_hour(40)).build().unwrap();
        let cost = RequestCost::from_fn(|head| {
            if head.header("Host").is_some_and(|it| *it == *b"shop.example") { 5 } else { 1 }
        });
        let limit = Limit::new("tier", limiter).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny);
        let site = site().limit(limit.class_by(by).cost(cost)).run();
        let told = |request| site.send(request).items("ratelimit").concat();
        assert_eq!(told(one("/", &[("host", "Shop.example:80")])), "tier r=35 t=90");
        assert_eq!(told(two("https://Shop.Example/", &[])), "tier r=30 t=90");
        assert_eq!(told(two("https://other.example/", &[])), "tier r=1 t=1800");
        assert_eq!(told(one("/", &[("host", "other.example")])), "tier r=0 t=1800");
    }
    let spaced = with(&[("content-length", "1500")]);
    assert_eq!(RequestHead::of(&spaced).content_length(), Some(1500));
}
