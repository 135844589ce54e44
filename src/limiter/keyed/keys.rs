//! All keys of a limiter: statistics, sweeps, clearing, and the list of exact keys.

use super::limiter::Limiter;
use crate::decision::Decision;
use crate::exact::Entry;
use crate::limiter::store::exact_keys::ExactKeys;
use crate::limiter::store::interface::Store;
use crate::stats::Stats;
use crate::time::Tick;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

impl<K: ?Sized, S: Store> Limiter<K, S> {
    /// Returns the statistics of this limiter, such as its keys, its memory and its turnovers.
    ///
    /// Insertions and turnovers update the statistics. Charges of known keys do not.
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

    /// Performs upkeep for up to `budget` slots. Call this method when the caller has time to
    /// spare. Returns true if more upkeep is left to do.
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

    /// Performs upkeep like [`sweep`](Self::sweep), with the time that `clock` returns.
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

/// A tracked key, and its state at one moment.
///
/// Returned by [`Limiter::keys`] and [`Limiter::most_denied`].
///
/// ```
/// use tollgate::{Limiter, Quota};
///
/// let limiter = Limiter::<String>::builder(Quota::per_hour(5)).exact_keys().build()?;
/// assert!(limiter.check_n("alice", 2).is_allowed());
/// let alice = limiter.keys().next().expect("alice is tracked");
/// assert_eq!((alice.key().as_str(), alice.used(), alice.decision().remaining()), ("alice", 2, 3));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
pub struct KeyState<K> {
    cell: Arc<Entry<K>>,
    decision: Decision,
}

impl<K> KeyState<K> {
    /// Returns the key.
    pub fn key(&self) -> &K {
        self.cell.key()
    }

    /// Returns the decision that [`Limiter::peek`] would have returned if the key were not
    /// [paused](Limiter::pause). All figures describe the state before a charge.
    pub fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns how many tokens of the capacity are missing, that is, charged and not yet refilled.
    ///
    /// The number is at most the [capacity](Decision::capacity), even if the key is in
    /// [debt](crate::Builder::max_debt). The [`reset_after`](Decision::reset_after) of the
    /// [decision](Self::decision) includes the time for which a debt lasts.
    pub fn used(&self) -> u64 {
        self.decision.capacity().saturating_sub(self.decision.remaining())
    }

    /// Returns how often the key has been denied since it was inserted. The count stops at
    /// 4,294,967,295.
    ///
    /// Denials of a [paused](Limiter::pause) key count. If [`check_all`](crate::check_all) denies a
    /// request, the denial counts for each key that denies the request, in any order of the
    /// charges. Peeks do not count.
    ///
    /// The count is always 0 unless the limiter [counts denials](crate::Builder::count_denials).
    pub fn denied(&self) -> u32 {
        self.cell.denied()
    }
}

impl<K: fmt::Debug> fmt::Debug for KeyState<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyState")
            .field("key", self.key())
            .field("denied", &self.denied())
            .field("decision", &self.decision)
            .finish()
    }
}

/// An iterator over the tracked keys of a limiter.
pub(crate) struct Keys<'l, K: 'static, H> {
    limiter: &'l Limiter<K, ExactKeys<K, H>>,
    now: Tick,
    next: u32,
    end: u32,
}

impl<K: Eq + Send + Sync + 'static, H: BuildHasher + Clone + Send + Sync + 'static> Iterator
    for Keys<'_, K, H>
{
    type Item = KeyState<K>;

    fn next(&mut self) -> Option<KeyState<K>> {
        while self.next < self.end {
            let place = self.next;
            self.next += 1;
            let Some(cell) = self.limiter.store.store.cell(place) else { continue };
            // If the state has been sealed in the meantime, the key was idle and has been
            // forgotten.
            if let Some(decision) = self.limiter.store.store.peek_at(&cell, self.now) {
                return Some(KeyState { cell, decision });
            }
        }
        None
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some((self.end - self.next) as usize))
    }
}

impl<'l, K: Eq + Send + Sync, H> Keys<'l, K, H> {
    /// Iterates over the tracked keys, and returns the state of each key at `now`.
    pub(crate) fn of(limiter: &'l Limiter<K, ExactKeys<K, H>>, now: Tick) -> Self {
        Self { limiter, now, next: 0, end: limiter.store.store.end() }
    }
}

impl<K: Eq + Send + Sync + 'static, H: BuildHasher + Clone + Send + Sync + 'static>
    Limiter<K, ExactKeys<K, H>>
{
    /// Iterates over the tracked keys and their states, in no particular order.
    ///
    /// The iterator reads the state of a key when it reaches the key. It computes all figures for
    /// the time at which `keys` was called. A key that is tracked during the whole iteration is
    /// returned exactly once. A key inserted or forgotten during the iteration may or may not be
    /// returned. Idle keys remain tracked until they are forgotten, so the iterator may also return
    /// idle keys.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::<u64>::builder(Quota::per_hour(5)).exact_keys().build()?;
    /// for key in [7, 8, 7] {
    ///     let _ = limiter.check(&key);
    /// }
    /// let used = limiter.keys().map(|key| (*key.key(), key.used()));
    /// let mut used: Vec<(u64, u64)> = used.collect();
    /// used.sort();
    /// assert_eq!(used, [(7, 2), (8, 1)]);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn keys(&self) -> impl Iterator<Item = KeyState<K>> + use<'_, K, H> {
        Keys::of(self, self.clock.now())
    }

    /// Returns up to `count` keys with the most denials, in descending order of denials.
    ///
    /// Keys that have never been denied are omitted. The list is empty unless the limiter [counts
    /// denials](crate::Builder::count_denials).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let builder = Limiter::<u64>::builder(Quota::per_hour(1)).exact_keys();
    /// let limiter = builder.count_denials().build()?;
    /// for key in [1, 2, 2, 2, 3, 3] {
    ///     let _ = limiter.check(&key);
    /// }
    /// let most: Vec<(u64, u32)> =
    ///     limiter.most_denied(10).iter().map(|key| (*key.key(), key.denied())).collect();
    /// assert_eq!(most, [(2, 2), (3, 1)]);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn most_denied(&self, count: usize) -> Vec<KeyState<K>> {
        // The smallest count is at the top of the heap, where a larger count replaces it. The index
        // makes each entry unique.
        let mut most = BinaryHeap::new();
        let now = self.clock.now();
        for place in 0..self.store.store.end() {
            let denied = self.store.store.cell(place).map_or(0, |cell| cell.denied());
            if denied > 0 {
                most.push(Reverse((denied, place)));
                if most.len() > count {
                    most.pop();
                }
            }
        }
        let mut most: Vec<KeyState<K>> = most
            .into_iter()
            .filter_map(|Reverse((_, place))| Keys { limiter: self, now, next: place, end: place + 1 }.next())
            .collect();
        most.sort_by_key(|key| Reverse(key.denied()));
        most
    }
}
