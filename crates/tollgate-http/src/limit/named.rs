//! A named limit, as the user configures it.

use super::backend::{Backend, IntoBackend};
use super::request_cost::RequestCost;
use crate::class::by::ClassBy;
use crate::head::{RequestHead, ResponseHead};
use crate::key::by::KeyBy;
use crate::settle::response_cost::ResponseCost;
use std::fmt;

/// What a limit does with a request if its [`KeyBy`] finds no key.
///
/// ```
/// use tollgate_http::{KeyBy, Limit, WhenNoKey};
/// use tollgate::{Limiter, Quota};
///
/// let limiter = Limiter::builder(Quota::per_second(10)).build()?;
/// let limit = Limit::new("per-tenant", limiter)
///     .by(KeyBy::header("x-tenant"))
///     .when_no_key(WhenNoKey::Share);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenNoKey {
    /// Refuses the request with status 403, or with the
    /// [`no_key_status`](crate::RateLimitBuilder::no_key_status) if one is set. A gRPC request is
    /// refused with `PERMISSION_DENIED`. The status is not 429, because waiting does not help. A
    /// limit in shadow mode lets the request pass and reports it.
    Deny,
    /// Lets the request pass this limit uncounted. A client that omits the key, or sends it twice,
    /// is not limited.
    Allow,
    /// Counts all requests without a key as one client.
    Share,
}

pub(crate) type Skips = dyn Fn(RequestHead<'_>) -> bool + Send + Sync;
pub(crate) type ChargeIf = dyn Fn(ResponseHead<'_>) -> bool + Send + Sync;

/// A limit in a layer. It has a name, a limiter, and a way to find a request's key.
///
/// ```
/// use std::sync::Arc;
/// use tollgate_http::{Key, KeyBy, Limit, WhenNoKey, RateLimitLayer};
/// use tollgate::{Algorithm, Limiter, Quota};
///
/// // A limiter with any settings. Keep a handle to check and change it while the layer runs.
/// let limiter: Arc<Limiter<Key>> = Arc::new(
///     Limiter::builder(Quota::per_minute(600))
///         .algorithm(Algorithm::SlidingWindow)
///         .max_keys(100_000)
///         .build()?,
/// );
/// let limit = Limit::new("per-client", Arc::clone(&limiter))
///     .by(KeyBy::peer())
///     .when_no_key(WhenNoKey::Deny);
/// let layer = RateLimitLayer::builder().limit(limit).build()?;
///
/// limiter.set_quota(Quota::per_minute(60))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Requests in flight
///
/// A limit over an [`InFlight`](tollgate::InFlight) restricts how many of a client's requests run
/// at the same time, however long they take. [`Backend::in_flight`] does the same across several
/// machines.
///
/// A request acquires one permit, or as many permits as it [costs](Self::cost). It acquires its
/// permits together with the other limits' tokens, or not at all. The permits are released when the
/// response body has ended or was dropped, when the handler has failed, or when the client has hung
/// up. A download therefore counts until the server has taken the last frame, even though the
/// handler returned earlier. Data that is still buffered after that does not count, and neither
/// does an upgraded connection.
///
/// The permits of a shared limit are acquired one at a time. Building a layer therefore fails if
/// such a limit has a cost. Other machines see a released permit a moment later, when the store has
/// received the release.
///
/// A refusal has no `Retry-After`, because it is unknown when a permit will be released. A [custom
/// response] can test for the reason [`RefusalReason::InFlight`], and use status 503.
/// `RateLimit-Policy` shows the limit with the unit `concurrent-requests`. A response cannot
/// release its permit early, so building a layer fails if such a limit has a
/// [`charge_if`](Self::charge_if).
///
/// [`RefusalReason::InFlight`]: crate::RefusalReason::InFlight
/// [custom response]: crate::RateLimitBuilder::respond
///
/// ```
/// # use tollgate_http::{KeyBy, Limit, RateLimitLayer, WhenNoKey};
/// # use tollgate::InFlight;
/// // A handle, to see and change the limit while the layer runs.
/// let downloads = InFlight::builder(4).max_keys(100_000).build()?;
/// let limit = Limit::new("downloads", downloads.clone())
///     .by(KeyBy::peer())
///     .when_no_key(WhenNoKey::Deny)
///     .only(|head| head.path().starts_with("/files/"));
/// let layer = RateLimitLayer::builder().limit(limit).build()?;
///
/// downloads.set_limit(2)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Limit {
    pub(crate) name: String,
    pub(crate) backend: Backend,
    pub(crate) by: Option<KeyBy>,
    pub(crate) class_by: Option<ClassBy>,
    pub(crate) cost: RequestCost,
    pub(crate) no_key: Option<WhenNoKey>,
    pub(crate) shadow: bool,
    pub(crate) skips: Vec<Box<Skips>>,
    pub(crate) charges: Option<Box<ChargeIf>>,
    pub(crate) keeps_on_error: bool,
    pub(crate) settle: Option<ResponseCost>,
}

impl Limit {
    /// Creates a limit over any limiter that converts into a [`Backend`].
    ///
    /// With [`by`](Self::by), each key has its own state. A [`SingleLimiter`] has one state for all
    /// requests. Any other limiter requires `by`, which may be
    /// [`KeyBy::nothing`](crate::KeyBy::nothing).
    ///
    /// [`SingleLimiter`]: tollgate::SingleLimiter
    ///
    /// The name consists of 1 to 128 printable ASCII characters and appears in the fields and
    /// bodies of responses. The name is part of each key, so several limits can share one limiter.
    /// Machines that share a limit must use the same name for it.
    ///
    /// A limiter with classes of callers requires [`class_by`](Self::class_by).
    ///
    /// If other machines share the limit ([`AsyncLimiter`], [`AsyncInFlight`]), each request waits
    /// for the limiter's answer. The layer passes an admitted request on immediately, even with an
    /// algorithm that lets requests start later
    /// ([`Algorithm::LeakyQueue`](tollgate::Algorithm::LeakyQueue)).
    ///
    /// [`AsyncLimiter`]: crate::AsyncLimiter
    /// [`AsyncInFlight`]: crate::AsyncInFlight
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit, WhenNoKey};
    /// # use tollgate::{Limiter, Quota, SingleLimiter};
    /// // All requests together.
    /// let limit = Limit::new("all", SingleLimiter::builder(Quota::per_second(5000)).build()?);
    ///
    /// // Each address on its own.
    /// let limiter = Limiter::builder(Quota::per_second(10).burst(20)).build()?;
    /// let limit =
    ///     Limit::new("per-address", limiter).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny);
    ///
    /// // A limiter with exact keys, which can be listed.
    /// let limiter = Limiter::builder(Quota::per_day(1000)).exact_keys().build()?;
    /// let limit = Limit::new("daily", limiter)
    ///     .by(KeyBy::header("x-api-key"))
    ///     .when_no_key(WhenNoKey::Allow);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn new(name: impl Into<String>, limiter: impl IntoBackend) -> Self {
        Self {
            name: name.into(),
            backend: limiter.into(),
            by: None,
            class_by: None,
            cost: RequestCost::from(1),
            no_key: None,
            shadow: false,
            skips: Vec::new(),
            charges: None,
            keeps_on_error: false,
            settle: None,
        }
    }

    /// Limits each client separately. `key` specifies how a client is identified. If this method is
    /// called twice, the last key counts.
    ///
    /// A [`SingleLimiter`](tollgate::SingleLimiter) has one state for all requests. Building a
    /// layer therefore fails if a limit has both a `SingleLimiter` and a key.
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit, WhenNoKey};
    /// # use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::builder(Quota::per_second(10)).build()?;
    /// let limit =
    ///     Limit::new("per-address", limiter).by(KeyBy::peer()).when_no_key(WhenNoKey::Deny);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn by(self, key: KeyBy) -> Self {
        Self { by: Some(key), ..self }
    }

    /// Sets what happens to requests without a key. This method is required unless every request
    /// has a key.
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit, WhenNoKey};
    /// # use tollgate::{Limiter, Quota};
    /// # let limiter = Limiter::builder(Quota::per_second(10)).build()?;
    /// let limit = Limit::new("per-key", limiter)
    ///     .by(KeyBy::header("x-api-key"))
    ///     .when_no_key(WhenNoKey::Deny);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn when_no_key(self, no_key: WhenNoKey) -> Self {
        Self { no_key: Some(no_key), ..self }
    }

    /// Specifies how a request's class is found, with a [`ClassBy`] or a
    /// [`ClassLookup`](crate::ClassLookup). A limiter with classes of callers requires this method.
    ///
    /// Each request is limited by its class's quota, and the response shows only that quota. If the
    /// limiter does not have the class, the default class applies, and the unknown class is
    /// reported to [`on_unknown_class`](crate::RateLimitBuilder::on_unknown_class). For a key in
    /// two classes, see [`ClassLimiter`](tollgate::ClassLimiter#a-key-in-two-classes).
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_http::{ClassBy, KeyBy, Limit, WhenNoKey};
    ///
    /// let limiter = Limiter::builder(Quota::per_minute(10))
    ///     .class("paid", Quota::per_minute(1_000))
    ///     .build()?;
    /// let limit = Limit::new("per-key", limiter)
    ///     .by(KeyBy::header("x-api-key"))
    ///     .class_by(ClassBy::list(KeyBy::header("x-api-key"), [("k-7f3a", "paid")]))
    ///     .when_no_key(WhenNoKey::Deny);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn class_by(self, class: impl Into<ClassBy>) -> Self {
        Self { class_by: Some(class.into()), ..self }
    }

    /// Sets the cost of a request. The default is one token.
    ///
    /// ```
    /// # use tollgate_http::{RequestCost, Limit};
    /// # use tollgate::{Quota, SingleLimiter};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let limit = Limit::new("all", limiter)
    ///     .cost(RequestCost::from_fn(|head| if head.path() == "/search" { 5 } else { 1 }));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn cost(self, cost: impl Into<RequestCost>) -> Self {
        Self { cost: cost.into(), ..self }
    }

    /// Makes a request's charge an estimate, which is corrected when the response reveals the
    /// actual cost. See [`ResponseCost`].
    ///
    /// The response body owns the reserved tokens. The estimate remains charged if the client hangs
    /// up before the response. It also remains charged if the handler fails without a response, or
    /// if the response reveals no cost, unless [`charge_if`](Self::charge_if) gives the estimate
    /// back. The response fields show the decision on the estimate.
    ///
    /// A limit over an [`AsyncLimiter`](crate::AsyncLimiter) is settled in the background: no
    /// response waits for its store.
    /// [`ResponseCost`](ResponseCost#limits-that-other-machines-share) describes how far a stream
    /// can exceed such a limit.
    ///
    /// ```
    /// # use tollgate_http::{Limit, ResponseCost};
    /// # use tollgate::{Quota, SingleLimiter};
    /// // A mebibyte a second of responses, in kibibytes; 64 of them are reserved for each.
    /// let limiter = SingleLimiter::builder(Quota::per_second(1024)).max_debt(1024).build()?;
    /// let limit = Limit::new("downloads", limiter)
    ///     .cost(64)
    ///     .settle(ResponseCost::bytes(1024));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn settle(self, cost: ResponseCost) -> Self {
        Self { settle: Some(cost), ..self }
    }

    /// Makes this a shadow limit: it decides and reports
    /// ([`on_decision`](crate::RateLimitBuilder::on_decision), `tracing`), but never refuses. Use a
    /// shadow limit to try out a quota. Requests that pass are charged to the shadow limit, but
    /// response fields do not show it.
    ///
    /// ```
    /// # use tollgate_http::{Limit, RateLimitLayer};
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let layer = RateLimitLayer::builder()
    ///     .limit(Limit::new("trial", limiter).shadow())
    ///     .on_decision(|event| {
    ///         if event.would_refuse() {
    ///             println!("{} would have refused {}", event.limit_name, event.request.uri());
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shadow(self) -> Self {
        Self { shadow: true, ..self }
    }

    /// Exempts requests from this limit. If this method is called twice, a request is exempt if it
    /// meets either condition.
    ///
    /// ```
    /// # use tollgate_http::Limit;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let writes = Limit::new("writes", limiter).skip(|head| head.method().is_safe());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn skip(self, skips: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        let mut all = self.skips;
        all.push(Box::new(skips));
        Self { skips: all, ..self }
    }

    /// Limits only the requests for which `applies` returns true. All other requests pass
    /// uncounted. If this method is called twice, both conditions must hold.
    ///
    /// ```
    /// # use http::Method;
    /// # use tollgate_http::Limit;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let logins = Limit::new("logins", limiter)
    ///     .only(|head| head.method() == Method::POST && head.path() == "/login");
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn only(self, applies: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.skip(move |head| !applies(head))
    }

    /// Charges a request only if `charges` returns true for its response, for example only for
    /// failed logins.
    ///
    /// Every request is charged before it is handled, so that concurrent requests cannot exceed the
    /// limit. The charge is refunded if `charges` returns false for the response. It is also
    /// refunded if the handler fails or panics without a response, unless
    /// [`keep_on_error`](Self::keep_on_error) is set. If the client hangs up before the response,
    /// the charge is kept, because hanging up must not make attempts free. The response fields show
    /// the decision before the refund.
    ///
    /// With `|response| !response.is_refusal()`, this limit does not charge for requests refused by
    /// an inner layer.
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit, WhenNoKey};
    /// # use tollgate::{Limiter, Quota};
    /// // Five wrong passwords an hour.
    /// let limiter = Limiter::builder(Quota::per_hour(5)).build()?;
    /// let logins = Limit::new("logins", limiter)
    ///     .by(KeyBy::peer())
    ///     .when_no_key(WhenNoKey::Deny)
    ///     .charge_if(|response| response.status() == 401);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn charge_if(self, charges: impl Fn(ResponseHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { charges: Some(Box::new(charges)), ..self }
    }

    /// Keeps the charge when the handler fails without a response. This method has an effect only
    /// with [`charge_if`](Self::charge_if).
    ///
    /// ```
    /// # use tollgate_http::Limit;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let failures = Limit::new("failures", limiter)
    ///     .charge_if(|response| response.status().is_server_error())
    ///     .keep_on_error();
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn keep_on_error(self) -> Self {
        Self { keeps_on_error: true, ..self }
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("name", &self.name)
            .field("by", &self.by)
            .field("class_by", &self.class_by)
            .field("cost", &self.cost)
            .field("no_key", &self.no_key)
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}
