//! Upkeep of a limiter: statistics, sweeps, and clearing all keys.

use super::limiter::Limiter;
use crate::limiter::store::interface::Store;
use crate::stats::Stats;
use crate::time::Tick;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Returns the statistics of this limiter, such as its keys, its memory and its turnovers.
    ///
    /// Insertions and turnovers update the statistics. Charges of known keys do not.
    ///
    /// # Progress
    ///
    /// This method is lock-free. With [sliding logs](crate::Algorithm::SlidingLog) it visits every
    /// key to add up the bytes.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
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

    /// Does upkeep for up to `budget` slots, for callers that have idle time. Returns true if more
    /// upkeep is left to do.
    ///
    /// A sweep continues a turnover that is in progress. Otherwise, it starts a turnover to forget
    /// idle keys and free their memory, unless the last turnover started less than a
    /// [`grace`](crate::Builder::grace) ago. The method returns true until this turnover is
    /// complete. The loop `while limiter.sweep(4096) {}` therefore ends after it has forgotten the
    /// keys that were idle when the turnover started.
    ///
    /// A sweep does not trust a single reading of the clock, so it reads the clock again in each
    /// step. It judges keys by its own time once four consecutive steps have reached that time and
    /// no insertion in between contradicts it (see [Time](Limiter#time)). A budget of 64 suffices
    /// for this; a smaller budget requires a few calls, which return true. After 16 steps, a sweep
    /// judges keys by the time that has been accepted so far.
    ///
    /// `budget` counts slots, and a table has three slots for every two keys. `budget` is rounded
    /// up to a multiple of 16; a budget of 0 does nothing.
    ///
    /// A limiter also works without sweeps, because insertions create the space that they need, and
    /// one in 2048 charges of known keys helps. If few requests arrive after a flood of keys, sweep
    /// to free the memory of these keys.
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

    /// Does upkeep like [`sweep`](Self::sweep), with the time that `clock` returns.
    pub(crate) fn sweep_by(&self, budget: usize, clock: &dyn Fn() -> Tick) -> bool {
        let is_more = self.store.sweep(budget, clock);
        self.pauses.sweep(budget, clock) || is_more
    }

    /// Resets every key to the state of a new key, and forgets all keys.
    ///
    /// The call also resets the shared state of [`WhenFull::Share`](crate::WhenFull::Share). If a
    /// key is charged during the call, either the limiter forgets the key or the charge remains.
    /// After the call, a [`refund`](Self::refund) of a charge made before or during the call has no
    /// effect.
    ///
    /// If there is no memory for a turnover, the keys are reset now and forgotten later. The table
    /// does not shrink until it has been nearly unused for a while.
    ///
    /// # Progress
    ///
    /// This method is lock-free. Its duration is proportional to the size of the table, and it may
    /// allocate the next part of the table.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(limiter.check("alice").is_allowed());
    /// limiter.clear();
    /// assert!(limiter.is_empty());
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clear(&self) {
        self.clear_by(&|| self.clock.now());
    }

    /// Clears like [`clear`](Self::clear), with the time that `clock` returns.
    pub(crate) fn clear_by(&self, clock: &dyn Fn() -> Tick) {
        self.resets.note(|| self.beyond.overflow.visit_as_is(|state| state.reset()));
        self.store.clear(clock, &self.resets);
        self.pauses.clear(clock, &self.resets);
    }

    /// Returns an upper bound on the number of keys in the table.
    ///
    /// The number includes keys that are being inserted, up to `max_keys` keys that have recently
    /// searched for a slot, and idle keys that have not been forgotten yet.
    ///
    /// # Progress
    ///
    /// This method is lock-free.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = limiter.check("alice");
    /// assert_eq!(limiter.len(), 1);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn len(&self) -> usize {
        self.store.keys()
    }

    /// Returns true if the table contains no keys.
    ///
    /// # Progress
    ///
    /// Same as [`len`](Self::len).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(limiter.is_empty());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
