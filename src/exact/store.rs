//! The keys of a limiter and their cells, with lookups, insertions, rounds and quotas. The
//! documentation of `exact` describes the states and invariants.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! Sealing and charging are compare-and-swaps on one word, and need only the modification order of
//! that word. scc's locks publish everything else. (Models use a list behind a lock instead.) An
//! insertion sees all earlier removals. A thread that finds a cell sees the contents of the cell,
//! and also the mark that was raised for each earlier cell of the same key
//! (`eviction_races_late_charge_of_an_exact_key`, `insertion_races_a_whole_life_of_its_key`).
//!
//! Two tests show why a cell must be sealed before it is unlinked, and must not be unlinked by its
//! key alone: `eviction_races_charge_and_loses_none` and
//! `eviction_races_insert_and_one_cell_lives`.

use super::entry::{Asked, Entry};
use super::places::Places;
use super::quotas::Quotas;
use super::rounds::{self, Rounds};
use super::undo::Undo;
use crate::decision::{Decision, Stamp};
use crate::error::Refused;
use crate::forgetting::Sweep;
use crate::log::Log;
use crate::quota::{Enforced, Quota};
use crate::reclaim::Bag;
use crate::state::{AnyState, Counts, Since, StateRule, Wanted};
use crate::stats::{Stats, size};
use crate::sync::{Atomic, Counter, Index, Ordering::Relaxed, epoch, reading};
use crate::time::Tick;
use equivalent::Equivalent;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of round steps that an insertion performs at the cap before it reports that
/// the store is full.
const STEPS_AT_CAP: usize = 16;

/// How many cells may exist in addition to `4 * max_keys`. These cells occupy five megabytes. Even
/// a small store retires thousands of cells while a reading thread is briefly preempted.
const SPARE: u64 = 1 << 16;

/// The keys of a limiter and their cells.
pub(crate) struct ExactStore<K: 'static> {
    index: Index<Arc<Entry<K>>>,
    pub(super) quotas: Quotas<K>,
    places: Places,
    pub(super) rounds: Rounds,
    max_keys: u64,
    pub(super) evicted: Evicted,
    /// Makes the store `Send` and `Sync` only if the keys are `Send` and `Sync`, because any thread
    /// may drop a cell.
    cells: PhantomData<Arc<Entry<K>>>,
}

/// The number of evicted keys, and the retired memory. This struct has its own cache lines, because
/// most calls only read the other fields of a store.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Evicted {
    keys: Counter,
    /// scc's epoch when an insertion was last admitted despite too many cells that had not been
    /// freed yet.
    epoch: Atomic<u64>,
    /// Retired parts of states.
    pub(super) retired: Bag,
}

/// The error returned when the store has no place for a new key.
#[derive(Debug)]
pub(crate) struct StoreFull;

impl<K: Eq + Send + Sync + 'static> ExactStore<K> {
    /// The maximum number of places visited by one step of a round.
    pub(crate) const STEP: usize = rounds::STEP as usize;

    pub(crate) fn new(max_keys: usize, grace: Duration, rule: Enforced<StateRule>) -> Result<Self, Refused> {
        // `u32::MAX` is reserved for "no place".
        const MOST: usize = if usize::BITS > 32 { u32::MAX as usize - 1 } else { usize::MAX >> 8 };
        if max_keys == 0 || max_keys > MOST {
            return Err(Refused::MaxKeysOutOfRange { max_keys, most: MOST });
        }
        let max_keys = max_keys as u64;
        Ok(Self {
            index: Index::new(),
            quotas: Quotas::new(rule),
            places: Places::new(max_keys),
            rounds: Rounds::new(max_keys, grace),
            max_keys,
            evicted: Evicted { keys: Counter::new(), epoch: Atomic::new(0), retired: Bag::new() },
            cells: PhantomData,
        })
    }

    /// Creates an empty store for the same number of keys, with the given rule.
    pub(crate) fn beside(&self, rule: Enforced<StateRule>) -> Result<Self, Refused> {
        Self::new(size(self.max_keys), self.rounds.grace(), rule)
    }

    /// Passes the state of `key` to `visit`. Returns `None` if the key is not in the store. `visit`
    /// may return `None` only if the word is frozen or sealed.
    #[inline]
    pub(crate) fn known<Q, T>(
        &self,
        key: Asked<'_, Q>,
        visit: impl Fn(AnyState<'_>) -> Option<T>,
    ) -> Option<T>
    where
        Q: Equivalent<K> + ?Sized,
    {
        loop {
            // Read the count before looking up the cell: see `state`.
            let changes = self.quotas.changes();
            let wanted = || self.quotas.of(key);
            let is_current = |stamp| self.is_current(stamp);
            let visited = |cell: &Arc<Entry<K>>| {
                let answer = cell.state.visit(changes, wanted, &self.evicted.retired, |state| {
                    visit(state.beginning_at(self.rounds.forgotten(), &is_current))
                });
                answer.ok_or_else(|| Arc::clone(cell))
            };
            match self.index.find(key.hash, key.is_key_of(), visited)? {
                Ok(answer) => return Some(answer),
                Err(sealed) => self.unlink(&sealed),
            }
        }
    }

    /// Passes the state of `key` to `visit`. If `key` is missing, first inserts the key returned by
    /// `to_key`. `visit` charges the state, and may return `None` only if the word is frozen or
    /// sealed.
    #[cold]
    pub(crate) fn insert<Q, T>(
        &self,
        key: Asked<'_, Q>,
        to_key: impl Fn() -> K,
        now: Tick,
        visit: impl Fn(AnyState<'_>) -> Option<T>,
    ) -> Result<T, StoreFull>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let _reading = reading();
        self.step();
        loop {
            // Another thread may already have inserted the key.
            if let Some(answer) = self.known(key, &visit) {
                return Ok(answer);
            }
            let Some(place) = self.place(key.hash, now) else {
                return self.known(key, &visit).ok_or(StoreFull);
            };
            let give_back = Undo::unless_done(|| self.places.give_back(place));
            let wanted = self.quotas.of(key);
            let cell = Arc::new(Entry::new(key.hash, place, to_key(), wanted));
            if self.index.insert(Arc::clone(&cell)).is_err() {
                drop(give_back);
                // The index already contains an equal key. Look it up in its owned form, because a
                // borrowed form with a wrong `Equivalent` would never find it, and this loop would
                // never end.
                if let Some(answer) = self.known(cell.asked(), &visit) {
                    return Ok(answer);
                }
                // Another thread has removed the key.
                continue;
            }
            give_back.done();
            self.rounds.note_insertion(now);
            // Read the mark only now that the cell is linked. The mark then covers all charges made
            // to the key before it was last forgotten. Also read the changes again, because a
            // change may have looked for the key before the cell was linked.
            let is_current = |stamp| self.is_current(stamp);
            let visit = |state: AnyState<'_>| visit(state.beginning_at(self.rounds.forgotten(), &is_current));
            let (changes, wanted) = (self.quotas.changes(), || self.quotas.of(cell.asked()));
            if let Some(answer) = cell.state.visit(changes, wanted, &self.evicted.retired, visit) {
                return Ok(answer);
            }
            // The cell was sealed before it was charged, or the quota has changed.
        }
    }

    /// Returns the answer to a request for a key that is not in the store.
    pub(crate) fn fresh<Q>(&self, key: Asked<'_, Q>, now: Tick, cost: u64) -> Decision
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.quotas.of(key).rule.rule.fresh(now, self.rounds.forgotten().get(), cost)
    }

    /// Returns whether a new key would find a place now. The answer is an estimate, because other
    /// threads may insert and evict keys during the call.
    pub(crate) fn has_room(&self, now: Tick) -> bool {
        self.places.taken() < self.max_keys || self.rounds.is_under_way() || self.rounds.is_due(now)
    }

    /// Returns the number of keys, including keys that are being inserted.
    pub(crate) fn len(&self) -> usize {
        size(self.places.taken().min(self.max_keys))
    }

    /// Returns the statistics of the store. Rounds are counted as turnovers.
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            keys: self.len(),
            room: size(self.rounds.capacity()),
            max_keys: size(self.max_keys),
            turnovers: self.rounds.done(),
            evicted: self.evicted.keys.get(),
            refused: 0,
            own_quotas: size(self.quotas.count()),
            bytes: self.bytes(),
        }
    }

    /// Returns the total size in bytes of all cells that have not been freed yet, the index, the
    /// places, the logs, and the rules. To count the logs, this method visits all cells one by one.
    /// Memory owned by the keys and the allocator's overhead are not included.
    fn bytes(&self) -> usize {
        const CELL: usize = 2 * size_of::<usize>();
        let logs = if self.quotas.are_of_logs() { self.log_bytes() } else { 0 };
        size(self.alive()) * (size_of::<Entry<K>>() + CELL)
            + self.index.capacity() * Index::<Arc<Entry<K>>>::ITEM_BYTES
            + size(self.places.bytes())
            + logs
            + self.quotas.bytes()
            + self.evicted.retired.bytes()
    }

    fn log_bytes(&self) -> usize {
        let cells = (0..self.end()).filter_map(|place| self.cell(place));
        let linked: usize = cells.map(|cell| cell.state.log_bytes()).sum();
        let unlinked = self.alive().saturating_sub(self.places.taken());
        linked + size(unlinked) * Log::SEALED_BYTES
    }

    /// Performs one step of the current round. If no round is under way and the store is far too
    /// large, this method starts a round. Returns whether there is more to do.
    pub(crate) fn tend(&self, now: Tick) -> bool {
        self.evicted.retired.collect();
        if self.rounds.is_under_way() {
            return self.step();
        }
        self.rounds.is_too_large(self.places.taken(), now) && self.begin(now)
    }

    /// Starts a round that forgets the idle keys. Does nothing if a round is already under way, if
    /// the store is empty, if the evidence does not support `now` yet, or if no key can have become
    /// idle for long enough since the last round. `first` is the time at which the sweep started.
    pub(crate) fn begin_sweep(&self, now: Tick, first: Tick) -> Sweep {
        // This call may free the parts that were retired last.
        self.evicted.retired.collect();
        if self.rounds.is_under_way() {
            return Sweep::UnderWay;
        }
        if !self.rounds.is_past(now) || !self.holds_something() {
            return Sweep::Nothing;
        }
        if !self.rounds.lets_sweep(now, first) {
            return Sweep::NotBelieved;
        }
        if self.begin_round(now) { Sweep::UnderWay } else { Sweep::Nothing }
    }

    /// Records the time of a maintenance call. This time is evidence, like the time of a sweep.
    pub(crate) fn note(&self, now: Tick) {
        self.rounds.note(now);
    }

    /// Starts a round if there is something to forget. Does nothing if a round is already under
    /// way. Returns whether a round is under way after the call.
    pub(crate) fn begin_round(&self, now: Tick) -> bool {
        self.rounds.is_under_way() || self.holds_something() && self.begin(now)
    }

    fn holds_something(&self) -> bool {
        self.places.taken() > 0 || self.rounds.is_large()
    }

    /// Returns the rule that applies to all keys without a quota of their own.
    pub(crate) fn default_rule(&self) -> Wanted {
        self.quotas.default()
    }

    /// Returns whether a cell that is created now would get this stamp. A cell with an earlier
    /// stamp may have missed the visit of a change, so it is not charged.
    fn is_current(&self, stamp: Stamp) -> bool {
        stamp.is(Counts::stamp_of_new(self.quotas.changes()))
    }

    /// Returns the number of rule changes. Callers must read this number before they look up a
    /// rule.
    pub(crate) fn changes(&self) -> u64 {
        self.quotas.changes()
    }

    /// Replaces the rule for all keys without a rule of their own, and visits every key. Does
    /// nothing if the quota is the same. This method is lock-free.
    pub(crate) fn set_default_rule(&self, rule: Enforced<StateRule>, since: &Since) {
        if !self.quotas.set_default(rule, since) {
            return;
        }
        let changes = self.changes();
        for place in 0..self.end() {
            if let Some(cell) = self.cell(place) {
                // Skip cells that were sealed in the meantime. They were idle.
                cell.state.visit(
                    changes,
                    || self.quotas.of(cell.asked()),
                    &self.evicted.retired,
                    |state| state.touch(),
                );
                self.evicted.retired.tidy();
            }
        }
    }

    /// Returns whether `keys` more keys may get their own rules. If there are too many entries that
    /// are not freed yet, a key may get its rule only if scc's epoch has advanced: see
    /// [`has_epoch_moved`](Self::has_epoch_moved).
    pub(crate) fn has_room_for_rules(&self, keys: usize) -> bool {
        self.quotas.has_room(keys) || self.has_epoch_moved()
    }

    /// Gives a key its own rule. Does nothing if the key's own rule already has this quota.
    pub(crate) fn set_rule<Q>(&self, asked: Asked<'_, Q>, key: K, rule: Enforced<StateRule>, since: &Since)
    where
        Q: Equivalent<K> + ?Sized,
    {
        if self.quotas.set(asked.hash, key, rule, since) {
            self.known(asked, |state| state.touch());
            self.evicted.retired.tidy();
        }
    }

    /// Removes a key's own rule, if it has one.
    pub(crate) fn remove_rule<Q>(&self, key: Asked<'_, Q>, since: &Since)
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.quotas.remove(key, since, || _ = self.known(key, |state| state.touch()));
        self.evicted.retired.tidy();
    }

    /// Returns the key's own quota, if it has one.
    pub(crate) fn own_quota<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) -> Option<Quota> {
        Some(self.quotas.own(key)?.quota)
    }

    /// Resets every key that was in the store when the call started, and possibly keys inserted
    /// during the call.
    pub(crate) fn reset_all(&self) {
        for place in 0..self.end() {
            if let Some(cell) = self.cell(place) {
                // Skip cells that were sealed in the meantime. They were idle.
                cell.state.visit_as_is(&self.evicted.retired, |state| state.reset());
            }
        }
    }

    /// Returns the highest place number that has ever been taken, plus one.
    pub(crate) fn end(&self) -> u32 {
        // This is at most `max_keys`, which fits into a `u32`.
        #[allow(clippy::cast_possible_truncation)]
        let end = self.places.fresh() as u32;
        end
    }

    /// Returns the cell that owns `place`. Returns `None` if there is no such cell or if the cell
    /// is sealed.
    pub(crate) fn cell(&self, place: u32) -> Option<Arc<Entry<K>>> {
        let hash = self.places.holder(place)?;
        let found = self.index.find(hash, |cell| cell.place == place, Arc::clone);
        found.filter(|cell| !cell.state.is_sealed(&self.evicted.retired))
    }

    /// Returns the answer that a request for one token would receive for the cell's key. Returns
    /// `None` if the cell is sealed.
    pub(crate) fn peek_at(&self, cell: &Arc<Entry<K>>, now: Tick) -> Option<Decision> {
        let changes = self.quotas.changes();
        let is_current = |stamp| self.is_current(stamp);
        let peek =
            |state: AnyState<'_>| state.beginning_at(self.rounds.forgotten(), &is_current).peek(now, 1);
        cell.state.visit(changes, || self.quotas.of(cell.asked()), &self.evicted.retired, peek)
    }

    /// Counts a denial of `key`, if the key is in the store.
    pub(crate) fn count_denial<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) {
        self.index.find(key.hash, key.is_key_of(), |cell| cell.count_denial());
    }

    /// Takes a place for a key with this hash.
    fn place(&self, hash: u64, now: Tick) -> Option<u32> {
        if self.alive() >= most_alive(self.max_keys) && !self.has_epoch_moved() {
            return None;
        }
        if self.places.taken() >= self.max_keys {
            self.rounds.note(now);
        }
        if self.rounds.is_full(self.places.taken(), now) {
            self.begin(now);
        }
        for _ in 0..STEPS_AT_CAP {
            if let Some(place) = self.places.take(hash) {
                return Some(place);
            }
            if !self.rounds.is_under_way() {
                return None;
            }
            self.step();
        }
        self.places.take(hash)
    }

    /// Returns the number of cells that have not been freed yet.
    fn alive(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.quotas.counts().cells.load(Relaxed)
    }

    /// Returns whether scc's epoch has advanced since the last call. If the epoch has advanced, an
    /// insertion makes scc free the memory that can be freed.
    ///
    /// An advance lets an insertion proceed even if too many cells exist. Without this exception,
    /// refused insertions would free nothing, because another thread may own the memory that scc
    /// has retired. If that thread lived on and never used scc again, the store would refuse new
    /// keys for ever.
    #[cold]
    fn has_epoch_moved(&self) -> bool {
        let now = epoch();
        // ORDERING: all three are relaxed, because the recorded epoch is an estimate and publishes
        // no other data.
        let seen = self.evicted.epoch.load(Relaxed);
        now != seen && self.evicted.epoch.compare_exchange(seen, now, Relaxed, Relaxed).is_ok()
    }

    fn begin(&self, now: Tick) -> bool {
        self.rounds.begin(self.places.taken(), self.places.fresh(), now);
        self.rounds.is_under_way()
    }

    /// Visits the next places of the current round, if a round is under way. Returns whether the
    /// round has more places to visit.
    fn step(&self) -> bool {
        let _reading = reading();
        let Some(claim) = self.rounds.claim() else { return false };
        let judged_at = self.rounds.judged_at();
        // Raise the mark before sealing the cell, so that a thread that finds the cell sealed or
        // removed also sees the mark.
        let forget = |idle_from: Tick| self.rounds.forgotten().raise(idle_from);
        for place in claim.places {
            let Some(hash) = self.places.holder(place) else { continue };
            // This lookup finds no cell if another thread is just inserting or removing the key.
            let sealed = |cell: &Arc<Entry<K>>| {
                let is_sealed = cell.state.seal_if_idle(judged_at, &self.evicted.retired, forget);
                is_sealed.then(|| Arc::clone(cell))
            };
            let idle = self.index.find(hash, |cell| cell.place == place, sealed);
            if let Some(sealed) = idle.flatten() {
                self.unlink(&sealed);
            }
        }
        if claim.is_last {
            self.rounds.finish(self.places.taken());
        }
        !claim.is_last
    }

    /// Removes `cell` from the index, unless another thread has already removed the cell. The cell
    /// must be sealed.
    #[cold]
    fn unlink(&self, cell: &Arc<Entry<K>>) {
        debug_assert!(
            cell.state.is_sealed(&self.evicted.retired),
            "only what takes no more charges is unlinked"
        );
        if self.index.remove(cell.hash, |other| Arc::ptr_eq(other, cell)) {
            self.places.give_back(cell.place);
            self.evicted.keys.add(1);
        }
    }
}

/// Returns how many cells may exist, including unlinked cells that have not been freed yet.
const fn most_alive(max_keys: u64) -> u64 {
    4 * max_keys + SPARE
}

impl<K> fmt::Debug for ExactStore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExactStore").field("places", &self.places).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::rule::AnyRule;

    /// Two keys with the same hash differ only in their places. The index may find either key
    /// first, so the test runs once with each of them as the busy key.
    #[test]
    fn a_round_judges_each_of_two_keys_that_share_a_hash() {
        let quota = Quota::per_second(10);
        let rule = StateRule::Packed(AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap());
        for busy in [1_u64, 2] {
            let store = ExactStore::new(10, Duration::ZERO, Enforced { rule, quota }).unwrap();
            for key in &[1, 2] {
                let cost = if *key == busy { 10 } else { 1 };
                let charge = |state: AnyState<'_>| state.charge(Tick::ZERO, cost);
                let asked = Asked { hash: 1 << 40, key };
                assert!(store.insert(asked, || *key, Tick::ZERO, charge).unwrap().0.is_allowed());
            }
            let now = Tick::ZERO + Duration::from_millis(500);
            assert!(store.begin_round(now));
            while store.tend(now) {}
            let is_known = |key: &u64| store.known(Asked { hash: 1 << 40, key }, |_| Some(())).is_some();
            assert_eq!([1, 2].map(|key| is_known(&key)), [1, 2].map(|key| key == busy));
        }
    }

    /// The first change looks for the key before the key is linked.
    #[test]
    fn a_key_that_is_inserted_during_a_change_is_under_the_new_quota() {
        let enforced = |quota| {
            let rule = AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap();
            Enforced { rule: StateRule::Packed(rule), quota }
        };
        let (fast, slow) = (Quota::per_second(10), Quota::per_hour(10));
        let store = ExactStore::new(10, Duration::ZERO, enforced(fast)).unwrap();
        let asked = Asked { hash: 1 << 40, key: &1_u64 };
        let to_key = || {
            store.set_default_rule(enforced(slow), &Since::START);
            1
        };
        let charge = |state: AnyState<'_>| state.charge(Tick::ZERO, 10);
        assert!(store.insert(asked, to_key, Tick::ZERO, charge).unwrap().0.is_allowed());
        let later = Tick::ZERO + Duration::from_secs(1);
        store.set_default_rule(enforced(fast), &Since::at(later));
        let left = store.known(asked, |state| Some(state.peek(later, 1)?.remaining()));
        assert_eq!(left, Some(0), "no tokens were refilled under the first quota");
    }
}
