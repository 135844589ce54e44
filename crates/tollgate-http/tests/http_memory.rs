//! A request that passes allocates the values of its headers and nothing else. This test has no
//! harness, because the count is of the whole process.

use http::{HeaderMap, Request, Response};
use std::alloc::{GlobalAlloc, Layout, System};
use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use tollgate::{Clock, Limiter, Quota, SingleLimiter};
use tollgate_http::{
    ForwardedField, Key, KeyBy, KeyPart, Limit, PeerAddr, RateLimitBuilder, RateLimitLayer, ResponseFuture,
    TrustedProxies, WhenNoKey,
};
use tower::{Layer, Service, service_fn};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts what a request that passes allocates, except for the header map of its response.
fn allocations(builder: RateLimitBuilder) -> usize {
    allocations_of(builder, ["/reports"])[0]
}

/// Counts the allocations of requests to several paths, in turn.
fn allocations_of<const N: usize>(builder: RateLimitBuilder, paths: [&str; N]) -> [usize; N] {
    counted(builder.build().unwrap().layer(handler()), paths)
}

fn handler() -> impl Service<Request<()>, Response = Response<()>, Error = Infallible> + Clone {
    service_fn(|request: Request<()>| async move {
        let mut response = Response::new(());
        // The handler's header map is taken from the request, so it was allocated before the count
        // began.
        *response.headers_mut() = request.into_parts().0.extensions.remove::<HeaderMap>().unwrap();
        Ok::<_, Infallible>(response)
    })
}

/// Counts the allocations of requests to any service.
fn counted<S, B, const N: usize>(mut service: S, paths: [&str; N]) -> [usize; N]
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut send = |path: &str| {
        let mut request = Request::get(format!("{path}?api_key=secret")).body(()).unwrap();
        request.extensions_mut().insert(PeerAddr(([10, 0, 0, 1], 4711).into()));
        request.extensions_mut().insert(HeaderMap::<http::HeaderValue>::with_capacity(16));
        request.headers_mut().insert("x-api-key", "secret".parse().unwrap());
        let entries = "for=\"[2001:db8::1]:80\", for=10.0.0.2";
        request.headers_mut().insert("forwarded", entries.parse().unwrap());
        let before = ALLOCATIONS.load(Relaxed);
        let mut future = pin!(service.call(request));
        let Poll::Ready(Ok(response)) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it has to be ready")
        };
        assert_eq!(response.status(), 200);
        ALLOCATIONS.load(Relaxed) - before
    };
    // The first requests insert the keys and write the policy.
    for path in paths.iter().cycle().take(2 * N) {
        send(path);
    }
    let counted = paths.map(&mut send);
    assert_eq!(paths.map(&mut send), counted);
    counted
}

/// A large service, and the large bodies of its requests and responses.
#[derive(Clone)]
struct Large(#[allow(dead_code)] [u8; 4096]);

type Handled = Pin<Box<dyn Future<Output = Result<Response<Large>, Infallible>>>>;

impl Service<Request<Large>> for Large {
    type Response = Response<Large>;
    type Error = Infallible;
    type Future = Handled;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Large>) -> Handled {
        Box::pin(ready(Ok(Response::new(request.into_body()))))
    }
}

fn limit(name: &str, by: KeyBy) -> Limit {
    let limiter: Limiter<Key> =
        Limiter::builder(Quota::per_hour(1000)).clock(Clock::manual()).build().unwrap();
    Limit::new(name, limiter, by).when_no_key(WhenNoKey::Deny)
}

fn main() {
    let new = RateLimitLayer::builder;
    let single = || SingleLimiter::builder(Quota::per_hour(1000)).clock(Clock::manual()).build().unwrap();
    assert_eq!(allocations(new().limit(Limit::global("all", single())).without_fields()), 0);
    assert_eq!(allocations(new().limit(Limit::global("all", single())).skip(|_| true)), 0);
    // One for `RateLimit`; the policy is shared.
    assert_eq!(allocations(new().limit(Limit::global("all", single()))), 1);
    assert_eq!(allocations(new().limit(limit("per-address", KeyBy::peer()))), 1);

    let proxies = TrustedProxies::networks(["10.0.0.0/8"]);
    let client = KeyBy::header("x-none")
        .or(KeyBy::query("api_key"))
        .and(KeyBy::forwarded(ForwardedField::Forwarded, proxies));
    let path = KeyBy::path().and(KeyBy::method()).and(KeyBy::from_fn(|_| Some(KeyPart::from(7))));
    let four = || {
        new()
            .limit(Limit::global("all", single()))
            .limit(limit("per-address", KeyBy::peer()).shadow())
            .limit(limit("per-path", KeyBy::path().and(KeyBy::method())))
    };
    assert_eq!(allocations(four().limit(limit("per-client", client))), 1);
    assert_eq!(allocations(four().limit(limit("per-route", path)).on_decision(|_| {})), 1);

    // A key with a quota of its own has another policy, which takes one more allocation; other keys
    // are not affected.
    let limiter: Limiter<Key> = Limiter::builder(Quota::per_hour(1000)).build().unwrap();
    limiter.set_key_quota(&Key::new("per-path", ["/own"]), Quota::per_hour(500)).unwrap();
    let limit = Limit::new("per-path", limiter, KeyBy::path());
    assert_eq!(allocations_of(new().limit(limit), ["/own", "/other"]), [2, 1]);
    // The future has no room for the service and the bodies, which only waiting takes along; there
    // are 112 bytes for the headers, the charges, the permits and the wait.
    let [future, handler] = [size_of::<ResponseFuture<Large, Large>>(), size_of::<Handled>()];
    assert!(future <= handler + 112, "{future} bytes, of which the handler's future has {handler}");
    println!("a request that passes allocates the values of its fields and nothing else: ok");
}
