//! The rules for exact keys: the default rule, and the rules for individual keys.
//!
//! # State
//!
//! `default` is the rule for all keys without a rule of their own. A compare-and-swap replaces the
//! default. `own` is an index of the keys that have their own rule. Each entry contains the key's
//! rule, which is replaced in the same way. `changes` counts both kinds of change, and is
//! incremented after each change.
//!
//! # Progress
//!
//! Reading a rule is lock-free, and searches the index only if the index is not empty. Changing the
//! default is lock-free. Two operations take scc's lock on one bucket of the index: giving a key
//! its own rule for the first time, and removing a key's own rule.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | changed | `Quotas::note_change` | `Quotas::changes` | the change that was counted, and all before it | `quota_swap_races_charge_and_none_is_lost` |
//!
//! A change first increments `changes` and then visits the keys. An insertion first links its cell
//! and then reads `changes`, so it usually sees a change whose visit has missed the cell. If both
//! run at the same moment, a processor may reorder the two steps of each, and the insertion charges
//! the cell under the earlier rule. The next use of the key sees the change.

use super::entry::Asked;
use super::undo::Undo;
use crate::quota::Enforced;
use crate::reclaim::{Bag, Chained, Guard, Link, Retire, Retry, Root, under_guard};
use crate::state::{Counts, SharedRule, StateRule, Versioned, Wanted};
use crate::stats::size;
use crate::sync::{
    Atomic, Counter, Index, Item,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::time::Tick;
use equivalent::Equivalent;
use std::sync::Arc;

/// All rules of a store.
pub(super) struct Quotas<K: 'static> {
    changes: Atomic<u64>,
    /// The time of the latest change.
    since: Atomic<u64>,
    counts: Arc<Counts>,
    /// Rules that were replaced but may not be freed yet.
    retired: Bag,
    default: Replaced,
    own: Index<Arc<Own<K>>>,
    /// The number of keys that are in the index or about to be inserted.
    count: Atomic<u64>,
    /// The number of keys that the index has not freed yet, including removed keys.
    unfreed: Arc<Counter>,
}

/// A key and its own rule.
#[derive(Debug)]
pub(super) struct Own<K> {
    hash: u64,
    key: K,
    rule: Replaced,
    _counted: Counted,
}

/// Counts a key with its own rule until the index frees the key.
#[derive(Debug)]
struct Counted(Arc<Counter>);

/// A rule that may be replaced while other threads read it.
#[derive(Debug)]
struct Replaced(Root<Version>);

#[derive(Debug)]
struct Version {
    rule: Arc<SharedRule>,
    /// The version that replaced this one, or null in the latest version.
    next: Link<Version>,
}

impl<K: Eq + Send + Sync + 'static> Quotas<K> {
    pub(super) fn new(default: Enforced<StateRule>) -> Self {
        let counts = Counts::new();
        Self {
            changes: Atomic::new(0),
            since: Atomic::new(0),
            default: Replaced::new(default, &counts),
            counts,
            retired: Bag::new(),
            own: Index::new(),
            count: Atomic::new(0),
            unfreed: Arc::new(Counter::new()),
        }
    }

    /// Returns the number of changes. Callers must read this number before they read a rule.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        // ORDERING: acquire side of *changed*.
        self.changes.load(Acquire)
    }

    /// Returns the rule that applies to all keys without a rule of their own.
    pub(super) fn default(&self) -> Wanted {
        let changes = self.changes();
        Wanted { rule: self.default.latest(&self.retired), changes, since: self.since() }
    }

    /// Returns whether keys have logs rather than words.
    pub(super) fn are_of_logs(&self) -> bool {
        matches!(self.default.latest(&self.retired).rule, StateRule::Log(_))
    }

    /// Returns a key's rule: its own rule, or the default.
    pub(super) fn of<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) -> Wanted {
        let changes = self.changes();
        let rule = self.own(key).unwrap_or_else(|| self.default.latest(&self.retired));
        Wanted { rule, changes, since: self.since() }
    }

    fn since(&self) -> Tick {
        // ORDERING: relaxed, because the count of changes publishes the time. A later time belongs
        // to a change that is not counted yet.
        Tick::from_nanos(self.since.load(Relaxed))
    }

    /// Returns the counts of cells and versions that use these rules and are not freed yet.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the key's own rule, if it has one.
    pub(super) fn own<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) -> Option<Arc<SharedRule>> {
        if self.count() == 0 {
            return None;
        }
        self.own.find(key.hash, |own| key.is(own), |own| own.rule.latest(&self.retired))
    }

    /// Returns the number of keys that have their own rule.
    pub(super) fn count(&self) -> u64 {
        // ORDERING: relaxed, because `count` is raised before `changes`. Therefore a key whose
        // change is counted in `changes` is also counted here.
        self.count.load(Relaxed)
    }

    /// Returns the size in bytes of all rules, the versions of states that use them, and the index.
    /// Memory owned by the keys themselves is not included.
    pub(super) fn bytes(&self) -> usize {
        const COUNTS: usize = 2 * size_of::<usize>();
        const VERSION: usize = Link::<Version>::BYTES;
        let each = COUNTS + size_of::<Own<K>>() + VERSION;
        Versioned::version_bytes(&self.counts)
            + VERSION
            + size(self.unfreed.get()) * each
            + self.own.capacity() * Index::<Arc<Own<K>>>::ITEM_BYTES
            + self.retired.bytes()
    }

    pub(super) fn set_default(&self, rule: Enforced<StateRule>, now: Tick) {
        self.default.replace(rule, now, &self.counts, &self.retired);
        self.note_change(now);
    }

    /// Sets or replaces a key's own rule.
    pub(super) fn set(&self, hash: u64, key: K, rule: Enforced<StateRule>, now: Tick) {
        // ORDERING: relaxed, because the count of changes publishes this value.
        self.count.fetch_add(1, Relaxed);
        // ORDERING: relaxed, like the increment. The increment is undone if the key is already in
        // the index, or if a comparison of keys panics.
        let uncount = Undo::unless_done(|| _ = self.count.fetch_sub(1, Relaxed));
        let before = self.default.latest(&self.retired).rule;
        let first = Enforced { rule: rule.rule.after(&before, now), ..rule };
        let (first, counted) = (Replaced::new(first, &self.counts), Counted::new(&self.unfreed));
        let new = Arc::new(Own { hash, key, rule: first, _counted: counted });
        match self.own.insert(new) {
            Ok(()) => uncount.done(),
            Err(new) => {
                drop(uncount);
                let replace = |own: &Arc<Own<K>>| own.rule.replace(rule, now, &self.counts, &self.retired);
                if self.own.find(hash, |own| own.key == new.key, replace).is_none() {
                    // Another thread has removed the key in the meantime.
                    return self.set_removed(new, rule, now);
                }
            }
        }
        self.note_change(now);
    }

    /// Retries [`set`](Self::set) after another thread has removed the key.
    #[cold]
    fn set_removed(&self, new: Arc<Own<K>>, rule: Enforced<StateRule>, now: Tick) {
        match Arc::try_unwrap(new) {
            Ok(Own { hash, key, .. }) => self.set(hash, key, rule, now),
            Err(_) => unreachable!("it was not inserted"),
        }
    }

    /// Removes a key's own rule. Returns whether the key had its own rule.
    pub(super) fn remove<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>, now: Tick) -> bool {
        // Join the rules first, so that the default rule takes the key's own rule into account
        // before it applies to the key.
        if let Some(own) = self.own(key) {
            self.default.join(&own.rule, now, &self.counts, &self.retired);
        }
        let removed = self.own.remove(key.hash, |own| key.is(own));
        if removed {
            // ORDERING: relaxed, because the count of changes publishes this value.
            self.count.fetch_sub(1, Relaxed);
            self.note_change(now);
        }
        removed
    }

    fn note_change(&self, now: Tick) {
        let later = |since: u64| (since < now.as_nanos()).then(|| now.as_nanos());
        // ORDERING: both accesses are relaxed, because the count of changes publishes the time.
        let _ = self.since.fetch_update(Relaxed, Relaxed, later);
        // ORDERING: release side of *changed*, which publishes this change. Because a
        // read-modify-write continues earlier release sequences, all changes counted before are
        // published as well.
        self.changes.fetch_add(1, Release);
    }
}

impl Counted {
    fn new(count: &Arc<Counter>) -> Self {
        count.add(1);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sub_one();
    }
}

impl Replaced {
    fn new(rule: Enforced<StateRule>, counts: &Arc<Counts>) -> Self {
        Self(Root::to(Version::new(rule, counts)))
    }

    fn latest(&self, retired: &Bag) -> Arc<SharedRule> {
        under_guard(|guard| Ok(Arc::clone(&self.last(guard, retired)?.rule)))
    }

    fn replace(&self, rule: Enforced<StateRule>, now: Tick, counts: &Arc<Counts>, retired: &Bag) {
        let next = |last: &SharedRule| Enforced { rule: rule.rule.after(&last.rule, now), ..rule };
        self.replace_by(next, counts, retired);
    }

    /// Records that some keys under this rule may have been under the rule `own` until `now`.
    fn join(&self, own: &StateRule, now: Tick, counts: &Arc<Counts>, retired: &Bag) {
        let next = |last: &SharedRule| Enforced { rule: last.rule.after(own, now), quota: last.quota };
        self.replace_by(next, counts, retired);
    }

    fn replace_by(
        &self,
        next: impl Fn(&SharedRule) -> Enforced<StateRule>,
        counts: &Arc<Counts>,
        retired: &Bag,
    ) {
        under_guard(|guard| {
            let last = self.last(guard, retired)?;
            let next = next(&last.rule);
            if next.rule == last.rule.rule && next.quota == last.rule.quota {
                return Ok(());
            }
            let new = Version::new(next, counts);
            last.next.install(new, guard).map(drop).map_err(|_| Retry)
        });
        self.latest(retired);
        retired.tidy();
    }

    /// Returns the latest version, and retires all versions before it.
    fn last<'g>(&'g self, guard: &'g Guard, retired: &Bag) -> Result<&'g Version, Retry> {
        let mut version = self.0.load(guard)?.expect("there is always a version");
        while let Some(next) = version.next()? {
            self.0.advance(&version, guard, retired);
            version = next;
        }
        Ok(version.get())
    }
}

impl Chained for Version {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl Retire for Version {
    /// Returns the size of the version alone, because rules are counted separately.
    fn bytes(&self) -> usize {
        Link::<Self>::BYTES
    }
}

impl Version {
    fn new(rule: Enforced<StateRule>, counts: &Arc<Counts>) -> Self {
        Self { rule: SharedRule::new(rule, counts), next: Link::null() }
    }
}

impl<K: Eq> Item for Arc<Own<K>> {
    type Key = K;

    fn hash(&self) -> u64 {
        self.hash
    }

    fn key(&self) -> &K {
        &self.key
    }
}
