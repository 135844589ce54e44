//! The store of exact keys: keys that are equal share a state, and no others do.
//!
//! Each key is one allocation, its *cell*: the key, its hash, its state (a word and its rule: see `stage`). Cells
//! are found through an index (`sync::Index`, which is scc's hash index: readers take no lock), and each holds one
//! of `max_keys` *places*, so the cap is hard. A *round* goes over the places, a few at a time, and evicts the
//! cells that are idle.
//!
//! Why not the obvious thing, removing an idle key from the index: a charge may come between the look at the
//! word and the removal, and is lost with the cell. So eviction first *seals* the idle word, by the same kind of
//! compare-and-swap that a charge is; then it *unlinks* the cell from the index; then its memory is *retired*,
//! by scc's epochs and the `Arc` that holds it. Why one cell beside the index, and not the word in it: scc moves
//! what it holds when it resizes, and a charge of the copy left behind would be lost. And why the places: scc
//! can't be walked a few keys at a time from where one has stopped.
//!
//! # State
//!
//! ```text
//! word:   fresh -> w0                charged by whoever finds the cell first, no earlier than the mark
//!                                    (the life of a word goes on in the next stage where the key's
//!                                    quota is changed)
//!         fresh -> SEALED            evicted, or its quota changed, before it was charged
//!         w0 -> w1 -> ...            charges, by `rule::try_update`
//!         w -> SEALED                eviction: w was idle
//! cell:   private -> linked          inserted into the index, unless its key is there
//!         linked -> unlinked         once its word is SEALED, by whoever sees that first
//! place:  vacant -> taken            before its cell is linked
//!         taken -> vacant            by the one thread that has unlinked its cell, or whose cell was not linked
//! ```
//!
//! # Invariants
//!
//! 1. SEALED is for good: no step changes a sealed word.
//! 2. A cell is unlinked only after its word is sealed, and is never linked again.
//! 3. No two cells that are linked have equal keys. (The index refuses the second.)
//! 4. Unlinking removes one cell, known by its address: a thread that comes late never removes a newer cell
//!    of the same key. Of all threads that try, one succeeds.
//! 5. Each linked cell holds a place of its own, and there are `max_keys` places.
//!
//! # Why no decision changes
//!
//! A charge is one compare-and-swap on a word that is not sealed. Its cell was linked when it was found, and
//! by 2 it still is, for it is not sealed; by 3 it is the only one of its key. So no charge goes to a cell that is
//! forgotten, and no key is charged in two. Sealing is a compare-and-swap from an idle word: a charge
//! comes before it, and makes it fail, or finds SEALED, helps to unlink, and starts from a fresh
//! word.
//!
//! An idle word decides as a fresh one from some time on. Before it is sealed, the store's *mark*
//! is raised to that time or a later one (see `forgetting`). A cell is linked with a fresh word,
//! and whoever finds that charges it at `now` or, if that is later, at the mark, read after the
//! cell was found. By then all cells that the key had were sealed and unlinked, and the mark covers
//! them. So the charge is decided as by a map that never forgets, asked at the time at which it
//! counts. Why not charge the cell before it is linked: meanwhile the key may come and go in
//! another cell, and the mark that was read would not cover that.
//!
//! All cells of a round are judged by one time, which is fixed when it begins.
//!
//! # Panics of the caller's code
//!
//! `to_key`, and the `Eq` of keys and of what is asked for, are the caller's, and may panic in the middle of any call. A place that
//! was taken goes back then ([`Undo`]); a cell that was made is dropped before it is linked; scc's lock on a bucket goes with its
//! guard. No such code is called between the step that links or unlinks a cell and the one that counts it. The clearing of
//! logs, the rounds and the places call none.
//!
//! # Progress
//!
//! Lookups and charges of known keys are lock-free: one that finds its cell sealed is the exception, since it
//! helps to unlink it. Inserting and unlinking take scc's lock on one bucket of the index: a thread that is
//! stopped while it holds that lock stops those who insert or unlink in the same bucket, and nobody else.
//! The places, the rounds and the memory bound are lock-free.
//!
//! # Work for each operation
//!
//! While a round is under way each insertion visits [`ExactStore::STEP`] = 8 places, so does one in 2048 charges
//! of known keys. At the cap an insertion visits up to 16 times as many, and is
//! then told that the store is full; a round begins a grace after the time by which the last one
//! judged, or at any later time when a key was refused for each step of it. scc resizes its array a
//! few buckets at a time.
//!
//! # Memory
//!
//! The cell takes 80 bytes with a key of 8 (the key, 56 bytes beside it, and 16 of the `Arc`), the index 9 bytes
//! for each item it has room for, of which it uses a quarter to seven eighths, and the place 8 to 16 bytes; with
//! the allocator's own, about 125 bytes for each key, and what the key itself owns. The places are the
//! only thing that is not given back when keys go: 8 to 16 bytes for each of the most keys there ever were.
//!
//! What is unlinked is freed when no thread can see it any more and scc comes by: it keeps removed cells in a
//! bucket until the bucket is full. So a store that changes its keys all the time holds as many cells as the
//! index has room for, which is up to two and a half for each key. Cells that are not freed yet are
//! counted: beyond [`four times max_keys`](most_alive) (and [`SPARE`] = 65,536 more) new keys get the full policy
//! unless scc's epoch moves on, so a thread that stops while it reads costs so much and no more. (What scc
//! retires when it resizes is not counted.)
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! Sealing and charging are decided by compare-and-swaps on one word, which need no more than the order of
//! modifications of that word. That the mark was raised is seen by who finds a cell that was linked
//! after the one that it covers, by the same (`eviction_races_late_charge_of_an_exact_key`,
//! `insertion_races_a_whole_life_of_its_key`). That a cell is seen whole by whoever finds it, and
//! that a removal is seen by
//! whoever inserts after it, is scc's; the models have a list behind a lock in its place. What would break if
//! a cell was unlinked before it is sealed, or by its key alone, is shown by
//! `eviction_races_charge_and_loses_none` and `eviction_races_insert_and_one_cell_lives`.

mod entry;
#[cfg(tollgate_loom)]
mod model;
mod places;
mod quotas;
mod rounds;
mod stage;
mod undo;

pub(crate) use entry::{Asked, Entry, spread};
#[cfg(tollgate_loom)]
pub use model::ModelLog;
pub(crate) use stage::{Counts, ExactRule, Kept, Shared, Staged, Wanted};

use crate::decision::Decision;
use crate::error::ConfigError;
use crate::forgetting::Sweep;
use crate::quota::{Enforced, Quota};
use crate::reclaim::Bag;
use crate::sync::{Atomic, Index, Ordering::Relaxed, Reading, epoch, reading};
use crate::time::Tick;
use entry::Exactly;
use equivalent::Equivalent;
use places::Places;
use quotas::Quotas;
use rounds::Rounds;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use undo::Undo;

/// How many steps of a round an insertion does at the cap before it gives up.
const STEPS_AT_CAP: usize = 16;

/// How many cells more than four times the cap may be there: a small store retires thousands while a thread
/// that reads has lost its core for a moment. Five megabytes.
const SPARE: u64 = 1 << 16;

/// Keys and their cells.
pub(crate) struct ExactStore<K: 'static> {
    index: Index<Arc<Entry<K>>>,
    quotas: Quotas<K>,
    places: Places,
    rounds: Rounds,
    max_keys: u64,
    evicted: Evicted,
    /// Cells are dropped by any thread: only keys that may be are shared.
    cells: PhantomData<Arc<Entry<K>>>,
}

/// What was evicted. On cache lines of its own: the rest of a store is only read by most calls.
#[derive(Debug)]
#[repr(align(128))]
struct Evicted {
    keys: Atomic<u64>,
    /// The epoch in which a key was last let in although too many cells were not freed.
    epoch: Atomic<u64>,
    /// Parts of states that others have followed.
    retired: Bag,
}

/// There is no place for a new key.
#[derive(Debug)]
pub(crate) struct StoreFull;

impl<K: Eq + 'static> ExactStore<K> {
    /// The places that one step of a round visits at the most.
    pub(crate) const STEP: usize = rounds::STEP as usize;

    pub(crate) fn new(
        max_keys: usize,
        grace: Duration,
        rule: Enforced<ExactRule>,
    ) -> Result<Self, ConfigError> {
        // The last number of a u32 is no place's.
        const MOST: usize = if usize::BITS > 32 { u32::MAX as usize - 1 } else { usize::MAX >> 8 };
        if max_keys == 0 || max_keys > MOST {
            return Err(ConfigError::MaxKeysOutOfRange { max_keys, most: MOST });
        }
        let max_keys = max_keys as u64;
        Ok(Self {
            index: Index::new(),
            quotas: Quotas::new(rule),
            places: Places::new(max_keys),
            rounds: Rounds::new(max_keys, grace),
            max_keys,
            evicted: Evicted { keys: Atomic::new(0), epoch: Atomic::new(0), retired: Bag::new() },
            cells: PhantomData,
        })
    }

    /// Gives the state of `key` to `visit`, if the key is there. `visit` answers unless the word is frozen.
    #[inline]
    pub(crate) fn known<Q, T>(&self, key: Asked<'_, Q>, visit: impl Fn(Kept<'_>) -> Option<T>) -> Option<T>
    where
        Q: Equivalent<K> + ?Sized,
    {
        loop {
            // Before the cell is looked up: see `stage`.
            let changes = self.quotas.changes();
            let wanted = || self.quotas.of(&key);
            let found = self.index.find(&key, |cell| {
                cell.state
                    .visit(changes, wanted, &self.evicted.retired, &visit)
                    .ok_or_else(|| Arc::clone(cell))
            })?;
            match found {
                Ok(answer) => return Some(answer),
                Err(sealed) => self.unlink(&sealed),
            }
        }
    }

    /// The earliest time at which a key is charged that is not there, or has no time yet. For who
    /// has found that.
    pub(crate) fn forgotten(&self) -> Tick {
        self.rounds.forgotten().get()
    }

    /// Gives the state of `key` to `visit`, after inserting the key, as `to_key` makes it, if need be. `visit`
    /// charges, and answers unless the word is frozen.
    #[cold]
    pub(crate) fn insert<Q, T>(
        &self,
        key: Asked<'_, Q>,
        to_key: impl Fn() -> K,
        now: Tick,
        visit: impl Fn(Kept<'_>) -> Option<T>,
    ) -> Result<T, StoreFull>
    where
        Q: Equivalent<K> + ?Sized,
    {
        let reading = reading();
        self.step(&reading);
        loop {
            // Another thread may have inserted it.
            if let Some(answer) = self.known(key, &visit) {
                return Ok(answer);
            }
            let Some(place) = self.place(key.hash, now, &reading) else {
                return self.known(key, &visit).ok_or(StoreFull);
            };
            let give_back = Undo::unless_done(|| self.places.give_back(place));
            let wanted = self.quotas.of(&key);
            let cell = Arc::new(Entry::new(key.hash, place, to_key(), wanted));
            if self.index.insert(Arc::clone(&cell)).is_err() {
                continue;
            }
            give_back.done();
            self.rounds.note_insertion(now);
            // Only now: what the key was charged before it was forgotten for the last time, the
            // mark covers from here on.
            if let Some(answer) = cell.state.visit_as_is(&self.evicted.retired, &visit) {
                return Ok(answer);
            }
            // It was sealed before it was charged.
        }
    }

    /// The rule that a key is to be under.
    pub(crate) fn rule<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) -> Wanted {
        self.quotas.of(&key)
    }

    /// Would a new key find a place now? An estimate: other threads insert and evict meanwhile.
    pub(crate) fn has_room(&self, now: Tick) -> bool {
        self.places.taken() < self.max_keys || self.rounds.is_under_way() || self.rounds.is_due(now)
    }

    /// The most keys that can be there now: also counts those that are being inserted.
    pub(crate) fn len(&self) -> usize {
        // At most `max_keys`, which was a usize.
        #[allow(clippy::cast_possible_truncation)]
        let taken = self.places.taken().min(self.max_keys) as usize;
        taken
    }

    pub(crate) fn max_keys(&self) -> usize {
        // It was a usize.
        #[allow(clippy::cast_possible_truncation)]
        let max_keys = self.max_keys as usize;
        max_keys
    }

    /// How many keys are there before the next round begins.
    pub(crate) fn capacity(&self) -> usize {
        // At most `max_keys`, which was a usize.
        #[allow(clippy::cast_possible_truncation)]
        let capacity = self.rounds.capacity() as usize;
        capacity
    }

    /// How many rounds are over.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.done()
    }

    /// How many keys were evicted.
    pub(crate) fn evicted(&self) -> u64 {
        // ORDERING: relaxed; a statistic.
        self.evicted.keys.load(Relaxed)
    }

    /// The bytes of all cells that are not freed yet, of the index and of the places, and of the logs, which are
    /// looked at one by one; without what the keys own, and without the allocator's own.
    pub(crate) fn bytes(&self) -> usize {
        const CELL: usize = 2 * size_of::<usize>();
        let cell = size_of::<Entry<K>>() + CELL;
        // What is allocated fits into memory.
        #[allow(clippy::cast_possible_truncation)]
        let (cells, places) = (self.alive() as usize, self.places.bytes() as usize);
        #[allow(clippy::cast_possible_truncation)]
        let stages = self.later() as usize * Staged::BYTES;
        let logs = if self.quotas.are_of_logs() { self.log_bytes() } else { 0 };
        cells * cell
            + self.index.capacity() * Index::<Arc<Entry<K>>>::ITEM_BYTES
            + places
            + logs
            + stages
            + self.quotas.bytes()
            + self.evicted.retired.bytes()
    }

    fn log_bytes(&self) -> usize {
        let cells = (0..self.end()).filter_map(|place| self.cell(place));
        cells.map(|cell| cell.state.log_bytes()).sum()
    }

    /// Does one step of the round that is under way, or begins one if the store is far too large. True if there
    /// is more to do.
    pub(crate) fn tend(&self, now: Tick) -> bool {
        self.evicted.retired.collect();
        if self.rounds.is_under_way() {
            return self.step(&reading());
        }
        self.rounds.is_too_large(self.places.taken(), now) && self.begin(now)
    }

    /// Begins a round to forget the idle keys, unless one is under way or no key can have become old enough
    /// since the last. The sweep began at `first`.
    pub(crate) fn begin_sweep(&self, now: Tick, first: Tick) -> Sweep {
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

    /// Notes the time of a caller who looks after the limiter: it is evidence, as that of a sweep
    /// is.
    pub(crate) fn note(&self, now: Tick) {
        self.rounds.note(now);
    }

    /// Begins a round if there is something to forget, unless one is under way. True if one is under way now.
    pub(crate) fn begin_round(&self, now: Tick) -> bool {
        self.rounds.is_under_way() || self.holds_something() && self.begin(now)
    }

    fn holds_something(&self) -> bool {
        self.places.taken() > 0 || self.rounds.is_large()
    }

    /// The rule of the keys that have no quota of their own.
    pub(crate) fn default_rule(&self) -> Wanted {
        self.quotas.default()
    }

    /// How many changes of rules there were: to be read before a rule is asked for.
    pub(crate) fn changes(&self) -> u64 {
        self.quotas.changes()
    }

    /// Replaces the rule of all keys that have none of their own, and goes over all keys. Lock-free.
    pub(crate) fn set_default_rule(&self, rule: Enforced<ExactRule>, now: Tick) {
        self.quotas.set_default(rule, now);
        let changes = self.changes();
        for place in 0..self.end() {
            if let Some(cell) = self.cell(place) {
                // One that was sealed since was idle.
                cell.state.visit(changes, || self.quotas.of(&cell), &self.evicted.retired, |_| Some(()));
                self.evicted.retired.tidy();
            }
        }
    }

    /// Gives a key a rule of its own.
    pub(crate) fn set_rule<Q>(&self, asked: Asked<'_, Q>, key: K, rule: Enforced<ExactRule>, now: Tick)
    where
        Q: Equivalent<K> + ?Sized,
    {
        self.quotas.set(asked.hash, key, rule, now);
        self.known(asked, |_| Some(()));
        self.evicted.retired.tidy();
    }

    /// Takes its own rule from a key; had it one?
    pub(crate) fn remove_rule<Q>(&self, key: Asked<'_, Q>, now: Tick) -> bool
    where
        Q: Equivalent<K> + ?Sized,
    {
        let removed = self.quotas.remove(&key, now);
        self.known(key, |_| Some(()));
        self.evicted.retired.tidy();
        removed
    }

    /// The quota of its own that a key has.
    pub(crate) fn own_quota<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) -> Option<Quota> {
        Some(self.quotas.own(&key)?.quota)
    }

    /// How many keys have a rule of their own.
    pub(crate) fn own_rules(&self) -> u64 {
        self.quotas.count()
    }

    /// Makes every key as good as new that was there when this began, and some that came since.
    pub(crate) fn reset_all(&self) {
        for place in 0..self.end() {
            if let Some(cell) = self.cell(place) {
                // One that was sealed since was idle.
                cell.state.visit_as_is(&self.evicted.retired, |state| state.reset());
            }
        }
    }

    /// One more than the number of the last place that was ever taken.
    pub(crate) fn end(&self) -> u32 {
        // At most `max_keys`, which is no more than a u32 can say.
        #[allow(clippy::cast_possible_truncation)]
        let end = self.places.fresh() as u32;
        end
    }

    /// The cell that holds a place, if there is one and it is not sealed.
    pub(crate) fn cell(&self, place: u32) -> Option<Arc<Entry<K>>> {
        let holder = self.places.holder(place)?;
        self.index.find(&holder, Arc::clone).filter(|cell| !cell.state.is_sealed(&self.evicted.retired))
    }

    /// What a request of one token would be answered for the key of a cell; `None` if it is sealed.
    pub(crate) fn peek_at(&self, cell: &Arc<Entry<K>>, now: Tick) -> Option<Decision> {
        let changes = self.quotas.changes();
        let peek = |state: Kept<'_>| state.peek(now, 1, || self.forgotten());
        cell.state.visit(changes, || self.quotas.of(cell), &self.evicted.retired, peek)
    }

    /// Counts a denial of a key that is there.
    pub(crate) fn count_denial<Q: Equivalent<K> + ?Sized>(&self, key: Asked<'_, Q>) {
        self.index.find(&key, |cell| cell.count_denial());
    }

    /// A place for a key with this hash.
    fn place(&self, hash: u64, now: Tick, reading: &Reading) -> Option<u32> {
        if self.alive() >= most_alive(self.max_keys) && !self.has_epoch_moved(reading) {
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
            self.step(reading);
        }
        self.places.take(hash)
    }

    /// Stages that came after a change and are not freed yet.
    fn later(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.quotas.counts().later.load(Relaxed)
    }

    /// Cells that are not freed yet.
    fn alive(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.quotas.counts().cells.load(Relaxed)
    }

    /// Has scc's epoch moved since this was last asked? Then an insertion makes scc free what it can.
    #[cold]
    fn has_epoch_moved(&self, reading: &Reading) -> bool {
        let now = epoch(reading);
        // ORDERING: relaxed, all; which epoch was seen is an estimate, and publishes nothing.
        let seen = self.evicted.epoch.load(Relaxed);
        now != seen && self.evicted.epoch.compare_exchange(seen, now, Relaxed, Relaxed).is_ok()
    }

    fn begin(&self, now: Tick) -> bool {
        self.rounds.begin(self.places.taken(), self.places.fresh(), now);
        self.rounds.is_under_way()
    }

    /// Visits the next places of the round that is under way, if one is. True if there is more to visit.
    fn step(&self, _reading: &Reading) -> bool {
        let Some(claim) = self.rounds.claim() else { return false };
        let judged_at = self.rounds.judged_at();
        // Before the cell is sealed: who finds that, or the cell gone, finds the mark raised.
        let forget = |idle_from: Tick| self.rounds.forgotten().raise(idle_from);
        for place in claim.places {
            let Some(holder) = self.places.holder(place) else { continue };
            // None if the key is just being inserted or removed.
            let sealed = |cell: &Arc<Entry<K>>| {
                let is_sealed = cell.state.seal_if_idle(judged_at, &self.evicted.retired, forget);
                is_sealed.then(|| Arc::clone(cell))
            };
            let idle = self.index.find(&holder, sealed);
            if let Some(sealed) = idle.flatten() {
                self.unlink(&sealed);
            }
        }
        if claim.is_last {
            self.rounds.finish(self.places.taken());
        }
        !claim.is_last
    }

    /// Removes this cell, which is sealed, from the index, unless another thread has done so.
    #[cold]
    fn unlink(&self, cell: &Arc<Entry<K>>) {
        debug_assert!(
            cell.state.is_sealed(&self.evicted.retired),
            "only what takes no more charges is unlinked"
        );
        if self.index.remove(&Exactly(cell)) {
            self.places.give_back(cell.place);
            // ORDERING: relaxed; a statistic.
            self.evicted.keys.fetch_add(1, Relaxed);
        }
    }
}

/// How many cells may be linked or not freed yet.
const fn most_alive(max_keys: u64) -> u64 {
    4 * max_keys + SPARE
}

impl<K> fmt::Debug for ExactStore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExactStore").field("places", &self.places).finish_non_exhaustive()
    }
}
