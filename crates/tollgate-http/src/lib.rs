//! Rate limits for everything that speaks HTTP: a [tower](https://docs.rs/tower) layer for axum, hyper, tonic and
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
//! // Another address is not affected; a request without one is not let in.
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
//! - [`RateLimitLayer`] and its [builder](RateLimitBuilder): statuses, answers, fields, exemptions, listeners.
//! - [`Limit`]: a named limit over any [`Limiter`](tollgate::Limiter) or
//!   [`SingleLimiter`](tollgate::SingleLimiter); costs, shadow mode, charges that depend on the response.
//! - [`AsyncLimiter`]: a limiter whose counts other machines share; [`SharedRateLimitLayer`] waits for its answers.
//! - [`KeyBy`]: who is asking; [`TrustedProxies`] for services behind proxies; [`WhenNoKey`] when nobody can say.
//! - [`Key`], to ask or change a limiter beside the layer.
//!
//! # What a response says
//!
//! `RateLimit` and `RateLimit-Policy` as of
//! [draft-ietf-httpapi-ratelimit-headers](https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/),
//! one item for each limit:
//!
//! ```text
//! RateLimit-Policy: "all";q=5000;w=1, "per-address";q=2;w=3600
//! RateLimit: "all";r=4999;t=1, "per-address";r=1;t=1800
//! ```
//!
//! `q` tokens per `w` seconds (of a quota whose period is no whole number of them, a multiple of both; where there is
//! none within an hour, `w` is left out), `r` of them left, more in `t` seconds. A burst is not told: `r` may be
//! above `q` or stay far below it. A refused request is answered with `Retry-After`, too. Times are rounded up, and
//! at least a second when refused; where no wait can be promised, because the request costs more than the limit ever
//! has or the table is full, they are left out. All figures are those of the decision: nothing is read a second time.
//!
//! # What it costs
//!
//! A check for each limit and one allocation for `RateLimit`, whatever the headers themselves take. Keys are borrowed
//! from the request; four limits and three parts of a key need no allocation.
//!
//! # Several limits
//!
//! All are asked before any is charged. If one refuses all the same, because another request came first, what the others
//! were charged is given back: so in a race a limit may briefly look fuller than it is, and never emptier.
//!
//! # Limits that other machines share
//!
//! A limit whose counts stand elsewhere must be waited for. It is a [`Limit::shared`], and its layer is built with
//! [`build_shared`](RateLimitBuilder::build_shared); all else is said and done as for other limits, which may stand
//! beside it.
//!
//! ```
//! # use std::{future::Future, pin::Pin};
//! # use tollgate::{Decision, Limiter, Quota, SingleLimiter};
//! # use tollgate_http::{AsyncLimiter, Key, KeyBy, Limit, WhenNoKey, RateLimitLayer};
//! # struct Elsewhere(Limiter<Key>);
//! # impl AsyncLimiter for Elsewhere {
//! #     fn check_n<'a>(&'a self, key: &'a Key, cost: u64) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
//! #         Box::pin(async move { self.0.check_n(key, cost) })
//! #     }
//! #     fn refund<'a>(&'a self, key: &'a Key, charge: &'a Decision) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
//! #         Box::pin(async move { self.0.refund(key, charge) })
//! #     }
//! #     fn quota(&self) -> Quota {
//! #         self.0.quota()
//! #     }
//! # }
//! # let elsewhere = Elsewhere(Limiter::builder(Quota::per_hour(2)).build()?);
//! // What this machine stands is known here; what a key may do on all machines is not.
//! let here = SingleLimiter::builder(Quota::per_second(5000)).build()?;
//! let layer = RateLimitLayer::builder()
//!     .limit(Limit::global("machine", here))
//!     .limit(Limit::shared("per-key", elsewhere, KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Deny))
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
//! - The limits of this process are looked at first, and charged last: what they refuse costs no round trip. The
//!   shared ones are charged in between, all at the same time. If one refuses, the others are given their charges
//!   back before the request is answered. Of a limit that was not asked, no state is told; of a shared one that has
//!   its charge back, the state with the charge.
//! - A charge that the response does not keep ([`Limit::charge_if`]) is given back before the response is passed on,
//!   which takes a round trip more: the layer has no runtime to leave it to, and who has his response can rely on his
//!   next request. A limiter whose refunds nobody should wait for hands them to a task of its own.
//! - A client that hangs up while its request waits has paid what it was charged by then: hanging up must not make
//!   attempts free.
//! - Why a layer of its own: a request that has waited goes on with the inner service that was ready for it, so this
//!   must be cloned (`S: Clone`) and stand in the future. With limits of this process alone nothing of the kind is
//!   needed, and [`build`](RateLimitBuilder::build) refuses shared ones rather than ask it of everybody.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `tracing`: events of what the layer decides, for the `tracing` crate.

mod check;
mod client;
mod error;
mod head;
mod key;
mod layer;
mod limit;
mod response;
pub mod text;

pub use check::event::Event;
pub use client::forwarded::{ForwardedField, TrustedProxies};
pub use error::BuildError;
pub use head::{PeerAddr, RequestHead, ResponseHead};
pub use key::by::KeyBy;
pub use key::parts::{Key, KeyPart, KeyRef};
pub use layer::builder::RateLimitBuilder;
pub use layer::future::ResponseFuture;
pub use layer::service::{RateLimit, RateLimitLayer};
pub use layer::shared_future::SharedResponseFuture;
pub use layer::shared_service::{SharedRateLimit, SharedRateLimitLayer};
pub use limit::async_limiter::AsyncLimiter;
pub use limit::cost::Cost;
pub use limit::named::{Limit, WhenNoKey};
pub use response::body::Body;
pub use response::denial::{Denial, Reason};

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
