//! Tests charges that depend on the response.

use super::site::{Running, with};
use http::{Request, Response};
use std::convert::Infallible;
use std::future::{Future, Ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Waker};
use tollgate::{Limiter, Quota};
use tollgate_http::{Key, KeyBy, Limit, RateLimitLayer, WhenNoKey};
use tower::{Layer, Service, ServiceExt, service_fn};

/// Allows two wrong passwords an hour for each key.
fn logins(change: impl FnOnce(Limit) -> Limit) -> Running {
    let site = super::site::site();
    let limit = Limit::new("logins", site.limiter(Quota::per_hour(2)))
        .by(KeyBy::header("x-a"))
        .when_no_key(WhenNoKey::Deny);
    let limit = limit.charge_if(|response| response.status() == 401);
    site.limit(change(limit)).run()
}

fn login(answer: &str) -> Request<()> {
    with(&[("x-a", "a"), ("x-answer", answer)])
}

#[test]
fn only_failures_are_charged_if_only_they_are_to_be() {
    let site = logins(|limit| limit);
    for _ in 0..10 {
        assert_eq!(site.status(login("200")), 200);
    }
    assert_eq!(site.statuses([login("401"), login("200"), login("401")]), [401, 200, 401]);
    // Now even a request with the right password must wait.
    assert_eq!(site.statuses([login("401"), login("200")]), [429, 429]);
    // The headers show the decision.
    let site = logins(|limit| limit);
    for _ in 0..3 {
        assert_eq!(site.send(login("200")).items("ratelimit"), ["logins r=1 t=1800"]);
    }
}

#[test]
fn requests_under_way_count_so_that_no_race_gets_past_the_limit() {
    let site = logins(|limit| limit);
    let under_way: Vec<_> = (0..5).map(|_| site.service().oneshot(login("401"))).collect();
    let mut under_way: Vec<_> = under_way.into_iter().map(Box::pin).collect();
    let mut context = Context::from_waker(Waker::noop());
    let mut statuses = Vec::new();
    for future in &mut under_way {
        let std::task::Poll::Ready(response) = future.as_mut().poll(&mut context) else { panic!() };
        statuses.push(response.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [401, 401, 429, 429, 429]);
}

/// The layer cannot detect that the limiter was cleared, so it requests the refund anyway.
#[test]
fn a_clear_while_a_request_is_under_way_voids_its_refund() {
    let limiter: Arc<Limiter<Key>> = Arc::new(Limiter::builder(Quota::per_hour(2)).build().unwrap());
    let limit =
        Limit::new("logins", Arc::clone(&limiter)).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny);
    let layer = RateLimitLayer::builder()
        .limit(limit.charge_if(|response| response.status() == 401))
        .build()
        .unwrap();
    let cleared = Arc::clone(&limiter);
    // The handler clears the limiter before it answers with status 200.
    let service = layer.layer(service_fn(move |request: Request<()>| {
        if request.headers()["x-answer"] == "200" {
            cleared.clear();
        }
        let status = request.headers()["x-answer"].to_str().unwrap().parse::<u16>().unwrap();
        std::future::ready(Ok::<_, Infallible>(
            Response::builder().status(status).body(String::new()).unwrap(),
        ))
    }));
    let send = |answer| {
        let mut future = Box::pin(service.clone().oneshot(login(answer)));
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let std::task::Poll::Ready(response) = polled else { panic!("it waits") };
        response.unwrap().status().as_u16()
    };
    assert_eq!(["401", "200"].map(send), [401, 200]);
    assert_eq!(["401", "401", "401"].map(send), [401, 401, 429]);
}

#[test]
fn a_handler_that_fails_gives_the_charge_back_unless_it_is_kept() {
    let site = logins(|limit| limit);
    for _ in 0..10 {
        assert_eq!(site.call(login("fail")).unwrap_err(), "failed");
    }
    let kept = logins(|limit| limit.keep_on_error());
    assert!(kept.call(login("fail")).is_err() && kept.call(login("fail")).is_err());
    assert_eq!(kept.status(login("200")), 429);
}

#[test]
fn without_a_rule_for_responses_every_request_is_charged() {
    let site = super::site::site();
    let limit = Limit::new("all", site.single(Quota::per_hour(2)));
    let site = site.limit(limit).run();
    assert!(site.call(login("fail")).is_err());
    assert_eq!(site.statuses([login("500"), login("200")]), [500, 429]);
}

#[test]
fn hanging_up_makes_no_attempt_free() {
    let site = logins(|limit| limit);
    for _ in 0..2 {
        use tower::Service;
        let mut service = site.service();
        let mut context = Context::from_waker(Waker::noop());
        assert!(Service::<Request<()>>::poll_ready(&mut service, &mut context).is_ready());
        // The client hangs up before the response.
        drop(service.call(login("200")));
    }
    assert_eq!(site.status(login("200")), 429);
}

#[test]
fn one_limit_of_several_may_depend_on_the_response() {
    let site = super::site::site();
    let all = std::sync::Arc::new(site.single(Quota::per_hour(100)));
    let successes = std::sync::Arc::new(site.single(Quota::per_hour(100)));
    let site = site
        .limit(Limit::new("all", all.clone()))
        .limit(Limit::new("successes", successes.clone()).charge_if(|it| it.status().is_success()))
        .run();
    assert_eq!(site.statuses([login("200"), login("500"), login("404")]), [200, 500, 404]);
    assert_eq!((all.peek().remaining(), successes.peek().remaining()), (97, 99));
}

#[test]
fn a_handler_that_panics_before_it_has_a_future_has_failed_too() {
    for kept in [false, true] {
        let limiter: Arc<Limiter<Key>> = Arc::new(Limiter::builder(Quota::per_hour(2)).build().unwrap());
        let limit = Limit::new("logins", Arc::clone(&limiter)).by(KeyBy::method()).charge_if(|_| true);
        let limit = if kept { limit.keep_on_error() } else { limit };
        let layer = RateLimitLayer::builder().limit(limit).build().unwrap();
        let mut service =
            layer.layer(service_fn(|_: Request<()>| -> Ready<Result<Response<String>, Infallible>> {
                panic!("a handler that panics, as it is meant to")
            }));
        let called = catch_unwind(AssertUnwindSafe(|| drop(service.call(Request::new(())))));
        assert!(called.is_err());
        let left = limiter.peek(&Key::new("logins", ["GET"])).remaining();
        assert_eq!(left, if kept { 1 } else { 2 });
    }
}
