//! What the layer tells those who count and watch.

use crate::head::RequestHead;
use tollgate::Decision;

/// What one limit said to one request; see [`on_decision`](crate::RateLimitBuilder::on_decision).
///
/// A request that several limits were asked about is told of once for each of them.
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
///         println!("{}: charged {charged}, refused: {}", event.limit(), event.is_refused());
///     })
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub(crate) limit: &'a str,
    pub(crate) request: RequestHead<'a>,
    pub(crate) decision: Option<&'a Decision>,
    /// Does the limit deny this request, or would it if it were not in shadow mode?
    pub(crate) denies: bool,
    pub(crate) shadow: bool,
    pub(crate) binding: bool,
    pub(crate) refused: bool,
}

impl<'a> Event<'a> {
    /// The limit's name.
    pub fn limit(&self) -> &'a str {
        self.limit
    }

    /// The request.
    pub fn request(&self) -> RequestHead<'a> {
        self.request
    }

    /// What the limit decided; `None` if it found no key. Of a refused request, a [shared](crate::Limit::shared) limit
    /// that allowed it says what it charged and is given back.
    pub fn decision(&self) -> Option<&'a Decision> {
        self.decision
    }

    /// Is the limit in shadow mode?
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Is this the limit that the answer of a refused request names?
    pub fn is_binding(&self) -> bool {
        self.binding
    }

    /// Was the request refused, by this limit or another?
    pub fn is_refused(&self) -> bool {
        self.refused
    }

    /// Is this a limit in shadow mode that would have refused, also for want of a key?
    pub fn would_refuse(&self) -> bool {
        self.shadow && self.denies
    }
}
