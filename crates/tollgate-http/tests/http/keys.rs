//! The keys of requests, for every way to find a key.

use super::site::{from, grpc, site, with};
use http::Request;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tollgate::{Limiter, Quota};
use tollgate_http::{DecisionEvent, Key, KeyBy, KeyPart, Limit, RequestHead, WhenNoKey};

const OK: u16 = 200;
const REFUSED: u16 = 429;
const NO_KEY: u16 = 403;
const SEVERAL: u16 = 400;

fn peer(address: &str) -> Request<()> {
    from(address, "/", &[])
}

#[test]
fn each_peer_address_has_a_limit_of_its_own_whatever_its_port() {
    let site = site().hourly(KeyBy::peer());
    let requests = [peer("192.0.2.1"), peer("192.0.2.1"), peer("192.0.2.2"), peer("")];
    assert_eq!(site.statuses(requests), [OK, REFUSED, OK, NO_KEY]);
    let mut other_port = peer("192.0.2.2");
    other_port.extensions_mut().insert(tollgate_http::PeerAddr(([192, 0, 2, 2], 1).into()));
    assert_eq!(site.status(other_port), REFUSED);
}

#[test]
fn a_mapped_peer_is_the_ipv4_address_and_not_all_of_ipv4() {
    let site = site().hourly(KeyBy::peer());
    let requests =
        [peer("::ffff:192.0.2.1"), peer("192.0.2.1"), peer("::ffff:c000:201"), peer("::ffff:192.0.2.2")];
    assert_eq!(site.statuses(requests), [OK, REFUSED, REFUSED, OK]);
}

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let site = site().hourly(KeyBy::peer());
    assert_eq!(site.status(peer("2001:db8:0:1::1")), OK);
    for host in 2..100_u32 {
        assert_eq!(site.status(peer(&format!("2001:db8:0:1:{host:x}::{host:x}"))), REFUSED);
    }
    assert_eq!(site.status(peer("2001:db8:0:2::1")), OK);
}

#[test]
fn the_prefix_of_ipv6_is_settable() {
    let by = KeyBy::header("x-tenant").or(KeyBy::peer()).ipv6_prefix(56);
    let wide = site().hourly(by);
    let requests = [peer("2001:db8:0:100::1"), peer("2001:db8:0:1ff::1"), peer("2001:db8:0:200::1")];
    assert_eq!(wide.statuses(requests), [OK, REFUSED, OK]);
    let whole = site().hourly(KeyBy::peer().ipv6_prefix(128));
    assert_eq!(
        whole.statuses([peer("2001:db8::1"), peer("2001:db8::2"), peer("2001:db8::2")]),
        [OK, OK, REFUSED]
    );
    // An IPv4 address is never cut, mapped or not.
    let short = site().hourly(KeyBy::peer().ipv6_prefix(1));
    assert_eq!(
        short.statuses([peer("192.0.2.1"), peer("::ffff:192.0.2.2"), peer("192.0.2.2")]),
        [OK, OK, REFUSED]
    );
}

#[test]
fn the_peer_may_stand_in_an_extension_of_the_server() {
    #[derive(Clone)]
    struct Tcp(SocketAddr);
    #[derive(Clone)]
    struct Maybe(Option<SocketAddr>);
    let site = site()
        .with(|builder| builder.peer_from(|it: &Tcp| it.0).peer_from(|it: &Maybe| it.0))
        .hourly(KeyBy::peer());
    let with = |address: [u8; 4], maybe: bool| {
        let mut request = peer("");
        let address = (address, 1).into();
        if maybe {
            request.extensions_mut().insert(Maybe(Some(address)));
        } else {
            request.extensions_mut().insert(Tcp(address));
        }
        request
    };
    assert_eq!(
        site.statuses([with([1; 4], false), with([1; 4], true), with([2; 4], true)]),
        [OK, REFUSED, OK]
    );
    let mut none = peer("");
    none.extensions_mut().insert(Maybe(None));
    assert_eq!(site.status(none), NO_KEY);
}

#[test]
fn a_header_is_a_key_if_it_is_there_once_and_not_empty() {
    let site = site().hourly(KeyBy::header("X-Tenant"));
    let tenant = |name| with(&[("x-tenant", name)]);
    assert_eq!(site.statuses([tenant("a"), tenant("a"), tenant("b"), tenant("A")]), [OK, REFUSED, OK, OK]);
    assert_eq!(site.statuses([tenant(""), with(&[])]), [NO_KEY, NO_KEY]);
    // If two keys were accepted, the limiter might use one of them and the handler the other.
    assert_eq!(site.status(with(&[("x-tenant", "a"), ("x-tenant", "new")])), SEVERAL);
    assert_eq!(site.status(with(&[("x-tenant", "new"), ("x-tenant", "new")])), SEVERAL);
}

#[test]
fn a_query_parameter_is_a_key_however_it_is_encoded() {
    let site = site().hourly(KeyBy::query("api_key"));
    let query = |query: &str| from("", &format!("/{query}"), &[]);
    assert_eq!(site.status(query("?api_key=a b".replace(' ', "+").as_str())), OK);
    for same in ["?api_key=a%20b", "?x=1&api_key=%61%20b&y", "?api%5Fkey=a+b", "?api_keys=1&api_key=a+b"] {
        assert_eq!(site.status(query(same)), REFUSED, "{same}");
    }
    for none in ["", "?", "?api_key", "?api_key=", "?API_KEY=a", "?a=api_key=b"] {
        assert_eq!(site.status(query(none)), NO_KEY, "{none}");
    }
    for several in ["?api_key=a&api_key=b", "?api_key=&api_key=a", "?api_key=a&api%5Fkey", "?api_key&api_key"]
    {
        assert_eq!(site.status(query(several)), SEVERAL, "{several}");
    }
    assert_eq!(site.statuses([query("?api_key=a%2Bb"), query("?api_key=a%2bb")]), [OK, REFUSED]);
}

#[test]
fn a_plus_in_the_name_of_a_parameter_is_encoded() {
    let site = site().hourly(KeyBy::query("a+b"));
    let query = |query: &str| from("", &format!("/{query}"), &[]);
    assert_eq!(site.statuses([query("?a%2Bb=7"), query("?a%2bb=7&a+b=1")]), [OK, REFUSED]);
    assert_eq!(site.status(query("?a+b=7")), NO_KEY);
    let request = query("?a+b=7&a%2Bb=8");
    assert_eq!(RequestHead::of(&request).query("a b").as_deref(), Some(&b"7"[..]));
}

#[test]
fn an_api_key_is_one_client_wherever_it_stands_and_an_address_is_another() {
    let site = site().hourly(KeyBy::api_key("x-api-key", "api_key").or(KeyBy::peer()));
    let with = |uri: &str, headers: &[_]| from("192.0.2.1", uri, headers);
    assert_eq!(site.status(with("/", &[("x-api-key", "secret")])), OK);
    assert_eq!(site.status(with("/?api_key=secret", &[])), REFUSED);
    // The header is tried first.
    assert_eq!(site.status(with("/?api_key=other", &[("x-api-key", "secret")])), REFUSED);
    assert_eq!(site.status(with("/?api_key=other", &[])), OK);
    // Without an API key, the address is the key. An API key never equals an address.
    assert_eq!(site.status(with("/?api_key=192.0.2.1", &[])), OK);
    assert_eq!(site.statuses([with("/", &[]), with("/", &[])]), [OK, REFUSED]);
    // With two API keys, neither the query nor the address is tried.
    assert_eq!(site.status(with("/?api_key=c", &[("x-api-key", "a"), ("x-api-key", "b")])), SEVERAL);
    assert_eq!(site.status(with("/?api_key=a&api_key=b", &[])), SEVERAL);
    assert_eq!(site.status(from("", "/", &[])), NO_KEY);
}

#[test]
fn paths_and_methods_are_keys_without_the_query() {
    let site = site().hourly(KeyBy::path().and(KeyBy::method()));
    let get = |uri| from("", uri, &[]);
    assert_eq!(site.statuses([get("/a"), get("/a?b"), get("/b"), get("/a/")]), [OK, REFUSED, OK, REFUSED]);
    let by = |method: &str| {
        let mut request = get("/a");
        *request.method_mut() = method.parse().unwrap();
        request
    };
    assert_eq!(site.statuses([by("POST"), by("post"), by("PURGE"), by("purge")]), [OK, REFUSED, OK, OK]);
}

#[test]
fn an_extension_of_an_earlier_layer_is_a_key() {
    #[derive(Clone)]
    enum Who {
        Id(u64),
        Name(String),
        Nobody,
    }
    fn id(who: &Who) -> Option<KeyPart<'_>> {
        if let Who::Id(id) = who { Some((*id).into()) } else { None }
    }
    fn name(who: &Who) -> Option<KeyPart<'_>> {
        if let Who::Name(name) = who { Some(name.as_str().into()) } else { None }
    }
    let site = site().hourly(KeyBy::extension(id).or(KeyBy::extension(name)));
    let by = |who: Who| {
        let mut request = with(&[]);
        request.extensions_mut().insert(who);
        request
    };
    assert_eq!(site.statuses([by(Who::Id(7)), by(Who::Id(7)), by(Who::Id(8))]), [OK, REFUSED, OK]);
    let named = || by(Who::Name("7".to_owned()));
    assert_eq!(site.statuses([named(), named(), by(Who::Nobody), with(&[])]), [OK, REFUSED, NO_KEY, NO_KEY]);
}

#[test]
fn a_closure_sees_the_head_and_may_borrow_from_it_or_not() {
    let tenant = KeyBy::from_fn(|head| head.uri().path().split('/').nth(1).map(KeyPart::from));
    let made = KeyBy::from_fn(|head| {
        let version = format!("{:?}", head.version());
        head.header("x-made").map(|_| version.into())
    });
    let site = site().hourly(tenant.and(made));
    let made = |uri| from("", uri, &[("x-made", "1")]);
    assert_eq!(site.statuses([made("/a/1"), made("/a/2"), made("/b/1")]), [OK, REFUSED, OK]);
    assert_eq!(site.status(from("", "/c/1", &[])), NO_KEY);
}

#[test]
fn parts_are_not_glued_together() {
    let site = site().hourly(KeyBy::header("x-a").and(KeyBy::header("x-b")).and(KeyBy::path()));
    let request = |a, b, uri| from("", uri, &[("x-a", a), ("x-b", b)]);
    let same = || request("ab", "c", "/");
    let requests =
        [same(), same(), request("a", "bc", "/"), request("abc", "/", "/"), request("ab", "c/", "/")];
    assert_eq!(site.statuses(requests), [OK, REFUSED, OK, OK, OK]);
    assert_eq!(site.status(with(&[("x-a", "ab")])), NO_KEY);
}

#[test]
fn alternatives_are_told_apart_also_inside_of_others() {
    let either = || KeyBy::header("x-a").or(KeyBy::header("x-b")).or(KeyBy::header("x-c"));
    let site = site().hourly(KeyBy::path().and(either()));
    let [a, b, c] = ["x-a", "x-b", "x-c"].map(|name| move || with(&[(name, "same")]));
    assert_eq!(site.statuses([a(), b(), c(), a(), b(), c()]), [OK, OK, OK, REFUSED, REFUSED, REFUSED]);
    let nested =
        super::site::site().hourly(KeyBy::header("x-x").and(KeyBy::path()).or(either().and(KeyBy::method())));
    assert_eq!(nested.statuses([a(), b(), c(), a(), with(&[("x-x", "same")])]), [OK, OK, OK, REFUSED, OK]);
}

#[test]
fn each_skip_counts_and_each_listener_hears_in_order() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = |name: &'static str| {
        let heard = Arc::clone(&heard);
        move |_: &DecisionEvent<'_>| heard.lock().unwrap().push(name)
    };
    let site = site();
    let limit = Limit::new("all", site.single(Quota::per_hour(1)));
    let limit = limit.skip(|head| head.path() == "/a").skip(|head| head.path() == "/b");
    let site = site.limit(limit).with(|it| {
        it.skip(|head| head.path() == "/c")
            .skip(|head| head.path() == "/d")
            .on_decision(hears("first"))
            .on_decision(hears("second"))
    });
    let site = site.run();
    for (path, told) in [("/a", 0), ("/b", 0), ("/c", 0), ("/d", 0), ("/e", 2)] {
        assert_eq!(site.status(from("192.0.2.1", path, &[])), 200, "{path}");
        assert_eq!(heard.lock().unwrap()[..], ["first", "second"][..told], "{path}");
    }
}

#[test]
fn the_name_of_a_limit_is_part_of_its_keys() {
    let site = site();
    let limiter: std::sync::Arc<Limiter<Key>> = site.limiter(Quota::per_hour(1)).into();
    let limit =
        |name: &str| Limit::new(name, limiter.clone()).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny);
    let one = limit("one").skip(|head| head.uri().path() == "/two");
    let two = limit("two").skip(|head| head.uri().path() == "/one");
    let site = site.limit(one).limit(two).run();
    let at = |uri| from("", uri, &[("x-a", "a")]);
    assert_eq!(site.statuses([at("/one"), at("/one"), at("/two"), at("/two")]), [OK, REFUSED, OK, REFUSED]);
    assert_eq!(limiter.len(), 2);
}

#[test]
fn a_limiter_beside_the_layer_knows_the_same_keys() {
    let site = site();
    let limiter: std::sync::Arc<Limiter<Key>> = site.limiter(Quota::per_hour(1)).into();
    let by = || KeyBy::header("x-a").or(KeyBy::peer());
    let site = site.limit(Limit::new("hourly", limiter.clone()).by(by()).when_no_key(WhenNoKey::Deny)).run();
    let request = || from("::ffff:192.0.2.1", "/", &[]);
    assert_eq!(site.statuses([request(), request()]), [OK, REFUSED]);
    let key = by().key("hourly", RequestHead::of(&request())).unwrap().unwrap();
    let address: std::net::IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(key, Key::new("hourly", [KeyPart::Alternative(1), address.into()]));
    limiter.reset(&key);
    assert_eq!(site.status(request()), OK);
    limiter.set_key_quota(&key, Quota::per_hour(2)).unwrap();
    assert_eq!(site.statuses([request(), request()]), [OK, REFUSED]);
}

#[test]
fn exact_keys_are_kept_as_they_were_and_can_be_listed() {
    let site = site();
    let builder = Limiter::builder(Quota::per_hour(1)).clock(&site.clock).exact_keys();
    let limiter: std::sync::Arc<Limiter<Key, _>> = builder.build().unwrap().into();
    let limit = Limit::new("exact", limiter.clone())
        .by(KeyBy::header("x-a").and(KeyBy::path()))
        .when_no_key(WhenNoKey::Deny);
    let site = site.limit(limit).run();
    let request = || with(&[("x-a", "alice")]);
    assert_eq!(site.statuses([request(), request()]), [OK, REFUSED]);
    let keys: Vec<Key> = limiter.keys().map(|tracked| tracked.key().clone()).collect();
    assert_eq!(keys, [Key::new("exact", ["alice", "/"])]);
    assert_eq!(keys[0].limit_name(), "exact");
}

#[test]
fn who_has_no_key_is_refused_let_through_or_one_of_many_as_declared() {
    let of = |no_key| {
        let site = site();
        let limit = Limit::new("keyed", site.limiter(Quota::per_hour(1)))
            .by(KeyBy::header("x-a"))
            .when_no_key(no_key);
        site.limit(limit).run()
    };
    let none = || with(&[]);
    assert_eq!(of(WhenNoKey::Deny).statuses([none(), none()]), [NO_KEY, NO_KEY]);
    let allow = of(WhenNoKey::Allow);
    assert_eq!(allow.statuses([none(), none(), none()]), [OK, OK, OK]);
    let shared = of(WhenNoKey::Share);
    assert_eq!(shared.statuses([none(), with(&[("x-a", "a")]), none()]), [OK, OK, REFUSED]);
}

#[test]
fn a_very_long_key_is_a_key() {
    let site = site().hourly(KeyBy::header("x-a"));
    let long = "a".repeat(20_000);
    let longer = long.clone() + "b";
    let [one, same, other] = [&long, &long, &longer].map(|key| with(&[("x-a", key)]));
    assert_eq!(site.statuses([one, same, other]), [OK, REFUSED, OK]);
}

#[test]
fn several_keys_are_refused_or_share_one_whatever_no_key_means() {
    let of = |no_key| {
        let site = site();
        let by = KeyBy::header("x-a").known(["a"]);
        let limit = Limit::new("keyed", site.limiter(Quota::per_hour(1))).by(by).when_no_key(no_key);
        site.limit(limit).run()
    };
    let several = || with(&[("x-a", "a"), ("x-a", "b")]);
    for no_key in [WhenNoKey::Deny, WhenNoKey::Allow] {
        let site = of(no_key);
        let refused = site.send(several());
        assert_eq!(
            (refused.status, refused.json()["error"].as_str()),
            (400.try_into().unwrap(), Some("client_ambiguous"))
        );
        let grpc = site.send(grpc(several(), "application/grpc"));
        assert_eq!((grpc.status.as_u16(), grpc.header("grpc-status")), (200, Some("3")));
        assert_eq!(site.statuses([with(&[("x-a", "a")]), several()]), [OK, SEVERAL]);
    }
    let shared = of(WhenNoKey::Share);
    assert_eq!(shared.statuses([several(), several(), with(&[("x-a", "a")])]), [OK, REFUSED, OK]);
    // The shadow of such a limit lets the request pass.
    let site = site();
    let limit = Limit::new("keyed", site.limiter(Quota::per_hour(1))).by(KeyBy::header("x-a"));
    let site =
        site.limit(limit.when_no_key(WhenNoKey::Allow).shadow()).with(|it| it.on_decision(|_| ())).run();
    assert_eq!(site.status(several()), OK);
}
