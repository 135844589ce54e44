//! Lists the tracked keys of a limiter with exact keys.

use super::limiter::Limiter;
use crate::decision::Decision;
use crate::exact::Entry;
use crate::limiter::store::exact_keys::ExactKeys;
use crate::time::Tick;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

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
