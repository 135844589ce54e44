//! Tests keys that clients invent: which keys are trusted, which limits cause a warning, and how a
//! full limiter answers.

use super::classes::scratch;
use super::site::{self, Running, Site, from, site};
use std::fs;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::{Decision, DecisionParts, DecisionSource, Limiter, Outcome, Quota, SingleLimiter, Tick};
use tollgate_http::settings::LayerSettings;
use tollgate_http::{
    AsyncLimiter, BuildWarning, ClassBy, Key, KeyBy, Limit, RateLimitLayer, RefusalReason, RequestCost,
    WhenNoKey,
};

/// A limiter for a thousand keys, with ten requests an hour for each key.
fn thousand(site: &Site, by: KeyBy) -> Limit {
    let limiter = Limiter::builder(Quota::per_hour(10)).clock(&site.clock).max_keys(1000).build().unwrap();
    Limit::new("per-key", limiter).by(by).when_no_key(WhenNoKey::Deny)
}

/// Sends a request with each of a thousand invented keys from one address.
fn invent(running: &Running) {
    for number in 0..1000 {
        let _ = running.status(from("203.0.113.66", "/", &[("x-api-key", &format!("made-up-{number}"))]));
    }
}

#[test]
fn a_thousand_made_up_keys_lock_nobody_out() {
    let site = site();
    let known = KeyBy::header("x-api-key").known(["customer"]);
    let limit = thousand(&site, known.or(KeyBy::peer()));
    let running = site.limit(limit).run();
    invent(&running);
    // All invented keys belong to one client: its address.
    let inventor = from("203.0.113.66", "/", &[("x-api-key", "another")]);
    let refused = running.send(inventor);
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("360")));
    assert_eq!(refused.json().get("max_keys"), None);
    assert_eq!(running.status(from("192.0.2.1", "/", &[])), 200);
    assert_eq!(running.status(from("203.0.113.66", "/", &[("x-api-key", "customer")])), 200);
}

#[test]
fn a_full_limiter_says_what_is_known_and_is_told_apart() {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let site = site();
    let limit = thousand(&site, KeyBy::header("x-api-key").or(KeyBy::peer()));
    let heard = Arc::clone(&reasons);
    let site = site.limit(limit);
    let running = site.with(|it| it.on_decision(move |it| heard.lock().unwrap().push(it.reason))).run();
    invent(&running);
    let refused = running.send(from("192.0.2.1", "/", &[]));
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, None));
    let problem = refused.json();
    assert_eq!((&problem["error"], &problem["limit"]), (&"capacity_reduced".into(), &"per-key".into()));
    assert_eq!(problem["max_keys"], 1000);
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("no room for a new client: all 1000 places are taken"), "{detail}");
    // A tracked key is not affected, and is refused only when its own quota is used up.
    let known = || from("203.0.113.66", "/", &[("x-api-key", "made-up-0")]);
    let statuses: Vec<u16> = (0..10).map(|_| running.status(known())).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 200, 200, 200, 200, 429]);
    let reasons = reasons.lock().unwrap();
    assert_eq!(reasons[..1000], [None; 1000]);
    assert_eq!((reasons[1000], reasons[1010]), (Some(RefusalReason::Full), Some(RefusalReason::Quota)));
}

/// A limiter whose machine does not answer. It refuses all requests.
pub(crate) struct Away;

impl AsyncLimiter for Away {
    fn check_n<'a>(&'a self, _: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        let answer = Decision::from(DecisionParts {
            outcome: Outcome::Denied,
            cost,
            capacity: 9,
            remaining: 0,
            wait: None,
            reset_after: Duration::ZERO,
            refill_after: Duration::ZERO,
            at: Tick::ZERO,
            source: DecisionSource::Policy,
        });
        Box::pin(std::future::ready(answer))
    }

    fn refund_n<'a>(
        &'a self,
        _: &'a Key,
        _: &'a Decision,
        _: u64,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(std::future::ready(()))
    }

    fn spawn(&self, _: Pin<Box<dyn Future<Output = ()> + Send>>) {}

    fn quota(&self) -> Quota {
        Quota::per_hour(9)
    }
}

#[test]
fn a_shared_limit_that_cannot_be_checked_is_not_called_full() {
    let limit = Limit::new("a", Away).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny);
    let site = site().limit(limit).run_shared();
    let refused = site.send(from("192.0.2.1", "/", &[]));
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, None));
    let problem = refused.json();
    assert_eq!((&problem["error"], problem.get("max_keys")), (&"unavailable".into(), None));
    assert_eq!(problem["detail"], "rate limit \"a\" can't be checked at present: retry later");
    let grpc = site.send(site::grpc(from("192.0.2.1", "/", &[]), "application/grpc"));
    assert_eq!((grpc.status.as_u16(), grpc.header("grpc-status")), (200, Some("14")));
}

#[test]
fn keys_are_known_by_a_list_a_file_or_a_function() {
    let file = scratch("known-keys", "\u{feff}  one \r\n# customers\n\ntwo\n");
    let key = || KeyBy::api_key("x-api-key", "key");
    let ways = [
        key().known(["one", "two"]),
        key().known_file(file),
        key().known_if(|key| key == b"one" || key == b"two"),
    ];
    for by in ways {
        let way = format!("{by:?}");
        let running = site().hourly(by);
        let status = |key: &str| running.status(from("", "/", &[("x-api-key", key)]));
        assert_eq!(
            ["one", "two", "one", "three", "#", "# customers"].map(status),
            [200, 200, 429, 403, 403, 403]
        );
        assert_eq!(running.status(from("", "/?key=two", &[])), 429, "{way}");
        assert!(!way.contains("one"), "keys are secrets: {way}");
    }
}

#[test]
fn known_keys_that_cannot_work_are_refused() {
    let refused = |by: KeyBy| {
        let limit = Limit::new("a", Limiter::builder(Quota::per_hour(1)).build().unwrap()).by(by);
        let limit = limit.when_no_key(WhenNoKey::Deny);
        RateLimitLayer::builder().limit(limit).build().unwrap_err().to_string()
    };
    let header = || KeyBy::header("x-api-key");
    let empty = scratch("no-keys", "# nobody\n");
    let endless = header().known_file("/dev/zero");
    assert!(
        cfg!(not(unix)) || refused(endless).contains("the file `/dev/zero` is larger than 64 MiB: expected")
    );
    // A byte order mark does not raise the limit.
    let large = scratch("large-keys", "\u{feff}one\n");
    fs::File::options().write(true).open(&large).unwrap().set_len((64 << 20) + 1).unwrap();
    let larger = refused(header().known_file(&large));
    fs::remove_file(large).unwrap();
    assert!(larger.contains(" is larger than 64 MiB: expected"), "{larger}");
    let table = [
        (header().known([""; 0]), "known keys: the list has 0 keys".to_owned()),
        (header().known_file(&empty), format!("known keys: the file `{empty}` has 0 keys")),
        (header().known_file("/nowhere"), "the file `/nowhere` cannot be read (".to_owned()),
        (KeyBy::peer().known(["a"]), "`.known(...)` after peer/64: expected".to_owned()),
        (header().or(header()).known(["a"]), "after or([header(x-api-key), ".to_owned()),
    ];
    for (by, part) in table {
        let message = refused(by);
        assert!(message.contains(&part), "{message}");
    }
    let limits = vec!["per-key=1/h by header x-api-key known /nowhere or ip".parse().unwrap()];
    let message = LayerSettings { limits, ..LayerSettings::default() }.builder().unwrap_err().to_string();
    assert!(
        message.starts_with("limit `per-key`: known keys: the file `/nowhere` cannot be read"),
        "{message}"
    );
}

#[test]
fn a_cost_that_any_client_can_leave_out_is_warned_of() {
    let warned = |unknown| {
        let limiter = SingleLimiter::builder(Quota::per_second(1024)).build().unwrap();
        let limit = Limit::new("uploads", limiter).cost(RequestCost::content_length(1024, unknown));
        RateLimitLayer::builder().limit(limit).warnings()
    };
    assert_eq!(warned(0), [BuildWarning::EvadedByLength { limit: "uploads".to_owned() }]);
    assert!(warned(0)[0].to_string().contains("`RequestCost::content_length(1024, 64)`"));
    assert_eq!(warned(1), []);
}

#[test]
fn a_limit_by_what_anyone_can_invent_is_warned_of() {
    let warned = |by: KeyBy| {
        let limit = Limit::new("a", Limiter::builder(Quota::per_hour(1)).build().unwrap()).by(by);
        RateLimitLayer::builder().limit(limit).warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let header = || KeyBy::header("x-api-key");
    for (by, key) in [
        (header(), "header `x-api-key`"),
        (header().or(KeyBy::peer()), "header `x-api-key`"),
        (KeyBy::query("key"), "query parameter `key`"),
        (KeyBy::api_key("k", "q"), "header `k` or query parameter `q`"),
        (header().and(KeyBy::path()), "header `x-api-key` and path"),
        (KeyBy::path(), "path"),
    ] {
        let found = format!("{by:?}");
        let warnings = warned(by);
        let expected = format!("limit \"a\" counts by {key}, which any client can invent");
        assert!(warnings.len() == 1 && warnings[0].starts_with(&expected), "{found}: {warnings:?}");
        assert!(warnings[0].contains("uses up that client's quota"), "{warnings:?}");
    }
    for by in [
        KeyBy::peer(),
        header().and(KeyBy::peer()),
        KeyBy::peer().and(KeyBy::path()),
        header().known(["a"]).or(KeyBy::peer()),
        KeyBy::path_templates(["/users/{id}"]),
        KeyBy::extension(|user: &u64| Some((*user).into())),
    ] {
        let found = format!("{by:?}");
        assert!(warned(by).is_empty(), "{found}");
    }
}

/// With the address in the key, a client has its own quota for the name of another.
#[test]
fn a_client_that_names_the_key_of_another_uses_up_its_quota() {
    let attacked = |by: KeyBy| {
        let running = site().hourly(by);
        ["203.0.113.66", "192.0.2.1"].map(|peer| running.status(from(peer, "/", &[("x-installation", "42")])))
    };
    let by_header = || KeyBy::header("x-installation");
    assert_eq!(attacked(by_header()), [200, 429]);
    assert_eq!(attacked(by_header().and(KeyBy::peer())), [200, 200]);
}

#[test]
fn a_limiter_of_keys_counts_all_requests_together_only_by_nothing() {
    let site = site();
    let limiter = || Limiter::builder(Quota::per_hour(2)).clock(&site.clock).build().unwrap();
    let in_flight = || tollgate::InFlight::builder(1).build().unwrap();
    let classes = || Limiter::builder(Quota::per_hour(2)).class("paid", Quota::per_hour(9)).build().unwrap();
    let paid = || ClassBy::from_fn(|_| Some("paid"));
    for limit in [
        Limit::new("all", limiter()),
        Limit::new("all", in_flight()),
        Limit::new("all", classes()).class_by(paid()),
        Limit::new("all", Away),
    ] {
        let refused = RateLimitLayer::builder().limit(limit).build().unwrap_err().to_string();
        assert!(
            refused.contains("\"all\" has a limiter with a state for each key and no `.by(...)`"),
            "{refused}"
        );
        assert!(refused.contains("`.by(KeyBy::nothing())`"), "{refused}");
    }
    for limit in [
        Limit::new("all", in_flight()).by(KeyBy::nothing()),
        Limit::new("all", classes()).class_by(paid()).by(KeyBy::nothing()),
        Limit::new("all", Away).by(KeyBy::nothing()),
        Limit::new("all", SingleLimiter::builder(Quota::per_hour(2)).build().unwrap()).by(KeyBy::nothing()),
    ] {
        let builder = RateLimitLayer::builder().limit(limit);
        assert_eq!(builder.warnings(), []);
        assert!(builder.build().is_ok());
    }
    let all = Limit::new("all", limiter()).by(KeyBy::nothing());
    let running = site.limit(all).run();
    let status = |address: &str| running.status(from(address, "/", &[]));
    assert_eq!(["192.0.2.1", "192.0.2.2", "192.0.2.3"].map(status), [200, 200, 429]);
}
