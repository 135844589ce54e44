//! A thread that sweeps a limiter at regular intervals.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! The stop flag publishes no other data. The thread only has to see the flag eventually. To make
//! sure that it does, dropping the sweeper unparks the thread and joins it.

use crate::error::{ConfigError, Refused};
use crate::limiter::build::kind::Sweepable;
use crate::sync::{Atomic, Ordering::Relaxed, thread};
use std::sync::Arc;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A thread that [sweeps](crate::Limiter::sweep) a limiter and all its classes at regular
/// intervals.
///
/// The thread forgets idle keys and frees their memory even while there are no requests. A limiter
/// also works without a sweeper; see [`sweep`](crate::Limiter::sweep). Dropping the sweeper stops
/// the thread and waits until the thread has ended, which takes a few microseconds.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tollgate::{Sweeper, Limiter, Quota};
///
/// let limiter: Arc<Limiter<String>> = Arc::new(Limiter::builder(Quota::per_second(10)).build()?);
/// let sweeper = Sweeper::start(Arc::clone(&limiter), Duration::from_secs(60))?;
/// assert!(limiter.check("alice").is_allowed());
/// drop(sweeper);
/// assert_eq!(Arc::strong_count(&limiter), 1);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping a sweeper ends it"]
pub struct Sweeper {
    stop: Arc<Atomic<bool>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Sweeper {
    /// Starts a thread that sweeps `limiter` at intervals of `every`. The limiter's own clock
    /// determines which keys are idle.
    ///
    /// The interval can be from 1 ms to 24 h. One sweep per minute suits most services.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] if the interval is out of range or the system refuses to start the
    /// thread.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use tollgate::{Sweeper, Limiter, Quota};
    /// let limiter: Arc<Limiter<String>> = Arc::new(Limiter::builder(Quota::per_second(10)).build()?);
    /// let refused = Sweeper::start(limiter, Duration::ZERO).unwrap_err();
    /// assert!(refused.to_string().starts_with("a sweep every 0ns is out of range"));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn start<L>(limiter: Arc<L>, every: Duration) -> Result<Self, ConfigError>
    where
        L: Sweepable + Send + Sync + 'static,
    {
        if !(SHORTEST..=LONGEST).contains(&every) {
            return Err(Refused::SweepIntervalOutOfRange { every, least: SHORTEST, most: LONGEST }.into());
        }
        let stop = Arc::new(Atomic::new(false));
        let stopped = Arc::clone(&stop);
        let sweep = move || {
            // ORDERING: both loads are relaxed, because the flag publishes no other data.
            while !stopped.load(Relaxed) {
                // A spurious wake-up causes an early sweep, which does no harm.
                thread::park_timeout(every);
                limiter.sweep_while(&|| !stopped.load(Relaxed));
            }
        };
        let thread = thread::Builder::new().name("tollgate-sweep".to_owned()).spawn(sweep);
        let thread = thread.map_err(|_| Refused::NoThread)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // ORDERING: relaxed, because the `unpark` below wakes the thread.
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A drop has no way to report a panic of the thread.
            let _ = thread.join();
        }
    }
}
