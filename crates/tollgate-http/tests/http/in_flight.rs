//! Tests limits on requests in flight. A request acquires its permits together with the tokens of
//! other limits, and releases them at the end of the response.

use super::site::{Answer, Running, from, grpc, site, with};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tollgate::{InFlight, Quota, SingleLimiter, WhenFull};
use tollgate_http::program::{Fault, fault};
use tollgate_http::{Key, KeyBy, Limit, RateLimitLayer, RefusalReason, RequestCost, WhenNoKey};
use tower::{Layer, ServiceExt, service_fn};

fn places(most: u64) -> InFlight<Key> {
    InFlight::builder(most).build().unwrap()
}

fn per_key(places: &InFlight<Key>) -> Limit {
    Limit::new("places", places.clone()).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny)
}

fn of(key: &str) -> Request<()> {
    with(&[("x-a", key)])
}

fn out(places: &InFlight<Key>, key: &str) -> u64 {
    places.in_flight(&Key::new("places", [key]))
}

/// Returns a service with two permits for each `x-a`.
fn two() -> (Running, InFlight<Key>) {
    let places = places(2);
    (site().limit(per_key(&places)).run(), places)
}

#[test]
fn a_place_is_held_until_the_body_has_ended_or_is_dropped() {
    let (site, places) = two();
    let [mut first, second] = [of("a"), of("a")].map(|request| site.call(request).unwrap());
    assert_eq!(out(&places, "a"), 2, "the handlers have returned");
    assert_eq!((site.status(of("a")), site.status(of("b"))), (429, 200));
    // The body has ended, but the server still owns it.
    assert_eq!(pollster::block_on(first.body_mut().collect()).unwrap().to_bytes(), "handled");
    assert_eq!(out(&places, "a"), 1);
    drop(second);
    assert_eq!(out(&places, "a"), 0);
    drop(first);
    assert_eq!((out(&places, "a"), site.status(of("a"))), (0, 200));
}

#[test]
fn a_refusal_says_no_time_and_what_is_limited() {
    let (site, _) = two();
    let held = [of("a"), of("a")].map(|request| site.call(request).unwrap());
    assert_eq!(held[0].headers()["ratelimit-policy"], r#""places";q=2;qu="concurrent-requests""#);
    assert_eq!(held[1].headers()["ratelimit"], r#""places";r=0"#);
    let refused = site.send(of("a"));
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, None));
    assert_eq!(refused.header("ratelimit"), Some(r#""places";r=0"#));
    let problem = refused.json();
    assert_eq!(problem["error"], "too_many_in_flight");
    assert_eq!(problem["violated-policies"], serde_json::json!(["places"]));
    assert_eq!(problem.get("retry_after"), None);
    let detail = "limit \"places\" allows 2 at once, and as many are in flight: retry when one has ended";
    assert_eq!(problem["detail"], detail);
    let refused = site.send(grpc(of("a"), "application/grpc"));
    assert_eq!((refused.header("grpc-status"), refused.header("grpc-retry-pushback-ms")), (Some("8"), None));
}

#[test]
fn the_policy_shows_a_limit_that_changes_beside_rates() {
    let (site, places) = (site(), places(4));
    let rate = Limit::new("all", site.single(Quota::per_minute(600)));
    let site = site.limit(rate).limit(per_key(&places)).run();
    let policy = |answer: &Answer| answer.header("ratelimit-policy").unwrap().to_owned();
    let answer = site.send(of("a"));
    assert_eq!(policy(&answer), r#""all";q=600;w=60, "places";q=4;qu="concurrent-requests""#);
    assert_eq!(answer.items("ratelimit"), ["all r=599 t=1", "places r=3"]);
    places.set_limit(2).unwrap();
    let answer = site.send(of("a"));
    assert_eq!(policy(&answer), r#""all";q=600;w=60, "places";q=2;qu="concurrent-requests""#);
}

#[test]
fn a_place_and_the_rates_are_taken_all_or_none() {
    for rate_first in [false, true] {
        let (site, places) = (site(), places(1));
        let rate = Arc::new(site.single(Quota::per_hour(3)));
        let left = || rate.peek().remaining();
        let by_rate = Limit::new("rate", Arc::clone(&rate));
        let site = if rate_first {
            site.limit(by_rate).limit(per_key(&places)).run()
        } else {
            site.limit(per_key(&places)).limit(by_rate).run()
        };
        let held = site.call(of("a")).unwrap();
        for _ in 0..3 {
            let refused = site.send(of("a"));
            assert_eq!((refused.status.as_u16(), refused.json()["limit"] == "places"), (429, true));
        }
        assert_eq!((left(), out(&places, "a")), (2, 1), "a refused request is charged nothing");
        drop(held);
        assert_eq!([of("a"), of("a")].map(|request| site.status(request)), [200, 200]);
        // The rate refuses, and no permit is taken.
        let refused = site.send(of("a"));
        assert_eq!((refused.json()["limit"] == "rate", refused.header("retry-after")), (true, Some("1200")));
        assert_eq!((left(), out(&places, "a")), (0, 0));
    }
}

#[test]
fn a_failed_handler_frees_its_place() {
    let (site, places) = two();
    for _ in 0..5 {
        assert!(site.call(with(&[("x-a", "a"), ("x-answer", "fail")])).is_err());
    }
    assert_eq!(out(&places, "a"), 0);
    let panics = service_fn(|request: Request<()>| async move {
        assert!(request.headers().contains_key("x-never"), "as it was asked to");
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let service = site.layer.layer(panics);
    let call = || pollster::block_on(service.clone().oneshot(of("a")));
    for _ in 0..5 {
        assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    }
    assert_eq!(out(&places, "a"), 0);
}

#[test]
fn a_request_that_is_cancelled_frees_its_place() {
    let (site, places) = two();
    let endless = service_fn(|_: Request<()>| async {
        pending::<()>().await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let service = site.layer.layer(endless);
    let polled = || {
        let mut request = Box::pin(service.clone().oneshot(of("a")));
        assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        request
    };
    let [first, second] = [polled(), polled()];
    assert_eq!((out(&places, "a"), site.status(of("a"))), (2, 429));
    drop(first);
    assert_eq!(out(&places, "a"), 1);
    drop(second);
    assert_eq!(out(&places, "a"), 0);
}

/// A body with these frames.
struct Frames(Vec<Result<Frame<Bytes>, &'static str>>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready((!self.0.is_empty()).then(|| self.0.remove(0)))
    }
}

#[test]
fn a_body_holds_its_place_until_its_last_frame() {
    let (site, places) = two();
    for ends_well in [true, false] {
        let frames = move |_: Request<()>| async move {
            let last = if ends_well { Ok(Frame::trailers(Default::default())) } else { Err("broken") };
            Ok::<_, Infallible>(Response::new(Frames(vec![Ok(Frame::data("one".into())), last])))
        };
        let service = site.layer.layer(service_fn(frames));
        let mut body = pin!(pollster::block_on(service.oneshot(of("a"))).unwrap().into_body());
        let mut next = || {
            let Poll::Ready(frame) = body.as_mut().poll_frame(&mut Context::from_waker(Waker::noop())) else {
                panic!("it has all its frames")
            };
            (frame, out(&places, "a"))
        };
        assert!(matches!(next(), (Some(Ok(_)), 1)));
        if ends_well {
            assert!(matches!(next(), (Some(Ok(_)), 1)), "trailers need not be the end");
            assert!(matches!(next(), (None, 0)));
        } else {
            assert!(matches!(next(), (Some(Err(_)), 0)));
        }
    }
}

#[test]
fn a_shadow_counts_and_refuses_nothing() {
    let (site, places) = (site(), places(1));
    let site = site
        .limit(per_key(&places).shadow())
        .with(|it| it.on_decision(|event| assert!(!event.is_refused)))
        .run();
    let first = site.call(of("a")).unwrap();
    let second = site.call(of("a")).unwrap();
    assert_eq!((out(&places, "a"), first.headers().contains_key("ratelimit")), (1, false));
    drop(second);
    assert_eq!(out(&places, "a"), 1, "the second one has no place");
    drop(first);
    assert_eq!(out(&places, "a"), 0);
}

#[test]
fn a_request_takes_as_many_places_as_it_costs() {
    let (site, places) = (site(), places(3));
    let cost = RequestCost::from_fn(|head| if head.path() == "/large" { 2 } else { 1 });
    let site = site.limit(per_key(&places).cost(cost)).run();
    let large = || from("", "/large", &[("x-a", "a")]);
    let held = site.call(large()).unwrap();
    assert_eq!((out(&places, "a"), site.status(large()), site.status(of("a"))), (2, 429, 200));
    drop(held);
    assert_eq!(out(&places, "a"), 0);
}

#[test]
fn all_requests_together_have_so_many_places() {
    let all: InFlight<Key> = InFlight::builder(2).max_keys(1).build().unwrap();
    let site = site().limit(Limit::new("all", all.clone()).by(KeyBy::nothing())).run();
    let held = [of("a"), of("b")].map(|request| site.call(request).unwrap());
    let none: [&str; 0] = [];
    assert_eq!((all.in_flight(&Key::new("all", none)), site.status(of("c"))), (2, 429));
    drop(held);
    assert_eq!(site.status(of("c")), 200);
}

#[test]
fn a_full_table_refuses_new_clients_or_lets_them_pass_uncounted() {
    for (policy, expected) in [(WhenFull::Deny, 429), (WhenFull::Allow, 200)] {
        let places: InFlight<Key> = InFlight::builder(1).max_keys(1).when_full(policy).build().unwrap();
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = Arc::clone(&seen);
        let site = site()
            .limit(per_key(&places))
            .with(|it| it.on_decision(move |event| noted.lock().unwrap().extend(event.reason)))
            .run();
        let held = site.call(of("a")).unwrap();
        assert_eq!([of("b"), of("a")].map(|request| site.status(request)), [expected, 429]);
        let reasons = seen.lock().unwrap().clone();
        let full = [RefusalReason::Full, RefusalReason::InFlight];
        assert_eq!(reasons, if policy == WhenFull::Deny { &full[..] } else { &full[1..] });
        drop(held);
    }
}

/// If a limit on another machine also applies, the permit is taken after that machine has answered.
#[test]
fn a_request_that_waits_takes_its_place_last_and_all_or_none() {
    let (site, places) = (site(), places(1));
    let elsewhere = site.elsewhere(Quota::per_hour(2));
    let shared = Limit::new("shared", Arc::clone(&elsewhere)).by(KeyBy::nothing());
    let site = site.limit(per_key(&places)).limit(shared).run_shared();
    elsewhere.close();
    let mut gone = Box::pin(site.service().oneshot(of("a")));
    let mut request = Box::pin(site.service().oneshot(of("a")));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(gone.as_mut().poll(context).is_pending() && request.as_mut().poll(context).is_pending());
    assert_eq!(out(&places, "a"), 0);
    drop(gone);
    elsewhere.open();
    let held = pollster::block_on(request).unwrap();
    assert_eq!((held.status().as_u16(), out(&places, "a")), (200, 1));
    // The permit refuses, and the other machine is not even asked.
    elsewhere.calls();
    let refused = site.send(of("a"));
    assert_eq!((refused.status.as_u16(), elsewhere.calls().len()), (429, 0));
    drop(held);
    // Both tokens of the other machine's limit are spent, so that limit refuses and no permit is
    // taken.
    let refused = site.send(of("a"));
    assert_eq!((refused.json()["limit"] == "shared", out(&places, "a")), (true, 0));
}

#[test]
fn what_a_limit_in_flight_cannot_do_is_refused() {
    let build = |limit: Limit| RateLimitLayer::builder().limit(limit).build().unwrap_err();
    let error = build(per_key(&places(1)).charge_if(|response| response.status() == 200));
    assert_eq!(error, Fault::InFlightRule { limit: "places".to_owned(), rule: "charge_if" });
    let text = error.to_string();
    assert!(
        text.contains(": expected no such rule") && text.ends_with("leave `.charge_if(...)` out"),
        "{text}"
    );
    let error = build(per_key(&places(1)).cost(2));
    assert!(matches!(fault(&error), Fault::CostAboveCapacity { cost: 2, capacity: 1, .. }), "{error}");
    // A limit with very many permits is accepted, whereas a limit that admits everything is not.
    assert!(RateLimitLayer::builder().limit(per_key(&places(1_000_000))).build().is_ok());
}

/// If a listener panics while a permit is taken, the permit is still released.
#[test]
fn a_listener_that_panics_leaves_no_place_taken() {
    let places = places(1);
    let rate = SingleLimiter::builder(Quota::per_hour(9)).build().unwrap();
    let site = site()
        .limit(per_key(&places))
        .limit(Limit::new("rate", rate))
        .with(|it| it.on_decision(|event| assert_ne!(event.limit_name, "rate", "as it was asked to")))
        .run();
    let call = || site.call(of("a")).map(drop);
    assert!(catch_unwind(AssertUnwindSafe(call)).is_err());
    assert_eq!(out(&places, "a"), 0);
}
