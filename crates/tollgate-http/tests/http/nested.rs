//! A layer in a layer: limits before and after authentication.

use super::site::{Answer, Handler, Running, Site, grpc, site, with};
use http::{HeaderValue, Request, Response};
use http_body_util::{Empty, Full};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Algorithm, ManualClock, Quota, SingleLimiter};
use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
use tower::{Layer, ServiceExt, service_fn};

/// Two layers with one clock.
struct Nested {
    outer: Running,
    inner: RateLimitLayer,
}

impl Nested {
    /// Creates two layers. The outer limit allows two requests an hour, and the inner limit one a
    /// minute.
    fn new(outer: impl FnOnce(Limit) -> Limit) -> Self {
        Self::with(site(), outer, |limit| limit)
    }

    fn with(site: Site, outer: impl FnOnce(Limit) -> Limit, inner: impl FnOnce(Limit) -> Limit) -> Self {
        let limiters = [Quota::per_hour(2), Quota::per_minute(1)].map(|quota| site.single(quota));
        let [before, after] = limiters;
        let inner = RateLimitLayer::builder().limit(inner(Limit::new("inner", after))).legacy_fields();
        let outer = site.limit(outer(Limit::new("outer", before))).with(|it| it.legacy_fields()).run();
        Self { outer, inner: inner.build().unwrap() }
    }

    fn send(&self, request: Request<()>) -> Answer {
        let service = self.outer.layer.layer(self.inner.layer(Handler));
        Answer::of(pollster::block_on(service.oneshot(request)).unwrap())
    }

    fn after(&self, seconds: u64) -> &Self {
        self.outer.after(Duration::from_secs(seconds));
        self
    }

    /// Sends two requests. The first request passes, and the inner layer refuses the second.
    fn refused(&self) -> Answer {
        assert_eq!(self.send(with(&[])).status, 200);
        let refused = self.send(with(&[]));
        assert_eq!(refused.json()["limit"], "inner");
        refused
    }
}

/// Returns the lines of a header.
fn lines<'a>(answer: &'a Answer, name: &str) -> Vec<&'a HeaderValue> {
    answer.headers.get_all(name).iter().collect()
}

#[test]
fn the_items_of_two_layers_are_one_line() {
    let nested = Nested::new(|limit| limit);
    let policy = "\"inner\";q=1;w=60, \"outer\";q=2;w=3600";
    for (status, state) in
        [(200, "\"inner\";r=0;t=60, \"outer\";r=1;t=1800"), (429, "\"inner\";r=0;t=60, \"outer\";r=0;t=1800")]
    {
        let answer = nested.send(with(&[]));
        assert_eq!(answer.status, status);
        assert_eq!(lines(&answer, "ratelimit"), [state]);
        assert_eq!(lines(&answer, "ratelimit-policy"), [policy]);
        assert_eq!(lines(&answer, "x-ratelimit-limit"), ["1"]);
    }
    // The outer layer refuses alone.
    assert_eq!(lines(&nested.send(with(&[])), "ratelimit"), ["\"outer\";r=0;t=1800"]);
}

#[test]
fn several_lines_of_a_handler_become_one_and_empty_ones_vanish() {
    for (sent, told) in [
        (
            &["\"a\";r=1", "", "\"b\";r=2, \"c\";r=3"][..],
            "\"a\";r=1, \"b\";r=2, \"c\";r=3, \"all\";r=4;t=720",
        ),
        (&[""], "\"all\";r=4;t=720"),
        (&[], "\"all\";r=4;t=720"),
    ] {
        let site = site();
        let limiter = site.single(Quota::per_hour(5));
        let site = site.limit(Limit::new("all", limiter)).run();
        let service = site.layer.layer(service_fn(|_: Request<()>| {
            let mut response = Response::new(Full::<bytes::Bytes>::default());
            for line in sent {
                response.headers_mut().append("ratelimit", line.parse().unwrap());
            }
            std::future::ready(Ok::<_, Infallible>(response))
        }));
        let answer = Answer::of(pollster::block_on(service.oneshot(with(&[]))).unwrap());
        assert_eq!(lines(&answer, "ratelimit"), [told], "{sent:?}");
    }
}

#[test]
fn the_later_of_two_waits_stands() {
    // The refused request has used up the outer limit.
    let nested = Nested::new(|limit| limit);
    let refused = nested.refused();
    assert_eq!(refused.header("retry-after"), Some("1800"));
    assert_eq!(nested.after(1799).send(with(&[])).status, 429);
    assert_eq!(nested.after(1).send(with(&[])).status, 200);
    // The outer limit still has a token, so its next refill does not delay the retry.
    let site = site();
    let hourly = site.single(Quota::per_hour(3));
    let nested = Nested::with(site, |_| Limit::new("outer", hourly), |limit| limit);
    let refused = nested.refused();
    assert_eq!(refused.items("ratelimit"), ["inner r=0 t=60", "outer r=1 t=1200"]);
    assert_eq!(refused.header("retry-after"), Some("60"));
    assert_eq!(nested.after(60).send(with(&[])).status, 200);
    // A limit in shadow mode refuses nobody.
    assert_eq!(Nested::new(Limit::shadow).refused().header("retry-after"), Some("60"));
}

#[test]
fn who_waits_as_the_inner_layer_says_passes_both() {
    let algorithms = [
        Algorithm::TokenBucket,
        Algorithm::LeakyBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ];
    let mut put_off = 0;
    for (before, after) in algorithms.into_iter().flat_map(|one| algorithms.map(|other| (one, other))) {
        let clock = ManualClock::new();
        let layer = |name, algorithm, quota| {
            let limiter = SingleLimiter::builder(quota).algorithm(algorithm).clock(&clock).build().unwrap();
            RateLimitLayer::builder().limit(Limit::new(name, limiter)).build().unwrap()
        };
        let outer = layer("outer", before, Quota::new(4, Duration::from_millis(17_300)));
        let inner = layer("inner", after, Quota::new(3, Duration::from_millis(7_700)));
        let nested = Nested { outer: Running { clock: clock.clone(), layer: outer }, inner };
        for step in 0..200_u32 {
            nested.outer.after(Duration::from_millis(1) * (step * 37 % 1000));
            let answer = nested.send(with(&[]));
            if answer.status == 429 {
                let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
                let body = answer.json();
                let retried = nested.after(wait).send(with(&[]));
                // If the outer layer refuses, the request never reaches the inner layer, so the
                // response contains the outer layer's wait.
                if body["limit"] == "inner" {
                    put_off += u32::from(body["retry_after"] != wait);
                    assert_eq!(retried.status, 200, "{before} {after} {wait}");
                } else if retried.status != 200 {
                    assert_eq!(retried.json()["limit"], "inner", "{before} {after} {wait}");
                }
            }
        }
    }
    assert!(put_off > 10, "the outer limit was used up by refused requests: {put_off}");
}

#[test]
fn what_the_inner_layer_refuses_is_given_back_by_choice() {
    let site = site();
    let limiter = Arc::new(site.single(Quota::per_hour(2)));
    let outer = Limit::new("outer", Arc::clone(&limiter)).charge_if(|it| !it.is_refusal());
    let nested = Nested::with(site, |_| outer, |limit| limit);
    for _ in 0..5 {
        let refused = if limiter.peek().remaining() == 2 { nested.refused() } else { nested.send(with(&[])) };
        assert_eq!(refused.status, 429);
        assert_eq!(limiter.peek().remaining(), 1);
        // The outer limit delays nothing, because it is not used up.
        assert_eq!(refused.header("retry-after"), Some("60"));
    }
    // A response with status 429 from the handler itself is not treated as a refusal.
    assert_eq!(nested.after(60).send(with(&[("x-answer", "429")])).body, "handled");
    assert_eq!(limiter.peek().remaining(), 0);
}

#[test]
fn a_charge_that_the_refusal_keeps_puts_the_retry_off() {
    let site = site();
    let limiter = Arc::new(site.single(Quota::per_hour(1)));
    let outer = Limit::new("outer", Arc::clone(&limiter)).charge_if(|it| it.is_refusal());
    let nested = Nested::with(site, |_| outer, |limit| limit);
    assert_eq!(nested.refused().header("retry-after"), Some("3600"));
    assert_eq!(limiter.peek().remaining(), 0);
}

#[test]
fn a_retry_after_that_is_not_of_a_refusal_is_left_alone() {
    let nested = Nested::new(|limit| limit.cost(2));
    let service = nested.outer.layer.layer(service_fn(|_: Request<()>| {
        let response = Response::builder().status(503).header("retry-after", "5");
        std::future::ready(Ok::<_, Infallible>(response.body(Empty::<bytes::Bytes>::new()).unwrap()))
    }));
    let answer = Answer::of(pollster::block_on(service.oneshot(with(&[]))).unwrap());
    assert_eq!(answer.items("ratelimit"), ["outer r=0 t=1800"]);
    assert_eq!(answer.header("retry-after"), Some("5"));
}

#[test]
fn no_retry_is_promised_where_the_inner_layer_promises_none() {
    let site = site();
    let after = Limit::new("inner", site.limiter(Quota::per_minute(1))).by(KeyBy::header("x-a"));
    let nested = Nested::with(site, |limit| limit, |_| after.when_no_key(WhenNoKey::Deny));
    for _ in 0..2 {
        let refused = nested.send(with(&[]));
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (403, None));
    }
}

#[test]
fn a_refusal_for_grpc_is_put_off_too() {
    let nested = Nested::new(|limit| limit);
    let request = || grpc(with(&[]), "application/grpc");
    assert_eq!(nested.send(request()).header("grpc-status"), None);
    let refused = nested.send(request());
    assert_eq!(refused.header("grpc-status"), Some("8"));
    assert_eq!(refused.header("grpc-retry-pushback-ms"), Some("1800000"));
    assert_eq!(refused.header("retry-after"), Some("1800"));
}
