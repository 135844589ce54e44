//! Looking after a limiter: how large it is, what it has done, forgetting keys.

use super::keyed::Limiter;
use super::store::Store;
use crate::time::Tick;

/// What a [`Limiter`] holds and has done, by [`Limiter::stats`]. Each figure is of its own moment while other
/// threads are at work.
///
/// ```
/// use tollgate::{WhenFull, Limiter, Quota};
///
/// let limiter: Limiter<u64> =
///     Limiter::builder(Quota::per_hour(1)).max_keys(100).when_full(WhenFull::Deny).build()?;
/// for key in 0..150 {
///     let _ = limiter.check(&key);
/// }
/// let stats = limiter.stats();
/// assert_eq!((stats.keys, stats.max_keys, stats.no_room), (100, 100, 50));
/// assert!(stats.turnovers > 0, "the table has grown");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that are tracked, as [`Limiter::len`].
    pub keys: usize,
    /// Keys that are tracked before the table turns over, to grow or to forget idle keys.
    pub capacity: usize,
    /// The most keys that may be tracked.
    pub max_keys: usize,
    /// How often the table was turned over.
    pub turnovers: u64,
    /// Idle keys that were forgotten.
    pub evicted: u64,
    /// Checks of new keys that found no place and got the [full policy](crate::WhenFull).
    pub no_room: u64,
    /// Keys that have a quota of their own ([`Limiter::set_key_quota`]), tracked or not.
    pub own_quotas: usize,
    /// Bytes taken, as [`Limiter::bytes`].
    pub bytes: usize,
}

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// What this limiter holds and has done. Known keys are charged without counting anything; the figures
    /// come from what insertions and turnovers keep.
    ///
    /// # Progress
    ///
    /// Wait-free; with [sliding logs](crate::Algorithm::SlidingLog) lock-free, and it looks at every key to add up
    /// the bytes.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = limiter.check("alice");
    /// assert_eq!(limiter.stats().keys, 1);
    /// assert_eq!(limiter.stats().no_room, 0);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        let figures = self.store.figures();
        Stats {
            keys: figures.keys,
            capacity: figures.capacity,
            max_keys: figures.max_keys,
            turnovers: figures.turnovers,
            evicted: figures.evicted,
            no_room: self.beyond.refused.get(),
            own_quotas: figures.own_quotas,
            bytes: size_of::<Self>() + figures.bytes,
        }
    }

    /// Does up to `budget` slots' worth of upkeep: for callers with an idle moment. It goes on with a
    /// turnover of the table that is under way, or begins one to forget idle keys and give their
    /// memory back, unless the last began less than a [`grace`](crate::Builder::grace) ago. True while that
    /// turnover is not complete, so `while limiter.sweep(4096) {}` ends, and what was idle when the turnover
    /// began is forgotten then. A sweep's time is believed once four of its steps in a row have
    /// reached it, each with a reading of its own of the clock, and no insertion in between
    /// contradicts (see [Time](Limiter#time)): so a budget of 64 is enough, and a smaller one takes
    /// a few calls, which are true. After 16 steps a sweep goes on with what is believed. `budget`
    /// counts slots, which a table has half as many again as keys; it is
    /// rounded up to a multiple of 16, and 0 does nothing.
    ///
    /// A limiter needs no sweeps: insertions make room for themselves, and one in 2048 charges of known keys
    /// helps too. Sweep to have the memory of a flood back although hardly anybody comes.
    ///
    /// # Progress
    ///
    /// Lock-free. May allocate the next part of the table.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Clock, Limiter, Quota};
    /// let clock = Clock::manual();
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
        self.store.sweep(budget, &|| self.clock.now())
    }

    /// [`sweep`](Self::sweep) for those who check at times of their own ([`check_at`](Self::check_at)):
    /// forgets what is idle at `now`. Whoever sweeps is believed, if four steps do so: a `now` that
    /// is far ahead forgets keys that are throttled for others. Each is then charged no earlier
    /// than it would have been idle.
    ///
    /// # Progress
    ///
    /// As [`sweep`](Self::sweep).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_second(1)).build()?;
    /// let _ = limiter.check_at("alice", 1, Tick::ZERO);
    /// while limiter.sweep_at(64, Tick::from_nanos(3_000_000_000)) {}
    /// assert!(limiter.is_empty());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn sweep_at(&self, budget: usize, now: Tick) -> bool {
        self.store.sweep(budget, &|| now)
    }

    /// Makes every key as good as new, the shared state of [`WhenFull::Share`](crate::WhenFull::Share) too, and
    /// forgets them. Keys that are charged meanwhile are forgotten or keep the charge. What was charged before, or meanwhile, is not
    /// given back by a later [`refund`](Self::refund). A key that is in a window which began less than a
    /// [`grace`](crate::Builder::grace) ago is made as good as new and forgotten later, and so are all where
    /// the memory to turn the table over is not to be had. The table keeps its size until it has been
    /// hardly used for a while.
    ///
    /// # Progress
    ///
    /// Lock-free; takes time in proportion to the size of the table. May allocate the next part of the table.
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

    /// [`clear`](Self::clear) for those who check at times of their own ([`check_at`](Self::check_at)).
    ///
    /// # Progress
    ///
    /// As [`clear`](Self::clear).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota, Tick};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let now = Tick::from_nanos(5_000_000_000);
    /// assert!(limiter.check_at("alice", 1, now).is_allowed());
    /// limiter.clear_at(now);
    /// assert!(limiter.check_at("alice", 1, now).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clear_at(&self, now: Tick) {
        self.clear_by(&|| now);
    }

    fn clear_by(&self, clock: &dyn Fn() -> Tick) {
        self.resets.note(|| self.reset_shared());
        self.store.clear(clock, &self.resets);
    }

    /// How many keys the table holds at the most: also counts those that are being inserted (and, up to `max_keys`, those for
    /// which a place was looked for a moment ago), and idle ones that were not forgotten yet.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = limiter.check("alice");
    /// assert_eq!(limiter.len(), 1);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Does the table hold no key?
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

    /// The bytes this limiter takes now, retired parts of the table that are not freed yet included (of
    /// [sliding logs](crate::Algorithm::SlidingLog) those that are in use; it looks at every key for them).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<str> = Limiter::builder(Quota::per_hour(1)).max_keys(1000).build()?;
    /// assert!(limiter.bytes() < 10_000);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.store.figures().bytes
    }
}
