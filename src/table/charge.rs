//! The slow path of a charge. It handles a key in either era, and a new key that the fast path in
//! `view` could not insert.
//!
//! A charge walks from the root to the next era, if there is one. Each look at an era finds one of
//! three things (a key, a sealed slot, an empty slot) and ends in an [`Outcome`].

use super::era::{Era, Place};
use super::slot::Fingerprint;
use super::space::{Probe, Vacant};
use super::step::{Step, reach};
use super::turnover::{Table, follow};
use crate::decision::Decision;
use crate::reclaim::{At, Guard, Stale};
use crate::rule::{Rule, Word, load};
use crate::sync::Atomic;
use crate::time::Tick;

/// How many chunks an insertion turns over at the cap before it gives up.
pub(super) const CHUNKS_AT_CAP: usize = 8;

/// How a look at one era ended.
enum Outcome {
    /// The request is answered. The flag tells whether a known key was charged.
    Answered(Decision, bool),
    /// No place for the key was found within the bounds on this charge's work.
    NoPlace,
    /// The walk continues at the era it has come to.
    GoOn,
}

/// The state of one charge while it walks through the eras.
struct Walk<'g> {
    table: &'g Table,
    guard: &'g Guard,
    key: Fingerprint,
    now: Tick,
    cost: u64,
    /// The root, once the walk has come to the era after it.
    before: Option<&'g Era>,
    era: At<'g, Era>,
    /// Is the key new, and is the work done that each insertion owes?
    is_new: bool,
    /// Chunks done because there was no place.
    chunks: usize,
    /// Turnovers begun because there was no place.
    turnovers: usize,
}

impl Table {
    /// Charges a key in whichever era it is. Inserts it first if it is new and the request charges
    /// something. The flag tells whether a known key was charged; then this call has done no work
    /// for a turnover. Returns `None` if there is no place for the key.
    pub(crate) fn charge(
        &self,
        key: Fingerprint,
        now: Tick,
        cost: u64,
        guard: &Guard,
    ) -> Option<(Decision, bool)> {
        let (era, is_new) = (self.root(guard), false);
        let mut walk =
            Walk { table: self, guard, key, now, cost, before: None, era, is_new, chunks: 0, turnovers: 0 };
        loop {
            match walk.look() {
                Outcome::Answered(decision, is_charged) => return Some((decision, is_charged)),
                Outcome::GoOn => {}
                Outcome::NoPlace => {
                    // Another thread may have inserted the key meanwhile.
                    let charged = self.known(key, guard, |state| state.charge(now, cost));
                    return charged.map(|(decision, _)| (decision, false));
                }
            }
        }
    }
}

impl<'g> Walk<'g> {
    #[inline]
    fn look(&mut self) -> Outcome {
        if self.is_new && self.before.is_some() {
            self.era.space.prepare(self.key);
        }
        match self.era.get().space.probe(self.key) {
            Probe::Key(word) => self.charge_known(word),
            Probe::Sealed => self.go_to(Era::successor(self.era)),
            Probe::Empty(vacant) => self.insert(vacant),
        }
    }

    /// Charges a key that has a slot here.
    #[inline]
    fn charge_known(&mut self, word: &'g Atomic<Word>) -> Outcome {
        let state = self.era.state(self.key, word);
        // The word is fresh if another thread has claimed the slot and not charged it yet.
        let charged = state.charge(self.now, self.cost);
        match charged.or_else(|| state.begin(self.now, self.cost, self.era.forgotten.get())) {
            Some((decision, is_charged)) => Outcome::Answered(decision, is_charged && !self.is_new),
            None if load(word).is_frozen() => self.go_to(follow(self.era, self.key, word)),
            None => Outcome::GoOn,
        }
    }

    /// Inserts a key whose probe run ends at this slot.
    #[inline]
    fn insert(&mut self, vacant: Vacant<'g>) -> Outcome {
        let Ok(after) = self.era.next() else { return self.go_to_root() };
        let after = after.map(At::get);
        if !self.is_new {
            self.is_new = true;
            if let Some(outcome) = self.prepare_insertion(after) {
                return outcome;
            }
        }
        if after.is_some() {
            // From now on keys go to the next era, so this run must not take one any more.
            vacant.seal();
            return Outcome::GoOn;
        }
        let is_root = self.before.is_none();
        if is_root && self.era.is_too_large(self.now) && self.table.begin(&self.era, self.now, self.guard) {
            return Outcome::GoOn;
        }
        match self.era.place(self.before, self.now) {
            Place::Given => self.claim(vacant),
            Place::None => self.make_room(),
            Place::Closed => self.begin_turnover(),
        }
    }

    /// Does the work that an insertion owes: answers a request that charges nothing, gives memory
    /// back, and does a chunk of the current turnover. Returns `None` if there is no turnover, so
    /// the key may come into this era.
    #[inline]
    fn prepare_insertion(&mut self, after: Option<&'g Era>) -> Option<Outcome> {
        // One rule decides and answers. While quotas change, two might disagree on whether anything
        // is charged.
        let latest = after.unwrap_or(self.era.get());
        let rule = latest.rules.of(self.key);
        if rule.next(Word::FRESH, self.now, self.cost) == Word::FRESH {
            return Some(Outcome::Answered(rule.fresh(self.now, latest.forgotten.get(), self.cost), false));
        }
        // In a turnover, too: the memory that the last one retired goes back before this one
        // retires more.
        if self.table.memory.is_leaving() {
            self.table.memory.give_back(1);
        }
        let (root, next) = match (self.before, after) {
            (_, Some(next)) => (self.era.get(), next),
            (Some(root), None) => (root, self.era.get()),
            (None, None) => return None,
        };
        // The key's line is prefetched while the chunk is done.
        next.space.prepare(self.key);
        self.table.turn(root, next, self.guard);
        Some(self.go_to_root())
    }

    /// Claims the slot for the key, which has a place, and charges it.
    #[inline]
    fn claim(&mut self, vacant: Vacant<'g>) -> Outcome {
        reach(Step::PlaceGiven);
        let Some(word) = vacant.claim(self.key) else {
            self.era.give_back();
            return Outcome::GoOn;
        };
        reach(Step::Claimed);
        match self.era.state(self.key, word).begin(self.now, self.cost, self.era.forgotten.get()) {
            Some((decision, _)) => Outcome::Answered(decision, false),
            None => Outcome::GoOn,
        }
    }

    /// Does a chunk of the current turnover, or begins one, because all places are taken.
    fn make_room(&mut self) -> Outcome {
        let is_at_cap = self.era.size.limit == self.table.max_keys;
        if let Some(root) = self.before {
            // `prepare_insertion` has done one already.
            if is_at_cap && self.chunks + 1 >= CHUNKS_AT_CAP {
                self.era.note(self.now);
                return Outcome::NoPlace;
            }
            self.chunks += 1;
            self.table.turn(root, &self.era, self.guard);
            return self.go_to_root();
        }
        if self.turnovers > 0 && is_at_cap || !self.table.may_turn_for(&self.era, self.now) {
            return Outcome::NoPlace;
        }
        self.begin_turnover()
    }

    fn begin_turnover(&mut self) -> Outcome {
        if !self.table.begin(&self.era, self.now, self.guard) {
            return Outcome::NoPlace;
        }
        self.turnovers += 1;
        Outcome::GoOn
    }

    /// Goes to the next era, or to the root if that era may have been freed.
    fn go_to(&mut self, next: Result<At<'g, Era>, Stale>) -> Outcome {
        match next {
            Ok(next) => (self.before, self.era) = (Some(self.era.get()), next),
            Err(Stale) => return self.go_to_root(),
        }
        Outcome::GoOn
    }

    #[inline]
    fn go_to_root(&mut self) -> Outcome {
        (self.before, self.era) = (None, self.table.root(self.guard));
        Outcome::GoOn
    }
}
