//! The events that listeners receive.

use crate::head::RequestHead;
#[cfg(feature = "tracing")]
use crate::key::by::How;
use crate::key::parts::KeyPart;
use crate::response::refusal::RefusalReason;
use tollgate::{Decision, Settlement};

/// The decision of one limit on one request; see
/// [`on_decision`](crate::RateLimitBuilder::on_decision).
///
/// A request checked by several limits causes one event for each limit.
///
/// ```
/// use tollgate_http::{Limit, RateLimitLayer, RefusalReason};
/// use tollgate::{Quota, SingleLimiter};
///
/// let limiter = SingleLimiter::builder(Quota::per_second(10)).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::new("all", limiter))
///     .on_decision(|event| {
///         let charged = event.decision.map_or(0, |decision| decision.charged());
///         println!("{}: charged {charged}, refused: {}", event.limit_name, event.is_refused);
///         if event.reason == Some(RefusalReason::Full) {
///             println!("{} tracks as many clients as it may", event.limit_name);
///         }
///     })
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DecisionEvent<'a> {
    /// The name of the limit.
    pub limit_name: &'a str,
    /// The name of the caller's class in this limit; `None` for a limit without classes, and for a
    /// request without a key. The limiter's classes are the only possible names, so a metric can
    /// use the name as a label.
    pub class: Option<&'a str>,
    /// The request.
    pub request: RequestHead<'a>,
    /// The limit's decision; `None` if the limit found no key or blocks the caller.
    ///
    /// A limit over an [`AsyncLimiter`](crate::AsyncLimiter) may allow a request that another limit
    /// refuses. The decision then includes the charge, even though the charge is refunded.
    pub decision: Option<&'a Decision>,
    /// The parts of the request's key in this limit; `None` if the limit found no key. These parts
    /// are the [`parts`](crate::Key::parts) of a [`Key`](crate::Key) with the limit's name. They
    /// may contain a client's secrets, such as an API key.
    pub key: Option<&'a [KeyPart<'a>]>,
    /// Why the limit denies the request, or would deny it outside of shadow mode; `None` if the
    /// limit allows the request.
    pub reason: Option<RefusalReason>,
    /// Whether the limit is in shadow mode.
    pub is_shadow: bool,
    /// Whether the response to a refused request names this limit.
    pub is_binding: bool,
    /// Whether the request was refused, by this limit or another. If this limit neither refuses nor
    /// counts the request, the event precedes the decisions of later limits, so this field is false
    /// even if one of them refuses. This applies to a request without a key, and to a limit in
    /// shadow mode that has found no key or would block the caller; `decision` is then `None`.
    pub is_refused: bool,
    /// Where the key was looked for, if the limit has not counted the request.
    #[cfg(feature = "tracing")]
    pub(crate) how: Option<&'a How>,
}

impl DecisionEvent<'_> {
    /// Returns true if the limit is in shadow mode and would otherwise have refused the request,
    /// for a missing key or for any other reason.
    pub fn would_refuse(&self) -> bool {
        self.is_shadow && self.reason.is_some()
    }

    /// Returns the outcome as one word, which can label a metric, as in
    /// [`Metrics`](crate::Metrics). Returns `None` if this limit had room for the request, but
    /// another limit refused it. Such a request does not count as allowed, because this limit has
    /// charged nothing.
    ///
    /// | outcome | the limit |
    /// |---|---|
    /// | `allowed` | admitted the request, possibly in place of a store that is unreachable |
    /// | `denied` | refused it: the quota is used up, too many are in flight, or it costs too much |
    /// | `paused` | refused it, because an earlier refusal has paused the key |
    /// | `full` | refused it, because it tracks its maximum number of keys and this one is new |
    /// | `unavailable` | refused it, because its store is unreachable |
    /// | `no-key` | found no key, whether or not the request passed, or found several |
    /// | `blocked` | refused it, because it blocks this client |
    /// | `shadow` | would have refused it, and is in shadow mode |
    ///
    /// ```
    /// # use tollgate_http::RateLimitLayer;
    /// let builder = RateLimitLayer::builder().on_decision(|event| {
    ///     if let Some(outcome) = event.outcome() {
    ///         println!("{}: {outcome}", event.limit_name);
    ///     }
    /// });
    /// ```
    pub fn outcome(&self) -> Option<&'static str> {
        if self.decision.is_none() && self.reason != Some(RefusalReason::Blocked) {
            return Some("no-key");
        }
        if self.would_refuse() {
            return Some("shadow");
        }
        match self.reason {
            Some(RefusalReason::Full) => Some("full"),
            Some(RefusalReason::Paused) => Some("paused"),
            Some(RefusalReason::Unavailable) => Some("unavailable"),
            Some(RefusalReason::Blocked) => Some("blocked"),
            Some(_) => Some("denied"),
            None => (!self.is_refused).then_some("allowed"),
        }
    }
}

/// The result of settling the cost of one request in one limit; see
/// [`on_settled`](crate::RateLimitBuilder::on_settled).
///
/// Each limit with [`settle`](crate::Limit::settle) causes one event once the response has ended,
/// or was cut off or dropped. A limit over an [`AsyncLimiter`](crate::AsyncLimiter) causes the
/// event after the limiter's store has answered. A request without a response causes no event, and
/// neither does a request whose estimate [`charge_if`](crate::Limit::charge_if) gives back.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::{Quota, SingleLimiter};
/// use tollgate_http::{Limit, RateLimitLayer, ResponseCost};
///
/// static UNPAID: AtomicU64 = AtomicU64::new(0);
///
/// let limiter = SingleLimiter::builder(Quota::per_second(1024)).max_debt(1024).build()?;
/// let layer = RateLimitLayer::builder()
///     .limit(Limit::new("kibibytes", limiter).settle(ResponseCost::bytes(1024)))
///     .on_settled(|event| {
///         UNPAID.fetch_add(event.settlement.unpaid, Ordering::Relaxed);
///     })
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SettleEvent<'a> {
    /// The name of the limit.
    pub limit_name: &'a str,
    /// The name of the caller's class in this limit; `None` for a limit without classes.
    pub class: Option<&'a str>,
    /// Whether the limit is in shadow mode.
    pub is_shadow: bool,
    /// The request's cost in tokens, as far as the response has revealed it. `None` if the cost is
    /// unknown; the request is then charged the estimate.
    ///
    /// The cost is unknown if the response contains no figure and nothing could be counted, for
    /// example because the body is compressed or too large to be read. The cost is also unknown if
    /// the response ended before it revealed more than the estimate.
    pub cost: Option<u64>,
    /// The total charged for the request, and the tokens that could not be charged. Tokens cannot
    /// be charged beyond the tokens left in the limit plus its maximum debt.
    ///
    /// Tokens count as given back as soon as the refund is requested. A shared limiter may fail to
    /// give these tokens back, for example if its store is unreachable.
    pub settlement: Settlement,
    /// Whether this limit has [cut the response off](crate::ResponseCost::cut_off).
    pub is_cut: bool,
}
