//! The events that listeners get.

use crate::head::RequestHead;
use crate::response::denial::{LimitKind, Reason};
use tollgate::{Decision, Settlement};

/// The decision of one limit on one request; see
/// [`on_decision`](crate::RateLimitBuilder::on_decision).
///
/// A request that several limits were asked about causes one event for each of them.
///
/// ```
/// use tollgate_http::{Limit, RateLimitLayer};
/// use tollgate::{Quota, SingleLimiter};
///
/// let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::global("all", limiter))
///     .on_decision(|event| {
///         let charged = event.decision().map_or(0, |decision| decision.charged());
///         println!("{}: charged {charged}, refused: {}", event.limit_name(), event.is_refused());
///     })
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub(crate) limit: &'a str,
    pub(crate) class: Option<&'a str>,
    pub(crate) request: RequestHead<'a>,
    pub(crate) decision: Option<&'a Decision>,
    /// Whether the limit denies this request, or would if it were not in shadow mode.
    pub(crate) denies: bool,
    pub(crate) shadow: bool,
    pub(crate) kind: LimitKind,
    pub(crate) binding: bool,
    pub(crate) refused: bool,
}

impl<'a> Event<'a> {
    /// Returns the name of the limit.
    pub fn limit_name(&self) -> &'a str {
        self.limit
    }

    /// Returns the name of the caller's class in this limit; `None` for the default class, and for
    /// a request without a key. There are as many names as the limiter has classes, so they may be
    /// labels of a metric.
    pub fn class(&self) -> Option<&'a str> {
        self.class
    }

    /// Returns the request.
    pub fn request(&self) -> RequestHead<'a> {
        self.request
    }

    /// Returns the decision of the limit; `None` if it found no key.
    ///
    /// If the request was refused, a [shared](crate::Limit::shared) limit that allowed it reports
    /// what it charged, although that is refunded.
    pub fn decision(&self) -> Option<&'a Decision> {
        self.decision
    }

    /// Returns why the limit denies the request, or would if it were not in shadow mode; `None` if
    /// it does not.
    ///
    /// ```
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_http::{KeyBy, Limit, RateLimitLayer, Reason, WhenNoKey};
    ///
    /// let limiter = Limiter::builder(Quota::per_second(10)).max_keys(1000).build()?;
    /// let limit = Limit::new("per-address", limiter, KeyBy::peer()).when_no_key(WhenNoKey::Deny);
    /// let layer = RateLimitLayer::builder()
    ///     .limit(limit)
    ///     .on_decision(|event| {
    ///         if event.reason() == Some(Reason::Full) {
    ///             println!("{} tracks as many clients as it may", event.limit_name());
    ///         }
    ///     })
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reason(&self) -> Option<Reason> {
        self.denies.then(|| Reason::of(self.decision, self.kind))
    }

    /// Returns whether the limit is in shadow mode.
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Returns whether this is the limit that the response to a refused request names.
    pub fn is_binding(&self) -> bool {
        self.binding
    }

    /// Returns whether the request was refused, by this limit or another.
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns whether this is a limit in shadow mode that would have refused the request, also for
    /// a missing key.
    pub fn would_refuse(&self) -> bool {
        self.shadow && self.denies
    }
}

/// How a limit has settled the cost of one request; see
/// [`on_settled`](crate::RateLimitBuilder::on_settled).
///
/// Each limit with [`settle`](crate::Limit::settle) causes one when the response has ended, was cut
/// off or dropped. A [shared](crate::Limit::shared) limit does so when its store has answered.
/// A request without a response causes no event. Neither does one whose estimate
/// [`charge_if`](crate::Limit::charge_if) gives back.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{Quota, SingleLimiter};
/// use tollgate_http::{Limit, RateLimitLayer, Settle};
///
/// static UNPAID: AtomicU64 = AtomicU64::new(0);
///
/// let limiter = SingleLimiter::builder(Quota::per_second(1024)).max_debt(1024).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::global("kibibytes", limiter).settle(Settle::bytes(1024)))
///     .on_settled(|event| {
///         UNPAID.fetch_add(event.settlement().unpaid, Ordering::Relaxed);
///     })
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SettleEvent<'a> {
    pub(crate) limit: &'a str,
    pub(crate) class: Option<&'a str>,
    pub(crate) shadow: bool,
    pub(crate) cost: Option<u64>,
    pub(crate) settlement: Settlement,
    pub(crate) is_cut: bool,
}

impl<'a> SettleEvent<'a> {
    /// Returns the name of the limit.
    pub fn limit_name(&self) -> &'a str {
        self.limit
    }

    /// Returns the name of the caller's class in this limit; `None` for the default class.
    pub fn class(&self) -> Option<&'a str> {
        self.class
    }

    /// Returns whether the limit is in shadow mode.
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Returns what the request has cost, in tokens, as far as the response has told it. `None` if
    /// the cost is not known: the charge then stays at the estimate. That is a response which
    /// states and counts nothing, such as one whose body is compressed or too large to be read, and
    /// one that has ended before it told more than the estimate.
    pub fn cost(&self) -> Option<u64> {
        self.cost
    }

    /// Returns what the limit has charged for it in all, and what it could not charge, because that
    /// was beyond the room and the debt.
    ///
    /// What the limit was asked to give back counts as given back. A shared limiter may keep it, if
    /// its store is away, for example.
    pub fn settlement(&self) -> Settlement {
        self.settlement
    }

    /// Returns whether this limit has [cut the response off](crate::Settle::cut_off).
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}
