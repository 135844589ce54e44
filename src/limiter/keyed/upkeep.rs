//! Upkeep of a limiter: its figures, sweeps, and forgetting all keys.

use super::limiter::Limiter;
use crate::limiter::store::interface::Store;
use crate::stats::Stats;
use crate::time::Tick;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// What this limiter holds and has done.
    ///
    /// Charges of known keys count nothing; the figures come from what insertions and turnovers
    /// keep.
    ///
    /// # Progress
    ///
    /// Lock-free. With [sliding logs](crate::Algorithm::SlidingLog) lock-free, and it visits every
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

    /// Does up to `budget` slots' worth of upkeep, for callers with an idle moment; returns whether
    /// more is left to do.
    ///
    /// A sweep continues a turnover of the table that is under way. Otherwise it begins one, to
    /// forget idle keys and give their memory back, unless the last one began less than a
    /// [`grace`](crate::Builder::grace) ago. It returns true while this turnover is not complete:
    /// so `while limiter.sweep(4096) {}` ends, and has forgotten the keys that were idle when the
    /// turnover began.
    ///
    /// The time of a sweep counts once four of its steps in a row have reached it, each with its
    /// own reading of the clock, and no insertion in between contradicts (see
    /// [Time](Limiter#time)). So a budget of 64 is enough, and a smaller one takes a few calls,
    /// which return true. After 16 steps a sweep uses the time that counts so far. `budget` counts
    /// slots, of which a table has half as many again as keys; it is rounded up to a multiple of
    /// 16, and 0 does nothing.
    ///
    /// A limiter works without sweeps: insertions make room for themselves, and one in 2048 charges
    /// of known keys helps. Sweep to get back the memory of a flood when few requests come.
    ///
    /// # Progress
    ///
    /// Lock-free. May allocate the next part of the table.
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

    /// [`sweep`](Self::sweep) by a clock.
    pub(crate) fn sweep_by(&self, budget: usize, clock: &dyn Fn() -> Tick) -> bool {
        let is_more = self.store.sweep(budget, clock);
        self.pauses.sweep(budget, clock) || is_more
    }

    /// Makes every key as good as new, and forgets all keys.
    ///
    /// This includes the shared state of [`WhenFull::Share`](crate::WhenFull::Share). A key that is
    /// charged meanwhile is forgotten, or keeps the charge. A later [`refund`](Self::refund) gives
    /// back nothing of what was charged before or meanwhile.
    ///
    /// Some keys are made as good as new and forgotten later: those in a window that began less
    /// than a [`grace`](crate::Builder::grace) ago, and all keys if there is no memory to turn the
    /// table over. The table keeps its size until it has been hardly used for a while.
    ///
    /// # Progress
    ///
    /// Lock-free; takes time in proportion to the size of the table. May allocate the next part of
    /// the table.
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

    /// [`clear`](Self::clear) by a clock.
    pub(crate) fn clear_by(&self, clock: &dyn Fn() -> Tick) {
        self.resets.note(|| self.beyond.overflow.visit_as_is(|state| state.reset()));
        self.store.clear(clock, &self.resets);
        self.pauses.clear(clock, &self.resets);
    }

    /// The number of keys in the table, as an upper bound.
    ///
    /// It counts keys that are being inserted, up to `max_keys` keys for which a slot was looked
    /// for a moment ago, and idle keys that are not forgotten yet.
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

    /// Whether the table holds no keys.
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
