//! The layer, and the service that it creates around another service.
//!
//! # Why the inner service is cloned
//!
//! A request may have to wait for a shared limit or for its class. By the time the request reaches
//! the inner service, the outer service may already be handling the next one. The future therefore
//! takes the instance that was ready for the request, and a clone replaces that instance. If a
//! request does not wait, it reaches the inner service immediately, and the inner service is not
//! cloned.

use super::builder::RateLimitBuilder;
use super::future::ResponseFuture;
use crate::check::limit_set::{LimitSet, Verdict};
#[cfg(feature = "unstable-program")]
use crate::check::wait::Checking;
use crate::check::wait::checking;
use crate::error::LayerError;
use crate::head::RequestHead;
use crate::limit::saved::{self, Savable};
use crate::response::body::Body;
#[cfg(feature = "unstable-program")]
use http::request::Parts;
use http::{Request, Response};
use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// A tower layer that puts limits in front of a service. Use [`RateLimitLayer::builder`] to
/// configure a layer.
///
/// All clones of a layer share the same limits, and so do all services and connections that use the
/// layer. A request that passes the same layer twice, because a router and one of its routes have
/// clones of it, is charged once. The inner service must be `Clone`, as axum services, tonic
/// services and hyper's `service_fn` are.
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use tollgate_http::{KeyBy, Limit, WhenNoKey, PeerAddr, RateLimitLayer};
/// use tollgate::{Limiter, Quota};
/// use tower::{Layer, ServiceExt, service_fn};
///
/// let limiter = Limiter::builder(Quota::per_hour(1)).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::new("per-address", limiter)
///     .by(KeyBy::peer()).when_no_key(WhenNoKey::Deny))
///     .build()?;
/// let service = layer.layer(service_fn(|_: Request<()>| async {
///     Ok::<_, std::convert::Infallible>(Response::new(String::from("hello")))
/// }));
///
/// let request = || {
///     let mut request = Request::new(());
///     request.extensions_mut().insert(PeerAddr(([192, 0, 2, 1], 4711).into()));
///     request
/// };
/// # pollster::block_on(async {
/// let first = service.clone().oneshot(request()).await.unwrap();
/// assert_eq!(first.status(), StatusCode::OK);
/// assert_eq!(first.headers()["ratelimit-policy"], "\"per-address\";q=1;w=3600");
/// assert_eq!(first.headers()["ratelimit"], "\"per-address\";r=0;t=3600");
///
/// let second = service.oneshot(request()).await.unwrap();
/// assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
/// assert_eq!(second.headers()["retry-after"], "3600");
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RateLimitLayer {
    set: Arc<LimitSet>,
}

impl RateLimitLayer {
    /// Starts the configuration of a layer.
    ///
    /// ```
    /// # use tollgate_http::{Limit, RateLimitLayer};
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(5000)).build()?;
    /// let layer = RateLimitLayer::builder().limit(Limit::new("all", limiter)).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> RateLimitBuilder {
        RateLimitBuilder::new()
    }

    /// Writes the counts of all limits that were created from [settings](crate::settings), so that
    /// [`LayerSettings::builder_from`](crate::settings::LayerSettings::builder_from) can continue
    /// them, usually in another process.
    ///
    /// The counts of rates are saved, for each class of callers. Requests in flight are not,
    /// because they end with the process, and neither are shared limits, whose counts are on
    /// another machine. If you have built a limiter yourself, save it with its own method, such as
    /// [`Limiter::save`](tollgate::Limiter::save), and give the loaded limiter to
    /// [`Limit::new`](crate::Limit::new).
    ///
    /// Checks may go on during the call. A charge that is made during the call may be missing. At
    /// the end of a process, therefore, first stop accepting requests, then wait for the open ones,
    /// and save last. The state is a [secret](tollgate::Limiter#secrecy); a
    /// [`StateFile`](tollgate::StateFile) keeps it as one, and replaces an earlier state at once.
    ///
    /// A sliding log is saved only with the feature `serde`, which writes its keys.
    ///
    /// # Errors
    ///
    /// Returns the errors of `to`.
    ///
    /// # Progress
    ///
    /// This method takes no lock, and delays no check. It allocates memory for two blocks of 64 KiB
    /// and for about a thousand keys.
    pub fn save(&self, mut to: impl Write) -> io::Result<()> {
        saved::write(self.savable(), &mut to)
    }

    /// Returns the limiters that a layer saves, each with the name of its limit.
    pub(crate) fn savable(&self) -> impl Iterator<Item = (&str, &Savable)> + Clone {
        let limits = self.set.limits.iter();
        limits.flat_map(|limit| limit.savable.iter().map(move |saved| (&*limit.name, saved)))
    }
}

#[cfg(feature = "unstable-program")]
impl RateLimitLayer {
    /// Checks a request without a handler, unless a limit makes the request wait.
    pub(crate) fn check_at_once<A>(&self, request: &Request<A>) -> Option<Verdict> {
        self.set.check_at_once(RequestHead::with_sources(request, &self.set.sources))
    }

    /// Returns the check of a request that a limit makes wait.
    pub(crate) fn check_later(&self, request: Parts) -> Checking {
        checking(Arc::clone(&self.set), request)
    }

    /// Returns the limits and the other settings.
    pub(crate) fn set(&self) -> &LimitSet {
        &self.set
    }
}

impl RateLimitBuilder {
    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Returns a [`LayerError`] if the layer would not work as configured.
    ///
    /// ```
    /// # use tollgate_http::{LayerError, RateLimitLayer};
    /// let refused: LayerError = RateLimitLayer::builder().build().unwrap_err();
    /// assert!(refused.to_string().starts_with("a layer with 0 limits would let every"));
    /// ```
    pub fn build(self) -> Result<RateLimitLayer, LayerError> {
        Ok(RateLimitLayer { set: Arc::new(self.compile()?) })
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimitService<S>;

    fn layer(&self, inner: S) -> RateLimitService<S> {
        self.set.repeats.note_service();
        RateLimitService { inner, set: Arc::clone(&self.set) }
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set.fmt(f)
    }
}

/// A service behind limits, created by a [`RateLimitLayer`].
///
/// An admitted request reaches the inner service unchanged, and is handled by the same instance
/// that was ready for it. A refused request never reaches the inner service.
///
/// # Progress
///
/// A request requires one lock-free check for each limit and never waits, unless one of the layer's
/// limits is over an [`AsyncLimiter`](crate::AsyncLimiter) or looks up
/// [classes](crate::ClassLookup). An admitted request from a known client allocates only the values
/// of the fields and, with [`pass_decisions`](crate::RateLimitBuilder::pass_decisions), the
/// decisions; a refusal allocates its response. Limits with
/// [`charge_if`](crate::Limit::charge_if) or [`settle`](crate::Limit::settle) also allocate state,
/// which they store until the response is known or has ended.
///
/// If one of the layer's limits is shared or looks up classes, a request first waits for all
/// unknown classes concurrently, and then for all applicable shared limits, also concurrently. It
/// waits for nothing else. A request that waits allocates memory and clones the inner service. No
/// limit is checked before the future is polled.
#[derive(Clone)]
pub struct RateLimitService<S> {
    inner: S,
    set: Arc<LimitSet>,
}

impl<S> RateLimitService<S> {
    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns a mutable reference to the inner service.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Returns the inner service without the limits.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, A, B> Service<Request<A>> for RateLimitService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    B: http_body::Body,
{
    type Response = Response<Body<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        if self.set.has_checked(request.extensions_mut()) {
            return ResponseFuture::checked(Verdict::unlimited(), || self.inner.call(request));
        }
        let head = RequestHead::with_sources(&request, &self.set.sources);
        if let Some(mut verdict) = self.set.check_at_once(head) {
            self.set.pass_decisions(&mut verdict, request.extensions_mut());
            return ResponseFuture::checked(verdict, || self.inner.call(request));
        }
        let (request, body) = request.into_parts();
        // `poll_ready` was called on this instance, not on the clone. This instance therefore
        // handles the request, and the clone replaces it.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        ResponseFuture::checking(checking(Arc::clone(&self.set), request), ready, body)
    }
}

impl<S: fmt::Debug> fmt::Debug for RateLimitService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitService").field("inner", &self.inner).field("limits", &self.set).finish()
    }
}
