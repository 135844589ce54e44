//! Tests two bounds. For an admitted request, the layer allocates only the values of the response's
//! headers. For a response that reveals its cost, the layer buffers no more of the body than
//! documented.
//!
//! The test counts the allocations of the whole process, so it runs without a test harness.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body as _, Frame};
use std::alloc::{GlobalAlloc, Layout, System};
use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use tollgate::{Limiter, ManualClock, Quota, SingleLimiter};
use tollgate_http::{
    ClassBy, ForwardedField, Key, KeyBy, KeyPart, Limit, PeerAddr, RateLimitBuilder, RateLimitLayer,
    ResponseCost, ResponseFuture, TrustedProxies, WhenNoKey,
};
use tower::{Layer, Service, ServiceExt, service_fn};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
/// The number of bytes that are currently allocated.
static BYTES: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts the allocations for an admitted request, apart from its response's header map.
fn allocations(builder: RateLimitBuilder) -> usize {
    allocations_of(builder, ["/reports"])[0]
}

/// Counts the allocations of requests to several paths, in turn.
fn allocations_of<const N: usize>(builder: RateLimitBuilder, paths: [&str; N]) -> [usize; N] {
    counted(builder.build().unwrap().layer(handler()), paths)
}

fn handler() -> impl Service<Request<()>, Response = Response<String>, Error = Infallible> + Clone {
    service_fn(|request: Request<()>| async move {
        let mut response = Response::new(String::new());
        // The handler reuses the request's header map, which was allocated before the count
        // started.
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

/// A large value, used as the service and as the bodies of its requests and responses.
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

/// A body of these frames, which are not allocated.
struct Frames(std::vec::IntoIter<&'static [u8]>);

impl http_body::Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.next().map(|data| Ok(Frame::data(Bytes::from_static(data)))))
    }
}

/// Returns the maximum number of bytes that the layer buffers for a response of this type.
fn most_kept(kind: &'static str, frames: Vec<&'static [u8]>) -> usize {
    let limiter = SingleLimiter::builder(Quota::per_hour(1000)).clock(ManualClock::new()).build().unwrap();
    let limit = Limit::new("tokens", limiter).settle(ResponseCost::json("usage.total_tokens"));
    let layer = RateLimitLayer::builder().limit(limit).build().unwrap();
    let service = layer.layer(service_fn(|_: Request<()>| {
        let response = Response::builder().header("content-type", kind);
        ready(Ok::<_, Infallible>(response.body(Frames(frames.clone().into_iter())).unwrap()))
    }));
    let mut body = pollster::block_on(service.oneshot(Request::new(()))).unwrap().into_body();
    let before = BYTES.load(Relaxed);
    let mut most = 0;
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(_))) = Pin::new(&mut body).poll_frame(&mut context) {
        most = most.max(BYTES.load(Relaxed) - before);
    }
    most
}

/// The documented bound holds even if a body, a line or an event never ends.
fn bodies_are_kept_within_their_bound() {
    static LONG: [u8; 50_000] = [b'x'; 50_000];
    let long = |first: &'static [u8], between: &'static [u8]| {
        let mut frames = vec![first];
        (0..9).for_each(|_| frames.extend([&LONG[..], between]));
        frames
    };
    const TEXT: usize = 128 * 1024;
    // The figures found in the text require a few bytes.
    for (kind, frames, most) in [
        ("application/json", long(b"[\"", b"\n"), TEXT),
        ("application/x-ndjson", long(b"{\"", b""), TEXT),
        ("application/x-ndjson", long(b"{\"", b"\n"), TEXT),
        ("text/event-stream", long(b"data: ", b""), TEXT),
        // Many lines form one event, and the last line never ends.
        ("text/event-stream", [long(b"data: ", b"\ndata: "), long(b"data: ", b"")].concat(), 2 * TEXT),
        ("text/event-stream", long(b"data: ", b"\n\ndata: "), 2 * TEXT),
        ("text/plain", long(b"", b"\n"), 0),
    ] {
        let kept = most_kept(kind, frames);
        assert!(kept <= most && kept >= most.min(LONG.len()), "{kind}: {kept} of {most}");
    }
}

fn limit(name: &str, by: KeyBy) -> Limit {
    let limiter: Limiter<Key> =
        Limiter::builder(Quota::per_hour(1000)).clock(ManualClock::new()).build().unwrap();
    Limit::new(name, limiter).by(by).when_no_key(WhenNoKey::Deny)
}

fn main() {
    let new = RateLimitLayer::builder;
    let single = || SingleLimiter::builder(Quota::per_hour(1000)).clock(ManualClock::new()).build().unwrap();
    assert_eq!(allocations(new().limit(Limit::new("all", single())).without_fields()), 0);
    assert_eq!(allocations(new().limit(Limit::new("all", single())).skip(|_| true)), 0);
    // `RateLimit` needs one allocation. The policy is shared.
    assert_eq!(allocations(new().limit(Limit::new("all", single()))), 1);
    assert_eq!(allocations(new().limit(limit("per-address", KeyBy::peer()))), 1);

    // The decisions take one allocation, and their entry in the request's extensions another one.
    let both = || new().limit(Limit::new("all", single())).limit(limit("per-address", KeyBy::peer()));
    assert_eq!(allocations(both().pass_decisions()), allocations(both()) + 2);

    let proxies = TrustedProxies::networks(["10.0.0.0/8"]);
    let client = KeyBy::header("x-none")
        .or(KeyBy::query("api_key"))
        .and(KeyBy::forwarded(ForwardedField::Forwarded, proxies));
    let path = KeyBy::path().and(KeyBy::method()).and(KeyBy::from_fn(|_| Some(KeyPart::from(7))));
    let four = || {
        new()
            .limit(Limit::new("all", single()))
            .limit(limit("per-address", KeyBy::peer()).shadow())
            .limit(limit("per-path", KeyBy::path().and(KeyBy::method())))
    };
    assert_eq!(allocations(four().limit(limit("per-client", client))), 1);
    assert_eq!(allocations(four().limit(limit("per-route", path)).on_decision(|_| {})), 1);

    // A key with its own quota has its own policy, which requires one more allocation. Other keys
    // are not affected.
    let limiter: Limiter<Key> = Limiter::builder(Quota::per_hour(1000)).build().unwrap();
    limiter.set_key_quota(&Key::new("per-path", ["/own"]), Quota::per_hour(500)).unwrap();
    let limit = Limit::new("per-path", limiter).by(KeyBy::path());
    assert_eq!(allocations_of(new().limit(limit), ["/own", "/other"]), [2, 1]);
    // All callers of a class share one policy.
    let limiter = Limiter::builder(Quota::per_hour(1000)).clock(ManualClock::new());
    let limiter = limiter.class("paid", Quota::per_hour(2000)).build().unwrap();
    let paid = ClassBy::from_fn(|head| (head.uri().path() == "/paid").then_some("paid"));
    let limit = Limit::new("tier", limiter).by(KeyBy::peer()).class_by(paid).when_no_key(WhenNoKey::Deny);
    assert_eq!(allocations_of(new().limit(limit), ["/paid", "/free"]), [1, 1]);
    // The future contains neither the service nor the bodies, because only a waiting request needs
    // them. Its own 112 bytes hold the headers, the charges, the permits and the wait.
    let [future, handler] = [size_of::<ResponseFuture<Large, Large>>(), size_of::<Handled>()];
    assert!(future <= handler + 112, "{future} bytes, of which the handler's future has {handler}");
    println!("a request that passes allocates the values of its fields and nothing else: ok");
    bodies_are_kept_within_their_bound();
    println!("of a body no more is kept than is stated: ok");
}
