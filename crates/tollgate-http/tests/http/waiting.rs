//! Tests limits shared with other machines: what a request waits for, and which charges remain if
//! the request is dropped.

use super::elsewhere::{Elsewhere, UnderWay, Waits};
use super::site::{Answer, Site, site, with};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use std::future::{Future, Ready, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tollgate::{Quota, SingleLimiter};
use tollgate_http::{Key, KeyBy, Limit, ResponseFuture};
use tower::{Layer, Service, ServiceExt, service_fn};

/// Returns the tokens that a global limit has left.
fn left(name: &str, elsewhere: &Elsewhere) -> u64 {
    let none: [&str; 0] = [];
    elsewhere.left(&Key::new(name, none))
}

/// Three limits of 9 requests an hour: the shared limits `a` and `b`, and the local limit `here`.
fn three(change: impl Fn(Limit) -> Limit) -> (Waits, Arc<Elsewhere>, Arc<Elsewhere>, Arc<SingleLimiter>) {
    let site = site();
    let (a, b) = (site.elsewhere(Quota::per_hour(9)), site.elsewhere(Quota::per_hour(9)));
    let here = Arc::new(site.single(Quota::per_hour(9)));
    let site = site
        .limit(change(Limit::new("a", Arc::clone(&a)).by(KeyBy::nothing())))
        .limit(change(Limit::new("here", Arc::clone(&here))))
        .limit(change(Limit::new("b", Arc::clone(&b)).by(KeyBy::nothing())));
    (site.run_shared(), a, b, here)
}

#[test]
fn shared_limits_are_asked_at_the_same_time_and_all_are_waited_for() {
    for first in 0..2 {
        let (site, a, b, here) = three(|limit| limit);
        a.close();
        b.close();
        let mut request = site.under_way(with(&[]));
        assert_eq!((a.calls().len(), b.calls().len()), (0, 0));
        assert_eq!(request.status(), None);
        assert_eq!((a.calls(), b.calls()), (vec!["check 1".to_owned()], vec!["check 1".to_owned()]));
        let order = if first == 0 { [&a, &b] } else { [&b, &a] };
        order[0].open();
        assert_eq!(request.status(), None);
        // The local limit is charged last.
        assert_eq!(here.peek().remaining(), 9);
        order[1].open();
        let items = request.answer().unwrap().items("ratelimit");
        assert_eq!(items, ["a r=8 t=400", "here r=8 t=400", "b r=8 t=400"]);
        assert_eq!((a.calls().len(), b.calls().len()), (0, 0));
    }
}

#[test]
fn who_answers_wakes_the_request() {
    let (site, a, b, _) = three(|limit| limit);
    a.close();
    b.close();
    std::thread::scope(|scope| {
        let request = site.under_way(with(&[]));
        let waiting = scope.spawn(|| pollster::block_on(request).unwrap().status);
        for limiter in [&b, &a] {
            limiter.open();
        }
        assert_eq!(waiting.join().unwrap(), 200);
    });
}

/// Returns a request that `here` refuses, because other requests used up this limit while the
/// request waited for `a`. The request's refunds wait for `b`.
fn used_up_meanwhile() -> (UnderWay, Arc<Elsewhere>, Arc<Elsewhere>) {
    let (site, a, b, here) = three(|limit| limit);
    a.close();
    let mut request = site.under_way(with(&[]));
    assert_eq!(request.status(), None);
    assert!(here.check_n(9).is_allowed());
    a.open();
    b.close();
    (request, a, b)
}

#[test]
fn what_was_used_up_here_meanwhile_refuses_and_what_was_charged_elsewhere_comes_back_first() {
    let (mut request, a, b) = used_up_meanwhile();
    // The refusal is known, but the response waits for the refunds.
    assert_eq!(request.status(), None);
    assert_eq!(
        (a.calls(), b.calls()),
        (vec!["check 1".into(), "refund 1".into()], vec!["check 1".to_owned(), "refund 1".into()])
    );
    b.open();
    let refused = request.answer().unwrap();
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("400")));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["here"]));
    assert_eq!((left("a", &a), left("b", &b)), (9, 9));
}

#[test]
fn who_hangs_up_while_he_waits_leaves_charges_as_they_are() {
    let (site, a, b, here) = three(|limit| limit.charge_if(|_| false));
    a.close();
    let mut request = site.under_way(with(&[]));
    assert_eq!(request.status(), None);
    drop(request);
    a.open();
    assert_eq!((left("a", &a), left("b", &b), here.peek().remaining()), (8, 8, 9));
    assert_eq!((a.calls(), b.calls()), (vec!["check 1".to_owned()], vec!["check 1".to_owned()]));
    // The limits are not asked before the first poll.
    drop(site.under_way(with(&[])));
    assert_eq!(a.calls(), [""; 0]);
}

/// Nine requests an hour, with charges that depend on the response.
fn decided(change: impl FnOnce(Limit) -> Limit) -> (Site, Arc<Elsewhere>) {
    let site = site();
    let a = site.elsewhere(Quota::per_hour(9));
    let limit =
        Limit::new("a", Arc::clone(&a)).by(KeyBy::nothing()).charge_if(|response| response.status() == 401);
    (site.limit(change(limit)), a)
}

fn told(answer: &str) -> Request<()> {
    with(&[("x-answer", answer)])
}

#[test]
fn a_charge_that_the_response_does_not_keep_is_back_before_the_response_is_there() {
    for answered in [401, 200] {
        let (site, a) = decided(|limit| limit);
        let closing = Arc::clone(&a);
        // The limiter no longer answers when the request has been handled.
        let handler = service_fn(move |_: Request<()>| {
            closing.close();
            ready(Response::builder().status(answered).body(Full::<Bytes>::default()))
        });
        let layer = site.builder.build().unwrap();
        let mut request = Box::pin(layer.layer(handler).oneshot(Request::new(())));
        let mut poll = || match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(response) => Some(Answer::of(response.unwrap())),
            Poll::Pending => None,
        };
        let answer = if answered == 401 {
            poll().expect("nothing is given back, and nobody is waited for")
        } else {
            for _ in 0..3 {
                assert!(poll().is_none());
            }
            assert_eq!(a.calls(), ["check 1", "refund 1"]);
            a.open();
            poll().expect("it has been given back")
        };
        assert_eq!(
            (answer.status.as_u16(), answer.items("ratelimit")),
            (answered, vec!["a r=8 t=400".into()])
        );
        assert_eq!(left("a", &a), if answered == 401 { 8 } else { 9 });
    }
}

#[test]
fn who_hangs_up_while_a_refund_is_under_way_is_done() {
    let (mut request, _a, b) = used_up_meanwhile();
    assert_eq!(request.status(), None);
    drop(request);
    b.open();
    assert_eq!(b.calls(), ["check 1", "refund 1"]);
}

#[test]
fn a_handler_that_fails_gives_the_charge_back_unless_it_is_kept() {
    let (site, a) = decided(|limit| limit);
    assert_eq!(site.run_shared().call(told("fail")).unwrap_err(), "failed");
    assert_eq!(a.calls(), ["check 1", "refund 1"]);
    let (site, a) = decided(Limit::keep_on_error);
    assert_eq!(site.run_shared().call(told("fail")).unwrap_err(), "failed");
    assert_eq!(a.calls(), ["check 1"]);
}

#[test]
fn local_and_shared_charges_of_one_request_are_settled_together() {
    let (site, a, b, here) = three(|limit| limit.charge_if(|response| response.status() == 401));
    assert_eq!(site.statuses([told("200"), told("401")]), [200, 401]);
    assert_eq!((left("a", &a), left("b", &b), here.peek().remaining()), (8, 8, 8));
}

/// A handler that panics when it is called, or later, when its future is polled.
#[derive(Clone)]
struct Panics {
    later: bool,
}

impl Service<Request<()>> for Panics {
    type Response = Response<Full<Bytes>>;
    type Error = String;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, String>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), String>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.later, "a handler that panics at once, as it is meant to");
        Box::pin(async { panic!("a handler that panics later, as it is meant to") })
    }
}

#[test]
fn a_handler_that_panics_gives_the_charge_back_and_goes_on_panicking() {
    for (later, kept) in [(false, false), (false, true), (true, false), (true, true)] {
        let (site, a) = decided(|limit| if kept { limit.keep_on_error() } else { limit });
        let mut service = site.builder.build().unwrap().layer(Panics { later });
        let mut future = Box::pin(service.call(Request::new(())));
        let mut poll = || {
            let mut context = Context::from_waker(Waker::noop());
            catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context).is_pending()))
        };
        let panic = poll().unwrap_err();
        let text = panic.downcast_ref::<&str>().unwrap();
        assert!(text.contains(if later { "panics later" } else { "panics at once" }), "{text}");
        let expected: &[&str] = if kept { &["check 1"] } else { &["check 1", "refund 1"] };
        assert_eq!(a.calls(), expected, "{later} {kept}");
    }
}

/// A service that accepts one request per `poll_ready`, as a service behind a queue does.
struct Once {
    ready: bool,
    waits: bool,
}

impl Clone for Once {
    fn clone(&self) -> Self {
        Self { ready: false, waits: self.waits }
    }
}

impl Service<Request<()>> for Once {
    type Response = Response<Full<Bytes>>;
    type Error = String;
    type Future = Ready<Result<Self::Response, String>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        if std::mem::take(&mut self.waits) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called before it was ready");
        ready(Ok(Response::new(Full::from("handled"))))
    }
}

#[test]
fn the_service_that_was_ready_is_the_one_that_is_called() {
    let (site, a) = decided(|limit| limit);
    let mut service = site.builder.build().unwrap().layer(Once { ready: false, waits: true });
    let mut context = Context::from_waker(Waker::noop());
    let mut under_way: Vec<Pin<Box<ResponseFuture<Once, ()>>>> = Vec::new();
    a.close();
    for _ in 0..3 {
        // Each request in progress owns the service instance that became ready for it.
        while service.poll_ready(&mut context).is_pending() {}
        let mut future = Box::pin(service.call(Request::new(())));
        assert!(future.as_mut().poll(&mut context).is_pending());
        under_way.push(future);
    }
    a.open();
    for future in &mut under_way {
        let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut context) else { panic!("it is over") };
        assert_eq!(response.status(), 200);
    }
}

#[test]
fn layers_services_and_answers_go_from_thread_to_thread() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn sent<T: Send + 'static>(_: &T) {}
    let (site, _) = decided(|limit| limit);
    let site = site.run_shared();
    shared(&site.layer);
    shared(&site.service());
    let future = Service::call(&mut site.service(), with(&[]));
    sent(&future);
}
