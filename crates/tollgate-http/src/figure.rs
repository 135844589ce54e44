//! Defines [`Figure`], a number that a limiter reports to its layer's metrics.

use std::fmt;
use tollgate::Stats;

/// A number that a limiter reports to [`Metrics`](crate::Metrics), with its name and description.
///
/// [`AsyncLimiter::figures`](crate::AsyncLimiter::figures) returns figures.
///
/// ```
/// use tollgate_http::Figure;
///
/// let figures = [
///     // The name in the metrics ends with `_total`.
///     Figure::counter("myapp_store_errors", "Answers of the store that were errors", 3),
///     Figure::gauge("myapp_store_lag_seconds", "How far the store is behind", 0),
/// ];
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) grows: bool,
    pub(crate) value: u64,
}

impl Figure {
    /// Creates a figure whose value only grows. The name consists of letters, digits and `_`. It
    /// must not end with `_total`, because the metrics add that ending.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, grows: true, value }
    }

    /// Creates a figure whose value can go down as well as up. The name consists of letters, digits
    /// and `_`.
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, grows: false, value }
    }
}

impl fmt::Debug for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.value)
    }
}

/// Reads the figures of a limiter. Returns `None` if the limiter no longer exists.
pub(crate) type ReadFigures = dyn Fn() -> Option<Vec<Figure>> + Send + Sync;

/// Returns the figures of a process-local keyed limiter.
pub(crate) fn of_keys(stats: &Stats) -> Vec<Figure> {
    vec![
        Figure::gauge("tollgate_keys", "Keys that the limit tracks", stats.keys as u64),
        Figure::gauge("tollgate_keys_max", "The most keys that the limit may track", stats.max_keys as u64),
        Figure::gauge("tollgate_limiter_memory_bytes", "Bytes that the limit holds", stats.bytes as u64),
        Figure::counter("tollgate_keys_forgotten", "Idle keys that were forgotten", stats.evicted),
    ]
}
