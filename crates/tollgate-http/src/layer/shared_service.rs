//! The layer whose limits may be shared with other machines, and the service that it makes of another.
//!
//! Why it is not the one that waits for nothing: a request that waits goes to the inner service later, when the service
//! before it may already be at its next request. So it takes the inner service along and leaves a clone, which asks for
//! `S: Clone` and for room in the future. Who has no shared limits is asked for neither.

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

/// Puts limits before a service, of which some may be shared with other machines; made by
/// [`RateLimitBuilder::build_shared`].
///
/// Like a [`RateLimitLayer`](crate::RateLimitLayer) in all else.
#[derive(Clone)]
pub struct SharedRateLimitLayer {
    judge: Arc<Judge>,
}

impl RateLimitBuilder {
    /// The layer, if some of its limits are [shared](crate::Limit::shared) with other machines; others it may have,
    /// too. The service behind it must be `Clone`, as those of axum, tonic and hyper's `service_fn` are.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), but for shared limits.
    ///
    /// ```
    /// use tollgate_http::{
    ///     AsyncLimiter, BuildError, KeyBy, Limit, WhenNoKey, RateLimitLayer, SharedRateLimitLayer,
    /// };
    ///
    /// fn layer(limiter: impl AsyncLimiter + 'static) -> Result<SharedRateLimitLayer, BuildError> {
    ///     RateLimitLayer::builder()
    ///         .limit(Limit::shared("per-key", limiter, KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Deny))
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

/// A service behind limits of which some may be shared; made by a [`SharedRateLimitLayer`].
///
/// A request that passes goes to the inner service unchanged, to the very instance that was ready for it. One that is
/// refused never reaches it.
///
/// # Progress
///
/// A request waits for the shared limits that count for it, all at the same time, and for no others; it allocates
/// for that, and clones the inner service. It is not asked before its future is polled. If the layer has no shared
/// limit after all, a request takes what it takes with a [`RateLimit`](crate::RateLimit).
#[derive(Clone)]
pub struct SharedRateLimit<S> {
    inner: S,
    judge: Arc<Judge>,
}

impl<S> SharedRateLimit<S> {
    /// The service behind the limits.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service behind the limits, to be changed.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service without the limits.
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
        // The clone has not been asked whether it is ready, so it stays, and the one that was goes.
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
