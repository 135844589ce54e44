//! One generation of the table: its space, the places given to keys in the space, and its turnover
//! into the next array.

use super::chunks::Chunks;
use super::memory::MemoryGrant;
use super::rules::{Rules, Stamped};
use super::size::Size;
use super::space::{Fingerprint, SLOTS, Space};
use super::step::{Step, reach};
use crate::forgetting::{Evidence, Mark};
use crate::growth;
use crate::reclaim::{Chained, Followed, Link, Retire, Retry};
use crate::rule::{AnyRule, Rule, Word, begin, try_update, update};
use crate::state::State;
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed},
};
use crate::time::Tick;
use std::time::Duration;

/// The number of lines in a chunk, which therefore has 16 slots. An operation closes one chunk,
/// except in the cases listed in the documentation of `table`.
pub(super) const CHUNK: usize = if cfg!(tollgate_loom) { 1 } else { 4 };

/// The bit of `given` that is set once the array gives out no more places.
const CLOSED: u64 = 1 << 63;

/// The value of `carried` until the turnover into this array is complete.
const UNKNOWN: u64 = u64::MAX;

/// A space and its bookkeeping. The documentation of `table` describes the states and invariants.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) space: Space,
    /// The rules under which the words of this array were made.
    pub(super) rules: Rules,
    pub(super) size: Size,
    /// When this array was created, according to the creating thread's clock.
    pub(super) began: Tick,
    /// The earliest time at which the array may be too large, or `Tick::MAX` if the array has the
    /// smallest possible size.
    calm: Tick,
    /// The mark. A key that was forgotten before this array existed, or by the turnover into this
    /// array, is not throttled after the mark. Therefore a key that is neither in this array nor in
    /// an earlier array is charged for the time of the mark or for a later time.
    ///
    /// Before a thread reads the mark, it must have found this array in one of two ways: as the
    /// root, or through a slot of the root that is sealed or contains an evicted key.
    pub(super) forgotten: Mark,
    /// The time at which the keys of the previous array are judged. A key is evicted if it was
    /// already idle one grace before this time.
    pub(super) believed: Tick,
    /// The maximum number of keys that may be moved here from the previous array.
    promised: u64,
    /// The number of keys moved here from the previous array, once all are moved.
    carried: Atomic<u64>,
    /// The number of places for new keys while the array is the root. It is 0 until that number is
    /// known, and becomes 0 again when all places are given. The value 0 is a hint; any other value
    /// is exact. See [`Array::place_at_once`].
    room: Atomic<u64>,
    counts: PlaceCounts,
    /// The progress of this array's own turnover.
    chunks: Chunks,
    pub(super) next: Link<Array>,
    /// The permit for this array's memory. It is returned when this array is freed, except for the
    /// part that covers a large block. That part is returned when the block is given back.
    permit: MemoryGrant,
}

/// The counts written by insertions. They have their own cache lines, separate from the address of
/// the space, which every lookup reads.
#[derive(Debug)]
#[repr(align(128))]
struct PlaceCounts {
    /// The number of places given to new keys, plus the number of refused requests that have not
    /// been taken back yet. The highest bit is CLOSED.
    given: Atomic<u64>,
    /// How many keys this array's own turnover has evicted.
    evicted: Atomic<u64>,
    evidence: Evidence,
}

/// The initial times of a new array.
#[derive(Debug)]
pub(super) struct Dawn {
    /// When the array was created, according to the creating thread's clock.
    pub(super) began: Tick,
    pub(super) believed: Tick,
    forgotten: Tick,
    evidence: Evidence,
}

impl Dawn {
    /// Returns the times of the first array of a table.
    pub(super) fn first() -> Self {
        let (began, believed, forgotten) = (Tick::ZERO, Tick::ZERO, Tick::ZERO);
        Self { began, believed, forgotten, evidence: Evidence::none() }
    }

    /// Returns the times of the array that follows `before`, which must be the root.
    pub(super) fn after(before: &Array, now: Tick) -> Self {
        Self {
            began: now,
            believed: before.believes(now),
            forgotten: before.forgotten.get(),
            evidence: before.counts.evidence.copied(|| before.given()),
        }
    }
}

/// The answer to a request for a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    Given,
    /// All places are taken.
    None,
    /// The array is being turned over and gives out no more places.
    Closed,
}

impl Array {
    /// Returns the size in bytes of an array of this size.
    pub(super) fn bytes_of(size: Size) -> u64 {
        let lines = size.lines();
        size_of::<Self>() as u64 + Space::bytes_of(lines) + lines.div_ceil(CHUNK as u64)
    }

    /// Creates an array of this size. At most `promised` keys will be moved into it from the
    /// previous array. Returns `None` if there is no memory for the array.
    pub(super) fn new(
        size: Size,
        promised: u64,
        dawn: Dawn,
        rules: Rules,
        mut permit: MemoryGrant,
    ) -> Option<Self> {
        let Dawn { began, believed, forgotten, evidence } = dawn;
        debug_assert!(promised <= size.most);
        permit.lower_to(Self::bytes_of(size));
        let lines = usize::try_from(size.lines()).ok()?;
        Some(Self {
            space: Space::new(lines)?,
            rules,
            size,
            began,
            calm: if size.limit > growth::FIRST { began + growth::CALM } else { Tick::MAX },
            forgotten: Mark::at(forgotten),
            believed,
            promised,
            carried: Atomic::new(if promised == 0 { 0 } else { UNKNOWN }),
            room: Atomic::new(if promised == 0 { size.limit } else { 0 }),
            counts: PlaceCounts { given: Atomic::new(0), evicted: Atomic::new(0), evidence },
            chunks: Chunks::new(lines.div_ceil(CHUNK))?,
            next: Link::null(),
            permit,
        })
    }

    /// Returns the state of a key whose word is in this array.
    #[inline(always)]
    pub(super) fn state<'s>(&'s self, key: Fingerprint, word: &'s Atomic<Word>) -> State<'s> {
        let Stamped { enforced, stamp } = self.rules.of(key);
        State { rule: &enforced.rule, word, stamp: *stamp }
    }

    /// See [`Evidence::believed`].
    pub(super) fn believes(&self, now: Tick) -> Tick {
        self.counts.evidence.believed(now, || self.given())
    }

    /// Records the time of a sweep, or of a new key that found no place.
    pub(super) fn note(&self, now: Tick) {
        self.counts.evidence.note(now, || self.given());
    }

    /// See [`Evidence::is_due`].
    pub(super) fn is_due(&self, now: Tick, grace: Duration) -> bool {
        self.counts.evidence.is_due(self.believes(now), self.believed, grace, self.chunks())
    }

    /// See [`Evidence::lets_sweep`].
    pub(super) fn lets_sweep(&self, now: Tick, first: Tick) -> bool {
        self.counts.evidence.lets_sweep(now, first, || self.given())
    }

    /// Returns the number of places given to new keys, plus the number of refused requests that
    /// have not been taken back yet.
    fn given(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.counts.given.load(Relaxed) & !CLOSED
    }

    /// Returns whether the root has long been far larger than its keys require, so that the next
    /// array can be smaller. Returns false while memory is short, because the remaining memory is
    /// reserved for the turnovers of full arrays.
    #[inline]
    pub(super) fn is_too_large(&self, now: Tick) -> bool {
        now.is_apart(self.began, growth::CALM)
            && self.size.limit > growth::FIRST
            && growth::is_hardly_used(self.size.limit, self.used(None))
            && !self.permit.is_short()
    }

    /// Returns true if the root needs upkeep before the next insertion, or if `now` is earlier than
    /// the mark. Before the time `calm`, a single comparison shows that the array is not too large.
    #[inline(always)]
    pub(super) fn is_upkeep_due(&self, now: Tick) -> bool {
        self.forgotten.is_after(now) || self.permit.is_leaving() || now >= self.calm && self.is_too_large(now)
    }

    /// Returns how many chunks this array has.
    pub(super) fn chunks(&self) -> u64 {
        self.space.lines().div_ceil(CHUNK) as u64
    }

    /// Returns the maximum number of keys that may have a place. This number is larger while the
    /// previous array is being turned over into this array.
    fn places(&self, before: Option<&Self>) -> u64 {
        if before.is_some() { self.size.most } else { self.size.limit }
    }

    /// Returns an upper bound on the number of keys that have a place here or will be moved here.
    /// `before` is the previous array, if it is still being turned over into this array.
    pub(super) fn used(&self, before: Option<&Self>) -> u64 {
        // The two counts may have been read at different moments, so their sum may exceed `most`.
        // At any single moment, the sum exceeds `most` only because of refused requests.
        (self.given() + self.brought(before)).min(self.size.most)
    }

    /// Returns whether a new key would receive a place now.
    pub(super) fn has_place(&self, before: Option<&Self>) -> bool {
        self.used(before) < self.places(before)
    }

    /// Returns an upper bound on the number of keys moved from the previous array, including keys
    /// that may still be moved.
    pub(super) fn brought(&self, before: Option<&Self>) -> u64 {
        // ORDERING: relaxed. A thread whose root is this array sees the stored number of carried
        // keys through the *link* edge. Any other thread falls back to the upper bound.
        match (self.carried.load(Relaxed), before) {
            (UNKNOWN, Some(before)) => self.promised - before.counts.evicted.load(Relaxed),
            (UNKNOWN, None) => self.promised,
            (carried, _) => carried,
        }
    }

    /// Requests a place for a new key that arrives at `now`.
    pub(super) fn place(&self, before: Option<&Self>, now: Tick) -> Place {
        let room = self.places(before).saturating_sub(self.brought(before));
        let give = |given: u64| (given < room).then_some(given + 1);
        // ORDERING: both accesses are relaxed, because the count publishes no other data. (CLOSED
        // is larger than any room.)
        match self.counts.given.fetch_update(Relaxed, Relaxed, give) {
            Ok(given) => {
                self.counts.evidence.note_insertion(given, now);
                Place::Given
            }
            Err(given) if given & CLOSED != 0 => Place::Closed,
            Err(_) => Place::None,
        }
    }

    /// The fast path of [`place`](Self::place) for the root. It performs one addition and does not
    /// load the count first. The count is usually in another core's cache, so a separate load would
    /// cost a second transfer of the cache line. Returns false if no place was given.
    ///
    /// After a refusal, the count is briefly too large, so another request may be refused even
    /// though a place has been given back. The count is never too small, so the array never gives
    /// out more places than it has.
    #[inline(always)]
    pub(super) fn place_at_once(&self, now: Tick) -> bool {
        // ORDERING: relaxed, because all threads that store a value other than 0 store the same
        // value.
        let room = self.room.load(Relaxed);
        if room == 0 {
            return false;
        }
        // ORDERING: relaxed, as in `place`. (CLOSED is larger than any room.)
        let given = self.counts.given.fetch_add(1, Relaxed);
        if given >= room {
            return self.has_no_more();
        }
        self.counts.evidence.note_insertion(given, now);
        true
    }

    /// Takes back a refused request, and returns false.
    #[cold]
    fn has_no_more(&self) -> bool {
        reach(Step::AskedInVain);
        self.give_back();
        // ORDERING: relaxed; a hint that all places are given.
        self.room.store(0, Relaxed);
        false
    }

    /// Gives back a place that was not needed.
    pub(super) fn give_back(&self) {
        // ORDERING: relaxed, as in `place`.
        self.counts.given.fetch_sub(1, Relaxed);
    }

    /// Stops giving out places in this array, which must be the root. Returns the maximum number of
    /// keys that the array can contain from now on.
    pub(super) fn close(&self) -> u64 {
        // ORDERING: relaxed; a hint that no places are given.
        self.room.store(0, Relaxed);
        // ORDERING: relaxed, because this is a count. This thread knows the number of carried keys,
        // because it saw this array as the root.
        let given = self.counts.given.fetch_or(CLOSED, Relaxed) & !CLOSED;
        (given + self.brought(None)).min(self.size.most)
    }

    /// Turns over one chunk of this array into `next`: closes the lines of the chunk, evicts the
    /// keys that were idle at `judged_at`, and moves the other keys. All helpers use the same
    /// `judged_at`, so several threads may turn over the same chunk with the same result.
    ///
    /// Returns how many keys this call has evicted. If the turnover is complete, also returns the
    /// total number of keys moved.
    pub(super) fn turn_chunk(&self, next: &Self, judged_at: Tick) -> (u64, Option<u64>) {
        let mut evicted = 0;
        if let Some(chunk) = self.chunks.take() {
            // Freeze all words before moving the first word, so that the processor fetches the
            // lines of all keys in parallel.
            let mut frozen = [(Fingerprint::EMPTY, Word::FRESH); CHUNK * SLOTS];
            let mut moved: u8 = 0;
            let first = chunk * CHUNK;
            for line in first..self.space.lines().min(first + CHUNK) {
                self.space.close_line(line, |key, word| match self.freeze(key, word, next, judged_at) {
                    Frozen::For(word) => {
                        reach(Step::Frozen);
                        next.space.prepare(key);
                        frozen[usize::from(moved)] = (key, word);
                        moved += 1;
                    }
                    Frozen::Evicted { by_us } => evicted += u64::from(by_us),
                });
            }
            for &(key, word) in &frozen[..usize::from(moved)] {
                next.bring(key, word, self);
            }
            reach(Step::ChunkMoved);
            self.chunks.finish(chunk, moved);
            reach(Step::ChunkNoted);
        }
        (evicted, self.chunks.add_up())
    }

    /// Freezes a word, or evicts its key if the word is idle. All helpers obtain the same result.
    #[inline]
    fn freeze(&self, key: Fingerprint, word: &Atomic<Word>, next: &Self, judged_at: Tick) -> Frozen {
        let rule = &self.rules.of(key).enforced.rule;
        let stays = |word: Word| !word.is_frozen() && !rule.is_idle(word, judged_at);
        let updated = try_update(word, |word| stays(word).then(|| word.frozen()));
        // The frozen word cannot be EVICTED, because EVICTED is a frozen fresh word, and a kept
        // word is not fresh.
        if updated.is_new {
            return Frozen::For(updated.to);
        }
        self.evict(rule, word, next, judged_at)
    }

    /// Evicts an idle key. If another helper has already evicted the key or frozen its word,
    /// returns that helper's result. This method is not inlined, so that the path for keys that
    /// stay can hold its values in registers.
    #[cold]
    #[inline(never)]
    fn evict(&self, rule: &AnyRule, word: &Atomic<Word>, next: &Self, judged_at: Tick) -> Frozen {
        let updated = update(word, |word| match word {
            _ if word.is_frozen() => word,
            _ if rule.is_idle(word, judged_at) => {
                // Raise the mark before evicting the key, so that a thread that sees the eviction
                // also sees the raised mark.
                next.forgotten.raise(rule.idle_from(word).unwrap_or(judged_at));
                reach(Step::Forgotten);
                Word::EVICTED
            }
            _ => word.frozen(),
        });
        if updated.to != Word::EVICTED {
            return Frozen::For(updated.to);
        }
        let by_us = updated.from != updated.to;
        if by_us {
            reach(Step::Evicted);
            // ORDERING: relaxed. The count need not be exact, because its only purpose is to free
            // places a moment sooner.
            self.counts.evicted.fetch_add(1, Relaxed);
        } else {
            // ORDERING: acquire side of *closed*, for the mark raised before the eviction. If the
            // thread that evicted the key has stopped, this thread may have to record that the
            // chunk is done.
            word.load(Acquire);
        }
        Frozen::Evicted { by_us }
    }

    /// Installs a key of the previous array, with its frozen word. Does nothing if the key is
    /// already here.
    #[inline]
    pub(super) fn bring(&self, key: Fingerprint, frozen: Word, before: &Self) {
        let mut word = frozen.thawed();
        if !self.rules.are(&before.rules) {
            word = self.translated(key, word, before);
        }
        // Every key of the previous array has a place here. The key's run cannot be sealed before
        // the key is installed, because this array is closed only after all keys are installed.
        let Some(cell) = self.space.claim(key) else {
            return debug_assert!(false, "an array was closed before all its keys had come");
        };
        reach(Step::Brought);
        begin(cell, word);
    }

    /// Translates a frozen word that was made under the rules of the array `before`. Helpers may
    /// translate the word for different times. The first installation wins, and each of these times
    /// is right: see [`Since::binding`](crate::state::Since::binding).
    #[inline(never)]
    fn translated(&self, key: Fingerprint, word: Word, before: &Self) -> Word {
        let (rule, before) = (&self.rules.of(key).enforced.rule, &before.rules.of(key).enforced.rule);
        if rule == before { word } else { rule.adopt(before, word, self.rules.binding()) }
    }

    /// Stores how many keys were moved from the previous array. All keys must have been moved.
    pub(super) fn carry(&self, moved: u64) {
        // ORDERING: relaxed. The *link* edge publishes the value when this array becomes the root.
        // All threads store the same value.
        self.carried.store(moved, Relaxed);
        // ORDERING: relaxed. *link* also publishes this value. Even after a late store, a closed
        // array gives out no place, because CLOSED is larger than any room.
        self.room.store(self.size.limit.saturating_sub(moved), Relaxed);
    }

    /// Returns the array after `closed`. The caller must have found a sealed slot or a frozen word
    /// in `closed`.
    #[inline]
    pub(super) fn successor(closed: Followed<'_, Self>) -> Result<Followed<'_, Self>, Retry> {
        let next = closed.next()?;
        Ok(next.expect("slots are sealed and words frozen only when the next array is linked"))
    }
}

impl Chained for Array {
    fn next(&self) -> &Link<Self> {
        &self.next
    }
}

impl Retire for Array {
    /// Returns 0, because the array's permit counts its bytes.
    fn bytes(&self) -> usize {
        0
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        self.space.leave(&mut self.permit);
    }
}

/// The result of turning over one word.
#[derive(Debug)]
enum Frozen {
    /// The word is frozen with this value and must be moved.
    For(Word),
    /// The key is forgotten.
    Evicted { by_us: bool },
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::super::memory::Memory;
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::quota::{Enforced, Quota};

    fn array(size: Size, promised: u64) -> Array {
        array_under(Algorithm::TokenBucket, size, promised)
    }

    fn array_under(algorithm: Algorithm, size: Size, promised: u64) -> Array {
        let quota = Quota::per_second(1);
        let rule = AnyRule::new(algorithm, quota, Duration::ZERO).unwrap();
        let permit = MemoryGrant::take(&Memory::new(1 << 20), Array::bytes_of(size)).unwrap();
        Array::new(size, promised, Dawn::first(), Rules::new(Enforced { rule, quota }), permit).unwrap()
    }

    #[test]
    fn a_closed_array_gives_out_no_place_and_knows_how_many_it_gave() {
        let array = array(Size::first(3), 0);
        assert_eq!(
            [(); 4].map(|()| array.place(None, Tick::ZERO)),
            [Place::Given, Place::Given, Place::Given, Place::None]
        );
        assert!(!array.has_place(None));
        array.give_back();
        assert!(array.has_place(None));
        assert_eq!((array.used(None), array.close(), array.used(None)), (2, 2, 2));
        assert_eq!(array.place(None, Tick::ZERO), Place::Closed);
    }

    #[test]
    fn as_many_places_are_given_at_once_as_there_are() {
        let array = array(Size::first(3), 0);
        assert_eq!([(); 5].map(|()| array.place_at_once(Tick::ZERO)), [true, true, true, false, false]);
        assert_eq!((array.used(None), array.place(None, Tick::ZERO)), (3, Place::None));
        array.give_back();
        // `place` reads the count, so it finds the place that was given back.
        assert_eq!(
            (array.place_at_once(Tick::ZERO), array.place(None, Tick::ZERO), array.place(None, Tick::ZERO)),
            (false, Place::Given, Place::None)
        );
    }

    /// Even after a late store of `room`, a closed array gives no place.
    #[test]
    fn a_closed_array_gives_no_place_at_once() {
        let before = array(Size::first(8), 0);
        assert!(before.place_at_once(Tick::ZERO));
        let next = array(Size::after(before.chunks(), before.close(), 8, 8), 1);
        // The number of keys that will be moved into the next array is not known yet, so neither
        // array gives out a place.
        assert!(!before.place_at_once(Tick::ZERO) && !next.place_at_once(Tick::ZERO));
        before.room.store(8, Relaxed);
        assert!(!before.place_at_once(Tick::ZERO));
        assert_eq!((before.close(), before.place(None, Tick::ZERO)), (1, Place::Closed));
        next.carry(1);
        assert_eq!(
            [(); 8].map(|()| next.place_at_once(Tick::ZERO)).iter().filter(|given| **given).count(),
            7
        );
        assert_eq!((next.close(), next.used(None)), (8, 8));
    }

    #[test]
    fn places_are_kept_for_keys_that_are_still_to_come() {
        let before = array(Size::first(8), 0);
        let after = Size::after(before.chunks(), 5, 4, 100);
        assert_eq!((after.limit, after.most), (4, 5 + before.chunks()));
        let next = array(after, 5);
        assert_eq!((next.used(Some(&before)), next.used(None), next.brought(None)), (5, 5, 5));
        for _ in 0..before.chunks() {
            assert_eq!(next.place(Some(&before), Tick::ZERO), Place::Given);
        }
        assert_eq!(next.place(Some(&before), Tick::ZERO), Place::None);
        // One key was forgotten, so another key finds a place.
        before.counts.evicted.store(1, Relaxed);
        assert_eq!(
            (next.place(Some(&before), Tick::ZERO), next.place(Some(&before), Tick::ZERO)),
            (Place::Given, Place::None)
        );
        // All keys have been moved, and there are fewer of them than promised. As the root, the
        // array has its own limit.
        next.carry(2);
        assert_eq!((next.brought(None), next.used(None)), (2, 2 + before.chunks() + 1));
        assert_eq!(next.place(Some(&before), Tick::ZERO), Place::Given);
        assert_eq!(Size::after(before.chunks(), 5, 4, 6).most, 6);
        assert_eq!(Size::after(before.chunks(), 5, 40, 100).most, 40);
    }

    /// Late helpers judge the words for a later or an earlier time than the first helper did.
    #[test]
    fn what_was_frozen_or_evicted_stays_so_whenever_it_is_judged_again() {
        for algorithm in Algorithm::PACKED {
            let [array, next] = [(); 2].map(|()| array_under(algorithm, Size::first(3), 0));
            let key = Fingerprint::of_hash(7);
            let [busy, idle] = [(); 2].map(|()| Atomic::new(Word::FRESH));
            for cell in [&busy, &idle] {
                assert!(array.state(key, cell).begin(Tick::from_nanos(1), 1, Tick::ZERO).is_some());
            }
            let frozen = busy.load(Relaxed).frozen();
            for judged_at in [Tick::from_nanos(1), Tick::MAX, Tick::ZERO] {
                assert!(
                    matches!(array.freeze(key, &busy, &next, judged_at), Frozen::For(word) if word == frozen)
                );
            }
            for (judged_at, first) in [(Tick::MAX, true), (Tick::ZERO, false), (Tick::MAX, false)] {
                assert!(
                    matches!(array.freeze(key, &idle, &next, judged_at), Frozen::Evicted { by_us } if by_us == first)
                );
            }
            assert_eq!(array.counts.evicted.load(Relaxed), 1, "{algorithm:?}");
        }
    }

    #[test]
    fn a_turnover_tells_how_many_keys_it_evicted_and_moved() {
        let before = array(Size::first(12), 0);
        for (hash, second) in [(1 << 10, 1), (1 << 62, 1), (u64::MAX, 9)] {
            let key = Fingerprint::of_hash(hash);
            assert_eq!(before.place(None, Tick::ZERO), Place::Given);
            let word = before.space.claim(key).unwrap();
            let now = Tick::ZERO + Duration::from_secs(second);
            assert!(before.state(key, word).begin(now, 1, Tick::ZERO).is_some());
        }
        let next = array(Size::after(before.chunks(), before.close(), 12, 100), 3);
        let (mut evicted, mut moved) = (0, None);
        while moved.is_none() {
            let turned = before.turn_chunk(&next, Tick::ZERO + Duration::from_secs(5));
            (evicted, moved) = (evicted + turned.0, turned.1);
        }
        assert_eq!((evicted, moved), (2, Some(1)));
    }

    #[test]
    fn an_array_has_the_lines_and_the_bytes_of_its_size() {
        for (limit, more) in
            (1..200).flat_map(|limit| [0, 1, limit / 2, limit, 3 * limit].map(|more| (limit, more)))
        {
            let size = Size { limit, most: limit + more };
            let slots = size.lines() * SLOTS as u64;
            // A small space is half full at the limit.
            assert!(slots >= 2 * limit && 3 * slots >= 5 * size.most, "{size:?}");
            assert!(slots <= (2 * limit).max(2 * size.most - size.most / 3) + 1 + SLOTS as u64, "{size:?}");
        }
        for (limit, more) in
            (20_000..20_200).flat_map(|limit| [0, 1, limit / 2, limit, 3 * limit].map(|more| (limit, more)))
        {
            let size = Size { limit, most: limit + more };
            let slots = size.lines() * SLOTS as u64;
            assert!(2 * slots >= 3 * limit && 4 * slots >= 5 * size.most, "{size:?}");
            assert!(
                slots <= (limit + limit / 2).max(size.most + size.most / 4) + 1 + SLOTS as u64,
                "{size:?}"
            );
        }
        let size = Size { limit: 40, most: 90 };
        let array = array(size, 0);
        assert_eq!((array.size.limit, array.size.most, array.space.lines() as u64), (40, 90, size.lines()));
        assert_eq!(array.chunks(), array.space.lines().div_ceil(CHUNK) as u64);
        let parts = size_of_val(&array) as u64 + Space::bytes_of(size.lines()) + array.chunks();
        assert_eq!(Array::bytes_of(size), parts);
    }
}
