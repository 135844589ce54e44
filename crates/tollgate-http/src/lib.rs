//! Rate limits for HTTP servers: a [tower](https://docs.rs/tower) layer for axum, hyper, tonic and
//! any other service of `http` requests.
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
//!     .limit(Limit::global("all", all))
//!     .limit(Limit::new("per-address", addresses, KeyBy::peer()).when_no_key(WhenNoKey::Deny))
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
//! - [`RateLimitLayer`] and its [builder](RateLimitBuilder): statuses, responses, headers,
//!   exemptions, listeners.
//! - [`Limit`]: a named limit over any [`Limiter`](tollgate::Limiter) or
//!   [`SingleLimiter`](tollgate::SingleLimiter); costs, shadow mode, charges that depend on the
//!   response.
//! - [`AsyncLimiter`]: a limiter whose counts are shared with other machines;
//!   [`SharedRateLimitLayer`] waits for its decisions.
//! - [`KeyBy`]: how a client is identified; [`TrustedProxies`] for services behind proxies;
//!   [`WhenNoKey`] for requests that cannot be attributed to a client.
//! - [`Key`]: to check or change a limiter beside the layer.
//! - [`settings`]: a layer from arguments or a file.
//!
//! # Response headers
//!
//! A response has the headers `RateLimit` and `RateLimit-Policy` of
//! [draft-ietf-httpapi-ratelimit-headers][draft], with one item for each limit:
//!
//! ```text
//! RateLimit-Policy: "all";q=5000;w=1, "per-address";q=2;w=3600
//! RateLimit: "all";r=4999;t=1, "per-address";r=1;t=1800
//! ```
//!
//! - `q` and `w`: the quota is `q` tokens per `w` seconds. If the period is not a whole number of
//!   seconds, both are multiplied until it is; if that would take more than an hour, `w` is left
//!   out. The burst is not shown, so `r` may be above `q` or stay far below it.
//! - `r`: tokens left.
//! - `t`: seconds until there are more; if the limit refuses the request, seconds until a retry.
//!
//! A refused request also gets `Retry-After`. Times are rounded up, to at least one second when the
//! request is refused. They are left out where no wait can be promised: the request costs more than
//! the limit ever has, or the table is full. All figures come from the decision itself; the limiter
//! is not read a second time.
//!
//! [draft]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
//!
//! # What it costs
//!
//! A request takes one check for each limit and one allocation for `RateLimit`, besides what the
//! header map itself allocates. Keys are borrowed from the request; up to four limits, and up to
//! three parts of a key, need no allocation.
//!
//! # Several limits
//!
//! All limits are peeked at before any is charged. If a limit refuses anyway, because another
//! request was faster, the charges of the others are refunded. In such a race a limit may briefly
//! look fuller than it is, but never emptier.
//!
//! # Limits that other machines share
//!
//! A limit whose counts are on another machine takes time to answer. It is made with
//! [`Limit::shared`], and its layer is built with [`build_shared`](RateLimitBuilder::build_shared).
//! In all other respects it behaves like a limit of this process, and one layer can have both.
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
//! #     fn refund<'a>(
//! #         &'a self,
//! #         key: &'a Key,
//! #         charge: &'a Decision,
//! #     ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
//! #         Box::pin(async move { self.0.refund(key, charge) })
//! #     }
//! #     fn quota(&self) -> Quota {
//! #         self.0.quota()
//! #     }
//! # }
//! # let elsewhere = Elsewhere(Limiter::builder(Quota::per_hour(2)).build()?);
//! // The load that this machine can take is known here; what a key has used on all machines is
//! // not.
//! let here = SingleLimiter::builder(Quota::per_second(5000)).build()?;
//! let layer = RateLimitLayer::builder()
//!     .limit(Limit::global("machine", here))
//!     .limit(
//!         Limit::shared("per-key", elsewhere, KeyBy::header("x-api-key"))
//!             .when_no_key(WhenNoKey::Deny),
//!     )
//!     .build_shared()?;
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
//! - The limits of this process are peeked at first and charged last, so that a request they refuse
//!   costs no round trip. The shared limits are charged in between, all at the same time. If one
//!   limit refuses, the charges of the others are refunded before the request is answered. The
//!   headers show no state for a limit that was not asked; for a shared limit whose charge is
//!   refunded, they show the state with the charge.
//! - A charge that the response does not keep ([`Limit::charge_if`]) is refunded before the
//!   response is passed on, which takes one more round trip. The layer has no runtime to leave the
//!   refund to, and a client that has its response can rely on the refund for its next request. A
//!   limiter whose refunds should delay no response hands them to a task of its own.
//! - A client that hangs up while its request waits has paid what it was charged by then: hanging
//!   up must not make attempts free.
//! - There are two layers because a request that has waited continues with the inner service that
//!   was ready for it, so this service must be cloned (`S: Clone`) and stored in the future. A
//!   layer with limits of this process alone needs neither; therefore
//!   [`build`](RateLimitBuilder::build) refuses shared limits.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `serde`: [`settings`] and [texts](crate::text) of limits are read and written.
//! - `tracing`: the layer emits an event for each refusal and each request without a key.

mod check;
mod client;
mod error;
mod head;
mod key;
mod layer;
mod limit;
mod path;
mod response;
pub mod settings;
pub mod text;
mod warning;

pub use check::event::Event;
pub use client::forwarded::{ForwardedField, TrustedProxies};
pub use error::BuildError;
pub use head::{PeerAddr, RequestHead, ResponseHead};
pub use key::by::KeyBy;
pub use key::known::KnownKeys;
pub use key::parts::{Key, KeyPart, KeyRef};
pub use layer::builder::RateLimitBuilder;
pub use layer::future::ResponseFuture;
pub use layer::service::{RateLimit, RateLimitLayer};
pub use layer::shared_future::SharedResponseFuture;
pub use layer::shared_service::{SharedRateLimit, SharedRateLimitLayer};
pub use limit::async_limiter::AsyncLimiter;
pub use limit::cost::Cost;
pub use limit::named::{Limit, WhenNoKey};
pub use path::canonical::canonical_path;
pub use path::template::PathTemplates;
pub use response::body::Body;
pub use response::denial::{Denial, Reason};
pub use warning::Warning;

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
