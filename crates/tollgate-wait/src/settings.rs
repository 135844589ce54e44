//! The bounds of queues.

use std::time::Duration;

/// How many may wait, and how long the first may hesitate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) max_waiters: usize,
    pub(crate) max_waiters_per_key: usize,
    pub(crate) patience: Duration,
    pub(crate) jitter: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_waiters: 65_536,
            max_waiters_per_key: 1_024,
            patience: Duration::from_secs(1),
            jitter: Duration::ZERO,
        }
    }
}

impl Settings {
    /// A time that the first waiter sleeps if it can be admitted after `wait`.
    pub(crate) fn sleep_for(&self, wait: Duration) -> Duration {
        let most = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        if most == 0 { wait } else { wait.saturating_add(Duration::from_nanos(fastrand::u64(..=most))) }
    }
}
