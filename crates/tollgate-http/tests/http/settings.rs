//! Layers built from settings, and settings read from files.

use crate::site::{Running, from, with};
use http::StatusCode;
use std::collections::BTreeMap;
use tollgate::{Algorithm, ManualClock, Quota};
use tollgate_http::program::{self, LocalLimiter};
use tollgate_http::settings::{Allowance, LayerSettings, LimitText, Statuses};
use tollgate_http::{BuildWarning, Key, LayerError};

fn statuses(limit: &str, statuses: &str) -> BTreeMap<String, Statuses> {
    [(limit.to_owned(), statuses.parse().unwrap())].into()
}

fn settings(limits: &[&str]) -> LayerSettings {
    let limits = limits.iter().map(|limit| limit.parse().unwrap()).collect();
    LayerSettings { limits, ..LayerSettings::default() }
}

#[test]
fn a_layer_from_settings_enforces_them() {
    let settings = LayerSettings {
        shadows: vec!["trial".to_owned()],
        status: StatusCode::SERVICE_UNAVAILABLE,
        except: vec!["/health".parse().unwrap()],
        ..settings(&["per-key=2/h by header x-api-key", "trial=1/h by header x-api-key"])
    };
    let running = Running { clock: ManualClock::new(), layer: settings.builder().unwrap().build().unwrap() };
    let status = |path: &str, key: &str| running.status(from("", path, &[("x-api-key", key)]));
    assert_eq!([(); 3].map(|()| status("/", "a")), [200, 200, 503]);
    assert_eq!((status("/", "b"), status("/health", "a")), (200, 200));
    assert_eq!(running.status(with(&[])), 403);
}

/// Returns a layer from settings, and its limiters.
fn running(settings: &LayerSettings) -> (Running, Vec<LocalLimiter>) {
    let mut limiters = Vec::new();
    let builder = settings.builder_with(|text| {
        let limiter = program::local(settings, text, None)?;
        limiters.push(limiter.clone());
        Ok::<_, LayerError>(limiter)
    });
    (Running { clock: ManualClock::new(), layer: builder.unwrap().build().unwrap() }, limiters)
}

#[test]
fn the_limiters_of_a_layer_from_settings_can_be_changed() {
    for algorithm in Algorithm::ALL {
        let settings = LayerSettings { algorithm, ..settings(&["all=1/h by nothing", "paths=9/h by path"]) };
        let (running, limiters) = running(&settings);
        let statuses = || running.statuses([with(&[]), with(&[])]);
        assert_eq!(statuses(), [200, 429], "{algorithm}");
        limiters[0].set(Allowance::Rate(Quota::per_hour(2))).unwrap();
        assert_eq!(statuses(), [200, 429], "{algorithm}");
        assert_eq!(limiters[0].stats(), None);
        assert_eq!(limiters[1].stats().unwrap().keys, 1, "{algorithm}");
    }
}

#[test]
fn the_classes_of_a_layer_from_settings_are_enforced_and_can_be_changed() {
    let text = "tier=1/h class paid 2/h by ip class by header x-plan";
    for algorithm in Algorithm::ALL {
        let settings = LayerSettings { algorithm, trust_hops: Some(1), ..settings(&[text]) };
        let (running, limiters) = running(&settings);
        let ask = |plan: &str| running.status(from("192.0.2.1", "/", &[("x-plan", plan)]));
        assert_eq!(
            ["free", "free", "paid", "paid", "paid"].map(ask),
            [200, 429, 200, 200, 429],
            "{algorithm}"
        );
        let (free, paid) = (&limiters[0], limiters[0].class(Some("paid")).unwrap());
        assert!(free.class(Some("free")).is_none());
        let key = Key::new("tier", [std::net::IpAddr::from([192, 0, 2, 1])]);
        paid.reset(&key);
        let peeked = [free, &paid].map(|class| class.peek(&key).unwrap().remaining());
        assert_eq!(peeked, [0, 2], "{algorithm}");
        paid.set(Allowance::Rate(Quota::per_hour(3))).unwrap();
        let hourly = [1, 3].map(|tokens| Allowance::Rate(Quota::per_hour(tokens)));
        assert_eq!([free.allowance(), paid.allowance()], hourly);
        assert_eq!(
            ["paid", "paid", "paid", "paid", "free"].map(ask),
            [200, 200, 200, 429, 429],
            "{algorithm}"
        );
        let places = [free, &paid].map(|limiter| limiter.stats().unwrap().max_keys);
        assert_eq!(places, [500_000; 2], "{algorithm}");
    }
}

#[test]
fn settings_that_cannot_be_enforced_are_named() {
    let of = |settings: LayerSettings| match settings.builder() {
        Ok(builder) => builder.build().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    let good = || settings(&["a=1/s by ip"]);
    let networks = |networks: &[&str]| networks.iter().map(|&network| network.to_owned()).collect();
    let table = [
        (settings(&[]), "a layer with 0 limits"),
        (settings(&["a=5000000000/s by ip"]), "limit `a`: 5000000000 tokens per 1s are above"),
        (
            LayerSettings { shadows: vec!["b\u{1b}".to_owned()], ..good() },
            "invalid shadow `b\\u{1b}`: expected the name of a limit (a)",
        ),
        (
            LayerSettings { shadows: vec!["b".to_owned()], ..settings(&[]) },
            "invalid shadow `b`: expected the name of a limit (there is none)",
        ),
        (
            LayerSettings { trust: networks(&["10.0.0.0/8"]), trust_hops: Some(2), ..good() },
            "both trusted networks (10.0.0.0/8) and 2 trusted hops: expected one of them",
        ),
        // This setting is refused even if no limit uses addresses.
        (
            LayerSettings { trust: networks(&["ten"]), ..settings(&["a=1/s by path"]) },
            "invalid network \"ten\"",
        ),
        (LayerSettings { trust_hops: Some(17), ..good() }, "invalid number of trusted hops 17"),
        (
            LayerSettings { forwarded_field: "x-real-ip".parse().unwrap(), ..good() },
            "forwarded-field `x-real-ip` would never be read, because no proxy is trusted: expected trusted proxies; \
             set `trust` or `trust-hops`",
        ),
        (
            LayerSettings { charge_if: statuses("b", "401"), ..good() },
            "charge-if has `b`: expected the name of a limit (a)",
        ),
        (
            LayerSettings { charge_if: statuses("a", "401"), ..settings(&["a=8 at once by ip"]) },
            "charge-if: `a` has no rate, so no response gives a charge back: expected a limit with a rate",
        ),
        (
            LayerSettings { charge_if: statuses("a", "401"), ..settings(&["a=blocked by ip"]) },
            "charge-if: `a` has no rate, so no response gives a charge back: expected a limit with a rate",
        ),
        (LayerSettings { ipv6_prefix: 0, ..good() }, "invalid IPv6 prefix of 0 bits"),
        (LayerSettings { status: StatusCode::OK, ..good() }, "invalid status 200"),
        (LayerSettings { max_keys: 0, ..good() }, "limit `a`: "),
        (
            settings(&["a=1/s class b 2/s by ip class by header x-plan"]),
            "limit `a`: any client can write the header `x-plan`, which names the class of the caller: expected \
             trusted proxies; set `trust` or `trust-hops`, or list",
        ),
        (
            settings(&["a=1/s class b 2/s by ip class by header k in /nowhere"]),
            "limit `a`: classes of keys: the file `/nowhere` cannot be read (",
        ),
    ];
    for (settings, part) in table {
        let message = of(settings);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_path_template_without_a_key_by_path_is_a_warning() {
    let with = |limits: &[&str]| LayerSettings {
        path_templates: vec!["/users/{id}".parse().unwrap()],
        ..settings(limits)
    };
    let unused = BuildWarning::UnusedTemplate { template: "/users/{id}".to_owned() };
    let warnings = |limits: &[&str]| with(limits).builder().unwrap().warnings();
    assert_eq!(warnings(&["a=1/s by ip for /users/{id}"]), [unused]);
    assert_eq!(warnings(&["a=1/s by ip", "b=1/s by header x-a+path or ip+path"]), []);
}

#[test]
fn a_limit_with_charge_if_counts_only_responses_with_these_statuses() {
    let settings = LayerSettings {
        charge_if: statuses("logins", "401, 403"),
        ..settings(&["logins=2/h and 5/d and 9 at once by ip", "all=5/h by nothing"])
    };
    let running = Running { clock: ManualClock::new(), layer: settings.builder().unwrap().build().unwrap() };
    let ask = |answer: u16| running.status(from("192.0.2.1", "/", &[("x-answer", &answer.to_string())]));
    assert_eq!([200, 401, 200, 403].map(ask), [200, 401, 200, 403]);
    // Two failures have used up the quota of an hour, and the other limit has counted all requests.
    assert_eq!(ask(200), 429);
    assert_eq!(running.status(from("192.0.2.2", "/", &[])), 200);
    assert_eq!(running.status(from("192.0.2.2", "/", &[])), 429);
}

#[test]
fn a_name_is_shown_as_it_is_or_refused_with_the_reason() {
    let layer = |name: &str| settings(&[&format!("{name}=1/h by nothing")]).builder().unwrap().build();
    let long = "x".repeat(128);
    for (name, shown) in [
        ("1rp10s", "\"1rp10s\""),
        ("a.b", "\"a.b\""),
        ("s", "\"s\""),
        ("10/s", "\"10/s\""),
        ("a b", "\"a b\""),
        ("a\"b\\c", "\"a\\\"b\\\\c\""),
        (&long, &format!("\"{long}\"")),
    ] {
        let running = Running { clock: ManualClock::new(), layer: layer(name).unwrap() };
        let policy = format!("{shown};q=1;w=3600");
        assert_eq!(running.send(with(&[])).header("ratelimit-policy"), Some(&*policy), "{name}");
        assert_eq!(running.send(with(&[])).json()["limit"], name);
    }
    for name in ["ü", "a\tb", &"x".repeat(200)] {
        let error = layer(name).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!(
                "invalid limit name {name:?}: expected 1 to 128 printable ASCII characters; choose one like"
            )),
            "{error}"
        );
    }
}

#[test]
fn a_limit_is_written_as_the_text_it_is_parsed_from() {
    for text in [
        "all=5000/s by nothing",
        "per-ip=100/s burst 20 by ip",
        "a b=5/10s by header x-api-key+path or query key or ip else share",
        "a=1/h by ip else allow",
        "a=1/h by header x-api-key known /etc/tollgate/keys+method or query key known k or ip",
        "a=1/h class paid 2/h burst 5 class b 3/s by ip else share class by header x-plan",
        "a=1/h class paid 2/h by header k class by query k in /etc/tollgate/plans",
    ] {
        let limit: LimitText = text.parse().unwrap();
        assert_eq!(limit.to_string(), text);
    }
}

#[cfg(feature = "serde")]
mod files {
    use super::*;
    use serde_json::{Value, json};
    use tollgate::WhenFull;
    use tollgate_http::ForwardedField;

    fn read(value: Value) -> Result<LayerSettings, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_has_the_names_of_the_options() {
        let written = json!({
            "limit": ["all=5000/s by nothing", "per-key=1000/h by header x-api-key or ip"],
            "algorithm": "sliding-window",
            "max-keys": 1000,
            "when-full": "share",
            "shadow": ["all"],
            "status": 503,
            "except": ["/health"],
            "path-template": ["/users/{id}"],
            "ipv6-prefix": 56,
            "trust": ["10.0.0.0/8", "fd00::/8"],
            "forwarded-field": "forwarded",
            "charge-if": { "all": "401, 5xx" },
        });
        let meant = LayerSettings {
            algorithm: Algorithm::SlidingWindow,
            max_keys: 1000,
            when_full: WhenFull::Share,
            shadows: vec!["all".to_owned()],
            status: StatusCode::SERVICE_UNAVAILABLE,
            except: vec!["/health".parse().unwrap()],
            path_templates: vec!["/users/{id}".parse().unwrap()],
            ipv6_prefix: 56,
            trust: vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()],
            forwarded_field: ForwardedField::Forwarded,
            charge_if: [("all".to_owned(), "401,5xx".parse().unwrap())].into(),
            ..settings(&["all=5000/s by nothing", "per-key=1000/h by header x-api-key or ip"])
        };
        assert_eq!(read(written.clone()).as_ref(), Ok(&meant));
        assert_eq!(serde_json::to_value(&meant).unwrap(), written);
        assert_eq!(read(json!({})), Ok(LayerSettings::default()));
        assert_eq!(read(json!({ "trust-hops": 2 })).unwrap().trust_hops, Some(2));
        let field = |name: &str| read(json!({ "forwarded-field": name })).unwrap().forwarded_field;
        assert_eq!(field("X-Forwarded-For"), ForwardedField::XForwardedFor);
        assert_eq!(field("CF-Connecting-IP").to_string(), "cf-connecting-ip");
    }

    #[test]
    fn what_a_file_may_not_have_is_an_error_that_says_what_it_may() {
        let table = [
            (json!({ "limits": [] }), "unknown field `limits`, expected one of `limit`, `algorithm`"),
            (json!({ "limit": ["a=1/s by address"] }), "invalid key `address`: expected `ip`"),
            (json!({ "limit": [1] }), "expected a limit such as \"per-ip=100/s burst 20 by ip\""),
            (json!({ "algorithm": "bucket" }), "bucket"),
            (json!({ "when-full": "maybe" }), "maybe"),
            (json!({ "status": 200 }), "invalid status of a refusal 200: expected 400 to 599"),
            (json!({ "status": 70_000 }), "invalid status of a refusal 70000: expected 400 to 599"),
            (json!({ "except": ["health"] }), "invalid condition `health`: expected a method"),
            (json!({ "path-template": ["/a{b}"] }), "invalid path template `/a{b}` at segment 1"),
            (json!({ "ipv6-prefix": -1 }), "invalid number of bits -1: expected 1 to 128"),
            (json!({ "trust": ["ten"] }), "invalid network \"ten\""),
            (json!({ "trust": ["0.0.0.0/0"] }), "the trusted networks hold every IPv4 address"),
            (json!({ "trust-hops": 17 }), "invalid number of trusted hops 17: expected 1 to 16"),
            (
                json!({ "forwarded-field": "x real ip" }),
                "invalid field `x real ip`: expected `x-forwarded-for`, `forwarded`, or the name of a header",
            ),
            (json!({ "forwarded-field": "Cookie" }), "invalid field `Cookie`: expected"),
            (json!({ "forwarded-field": 1 }), "expected the name of a header such as \"x-forwarded-for\""),
            (
                json!({ "charge-if": { "a": "6xx" } }),
                "invalid statuses `6xx`: expected statuses from 100 to 599",
            ),
        ];
        for (value, part) in table {
            let message = read(value.clone()).unwrap_err();
            assert!(message.contains(part), "{value}: {message}");
        }
    }
}
