//! The fast path to a key's word. It looks at the root, where most keys are, and where new ones
//! come unless a turnover is under way.
//!
//! It does what `Table::charge` does as long as nothing is in the way. Everything else is left to
//! `Table::charge`: a frozen word, a slot that another thread took first, an array that is full or
//! closed. A fast path that gives up loses nothing. The place it was given is either used by a slot
//! or given back, and the next lookup finds a key that has a slot and no charged word yet.

use super::array::Array;
use super::slot::Fingerprint;
use super::space::{Line, Miss, Vacant};
use super::step::{Step, reach};
use crate::rule::{Gcra, Updated, Word, begin, try_update};
use crate::state::{Charged, State};
use crate::sync::Atomic;
use crate::time::Tick;

/// A snapshot of the root, taken under a guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'g>(&'g Array);

impl<'g> View<'g> {
    #[inline(always)]
    pub(super) fn of(root: &'g Array) -> Self {
        Self(root)
    }

    /// The first line of the key's probe run, where most keys are. This starts to prefetch it.
    #[inline(always)]
    pub(crate) fn first_line(self, key: Fingerprint) -> &'g Line {
        self.0.space.first_line(key)
    }

    /// The GCRA that all keys share. `None` if a key has a rule of its own, or the rule is another.
    #[inline(always)]
    pub(crate) fn gcra(self) -> Option<Gcra> {
        self.0.rules.gcra()
    }

    /// The state of a key whose word was found in this view.
    #[inline(always)]
    pub(crate) fn state(self, key: Fingerprint, word: &'g Atomic<Word>) -> State<'g> {
        self.0.state(key, word)
    }

    /// The state of a key that has a slot in the root. Its word may be fresh or frozen.
    #[inline(always)]
    pub(crate) fn find(self, key: Fingerprint) -> Option<State<'g>> {
        self.0.space.search(key).ok().map(|word| self.0.state(key, word))
    }

    /// Charges a key whose first line was searched, or inserts it. Returns `None` if that is left
    /// to the slow path, because the key is in the next array or belongs there. Also returns `None`
    /// if the key is new and the request charges nothing.
    #[inline(always)]
    pub(crate) fn charge(
        self,
        gcra: Gcra,
        found: Result<&'g Atomic<Word>, Miss<'g>>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> Option<Charged> {
        match found {
            Ok(word) => Charged::make(gcra, word, now, cost),
            Err(Miss::New(vacant)) => {
                let to = gcra.first(now, cost).filter(|&first| self.insert_at(vacant, key, first, now))?;
                Charged::of(gcra, Updated { from: Word::FRESH, to, is_new: true })
            }
            Err(Miss::Further) => {
                let (from, to) = self.update_further(key, now, cost);
                Charged::of(gcra, Updated { from, to, is_new: from != to })
            }
        }
    }

    /// Charges or inserts a key whose first line is full of other keys. Returns its word before and
    /// after, or the fresh word twice if that can't be done here.
    ///
    /// Not inlined, because few keys come here. Both words are returned in registers.
    #[inline(never)]
    fn update_further(self, key: Fingerprint, now: Tick, cost: u64) -> (Word, Word) {
        let nothing = (Word::FRESH, Word::FRESH);
        let Some(gcra) = self.gcra() else { return nothing };
        match self.0.space.search_after_first(key) {
            Ok(word) => {
                let Updated { from, to, .. } = try_update(word, |word| gcra.charged(word, now, cost));
                (from, to)
            }
            Err(vacant) => match gcra.first(now, cost) {
                Some(first) if self.insert_at(vacant, key, first, now) => (Word::FRESH, first),
                _ => nothing,
            },
        }
    }

    /// Inserts a key at the end of its probe run, with its first word. Returns false if that is
    /// left to the slow path: in a turnover no places are given, and an insertion first begins a
    /// turnover that is due, or gives memory back.
    #[inline(always)]
    fn insert_at(self, vacant: Vacant<'g>, key: Fingerprint, first: Word, now: Tick) -> bool {
        let Self(root) = self;
        if root.is_upkeep_due(now) || !root.place_at_once(now) {
            return false;
        }
        reach(Step::PlaceGiven);
        let Some(word) = vacant.claim(key) else {
            root.give_back();
            return false;
        };
        reach(Step::Claimed);
        begin(word, first)
    }
}
