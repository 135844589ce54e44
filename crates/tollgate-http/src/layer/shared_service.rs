//! The layer whose limits may be shared with other machines, and the service that it makes of
//! another.
//!
//! Why there are two layers: a request that waits goes to the inner service later, when the outer
//! service may already be handling its next request. So the future takes the inner service along
//! and leaves a clone, which needs `S: Clone` and room in the future. A layer without shared limits
//! needs neither.

use super::builder::RateLimitBuilder;
use super::shared_future::SharedResponseFuture;
use crate::check::judge::Judge;
use crate::check::wait::judging;
use crate::error::BuildError;
use crate::head::RequestHead;
use crate::response::body::Body;
use http::{Request, Response};
use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// A tower layer that puts limits before a service, some of which may be shared with other
/// machines; made by [`RateLimitBuilder::build_shared`].
///
/// In all else it behaves like a [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone)]
pub struct SharedRateLimitLayer {
    judge: Arc<Judge>,
}

impl RateLimitBuilder {
    /// Builds a layer whose limits may be [shared](crate::Limit::shared) with other machines; it
    /// may have other limits, too. The service behind it must be `Clone`, as those of axum, tonic
    /// and hyper's `service_fn` are.
    ///
    /// # Errors
    ///
    /// The errors of [`build`](Self::build), except that shared limits are accepted.
    ///
    /// ```
    /// use tollgate_http::{
    ///     AsyncLimiter, BuildError, KeyBy, Limit, WhenNoKey, RateLimitLayer, SharedRateLimitLayer,
    /// };
    ///
    /// fn layer(limiter: impl AsyncLimiter + 'static) -> Result<SharedRateLimitLayer, BuildError> {
    ///     RateLimitLayer::builder()
    ///         .limit(
    ///             Limit::shared("per-key", limiter, KeyBy::header("x-api-key"))
    ///                 .when_no_key(WhenNoKey::Deny),
    ///         )
    ///         .build_shared()
    /// }
    /// ```
    pub fn build_shared(self) -> Result<SharedRateLimitLayer, BuildError> {
        Ok(SharedRateLimitLayer { judge: Arc::new(self.judge()?) })
    }
}

impl<S> Layer<S> for SharedRateLimitLayer {
    type Service = SharedRateLimit<S>;

    fn layer(&self, inner: S) -> SharedRateLimit<S> {
        SharedRateLimit { inner, judge: Arc::clone(&self.judge) }
    }
}

impl fmt::Debug for SharedRateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.judge.fmt(f)
    }
}

/// A service behind limits, some of which may be shared; made by a [`SharedRateLimitLayer`].
///
/// A request that passes goes unchanged to the very instance of the inner service that was ready
/// for it. A request that is refused never reaches it.
///
/// # Progress
///
/// A request waits for the shared limits that apply to it, all at the same time, and for nothing
/// else. It allocates for that, and clones the inner service. No limit is asked before the future
/// is polled. If the layer has no shared limit, a request costs what it costs with a
/// [`RateLimit`](crate::RateLimit).
#[derive(Clone)]
pub struct SharedRateLimit<S> {
    inner: S,
    judge: Arc<Judge>,
}

impl<S> SharedRateLimit<S> {
    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service without the limits.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, A, B> Service<Request<A>> for SharedRateLimit<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
{
    type Response = Response<Body<B>>;
    type Error = S::Error;
    type Future = SharedResponseFuture<S, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let head = RequestHead::with_peers(&request, &self.judge.peers);
        if let Some(verdict) = self.judge.judge_at_once(head) {
            return SharedResponseFuture::judged(verdict, || self.inner.call(request));
        }
        let (request, body) = request.into_parts();
        // `poll_ready` was called on this instance, not on the clone: the clone stays, and this
        // instance goes with the request.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        SharedResponseFuture::judging(judging(Arc::clone(&self.judge), request), ready, body)
    }
}

impl<S: fmt::Debug> fmt::Debug for SharedRateLimit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRateLimit").field("inner", &self.inner).field("judge", &self.judge).finish()
    }
}
