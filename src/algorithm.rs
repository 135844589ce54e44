//! The algorithms and their names.

use std::fmt;

/// The algorithm that enforces a quota. Pass it to
/// [`Builder::algorithm`](crate::Builder::algorithm).
///
/// An algorithm can be parsed from its name. `gcra` is another name for the token bucket, which is
/// computed with GCRA.
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
    /// A bucket of tokens that refills steadily. The implementation is exact, and uses GCRA (the
    /// generic cell rate algorithm, ITU-T I.371). In any interval, it admits at most the burst plus
    /// the tokens refilled during the interval.
    #[default]
    TokenBucket,
    /// A bucket used as a meter: requests fill it, and it leaks steadily. It makes the same
    /// decisions as the token bucket.
    LeakyBucket,
    /// A leaky bucket used as a queue. The decision for an allowed request specifies when the
    /// request may start ([`Decision::start_after`](crate::Decision::start_after)).
    ///
    /// A request receives its turn when it is admitted, so this algorithm suits requests that are
    /// never cancelled. A cancelled request leaves its turn empty, and refunding the last turns
    /// lets other requests start early. For callers that may give up, or must not wait past a
    /// deadline, use the queues of [`tollgate-wait`](https://docs.rs/tollgate-wait).
    LeakyQueue,
    /// A count for each window, with fixed boundaries ([`WindowAlign`](crate::WindowAlign)). An
    /// interval that is as long as the period and crosses a boundary admits at most twice the
    /// limit. A key whose first request arrives late in a window may still use the whole limit
    /// before the window ends.
    FixedWindow,
    /// A weighted count over the current and the previous window. The weighting assumes that the
    /// requests in the previous window were spread evenly. An interval as long as the period admits
    /// about the limit, and never more than twice the limit.
    ///
    /// The weighted count is rounded up, so part of the previous window counts until the window
    /// ends. If there are always more requests than a limit of `n` admits, this algorithm therefore
    /// admits only `n - 1` tokens in each period: 50 % of the limit if `n` is 2, 80 % if `n` is 5,
    /// 90 % if `n` is 10, and 99 % if `n` is 100. A limit of 1 admits one token in every second
    /// period, which is also 50 %. For a small limit, use a [`SlidingLog`](Algorithm::SlidingLog),
    /// which admits 100 % and never more than the limit, or a
    /// [`TokenBucket`](Algorithm::TokenBucket), which admits 100 %.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Algorithm, ManualClock, Quota, SingleLimiter};
    ///
    /// let clock = ManualClock::new();
    /// let quota = Quota::new(2, Duration::from_secs(10));
    /// let builder = SingleLimiter::builder(quota).algorithm(Algorithm::SlidingWindow);
    /// let limiter = builder.clock(&clock).build()?;
    /// let mut admitted = 0;
    /// // A request every 10 ms, for a thousand periods.
    /// for _ in 0..1_000_000 {
    ///     admitted += limiter.check().charged();
    ///     clock.advance(Duration::from_millis(10));
    /// }
    /// // The quota permits two requests in a period. The first period admits both.
    /// assert_eq!(admitted, 1_001);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    SlidingWindow,
    /// A record of the time of every admission. In any trailing period, at most the limit is
    /// admitted. This bound is exact, whatever the requests cost. The limit is at most 1,000,000,
    /// and a burst is not supported.
    ///
    /// The state of a log does not fit into a word, so a sliding log requires [exact
    /// keys](crate::Builder::exact_keys) or a [`SingleLimiter`](crate::SingleLimiter). A key
    /// occupies 8 to 24 bytes for each admission in the period, whatever the admission costs, plus
    /// a few hundred bytes, and more if charges are refunded
    /// ([`ExactKeys`](crate::store::ExactKeys) states the formula). This memory is allocated on
    /// demand. A check performs a binary search.
    ///
    /// A check that runs concurrently with a refund of several tokens may see only part of the
    /// refund. A refund never returns too many tokens, but it may be lost if the key's quota
    /// changes at the same time. The tokens then become free when the charge leaves the period, as
    /// they would without a refund.
    ///
    /// If another thread gets there first, a request's time may be earlier than the last admission.
    /// Such a request is decided and counted at the time of the last admission. The bound holds for
    /// the times at which admissions are counted.
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

    /// The algorithms whose state is one packed word. Every [`Limiter`](crate::Limiter) supports
    /// them.
    #[doc(hidden)]
    pub const PACKED: [Self; 5] =
        [Self::TokenBucket, Self::LeakyBucket, Self::LeakyQueue, Self::FixedWindow, Self::SlidingWindow];

    /// Returns true if the algorithm counts in windows with boundaries. (A sliding log has no
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

    /// Returns true if the algorithm supports a burst. (For other algorithms, the capacity is the
    /// limit.)
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
