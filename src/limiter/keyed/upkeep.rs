//! Upkeep of a limiter: its statistics, sweeps, and clearing all keys.

use super::limiter::Limiter;
use crate::limiter::store::interface::Store;
use crate::stats::Stats;
use crate::time::Tick;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Returns what this limiter holds and has done.
    ///
    /// Charges of known keys update no statistics; the figures are maintained by insertions and
    /// turnovers.
    ///
    /// # Progress
    ///
    /// This method is lock-free. With [sliding logs](crate::Algorithm::SlidingLog) it visits every
    /// key to add up the bytes.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = limiter.check("alice");
    /// assert_eq!(limiter.stats().keys, 1);
    /// assert_eq!(limiter.stats().refused, 0);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let stats = self.store.stats();
        let bytes = size_of::<Self>() + stats.bytes + self.beyond.overflow.bytes() + self.pauses.bytes();
        Stats { refused: self.beyond.refused.get(), bytes, ..stats }
    }

    /// Does upkeep for up to `budget` slots, for callers that have idle time. Returns whether more
    /// is left to do.
    ///
    /// A sweep continues a turnover of the table that is in progress. Otherwise it begins a
    /// turnover to forget idle keys and free their memory, unless the last turnover began less than
    /// a [`grace`](crate::Builder::grace) ago. It returns true until this turnover is complete. The
    /// loop `while limiter.sweep(4096) {}` therefore ends, and has forgotten the keys that were
    /// idle when the turnover began.
    ///
    /// A sweep judges keys by its own time once four consecutive steps have reached that time, each
    /// with its own reading of the clock, and no insertion in between contradicts it (see
    /// [Time](Limiter#time)). A budget of 64 suffices for this; with a smaller budget it takes a few
    /// calls, which return true. After 16 steps, a sweep judges keys by the time that has been
    /// accepted so far. `budget` counts slots, of which a table has half as many again as keys. It
    /// is rounded up to a multiple of 16; a budget of 0 does nothing.
    ///
    /// A limiter works without sweeps: insertions make room for themselves, and one in 2048 charges
    /// of known keys helps. Sweep to free the memory of a flood of keys when there are few
    /// requests.
    ///
    /// # Progress
    ///
    /// This method is lock-free. It may allocate the next part of the table.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, ManualClock, Quota};
    /// let clock = ManualClock::new();
    /// let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(1)).clock(&clock).build()?;
    /// for key in 0..1000 {
    ///     let _ = limiter.check(&key);
    /// }
    /// clock.advance(Duration::from_secs(2));
    /// while limiter.sweep(4096) {}
    /// assert!(limiter.is_empty());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn sweep(&self, budget: usize) -> bool {
        self.sweep_by(budget, &|| self.clock.now())
    }

    /// [`sweep`](Self::sweep) by the clock `clock`.
    pub(crate) fn sweep_by(&self, budget: usize, clock: &dyn Fn() -> Tick) -> bool {
        let is_more = self.store.sweep(budget, clock);
        self.pauses.sweep(budget, clock) || is_more
    }

    /// Resets every key to the state of a new key, and forgets all keys.
    ///
    /// This includes the shared state of [`WhenFull::Share`](crate::WhenFull::Share). A key that is
    /// charged during the call is either forgotten or keeps the charge. A later
    /// [`refund`](Self::refund) gives back nothing of a charge made before or during the call.
    ///
    /// Some keys are reset now and forgotten later: keys in a window that began less than a
    /// [`grace`](crate::Builder::grace) ago, and all keys if there is no memory to turn the table
    /// over. The table keeps its size until it has been nearly unused for a while.
    ///
    /// # Progress
    ///
    /// This method is lock-free. It takes time in proportion to the size of the table, and may
    /// allocate the next part of the table.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// limiter.clear();
    /// assert!(limiter.is_empty());
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clear(&self) {
        self.clear_by(&|| self.clock.now());
    }

    /// [`clear`](Self::clear) by the clock `clock`.
    pub(crate) fn clear_by(&self, clock: &dyn Fn() -> Tick) {
        self.resets.note(|| self.beyond.overflow.visit_as_is(|state| state.reset()));
        self.store.clear(clock, &self.resets);
        self.pauses.clear(clock, &self.resets);
    }

    /// Returns an upper bound on the number of keys in the table.
    ///
    /// The number includes keys that are being inserted, up to `max_keys` keys that searched for a
    /// slot a moment ago, and idle keys that are not forgotten yet.
    ///
    /// # Progress
    ///
    /// This method is lock-free.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = limiter.check("alice");
    /// assert_eq!(limiter.len(), 1);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn len(&self) -> usize {
        self.store.keys()
    }

    /// Returns whether the table holds no keys.
    ///
    /// # Progress
    ///
    /// Same as [`len`](Self::len).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(limiter.is_empty());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
