//! The rules for exact keys: the default rule, and the rules for individual keys.
//!
//! # State
//!
//! `default` is the rule for all keys without a rule of their own. A compare-and-swap replaces the
//! default. `own` is an index of the keys that have their own rule, or had one until recently. Each
//! entry contains a chain of *terms*, of which the last applies:
//!
//! ```text
//! term:  Rule -> Rule      the key's own rule is replaced
//!        Rule -> Default   the own rule is removed; the default applies again
//!        Default -> Rule   the key gets an own rule again
//!        Default -> Over   the entry will be removed from the index; no term follows
//! entry: linked -> unlinked   once its term is Over, by the first thread that removes it
//! ```
//!
//! `changes` counts the changes of both kinds, and is incremented after each change.
//!
//! # Why an entry outlives the own rule
//!
//! scc frees a removed entry only when no thread reads any of its indexes. If one thread is stopped
//! in a lookup, a quota that is set and removed again and again would occupy more and more memory.
//! The terms of one entry are replaced in place, and are freed by `reclaim`, which a stopped thread
//! cannot hinder for long. Up to [`KEPT`] entries without a rule therefore stay in the index.
//!
//! Each further removal also unlinks its entry. While a thread is stopped, unlinked entries are not
//! freed. Once there are `4 * n + SPARE` entries for `n` own rules, no further key receives its
//! first own rule, unless scc's epoch has advanced ([`Quotas::has_room`]).
//!
//! # Progress
//!
//! Reading a rule is lock-free, and searches the index only if a key has its own rule. Changing the
//! default is lock-free. Two operations take scc's lock on one bucket of the index: inserting an
//! entry, and unlinking it.
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
use crate::state::{Counts, SharedRule, Since, StateRule, Versioned, Wanted};
use crate::stats::size;
use crate::sync::{
    Atomic, Counter, Index, Item,
    Ordering::{Acquire, Relaxed, Release},
};
use equivalent::Equivalent;
use std::sync::Arc;

/// How many entries without a rule stay in the index.
const KEPT: u64 = 256;

/// How many entries may exist in addition to four for each own rule.
const SPARE: u64 = 1 << 16;

/// All rules of a store.
pub(super) struct Quotas<K: 'static> {
    changes: Atomic<u64>,
    counts: Arc<Counts>,
    /// Terms that were replaced but may not be freed yet.
    retired: Bag,
    default: Terms,
    own: Index<Arc<OwnQuota<K>>>,
    /// The number of keys that have their own rule, or are about to get one.
    count: Atomic<u64>,
    /// The number of entries in the index whose key has no own rule.
    kept: Atomic<u64>,
    /// The number of entries that are not freed yet, including unlinked entries.
    unfreed: Arc<Counter>,
}

/// The entry of a key that has its own rule, or had one until recently.
#[derive(Debug)]
pub(super) struct OwnQuota<K> {
    hash: u64,
    key: K,
    terms: Terms,
    _counted: Counted,
}

/// Counts an entry until the index frees it.
#[derive(Debug)]
struct Counted(Arc<Counter>);

/// A chain of terms. Threads read the last one while other threads append the next.
#[derive(Debug)]
struct Terms(Root<Term>);

#[derive(Debug)]
struct Term {
    ruling: Ruling,
    since: Since,
    /// The term that replaced this one, or null in the last term.
    next: Link<Term>,
}

/// The meaning of a term.
#[derive(Clone, Debug)]
enum Ruling {
    Rule(Arc<SharedRule>),
    Default,
    Over,
}

impl<K: Eq + Send + Sync + 'static> Quotas<K> {
    pub(super) fn new(default: Enforced<StateRule>) -> Self {
        let counts = Counts::new();
        let default = Ruling::Rule(SharedRule::new(default, &counts));
        Self {
            changes: Atomic::new(0),
            default: Terms::new(default, &Since::START),
            counts,
            retired: Bag::new(),
            own: Index::new(),
            count: Atomic::new(0),
            kept: Atomic::new(0),
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
        let (rule, since) = self.latest_default();
        Wanted { rule, changes, since }
    }

    fn latest_default(&self) -> (Arc<SharedRule>, Since) {
        match self.default.latest(&self.retired) {
            (Ruling::Rule(rule), since) => (rule, since),
            (Ruling::Default | Ruling::Over, _) => unreachable!("the default is always a rule"),
        }
    }

    /// Returns whether keys have logs rather than words.
    pub(super) fn are_of_logs(&self) -> bool {
        matches!(self.latest_default().0.rule, StateRule::Log(_))
    }

    /// Returns a key's rule: its own rule, or the default.
    pub(super) fn of<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) -> Wanted {
        let changes = self.changes();
        let (own, lost) = match self.term(key) {
            Some((Ruling::Rule(rule), since)) => (Some((rule, since)), Since::START),
            Some((Ruling::Default, lost)) => (None, lost),
            Some((Ruling::Over, _)) | None => (None, Since::START),
        };
        let (rule, since) = own.unwrap_or_else(|| {
            let (rule, since) = self.latest_default();
            (rule, since.later(lost))
        });
        Wanted { rule, changes, since }
    }

    /// Returns the counts of cells and versions that use these rules and are not freed yet.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn term<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) -> Option<(Ruling, Since)> {
        if self.count() == 0 {
            return None;
        }
        self.own.find(key.hash, key.is_key_of(), |own| own.terms.latest(&self.retired))
    }

    /// Returns the key's own rule, if it has one.
    pub(super) fn own<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) -> Option<Arc<SharedRule>> {
        match self.term(key)? {
            (Ruling::Rule(rule), _) => Some(rule),
            (Ruling::Default | Ruling::Over, _) => None,
        }
    }

    /// Returns the keys that have their own rule, with the quota of the rule.
    #[cfg(feature = "serde")]
    pub(super) fn all_own(&self) -> Vec<(K, crate::quota::Quota)>
    where
        K: Clone,
    {
        let own = self.own.all().into_iter().filter_map(|own| match own.terms.latest(&self.retired).0 {
            Ruling::Rule(rule) => Some((own.key.clone(), rule.quota)),
            Ruling::Default | Ruling::Over => None,
        });
        own.collect()
    }

    /// Returns the number of keys that have their own rule.
    pub(super) fn count(&self) -> u64 {
        // ORDERING: relaxed, because `count` is raised before `changes`. Therefore a key whose
        // change is counted in `changes` is also counted here.
        self.count.load(Relaxed)
    }

    /// Returns whether `keys` more entries are permitted.
    pub(super) fn has_room(&self, keys: usize) -> bool {
        self.unfreed.get() + keys as u64 <= 4 * (self.count() + keys as u64) + SPARE
    }

    /// Returns the size in bytes of all rules, the versions of states that use them, and the index.
    /// Memory owned by the keys themselves is not included.
    pub(super) fn bytes(&self) -> usize {
        const COUNTS: usize = 2 * size_of::<usize>();
        const TERM: usize = Link::<Term>::BYTES;
        let each = COUNTS + size_of::<OwnQuota<K>>() + TERM;
        Versioned::version_bytes(&self.counts)
            + TERM
            + size(self.unfreed.get()) * each
            + self.own.capacity() * Index::<Arc<OwnQuota<K>>>::ITEM_BYTES
            + self.retired.bytes()
    }

    /// Replaces the default rule. Returns false, and changes nothing, if the quota is the same.
    pub(super) fn set_default(&self, rule: Enforced<StateRule>, since: &Since) -> bool {
        let is_new = |last: &Ruling| !last.has_quota_of(rule);
        let replaced = self.default.replace(|| self.rule(rule), since, is_new, &self.retired);
        if replaced.is_some() {
            self.note_change();
        }
        replaced.is_some()
    }

    fn rule(&self, rule: Enforced<StateRule>) -> Ruling {
        Ruling::Rule(SharedRule::new(rule, &self.counts))
    }

    /// Sets or replaces a key's own rule. Returns false, and changes nothing, if the key's own rule
    /// already has this quota.
    pub(super) fn set(&self, hash: u64, key: K, rule: Enforced<StateRule>, since: &Since) -> bool {
        // ORDERING: relaxed, because the count of changes publishes this value.
        self.count.fetch_add(1, Relaxed);
        // ORDERING: relaxed, like the increment. The increment is undone if the key already has an
        // own rule, or if a comparison of keys panics.
        let uncount = Undo::unless_done(|| _ = self.count.fetch_sub(1, Relaxed));
        let (terms, counted) = (Terms::new(self.rule(rule), since), Counted::new(&self.unfreed));
        let mut new = Arc::new(OwnQuota { hash, key, terms, _counted: counted });
        loop {
            let Err(refused) = self.own.insert(new) else {
                uncount.done();
                break;
            };
            new = refused;
            // Another thread may remove the entry at any time.
            let Some(own) = self.own.find(hash, |own| own.key == new.key, Arc::clone) else { continue };
            let is_new = |last: &Ruling| !matches!(last, Ruling::Over) && !last.has_quota_of(rule);
            match own.terms.replace(|| self.rule(rule), since, is_new, &self.retired) {
                Some(Ruling::Rule(_)) => break,
                Some(Ruling::Default | Ruling::Over) => {
                    // ORDERING: relaxed; a count.
                    self.kept.fetch_sub(1, Relaxed);
                    uncount.done();
                    break;
                }
                None if own.is_over(&self.retired) => self.unlink(&own),
                None => return false,
            }
        }
        self.note_change();
        true
    }

    /// Removes a key's own rule, if it has one, and calls `visit`, which moves the key's state to
    /// the default rule.
    pub(super) fn remove<Q: Equivalent<K> + ?Sized>(
        &self,
        key: Asked<'_, Q>,
        since: &Since,
        visit: impl Fn(),
    ) {
        let Some(own) = self.own.find(key.hash, key.is_key_of(), Arc::clone) else { return };
        let is_rule = |last: &Ruling| matches!(last, Ruling::Rule(_));
        // ORDERING: relaxed; a count. It is raised first, so that it never falls below 0.
        let kept = self.kept.fetch_add(1, Relaxed) + 1;
        if own.terms.replace(|| Ruling::Default, since, is_rule, &self.retired).is_none() {
            // ORDERING: relaxed; a count.
            self.kept.fetch_sub(1, Relaxed);
            return;
        }
        // ORDERING: relaxed; a count. The key stays counted until its state was visited, so that
        // every thread that moves the state finds the time of the removal.
        let _uncount = Undo::unless_done(|| _ = self.count.fetch_sub(1, Relaxed));
        self.note_change();
        visit();
        let is_default = |last: &Ruling| matches!(last, Ruling::Default);
        if kept > KEPT && own.terms.replace(|| Ruling::Over, since, is_default, &self.retired).is_some() {
            // ORDERING: relaxed; a count.
            self.kept.fetch_sub(1, Relaxed);
            self.unlink(&own);
        }
    }

    /// Removes an entry from the index, unless another thread has already removed it. Its last term
    /// must be [`Ruling::Over`].
    fn unlink(&self, own: &Arc<OwnQuota<K>>) {
        self.own.remove(own.hash, |other| Arc::ptr_eq(other, own));
    }

    fn note_change(&self) {
        // ORDERING: release side of *changed*, which publishes this change. Because a
        // read-modify-write continues earlier release sequences, all changes counted before are
        // published as well.
        self.changes.fetch_add(1, Release);
    }
}

impl<K> OwnQuota<K> {
    fn is_over(&self, retired: &Bag) -> bool {
        matches!(self.terms.latest(retired).0, Ruling::Over)
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

impl Ruling {
    fn has_quota_of(&self, rule: Enforced<StateRule>) -> bool {
        matches!(self, Self::Rule(own) if own.quota == rule.quota)
    }
}

impl Terms {
    fn new(ruling: Ruling, since: &Since) -> Self {
        Self(Root::to(Term { ruling, since: since.clone(), next: Link::null() }))
    }

    fn latest(&self, retired: &Bag) -> (Ruling, Since) {
        under_guard(|guard| {
            let Term { ruling, since, .. } = self.last(guard, retired)?;
            Ok((ruling.clone(), since.clone()))
        })
    }

    /// Appends a term if `is_due` returns true for the last term. Returns the ruling of the
    /// replaced term.
    fn replace(
        &self,
        new: impl Fn() -> Ruling,
        since: &Since,
        is_due: impl Fn(&Ruling) -> bool,
        retired: &Bag,
    ) -> Option<Ruling> {
        let replaced = under_guard(|guard| {
            let last = self.last(guard, retired)?;
            if !is_due(&last.ruling) {
                return Ok(None);
            }
            let new = Term { ruling: new(), since: since.clone(), next: Link::null() };
            let installed = last.next.install(new, guard);
            installed.map(|_| Some(last.ruling.clone())).map_err(|_| Retry)
        });
        self.latest(retired);
        retired.tidy();
        replaced
    }

    /// Returns the last term, and retires all terms before it.
    fn last<'g>(&'g self, guard: &'g Guard, retired: &Bag) -> Result<&'g Term, Retry> {
        let mut term = self.0.load(guard)?.expect("there is always a term");
        while let Some(next) = term.next()? {
            self.0.advance(&term, guard, retired);
            term = next;
        }
        Ok(term.get())
    }
}

impl Chained for Term {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl Retire for Term {
    /// Returns the size of the term alone, because rules are counted separately.
    fn bytes(&self) -> usize {
        Link::<Self>::BYTES
    }
}

impl<K: Eq> Item for Arc<OwnQuota<K>> {
    type Key = K;

    fn hash(&self) -> u64 {
        self.hash
    }

    fn key(&self) -> &K {
        &self.key
    }
}
