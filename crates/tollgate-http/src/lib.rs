//! Rate limits for HTTP servers: a [tower](https://docs.rs/tower) layer for axum, hyper, tonic and
//! any other service that accepts `http` requests.
//!
//! ```
//! use http::{Request, Response, StatusCode};
//! use tollgate_http::{KeyBy, Limit, WhenNoKey, PeerAddr, RateLimitLayer};
//! use tollgate::{Limiter, Quota, SingleLimiter};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! // 5000 requests a second in all, and two an hour for each address.
//! let all = SingleLimiter::builder(Quota::per_second(5000)).build()?;
//! let addresses = Limiter::builder(Quota::per_hour(2)).build()?;
//! let layer = RateLimitLayer::builder()
//!     .limit(Limit::new("all", all))
//!     .limit(Limit::new("per-address", addresses)
//!     .by(KeyBy::peer()).when_no_key(WhenNoKey::Deny))
//!     .build()?;
//!
//! let service = layer.layer(service_fn(|_: Request<()>| async {
//!     Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
//! }));
//! # pollster::block_on(async {
//! let mut request = Request::new(());
//! request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 4711).into()));
//! for status in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
//!     let response = service.clone().oneshot(request.clone()).await.unwrap();
//!     assert_eq!(response.status(), status);
//! }
//! // Another address is not affected; a request without an address is refused.
//! request.extensions_mut().insert(PeerAddr(([192, 0, 2, 2], 4711).into()));
//! let response = service.clone().oneshot(request).await.unwrap();
//! assert_eq!(response.status(), StatusCode::OK);
//! let response = service.oneshot(Request::new(())).await.unwrap();
//! assert_eq!(response.status(), StatusCode::FORBIDDEN);
//! # });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to look
//!
//! - [`RateLimitLayer`] and its [builder](RateLimitBuilder): statuses, responses, fields,
//!   exemptions, listeners.
//! - [`Limit`]: a named limit over any [`Backend`], such as a [`Limiter`](tollgate::Limiter) or a
//!   [`SingleLimiter`](tollgate::SingleLimiter); shadow mode, charges that depend on the response.
//!   A limit over an [`InFlight`](tollgate::InFlight) restricts [how many of a client's requests
//!   run at once](Limit#requests-in-flight). A request runs until the end of its response.
//! - [`Decisions`]: the layer's decisions, for the handler. [`HandlerLimit`]: the fields and the
//!   refusal of a limit that a handler checks itself.
//! - [`ClassBy`]: the caller's class, such as free or paid; [`ClassLookup`] queries a database.
//! - [`RequestCost`]: the cost of a request, in tokens. [`ResponseCost`]: a cost that only the
//!   response reveals, and streams that are cut off when their budget is spent. [`Estimator`]: an
//!   estimate of such a cost, reserved until the response is known.
//! - [`AsyncLimiter`]: a limiter that several machines share; the layer waits for its decisions.
//!   [`AsyncInFlight`]: a limit on requests in flight across all machines.
//! - [`KeyBy`]: how a client is identified; [`TrustedProxies`] for services behind proxies;
//!   [`WhenNoKey`] for requests that cannot be attributed to a client.
//! - [`Key`]: the key of a client, to check or change a limiter beside the layer.
//! - [`settings`]: a layer from arguments or a file. [`RateLimitLayer::save`]: counts that survive
//!   a restart.
//!
//! # Response fields
//!
//! Each response contains the fields `RateLimit` and `RateLimit-Policy`, as defined by
//! [draft-ietf-httpapi-ratelimit-headers][draft], with one item for each limit. (A refusal because
//! the request has no key or the caller is blocked contains neither, because nothing was counted.
//! If a limit admits a request without counting it, because it is full or its store is unreachable,
//! `RateLimit` has no item of that limit.)
//!
//! ```text
//! RateLimit-Policy: "all";q=5000;w=1, "per-address";q=2;w=3600
//! RateLimit: "all";r=4999;t=1, "per-address";r=1;t=1800
//! ```
//!
//! - `q` and `w`: the quota is `q` tokens per `w` seconds. If the period is not a whole number of
//!   seconds, both numbers are multiplied until it is. If the result would be longer than an hour,
//!   `w` is omitted. The burst is not shown, so `r` may exceed `q` or, with a small burst, always
//!   be far below `q`. For a limit with [classes](#classes-of-callers), `q` and `w` show the quota
//!   of the caller's class.
//! - `qu`: `"concurrent-requests"` for a limit on requests in flight. Such a limit has no window.
//! - `r`: the tokens or permits that are left.
//! - `t`: the number of seconds until more tokens or permits are available. If the limit refuses
//!   the request, `t` is the number of seconds until a retry.
//!
//! The response to a refused request also has `Retry-After`. Times are rounded up to whole seconds,
//! and to at least one second when the request is refused. The layer omits the times if it cannot
//! say when a retry would succeed: if the request costs more than the limit's capacity, if the
//! table is full, or if the maximum number of requests is in flight.
//!
//! All figures are taken from the decision itself; the limiter is not read a second time.
//!
//! An upstream, the handler or an inner layer may already have written these fields. The layer then
//! adds its own items and writes the whole list on one line. It keeps an existing item only if the
//! item has the form that this draft requires: a String with the parameter `r` or, in
//! `RateLimit-Policy`, with `q`. All other items, such as `limit=100, remaining=50` from an older
//! draft, are removed, because a client that cannot parse one item rejects the whole field.
//!
//! If the response already contains the older `X-RateLimit-*` fields,
//! [`legacy_fields`](RateLimitBuilder::legacy_fields) describes whose values are kept.
//!
//! [draft]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
//!
//! # Refusals
//!
//! A refused request is answered with problem JSON (RFC 9457). Its member `violated-policies` lists
//! the limits that refused. Simple clients can read the members `error`, `limit` and `retry_after`
//! (in seconds).
//!
//! The problem type is usually `quota-exceeded`. If the limiter has no room for new clients or its
//! store is unreachable, the type is `temporary-reduced-capacity`. The draft defines both types. If
//! the caller is blocked, or the request has no key or several, the type is `about:blank`.
//!
//! To send a different response, use [`plain_text`](RateLimitBuilder::plain_text) or
//! [`respond`](RateLimitBuilder::respond).
//!
//! | reason | status | gRPC status | `error` |
//! |---|---|---|---|
//! | [`Quota`](RefusalReason::Quota), [`Paused`](RefusalReason::Paused), [`TooCostly`](RefusalReason::TooCostly) | [`status`](RateLimitBuilder::status), 429 | `RESOURCE_EXHAUSTED` | `rate_limited` |
//! | [`InFlight`](RefusalReason::InFlight) | the same | `RESOURCE_EXHAUSTED` | `too_many_in_flight` |
//! | [`Full`](RefusalReason::Full) | the same | `RESOURCE_EXHAUSTED` | `capacity_reduced` |
//! | [`Unavailable`](RefusalReason::Unavailable) | 503 | `UNAVAILABLE` | `unavailable` |
//! | [`NoKey`](RefusalReason::NoKey) | [`no_key_status`](RateLimitBuilder::no_key_status), 403 | `PERMISSION_DENIED` | `client_unknown` |
//! | [`AmbiguousKey`](RefusalReason::AmbiguousKey) | 400 | `INVALID_ARGUMENT` | `client_ambiguous` |
//! | [`Blocked`](RefusalReason::Blocked) | [`no_key_status`](RateLimitBuilder::no_key_status), 403 | `PERMISSION_DENIED` | `blocked` |
//!
//! # Figures
//!
//! [`RateLimitBuilder::metrics`] counts decisions by limit and class, and writes these counts and
//! the limiters' figures for Prometheus: see [`Metrics`]. For other metrics and for logs,
//! [`RateLimitBuilder::on_decision`] calls a closure with each decision.
//!
//! # What it costs
//!
//! Each request costs one check per limit and one allocation for `RateLimit`, besides the
//! allocations of the header map. Keys are borrowed from the request. Checking up to four limits,
//! with up to three parts per key, requires no further allocation. A permit requires two
//! allocations and a copy of the key. [`pass_decisions`](RateLimitBuilder::pass_decisions) requires
//! two allocations.
//!
//! To find a field in a response's JSON, the layer buffers up to 128 KiB of the body. For a stream
//! of events, it buffers up to 256 KiB. It also stores 64 bytes for each charge made while the body
//! passes, up to 64 KiB per limit.
//!
//! # Classes of callers
//!
//! A limiter can have classes of callers, such as free and paid, each with its own quota. A limit
//! over such a limiter specifies how the layer finds a request's class. Each caller sees only the
//! quota of the caller's class:
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::{Limiter, Quota};
//! use tollgate_http::{ClassBy, KeyBy, Limit, RateLimitLayer, WhenNoKey};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! /// The account that a middleware outside of the layer has verified.
//! #[derive(Clone)]
//! struct Account {
//!     id: u64,
//!     class: &'static str,
//! }
//!
//! let limiter = Limiter::builder(Quota::per_minute(10))
//!     .class("paid", Quota::per_minute(1_000))
//!     .build()?;
//! let account = KeyBy::extension(|account: &Account| Some(account.id.into()));
//! let limit = Limit::new("per-account", limiter)
//!     .by(account)
//!     .class_by(ClassBy::extension(|account: &Account| Some(account.class)))
//!     .when_no_key(WhenNoKey::Deny);
//! let layer = RateLimitLayer::builder().limit(limit).build()?;
//!
//! let service = layer.layer(service_fn(|_: Request<()>| async {
//!     Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
//! }));
//! # pollster::block_on(async {
//! for (id, class, quota) in [(1, "free", "q=10"), (2, "paid", "q=1000")] {
//!     let mut request = Request::new(());
//!     request.extensions_mut().insert(Account { id, class });
//!     let response = service.clone().oneshot(request).await.unwrap();
//!     assert_eq!(response.headers()["ratelimit-policy"], format!("\"per-account\";{quota};w=60"));
//! }
//! # });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - A request belongs to the default class if no class is found, or if the limiter does not have
//!   the class that is found.
//! - The class is taken from an extension, a closure, a header set by a trusted proxy, a list or a
//!   file of keys, or a function whose answers are cached ([`ClassLookup`]).
//! - `RateLimit-Policy` omits a limit with classes if the limit does not apply to the request,
//!   because the caller's class is then unknown.
//! - [`DecisionEvent::class`] and [`Refusal::class`] name the class, including the default class.
//!   The limiter's classes are the only possible names, so a metric can use the name as a label.
//!   The layer's own responses do not contain the name.
//! - [`set_quota`](tollgate::Limiter::set_quota) changes the quota of a class while the layer runs;
//!   [`ClassLimiter::class`](tollgate::ClassLimiter::class) returns the limiter of the class.
//! - Limits [that other machines share](#limits-that-other-machines-share) can also have classes.
//!
//! # Several limits
//!
//! The layer peeks at all limits before it charges any of them. A limit may still refuse if another
//! request gets there first. The layer then refunds the charges made to the other limits. During
//! such a race, a limit may briefly appear to have fewer tokens left than it has, but never more.
//!
//! # Costs that the response reveals
//!
//! Often only the response reveals the cost of a request, such as the tokens used by a language
//! model or the bytes of a download. [`Limit::cost`] is then an estimate. The estimate is charged
//! before the request is handled, so that concurrent requests cannot all pass. [`Limit::settle`]
//! specifies how the response corrects the estimate.
//!
//! ```
//! use http::{Request, Response};
//! use tollgate::{ManualClock, Quota, SingleLimiter};
//! use tollgate_http::{RequestCost, Limit, RateLimitLayer, ResponseCost};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! let limiter = SingleLimiter::builder(Quota::per_hour(1000)).clock(ManualClock::new()).build()?;
//! let limit = Limit::new("tokens", limiter)
//!     .cost(600)
//!     .settle(ResponseCost::json("usage.total_tokens"));
//! let layer = RateLimitLayer::builder().limit(limit).build()?;
//! let service = layer.layer(service_fn(|_: Request<()>| async {
//!     let usage = String::from(r#"{"usage":{"total_tokens":150}}"#);
//!     let json = Response::builder().header("content-type", "application/json");
//!     Ok::<_, std::convert::Infallible>(json.body(usage).unwrap())
//! }));
//! # use http_body_util::BodyExt;
//! # pollster::block_on(async {
//! for left in [400, 250] {
//!     let response = service.clone().oneshot(Request::new(())).await.unwrap();
//!     let shown = response.headers()["ratelimit"].to_str().unwrap();
//!     assert!(shown.starts_with(&format!("\"tokens\";r={left}")));
//!     // While the response is under way, the estimate is charged.
//!     let second = service.clone().oneshot(Request::new(())).await.unwrap();
//!     assert_eq!(second.status(), 429);
//!     response.into_body().collect().await.unwrap();
//! }
//! # });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - The response body owns the reserved tokens. The layer settles them when the body has ended or
//!   is dropped, not when the handler returns.
//! - A client that hangs up in mid-stream pays for the tokens counted so far. If nothing was
//!   counted, the client pays the estimate.
//! - [`ResponseCost::cut_off`] ends a response within one frame of its budget. With several limits,
//!   any limit that has too few tokens ends the response; the other limits are not charged for the
//!   unsent frame.
//! - [`Limit::charge_if`] gives back the estimate of a request that fails.
//! - The layer also settles shared limits, without waiting for their store. A stream can therefore
//!   overrun a shared budget further before it is cut off: see
//!   [`ResponseCost`](ResponseCost#limits-that-other-machines-share).
//! - [`RateLimitBuilder::on_settled`] reports each response: its cost (if known), whether it was
//!   cut off, and the tokens that could not be charged.
//! - The response fields show the decision on the estimate.
//!
//! # Limits before and after authentication
//!
//! Some limits depend on the result of a middleware, such as the request's user. Put these limits
//! in a layer inside that middleware. Put limits that protect the middleware itself in a layer
//! outside it.
//!
//! ```
//! # use http::{Request, Response, StatusCode};
//! # use tollgate::{Limiter, Quota};
//! # use tollgate_http::{KeyBy, Limit, PeerAddr, RateLimitLayer, WhenNoKey};
//! # use tower::{Layer, ServiceExt, service_fn};
//! #[derive(Clone)]
//! struct User(u64);
//!
//! let addresses = Limiter::builder(Quota::per_minute(100)).build()?;
//! let users = Limiter::builder(Quota::per_minute(1)).build()?;
//! let user = KeyBy::from_fn(|head| head.extensions().get::<User>().map(|user| user.0.into()));
//! let outer = RateLimitLayer::builder()
//!     .limit(
//!         Limit::new("per-address", addresses)
//!             .by(KeyBy::peer())
//!             .when_no_key(WhenNoKey::Deny)
//!             .charge_if(|response| !response.is_refusal()),
//!     )
//!     .build()?;
//! let inner = RateLimitLayer::builder()
//!     .limit(Limit::new("per-user", users)
//!     .by(user).when_no_key(WhenNoKey::Deny))
//!     .build()?;
//!
//! let handler = service_fn(|_: Request<()>| async {
//!     Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
//! });
//! let authenticated = inner.layer(handler).map_request(|mut request: Request<()>| {
//!     request.extensions_mut().insert(User(7));
//!     request
//! });
//! let service = outer.layer(authenticated);
//! # pollster::block_on(async {
//! # let mut request = Request::new(());
//! # request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 4711).into()));
//! # let left = |response: &Response<_>| {
//! #     response.headers()["ratelimit"].to_str().unwrap().to_owned()
//! # };
//! # let response = service.clone().oneshot(request.clone()).await.unwrap();
//! # assert_eq!(response.status(), StatusCode::OK);
//! # assert!(left(&response).ends_with(r#", "per-address";r=99;t=1"#), "{}", left(&response));
//! # for _ in 0..2 {
//! #     let response = service.clone().oneshot(request.clone()).await.unwrap();
//! #     assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
//! #     assert!(left(&response).contains(r#""per-address";r=98;"#), "{}", left(&response));
//! # }
//! # });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - `RateLimit` and `RateLimit-Policy` remain one line each, with the items of the inner layer
//!   first. Limits in the two layers should therefore have different names. The older fields can
//!   describe only one limit: see [`legacy_fields`](RateLimitBuilder::legacy_fields).
//! - If the inner layer refuses the request, the charges of the outer layer are kept, unless
//!   [`charge_if`](Limit::charge_if) gives them back, as in this example; see
//!   [`ResponseHead::is_refusal`].
//! - If such a charge has used up one of the outer layer's limits, the outer layer extends the
//!   refusal's `Retry-After` (and `grpc-retry-pushback-ms`) until the limit has more tokens. The
//!   client receives the later of the two times. The body still contains the time computed by the
//!   inner layer. The `t` of an outer limit with tokens left may be later.
//!
//! # Tests of an application
//!
//! Limiters read the time from a clock, and a [`ManualClock`](tollgate::ManualClock) moves only
//! when a test moves it. A test therefore never waits, and its figures are exact. Build the
//! limiters in a function that accepts the clock, so that the application can pass the default
//! clock.
//!
//! ```
//! use http::{Request, Response};
//! use std::time::Duration;
//! use tollgate::{Clock, Limiter, ManualClock, Quota};
//! use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! fn limits(clock: impl Into<Clock>) -> Result<RateLimitLayer, Box<dyn std::error::Error>> {
//!     let limiter = Limiter::builder(Quota::per_minute(2)).clock(clock).build()?;
//!     let by = KeyBy::header("x-api-key");
//!     let limit = Limit::new("per-key", limiter).by(by).when_no_key(WhenNoKey::Deny);
//!     Ok(RateLimitLayer::builder().limit(limit).build()?)
//! }
//!
//! // The application: `limits(Clock::default())`. Its test:
//! let clock = ManualClock::new();
//! let app = limits(&clock)?.layer(service_fn(|_: Request<()>| async {
//!     Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
//! }));
//! let send = || {
//!     let request = Request::get("/").header("x-api-key", "secret").body(()).unwrap();
//!     pollster::block_on(app.clone().oneshot(request)).unwrap()
//! };
//! let statuses = [send(), send(), send()].map(|response| response.status().as_u16());
//! assert_eq!(statuses, [200, 200, 429]);
//! assert_eq!(send().headers()["retry-after"], "30");
//! clock.advance(Duration::from_millis(29_999));
//! assert_eq!(send().status(), 429);
//! clock.advance(Duration::from_millis(1));
//! assert_eq!(send().status(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To test a limit that other machines share, implement [`AsyncLimiter`] over a process-local
//! [`Limiter`](tollgate::Limiter) with such a clock.
//!
//! # Limits that other machines share
//!
//! A limiter whose counts are on another machine needs time to answer, so it implements
//! [`AsyncLimiter`]. In all other respects, a limit over such a limiter behaves like a
//! process-local limit, and one layer can contain both kinds.
//!
//! ```
//! # use std::{future::Future, pin::Pin};
//! # use tollgate::{Decision, Limiter, Quota, SingleLimiter};
//! # use tollgate_http::{AsyncLimiter, Key, KeyBy, Limit, WhenNoKey, RateLimitLayer};
//! # struct Elsewhere(Limiter<Key>);
//! # impl AsyncLimiter for Elsewhere {
//! #     fn check_n<'a>(
//! #         &'a self,
//! #         key: &'a Key,
//! #         cost: u64,
//! #     ) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
//! #         Box::pin(async move { self.0.check_n(key, cost) })
//! #     }
//! #     fn refund_n<'a>(
//! #         &'a self,
//! #         key: &'a Key,
//! #         charge: &'a Decision,
//! #         tokens: u64,
//! #     ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
//! #         Box::pin(async move { self.0.refund_n(key, charge, tokens) })
//! #     }
//! #     fn quota(&self) -> Quota {
//! #         self.0.quota()
//! #     }
//! #     fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
//! #         std::thread::spawn(|| pollster::block_on(task));
//! #     }
//! # }
//! # let elsewhere = Elsewhere(Limiter::builder(Quota::per_hour(2)).build()?);
//! // The load that this machine can take is known here; the tokens that a key has used on all
//! // machines are not.
//! let here = SingleLimiter::builder(Quota::per_second(5000)).build()?;
//! let layer = RateLimitLayer::builder()
//!     .limit(Limit::new("machine", here))
//!     .limit(
//!         Limit::new("per-key", elsewhere)
//!             .by(KeyBy::header("x-api-key"))
//!             .when_no_key(WhenNoKey::Deny),
//!     )
//!     .build()?;
//! # use http::{Request, Response, StatusCode};
//! # use tower::{Layer, ServiceExt, service_fn};
//! # let service = layer.layer(service_fn(|_: Request<()>| async {
//! #     Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
//! # }));
//! # pollster::block_on(async {
//! # for status in [StatusCode::OK, StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
//! #     let request = Request::get("/").header("x-api-key", "secret").body(()).unwrap();
//! #     assert_eq!(service.clone().oneshot(request).await.unwrap().status(), status);
//! # }
//! # });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - The process-local limits are peeked at first and charged last, so that a request refused by
//!   these limits costs no round trip. The shared limits are charged in between, all at the same
//!   time. If one limit refuses, the charges made to the others are refunded before the request is
//!   answered. The fields show no state for a limit that was not checked. If the charge of a shared
//!   limit is refunded, the fields show the state before the refund.
//! - If the response does not keep a charge ([`Limit::charge_if`]), the charge is refunded before
//!   the response is passed on. This takes one more round trip, but a client that has received its
//!   response can rely on the refund for its next request. If refunds should not delay responses,
//!   the limiter can pass them to a separate task.
//! - Settling the cost that a response reveals ([`Limit::settle`]) delays nothing. A task of the
//!   limiter ([`AsyncLimiter::spawn`]) owns the charges and settles them.
//! - [`Backend::in_flight`] limits the requests in flight across all machines, over any
//!   [`AsyncInFlight`]. The response body owns the permit.
//! - If a client hangs up while its request waits, the charges made so far are kept, because
//!   hanging up must not make attempts free.
//! - A request that has waited continues with the inner service that was ready for it. The future
//!   stores that service, and a clone takes its place, which is why the inner service must be
//!   `Clone`. If all limits of a layer are process-local and none looks up [classes](ClassLookup),
//!   no request waits or clones the service.
//!
//! # Features
//!
//! - `axum`: the layer reads the address of the peer from axum's `ConnectInfo<SocketAddr>`, and the
//!   path before `Router::nest` shortened it from `OriginalUri`, unless other extensions have them.
//!   Without this feature, use [`peer_from`](RateLimitBuilder::peer_from) and
//!   [`uri_from`](RateLimitBuilder::uri_from).
//! - `serde`: reads and writes [`settings`] and limit texts. A layer also
//!   [saves](RateLimitLayer::save) its sliding logs.
//! - `tracing` (on by default): the layer emits an event for each refusal, each request without a
//!   key, each response that is cut off or could not be charged in full, and each
//!   [warning](BuildWarning) when it is built. It warns once of a trusted proxy that does not
//!   report its clients. The first request without a key is a warning that says what is missing and
//!   what to do about it.

// Items that are re-exported only by `program` are `pub`, but unreachable without the feature
// `unstable-program`.
#![cfg_attr(not(feature = "unstable-program"), allow(unreachable_pub))]

mod atomics;
mod check;
mod class;
mod client;
mod error;
mod figure;
mod head;
mod host;
mod key;
mod layer;
mod limit;
mod metrics;
mod path;
#[cfg(feature = "unstable-program")]
#[doc(hidden)]
pub mod program;
mod response;
pub mod settings;
mod settle;
mod text;
mod warning;

pub use check::decisions::Decisions;
pub use check::event::{DecisionEvent, SettleEvent};
pub use class::by::ClassBy;
pub use class::lookup::ClassLookup;
pub use client::forwarded::{ForwardedField, TrustedProxies};
pub use error::LayerError;
pub use figure::Figure;
pub use head::{PeerAddr, RequestHead, ResponseHead};
pub use key::by::KeyBy;
pub use key::parts::{Key, KeyPart, KeyRef};
pub use layer::builder::RateLimitBuilder;
pub use layer::future::ResponseFuture;
pub use layer::service::{RateLimitLayer, RateLimitService};
pub use limit::async_in_flight::{AsyncInFlight, AsyncPermit};
pub use limit::async_limiter::AsyncLimiter;
pub use limit::backend::{Backend, IntoBackend};
pub use limit::named::{Limit, WhenNoKey};
pub use limit::request_cost::RequestCost;
pub use metrics::Metrics;
pub use response::body::Body;
pub use response::cut::{CutOff, FailWhenCut};
pub use response::handler_limit::HandlerLimit;
pub use response::refusal::{Refusal, RefusalReason};
pub use settle::estimator::Estimator;
pub use settle::response_cost::ResponseCost;
pub use warning::BuildWarning;

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
