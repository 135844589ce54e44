//! The figures of a limiter and its store.

/// The figures of a limiter, as [`Limiter::stats`](crate::Limiter::stats) returns them.
///
/// While other threads use the limiter, the figures are not read at one common moment.
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
    /// Tracked keys, as [`Limiter::len`](crate::Limiter::len).
    pub keys: usize,
    /// The number of keys for which the table has room before it turns over, to grow or to forget
    /// idle keys.
    pub room: usize,
    /// The most keys that may be tracked.
    pub max_keys: usize,
    /// The number of turnovers of the table.
    pub turnovers: u64,
    /// Idle keys that were forgotten.
    pub evicted: u64,
    /// Checks of new keys that found the table full and that [`WhenFull`](crate::WhenFull)
    /// answered.
    pub refused: u64,
    /// Keys that have a quota of their own, tracked or not: see
    /// [`Limiter::set_key_quota`](crate::Limiter::set_key_quota).
    pub own_quotas: usize,
    /// The bytes that the limiter takes, including all memory that it has allocated.
    pub bytes: usize,
}

/// Converts a count of objects in memory to `usize`, where it always fits.
pub(crate) fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
