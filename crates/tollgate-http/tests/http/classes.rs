//! Tests how a request's class is found, and which quota the caller sees.

use super::elsewhere::Elsewhere;
use super::site::{Answer, Running, Site, from, site, with};
use bytes::Bytes;
use http::{Request, Response};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::{ClassLimiter, Limiter, Quota};
use tollgate_http::program::Fault;
use tollgate_http::{ClassBy, Key, KeyBy, Limit, RateLimitLayer, TrustedProxies, WhenNoKey};

/// The account that a middleware has found for the caller.
#[derive(Clone)]
struct Plan(&'static str);

fn plan() -> ClassBy {
    ClassBy::extension(|plan: &Plan| Some(plan.0))
}

/// Makes a request of one caller with a plan.
fn of(plan: &'static str) -> Request<()> {
    let mut request = from("192.0.2.1", "/", &[]);
    request.extensions_mut().insert(Plan(plan));
    request
}

/// Two requests an hour, and four for paying callers.
fn tiers(site: &Site) -> Arc<ClassLimiter<Key>> {
    let builder = Limiter::builder(Quota::per_hour(2)).clock(&site.clock);
    Arc::new(builder.class("paid", Quota::per_hour(4)).class("partner", Quota::per_hour(8)).build().unwrap())
}

fn tiered(name: &str, limiter: &Arc<ClassLimiter<Key>>, by: ClassBy) -> Limit {
    Limit::new(name, Arc::clone(limiter)).by(KeyBy::peer()).class_by(by).when_no_key(WhenNoKey::Deny)
}

/// A layer with one limit of three tiers.
fn running(by: ClassBy) -> Running {
    let site = site();
    let limiter = tiers(&site);
    site.limit(tiered("tier", &limiter, by)).run()
}

/// Returns the quota and the number of remaining tokens shown in a response.
fn shown(answer: &Answer) -> (String, String) {
    (answer.items("ratelimit-policy").join(", "), answer.items("ratelimit").join(", "))
}

#[test]
fn each_class_has_its_quota_and_is_shown_no_other() {
    let site = running(plan());
    for (plan, quota) in [("free", 2), ("paid", 4), ("partner", 8)] {
        for left in (0..quota).rev() {
            let answer = site.send(of(plan));
            let expected = (format!("tier q={quota} w=3600"), format!("tier r={left} t={}", 3600 / quota));
            assert_eq!((answer.status.as_u16(), shown(&answer)), (200, expected), "{plan}");
        }
        let refused = site.send(of(plan));
        assert_eq!(refused.status, 429, "{plan}");
        assert_eq!(shown(&refused).0, format!("tier q={quota} w=3600"));
        assert_eq!(refused.header("retry-after"), Some(&*(3600 / quota).to_string()));
        assert!(!refused.body.contains(plan), "it is nobody's business: {}", refused.body);
    }
}

#[test]
fn a_class_that_is_missing_or_unknown_is_the_default_class_and_the_latter_is_reported() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let site = site();
    let limiter = tiers(&site);
    let listener = |sign: char| {
        let reported = Arc::clone(&reported);
        move |limit: &str, class: &str| reported.lock().unwrap().push(format!("{sign} {limit}: {class}"))
    };
    let site = site
        .limit(tiered("tier", &limiter, plan()))
        .with(|builder| builder.on_unknown_class(listener('a')).on_unknown_class(listener('b')));
    let site = site.run();
    assert_eq!(shown(&site.send(from("192.0.2.1", "/", &[]))).0, "tier q=2 w=3600");
    assert_eq!(shown(&site.send(of("paid"))).0, "tier q=4 w=3600");
    for unknown in ["", "Paid", "paid ", "gold"] {
        assert_eq!(shown(&site.send(of(unknown))).0, "tier q=2 w=3600", "{unknown}");
    }
    let told =
        ["", "Paid", "paid ", "gold"].map(|class| [format!("a tier: {class}"), format!("b tier: {class}")]);
    assert_eq!(*reported.lock().unwrap(), told.concat());
}

#[test]
fn a_header_names_the_class_if_a_trusted_hop_has_sent_it() {
    let site = running(ClassBy::header("x-plan", TrustedProxies::networks(["10.0.0.0/8"])));
    let class = |peer: &str, plans: &[&str]| {
        let headers: Vec<_> = plans.iter().map(|plan| ("x-plan", *plan)).collect();
        let shown = shown(&site.send(from(peer, "/", &headers))).0;
        shown.split_once("q=").unwrap().1.split_once(' ').unwrap().0.to_owned()
    };
    assert_eq!(class("10.0.0.1", &["paid"]), "4");
    assert_eq!(class("::ffff:10.0.0.2", &["paid"]), "4");
    // Anyone can write a header.
    assert_eq!(class("192.0.2.1", &["paid"]), "2");
    // With two values, it is not known which class counts.
    assert_eq!(class("10.0.0.3", &["paid", "partner"]), "2");
    assert_eq!(class("10.0.0.4", &[]), "2");
    assert_eq!(class("10.0.0.5", &["pa\tid"]), "2");
    // Every request is assumed to arrive through a proxy.
    let site = running(ClassBy::header("x-plan", TrustedProxies::hops(1)));
    assert_eq!(shown(&site.send(from("192.0.2.1", "/", &[("x-plan", "paid")]))).0, "tier q=4 w=3600");
}

/// Returns the path of a file with this text.
pub(crate) fn scratch(name: &str, text: &str) -> String {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn keys_have_classes_by_a_list_a_file_or_a_function() {
    let file = scratch("classes", "\u{feff}one , paid \r\n# customers\n\n\"t,wo\",partner\n");
    let key = || KeyBy::api_key("x-api-key", "key");
    let ways = [
        ClassBy::list(key(), [("one", "paid"), ("t,wo", "partner")]),
        ClassBy::file(key(), file),
        ClassBy::from_fn(|head| match &*head.header("x-api-key")? {
            b"one" => Some("paid"),
            b"t,wo" => Some("partner"),
            _ => None,
        }),
    ];
    for by in ways {
        let way = format!("{by:?}");
        let site = running(by);
        let quota = |key: &str| shown(&site.send(from("192.0.2.1", "/", &[("x-api-key", key)]))).0;
        assert_eq!(quota("one"), "tier q=4 w=3600", "{way}");
        assert_eq!(quota("t,wo"), "tier q=8 w=3600", "{way}");
        for other in ["two", "# customers", ""] {
            assert_eq!(quota(other), "tier q=2 w=3600", "{way}: {other}");
        }
        assert!(!way.contains("one"), "keys are secrets: {way}");
    }
    let site = running(ClassBy::list(key(), [("one", "paid")]));
    assert_eq!(shown(&site.send(from("192.0.2.1", "/?key=one", &[]))).0, "tier q=4 w=3600");
}

#[test]
fn a_refund_goes_to_the_class_of_the_charge() {
    let site = site();
    let limiter = tiers(&site);
    let limit = tiered("tier", &limiter, plan()).charge_if(|response| response.status() == 401);
    let site = site.limit(limit).run();
    let key = Key::new("tier", [std::net::IpAddr::from([192, 0, 2, 1])]);
    let left = |class: &str| limiter.class(class).unwrap_or(limiter.default_class()).peek(&key).remaining();
    // Each class keeps one charge, so a refund to the wrong class would be noticed.
    for class in ["free", "paid"] {
        let mut failed = of(class);
        failed.headers_mut().insert("x-answer", "401".parse().unwrap());
        assert_eq!(site.status(failed), 401);
    }
    assert_eq!((left("free"), left("paid")), (1, 3));
    assert_eq!(site.status(of("paid")), 200);
    assert_eq!((left("free"), left("paid")), (1, 3));
}

#[test]
fn a_class_gets_another_quota_while_the_layer_runs() {
    let site = site();
    let limiter = tiers(&site);
    let site = site.limit(tiered("tier", &limiter, plan())).run();
    assert_eq!(shown(&site.send(of("paid"))), ("tier q=4 w=3600".into(), "tier r=3 t=900".into()));
    limiter.class("paid").unwrap().set_quota(Quota::per_hour(1)).unwrap();
    assert_eq!(shown(&site.send(of("paid"))).0, "tier q=1 w=3600");
    assert_eq!(shown(&site.send(of("free"))), ("tier q=2 w=3600".into(), "tier r=1 t=1800".into()));
    site.after(Duration::from_secs(7200));
    assert_eq!(site.statuses([of("paid"), of("paid"), of("free")]), [200, 429, 200]);
}

#[test]
fn whom_a_limit_does_not_apply_to_is_shown_no_class_of_it() {
    let site = site();
    let limiter = tiers(&site);
    let limit = tiered("writes", &limiter, plan()).skip(|head| head.method().is_safe());
    let all = Limit::new("all", site.single(Quota::per_hour(100)));
    let site = site.limit(all).limit(limit).run();
    let mut write = of("paid");
    *write.method_mut() = http::Method::POST;
    assert_eq!(shown(&site.send(write)).0, "all q=100 w=3600, writes q=4 w=3600");
    assert_eq!(shown(&site.send(of("paid"))).0, "all q=100 w=3600");
    // A caller that is exempt from all limits sees no fields.
    let exempt = super::site::site();
    let limiter = tiers(&exempt);
    let limit = tiered("tier", &limiter, plan());
    let exempt = exempt.limit(limit).with(|it| it.skip(|head| head.path() == "/health")).run();
    let mut health = of("paid");
    *health.uri_mut() = "/health".parse().unwrap();
    assert_eq!(exempt.send(health).header("ratelimit-policy"), None);
    assert_eq!(limiter.stats().keys, 0);
}

#[test]
fn classes_of_two_limits_are_shown_in_any_mixture() {
    #[derive(Clone)]
    struct Other(&'static str);
    let site = site();
    let (one, other) = (tiers(&site), tiers(&site));
    let by_other = ClassBy::extension(|plan: &Other| Some(plan.0));
    let site = site.limit(tiered("one", &one, plan())).limit(tiered("other", &other, by_other)).run();
    let quota = |plan| {
        if plan == "free" {
            2
        } else if plan == "paid" {
            4
        } else {
            8
        }
    };
    let plans = ["free", "paid", "partner"];
    for _ in 0..2 {
        for (one, other) in plans.iter().flat_map(|one| plans.iter().map(move |other| (*one, *other))) {
            let mut request = of(one);
            request.extensions_mut().insert(Other(other));
            let expected = format!("one q={} w=3600, other q={} w=3600", quota(one), quota(other));
            assert_eq!(shown(&site.send(request)).0, expected);
        }
    }
}

#[test]
fn a_key_with_a_quota_of_its_own_is_shown_that_in_its_class() {
    let site = site();
    let limiter = tiers(&site);
    let key = Key::new("tier", [std::net::IpAddr::from([192, 0, 2, 1])]);
    limiter.class("paid").unwrap().set_key_quota(&key, Quota::per_hour(40)).unwrap();
    let site = site.limit(tiered("tier", &limiter, plan())).run();
    assert_eq!(shown(&site.send(of("paid"))), ("tier q=40 w=3600".into(), "tier r=39 t=90".into()));
    assert_eq!(shown(&site.send(of("free"))).0, "tier q=2 w=3600");
}

#[test]
fn events_and_responses_of_ones_own_know_the_class() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&heard);
    let site = site();
    let limiter = tiers(&site);
    let limit = tiered("tier", &limiter, plan());
    let site = site.limit(limit).with(move |it| {
        it.on_decision(move |event| {
            events.lock().unwrap().push((event.class.map(str::to_owned), event.is_refused));
        })
        .respond(|refusal| Response::new(Bytes::from(format!("{:?} of {:?}", refusal.class, refusal.reason))))
    });
    let site = site.run();
    for _ in 0..4 {
        site.send(of("paid"));
    }
    assert_eq!(site.send(of("paid")).body, "Some(\"paid\") of Quota");
    for _ in 0..2 {
        site.send(of("free"));
    }
    assert_eq!(site.send(of("free")).body, "Some(\"default\") of Quota");
    let paid = Some("paid".to_owned());
    let mut expected = vec![(paid.clone(), false); 4];
    let default = || Some("default".to_owned());
    expected.extend([(paid, true), (default(), false), (default(), false), (default(), true)]);
    assert_eq!(*heard.lock().unwrap(), expected);
    assert_eq!(site.send(with(&[])).body, "None of NoKey");
}

#[test]
fn a_class_that_is_full_says_how_many_places_it_has() {
    let site = site();
    let builder = Limiter::builder(Quota::per_hour(2)).clock(&site.clock).max_keys(100);
    let settings = tollgate::ClassSettings::from(Quota::per_hour(4)).max_keys(3);
    let limiter: Arc<ClassLimiter<Key>> = Arc::new(builder.class("paid", settings).build().unwrap());
    let site = site.limit(tiered("tier", &limiter, plan())).run();
    let [.., refused] = [1, 2, 3, 4].map(|last| {
        let mut request = from(&format!("192.0.2.{last}"), "/", &[]);
        request.extensions_mut().insert(Plan("paid"));
        site.send(request)
    });
    assert_eq!((refused.status.as_u16(), &refused.json()["max_keys"]), (429, &3.into()));
    assert_eq!(site.status(of("free")), 200);
}

#[test]
fn shared_limits_have_classes_too() {
    let site = site();
    let clock = site.clock.clone();
    let default = Elsewhere::new(site.limiter(Quota::per_hour(2)));
    let paid = Elsewhere::new(site.limiter(Quota::per_hour(4)));
    let limiter = default.with_class("paid", &paid);
    let limit = |charges: bool| {
        let limit = Limit::new("tier", limiter.clone()).by(KeyBy::peer()).class_by(plan());
        let limit = limit.when_no_key(WhenNoKey::Deny);
        if charges { limit.charge_if(|response| response.status() == 401) } else { limit }
    };
    let site = site.limit(limit(false)).run_shared();
    assert_eq!(shown(&site.send(of("paid"))), ("tier q=4 w=3600".into(), "tier r=3 t=900".into()));
    assert_eq!(shown(&site.send(of("free"))), ("tier q=2 w=3600".into(), "tier r=1 t=1800".into()));
    assert_eq!(site.statuses([of("free"), of("free"), of("paid")]), [200, 429, 200]);
    clock.advance(Duration::from_secs(7200));
    for limiter in [&default, &paid] {
        limiter.calls();
    }
    let site = super::site::site().limit(limit(true)).run_shared();
    assert_eq!(site.statuses([of("paid")]), [200]);
    assert_eq!((default.calls(), paid.calls()), (vec![], vec!["check 1".into(), "refund 1".into()]));
}

#[test]
fn classes_that_cannot_work_are_refused() {
    let build = |limit: Limit| {
        let limit = limit.when_no_key(WhenNoKey::Deny);
        RateLimitLayer::builder().limit(limit).build().map(drop)
    };
    let refused = |by: Option<ClassBy>| {
        let limiter = Limiter::builder(Quota::per_hour(2)).class("paid", Quota::per_hour(4)).build().unwrap();
        let limit = Limit::new("a", limiter).by(KeyBy::peer());
        let refused = build(match by {
            Some(by) => limit.class_by(by),
            None => limit,
        });
        refused.unwrap_err().to_string()
    };
    let list = |pairs: &[(&'static str, &'static str)]| {
        Some(ClassBy::list(KeyBy::header("k"), pairs.iter().copied()))
    };
    let file = |text: &str| Some(ClassBy::file(KeyBy::header("k"), scratch("bad-classes", text)));
    let table = [
        (None, "limit \"a\" has classes of callers (paid) but no way to find the class of a request"),
        (list(&[("x", "gold")]), "limit \"a\" has no class \"gold\": expected one of its limiter (paid)"),
        (list(&[]), "classes of keys: the list has 0 keys, so all requests"),
        (list(&[("x", "paid"), ("x", "paid")]), "key 2 of the list is there twice"),
        (file("\n#\n"), "/bad-classes` has 0 keys"),
        (file("secret,paid\n secret\n"), "classes of keys: line 2 of the file `"),
        (file("secret,"), "/bad-classes` is not `key,class`: expected a key, a comma, and a class or"),
        (file("secret,1,paid"), "line 1 of the file"),
        (file("secret,1,paid"), "has 2 values before its class: expected 1, one for each part of the key"),
        (file(",paid"), "line 1 of the file"),
        (file("k,gold"), "limit \"a\" has no class \"gold\""),
        (Some(ClassBy::file(KeyBy::header("k"), "/nowhere")), "the file `/nowhere` cannot be read ("),
        (
            Some(ClassBy::list(KeyBy::peer(), [("x", "paid")])),
            "key 1 of the list has `x` where the key is an address: expected an address, or a network",
        ),
        (
            Some(ClassBy::list(KeyBy::peer(), [("10.0.0.1/8", "paid"), ("10.0.0.0/8", "paid")])),
            "key 2 of the list is there twice",
        ),
        (
            Some(ClassBy::list(KeyBy::peer(), [("2001:db8::/96", "paid")])),
            "clients are told apart by the first 64 bits of an IPv6 address",
        ),
        (
            Some(ClassBy::list(KeyBy::from_fn(|_| None), [("x", "paid")])),
            "the class of a key by closure: expected a key by address, header",
        ),
        (Some(ClassBy::list(KeyBy::header(" "), [("x", "paid")])), "invalid header name \" \""),
        (Some(ClassBy::header(" ", TrustedProxies::hops(1))), "invalid header name \" \""),
        (Some(ClassBy::header("a", TrustedProxies::networks(["::/0"]))), "hold every IPv6 address"),
        (Some(ClassBy::header("a", TrustedProxies::networks(["?"]))), "invalid network \"?\""),
    ];
    for (by, part) in table {
        let message = refused(by);
        assert!(message.contains(part), "{message}");
        assert!(!message.contains("secret"), "{message}");
    }
    assert!(
        cfg!(not(unix)) || {
            let endless = refused(Some(ClassBy::file(KeyBy::header("k"), "/dev/zero")));
            endless.contains("the file `/dev/zero` is larger than 64 MiB: expected lines `key,class`")
        }
    );
    let one = Limiter::builder(Quota::per_hour(2)).build().unwrap();
    let refused = build(Limit::new("a", one).by(KeyBy::peer()).class_by(plan())).unwrap_err();
    assert_eq!(refused, Fault::NoClasses { limit: "a".to_owned() });
    // A class is checked like a separate limit.
    let costly = Limiter::builder(Quota::per_hour(9)).class("trial", Quota::per_hour(2)).build().unwrap();
    let limit =
        Limit::new("a", costly).by(KeyBy::peer()).class_by(plan()).cost(tollgate_http::RequestCost::from(3));
    let refused = build(limit).unwrap_err().to_string();
    assert!(
        refused.starts_with("class \"trial\": limit \"a\" charges 3 tokens for each request"),
        "{refused}"
    );
}
