//! One named limit of a layer, as it is asked for.

use super::async_limiter::AsyncLimiter;
use super::cost::Cost;
use super::enforcer::{Enforcer, Local};
use crate::head::{RequestHead, ResponseHead};
use crate::key::by::KeyBy;
use crate::key::parts::{Key, KeyRef};
use std::fmt;
use std::sync::Arc;
use tollgate::{Accepts, Limiter, SingleLimiter, Store};

/// What a limit does with a request in which its [`KeyBy`] finds no key.
///
/// ```
/// use tollgate_http::{KeyBy, Limit, WhenNoKey};
/// use tollgate::{Limiter, Quota};
///
/// let limiter = Limiter::builder(Quota::per_second(10)).build()?;
/// let limit = Limit::new("per-tenant", limiter, KeyBy::header("x-tenant")).when_no_key(WhenNoKey::Share);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenNoKey {
    /// It is refused: status 403 unless [`no_key_status`](crate::RateLimitBuilder::no_key_status) is set, for gRPC
    /// `PERMISSION_DENIED`. Not 429, since no wait helps. A limit in shadow mode lets it pass, and tells.
    Deny,
    /// The limit does not count for it: who leaves the key out, or sends it twice, is free of this limit.
    Allow,
    /// All of them together are one client.
    Share,
}

pub(crate) type Skips = dyn Fn(RequestHead<'_>) -> bool + Send + Sync;
pub(crate) type Charges = dyn Fn(ResponseHead<'_>) -> bool + Send + Sync;

/// A limit of a layer: a name, a limiter, and how its keys are found.
///
/// ```
/// use std::sync::Arc;
/// use tollgate_http::{Key, KeyBy, Limit, WhenNoKey, RateLimitLayer};
/// use tollgate::{Algorithm, Limiter, Quota};
///
/// // A limiter with any settings; who keeps a handle can ask and change it while the layer runs.
/// let limiter: Arc<Limiter<Key>> = Arc::new(
///     Limiter::builder(Quota::per_minute(600))
///         .algorithm(Algorithm::SlidingWindow)
///         .max_keys(100_000)
///         .build()?,
/// );
/// let limit = Limit::new("per-client", Arc::clone(&limiter), KeyBy::peer()).when_no_key(WhenNoKey::Deny);
/// let layer = RateLimitLayer::builder().limit(limit).build()?;
///
/// limiter.set_quota(Quota::per_minute(60))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Limit {
    pub(crate) name: String,
    pub(crate) enforcer: Enforcer,
    pub(crate) by: Option<KeyBy>,
    pub(crate) cost: Cost,
    pub(crate) no_key: Option<WhenNoKey>,
    pub(crate) shadow: bool,
    pub(crate) skips: Option<Box<Skips>>,
    pub(crate) charges: Option<Box<Charges>>,
    pub(crate) keeps_on_error: bool,
}

impl Limit {
    /// A limit for each client, told apart by `by`. The name stands in the fields and bodies of responses; 1 to 128
    /// printable ASCII characters. It is part of the key, so that limits may share one limiter.
    ///
    /// An algorithm that lets requests start later ([`Algorithm::LeakyQueue`](tollgate::Algorithm::LeakyQueue)) is
    /// asked like the others: the layer passes an admitted request on at once.
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit, WhenNoKey};
    /// # use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::builder(Quota::per_second(10).burst(20)).build()?;
    /// let limit = Limit::new("per-address", limiter, KeyBy::peer()).when_no_key(WhenNoKey::Deny);
    ///
    /// // Also with exact keys, which can be listed.
    /// let limiter = Limiter::builder(Quota::per_day(1000)).exact_keys().build()?;
    /// let limit = Limit::new("daily", limiter, KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Allow);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn new<S>(name: impl Into<String>, limiter: impl Into<Arc<Limiter<Key, S>>>, by: KeyBy) -> Self
    where
        S: Store + Accepts<Key> + for<'a> Accepts<KeyRef<'a>> + Send + Sync + 'static,
    {
        Self::with(name.into(), Enforcer::Local(Local::Keyed(limiter.into())), Some(by))
    }

    /// A limit for all requests together.
    ///
    /// ```
    /// # use tollgate_http::Limit;
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limit = Limit::global("all", SingleLimiter::builder(Quota::per_second(5000)).build()?);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn global(name: impl Into<String>, limiter: impl Into<Arc<SingleLimiter>>) -> Self {
        Self::with(name.into(), Enforcer::Local(Local::Single(limiter.into())), None)
    }

    /// A limit for each client whose counts other machines share, by any [`AsyncLimiter`]. Its requests wait, so the
    /// layer is built with [`build_shared`](crate::RateLimitBuilder::build_shared). The name is part of the key also
    /// there: machines that are to share a limit call it the same.
    ///
    /// ```
    /// use tollgate_http::{AsyncLimiter, KeyBy, Limit, WhenNoKey};
    ///
    /// fn limit(limiter: impl AsyncLimiter + 'static) -> Limit {
    ///     Limit::shared("per-key", limiter, KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Deny)
    /// }
    /// ```
    pub fn shared(name: impl Into<String>, limiter: impl AsyncLimiter + 'static, by: KeyBy) -> Self {
        Self::with(name.into(), Enforcer::Shared(Arc::new(limiter)), Some(by))
    }

    /// A limit for all requests together, whichever machine they come to. The limiter knows it by a key that has the
    /// limit's name and no parts.
    ///
    /// ```
    /// use tollgate_http::{AsyncLimiter, Limit};
    ///
    /// fn limit(limiter: impl AsyncLimiter + 'static) -> Limit {
    ///     Limit::shared_global("all", limiter)
    /// }
    /// ```
    pub fn shared_global(name: impl Into<String>, limiter: impl AsyncLimiter + 'static) -> Self {
        Self::with(name.into(), Enforcer::Shared(Arc::new(limiter)), None)
    }

    fn with(name: String, enforcer: Enforcer, by: Option<KeyBy>) -> Self {
        Self {
            name,
            enforcer,
            by,
            cost: Cost::fixed(1),
            no_key: None,
            shadow: false,
            skips: None,
            charges: None,
            keeps_on_error: false,
        }
    }

    /// What happens to requests without a key. To be said wherever there may be some.
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit, WhenNoKey};
    /// # use tollgate::{Limiter, Quota};
    /// # let limiter = Limiter::builder(Quota::per_second(10)).build()?;
    /// let limit = Limit::new("per-key", limiter, KeyBy::header("x-api-key")).when_no_key(WhenNoKey::Deny);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn when_no_key(self, no_key: WhenNoKey) -> Self {
        Self { no_key: Some(no_key), ..self }
    }

    /// What a request costs; one token unless it is set.
    ///
    /// ```
    /// # use tollgate_http::{Cost, Limit};
    /// # use tollgate::{Quota, SingleLimiter};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let limit = Limit::global("all", limiter)
    ///     .cost(Cost::from_fn(|head| if head.uri().path() == "/search" { 5 } else { 1 }));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn cost(self, cost: Cost) -> Self {
        Self { cost, ..self }
    }

    /// Decides and tells ([`on_decision`](crate::RateLimitBuilder::on_decision), `tracing`) and never refuses: to try
    /// a limit out. It is charged for the requests that pass, and does not stand in the fields.
    ///
    /// ```
    /// # use tollgate_http::{Limit, RateLimitLayer};
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let layer = RateLimitLayer::builder()
    ///     .limit(Limit::global("trial", limiter).shadow())
    ///     .on_decision(|event| {
    ///         if event.would_refuse() {
    ///             println!("{} would have refused {}", event.limit(), event.request().uri());
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shadow(self) -> Self {
        Self { shadow: true, ..self }
    }

    /// Exempts requests from this limit. Said twice, either exempts.
    ///
    /// ```
    /// # use tollgate_http::Limit;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let writes = Limit::global("writes", limiter).skip(|head| head.method().is_safe());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn skip(self, skips: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        let skips: Box<Skips> = match self.skips {
            Some(before) => Box::new(move |head| before(head) || skips(head)),
            None => Box::new(skips),
        };
        Self { skips: Some(skips), ..self }
    }

    /// Charges only for those responses of which `charges` is true: failed logins only, say, or successes only.
    ///
    /// Every request is charged before it is handled, so that no race gets past the limit, and gets its charge back
    /// when the response is known. If the handler fails or panics without a response, the charge is given back
    /// ([`keep_on_error`](Self::keep_on_error) keeps it). If the response is not waited for, because the client has
    /// hung up, the charge stays: hanging up must not make attempts free. The fields of the response are those of the
    /// decision, before anything was given back.
    ///
    /// ```
    /// # use tollgate_http::{KeyBy, Limit, WhenNoKey};
    /// # use tollgate::{Limiter, Quota};
    /// // Five wrong passwords an hour.
    /// let limiter = Limiter::builder(Quota::per_hour(5)).build()?;
    /// let logins = Limit::new("logins", limiter, KeyBy::peer())
    ///     .when_no_key(WhenNoKey::Deny)
    ///     .charge_if(|response| response.status() == 401);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn charge_if(self, charges: impl Fn(ResponseHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        Self { charges: Some(Box::new(charges)), ..self }
    }

    /// With [`charge_if`](Self::charge_if): keeps the charge when the handler fails without a response.
    ///
    /// ```
    /// # use tollgate_http::Limit;
    /// # use tollgate::{Quota, SingleLimiter};
    /// # let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// let failures = Limit::global("failures", limiter)
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
            .field("cost", &self.cost)
            .field("no_key", &self.no_key)
            .field("shadow", &self.shadow)
            .finish_non_exhaustive()
    }
}
