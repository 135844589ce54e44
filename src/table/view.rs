//! The fast path to a key's word. It searches only the root, which contains most keys. New keys are
//! inserted into the root unless a turnover is under way.
//!
//! In the common case, the fast path has the same effect as `Table::find_or_insert`. It leaves all
//! other cases to that method: a frozen word, a slot that another thread took first, and an array
//! that is full or closed.
//!
//! Nothing is lost if the fast path gives up. A place given to the request is either used by a slot
//! or given back. If the key has claimed a slot whose word is not charged yet, the next lookup
//! finds that slot.

use super::array::Array;
use super::space::{Fingerprint, Line, Miss, Vacant};
use super::step::{Step, reach};
use super::turnover::Table;
use crate::decision::{Decision, Stamp};
use crate::reclaim::{Guard, Retry};
use crate::rule::{Gcra, Updated, Word, begin, take, try_update};
use crate::state::State;
use crate::sync::Atomic;
use crate::time::Tick;

/// A snapshot of the root, taken under a guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'g>(&'g Array);

/// Returns whether a charge of this key at `now` performs a step of upkeep. At any time, this is
/// true for one in 2048 keys. For a given key, it is true for one millisecond in every 2048 (where
/// a millisecond is 2^20 nanoseconds).
///
/// Even while no new keys arrive, a turnover must proceed, and a table that is far too large must
/// shrink. A step takes about a microsecond, several times as long as a check. Therefore fewer than
/// one in a thousand checks may perform a step; otherwise the steps would show in the 99.9th
/// percentile. Denials write nothing, so they perform no steps.
#[inline]
pub(crate) const fn is_turn(hash: u64, now: Tick) -> bool {
    (hash ^ (now.as_nanos() >> 20)).is_multiple_of(2048)
}

impl Table {
    /// Takes a snapshot of the root, which the fast path searches for keys.
    #[inline(always)]
    pub(crate) fn view<'g>(&'g self, guard: &'g Guard) -> Result<View<'g>, Retry> {
        // The root is never null. Treating null as a retry lets a check use one branch for both
        // cases. If the root were null, the slow path would report that.
        let root = self.root.load(guard)?.ok_or(Retry)?;
        Ok(View(root.get()))
    }

    /// Performs a step of upkeep if the key was charged and [`is_turn`] returns true for the key.
    #[inline(always)]
    pub(crate) fn tend_in_turn(&self, is_charged: bool, key: Fingerprint, now: Tick) {
        if is_charged && is_turn(key.bits(), now) {
            self.tend_once(now);
        }
    }

    #[cold]
    fn tend_once(&self, now: Tick) {
        self.tend(1, now);
    }
}

impl<'g> View<'g> {
    /// Returns the first line of the key's probe run, and prefetches the line. Most keys are in the
    /// first line of their run.
    #[inline(always)]
    pub(crate) fn first_line(self, key: Fingerprint) -> &'g Line {
        let lines = &self.0.space.lines;
        let line = &lines[key.home(lines.len())];
        line.prefetch(0);
        line
    }

    /// Returns the bucket shared by all keys. Returns `None` if any key has its own rule, or if the
    /// rule is not a bucket.
    #[inline(always)]
    pub(crate) fn bucket(self) -> Option<Gcra> {
        self.0.rules.bucket
    }

    /// Returns the stamp of charges by [`bucket`](Self::bucket).
    #[inline(always)]
    pub(crate) fn stamp(self) -> Stamp {
        self.0.rules.default.stamp
    }

    /// Returns the state of a key if the key has a slot in the root. The key's word may be fresh or
    /// frozen.
    #[inline(always)]
    pub(crate) fn find(self, key: Fingerprint) -> Option<State<'g>> {
        self.0.space.search(key).ok().map(|word| self.0.state(key, word))
    }

    /// Decides a request for a key whose first line has been searched. Charges the key, denies the
    /// request, or inserts the key with its first charge. The flag is true if anything was charged.
    ///
    /// Returns `None` to leave the request to the slow path, in these cases:
    ///
    /// - The key is in the next array or belongs there.
    /// - The key is new, and the request charges nothing.
    /// - The key is not in its first line, and the rule is not a bucket.
    #[inline(always)]
    pub(crate) fn take_or_insert(
        self,
        found: Result<&'g Atomic<Word>, Miss<'g>>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> Option<(Decision, bool)> {
        let Some(bucket) = self.bucket() else {
            return self.0.state(key, found.ok()?).charge(now, cost);
        };
        let (decision, is_charged) = match found {
            Ok(word) => take(bucket, word, now, cost)?,
            Err(Miss::New(vacant)) => {
                let to = self.insert(vacant, bucket, key, now, cost)?;
                (bucket.answer_after(Word::FRESH, Some(to), now, cost), true)
            }
            Err(Miss::Further) => {
                let (from, to) = self.take_or_insert_further(key, now, cost);
                let is_charged = from != to;
                if !is_charged && !from.is_live() {
                    return None;
                }
                (bucket.answer_after(from, is_charged.then_some(to), now, cost), is_charged)
            }
        };
        Some((decision.stamped(self.stamp()), is_charged))
    }

    /// Charges or inserts a key whose first line is full of other keys. Returns the key's word
    /// before and after the call. If both words are fresh, or both are frozen, the request is left
    /// to the slow path.
    ///
    /// This method is not inlined, because few keys need it. The two words are returned in
    /// registers, whereas an `Option` of two words would be returned through memory, at the cost of
    /// one more instruction in every check.
    #[inline(never)]
    fn take_or_insert_further(self, key: Fingerprint, now: Tick, cost: u64) -> (Word, Word) {
        let Some(bucket) = self.bucket() else { return (Word::FRESH, Word::FRESH) };
        match self.0.space.search_after_first(key) {
            Ok(word) => {
                let Updated { from, to, .. } = try_update(word, |word| bucket.charged(word, now, cost));
                (from, to)
            }
            Err(vacant) => (Word::FRESH, self.insert(vacant, bucket, key, now, cost).unwrap_or_default()),
        }
    }

    /// Inserts a key with its first charge at the end of the key's probe run, and returns the key's
    /// word. Returns `None` if the request charges nothing. Also returns `None` to leave the
    /// insertion to the slow path in three cases: the root gives out no places because of a
    /// turnover, a turnover is due, or memory must be given back first.
    #[inline(always)]
    fn insert(
        self,
        vacant: Vacant<'g>,
        bucket: Gcra,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> Option<Word> {
        let Self(root) = self;
        let first = bucket.first(now, cost)?;
        if root.is_upkeep_due(now) || !root.place_at_once(now) {
            return None;
        }
        reach(Step::PlaceGiven);
        let Some(word) = vacant.claim(key) else {
            root.give_back();
            return None;
        };
        reach(Step::Claimed);
        begin(word, first).then_some(first)
    }
}
