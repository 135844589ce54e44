//! Tests limits on requests in flight across several machines. Permits are granted when the test
//! allows it.

use super::elsewhere::Waits;
use super::gate::Gate;
use super::site::{Site, site, with};
use http::Request;
use http_body_util::BodyExt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;
use tollgate::{
    Chargeable, Decision, DecisionParts, DecisionSource, Denied, InFlight, Outcome, Quota, SingleLimiter,
    Tick,
};
use tollgate_http::program::Fault;
use tollgate_http::{
    AsyncInFlight, AsyncPermit, Backend, Key, KeyBy, Limit, RateLimitLayer, RefusalReason, RequestCost,
    ResponseCost, WhenNoKey,
};
use tower::ServiceExt;

/// Permits on other machines.
struct Far {
    places: InFlight<Key>,
    gate: Gate,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The answer while the store is unreachable.
    away: Option<Outcome>,
}

impl Far {
    fn new(most: u64) -> Arc<Self> {
        Arc::new(Self {
            places: InFlight::builder(most).build().unwrap(),
            gate: Gate::default(),
            state: Mutex::default(),
        })
    }

    fn out(&self, key: &str) -> u64 {
        self.places.in_flight(&Key::new("places", [key]))
    }

    fn answer(&self, key: &Key) -> Result<AsyncPermit, Denied> {
        if let Some(outcome) = self.state.lock().unwrap().away {
            let decision = Decision::from(DecisionParts {
                outcome,
                cost: 1,
                capacity: self.limit(),
                remaining: 0,
                wait: (outcome == Outcome::Allowed).then_some(Duration::ZERO),
                reset_after: Duration::MAX,
                refill_after: Duration::MAX,
                at: Tick::ZERO,
                source: DecisionSource::Policy,
            });
            decision.ok()?;
            return Ok(AsyncPermit { decision, guard: Box::new(()) });
        }
        let permit = self.places.empty_permit_owned(key.clone());
        let decision = permit.check_n(1);
        // Like a real store, reports only the figures of the decision.
        let decision = Decision::from(DecisionParts {
            outcome: decision.outcome(),
            cost: 1,
            capacity: decision.capacity(),
            remaining: decision.remaining(),
            wait: decision.is_allowed().then_some(Duration::ZERO),
            reset_after: Duration::MAX,
            refill_after: Duration::MAX,
            at: Tick::ZERO,
            source: DecisionSource::Store,
        });
        decision.ok()?;
        Ok(AsyncPermit { decision, guard: Box::new(permit) })
    }
}

impl AsyncInFlight for Far {
    fn acquire<'a>(
        &'a self,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Result<AsyncPermit, Denied>> + Send + 'a>> {
        let answer = self.answer(key);
        Box::pin(async move {
            self.gate.pass().await;
            answer
        })
    }

    fn limit(&self) -> u64 {
        self.places.limit()
    }
}

fn limit(far: &Arc<Far>) -> Limit {
    Limit::new("places", Backend::in_flight(Arc::clone(far)))
        .by(KeyBy::header("x-a"))
        .when_no_key(WhenNoKey::Deny)
}

fn of(key: &str) -> Request<()> {
    with(&[("x-a", key)])
}

/// Returns a service with two permits for each `x-a`.
fn two() -> (Waits, Arc<Far>) {
    let far = Far::new(2);
    (site().limit(limit(&far)).run_shared(), far)
}

#[test]
fn a_shared_place_is_held_until_the_body_has_ended_or_is_dropped() {
    let (site, far) = two();
    let call = || pollster::block_on(site.service().oneshot(of("a"))).unwrap();
    let (mut first, second) = (call(), call());
    assert_eq!((far.out("a"), site.statuses([of("a"), of("b")])), (2, [429, 200]));
    assert_eq!(pollster::block_on(first.body_mut().collect()).unwrap().to_bytes(), "handled");
    assert_eq!(far.out("a"), 1, "the body has ended, and the server keeps it");
    drop(second);
    assert_eq!((far.out("a"), site.statuses([of("a")])), (0, [200]));
    for failing in ["fail", "panic"] {
        let request = with(&[("x-a", "a"), ("x-answer", failing)]);
        let called = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| site.call(request)));
        assert!(!matches!(called, Ok(Ok(_))), "{failing}");
        assert_eq!(far.out("a"), 0, "{failing}");
    }
}

#[test]
fn a_shared_limit_in_flight_answers_as_a_local_one_does() {
    let answers = |site: Site, limit: Limit| {
        let site = site.limit(limit).run_shared();
        let held = [of("a"), of("a")].map(|it| pollster::block_on(site.service().oneshot(it)).unwrap());
        let shown = held.each_ref().map(|held| held.headers().clone());
        let refused = site.send(of("a"));
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, None));
        assert_eq!(refused.json()["error"], "too_many_in_flight");
        (shown, refused.headers, refused.body)
    };
    let here = InFlight::builder(2).build().unwrap();
    let here = Limit::new("places", here).by(KeyBy::header("x-a")).when_no_key(WhenNoKey::Deny);
    let shared = answers(site(), limit(&Far::new(2)));
    assert_eq!(shared.0[0]["ratelimit-policy"], r#""places";q=2;qu="concurrent-requests""#);
    assert_eq!(answers(site(), here), shared);
}

#[test]
fn a_shared_place_and_the_rates_are_taken_all_or_none() {
    for rate_first in [false, true] {
        let (site, far) = (site(), Far::new(1));
        let (rate, near) = (site.elsewhere(Quota::per_hour(3)), Arc::new(site.single(Quota::per_hour(30))));
        let by_rate = Limit::new("rate", Arc::clone(&rate)).by(KeyBy::nothing());
        let site = if rate_first {
            site.limit(by_rate).limit(limit(&far))
        } else {
            site.limit(limit(&far)).limit(by_rate)
        };
        let site = site.limit(Limit::new("near", Arc::clone(&near)).by(KeyBy::nothing())).run_shared();
        let held = pollster::block_on(site.service().oneshot(of("a"))).unwrap();
        for _ in 0..3 {
            assert_eq!(site.send(of("a")).json()["limit"], "places");
        }
        let none: [&str; 0] = [];
        assert_eq!((rate.left(&Key::new("rate", none)), near.peek().remaining(), far.out("a")), (2, 29, 1));
        drop(held);
        assert_eq!(site.statuses([of("a"), of("a")]), [200, 200]);
        // The rate refuses after the permit was granted.
        assert_eq!((site.statuses([of("a")]), far.out("a"), near.peek().remaining()), ([429], 0, 27));
    }
}

#[test]
fn who_hangs_up_while_he_waits_leaves_no_place_taken() {
    let (site, far) = (site(), Far::new(1));
    let rate = site.elsewhere(Quota::per_hour(9));
    let site = site
        .limit(limit(&far))
        .limit(Limit::new("rate", Arc::clone(&rate)).by(KeyBy::nothing()))
        .run_shared();
    // This store answers, but the other store does not.
    rate.close();
    let mut request = site.under_way(of("a"));
    assert!(request.result().is_none());
    assert_eq!(far.out("a"), 1);
    drop(request);
    assert_eq!(far.out("a"), 0);
    rate.open();
    // The store does not answer.
    far.gate.close();
    let mut request = Box::pin(site.service().oneshot(of("a")));
    assert!(request.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(request);
    far.gate.open();
    assert_eq!((far.out("a"), site.statuses([of("a")])), (0, [200]));
}

#[test]
fn places_that_cannot_be_reached_admit_or_refuse_as_they_say() {
    for (outcome, status) in [(Outcome::Allowed, 200), (Outcome::Denied, 503)] {
        let far = Far::new(1);
        far.state.lock().unwrap().away = Some(outcome);
        let reasons = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&reasons);
        let site = site()
            .limit(limit(&far))
            .with(|it| it.on_decision(move |event| noted.lock().unwrap().extend(event.reason)))
            .run_shared();
        assert_eq!(site.statuses([of("a"), of("a")]), [status; 2]);
        let expected = if status == 200 { vec![] } else { vec![RefusalReason::Unavailable; 2] };
        assert_eq!(*reasons.lock().unwrap(), expected);
    }
}

#[test]
fn a_shared_shadow_in_flight_refuses_nothing() {
    let far = Far::new(1);
    let site = site()
        .limit(limit(&far).shadow())
        .with(|it| it.on_decision(|event| assert!(!event.is_refused)))
        .run_shared();
    let held = [of("a"), of("a")].map(|it| pollster::block_on(site.service().oneshot(it)).unwrap());
    assert_eq!((far.out("a"), held[1].headers().contains_key("ratelimit")), (1, false));
    drop(held);
    assert_eq!(far.out("a"), 0);
}

#[test]
fn all_requests_on_all_machines_together_have_so_many_places() {
    let far = Far::new(1);
    let machines = [(); 2].map(|()| {
        site()
            .limit(Limit::new("all", Backend::in_flight(Arc::clone(&far))).by(KeyBy::nothing()))
            .run_shared()
    });
    let held = pollster::block_on(machines[0].service().oneshot(of("a"))).unwrap();
    assert_eq!(machines[1].statuses([of("b")]), [429]);
    drop(held);
    assert_eq!(machines[1].statuses([of("b")]), [200]);
}

#[test]
fn what_a_shared_limit_in_flight_cannot_do_is_refused() {
    let build = |limit: Limit| RateLimitLayer::builder().limit(limit).build().unwrap_err();
    let far = Far::new(9);
    for cost in [RequestCost::from(2), RequestCost::from_fn(|_| 1), RequestCost::content_length(1, 1)] {
        let error = build(limit(&far).cost(cost));
        assert_eq!(error, Fault::SharedPlaces { limit: "places".to_owned() });
        assert!(error.to_string().contains("leave `.cost(...)` out"), "{error}");
    }
    let rule = |rule| Fault::InFlightRule { limit: "places".to_owned(), rule };
    assert_eq!(build(limit(&far).charge_if(|_| true)), rule("charge_if"));
    assert_eq!(build(limit(&far).settle(ResponseCost::bytes(1))), rule("settle"));
    assert!(RateLimitLayer::builder().limit(limit(&far).cost(1)).build().is_ok());
}

/// The body owns the permit even if another limit of the layer is settled by the body.
#[test]
fn a_shared_place_is_beside_a_limit_that_settles() {
    let (site, far) = (site(), Far::new(1));
    let rate = Arc::new(SingleLimiter::builder(Quota::per_hour(100)).clock(&site.clock).build().unwrap());
    let tokens = Limit::new("tokens", Arc::clone(&rate)).cost(20).settle(ResponseCost::bytes(1));
    let site = site.limit(limit(&far)).limit(tokens).run_shared();
    let held = pollster::block_on(site.service().oneshot(of("a"))).unwrap();
    assert_eq!((far.out("a"), rate.peek().remaining()), (1, 80));
    drop(held.into_body().collect());
    assert_eq!((far.out("a"), rate.peek().remaining()), (0, 80));
}
