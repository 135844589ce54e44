//! The figures of a limiter and its store.

/// What a limiter holds and has done, by [`Limiter::stats`](crate::Limiter::stats).
///
/// While other threads use the limiter, each figure is read at a moment of its own.
///
/// ```
/// use tollgate::{WhenFull, Limiter, Quota};
///
/// let limiter: Limiter<u64> =
///     Limiter::builder(Quota::per_hour(1)).max_keys(100).when_full(WhenFull::Deny).build()?;
/// for key in 0..150 {
///     let _ = limiter.check(&key);
/// }
/// let stats = limiter.stats();
/// assert_eq!((stats.keys, stats.max_keys, stats.refused), (100, 100, 50));
/// assert!(stats.turnovers > 0, "the table has grown");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that are tracked, as [`Limiter::len`](crate::Limiter::len).
    pub keys: usize,
    /// Keys that the table has room for before it turns over, to grow or to forget idle keys.
    pub room: usize,
    /// The most keys that may be tracked.
    pub max_keys: usize,
    /// How often the table was turned over.
    pub turnovers: u64,
    /// Idle keys that were forgotten.
    pub evicted: u64,
    /// Checks of new keys that found the table full, and were answered by
    /// [`WhenFull`](crate::WhenFull).
    pub refused: u64,
    /// Keys that have a quota of their own, tracked or not: see
    /// [`Limiter::set_key_quota`](crate::Limiter::set_key_quota).
    pub own_quotas: usize,
    /// Bytes taken: the limiter and all that it has allocated.
    pub bytes: usize,
}

/// A count of what is in memory, as a size. It fits.
pub(crate) fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
