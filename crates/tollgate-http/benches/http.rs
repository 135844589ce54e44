//! Measures the tower layer's cost per request. The benchmark compares a bare service with the same
//! service behind one limit and behind three limits. It uses no socket and no body, and the handler
//! answers immediately.

use criterion::{Criterion, criterion_group, criterion_main};
use http::{Request, Response};
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tollgate::{Clock, Limiter, Quota, SingleLimiter};
use tollgate_http::{KeyBy, Limit, PeerAddr, RateLimitBuilder, RateLimitLayer, WhenNoKey};
use tower::{Layer, Service};

#[derive(Clone)]
struct Handler;

impl Service<Request<()>> for Handler {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(String::new())))
    }
}

fn request() -> Request<()> {
    let mut request = Request::new(());
    request.headers_mut().insert("x-api-key", http::HeaderValue::from_static("0123456789abcdef"));
    request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 4711).into()));
    request
}

/// Sends one request and returns the status.
fn serve<S, B>(service: &mut S) -> u16
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let future = pin!(service.call(black_box(request())));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => response.status().as_u16(),
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => unreachable!("nothing here waits"),
    }
}

fn keyed(name: &str, quota: Quota, by: KeyBy) -> Limit {
    let limiter = Limiter::builder(quota).clock(Clock::counter()).build().expect("a quota that is fine");
    Limit::new(name, limiter).by(by).when_no_key(WhenNoKey::Deny)
}

fn behind(
    builder: RateLimitBuilder,
) -> impl Service<Request<()>, Response = Response<impl Sized>, Error = Infallible> {
    builder.build().expect("limits that are fine").layer(Handler)
}

fn layers(criterion: &mut Criterion) {
    let ample = Quota::per_second(50_000_000);
    let per_address = || keyed("per-address", ample, KeyBy::peer());
    let three = || {
        let all =
            SingleLimiter::builder(ample).clock(Clock::counter()).build().expect("a quota that is fine");
        let per_key = keyed("per-key", ample, KeyBy::api_key("x-api-key", "api_key"));
        RateLimitLayer::builder().limit(per_address()).limit(per_key).limit(Limit::new("all", all))
    };
    let mut group = criterion.benchmark_group("a request");
    group.bench_function("without limits", |bencher| bencher.iter(|| serve(&mut Handler)));

    let mut bench = |title, builder: RateLimitBuilder, status| {
        let mut service = behind(builder);
        // A client's first request is admitted, even if later ones are denied.
        serve(&mut service);
        group.bench_function(title, |bencher| {
            assert_eq!(serve(&mut service), status);
            bencher.iter(|| serve(&mut service));
        });
    };
    let one = || RateLimitLayer::builder().limit(per_address());
    bench("one limit", one(), 200);
    bench("one limit, no fields", one().without_fields(), 200);
    bench("three limits", three(), 200);
    bench("three limits, no fields", three().without_fields(), 200);
    let used_up = keyed("per-address", Quota::per_day(1), KeyBy::peer());
    bench("one limit, refused", RateLimitLayer::builder().limit(used_up), 429);
}

criterion_group!(benches, layers);
criterion_main!(benches);
