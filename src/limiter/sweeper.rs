//! A thread that sweeps a limiter at intervals.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! The stop flag publishes nothing. The thread only has to see it some time after it is set:
//! `unpark` wakes the thread for that, and the thread is joined.

use super::classes::ClassLimiter;
use super::in_flight::InFlight;
use super::keyed::Limiter;
use super::store::Store;
use crate::error::ConfigError;
use crate::sync::{Atomic, Ordering::Relaxed, thread};
use std::sync::Arc;
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Slots to sweep between two reads of the stop flag: some ten microseconds.
const BUDGET: usize = 1024;

/// What a [`Sweeper`] sweeps: a [`Limiter`], an [`InFlight`], or all classes of a [`ClassLimiter`].
///
/// Implement it for a type of your own that holds several limiters.
///
/// ```
/// use tollgate::{Limiter, Sweepable};
///
/// struct Limits {
///     by_user: Limiter<u64>,
///     by_address: Limiter<[u8; 4]>,
/// }
///
/// impl Sweepable for Limits {
///     fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
///         self.by_user.sweep_while(goes_on);
///         self.by_address.sweep_while(goes_on);
///     }
/// }
/// ```
pub trait Sweepable {
    /// Forgets the keys that are idle, and gives memory back: [sweeps](Limiter::sweep) until
    /// nothing is left to do, or until `goes_on` returns false, which it asks after each 1,024
    /// slots.
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool);
}

impl<K: ?Sized, S: Store> Sweepable for Limiter<K, S> {
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
        while goes_on() && self.sweep(BUDGET) {}
    }
}

impl<K: ?Sized, S: Store> Sweepable for InFlight<K, S> {
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
        while goes_on() && self.sweep(BUDGET) {}
    }
}

impl<K: ?Sized, S: Store> Sweepable for ClassLimiter<K, S> {
    fn sweep_while(&self, goes_on: &dyn Fn() -> bool) {
        self.classes().for_each(|(_, class)| class.sweep_while(goes_on));
    }
}

/// A thread that [sweeps](Limiter::sweep) a limiter at intervals, with all its classes.
///
/// It forgets idle keys and gives memory back while no requests come. A limiter works without one:
/// see [`sweep`](Limiter::sweep). Dropping the sweeper ends the thread and waits for its end, which
/// takes some microseconds.
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
    /// Starts a thread that sweeps `limiter` each time that `every` has passed, by the limiter's
    /// own clock.
    ///
    /// `every` is from 1 ms to 24 h; once a minute suits most services.
    ///
    /// # Errors
    ///
    /// [`ConfigError::SweepIntervalOutOfRange`] if the interval is out of range,
    /// [`ConfigError::ThreadRefused`] if the system refuses the thread.
    ///
    /// ```
    /// # use std::{sync::Arc, time::Duration};
    /// # use tollgate::{Sweeper, Limiter, Quota};
    /// let limiter: Arc<Limiter<str>> = Arc::new(Limiter::builder(Quota::per_second(10)).build()?);
    /// let refused = Sweeper::start(limiter, Duration::ZERO).unwrap_err();
    /// assert!(refused.to_string().starts_with("a sweep every 0ns is out of range"));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn start<L>(limiter: Arc<L>, every: Duration) -> Result<Self, ConfigError>
    where
        L: Sweepable + Send + Sync + 'static,
    {
        if !(SHORTEST..=LONGEST).contains(&every) {
            return Err(ConfigError::SweepIntervalOutOfRange { every, least: SHORTEST, most: LONGEST });
        }
        let stop = Arc::new(Atomic::new(false));
        let stopped = Arc::clone(&stop);
        let sweep = move || {
            // ORDERING: relaxed, here and below; see the ledger.
            while !stopped.load(Relaxed) {
                // A spurious wake-up sweeps early, which does no harm.
                thread::park_timeout(every);
                limiter.sweep_while(&|| !stopped.load(Relaxed));
            }
        };
        let thread = thread::Builder::new().name("tollgate-sweep".to_owned()).spawn(sweep);
        let thread = thread.map_err(|_| ConfigError::ThreadRefused)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        // ORDERING: relaxed; `unpark` wakes the thread after it.
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A drop has no way to report a panic of the thread.
            let _ = thread.join();
        }
    }
}
