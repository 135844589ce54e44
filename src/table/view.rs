//! The short ways to a key's word: what a look at the root tells, where most keys are, and where new ones come if no turnover is
//! under way.
//!
//! They do what `Table::charge` does, as far as that meets nothing that is in the way, and then leave it to that: a word that is
//! frozen, a slot that another thread was first to take, an era that is full or closed. Nothing is lost by that. A place that was
//! given is taken by a slot, or given back; and a key that has its slot and not its word is found by whoever looks for it next.

use super::era::Era;
use super::slot::Fingerprint;
use super::space::{Line, Miss, Vacant};
use super::step::{Step, reach};
use crate::packed::{Judged, Packed};
use crate::rule::{AnyRule, LeakyBucket, Rule, Updated, Word, begin, try_update};
use crate::sync::Atomic;
use crate::time::Tick;

/// The root as a reader has found it.
#[derive(Clone, Copy, Debug)]
pub struct View<'g>(&'g Era);

impl<'g> View<'g> {
    #[inline(always)]
    pub(super) fn of(root: &'g Era) -> Self {
        Self(root)
    }

    /// Where `key` is, if it is where most keys are: in the first line of its probe run. That line is on its way to the
    /// processor when this returns.
    #[inline(always)]
    pub(crate) fn spot(self, key: Fingerprint) -> &'g Line {
        self.0.space.first_line(key)
    }

    /// The bucket that judges all keys, if one does.
    #[inline(always)]
    pub(crate) fn bucket(self) -> Option<LeakyBucket> {
        self.0.rules().bucket()
    }

    /// The state of a key whose word was found in this view.
    #[inline(always)]
    pub(crate) fn state(self, key: Fingerprint, word: &'g Atomic<Word>) -> Packed<'g> {
        self.0.state(key, word)
    }

    /// Charges a key that is further on than where most are, by the bucket of this view, or inserts one that is new. Misses a key
    /// that is, or has to go, elsewhere, and a request that makes nothing of a fresh word.
    #[inline(always)]
    pub(crate) fn charge_further(
        self,
        bucket: LeakyBucket,
        miss: Miss<'g>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> Option<Judged> {
        let (from, to) = match miss {
            // Most new keys come this way, so nothing is asked of them twice.
            Miss::New(vacant) => {
                let to = self.begin(bucket, vacant, key, now, cost)?;
                return Judged::of(bucket, Updated { from: Word::FRESH, to, is_new: true });
            }
            Miss::Further => self.change_apart(key, now, cost),
            Miss::Unknown => self.change(bucket, false, key, now, cost),
        };
        if to.is_fresh() {
            return None;
        }
        Judged::of(bucket, Updated { from, to, is_new: from != to })
    }

    /// The word of a key that is in this view, or can come into it at once, before and after. That of a key that was missed is frozen
    /// or fresh, after as before.
    #[inline(always)]
    fn change(
        self,
        bucket: LeakyBucket,
        is_further: bool,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> (Word, Word) {
        match self.0.space.search(key, is_further) {
            Ok(word) => {
                let Updated { from, to, .. } = try_update(word, |word| bucket.charged(word, now, cost));
                (from, to)
            }
            Err(vacant) => (Word::FRESH, self.begin(bucket, vacant, key, now, cost).unwrap_or(Word::FRESH)),
        }
    }

    /// The same for a key that is further on. Not inlined, as it is for one key of ten, or of twenty-five. (It asks for the bucket
    /// again, and gives words back, so that all is in registers: no memory is written and read again.)
    #[inline(never)]
    fn change_apart(self, key: Fingerprint, now: Tick, cost: u64) -> (Word, Word) {
        let Some(bucket) = self.bucket() else { return (Word::FRESH, Word::FRESH) };
        self.change(bucket, true, key, now, cost)
    }

    /// The first word of a key that is inserted at this slot, at which its probe run ends.
    #[inline(always)]
    fn begin(
        self,
        bucket: LeakyBucket,
        vacant: Vacant<'g>,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> Option<Word> {
        bucket.first(now, cost).filter(|&first| self.insert_at(vacant, key, first, now))
    }

    /// Inserts a key where each has to be asked for its rule, if it is new and can come into this view at once; the rule then. Or else
    /// its state, if it is here.
    pub(crate) fn insert_by_rule(
        self,
        key: Fingerprint,
        now: Tick,
        cost: u64,
    ) -> Result<&'g AnyRule, Option<Packed<'g>>> {
        let vacant = match self.0.space.search(key, false) {
            Ok(word) => return Err(Some(self.state(key, word))),
            Err(vacant) => vacant,
        };
        let rule = self.0.rules().of(key);
        let first = rule.next(Word::FRESH, now, cost);
        if first != Word::FRESH && self.insert_at(vacant, key, first, now) { Ok(rule) } else { Err(None) }
    }

    /// Inserts a key whose probe run ends at this slot, with the word that a request has made of a fresh one. False if something is
    /// in the way. (In a turnover no places are given; and who inserts begins one that is due, or gives
    /// memory back, before.)
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
