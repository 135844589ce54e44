//! The algorithms and their names.

use std::fmt;

/// The algorithm that enforces a quota, as [`Builder::algorithm`](crate::Builder::algorithm) takes
/// it.
///
/// It parses from its name. `gcra` is another name of the token bucket, which is computed as GCRA.
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
    /// A bucket of tokens that refills steadily, computed as GCRA (the generic cell rate algorithm,
    /// ITU-T I.371), exactly: any interval admits at most the burst and what refills in it.
    #[default]
    TokenBucket,
    /// A bucket that requests fill and that leaks steadily, as a meter. It decides as the token
    /// bucket.
    LeakyBucket,
    /// A leaky bucket as a queue: an allowed request is told when it may start
    /// ([`Decision::start_after`](crate::Decision::start_after)).
    ///
    /// Its turns are given out when requests are admitted, so it is for requests that are not taken
    /// back. A request that gives up leaves its turn empty; a refund of the last turns lets others
    /// start early. For callers that may give up, or must not wait past a deadline, there are the
    /// queues of [`tollgate-wait`](https://docs.rs/tollgate-wait).
    LeakyQueue,
    /// A count for each window, with fixed boundaries
    /// ([`WindowAlign`](crate::WindowAlign)): an interval as long as the period admits at most
    /// twice the limit, where it crosses a boundary.
    FixedWindow,
    /// A weighted count over the present and the previous window, which assumes that the requests
    /// of the previous one were spread evenly: any interval as long as the period admits about the
    /// limit, and never more than twice the limit.
    SlidingWindow,
    /// The time of every admission: any trailing period admits at most the limit, exactly, whatever
    /// the requests cost. The limit is at most 1,000,000, and a burst is not supported.
    ///
    /// Its state does not fit into a word, so it needs [exact keys](crate::Builder::exact_keys) or
    /// a [`SingleLimiter`](crate::SingleLimiter). A key takes 8 to 24 bytes for each admission in
    /// the period, whatever the admission cost, and a few hundred bytes more; they are allocated as
    /// they are used. A check costs a binary search.
    ///
    /// Checks that run beside a refund of several tokens may see a part of it. A refund never gives
    /// back too much. A refund that runs beside a change of the key's quota may be lost: then its
    /// tokens come back when the charge leaves the period, as if they had been kept.
    ///
    /// If a request's time is before the last admission, because another thread was quicker, it is
    /// decided and counted at the time of that admission. The bound holds for the times at which
    /// admissions are counted.
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

    /// Whether it counts in windows that have boundaries. (A sliding log has none.)
    ///
    /// ```
    /// # use tollgate::Algorithm;
    /// assert!(Algorithm::FixedWindow.has_windows());
    /// assert!(!Algorithm::TokenBucket.has_windows());
    /// ```
    pub const fn has_windows(self) -> bool {
        matches!(self, Self::FixedWindow | Self::SlidingWindow)
    }

    /// Whether it supports a burst. (For other algorithms the capacity is the limit.)
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
