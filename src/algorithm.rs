//! The algorithms by name.

use std::fmt;

/// The algorithms by name. `gcra` is understood as the token bucket, which it is.
///
/// ```
/// use tollgate::Algorithm;
///
/// assert_eq!("sliding-window".parse(), Ok(Algorithm::SlidingWindow));
/// assert_eq!(Algorithm::TokenBucket.to_string(), "token-bucket");
/// assert_eq!("gcra".parse(), Ok(Algorithm::TokenBucket));
/// assert_eq!(
///     "magic".parse::<Algorithm>().unwrap_err().to_string(),
///     "unknown algorithm \"magic\"; allowed: token-bucket, leaky-bucket, leaky-queue, fixed-window, \
///      sliding-window, sliding-log"
/// );
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket of tokens that refills steadily, computed as GCRA: see
    /// [`TokenBucket`](crate::rule::TokenBucket).
    #[default]
    TokenBucket,
    /// A bucket that requests fill and that leaks steadily, as a meter: see [`LeakyBucket`](crate::rule::LeakyBucket).
    LeakyBucket,
    /// The same bucket as a queue: an allowed request is told when its turn comes.
    LeakyQueue,
    /// A count per window of fixed boundaries: see [`FixedWindow`](crate::rule::FixedWindow).
    FixedWindow,
    /// A weighted count over the present and the previous window: see [`SlidingWindow`](crate::rule::SlidingWindow).
    SlidingWindow,
    /// The time of every admission: in any trailing period exactly the limit at most, whatever the requests
    /// cost. The limit is 1,000,000 at the most, and there is no burst.
    ///
    /// Its state is no word, so it takes [exact keys](crate::Builder::exact_keys) or a
    /// [`SingleLimiter`](crate::SingleLimiter). Memory of a key is 8 to 24 bytes for each admission in the period, whatever it took, and a few hundred more; it is allocated as it is
    /// used. A check costs a binary search.
    ///
    /// A refund of several tokens may be seen in part while it is under way, by checks that run beside it; it never
    /// gives back too much.
    ///
    /// A request whose time is before the last admission (another thread was quicker) is judged and counted
    /// at the time of that one: the bound is over the times at which admissions are counted.
    SlidingLog,
}

impl Algorithm {
    /// All of them, in the order of their declaration.
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

    /// Those whose state is one packed word: what a [`Limiter`](crate::Limiter) takes.
    ///
    /// ```
    /// # use tollgate::Algorithm;
    /// assert!(!Algorithm::PACKED.contains(&Algorithm::SlidingLog));
    /// ```
    pub const PACKED: [Self; 5] =
        [Self::TokenBucket, Self::LeakyBucket, Self::LeakyQueue, Self::FixedWindow, Self::SlidingWindow];

    /// Does it count in windows that have boundaries, and no burst? (A sliding log has neither.)
    ///
    /// ```
    /// # use tollgate::Algorithm;
    /// assert!(Algorithm::FixedWindow.has_windows());
    /// assert!(!Algorithm::TokenBucket.has_windows());
    /// ```
    pub const fn has_windows(self) -> bool {
        matches!(self, Self::FixedWindow | Self::SlidingWindow)
    }

    /// Does it take a burst? (What counts admissions in a period has the limit for its capacity.)
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
