//! A named limit, as the user configures it.

use super::backend::Backend;
use super::request_cost::RequestCost;
use crate::class::by::ClassBy;
use crate::head::{RequestHead, ResponseHead};
use crate::key::by::KeyBy;
use crate::settle::response_cost::ResponseCost;
use std::fmt;

/// Specifies what a limit does with a request in which its [`KeyBy`] finds no key.
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
    /// Refuses the request, with status 403 unless
    /// [`no_key_status`](crate::RateLimitBuilder::no_key_status) is set, or with
    /// `PERMISSION_DENIED` for gRPC. The status is not 429, because no wait helps. A limit in
    /// shadow mode lets the request pass and reports it.
    Deny,
    /// Lets the request pass this limit uncounted. A client that omits the key, or sends it twice,
    /// is not limited.
    Allow,
    /// Counts all requests without a key as one client.
    Share,
}

pub(crate) type Skips = dyn Fn(RequestHead<'_>) -> bool + Send + Sync;
pub(crate) type Charges = dyn Fn(ResponseHead<'_>) -> bool + Send + Sync;

/// A limit of a layer: a name, a limiter, and how the key of a request is found.
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
/// Over an [`InFlight`](tollgate::InFlight), or over a [`Backend::in_flight`] that several machines
/// share, a limit bounds how many requests of a client run at once, however long they take.
///
/// A request takes one permit, or as many as it [costs](Self::cost), together with the tokens of
/// the other limits or not at all. The permit is free again when the body of the response has ended
/// or was dropped, when the handler has failed, or when the client has hung up. A download
/// therefore counts until the server has taken its last frame, not until the handler has returned.
/// Data that is still buffered after that does not count, nor does a connection after its upgrade.
/// Several machines share permits one by one, so a limit with a cost is refused when the layer is
/// built. The other machines see a freed permit when the store has received it, a moment later.
///
/// A refusal has no `Retry-After`, because nobody knows when a permit becomes free. A [response of
/// your own] can recognize it by its reason, [`RefusalReason::InFlight`], and give it status 503.
/// In `RateLimit-Policy` the limit is shown with the unit `concurrent-requests`. No response gives
/// a permit back early, so [`charge_if`](Self::charge_if) is refused when the layer is built.
///
/// [`RefusalReason::InFlight`]: crate::RefusalReason::InFlight
/// [response of your own]: crate::RateLimitBuilder::respond
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
    pub(crate) skips: Option<Box<Skips>>,
    pub(crate) charges: Option<Box<Charges>>,
    pub(crate) keeps_on_error: bool,
    pub(crate) settle: Option<ResponseCost>,
}

impl Limit {
    /// Makes a limit over any limiter that converts into a [`Backend`].
    ///
    /// Without [`by`](Self::by), all requests together have one state. With it, each key has its
    /// own.
    ///
    /// The name is shown in the fields and bodies of responses: 1 to 128 printable ASCII
    /// characters. It is part of the key, so several limits may share one limiter. Machines that
    /// share a limit must give it the same name.
    ///
    /// A limiter with classes of callers needs [`class_by`](Self::class_by). If the counts of a
    /// limit are shared with other machines ([`AsyncLimiter`], [`AsyncInFlight`]), its requests
    /// wait for the answer. The layer passes an admitted request on immediately, even with an
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
    pub fn new(name: impl Into<String>, limiter: impl Into<Backend>) -> Self {
        Self {
            name: name.into(),
            backend: limiter.into(),
            by: None,
            class_by: None,
            cost: RequestCost::from(1),
            no_key: None,
            shadow: false,
            skips: None,
            charges: None,
            keeps_on_error: false,
            settle: None,
        }
    }

    /// Limits each client separately; `key` tells clients apart. If this method is called twice,
    /// the last key counts.
    ///
    /// A [`SingleLimiter`](tollgate::SingleLimiter) has one state for all requests, so a limit that
    /// has both a `SingleLimiter` and a key is refused when the layer is built.
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

    /// Sets what happens to requests without a key. This is required unless the key is always
    /// found.
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

    /// Specifies how the class of a request is found, by a [`ClassBy`] or a
    /// [`ClassLookup`](crate::ClassLookup). A limiter with classes of callers requires this.
    ///
    /// A request is checked under the quota of its class, and the response shows that quota and no
    /// other. A class that the limiter does not have counts as the default class, and is reported
    /// to [`on_unknown_class`](crate::RateLimitBuilder::on_unknown_class). For a key in two
    /// classes, see [`ClassLimiter`](tollgate::ClassLimiter#a-key-in-two-classes).
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

    /// Settles the cost by the response: the charge of the request becomes an estimate, and the
    /// response reveals the actual cost. See [`ResponseCost`].
    ///
    /// The body of the response owns the reserved tokens. A request whose client hangs up before
    /// the response keeps the estimate. So does a request whose handler fails without a response,
    /// or whose response reveals no cost, unless [`charge_if`](Self::charge_if) gives the estimate
    /// back. The fields of the response show the decision on the estimate.
    ///
    /// A limit over an [`AsyncLimiter`](crate::AsyncLimiter) is settled in the background: no
    /// response waits for its store.
    /// [`ResponseCost`](ResponseCost#limits-that-other-machines-share) describes how far a stream
    /// can get past such a limit.
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
    /// ([`on_decision`](crate::RateLimitBuilder::on_decision), `tracing`), but never refuses. Use
    /// it to try a limit out. A shadow limit is charged for the requests that pass, and is not
    /// shown in the fields of responses.
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

    /// Exempts requests from this limit. If this method is called twice, either condition exempts.
    ///
    /// ```
    /// # use tollgate_http::Limit;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let writes = Limit::new("writes", limiter).skip(|head| head.method().is_safe());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn skip(self, skips: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        let skips: Box<Skips> = match self.skips {
            Some(before) => Box::new(move |head| before(head) || skips(head)),
            None => Box::new(skips),
        };
        Self { skips: Some(skips), ..self }
    }

    /// Limits only the requests for which `applies` returns true; others pass uncounted. If this
    /// method is called twice, both conditions must hold.
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

    /// Charges only for responses for which `charges` returns true: for failed logins, for example,
    /// or for successes.
    ///
    /// Every request is charged before it is handled, so that no race gets past the limit. If
    /// `charges` returns false for the response, the charge is refunded. If the handler fails or
    /// panics without a response, the charge is refunded as well, unless
    /// [`keep_on_error`](Self::keep_on_error) is set. If the client hangs up before the response,
    /// the charge stays: hanging up must not make attempts free. The fields of the response show
    /// the decision before the refund.
    ///
    /// With `|response| !response.is_refusal()`, a request that an inner layer refuses is not
    /// charged here.
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

    /// Keeps the charge when the handler fails without a response; used with
    /// [`charge_if`](Self::charge_if).
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
