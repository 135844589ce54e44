//! The cost of a request.

use crate::head::RequestHead;
use crate::settle::estimator::Estimator;
use std::fmt;
use std::sync::Arc;

/// The number of tokens that a limit charges for a request. The default is 1.
///
/// A plain number, as in `.cost(10)`, is a fixed cost for every request. It must be at least 1. The
/// cost is determined before the request is handled. A [`ResponseCost`](crate::ResponseCost) can
/// correct the cost afterwards.
///
/// ```
/// use tollgate_http::{RequestCost, KeyBy, Limit, WhenNoKey};
/// use tollgate::{Limiter, Quota};
///
/// // A mebibyte a second of uploads, in kibibytes; bodies of unknown length count as 64 KiB.
/// let limiter = Limiter::builder(Quota::per_second(1024)).build()?;
/// let uploads = Limit::new("uploads", limiter)
///     .by(KeyBy::peer())
///     .when_no_key(WhenNoKey::Deny)
///     .cost(RequestCost::content_length(1024, 64));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use]
pub struct RequestCost {
    pub(crate) kind: CostKind,
}

pub(crate) enum CostKind {
    Fixed(u64),
    ContentLength { unit: u64, unknown: u64 },
    Closure(Box<dyn Fn(RequestHead<'_>) -> u64 + Send + Sync>),
    Estimated { estimator: Arc<Estimator>, asked: Box<FindDeclared> },
}

/// Finds a request's class, and the maximum costs that the request declares.
type FindDeclared = dyn for<'a> Fn(RequestHead<'a>) -> (&'a str, Option<u64>) + Send + Sync;

impl RequestCost {
    /// Charges one token for each `unit` bytes of `Content-Length`, rounded up, and at least one
    /// token. If the header is missing, charges `unknown` tokens; with 0, any client can evade the
    /// limit by leaving the header out, which is a [warning](crate::BuildWarning). A request that
    /// costs more than the burst is always refused.
    ///
    /// ```
    /// # use tollgate_http::RequestCost;
    /// let kibibytes = RequestCost::content_length(1024, 64);
    /// ```
    pub const fn content_length(unit: u64, unknown: u64) -> Self {
        Self { kind: CostKind::ContentLength { unit, unknown } }
    }

    /// Charges the number of tokens returned by a closure. If the closure returns 0, the request
    /// passes without a charge.
    ///
    /// ```
    /// # use tollgate_http::RequestCost;
    /// let cost = RequestCost::from_fn(|head| if head.path() == "/search" { 5 } else { 1 });
    /// ```
    pub fn from_fn(cost: impl Fn(RequestHead<'_>) -> u64 + Send + Sync + 'static) -> Self {
        Self { kind: CostKind::Closure(Box::new(cost)) }
    }

    /// Charges the estimate of an [`Estimator`]. If the learned estimate exceeds the limit's
    /// capacity, the request is charged the capacity instead. Until the estimator has learned
    /// enough, a request is refused if it declares a maximum above the capacity.
    ///
    /// `asked` returns a request's class, and the maximum cost that each of the request's fields
    /// declares.
    ///
    /// ```
    /// use tollgate_http::{RequestCost, Estimator, ResponseCost};
    ///
    /// // The fields that an earlier middleware has read from the request.
    /// #[derive(Clone)]
    /// struct Asked {
    ///     model: String,
    ///     prompt: u64,
    ///     max_tokens: Option<u64>,
    ///     max_completion_tokens: Option<u64>,
    /// }
    ///
    /// let estimator = Estimator::new(0.95, 1000, ["small", "large"])?;
    /// let cost = RequestCost::estimated(estimator, |head| match head.extensions().get::<Asked>() {
    ///     Some(it) => {
    ///         // A client may declare any number.
    ///         let whole = |answer| it.prompt.saturating_add(answer);
    ///         (&it.model, [it.max_tokens.map(whole), it.max_completion_tokens.map(whole)])
    ///     }
    ///     None => ("", [None, None]),
    /// });
    /// # Ok::<(), tollgate_http::LayerError>(())
    /// ```
    pub fn estimated<F, const N: usize>(estimator: impl Into<Arc<Estimator>>, asked: F) -> Self
    where
        F: for<'a> Fn(RequestHead<'a>) -> (&'a str, [Option<u64>; N]) + Send + Sync + 'static,
    {
        let asked: Box<FindDeclared> = Box::new(move |head| {
            let (class, declared) = asked(head);
            (class, declared.into_iter().flatten().max())
        });
        Self { kind: CostKind::Estimated { estimator: estimator.into(), asked } }
    }

    /// Returns whether the cost is counted in units of 0 bytes, which is an error.
    pub(crate) fn has_no_unit(&self) -> bool {
        matches!(self.kind, CostKind::ContentLength { unit: 0, .. })
    }

    /// Returns whether a request without `Content-Length` costs nothing.
    pub(crate) fn is_free_without_length(&self) -> bool {
        matches!(self.kind, CostKind::ContentLength { unknown: 0, .. })
    }

    /// Returns the cost of a request in a limit whose capacity is `capacity` tokens.
    pub(crate) fn of(&self, head: RequestHead<'_>, capacity: impl FnOnce() -> u64) -> u64 {
        match &self.kind {
            CostKind::Fixed(tokens) => *tokens,
            CostKind::ContentLength { unit, unknown } => match head.content_length() {
                Some(bytes) => bytes.div_ceil((*unit).max(1)).max(1),
                None => *unknown,
            },
            CostKind::Closure(cost) => cost(head),
            CostKind::Estimated { estimator, asked } => {
                let (class, most) = asked(head);
                estimator.estimate_within(capacity(), class, most)
            }
        }
    }

    /// Returns the estimator's class for a request, if there is an estimator.
    pub(crate) fn class(&self, head: RequestHead<'_>) -> Option<usize> {
        match &self.kind {
            CostKind::Estimated { estimator, asked } => Some(estimator.class(asked(head).0)),
            CostKind::Fixed(_) | CostKind::ContentLength { .. } | CostKind::Closure(_) => None,
        }
    }

    /// Records the actual cost of a request in this class of the estimator, if there is one.
    pub(crate) fn learn(&self, class: Option<usize>, cost: u64) {
        if let (CostKind::Estimated { estimator, .. }, Some(class)) = (&self.kind, class) {
            estimator.learn(class, cost);
        }
    }
}

/// Creates a fixed cost of this number of tokens, at least 1.
impl From<u64> for RequestCost {
    fn from(tokens: u64) -> Self {
        Self { kind: CostKind::Fixed(tokens) }
    }
}

impl fmt::Debug for RequestCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            CostKind::Fixed(tokens) => write!(f, "{tokens}"),
            CostKind::ContentLength { unit, unknown } => write!(f, "content_length({unit}, {unknown})"),
            CostKind::Closure(_) => f.write_str("closure"),
            CostKind::Estimated { estimator, .. } => estimator.fmt(f),
        }
    }
}
