//! A clock that its owner sets.

use crate::sync::{Atomic, Ordering::Relaxed};
use crate::time::Tick;
use std::sync::Arc;
use std::time::Duration;

/// A clock that moves only when its owner sets or advances it.
///
/// All clones of a clock share one time.
///
/// # Orderings
///
/// All operations are relaxed, because a reading is a number that publishes no other data, and a
/// limiter accepts any reading.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Tick};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_nanos(5));
/// assert_eq!(clock.now(), Tick::from_nanos(5));
/// clock.set(Tick::ZERO);
/// assert_eq!(clock.now(), Tick::ZERO);
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Atomic<u64>>);

impl Default for ManualClock {
    fn default() -> Self {
        Self(Arc::new(Atomic::new(0)))
    }
}

impl ManualClock {
    /// Creates a clock whose time is [`Tick::ZERO`].
    ///
    /// Pass the clock, or a reference to it, to a limiter's builder, and keep the clock or a clone.
    /// A test can then move the clock instead of sleeping.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Quota};
    ///
    /// let clock = ManualClock::new();
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(1)).clock(&clock).build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the time to which the clock was set, or [`Tick::ZERO`] initially.
    ///
    /// ```
    /// assert_eq!(tollgate::ManualClock::new().now(), tollgate::Tick::ZERO);
    /// ```
    #[inline]
    pub fn now(&self) -> Tick {
        // ORDERING: relaxed; see the type.
        Tick::from_nanos(self.0.load(Relaxed))
    }

    /// Moves the clock to `now`, forward or backward.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Tick};
    /// let clock = ManualClock::new();
    /// clock.set(Tick::MAX);
    /// assert_eq!(clock.now(), Tick::MAX);
    /// ```
    pub fn set(&self, now: Tick) {
        // ORDERING: relaxed; see the type.
        self.0.store(now.as_nanos(), Relaxed);
    }

    /// Moves the clock forward by `by`, up to [`Tick::MAX`].
    ///
    /// # Progress
    ///
    /// This method is lock-free. If two threads advance the clock at the same time, both advances
    /// count.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Tick};
    /// let clock = ManualClock::new();
    /// clock.advance(Duration::MAX);
    /// assert_eq!(clock.now(), Tick::MAX);
    /// ```
    pub fn advance(&self, by: Duration) {
        // ORDERING: both accesses are relaxed; see the type.
        let _always =
            self.0.fetch_update(Relaxed, Relaxed, |now| Some((Tick::from_nanos(now) + by).as_nanos()));
    }
}
