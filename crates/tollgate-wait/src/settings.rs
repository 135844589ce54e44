//! The bounds and intervals of queues.

use std::time::Duration;

/// The limits on the number of waiters, and the first waiter's intervals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) max_waiters: usize,
    pub(crate) max_waiters_per_key: usize,
    pub(crate) patience: Duration,
    pub(crate) jitter: Duration,
    pub(crate) recheck: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_waiters: 65_536,
            max_waiters_per_key: 1_024,
            patience: Duration::from_secs(1),
            jitter: Duration::ZERO,
            recheck: Duration::from_secs(1),
        }
    }
}

impl Settings {
    /// Returns how long the first waiter sleeps if it can be admitted after `wait`, or at an
    /// unknown time.
    pub(crate) fn sleep_for(&self, wait: Option<Duration>) -> Duration {
        let sleep = wait.map_or(self.recheck, |wait| wait.min(self.recheck));
        let most = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        if most == 0 { sleep } else { sleep.saturating_add(Duration::from_nanos(fastrand::u64(..=most))) }
    }
}
