//! The bounds of queues.

use std::time::Duration;

/// How many may wait, and how long the first may hesitate.
///
/// ```
/// use std::time::Duration;
/// use tollgate_wait::WaitSettings;
///
/// let patience = Duration::from_secs(5);
/// let settings = WaitSettings::default().max_waiters_per_key(100).patience(patience);
/// # let _ = settings;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitSettings {
    pub(crate) max_waiters: usize,
    pub(crate) max_waiters_per_key: usize,
    pub(crate) patience: Duration,
    pub(crate) jitter: Duration,
}

impl Default for WaitSettings {
    fn default() -> Self {
        Self {
            max_waiters: 65_536,
            max_waiters_per_key: 1_024,
            patience: Duration::from_secs(1),
            jitter: Duration::ZERO,
        }
    }
}

impl WaitSettings {
    /// The most callers that wait at a time, for all keys together: 65,536 by default. One more is
    /// refused with [`WaitError::Full`](crate::WaitError::Full). With 0 nobody waits.
    #[must_use]
    pub fn max_waiters(self, max_waiters: usize) -> Self {
        Self { max_waiters, ..self }
    }

    /// The most callers that wait at a time for one key: 1,024 by default. One more is refused with
    /// [`WaitError::Full`](crate::WaitError::Full). With 0 nobody waits.
    #[must_use]
    pub fn max_waiters_per_key(self, max_waiters_per_key: usize) -> Self {
        Self { max_waiters_per_key, ..self }
    }

    /// How long a waiter whose turn has come may take to act before it loses its place: one second
    /// by default. It delays those behind it by no more than that.
    ///
    /// A time that is shorter than the delays of a busy runtime, or than a check of a shared limit
    /// takes, costs waiters their places; nothing is admitted in excess by it. A container that has
    /// used up its processor quota stands still for up to a period of the quota, usually 100 ms,
    /// and for several periods if it has many threads.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Adds a random time from zero to `jitter` to each sleep of the first waiter, so that many
    /// processes with one limit do not call at the same instant. Zero by default. A wait that is
    /// accepted as just in time may expire by it.
    #[must_use]
    pub fn jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// A time that the first waiter sleeps if it can be admitted after `wait`.
    pub(crate) fn sleep_for(&self, wait: Duration) -> Duration {
        let most = u64::try_from(self.jitter.as_nanos()).unwrap_or(u64::MAX);
        if most == 0 { wait } else { wait.saturating_add(Duration::from_nanos(fastrand::u64(..=most))) }
    }
}
