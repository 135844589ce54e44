//! The algorithms and their names.

use std::fmt;

/// The algorithm that enforces a quota, an argument of
/// [`Builder::algorithm`](crate::Builder::algorithm).
///
/// An algorithm parses from its name. `gcra` is another name of the token bucket, which is computed
/// as GCRA.
///
/// ```
/// use tollgate::Algorithm;
///
/// assert_eq!("sliding-window".parse(), Ok(Algorithm::SlidingWindow));
/// assert_eq!(Algorithm::TokenBucket.to_string(), "token-bucket");
/// assert_eq!("gcra".parse(), Ok(Algorithm::TokenBucket));
/// assert_eq!(
///     "magic".parse::<Algorithm>().unwrap_err().to_string(),
///     "unknown algorithm \"magic\"; allowed: token-bucket, leaky-bucket, leaky-queue, \
///      fixed-window, sliding-window, sliding-log"
/// );
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket of tokens that refills steadily, computed exactly, as GCRA (the generic cell rate
    /// algorithm, ITU-T I.371). Any interval admits at most the burst and the tokens that refill
    /// during the interval.
    #[default]
    TokenBucket,
    /// A bucket that requests fill and that leaks steadily, as a meter. It makes the same decisions
    /// as the token bucket.
    LeakyBucket,
    /// A leaky bucket as a queue: the decision for an allowed request contains the time at which
    /// the request may start ([`Decision::start_after`](crate::Decision::start_after)).
    ///
    /// A request gets its turn when it is admitted, so this algorithm is for requests that are not
    /// cancelled. A request that gives up leaves its turn empty, and a refund of the last turns
    /// lets others start early. For callers that may give up, or must not wait past a deadline, use
    /// the queues of [`tollgate-wait`](https://docs.rs/tollgate-wait).
    LeakyQueue,
    /// A count for each window, with fixed boundaries ([`WindowAlign`](crate::WindowAlign)): an
    /// interval that is as long as the period and crosses a boundary admits at most twice the
    /// limit.
    FixedWindow,
    /// A weighted count over the current and the previous window, which assumes that the requests
    /// of the previous window were spread evenly. Any interval as long as the period admits about
    /// the limit, and never more than twice the limit.
    SlidingWindow,
    /// The time of every admission. Any trailing period admits at most the limit, exactly, for any
    /// costs of the requests. The limit is at most 1,000,000, and a burst is not supported.
    ///
    /// The state of a log does not fit into a word, so it needs [exact
    /// keys](crate::Builder::exact_keys) or a [`SingleLimiter`](crate::SingleLimiter). A key takes
    /// 8 to 24 bytes for each admission in the period, whatever its cost, and a few hundred bytes
    /// more. This memory is allocated as it is needed. A check costs a binary search.
    ///
    /// A check that runs concurrently with a refund of several tokens may see a part of the refund.
    /// A refund never returns too many tokens. A refund that runs concurrently with a change of the
    /// key's quota may be lost: its tokens are then free when the charge leaves the period, as
    /// without a refund.
    ///
    /// If the time of a request is before the last admission, because another thread was faster,
    /// the request is decided and counted at the time of that admission. The bound holds for the
    /// times at which admissions are counted.
    SlidingLog,
}

impl Algorithm {
    /// All algorithms, in the order of their declaration.
    ///
    /// ```
    /// # use tollgate::Algorithm;
    /// assert!(Algorithm::ALL.contains(&Algorithm::default()));
    /// ```
    pub const ALL: [Self; 6] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::LeakyQueue,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingLog,
    ];

    /// The algorithms whose state is one packed word, which every [`Limiter`](crate::Limiter)
    /// supports.
    #[doc(hidden)]
    pub const PACKED: [Self; 5] =
        [Self::TokenBucket, Self::LeakyBucket, Self::LeakyQueue, Self::FixedWindow, Self::SlidingWindow];

    /// Whether the algorithm counts in windows that have boundaries. (A sliding log has no
    /// boundaries.)
    ///
    /// ```
    /// # use tollgate::Algorithm;
    /// assert!(Algorithm::FixedWindow.has_windows());
    /// assert!(!Algorithm::TokenBucket.has_windows());
    /// ```
    pub const fn has_windows(self) -> bool {
        matches!(self, Self::FixedWindow | Self::SlidingWindow)
    }

    /// Whether the algorithm supports a burst. (For other algorithms the capacity is the limit.)
    ///
    /// ```
    /// # use tollgate::Algorithm;
    /// assert!(Algorithm::TokenBucket.has_burst());
    /// assert!(!Algorithm::SlidingLog.has_burst());
    /// ```
    pub const fn has_burst(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket | Self::LeakyQueue)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::LeakyQueue => "leaky-queue",
            Self::FixedWindow => "fixed-window",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingLog => "sliding-log",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
