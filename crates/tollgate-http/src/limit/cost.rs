//! The cost of a request.

use crate::head::RequestHead;
use std::fmt;

/// The number of tokens that a request takes from a limit; 1 by default.
///
/// ```
/// use tollgate_http::{Cost, KeyBy, Limit, WhenNoKey};
/// use tollgate::{Limiter, Quota};
///
/// // A mebibyte a second of uploads, in kibibytes; bodies of unknown length count as 64 KiB.
/// let limiter = Limiter::builder(Quota::per_second(1024)).build()?;
/// let uploads = Limit::new("uploads", limiter, KeyBy::peer())
///     .when_no_key(WhenNoKey::Deny)
///     .cost(Cost::content_length(1024, 64));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use]
pub struct Cost {
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Fixed(u64),
    ContentLength { unit: u64, unknown: u64 },
    Closure(Box<dyn Fn(RequestHead<'_>) -> u64 + Send + Sync>),
}

impl Cost {
    /// Charges `tokens` for every request; at least 1.
    ///
    /// ```
    /// # use tollgate_http::Cost;
    /// let expensive = Cost::fixed(10);
    /// ```
    pub const fn fixed(tokens: u64) -> Self {
        Self { kind: Kind::Fixed(tokens) }
    }

    /// Charges one token for each `unit` bytes of `Content-Length`, rounded up, and at least one;
    /// or `unknown` tokens if the header is missing. A request that costs more than the burst is
    /// always refused.
    ///
    /// ```
    /// # use tollgate_http::Cost;
    /// let kibibytes = Cost::content_length(1024, 64);
    /// ```
    pub const fn content_length(unit: u64, unknown: u64) -> Self {
        Self { kind: Kind::ContentLength { unit, unknown } }
    }

    /// Charges what a closure returns; 0 lets the request pass without a charge.
    ///
    /// ```
    /// # use tollgate_http::Cost;
    /// let cost = Cost::from_fn(|head| if head.path() == "/search" { 5 } else { 1 });
    /// ```
    pub fn from_fn(cost: impl Fn(RequestHead<'_>) -> u64 + Send + Sync + 'static) -> Self {
        Self { kind: Kind::Closure(Box::new(cost)) }
    }

    pub(crate) fn of(&self, head: RequestHead<'_>) -> u64 {
        match &self.kind {
            Kind::Fixed(tokens) => *tokens,
            Kind::ContentLength { unit, unknown } => match head.content_length() {
                Some(bytes) => bytes.div_ceil((*unit).max(1)).max(1),
                None => *unknown,
            },
            Kind::Closure(cost) => cost(head),
        }
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Fixed(tokens) => write!(f, "{tokens}"),
            Kind::ContentLength { unit, unknown } => write!(f, "content_length({unit}, {unknown})"),
            Kind::Closure(_) => f.write_str("closure"),
        }
    }
}
