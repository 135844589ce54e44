//! The rule shared by many keys, and the rule wanted for a key's state.

use super::leases::Leases;
use super::since::Since;
use crate::decision::{Decision, Stamp};
use crate::log::{Log, SlidingLog};
use crate::quota::{Enforced, Quota};
use crate::rule::{AnyRule, Leased, Word};
use crate::stats::size;
use crate::sync::{Atomic, Counter, Ordering::Relaxed};
use crate::time::Tick;
use std::sync::Arc;

/// The compiled rule of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StateRule {
    /// Decides on the key's word.
    Packed(AnyRule),
    /// Decides on the key's log.
    Log(SlidingLog),
}

impl StateRule {
    /// Returns the answer for a key that was never seen or was forgotten. The request is decided
    /// for `now` or for `mark`, whichever is later. For a log, the answer contains the figures
    /// before the charge, whereas for a word, it contains the figures after the charge.
    pub(crate) fn fresh(&self, now: Tick, mark: Tick, cost: u64) -> Decision {
        match self {
            Self::Packed(rule) => rule.fresh(now, mark, cost),
            Self::Log(rule) => {
                let peek = Log::new().peek(rule, now.max(mark), cost, || true);
                peek.expect("a new log is not sealed")
            }
        }
    }
}

/// A rule shared by many keys. The rule has its own cache lines, because every check reads it,
/// whereas the reference count beside it changes whenever a key is inserted or removed.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct SharedRule {
    pub(crate) rule: StateRule,
    pub(crate) quota: Quota,
    pub(crate) counts: Arc<Counts>,
    /// The leases of a limiter for one resource.
    pub(crate) leases: Option<Arc<Leases>>,
}

impl SharedRule {
    pub(crate) fn new(rule: Enforced<StateRule>, counts: &Arc<Counts>) -> Arc<Self> {
        Self::with_leases(rule, counts, None)
    }

    pub(crate) fn with_leases(
        Enforced { rule, quota }: Enforced<StateRule>,
        counts: &Arc<Counts>,
        leases: Option<Arc<Leases>>,
    ) -> Arc<Self> {
        counts.rules.add(1);
        Arc::new(Self { rule, quota, counts: Arc::clone(counts), leases })
    }

    /// Returns the word that `frozen`, the content of `word`, stands for, without its leases, whose
    /// tokens count as spent.
    pub(super) fn settled(&self, frozen: Word, word: &Atomic<Word>) -> Word {
        match (&self.leases, self.rule) {
            (Some(leases), StateRule::Packed(AnyRule::Gcra(bucket)))
                if Leased::is_leased(frozen.thawed()) =>
            {
                let bucket = Leased::new(bucket, leases.count());
                bucket.home(frozen.thawed(), leases.void(word), 0).unwrap_or(frozen.thawed())
            }
            _ => frozen.thawed(),
        }
    }
}

impl Drop for SharedRule {
    fn drop(&mut self) {
        self.counts.rules.sub_one();
    }
}

/// Counts of a store's allocations that have not been freed yet, and of the stamps of its versions.
#[derive(Debug)]
pub(crate) struct Counts {
    /// The number of cells, including unlinked cells.
    pub(crate) cells: Atomic<u64>,
    /// The number of rules, including rules that were replaced but that a version still uses.
    rules: Counter,
    /// The number of versions created by changes, including versions that were already replaced.
    pub(crate) later: Atomic<u32>,
    /// The number of stamps that were drawn for versions that follow another.
    stamps: Atomic<u32>,
}

impl Counts {
    pub(crate) fn new() -> Arc<Self> {
        let (cells, later, stamps) = (Atomic::new(0), Atomic::new(0), Atomic::new(0));
        Arc::new(Self { cells, rules: Counter::new(), later, stamps })
    }

    /// Returns a stamp for a version that follows another. No other version of the store has it.
    pub(super) fn draw_stamp(&self) -> Stamp {
        // ORDERING: relaxed, because each number is drawn once, and the stamp publishes nothing.
        Stamp::of_change(2 * u64::from(self.stamps.fetch_add(1, Relaxed)) + 1)
    }

    /// Returns the stamp of a state that is created after this number of changes.
    pub(crate) const fn stamp_of_new(changes: u64) -> Stamp {
        Stamp::of_change(2 * changes)
    }

    /// Returns the number of versions created by changes.
    pub(crate) fn later(&self) -> usize {
        // ORDERING: relaxed; a count.
        self.later.load(Relaxed) as usize
    }

    /// Returns the total size in bytes of the rules and the counts.
    pub(crate) fn bytes(&self) -> usize {
        // An `Arc` stores two counts before its value.
        const COUNTS: usize = 2 * size_of::<usize>() + size_of::<Counts>();
        const RULE: usize = align_of::<SharedRule>() + size_of::<SharedRule>();
        COUNTS + size(self.rules.get()) * RULE
    }
}

/// The rule that should apply to a key's state. `changes` is the number of changes, which was read
/// before the rule, and `since` is the time from which the rule applies to the key.
#[derive(Debug)]
pub struct Wanted {
    pub(crate) rule: Arc<SharedRule>,
    pub(crate) changes: u64,
    pub(crate) since: Since,
}
