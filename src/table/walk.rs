//! The slow path of a charge. It handles keys in the root and in the next array, and inserts new
//! keys that the fast path in `view` could not insert.
//!
//! A charge walks from the root to the next array, if there is one. Each look at an array finds the
//! key, a sealed slot or an empty slot, and ends with a [`WalkStep`].

use super::array::{Array, Place};
use super::space::{Fingerprint, Probe, Vacant};
use super::step::{Step, reach};
use super::turnover::{Table, follow};
use crate::decision::Decision;
use crate::reclaim::{Followed, Guard, Retry, under_guard};
use crate::rule::{Rule, Word, load};
use crate::sync::Atomic;
use crate::time::Tick;

/// The maximum number of chunks that an insertion at the cap turns over before it gives up.
pub(super) const CHUNKS_AT_CAP: usize = 8;

/// How a look at one array ended.
enum WalkStep {
    /// The request is answered.
    Answered,
    /// This charge has done the maximum amount of work, and has found no place for the key.
    NoPlace,
    /// The walk continues at the current array.
    GoOn,
}

/// One request, and the work done for it so far. A request may need several walks.
struct WalkRequest {
    key: Fingerprint,
    now: Tick,
    cost: u64,
    /// True once the key has been found to be new and the request has done the work required of
    /// each insertion.
    is_new: bool,
    /// The change count of the rules under which a new key will be charged.
    changes: u64,
    /// How many chunks were turned over because there was no place.
    chunks: usize,
    /// How many turnovers were started because there was no place.
    turnovers: usize,
    /// The answer to the request, and whether a known key was charged.
    answer: Option<(Decision, bool)>,
}

/// A walk through the arrays, starting at the root.
struct Walk<'g> {
    table: &'g Table,
    guard: &'g Guard,
    request: &'g mut WalkRequest,
    /// The root, once the walk has reached the next array.
    before: Option<&'g Array>,
    array: Followed<'g, Array>,
}

impl Table {
    /// Charges a key in either array. If the key is new and the request charges something, inserts
    /// the key first. The flag is true if a known key was charged; in that case, this call did no
    /// turnover work. Returns `None` if there is no place for the key.
    pub(crate) fn find_or_insert(&self, key: Fingerprint, now: Tick, cost: u64) -> Option<(Decision, bool)> {
        let (is_new, answer) = (false, None);
        let mut request = WalkRequest { key, now, cost, is_new, changes: 0, chunks: 0, turnovers: 0, answer };
        under_guard(|guard| {
            let array = self.root(guard)?;
            let mut walk = Walk { table: self, guard, request: &mut request, before: None, array };
            loop {
                match walk.look()? {
                    WalkStep::Answered | WalkStep::NoPlace => return Ok(()),
                    WalkStep::GoOn => {}
                }
            }
        });
        request.answer.or_else(|| {
            // There is no place. Another thread may have inserted the key in the meantime.
            let (decision, _) = self.known(key, |state| state.charge(now, cost))?;
            Some((decision, false))
        })
    }
}

impl<'g> Walk<'g> {
    #[inline]
    fn look(&mut self) -> Result<WalkStep, Retry> {
        let WalkRequest { key, is_new, .. } = *self.request;
        if is_new && self.before.is_some() {
            self.array.space.prepare(key);
        }
        match self.array.get().space.probe(key) {
            Probe::Key(word) => self.decide_known(word),
            Probe::Sealed => Ok(self.go_to(Array::successor(self.array)?)),
            Probe::Empty(vacant) => self.insert(vacant),
        }
    }

    /// Decides the request for a key that has a slot here.
    #[inline]
    fn decide_known(&mut self, word: &'g Atomic<Word>) -> Result<WalkStep, Retry> {
        let WalkRequest { key, now, cost, is_new, .. } = *self.request;
        let state = self.array.state(key, word);
        // The word is fresh if another thread has claimed the slot but has not charged the key yet.
        let charged = state.charge(now, cost);
        Ok(match charged.or_else(|| state.begin(now, cost, self.array.forgotten.get())) {
            Some((decision, is_charged)) => self.answer(decision, is_charged && !is_new),
            None if load(word).is_frozen() => self.go_to(follow(self.array, key, word)?),
            None => WalkStep::GoOn,
        })
    }

    /// Inserts a key whose probe run ends at this slot.
    #[inline]
    fn insert(&mut self, vacant: Vacant<'g>) -> Result<WalkStep, Retry> {
        let now = self.request.now;
        let after = self.array.next()?.map(Followed::get);
        if !self.request.is_new {
            self.request.is_new = true;
            if let Some(outcome) = self.prepare_insertion(after)? {
                return Ok(outcome);
            }
        }
        if after.is_some() {
            // From now on, keys are inserted into the next array, so this probe run must not accept
            // any more keys.
            vacant.seal();
            return Ok(WalkStep::GoOn);
        }
        // The quota may have changed since the request was prepared. A request that charges nothing
        // must not claim a slot.
        if self.array.get().rules.changes() != self.request.changes && self.is_refused_under(self.array.get())
        {
            return Ok(WalkStep::Answered);
        }
        let is_root = self.before.is_none();
        if is_root && self.array.is_too_large(now) && self.table.begin(&self.array, now, self.guard) {
            return Ok(WalkStep::GoOn);
        }
        match self.array.place(self.before, now) {
            Place::Given => Ok(self.claim_and_charge(vacant)),
            Place::None => self.make_room(),
            Place::Closed => Ok(self.begin_turnover()),
        }
    }

    /// Performs the work required of each insertion: answers a request that charges nothing, gives
    /// memory back, and turns over a chunk. Returns `None` if no turnover is under way, so that the
    /// key may be inserted into this array.
    #[inline]
    fn prepare_insertion(&mut self, after: Option<&'g Array>) -> Result<Option<WalkStep>, Retry> {
        let key = self.request.key;
        if self.is_refused_under(after.unwrap_or(self.array.get())) {
            return Ok(Some(WalkStep::Answered));
        }
        // Give memory back even during a turnover, so that the memory retired by the last turnover
        // is returned before this turnover retires more.
        if self.table.memory.is_leaving() {
            self.table.memory.give_back(1);
        }
        let (root, next) = match (self.before, after) {
            (_, Some(next)) => (self.array.get(), next),
            (Some(root), None) => (root, self.array.get()),
            (None, None) => return Ok(None),
        };
        // The key's line is prefetched while the chunk is turned over.
        next.space.prepare(key);
        self.table.turn(root, next, self.guard);
        self.go_to_root().map(Some)
    }

    /// If the request charges nothing under the rules of `latest`, answers the request and returns
    /// true. Otherwise records the change count of these rules and returns false. The same rule
    /// must both decide and answer. Otherwise, while quotas change, two rules might disagree on
    /// whether the request charges anything.
    #[inline]
    fn is_refused_under(&mut self, latest: &Array) -> bool {
        let WalkRequest { key, now, cost, .. } = *self.request;
        let rule = &latest.rules.of(key).enforced.rule;
        if rule.next(Word::FRESH, now, cost) == Word::FRESH {
            self.answer(rule.fresh(now, latest.forgotten.get(), cost), false);
            return true;
        }
        self.request.changes = latest.rules.changes();
        false
    }

    /// Claims the slot for the key and charges the key. The request must have been given a place.
    #[inline]
    fn claim_and_charge(&mut self, vacant: Vacant<'g>) -> WalkStep {
        reach(Step::PlaceGiven);
        let WalkRequest { key, now, cost, .. } = *self.request;
        let Some(word) = vacant.claim(key) else {
            self.array.give_back();
            return WalkStep::GoOn;
        };
        reach(Step::Claimed);
        match self.array.state(key, word).begin(now, cost, self.array.forgotten.get()) {
            Some((decision, _)) => self.answer(decision, false),
            None => WalkStep::GoOn,
        }
    }

    /// Turns over a chunk, or starts a turnover, because all places are taken.
    fn make_room(&mut self) -> Result<WalkStep, Retry> {
        let (now, size, cap) = (self.request.now, self.array.size, self.table.max_keys);
        if let Some(root) = self.before {
            // `prepare_insertion` has already done one chunk. The array may reach the cap even if
            // its limit is lower.
            if size.most == cap && self.request.chunks + 1 >= CHUNKS_AT_CAP {
                self.array.note(now);
                return Ok(WalkStep::NoPlace);
            }
            self.request.chunks += 1;
            self.table.turn(root, &self.array, self.guard);
            return self.go_to_root();
        }
        if self.request.turnovers > 0 && size.limit == cap || !self.table.may_turn_for(&self.array, now) {
            return Ok(WalkStep::NoPlace);
        }
        Ok(self.begin_turnover())
    }

    fn begin_turnover(&mut self) -> WalkStep {
        if !self.table.begin(&self.array, self.request.now, self.guard) {
            return WalkStep::NoPlace;
        }
        self.request.turnovers += 1;
        WalkStep::GoOn
    }

    #[inline]
    fn answer(&mut self, decision: Decision, is_charged: bool) -> WalkStep {
        self.request.answer = Some((decision, is_charged));
        WalkStep::Answered
    }

    fn go_to(&mut self, next: Followed<'g, Array>) -> WalkStep {
        (self.before, self.array) = (Some(self.array.get()), next);
        WalkStep::GoOn
    }

    #[inline]
    fn go_to_root(&mut self) -> Result<WalkStep, Retry> {
        (self.before, self.array) = (None, self.table.root(self.guard)?);
        Ok(WalkStep::GoOn)
    }
}
