//! One array of slots, grouped in cache lines: probing, claiming, sealing.

use super::memory::{Permit, Zeroed, zeroed};
use super::slot::Fingerprint;
use crate::rule::Word;
use crate::sync::{
    Atomic,
    Ordering::{Acquire, Relaxed, Release},
};
use std::mem::size_of;

/// Slots in a line.
pub(super) const SLOTS: usize = 4;

/// Up to so many slots (256 KiB, which fit into most cores' caches) there are two for each key, and
/// not three for two: so fewer keys are beyond their first line. (Models have few slots, or there
/// is too much to try.)
const ROOMY: u64 = if cfg!(tollgate_loom) { 1 } else { 1 << 14 };

/// Four slots that share a cache line; fingerprints together, so that they compare as one vector.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    keys: [Atomic<Fingerprint>; SLOTS],
    words: [Atomic<Word>; SLOTS],
}

#[cfg(not(tollgate_loom))]
const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    /// Where a key may be: its own slot, or the last one. And the keys that are here, of which the last is the one at that place.
    ///
    /// Three comparisons without a branch give the place, and the key there is read again: fewer
    /// instructions than a fifth place for a key that is not here.
    #[inline(always)]
    #[cfg(not(tollgate_loom))]
    fn look(&self, key: Fingerprint) -> (usize, [Fingerprint; SLOTS]) {
        let [first, second, third, _] = &self.keys;
        // ORDERING: relaxed; a fingerprint publishes nothing, see the ledger of `table`.
        let others @ [first, second, third] = [first, second, third].map(|slot| slot.load(Relaxed));
        let place = place(&others, key);
        // ORDERING: relaxed, as above. (It never changes, so if it is read again, it is what it was.)
        (place, [first, second, third, self.keys[place].load(Relaxed)])
    }

    /// The same for the models. Those that ask for it look at nothing behind a vacant slot, which is less than half of the
    /// executions. By invariant 2 of `table` a key can be there only if it has come since that slot was read: what the code would do
    /// then, it does in them where the slot is read later. Only the others see the two together.
    #[cfg(tollgate_loom)]
    fn look(&self, key: Fingerprint) -> (usize, [Fingerprint; SLOTS]) {
        let mut is_done = false;
        let mut keys = self.keys.each_ref().map(|slot| {
            if is_done {
                return Fingerprint::SEALED;
            }
            // ORDERING: relaxed, as above.
            let key = slot.load(Relaxed);
            is_done = key.is_vacant() && crate::sync::stops_at_vacant();
            key
        });
        let place = place(&keys[..SLOTS - 1], key);
        keys[SLOTS - 1] = keys[place];
        (place, keys)
    }

    /// The word of a key, if it is here; or else what this line tells of it.
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

    /// The word of a key, if it is here. If it is not, the next line is on its way: without a branch, so that the processor goes on
    /// with other keys while it waits for this line.
    #[inline(always)]
    pub(crate) fn find_or_prefetch(&self, key: Fingerprint) -> Option<&Atomic<Word>> {
        let (place, keys) = self.look(key);
        let is_here = keys[SLOTS - 1] == key;
        self.prefetch(usize::from(!is_here));
        is_here.then(|| &self.words[place])
    }

    /// Writes to it, if it is new, and changes nothing.
    fn touch(&self) {
        // ORDERING: relaxed; who sees a fresh word sees no more by it. (To add 0 is made a load by some compilers.)
        let _ = self.words[0].compare_exchange(Word::FRESH, Word::FRESH, Relaxed, Relaxed);
    }

    /// Asks the processor for the line that lies so many behind this one, and does not wait. There may be none.
    #[inline(always)]
    fn prefetch(&self, behind: usize) {
        #[cfg(all(target_arch = "x86_64", not(tollgate_loom)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing as far as the program can see, and never faults: any address will do.
            #[allow(unsafe_code)]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(self).wrapping_add(behind).cast());
            }
        }
        #[cfg(not(all(target_arch = "x86_64", not(tollgate_loom))))]
        let _ = behind;
    }
}

/// An array of lines. A key's probe run begins at the line its fingerprint names and goes on, slot by
/// slot and around the end, until it meets the key or a vacant slot.
#[derive(Debug)]
pub(super) struct Space {
    lines: Zeroed<Line>,
}

/// Where a probe run ended.
#[derive(Debug)]
pub(super) enum Probe<'s> {
    /// At the key's own slot.
    Key(&'s Atomic<Word>),
    /// At an EMPTY slot: the key is not in this space, and may come into it.
    Empty(Vacant<'s>),
    /// At a SEALED slot: the key is not in this space and never will be.
    Sealed,
}

/// What a line tells of a key that it does not have.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Miss<'s> {
    /// The key's probe run ends here, at this slot.
    New(Vacant<'s>),
    /// The key's probe run goes on in the next line: other keys have all slots of this one.
    Further,
}

/// A slot without a key at the end of a probe run, as it was when it was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vacant<'s> {
    slot: &'s Atomic<Fingerprint>,
    word: &'s Atomic<Word>,
    was: Fingerprint,
}

impl Space {
    /// The number of lines in which `places` keys take two thirds of the slots at most, half of them as long as that is no more than
    /// [`ROOMY`] slots, and one slot is left EMPTY to end every probe run.
    pub(super) fn lines_for(places: u64) -> u64 {
        let slots = (places + places / 2).max(ROOMY.min(2 * places));
        (slots + 1).div_ceil(SLOTS as u64)
    }

    /// The bytes of so many lines.
    pub(super) const fn bytes_of(lines: u64) -> u64 {
        lines * size_of::<Line>() as u64
    }

    /// A space of so many lines, `None` if there is no memory for it.
    pub(super) fn new(lines: usize) -> Option<Self> {
        Some(Self { lines: allocate(lines)? })
    }

    /// The first line of a key's probe run, in which most keys are. It is on its way to the processor when this returns.
    #[inline(always)]
    pub(super) fn first_line(&self, key: Fingerprint) -> &Line {
        let line = &self.lines[key.home(self.lines.len())];
        line.prefetch(0);
        line
    }

    /// Goes along the probe run of a key, to its word or to the vacant slot that ends the run.
    #[inline(always)]
    pub(super) fn search(&self, key: Fingerprint) -> Result<&Atomic<Word>, Vacant<'_>> {
        self.search_from(key.home(self.lines.len()), key)
    }

    /// As [`search`](Self::search) for a key whose first line is full of other keys.
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

    /// The same, with what the vacant slot is.
    #[inline]
    pub(super) fn probe(&self, key: Fingerprint) -> Probe<'_> {
        match self.search(key) {
            Ok(word) => Probe::Key(word),
            Err(vacant) if vacant.was.is_empty() => Probe::Empty(vacant),
            Err(vacant) => {
                // ORDERING: acquire side of *closed*: the next era is linked. A seal stays as it is.
                vacant.slot.load(Acquire);
                Probe::Sealed
            }
        }
    }

    /// Finds `key` or claims the first EMPTY slot of its run for it; the word beside it. The caller has a place for the
    /// key, so there is such a slot, unless the run was sealed: then `None`.
    #[inline]
    pub(super) fn claim(&self, key: Fingerprint) -> Option<&Atomic<Word>> {
        let mut at = key.home(self.lines.len());
        loop {
            let line = &self.lines[at];
            for (slot, word) in line.keys.iter().zip(&line.words) {
                // ORDERING: relaxed, as in `probe`.
                let mut found = slot.load(Relaxed);
                if found.is_empty() {
                    // ORDERING: relaxed twice; whoever reads the fingerprint needs nothing else of ours.
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

    /// Has the memory where the probe run of a key begins made ready for use, if it is not, and on its way to the processor.
    #[inline]
    pub(super) fn prepare(&self, key: Fingerprint) {
        let home = key.home(self.lines.len());
        self.lines.populate(home);
        self.lines[home].prefetch(0);
    }

    /// Has the first so many parts of the memory made ready for which nobody has done it in this way.
    pub(super) fn populate_ahead(&self, parts: usize) {
        self.lines.populate_ahead(parts, Line::touch);
    }

    /// For the last one who has it: leaves what is to be given back in parts, and the permission for that. There may be no
    /// lines any more.
    pub(super) fn leave(&mut self, permit: &mut Permit) {
        self.lines.leave(permit);
    }

    /// How many lines there are.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// The keys in a line.
    pub(super) fn keys(&self, line: usize) -> impl Iterator<Item = Fingerprint> {
        // ORDERING: relaxed, as in `probe`.
        let keys = self.lines[line].keys.iter().map(|slot| slot.load(Relaxed));
        keys.filter(|key| !key.is_vacant())
    }

    /// Seals the vacant slots of a line for good, and gives each key in it, with its word, to `each`.
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
    /// Gives the slot to `key`, whose probe run ended at it, and the word beside it to the caller; `None` if it is SEALED, or
    /// something has come between. The caller has a place for the key.
    #[inline]
    pub(super) fn claim(self, key: Fingerprint) -> Option<&'s Atomic<Word>> {
        // ORDERING: relaxed twice, as in `Space::claim`.
        self.slot.compare_exchange(Fingerprint::EMPTY, key, Relaxed, Relaxed).is_ok().then_some(self.word)
    }

    /// Seals the slot if it is still EMPTY.
    pub(super) fn seal(self) {
        seal(self.slot);
    }
}

/// Seals a slot unless a key has it; what it holds from now on.
#[inline]
fn seal(slot: &Atomic<Fingerprint>) -> Fingerprint {
    // ORDERING: relaxed; a look first, for most slots are taken, and what is there stays there.
    let found = slot.load(Relaxed);
    if !found.is_empty() {
        return found;
    }
    // ORDERING: release side of *closed*: who seals has seen the next era linked. Relaxed on failure: what
    // is there needs nothing of ours.
    match slot.compare_exchange(Fingerprint::EMPTY, Fingerprint::SEALED, Release, Relaxed) {
        Ok(_) => Fingerprint::SEALED,
        Err(found) => found,
    }
}

/// Where a key is among others, or the place behind them.
#[inline(always)]
fn place(others: &[Fingerprint], key: Fingerprint) -> usize {
    (0..others.len()).rev().fold(others.len(), |at, nth| if others[nth] == key { nth } else { at })
}

/// So many EMPTY lines, or `None` if there is no memory for them.
fn allocate(count: usize) -> Option<Zeroed<Line>> {
    let line = || Line {
        keys: std::array::from_fn(|_| Atomic::new(Fingerprint::EMPTY)),
        words: std::array::from_fn(|_| Atomic::new(Word::FRESH)),
    };
    // SAFETY: a line is atomics of u64, EMPTY and FRESH are 0.
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
            // And no more lines than that takes.
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

    /// Keys that are there already keep their words.
    #[test]
    #[cfg(target_os = "linux")]
    fn memory_that_comes_ahead_changes_nothing() {
        const PART: usize = 64 << 10;
        let space = Space::new((1 << 20) / size_of::<Line>()).unwrap();
        // Its home is the first line.
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

    /// In the last line of a space there is nothing behind it to ask for, and nothing comes of that.
    #[test]
    fn a_key_is_found_in_the_first_line_of_its_run_and_not_in_the_next() {
        let space = Space::new(3).unwrap();
        let keys = [1, 2, 3, 4, 5].map(|n| Fingerprint::of_hash(u64::MAX - n));
        let words = keys.map(|key| std::ptr::from_ref(space.claim(key).unwrap()));
        for (key, word) in keys.into_iter().zip(words) {
            let found = space.first_line(key).find(key).ok();
            assert_eq!(
                space.first_line(key).find_or_prefetch(key).map(std::ptr::from_ref),
                found.map(std::ptr::from_ref)
            );
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
        // All begin in the last of three lines.
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
}
