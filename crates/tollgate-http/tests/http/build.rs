//! Tests the configurations that a builder refuses, and the builder's messages.

use http::StatusCode;
use tollgate::{Limiter, Quota, SingleLimiter};
use tollgate_http::program::{Fault, fault};
use tollgate_http::{
    ForwardedField, Key, KeyBy, KeyPart, LayerError, Limit, RateLimitBuilder, RateLimitLayer, RequestCost,
    TrustedProxies, WhenNoKey,
};

fn limiter() -> Limiter<Key> {
    Limiter::builder(Quota::per_second(10)).build().unwrap()
}

fn global(name: &str) -> Limit {
    Limit::new(name, SingleLimiter::builder(Quota::per_second(10)).build().unwrap())
}

fn build(limits: impl IntoIterator<Item = Limit>) -> Result<RateLimitLayer, LayerError> {
    limits.into_iter().fold(RateLimitLayer::builder(), RateLimitBuilder::limit).build()
}

/// Checks that the error message contains all `words`, which are the value, the range and the fix.
#[track_caller]
fn refused(limits: impl IntoIterator<Item = Limit>, error: &Fault, words: [&str; 3]) {
    says(&build(limits).unwrap_err(), error, words);
}

#[track_caller]
fn says(refused: &LayerError, error: &Fault, words: [&str; 3]) {
    assert_eq!(*refused, *error);
    let text = refused.to_string();
    let (_, expected) = text.split_once(": expected ").unwrap_or_else(|| panic!("{text}"));
    assert!(expected.contains("; "), "{text}");
    for word in words {
        assert!(text.contains(word), "{word}: {text}");
    }
}

fn by(by: KeyBy) -> [Limit; 1] {
    [Limit::new("x", limiter()).by(by).when_no_key(WhenNoKey::Deny)]
}

#[test]
fn a_layer_has_between_1_and_16_limits() {
    refused([], &Fault::NoLimits, ["0 limits", "at least 1", ".limit("]);
    assert!(build((0..16).map(|i| global(&format!("{i}")))).is_ok());
    let many = (0..17).map(|i| global(&format!("{i}")));
    refused(many, &Fault::TooManyLimits { limits: 17, most: 16 }, ["17", "1 to 16", "into another"]);
}

#[test]
fn names_differ_and_can_stand_in_a_field() {
    let long = "x".repeat(129);
    for name in ["", "naïve", "a\nb", "a\tb", "\u{7f}", &long] {
        refused([global(name)], &Fault::Name { name: name.to_owned(), most: 128 }, ["name", "ASCII", "like"]);
    }
    assert!(build([global(&long[1..]), global(" !\"\\~")]).is_ok());
    let twice = Fault::DuplicateName { name: "x".to_owned() };
    refused([global("x"), global("y"), global("x")], &twice, ["\"x\"", "differ", "rename"]);
}

#[test]
fn one_resource_is_not_charged_twice() {
    let limiter = std::sync::Arc::new(SingleLimiter::builder(Quota::per_second(10)).build().unwrap());
    let error = Fault::SameLimiter { name: "a".to_owned(), other: "b".to_owned() };
    let twice = [Limit::new("a", limiter.clone()), Limit::new("b", limiter)];
    refused(twice, &error, ["twice", "for each", "leave one"]);
}

#[test]
fn what_happens_without_a_key_has_to_be_said_where_it_can_happen() {
    let limit = |by| Limit::new("per-client", limiter()).by(by);
    let missing = |by| match fault(&build([limit(by)]).unwrap_err()) {
        Fault::NoKey { limit, missing } if limit == "per-client" => missing.clone(),
        other => panic!("{other:?}"),
    };
    // For the peer's address, the hint names the setup step that users most often forget.
    let peer = missing(KeyBy::peer());
    assert!(peer.contains("into_make_service_with_connect_info") && peer.contains("PeerAddr"), "{peer}");
    let hops = missing(KeyBy::forwarded(ForwardedField::Forwarded, TrustedProxies::hops(1)));
    assert!(hops.contains("into_make_service_with_connect_info"), "{hops}");
    assert_eq!(missing(KeyBy::header("X-Tenant")), "no header `x-tenant`");
    assert_eq!(missing(KeyBy::query("key")), "no query parameter `key`");
    assert!(missing(KeyBy::api_key("x-api-key", "key")).contains("`key`"));
    assert!(missing(KeyBy::extension(|_: &String| None)).contains("String"));
    assert!(missing(KeyBy::from_fn(|_| None)).contains("closure"));
    assert_eq!(
        missing(KeyBy::header("a").or(KeyBy::query("b"))),
        "no header `a`, and no query parameter `b`"
    );
    let and = KeyBy::header("a").and(KeyBy::path()).and(KeyBy::query("b"));
    assert_eq!(missing(and), "no header `a`, or no query parameter `b`");
    let error = Fault::NoKey { limit: "per-client".to_owned(), missing: "no header `a`".to_owned() };
    refused([limit(KeyBy::header("a"))], &error, ["per-client", "WhenNoKey::Deny", "choose one"]);
    // If there is always a key, `when_no_key` is not needed.
    for always in
        [KeyBy::path(), KeyBy::method(), KeyBy::peer().or(KeyBy::path()), KeyBy::path().and(KeyBy::method())]
    {
        assert!(build([limit(always)]).is_ok());
    }
    assert!(build([global("all")]).is_ok());
}

#[test]
fn whoever_trusts_everybody_is_told_what_that_means() {
    let with = |proxies| by(KeyBy::forwarded(ForwardedField::XForwardedFor, proxies));
    let networks = |networks: &[&str]| with(TrustedProxies::networks(networks.iter().copied()));
    let v4 = Fault::TrustsEverybody { family: "IPv4" };
    refused(
        networks(&["10.0.0.0/8", "0.0.0.0/0"]),
        &v4,
        ["choose its own", "leave some addresses out", "hops"],
    );
    refused(networks(&["::/0"]), &Fault::TrustsEverybody { family: "IPv6" }, ["IPv6", "name", "proxies"]);
    refused(networks(&[]), &Fault::NoNetworks, ["0 trusted networks", "1 network", "KeyBy::peer"]);
    let no_network = Fault::NotANetwork { text: "10.0.0.0/33".to_owned() };
    refused(networks(&["10.0.0.0/33"]), &no_network, ["10.0.0.0/33", "prefix", "like"]);
    let hops = |hops| with(TrustedProxies::hops(hops));
    refused(hops(0), &Fault::Hops { hops: 0, most: 16 }, ["hops 0", "1 to 16", "KeyBy::peer"]);
    refused(hops(17), &Fault::Hops { hops: 17, most: 16 }, ["hops 17", "1 to 16", "count"]);
}

#[test]
fn a_prefix_is_one_that_addresses_have() {
    let zero = Fault::Ipv6Prefix { prefix: 0 };
    refused(by(KeyBy::peer().ipv6_prefix(0)), &zero, ["all clients one", "1 to 128", "64"]);
    refused(
        by(KeyBy::peer().ipv6_prefix(129)),
        &Fault::Ipv6Prefix { prefix: 129 },
        ["129", "1 to 128", "64"],
    );
    assert!(
        build(by(KeyBy::peer().ipv6_prefix(1))).is_ok() && build(by(KeyBy::peer().ipv6_prefix(128))).is_ok()
    );
}

#[test]
fn names_of_headers_and_parameters_are_names() {
    let header = Fault::HeaderName { name: "x api".to_owned() };
    refused(by(KeyBy::header("x api")), &header, ["x api", "letters", "like"]);
    refused(by(KeyBy::api_key("x api", "key")), &header, ["x api", "letters", "like"]);
    let empty = Fault::QueryName { name: String::new() };
    refused(by(KeyBy::query("")), &empty, ["\"\"", "1 character", "like"]);
    // No request has such a parameter, so a limit that allows requests without a key would count
    // none.
    for name in ["?api_key", "api_key=", "a&b", "api%5Fkey", "#a", "\"a\""] {
        let fault = Fault::QueryName { name: name.to_owned() };
        refused(by(KeyBy::query(name)), &fault, [&*format!("{name:?}"), "without `?`", "like \"api_key\""]);
        refused(by(KeyBy::api_key("x-api-key", name)), &fault, ["invalid", "without `?`", "like"]);
    }
    // An error in either part of a composed key is also reported.
    refused(by(KeyBy::path().and(KeyBy::query(""))), &empty, ["\"\"", "1 character", "like"]);
    refused(by(KeyBy::query("").or(KeyBy::path())), &empty, ["\"\"", "1 character", "like"]);
    assert!(KeyBy::query("").key("x", tollgate_http::RequestHead::of(&http::Request::new(()))).is_err());
}

#[test]
fn a_key_has_at_most_255_alternatives() {
    let headers = |count| (0..count).map(|n| KeyBy::header(&format!("x-{n}"))).reduce(KeyBy::or).unwrap();
    refused(by(headers(256)), &Fault::Alternatives, ["256", "at most 255", "leave some out"]);
    let key = |name: &str| {
        let request = http::Request::get("/").header(name, "v").body(()).unwrap();
        headers(255).key("x", tollgate_http::RequestHead::of(&request)).unwrap()
    };
    assert_eq!(key("x-254"), Some(Key::new("x", [KeyPart::Alternative(254), "v".into()])));
    assert_eq!(key("x-255"), None);
}

#[test]
fn a_limit_that_never_triggers_or_always_does_is_refused() {
    let limit = || "all".to_owned();
    let zero = Fault::ZeroCost { limit: limit() };
    refused([global("all").cost(0)], &zero, ["charges 0", "at least 1", ".skip("]);
    let unit = Fault::ZeroUnit { limit: limit() };
    refused(
        [global("all").cost(RequestCost::content_length(0, 1))],
        &unit,
        ["0 bytes", "at least 1", "1024"],
    );
    let above = Fault::CostAboveCapacity { limit: limit(), cost: 11, capacity: 10 };
    refused([global("all").cost(11)], &above, ["11", "1 to 10", "raise the burst"]);
    let one = Limit::new("all", SingleLimiter::builder(Quota::per_second(1)).build().unwrap());
    let above = Fault::CostAboveCapacity { limit: limit(), cost: 2, capacity: 1 };
    refused([one.cost(2)], &above, ["charges 2", "a cost of 1;", "raise the burst"]);
    assert!(build([global("all").cost(10)]).is_ok());
    let huge = |quota| Limit::new("all", SingleLimiter::builder(quota).build().unwrap());
    let quota = Quota::per_second(200_000_000);
    let never = Fault::NeverTriggers { limit: limit(), quota };
    refused([huge(quota)], &never, ["200000000", "100 million", "lower the quota"]);
    assert!(build([huge(quota).cost(2)]).is_ok());
    assert!(build([huge(quota).cost(RequestCost::content_length(1, 1000))]).is_ok());
    assert!(build([huge(Quota::per_second(100_000_000))]).is_ok());
}

#[test]
fn shadows_need_somebody_who_listens() {
    let shadows = || [global("a").shadow(), global("b").shadow()];
    let builder = shadows().into_iter().fold(RateLimitLayer::builder(), RateLimitBuilder::limit);
    assert!(builder.on_decision(|_| {}).build().is_ok());
    assert!(build([global("a").shadow(), global("b")]).is_ok());
    if cfg!(feature = "tracing") {
        assert!(build(shadows()).is_ok());
    } else {
        refused(shadows(), &Fault::OnlyShadows, ["shadow", "listener", "on_decision"]);
    }
}

#[test]
fn the_status_of_a_refusal_is_one_of_an_error() {
    for status in
        [StatusCode::OK, StatusCode::FOUND, StatusCode::CONTINUE, StatusCode::from_u16(600).unwrap()]
    {
        let error = Fault::Status { status };
        let builder = || RateLimitLayer::builder().limit(global("all"));
        says(&builder().status(status).build().unwrap_err(), &error, [status.as_str(), "400 to 599", "429"]);
        says(
            &builder().no_key_status(status).build().unwrap_err(),
            &error,
            [status.as_str(), "400 to 599", "429"],
        );
    }
}

#[test]
fn layers_services_and_answers_go_from_thread_to_thread() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn sent<T: Send + 'static>(_: &T) {}
    let layer = build([global("all")]).unwrap();
    shared(&layer);
    let running = super::site::Running { clock: tollgate::ManualClock::new(), layer };
    shared(&running.service());
    let mut service = running.service();
    let future = tower::Service::call(&mut service, super::site::with(&[]));
    sent(&future);
    sent(&pollster::block_on(future).unwrap());
}

#[test]
fn one_state_for_all_requests_has_no_key() {
    let single = SingleLimiter::builder(Quota::per_second(10)).build().unwrap();
    let limit = Limit::new("x", single).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny);
    let error = Fault::OneState { limit: "x".to_owned() };
    refused([limit], &error, ["`SingleLimiter`", "a `Limiter`", "leave `.by(...)` out"]);
}

#[test]
fn an_error_names_its_limit_if_it_is_about_one() {
    let refused = |limit: Limit| build([limit]).unwrap_err();
    assert_eq!(refused(global("x").cost(0)).limit_name(), Some("x"));
    assert_eq!(build([]).unwrap_err().limit_name(), None);
}
