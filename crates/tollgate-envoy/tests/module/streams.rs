//! Tests streams' charges and places, threads, counters and faults.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

use tollgate_envoy::hooks::guarded;

use crate::host::{Asked, Module, get, logged};

#[test]
fn a_place_in_flight_is_free_when_its_stream_ends() {
    let module = Module::load("at-once", "limit = [\"a=1 at once by ip\"]").unwrap();
    let mut first = module.begin(&get("/"));
    assert_eq!(first.refusal(), None);
    assert_eq!(first.respond(200, &[]).status, 200);
    assert_eq!(module.serve(&get("/")).status, 429, "the body of the first may still flow");
    first.complete();
    assert_eq!(module.serve(&get("/")).status, 200);
    drop(first);
    // This stream was reset before its response.
    let second = module.begin(&get("/"));
    assert_eq!(module.serve(&get("/")).status, 429);
    drop(second);
    assert_eq!(module.serve(&get("/")).status, 200);
}

#[test]
fn a_stream_without_a_response_keeps_its_charge() {
    let module = Module::load("reset", "limit = [\"a=1/h by ip\"]\ncharge-if = { a = \"5xx\" }").unwrap();
    drop(module.begin(&get("/")));
    assert_eq!(module.serve(&get("/")).status, 429);
}

#[test]
fn fields_of_the_upstream_stay_beside_ours() {
    let module = Module::load("standing", "limit = [\"a=2/h by ip\"]").unwrap();
    let mut stream = module.begin(&get("/"));
    let answer = stream.respond(200, &[("ratelimit", "\"app\";r=7;t=1"), ("x-other", "1")]);
    assert_eq!(answer.header("ratelimit"), Some("\"app\";r=7;t=1, \"a\";r=1;t=1800"));
    assert_eq!(answer.header("ratelimit-policy"), Some("\"a\";q=2;w=3600"));
    assert_eq!(answer.header("x-other"), Some("1"));
}

#[test]
fn targets_that_are_no_uri_are_limited_as_others() {
    let module = Module::load("targets", "limit = [\"a=3/h by path\"]").unwrap();
    let statuses = [&b"/a\"b"[..], b"/a%22b", b"/x/../a\"b?q=\xe9", b"/a\"b"].map(|path| {
        let mut asked = get("/");
        asked.path = path.to_vec();
        module.serve(&asked).status
    });
    assert_eq!(statuses, [200, 200, 200, 429]);
    let mut asked = get("/");
    asked.path = b"/caf\xe9".to_vec();
    assert_eq!(module.serve(&asked).header("ratelimit"), Some("\"a\";r=2;t=1200"));
}

/// Serves a POST request for each target, and returns the statuses.
fn posted<const N: usize>(module: &Module, targets: [&str; N]) -> [u16; N] {
    targets.map(|target| module.serve(&Asked { method: "POST", ..get(target) }).status)
}

/// Longer than any target that `http::Uri` can contain.
const LONG: usize = 70_000;

#[test]
fn a_long_query_does_not_evade_a_limit_of_a_path() {
    let config = "limit = [\"logins=2/h by ip for POST /login\"]\nexcept = [\"/\"]";
    let module = Module::load("long-query", config).unwrap();
    let encoded = format!("/login?{}", "<".repeat(21_843));
    let raw = format!("//%6cogin?{}", "a".repeat(LONG));
    assert_eq!(posted(&module, [&encoded, &raw, "/login", &encoded, &raw]), [200, 200, 429, 429, 429]);
    assert_eq!(posted(&module, ["/", &format!("/?{raw}")]), [200, 200], "these are exempt");
}

#[test]
fn a_target_that_is_too_long_for_a_limit_is_refused() {
    let long = "a".repeat(LONG);
    let (path, query) = (format!("/{long}"), format!("/?key=k&{long}"));
    let of_path = Module::load("long-path", "limit = [\"a=9/h by path\"]").unwrap();
    assert_eq!(posted(&of_path, [&path, &query]), [414, 200]);
    let of_query = Module::load("long-key", "limit = [\"a=9/h by query key else allow\"]").unwrap();
    assert_eq!(posted(&of_query, [&path, &query, "/?key=k"]), [414, 414, 200]);
    assert_eq!(of_query.counter("tollgate.long-key.a.allowed"), 1);
    let of_neither = Module::load("long-other", "limit = [\"a=9/h by ip\"]").unwrap();
    assert_eq!(posted(&of_neither, [&path, &query]), [200, 200]);
}

#[test]
fn a_client_that_has_no_address_has_no_key() {
    let module = Module::load("pipe", "limit = [\"a=3/h by ip\"]").unwrap();
    assert_eq!(module.serve(&get("/").from("/run/envoy.sock")).status, 403);
}

#[test]
fn workers_that_race_for_one_key_admit_exactly_the_quota() {
    let listeners = [(); 2].map(|()| Module::load("race", "limit = [\"a=1000/d by ip\"]").unwrap());
    let admitted = AtomicU32::new(0);
    thread::scope(|scope| {
        for worker in 0..4 {
            let (module, admitted) = (&listeners[worker % 2], &admitted);
            scope.spawn(move || {
                for _ in 0..500 {
                    // ORDERING: relaxed, because the threads end before the count is read.
                    admitted.fetch_add(u32::from(module.serve(&get("/")).status == 200), Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 1000);
    let counted = |outcome: &str| {
        let name = format!("tollgate.race.a.{outcome}");
        listeners.iter().map(|module| module.counter(&name)).sum::<u64>()
    };
    assert_eq!((counted("allowed"), counted("denied")), (1000, 1000));
}

#[test]
fn configurations_change_under_load_and_nothing_is_admitted_twice() {
    let config = "limit = [\"a=1000/d by ip\"]";
    let first = Module::load("reloaded", config).unwrap();
    let admitted = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut module = Module::load("reloaded", config).unwrap();
                for turn in 0..1000 {
                    // ORDERING: relaxed, because the threads end before the count is read.
                    admitted.fetch_add(u32::from(module.serve(&get("/")).status == 200), Relaxed);
                    if turn % 10 == 0 {
                        let quota = if turn % 20 == 0 { "1000/d" } else { "24000/24d" };
                        module =
                            Module::load("reloaded", &format!("limit = [\"a={quota} burst 1000 by ip\"]"))
                                .unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 1000);
    drop(first);
}

#[test]
fn counters_are_of_limits_classes_and_outcomes() {
    let config = "limit = [\"a=1/h class paid 9/h by ip class by header x-plan\", \"b=9/h by header x-key else allow\"]\n\
        trust-headers = [\"x-plan\"]";
    let module = Module::load("counted", config).unwrap();
    for asked in [get("/"), get("/"), get("/").with("x-plan", "paid")] {
        module.serve(&asked);
    }
    for (name, count) in [
        ("a.default.allowed", 1),
        ("a.default.denied", 1),
        ("a.paid.allowed", 1),
        ("b.no-key", 3),
        ("b.allowed", 0),
    ] {
        assert_eq!(module.counter(&format!("tollgate.counted.{name}")), count, "{name}");
    }
}

#[test]
fn a_panic_is_a_line_in_the_log_and_the_request_goes_on() {
    assert_eq!(guarded(7, || panic!("for a test: {}", 1)), 7);
    assert!(logged("for a test: 1").contains("the request goes on without limits"));
}
