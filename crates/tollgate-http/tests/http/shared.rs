//! Limits shared with other machines decide and report like other limits.

use super::elsewhere::{Elsewhere, Waits};
use super::site::{self, Site, from, site, with};
use http::Request;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::{InFlight, Limiter, Quota, WhenFull};
use tollgate_http::program::{Fault, fault};
use tollgate_http::{Key, KeyBy, Limit, RateLimitBuilder, RateLimitLayer, RequestCost, WhenNoKey};

/// The events reported by a layer. Each contains the limit's name, the charged tokens and three
/// flags: whether the limit would refuse the request, whether the limit is the binding one, and
/// whether the request is refused.
type Told = Arc<Mutex<Vec<(String, Option<u64>, [bool; 3])>>>;

fn telling(builder: RateLimitBuilder) -> (RateLimitBuilder, Told) {
    let told = Told::default();
    let listener = told.clone();
    let builder = builder.on_decision(move |event| {
        let flags = [event.would_refuse(), event.is_binding, event.is_refused];
        let charged = event.decision.map(|decision| decision.charged());
        listener.lock().unwrap().push((event.limit_name.to_owned(), charged, flags));
    });
    (builder, told)
}

fn key(name: &str) -> Request<()> {
    with(&[("x-a", name)])
}

fn by_header(name: &str, limiter: &Arc<Elsewhere>) -> Limit {
    Limit::new(name, Arc::clone(limiter)).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny)
}

#[test]
fn a_shared_limit_answers_as_a_local_one_does() {
    let settings: [fn(RateLimitBuilder) -> RateLimitBuilder; 4] = [
        |builder| builder,
        |builder| builder.plain_text().legacy_fields().status(http::StatusCode::SERVICE_UNAVAILABLE),
        |builder| builder.without_fields().skip(|head| head.uri().path() == "/free"),
        |builder| {
            builder.respond(|refusal| {
                http::Response::new(format!("{:?} {:?}", refusal.reason, refusal.violated).into())
            })
        },
    ];
    let grpc = || site::grpc(with(&[("x-a", "a")]), "application/grpc");
    let requests = || {
        let free = from("", "/free", &[("x-a", "a")]);
        let costly = with(&[("x-a", "b"), ("content-length", "9")]);
        let answered = with(&[("x-a", "b"), ("x-answer", "404")]);
        [key("a"), key("a"), key("b"), key("a"), grpc(), with(&[]), free, costly, answered, key("b")]
    };
    for setting in settings {
        let cost = || RequestCost::content_length(1, 1);
        let twice = |limits: fn(&Site) -> [Limit; 2]| {
            let site = site().with(setting);
            let [one, other] = limits(&site);
            let (builder, told) = telling(site.builder.limit(one.cost(cost())).limit(other));
            (Site { builder, clock: site.clock }, told)
        };
        let (local, local_told) = twice(|site| {
            let limiter = site.limiter(Quota::per_hour(2));
            let limit = Limit::new("keyed", limiter).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny);
            [limit, Limit::new("all", site.single(Quota::per_minute(100).burst(50)))]
        });
        let (shared, shared_told) = twice(|site| {
            let limit = by_header("keyed", &site.elsewhere(Quota::per_hour(2)));
            let all = site.elsewhere(Quota::per_minute(100).burst(50));
            [limit, Limit::new("all", all).by(KeyBy::nothing())]
        });
        let (local, shared) = (local.run(), shared.run_shared());
        for request in requests() {
            let (one, other) = (local.send(request.clone()), shared.send(request));
            assert_eq!((one.status, &one.body), (other.status, &other.body));
            let mut headers = [&one, &other].map(|answer| answer.headers.clone());
            if one.body != "handled" {
                // If another limit refuses a request that a shared limit allowed, the response
                // shows the shared limit as it was before the refund.
                headers.iter_mut().for_each(|headers| drop(headers.remove("ratelimit")));
            }
            let [one, other] = headers;
            assert_eq!(one, other);
        }
        assert_eq!(*local_told.lock().unwrap(), {
            let mut told = shared_told.lock().unwrap().clone();
            // The charge has been refunded.
            told.iter_mut().filter(|it| it.2[2] && it.1.is_some()).for_each(|it| it.1 = Some(0));
            told
        });
    }
}

#[test]
fn shared_limits_are_checked_when_the_layer_is_built_and_are_not_asked() {
    let elsewhere = site().elsewhere(Quota::per_hour(5));
    let limit = || by_header("keyed", &elsewhere);
    let refused = |limit| RateLimitLayer::builder().limit(limit).build().unwrap_err();
    let above = Fault::CostAboveCapacity { limit: "keyed".to_owned(), cost: 6, capacity: 5 };
    assert_eq!(refused(limit().cost(6)), above);
    assert!(RateLimitLayer::builder().limit(limit().cost(5)).build().is_ok());
    let burst = by_header("keyed", &site().elsewhere(Quota::per_hour(5).burst(6)));
    assert!(RateLimitLayer::builder().limit(burst.cost(6)).build().is_ok());
    let quota = Quota::per_second(200_000_000);
    let never = Fault::NeverTriggers { limit: "all".to_owned(), quota };
    assert_eq!(refused(Limit::new("all", site().elsewhere(quota)).by(KeyBy::nothing())), never);
    let missing = Limit::new("keyed", Arc::clone(&elsewhere)).by(KeyBy::header("x-a"));
    assert!(matches!(fault(&refused(missing)), Fault::NoKey { .. }));
    assert_eq!(RateLimitLayer::builder().build().unwrap_err(), Fault::NoLimits);
    assert_eq!(elsewhere.calls(), [""; 0]);
    // Several limits may use the same limiter, because each key includes the name of its limit.
    let [one, other] =
        ["one", "other"].map(|name| Limit::new(name, Arc::clone(&elsewhere)).by(KeyBy::nothing()));
    let site = site().limit(one).limit(other).run_shared();
    assert_eq!(site.send(with(&[])).items("ratelimit"), ["one r=4 t=720", "other r=4 t=720"]);
}

/// The local limiter is full for a month, and then new keys arrive. Only an insertion finds out
/// that the old keys may be evicted.
#[test]
fn new_keys_replace_old_ones_after_a_month_beside_a_shared_limit() {
    let day = Duration::from_secs(24 * 3_600);
    for is_in_flight in [false, true] {
        let site = site();
        let clock = site.clock.clone();
        let local = if is_in_flight {
            let limiter = InFlight::<Key>::builder(1).max_keys(10).when_full(WhenFull::Deny).clock(&clock);
            Limit::new("local", limiter.build().unwrap())
        } else {
            let limiter = Limiter::<Key>::builder(Quota::per_hour(1)).max_keys(10);
            Limit::new("local", limiter.when_full(WhenFull::Deny).clock(&clock).build().unwrap())
        };
        let local = local.by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny);
        let shared = site.elsewhere(Quota::per_hour(1_000));
        let shared = Limit::new("shared", Arc::clone(&shared)).by(KeyBy::nothing());
        let site = site.limit(local).limit(shared).run_shared();
        let refused = |keys: std::ops::Range<u32>| {
            clock.advance(Duration::from_secs(1));
            keys.filter(|name| site.send(key(&name.to_string())).status != 200).count()
        };
        assert_eq!(refused(0..10), 0);
        clock.advance(31 * day);
        let refused = refused(10..20);
        assert!(refused <= 6, "{refused}");
    }
}

/// Two shared limits and a local one. The shared limits allow two requests an hour for each `x-a`
/// and three in total, and the local limit allows five.
fn three() -> (Waits, [Arc<Elsewhere>; 2], Arc<tollgate::SingleLimiter>, Told) {
    let site = site();
    let (keyed, all) = (site.elsewhere(Quota::per_hour(2)), site.elsewhere(Quota::per_hour(3)));
    let here = Arc::new(site.single(Quota::per_hour(5)));
    let site = site
        .limit(by_header("keyed", &keyed))
        .limit(Limit::new("here", Arc::clone(&here)))
        .limit(Limit::new("all", Arc::clone(&all)).by(KeyBy::nothing()));
    let (builder, told) = telling(site.builder);
    let site = Site { builder, clock: site.clock };
    (site.run_shared(), [keyed, all], here, told)
}

#[test]
fn what_one_limit_refuses_is_given_back_to_the_others() {
    let (site, [keyed, all], here, told) = three();
    assert_eq!(site.statuses([key("a"), key("a")]), [200, 200]);
    assert_eq!(
        site.send(key("b")).items("ratelimit"),
        ["keyed r=1 t=1800", "here r=2 t=720", "all r=0 t=1200"]
    );
    let forget = || {
        told.lock().unwrap().clear();
        [keyed.calls(), all.calls()]
    };
    forget();
    // One shared limit refuses, so the other is refunded, and the local limit is not charged.
    let refused = site.send(key("b"));
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("1200")));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["all"]));
    assert_eq!(refused.items("ratelimit"), ["keyed r=0", "here r=2 t=720", "all r=0 t=1200"]);
    let event = |limit: &str, charged, flags| (limit.to_owned(), Some(charged), flags);
    let expected = [
        event("keyed", 1, [false, false, true]),
        event("here", 0, [false, false, true]),
        event("all", 0, [false, true, true]),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
    assert_eq!(forget(), [vec!["check 1", "refund 1"], vec!["check 1"]]);
    assert_eq!((keyed.left(&Key::new("keyed", ["b"])), here.peek().remaining()), (1, 2));
    // Both shared limits refuse. The limit with the longest wait binds, and there is nothing to
    // refund.
    let refused = site.send(key("a"));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["keyed", "all"]));
    assert_eq!(refused.header("retry-after"), Some("1800"));
    assert_eq!(forget(), [["check 1"], ["check 1"]]);
}

#[test]
fn what_is_refused_here_costs_no_round_trip() {
    let (site, [keyed, all], here, told) = three();
    assert!(here.check_n(5).is_allowed());
    let refused = site.send(key("a"));
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("720")));
    assert_eq!([keyed.calls(), all.calls()], [[""; 0]; 2]);
    // A limit that was not asked is only in the policy.
    assert_eq!(refused.items("ratelimit"), ["here r=0 t=720"]);
    assert_eq!(refused.items("ratelimit-policy"), ["keyed q=2 w=3600", "here q=5 w=3600", "all q=3 w=3600"]);
    assert_eq!(*told.lock().unwrap(), [("here".to_owned(), Some(0), [false, true, true])]);
}

#[test]
fn what_a_limit_of_this_process_denies_beside_a_shared_one_is_counted() {
    let site = site();
    let limiter = |tokens| Limiter::<Key>::builder(Quota::per_hour(tokens)).clock(&site.clock);
    let counting = Arc::new(limiter(1).exact_keys().count_denials().build().unwrap());
    let full = Arc::new(limiter(100).max_keys(1).when_full(WhenFull::Deny).build().unwrap());
    let elsewhere = site.elsewhere(Quota::per_hour(100));
    let by = |limit: Limit, header: &str| limit.by(KeyBy::header(header)).when_no_key(WhenNoKey::Allow);
    let site = site
        .limit(by(Limit::new("counting", Arc::clone(&counting)), "x-a"))
        .limit(by(Limit::new("full", Arc::clone(&full)), "x-b"))
        .limit(Limit::new("elsewhere", elsewhere).by(KeyBy::nothing()))
        .run_shared();
    assert_eq!(site.statuses([key("a"), key("a"), key("a")]), [200, 429, 429]);
    assert_eq!(counting.most_denied(9).iter().map(|key| key.denied()).collect::<Vec<_>>(), [2]);
    let other = |name: &str| with(&[("x-b", name)]);
    assert_eq!(site.statuses([other("a"), other("b"), other("c")]), [200, 429, 429]);
    assert_eq!(full.stats().refused, 2);
}

#[test]
fn a_request_without_a_key_is_refused_passes_or_shares_one() {
    for (no_key, statuses, checks) in [
        (WhenNoKey::Deny, [403, 403], 0),
        (WhenNoKey::Allow, [200, 200], 0),
        (WhenNoKey::Share, [200, 429], 2),
    ] {
        let site = site();
        let elsewhere = site.elsewhere(Quota::per_hour(1));
        let limit = by_header("keyed", &elsewhere).when_no_key(no_key);
        let site = site.limit(limit).run_shared();
        assert_eq!(site.statuses([with(&[]), with(&[])]), statuses, "{no_key:?}");
        assert_eq!(elsewhere.calls().len(), checks, "{no_key:?}");
    }
}

#[test]
fn exempt_requests_ask_nobody_and_costs_are_what_was_said() {
    let site = site();
    let elsewhere = site.elsewhere(Quota::per_hour(7));
    let limit = Limit::new("all", Arc::clone(&elsewhere))
        .by(KeyBy::nothing())
        .skip(|head| head.uri().path() == "/a")
        .cost(RequestCost::from_fn(|head| if head.uri().path() == "/c" { 0 } else { 3 }));
    let site = site.limit(limit).with(|it| it.skip(|head| head.uri().path() == "/b")).run_shared();
    let to = |path| from("", path, &[]);
    assert_eq!(site.statuses([to("/a"), to("/b")]), [200, 200]);
    assert_eq!(elsewhere.calls(), [""; 0]);
    assert_eq!(site.statuses([to("/"), to("/c"), to("/"), to("/")]), [200, 200, 200, 429]);
    assert_eq!(elsewhere.calls(), ["check 3", "check 0", "check 3", "check 3"]);
}

#[test]
fn a_shared_shadow_decides_and_tells_and_never_refuses() {
    let site = site();
    let (tried, open) = (site.elsewhere(Quota::per_hour(2)), site.elsewhere(Quota::per_hour(3)));
    let site = site
        .limit(Limit::new("tried", Arc::clone(&tried)).by(KeyBy::nothing()).shadow())
        .limit(Limit::new("open", Arc::clone(&open)).by(KeyBy::nothing()));
    let (builder, told) = telling(site.builder);
    let site = Site { builder, clock: site.clock }.run_shared();
    let first = site.send(with(&[]));
    assert_eq!(first.items("ratelimit"), ["open r=2 t=1200"]);
    assert_eq!(first.items("ratelimit-policy"), ["open q=3 w=3600"]);
    assert_eq!(site.statuses([with(&[]), with(&[]), with(&[])]), [200, 200, 429]);
    let event = |limit: &str, charged, flags| (limit.to_owned(), Some(charged), flags);
    let expected = [
        event("tried", 1, [false, false, false]),
        event("open", 1, [false, false, false]),
        event("tried", 1, [false, false, false]),
        event("open", 1, [false, false, false]),
        event("tried", 0, [true, false, false]),
        event("open", 1, [false, false, false]),
        event("tried", 0, [true, false, true]),
        event("open", 0, [false, true, true]),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
}

#[test]
fn a_shared_shadow_is_charged_only_for_what_passes() {
    let site = site();
    let (tried, open) = (site.elsewhere(Quota::per_hour(9)), site.elsewhere(Quota::per_hour(1)));
    let site = site
        .limit(Limit::new("tried", Arc::clone(&tried)).by(KeyBy::nothing()).shadow())
        .limit(Limit::new("open", open).by(KeyBy::nothing()))
        .run_shared();
    assert_eq!(site.statuses([with(&[]), with(&[])]), [200, 429]);
    assert_eq!(tried.calls(), ["check 1", "check 1", "refund 1"]);
    let none: [&str; 0] = [];
    assert_eq!(tried.left(&Key::new("tried", none)), 8);
}

#[test]
fn a_local_shadow_beside_a_shared_limit_is_charged_only_for_what_passes() {
    let site = site();
    let (tried, open) = (Arc::new(site.single(Quota::per_hour(2))), site.elsewhere(Quota::per_hour(3)));
    let site = site
        .limit(Limit::new("tried", Arc::clone(&tried)).shadow())
        .limit(Limit::new("open", open).by(KeyBy::nothing()))
        .run_shared();
    assert_eq!(site.statuses([with(&[])]), [200]);
    assert_eq!(tried.peek().remaining(), 1);
    assert_eq!(site.statuses([with(&[]), with(&[]), with(&[])]), [200, 200, 429]);
    assert_eq!(tried.peek().remaining(), 0);
}

#[test]
fn what_was_let_through_without_a_charge_is_not_given_back() {
    let site = site();
    let limiter = Limiter::builder(Quota::per_hour(9)).max_keys(1).when_full(WhenFull::Allow);
    let full = Elsewhere::new(limiter.clock(&site.clock).build().unwrap());
    let one = site.elsewhere(Quota::per_hour(1));
    let site =
        site.limit(by_header("keyed", &full)).limit(Limit::new("one", one).by(KeyBy::nothing())).run_shared();
    assert_eq!(site.statuses([key("a"), key("b")]), [200, 429]);
    assert_eq!(full.calls(), ["check 1", "check 1"]);
}

#[test]
fn a_layer_with_local_limits_alone_answers_at_the_first_poll() {
    let site = site();
    let limit = Limit::new("all", site.single(Quota::per_hour(1)));
    let site = site.limit(limit).run_shared();
    let [first, second] = [with(&[]), with(&[])].map(|request| site.send(request));
    assert_eq!((first.status.as_u16(), first.items("ratelimit")), (200, vec!["all r=0 t=3600".to_owned()]));
    assert_eq!((second.status.as_u16(), second.header("retry-after")), (429, Some("3600")));
}
