//! The figures of a limiter and its store.

/// A limiter's figures, as returned by [`Limiter::stats`](crate::Limiter::stats).
///
/// While other threads use the limiter, the figures may be read at slightly different moments.
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
    /// The number of tracked keys, as returned by [`Limiter::len`](crate::Limiter::len).
    pub keys: usize,
    /// How many keys fit into the table, including the tracked keys. When the table is full, a
    /// turnover grows it or forgets idle keys.
    pub room: usize,
    /// The maximum number of tracked keys.
    pub max_keys: usize,
    /// The number of turnovers of the table.
    pub turnovers: u64,
    /// The number of idle keys that were forgotten.
    pub evicted: u64,
    /// How many checks of new keys were answered according to [`WhenFull`](crate::WhenFull),
    /// because the table was full.
    pub refused: u64,
    /// The number of keys with their own quota, whether or not these keys are tracked: see
    /// [`Limiter::set_key_quota`](crate::Limiter::set_key_quota).
    pub own_quotas: usize,
    /// The number of bytes that the limiter occupies, including all memory that it has allocated.
    pub bytes: usize,
}

/// Converts a count of objects in memory to `usize`. The count always fits.
pub(crate) fn size(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
