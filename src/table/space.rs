//! One array of slots, grouped in cache lines. A slot contains the fingerprint of a key and the
//! key's word. Slots can be probed, claimed and sealed.

use super::memory::{MemoryGrant, Zeroed, zeroed};
use crate::rule::Word;
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed, Release},
};
use std::mem::size_of;
use std::ops::RangeInclusive;

/// The number of slots in a line.
pub(super) const SLOTS: usize = 4;

/// The maximum number of slots in a space that has two slots for each key. Such a space occupies at
/// most 256 KiB, which fits into the caches of most cores. A larger space has three slots for every
/// two keys, so more keys lie outside their first line. (Models have few slots, to keep the number
/// of schedules small.)
const ROOMY: u64 = if cfg!(tollgate_loom) { 1 } else { 1 << 14 };

/// A keyed 64-bit hash, which represents a key.
///
/// | value | meaning |
/// |---|---|
/// | 0 | EMPTY: no key yet |
/// | 1 | SEALED: no key, and there never will be one |
/// | others | a key |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) const EMPTY: Self = Self(0);
    pub(super) const SEALED: Self = Self(1);
    const RESERVED: u64 = 2;

    /// Returns the fingerprint of a key with this hash. A reserved hash is replaced by another
    /// value, which is therefore the fingerprint of two hashes.
    #[inline]
    pub(crate) const fn of_hash(hash: u64) -> Self {
        if hash < Self::RESERVED { Self::instead_of(hash) } else { Self(hash) }
    }

    /// This function is not inlined, so that keys without a reserved hash pay only for a branch
    /// that is not taken.
    #[cold]
    #[inline(never)]
    const fn instead_of(hash: u64) -> Self {
        Self(!hash)
    }

    #[inline]
    pub(super) const fn is_empty(self) -> bool {
        self.0 == Self::EMPTY.0
    }

    #[inline]
    pub(super) const fn is_sealed(self) -> bool {
        self.0 == Self::SEALED.0
    }

    /// Returns whether the fingerprint is EMPTY or SEALED. A slot with such a fingerprint contains
    /// no key, and every probe run that reaches the slot ends there.
    #[inline]
    pub(super) const fn is_vacant(self) -> bool {
        self.0 < Self::RESERVED
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the index of the line at which the key's probe run starts, in a space of `count`
    /// lines. The index is computed by scaling the high bits of the hash.
    #[inline]
    pub(super) const fn home(self, count: usize) -> usize {
        // The product is below count * 2^64.
        #[allow(clippy::cast_possible_truncation)]
        let home = ((self.0 as u128 * count as u128) >> 64) as usize;
        home
    }
}

// SAFETY: `Fingerprint` is `repr(transparent)` over `u64`, so it has no padding and every bit
// pattern is valid.
#[allow(unsafe_code)]
unsafe impl bytemuck::Zeroable for Fingerprint {}
// SAFETY: as above; the type is `Copy` by its derive and `'static` by its definition.
#[allow(unsafe_code)]
unsafe impl bytemuck::Pod for Fingerprint {}

#[cfg(all(target_has_atomic = "64", not(tollgate_loom)))]
const _: () = assert!(crate::sync::Atomic::<Fingerprint>::is_lock_free());

/// Four slots that share a cache line. The four fingerprints are adjacent, so that the processor
/// can compare them as one vector.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    keys: [Atomic<Fingerprint>; SLOTS],
    words: [Atomic<Word>; SLOTS],
}

#[cfg(not(tollgate_loom))]
const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    /// Returns the only index at which the key can be, and four fingerprints: the fingerprints of
    /// the first three slots, and then the fingerprint at the returned index. If the key is not in
    /// the line, the returned index is the index of the last slot.
    ///
    /// Three branchless comparisons determine the index, and then the fingerprint at the index is
    /// read again. This requires fewer instructions than returning a fifth index for a missing key.
    #[inline(always)]
    #[cfg(not(tollgate_loom))]
    fn look(&self, key: Fingerprint) -> (usize, [Fingerprint; SLOTS]) {
        let [first, second, third, _] = &self.keys;
        // ORDERING: relaxed, because a fingerprint publishes no other data: see the ledger of
        // `table`.
        let others @ [first, second, third] = [first, second, third].map(|slot| slot.load(Relaxed));
        let place = place(&others, key);
        // ORDERING: relaxed, as above. (A fingerprint never changes, so a second read returns the
        // same value.)
        (place, [first, second, third, self.keys[place].load(Relaxed)])
    }

    /// The variant for models. Models that switch on `StopAtVacant` read no slot past a vacant
    /// slot, which more than halves the number of executions. By invariant 2 of `table`, the key
    /// can be past the vacant slot only if it was inserted after that slot was read. Other
    /// executions of these models read the vacant slot later, and thus cover that case. Only models
    /// without the switch see both slots together.
    #[cfg(tollgate_loom)]
    fn look(&self, key: Fingerprint) -> (usize, [Fingerprint; SLOTS]) {
        let mut is_done = false;
        let mut keys = self.keys.each_ref().map(|slot| {
            if is_done {
                return Fingerprint::SEALED;
            }
            // ORDERING: relaxed, as above.
            let key = slot.load(Relaxed);
            is_done = key.is_vacant() && crate::sync::ModelSwitch::StopAtVacant.is_on();
            key
        });
        let place = place(&keys[..SLOTS - 1], key);
        keys[SLOTS - 1] = keys[place];
        (place, keys)
    }

    /// Returns the word of a key in this line. If the key is not in the line, the error specifies
    /// where the probe run continues or ends.
    #[inline(always)]
    pub(crate) fn find(&self, key: Fingerprint) -> Result<&Atomic<Word>, Miss<'_>> {
        let (place, keys) = self.look(key);
        if keys[SLOTS - 1] == key {
            return Ok(&self.words[place]);
        }
        let vacant = (0..SLOTS).rev().fold(SLOTS, |at, nth| if keys[nth].is_vacant() { nth } else { at });
        Err(match (self.keys.get(vacant), self.words.get(vacant)) {
            (Some(slot), Some(word)) => Miss::New(Vacant { slot, word, was: keys[vacant] }),
            _ => Miss::Further,
        })
    }

    /// Returns the word of a key in this line. If the key is not in the line, this method
    /// prefetches the next line. The method is branchless, so the processor can start on other keys
    /// while it waits for this line.
    #[inline(always)]
    pub(crate) fn find_or_prefetch(&self, key: Fingerprint) -> Option<&Atomic<Word>> {
        let (place, keys) = self.look(key);
        let is_here = keys[SLOTS - 1] == key;
        self.prefetch(usize::from(!is_here));
        is_here.then(|| &self.words[place])
    }

    /// Pre-faults the line's memory with a write that changes nothing.
    fn touch(&self) {
        // ORDERING: both are relaxed, because a fresh word publishes no other data. (`fetch_add(0)`
        // is not used, because some compilers turn it into a load.)
        let _ = self.words[0].compare_exchange(Word::FRESH, Word::FRESH, Relaxed, Relaxed);
    }

    /// Prefetches the line that is `behind` lines after this line, if that line exists. Does not
    /// wait for the memory.
    #[inline(always)]
    pub(super) fn prefetch(&self, behind: usize) {
        #[cfg(all(target_arch = "x86_64", not(tollgate_loom)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch never faults and has no effect that the program can see, so any
            // address is valid.
            #[allow(unsafe_code)]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(self).wrapping_add(behind).cast());
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(tollgate_loom))))]
        let _ = behind;
    }
}

/// An array of lines. A key's probe run starts at the home line of the key's fingerprint. The run
/// continues slot by slot, wraps around at the end, and stops at the key or at a vacant slot.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) lines: Zeroed<Line>,
}

/// The slot at which a probe run ended.
#[derive(Debug)]
pub(super) enum Probe<'s> {
    /// The key's own slot.
    Key(&'s Atomic<Word>),
    /// An EMPTY slot: the key is not in this space and may be inserted.
    Empty(Vacant<'s>),
    /// A SEALED slot: the key is not in this space and never will be.
    Sealed,
}

/// Where a search continues or ends if the key is not in the line.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Miss<'s> {
    /// The key's probe run ends at this slot.
    New(Vacant<'s>),
    /// The key's probe run continues in the next line, because other keys occupy all slots of this
    /// line.
    Further,
}

/// A slot without a key, at which a probe run ended, together with the fingerprint read there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacant<'s> {
    slot: &'s Atomic<Fingerprint>,
    word: &'s Atomic<Word>,
    was: Fingerprint,
}

impl Space {
    /// Returns the number of lines for `places` keys. The keys occupy at most two thirds of the
    /// slots, or half of the slots if there are at most [`ROOMY`] slots. At least one slot stays
    /// EMPTY, so that every probe run ends.
    pub(super) fn lines_for(places: u64) -> u64 {
        let slots = (places + places / 2).max(ROOMY.min(2 * places));
        (slots + 1).div_ceil(SLOTS as u64)
    }

    /// Returns the size of `lines` lines in bytes.
    pub(super) const fn bytes_of(lines: u64) -> u64 {
        lines * size_of::<Line>() as u64
    }

    /// Allocates a space of `lines` lines. Returns `None` if there is no memory for them.
    pub(super) fn new(lines: usize) -> Option<Self> {
        Some(Self { lines: allocate(lines)? })
    }

    /// Follows the probe run of a key to its word, or to the vacant slot that ends the run.
    #[inline(always)]
    pub(super) fn search(&self, key: Fingerprint) -> Result<&Atomic<Word>, Vacant<'_>> {
        self.search_from(key.home(self.lines.len()), key)
    }

    /// Continues a [`search`](Self::search) for a key whose first line is full of other keys.
    #[inline(always)]
    pub(super) fn search_after_first(&self, key: Fingerprint) -> Result<&Atomic<Word>, Vacant<'_>> {
        self.search_from(self.after(key.home(self.lines.len())), key)
    }

    #[inline(always)]
    fn search_from(&self, mut at: usize, key: Fingerprint) -> Result<&Atomic<Word>, Vacant<'_>> {
        loop {
            match self.lines[at].find(key) {
                Ok(word) => return Ok(word),
                Err(Miss::New(vacant)) => return Err(vacant),
                Err(Miss::Further) => at = self.after(at),
            }
        }
    }

    /// Searches for a key. If the key is not in this space, reports whether the vacant slot at the
    /// end of the key's run is EMPTY or SEALED.
    #[inline]
    pub(super) fn probe(&self, key: Fingerprint) -> Probe<'_> {
        match self.search(key) {
            Ok(word) => Probe::Key(word),
            Err(vacant) if vacant.was.is_empty() => Probe::Empty(vacant),
            Err(vacant) => {
                // ORDERING: acquire side of *closed*, so this thread sees that the next array is
                // linked. A sealed slot never changes.
                vacant.slot.load(Acquire);
                Probe::Sealed
            }
        }
    }

    /// Finds `key`, or claims the first EMPTY slot of the key's run, and returns the slot's word.
    /// Returns `None` if the run was sealed. The caller must have a place for the key, so that the
    /// run contains an EMPTY slot unless it was sealed.
    #[inline]
    pub(super) fn claim(&self, key: Fingerprint) -> Option<&Atomic<Word>> {
        let mut at = key.home(self.lines.len());
        loop {
            let line = &self.lines[at];
            for (slot, word) in line.keys.iter().zip(&line.words) {
                // ORDERING: relaxed, as in `Line::look`.
                let mut found = slot.load(Relaxed);
                if found.is_empty() {
                    // ORDERING: both are relaxed, because a fingerprint publishes no other data:
                    // see the ledger of `table`.
                    match slot.compare_exchange(Fingerprint::EMPTY, key, Relaxed, Relaxed) {
                        Ok(_) => return Some(word),
                        Err(other) => found = other,
                    }
                }
                if found == key {
                    return Some(word);
                }
                if found.is_sealed() {
                    return None;
                }
            }
            at = self.after(at);
        }
    }

    /// Pre-faults the memory at the start of a key's probe run, and prefetches the first line of
    /// the run.
    #[inline]
    pub(super) fn prepare(&self, key: Fingerprint) {
        let home = key.home(self.lines.len());
        self.lines.populate(home);
        self.lines[home].prefetch(0);
    }

    /// Pre-faults the next `parts` parts of the memory, starting where earlier calls left off.
    pub(super) fn populate_ahead(&self, parts: usize) {
        self.lines.populate_ahead(parts, Line::touch);
    }

    /// Hands over a large block of memory and the permit for the block, so that the block is given
    /// back in parts. Only the last owner may call this method. Afterwards, the space may have no
    /// lines.
    pub(super) fn leave(&mut self, permit: &mut MemoryGrant) {
        self.lines.leave(permit);
    }

    /// Returns the number of lines.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Returns the keys in a line.
    pub(super) fn keys(&self, line: usize) -> impl Iterator<Item = Fingerprint> {
        // ORDERING: relaxed, as in `Line::look`.
        let keys = self.lines[line].keys.iter().map(|slot| slot.load(Relaxed));
        keys.filter(|key| !key.is_vacant())
    }

    /// Returns the keys whose fingerprints are in `range`, except for keys that are inserted during
    /// the call.
    pub(super) fn keys_in(&self, range: RangeInclusive<u64>) -> impl Iterator<Item = Fingerprint> {
        let [first, last] = [*range.start(), *range.end()].map(|bits| Fingerprint(bits).home(self.lines()));
        let mut is_over = false;
        let lines = (first..first + self.lines()).map_while(move |at| {
            let line = at % self.lines();
            // By invariant 2 of `table`, a run that reaches a vacant slot has no keys behind it.
            let ends_here = at >= last && self.keys(line).count() < SLOTS;
            (!std::mem::replace(&mut is_over, ends_here)).then_some(line)
        });
        lines.flat_map(|line| self.keys(line)).filter(move |key| range.contains(&key.bits()))
    }

    /// Permanently seals the vacant slots of a line, and passes every key in the line to `each`,
    /// together with the key's word.
    #[inline]
    pub(super) fn close_line(&self, at: usize, mut each: impl FnMut(Fingerprint, &Atomic<Word>)) {
        let line = &self.lines[at];
        for (slot, word) in line.keys.iter().zip(&line.words) {
            let key = seal(slot);
            if !key.is_sealed() {
                each(key, word);
            }
        }
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.lines.len() { 0 } else { at + 1 }
    }
}

impl<'s> Vacant<'s> {
    /// Claims the slot for `key`, whose probe run ended at this slot, and returns the slot's word.
    /// The caller must have a place for the key. Returns `None` if the slot is SEALED or taken by
    /// another key.
    #[inline]
    pub(super) fn claim(self, key: Fingerprint) -> Option<&'s Atomic<Word>> {
        // ORDERING: both are relaxed, as in `Space::claim`.
        self.slot.compare_exchange(Fingerprint::EMPTY, key, Relaxed, Relaxed).is_ok().then_some(self.word)
    }

    /// Seals the slot if it is still EMPTY.
    pub(super) fn seal(self) {
        seal(self.slot);
    }
}

/// Seals the slot if it is EMPTY. Returns the slot's fingerprint, which never changes from now on.
#[inline]
fn seal(slot: &Atomic<Fingerprint>) -> Fingerprint {
    // ORDERING: relaxed. Most slots are taken, so this load usually avoids a compare-and-swap. A
    // taken slot never changes.
    let found = slot.load(Relaxed);
    if !found.is_empty() {
        return found;
    }
    // ORDERING: release side of *closed*, because the sealing thread has seen that the next array
    // is linked. Relaxed on failure, because a fingerprint publishes no other data.
    match slot.compare_exchange(Fingerprint::EMPTY, Fingerprint::SEALED, Release, Relaxed) {
        Ok(_) => Fingerprint::SEALED,
        Err(found) => found,
    }
}

/// Returns the index of `key` in `others`, or the length of `others` if `key` is not there.
#[inline(always)]
fn place(others: &[Fingerprint], key: Fingerprint) -> usize {
    (0..others.len()).rev().fold(others.len(), |at, nth| if others[nth] == key { nth } else { at })
}

/// Allocates `count` EMPTY lines. Returns `None` if there is no memory for them.
fn allocate(count: usize) -> Option<Zeroed<Line>> {
    let line = || Line {
        keys: std::array::from_fn(|_| Atomic::new(Fingerprint::EMPTY)),
        words: std::array::from_fn(|_| Atomic::new(Word::FRESH)),
    };
    // SAFETY: a line consists of atomics of u64, and EMPTY and FRESH are 0.
    #[allow(unsafe_code)]
    unsafe {
        zeroed(count, line)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_take_half_of_few_slots_and_two_thirds_of_many_and_leave_one() {
        let most = ROOMY / 2;
        let mut before = 0;
        for places in
            (0..1000).chain(most - 9..most + 9).chain(2 * ROOMY / 3 - 9..2 * ROOMY / 3 + 9).chain([1 << 30])
        {
            let slots = Space::lines_for(places) * SLOTS as u64;
            let asked = if places <= most { 2 * places } else { (places + places / 2).max(ROOMY) };
            // There is not a single line more than needed.
            assert!((asked + 1..=asked + SLOTS as u64).contains(&slots), "{places}: {slots}");
            assert!(slots >= before, "{places}: {slots}, and for fewer keys {before}");
            before = slots;
        }
    }

    #[test]
    fn the_bytes_of_a_space_are_those_of_its_lines() {
        let space = Space::new(3).unwrap();
        assert_eq!(Space::bytes_of(3), size_of_val(&*space.lines) as u64);
        assert_eq!(space.lines(), 3);
    }

    /// Keys of the last line continue in the first line.
    #[test]
    fn the_keys_of_each_range_are_found_wherever_their_runs_end() {
        let space = Space::new(3).unwrap();
        let last = [1, 2, 3, 4, 5, 6].map(|n| u64::MAX - n);
        let hashes = [2, 3, 4, 1 << 62, (1 << 62) + 1].into_iter().chain(last);
        let keys: Vec<_> = hashes.map(Fingerprint::of_hash).collect();
        keys.iter().for_each(|&key| assert!(space.claim(key).is_some()));
        let sorted = |range| {
            let mut found: Vec<_> = space.keys_in(range).map(Fingerprint::bits).collect();
            found.sort_unstable();
            found
        };
        let mut all: Vec<_> = keys.iter().map(|key| key.bits()).collect();
        all.sort_unstable();
        assert_eq!(sorted(0..=u64::MAX), all);
        for parts in [2_u64, 3, 4, 7] {
            let ranges = (0..parts).map(|part| {
                let end = if part + 1 == parts { u64::MAX } else { (part + 1) * (u64::MAX / parts) - 1 };
                sorted(part * (u64::MAX / parts)..=end)
            });
            assert_eq!(ranges.collect::<Vec<_>>().concat(), all, "{parts}");
        }
    }

    /// Keys inserted before the pre-faulting keep their words.
    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_comes_ahead_changes_nothing() {
        const PART: usize = 64 << 10;
        let space = Space::new((1 << 20) / size_of::<Line>()).unwrap();
        // The key's home is the first line.
        let first = Fingerprint::of_hash(100);
        let word = Word::FRESH.frozen();
        space.claim(first).unwrap().store(word, Relaxed);
        for parts in 1..4 {
            space.populate_ahead(1);
            assert_eq!(space.lines.resident(), Some(parts * PART));
        }
        let words = || space.lines.iter().flat_map(|line| &line.words).map(|word| word.load(Relaxed));
        assert_eq!(words().next(), Some(word));
        assert!(words().skip(1).all(Word::is_fresh));
    }

    /// A search in the last line of a space prefetches a line that does not exist, which does no
    /// harm.
    #[test]
    fn a_key_is_found_in_the_first_line_of_its_run_and_not_in_the_next() {
        let space = Space::new(3).unwrap();
        let keys = [1, 2, 3, 4, 5].map(|n| Fingerprint::of_hash(u64::MAX - n));
        let words = keys.map(|key| std::ptr::from_ref(space.claim(key).unwrap()));
        for (key, word) in keys.into_iter().zip(words) {
            let first = &space.lines[key.home(space.lines())];
            let found = first.find(key).ok();
            assert_eq!(first.find_or_prefetch(key).map(std::ptr::from_ref), found.map(std::ptr::from_ref));
            assert_eq!(found.map(std::ptr::from_ref), (key != keys[4]).then_some(word));
            let is_found =
                |searched: Result<&Atomic<Word>, ()>| searched.is_ok_and(|found| std::ptr::eq(found, word));
            assert!(is_found(space.search(key).map_err(drop)));
            assert_eq!(is_found(space.search_after_first(key).map_err(drop)), found.is_none());
        }
    }

    #[test]
    fn keys_of_one_home_run_on_around_the_end() {
        let space = Space::new(3).unwrap();
        // All keys start in the last of three lines.
        let keys = [1, 2, 3, 4, 5, 6, 7].map(|n| Fingerprint::of_hash(u64::MAX - n));
        for key in keys {
            assert!(matches!(space.probe(key), Probe::Empty(_)));
            assert!(space.claim(key).is_some());
        }
        let words = keys.map(|key| match space.probe(key) {
            Probe::Key(word) => std::ptr::from_ref(word),
            other => panic!("{other:?}"),
        });
        for (i, word) in words.iter().enumerate() {
            assert!(!words[..i].contains(word), "two keys share a slot");
            assert!(space.claim(keys[i]).is_some_and(|known| std::ptr::eq(*word, known)));
        }
    }

    #[test]
    fn a_sealed_slot_ends_a_run_for_good() {
        let space = Space::new(1).unwrap();
        let key = Fingerprint::of_hash(77);
        let Probe::Empty(empty) = space.probe(key) else { panic!() };
        empty.seal();
        assert!(matches!(space.probe(key), Probe::Sealed));
        assert!(space.claim(key).is_none());
    }

    #[test]
    fn no_hash_gives_a_reserved_fingerprint() {
        for hash in [0, 1, 2, u64::MAX] {
            assert!(Fingerprint::of_hash(hash).0 >= Fingerprint::RESERVED);
        }
    }

    #[test]
    fn only_the_reserved_values_are_vacant() {
        assert!(Fingerprint::EMPTY.is_vacant() && Fingerprint::SEALED.is_vacant());
        for hash in [0, 1, Fingerprint::RESERVED, u64::MAX] {
            assert!(!Fingerprint::of_hash(hash).is_vacant(), "{hash}");
        }
    }

    /// The bits determine which calls do upkeep, so they must differ between keys.
    #[test]
    fn the_bits_are_those_of_the_hash() {
        for hash in [2, 77, u64::MAX] {
            assert_eq!(Fingerprint::of_hash(hash).bits(), hash);
        }
    }

    #[test]
    fn homes_cover_all_places_and_no_more() {
        for count in [1, 2, 3, 1000] {
            assert_eq!(Fingerprint::of_hash(2).home(count), 0);
            assert_eq!(Fingerprint::of_hash(u64::MAX).home(count), count - 1);
        }
    }
}
