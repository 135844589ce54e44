//! The builder of a layer. `build` checks the configuration.

use crate::check::event::{DecisionEvent, SettleEvent};
use crate::check::limit_set::{LimitSet, Repeats};
use crate::check::listeners::{Hooks, Listeners};
use crate::error::Fault;
use crate::head::{RequestHead, Sources};
use crate::key::by::KeyBy;
use crate::limit::compiled::CompiledLimit;
use crate::limit::named::{Limit, Skips};
use crate::metrics::Metrics;
use crate::response::answer::{Answer, Respond};
use crate::response::policy::Policy;
use crate::response::refusal::Refusal;
use crate::warning::BuildWarning;
use bytes::Bytes;
use http::{Response, StatusCode, Uri};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// The maximum number of limits in one layer.
const MAX_LIMITS: usize = 16;

/// Configures a layer. [`RateLimitLayer::builder`](crate::RateLimitLayer::builder) creates a
/// builder.
///
/// ```
/// use tollgate_http::{RequestCost, KeyBy, Limit, WhenNoKey, RateLimitLayer};
/// use tollgate::{Limiter, Quota, SingleLimiter};
///
/// let all = SingleLimiter::builder(Quota::per_second(5000)).build()?;
/// let addresses = Limiter::builder(Quota::per_second(50).burst(100)).build()?;
/// let keys = Limiter::builder(Quota::per_hour(10_000)).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::new("all", all))
///     .limit(Limit::new("per-address", addresses)
///     .by(KeyBy::peer()).when_no_key(WhenNoKey::Deny))
///     .limit(
///         Limit::new("per-key", keys)
///             .by(KeyBy::api_key("x-api-key", "api_key"))
///             .when_no_key(WhenNoKey::Allow)
///             .cost(RequestCost::from_fn(|head| if head.method().is_safe() { 1 } else { 5 })),
///     )
///     .skip(|head| head.path() == "/health")
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct RateLimitBuilder {
    limits: Vec<Limit>,
    sources: Sources,
    skips: Vec<Box<Skips>>,
    status: StatusCode,
    no_key_status: StatusCode,
    answer: Answer,
    shows_fields: bool,
    shows_legacy: bool,
    hooks: Hooks,
    /// Warnings about limit texts.
    warnings: Vec<BuildWarning>,
    metrics: Option<Metrics>,
    passes_decisions: bool,
}

impl RateLimitBuilder {
    pub(crate) fn new() -> Self {
        Self {
            limits: Vec::new(),
            sources: Sources::default(),
            skips: Vec::new(),
            status: StatusCode::TOO_MANY_REQUESTS,
            no_key_status: StatusCode::FORBIDDEN,
            answer: Answer::default(),
            shows_fields: true,
            shows_legacy: false,
            hooks: Hooks::default(),
            warnings: Vec::new(),
            metrics: None,
            passes_decisions: false,
        }
    }

    /// Adds warnings about limit texts.
    pub(crate) fn warn_all(mut self, warnings: impl IntoIterator<Item = BuildWarning>) -> Self {
        self.warnings.extend(warnings);
        self
    }

    /// Adds a limit. A layer has 1 to 16 limits.
    ///
    /// A request passes only if all limits admit it. It is charged to all limits or to none. If
    /// several limits refuse it, the response names all of them and describes the one with the
    /// longest wait.
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit, WhenNoKey, RateLimitLayer};
    /// # use tollgate::{Limiter, Quota, SingleLimiter};
    /// let all = SingleLimiter::builder(Quota::per_second(5000)).build()?;
    /// let addresses = Limiter::builder(Quota::per_second(50)).build()?;
    /// let layer = RateLimitLayer::builder()
    ///     .limit(Limit::new("all", all))
    ///     .limit(Limit::new("per-address", addresses)
    ///     .by(KeyBy::peer()).when_no_key(WhenNoKey::Deny))
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits.push(limit);
        self
    }

    /// Reads the peer address from an extension of type `T`. If this method is called several
    /// times, the first extension found in the request counts. If the request has none of them,
    /// [`PeerAddr`](crate::PeerAddr) counts.
    ///
    /// With axum, enable the feature `axum` instead, which reads `ConnectInfo<SocketAddr>` after
    /// all other extensions, and serve with `into_make_service_with_connect_info::<SocketAddr>()`.
    /// With tonic, use `.peer_from(|peer: &TcpConnectInfo| peer.remote_addr())`.
    ///
    /// ```
    /// # use std::net::SocketAddr;
    /// # use tollgate_http::RateLimitLayer;
    /// #[derive(Clone)]
    /// struct Connection {
    ///     other_end: SocketAddr,
    /// }
    ///
    /// let builder = RateLimitLayer::builder().peer_from(|it: &Connection| it.other_end);
    /// ```
    pub fn peer_from<T, R>(mut self, peer: impl Fn(&T) -> R + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        R: Into<Option<SocketAddr>>,
    {
        self.sources.add_peer(Box::new(move |extensions| extensions.get().and_then(|it| peer(it).into())));
        self
    }

    /// Reads the URI from an extension of type `T`, if the request has one. Use this method for a
    /// layer inside a router that shortens the paths of the requests that it passes on. The limits
    /// of such a layer would otherwise see `/uploads` for `/api/v1/uploads`: a limit for
    /// `/api/v1/uploads` would apply to no request, and paths that differ only in front would have
    /// one key. If this method is called several times, the first extension found in the request
    /// counts.
    ///
    /// With axum's `Router::nest`, enable the feature `axum` instead, which reads `OriginalUri`
    /// after all other extensions. (A layer without this feature cannot notice that a router has
    /// shortened a path.)
    ///
    /// ```
    /// # use http::Uri;
    /// # use tollgate_http::RateLimitLayer;
    /// #[derive(Clone)]
    /// struct Original(Uri);
    ///
    /// let builder = RateLimitLayer::builder().uri_from(|it: &Original| &it.0);
    /// ```
    pub fn uri_from<T>(mut self, uri: impl Fn(&T) -> &Uri + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
    {
        self.sources.add_uri(Box::new(move |extensions| extensions.get().map(&uri)));
        self
    }

    /// Exempts some requests from all limits, such as health checks, preflights or requests from
    /// trusted clients. If this method is called twice, a request is exempt if it meets either
    /// condition. The responses to exempt requests have no rate limit fields.
    ///
    /// ```
    /// # use http::Method;
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder()
    ///     .skip(|head| head.path() == "/health")
    ///     .skip(|head| {
    ///         head.method() == Method::OPTIONS
    ///             && head.header("access-control-request-method").is_some()
    ///     });
    /// ```
    pub fn skip(self, skips: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        let mut all = self.skips;
        all.push(Box::new(skips));
        Self { skips: all, ..self }
    }

    /// Sets the status of refusals, from 400 to 599. The default is 429. If the store of a shared
    /// limit is unreachable, a refusal has status 503 instead, because the client is not at fault.
    ///
    /// ```
    /// # use http::StatusCode;
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().status(StatusCode::SERVICE_UNAVAILABLE);
    /// ```
    pub fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Sets the status of refusals for a missing key ([`WhenNoKey::Deny`](crate::WhenNoKey::Deny)),
    /// from 400 to 599. The default is 403.
    ///
    /// ```
    /// # use http::StatusCode;
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().no_key_status(StatusCode::BAD_REQUEST);
    /// ```
    pub fn no_key_status(self, status: StatusCode) -> Self {
        Self { no_key_status: status, ..self }
    }

    /// Answers refusals with a line of text instead of [problem JSON](crate#refusals).
    ///
    /// ```
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().plain_text();
    /// ```
    pub fn plain_text(self) -> Self {
        Self { answer: Answer::Plain, ..self }
    }

    /// Answers refusals with your own response, including status, headers and body. The layer adds
    /// its rate limit fields. It also adds `Retry-After`, unless the response already has exactly
    /// one `Retry-After` with a valid value, that is, a number of seconds or a date.
    ///
    /// ```
    /// # use bytes::Bytes;
    /// # use http::Response;
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().respond(|refusal| {
    ///     let mut response = Response::new(Bytes::from_static(b"too fast"));
    ///     *response.status_mut() = refusal.status;
    ///     response
    /// });
    /// ```
    pub fn respond(self, respond: impl Fn(&Refusal<'_>) -> Response<Bytes> + Send + Sync + 'static) -> Self {
        let respond: Box<Respond> = Box::new(respond);
        Self { answer: Answer::Custom(respond), ..self }
    }

    /// Omits the fields `RateLimit` and `RateLimit-Policy`. By default, responses have these
    /// fields, whether the request passed or was refused.
    ///
    /// ```
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().without_fields();
    /// ```
    pub fn without_fields(self) -> Self {
        Self { shows_fields: false, ..self }
    }

    /// Adds the fields `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    ///
    /// These fields describe the limit that refused the request or, if no limit refused, the limit
    /// with the smallest share left. The reset is not a date, but the number of seconds until the
    /// whole limit is available again. A refused client should wait for `Retry-After` instead.
    ///
    /// An upstream, the handler or an inner layer may already have written these fields. The three
    /// fields describe one limit, so the layer keeps or replaces them together. It keeps them if
    /// they belong to a refusal by an inner layer, or if the share left in their limit is no larger
    /// than the share left in the layer's limit. It always replaces them if limit or remaining is
    /// missing, or if any of the three is not a single number.
    ///
    /// ```
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().legacy_fields();
    /// ```
    pub fn legacy_fields(self) -> Self {
        Self { shows_legacy: true, ..self }
    }

    /// Passes the decisions to the handler, as the extension [`Decisions`](crate::Decisions) of the
    /// request. A page can then show the remaining quota, and a handler can do less if a limit in
    /// shadow mode is used up.
    ///
    /// Every request that reaches the handler has the extension, even if no limit applied to it.
    /// With up to four limits, the extension costs two allocations for each request, and a third
    /// one if the request has no other extension.
    ///
    /// ```
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().pass_decisions();
    /// ```
    pub fn pass_decisions(self) -> Self {
        Self { passes_decisions: true, ..self }
    }

    /// Counts the layer's decisions in `metrics`, which writes the counts for Prometheus. If this
    /// method is called twice, only the last metrics are used.
    ///
    /// ```
    /// # use tollgate_http::{Metrics, RateLimitLayer};
    /// let metrics = Metrics::new();
    /// let builder = RateLimitLayer::builder().metrics(&metrics);
    /// ```
    pub fn metrics(self, metrics: &Metrics) -> Self {
        Self { metrics: Some(metrics.clone()), ..self }
    }

    /// Calls a closure with each limit's decision on each request, for example to update metrics.
    /// The request waits for the closure, so the closure should be quick. If this method is called
    /// twice, both closures are called.
    ///
    /// ```
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().on_decision(|event| {
    ///     if event.is_binding {
    ///         println!("{} refused {}", event.limit_name, event.request.uri().path());
    ///     }
    /// });
    /// ```
    pub fn on_decision(self, hook: impl Fn(&DecisionEvent<'_>) + Send + Sync + 'static) -> Self {
        let mut hooks = self.hooks;
        hooks.decision.push(Box::new(hook));
        Self { hooks, ..self }
    }

    /// Calls a closure when a limit has [settled](crate::Limit::settle) the cost of a request. The
    /// closure can count costs, responses of [unknown cost](SettleEvent::cost), truncated
    /// responses, and uncharged tokens. The server waits for the closure, so the closure should be
    /// quick. If this method is called twice, both closures are called. If the closure panics, the
    /// layer catches the panic, because the settlement may happen while another panic drops the
    /// response.
    ///
    /// ```
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().on_settled(|event| {
    ///     let unpaid = event.settlement.unpaid;
    ///     if event.is_cut || unpaid > 0 {
    ///         println!("{}: {:?} tokens, {unpaid} unpaid", event.limit_name, event.cost);
    ///     }
    /// });
    /// ```
    pub fn on_settled(self, hook: impl Fn(&SettleEvent<'_>) + Send + Sync + 'static) -> Self {
        let mut hooks = self.hooks;
        hooks.settled.push(Box::new(hook));
        Self { hooks, ..self }
    }

    /// Calls a closure for each request whose class is unknown to the limiter. The closure receives
    /// the names of the limit and the class. The request is treated as if it belonged to the
    /// default class.
    ///
    /// Use the closure to find classes that were renamed, or that were never added to the limiter's
    /// builder. With the feature `tracing`, the layer also emits an event with level WARN, at most
    /// once an hour. The request waits for the closure. If this method is called twice, both
    /// closures are called.
    ///
    /// ```
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().on_unknown_class(|limit, class| {
    ///     eprintln!("{limit} has no class {class:?}");
    /// });
    /// ```
    pub fn on_unknown_class(self, hook: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        let mut hooks = self.hooks;
        hooks.unknown_class.push(Box::new(hook));
        Self { hooks, ..self }
    }

    /// Returns warnings about the limits added so far. A warning describes settings that are valid
    /// but may not be intended: see [`BuildWarning`]. With the feature `tracing`, building the
    /// layer emits an event for each warning.
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
    /// # use tollgate::{Limiter, Quota};
    /// # let limiter = Limiter::builder(Quota::per_second(10)).build()?;
    /// let limit =
    ///     Limit::new("per-address", limiter).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny);
    /// assert_eq!(RateLimitLayer::builder().limit(limit).warnings(), []);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn warnings(&self) -> Vec<BuildWarning> {
        let warnings = |limit: &Limit| {
            let name = || limit.name.clone();
            let invented = limit.by.as_ref().and_then(KeyBy::invented);
            let invented = invented.map(|key| BuildWarning::InventedKey { limit: name(), key });
            let evaded = limit.cost.is_free_without_length();
            invented.into_iter().chain(evaded.then(|| BuildWarning::EvadedByLength { limit: name() }))
        };
        self.limits.iter().flat_map(warnings).chain(self.warnings.clone()).collect()
    }

    /// Checks the configuration and compiles it.
    pub(crate) fn compile(self) -> Result<LimitSet, Fault> {
        let count = self.limits.len();
        if count == 0 {
            return Err(Fault::NoLimits);
        }
        if count > MAX_LIMITS {
            return Err(Fault::TooManyLimits { limits: count, most: MAX_LIMITS });
        }
        for status in [self.status, self.no_key_status] {
            if !(400..600).contains(&status.as_u16()) {
                return Err(Fault::Status { status });
            }
        }
        let warnings = self.warnings();
        let mut limits: Vec<CompiledLimit> = Vec::with_capacity(count);
        for limit in self.limits {
            let limit = CompiledLimit::new(limit)?;
            if limits.iter().any(|other| other.name == limit.name) {
                return Err(Fault::DuplicateName { name: limit.name.as_ref().to_owned() });
            }
            if let Some(other) = limits.iter().find(|it| it.is_one_state_with(&limit)) {
                let [name, other] = [other, &limit].map(|limit| limit.name.as_ref().to_owned());
                return Err(Fault::SameLimiter { name, other });
            }
            limits.push(limit);
        }
        let listeners = Arc::new(Listeners::new(&limits, self.hooks));
        let is_heard = listeners.listen() || self.metrics.is_some();
        if !is_heard && !self.passes_decisions && limits.iter().all(|limit| limit.shadow) {
            return Err(Fault::OnlyShadows);
        }
        listeners.warn(&warnings);
        if let Some(metrics) = &self.metrics {
            limits.iter_mut().for_each(|limit| limit.count_in(metrics));
        }
        Ok(LimitSet {
            is_heard,
            passes_decisions: self.passes_decisions,
            repeats: Repeats::default(),
            waits: limits.iter().any(CompiledLimit::waits),
            sources: self.sources,
            skips: self.skips,
            status: self.status,
            no_key_status: self.no_key_status,
            answer: self.answer,
            shows_fields: self.shows_fields,
            shows_legacy: self.shows_legacy,
            policy: Policy::new(&limits),
            limits: Arc::from(limits),
            listeners,
        })
    }
}

impl fmt::Debug for RateLimitBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitBuilder")
            .field("limits", &self.limits)
            .field("status", &self.status)
            .field("no_key_status", &self.no_key_status)
            .finish_non_exhaustive()
    }
}
