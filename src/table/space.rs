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

/// Four slots that share a cache line; fingerprints together, so that they compare as one vector.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Line {
    keys: [Atomic<Fingerprint>; SLOTS],
    words: [Atomic<Word>; SLOTS],
}

#[cfg(not(tollgate_loom))]
const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    #[inline(always)]
    fn load(&self) -> [Fingerprint; SLOTS] {
        // ORDERING: relaxed; a fingerprint publishes nothing, see the ledger of `table`.
        self.keys.each_ref().map(|slot| slot.load(Relaxed))
    }

    /// Which of the slots has a key, [`SLOTS`] if none has.
    #[inline(always)]
    fn slot_of(&self, key: Fingerprint) -> usize {
        let keys = self.load();
        first(|nth| keys[nth] == key)
    }

    /// The word of a key, if it is here.
    #[inline(always)]
    pub(crate) fn find(&self, key: Fingerprint) -> Option<&Atomic<Word>> {
        self.words.get(self.slot_of(key))
    }

    /// The same. If it is not here, the next line is on its way: without a branch, so that the processor goes on with other
    /// keys while it waits for this line.
    #[inline(always)]
    pub(crate) fn find_or_prefetch(&self, key: Fingerprint) -> Option<&Atomic<Word>> {
        let at = self.slot_of(key);
        self.prefetch(usize::from(at == SLOTS));
        self.words.get(at)
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

    #[inline]
    fn empty(&self, nth: usize) -> Empty<'_> {
        Empty { slot: &self.keys[nth], word: &self.words[nth] }
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
    Empty(Empty<'s>),
    /// At a SEALED slot: the key is not in this space and never will be.
    Sealed,
}

/// An EMPTY slot at the end of a probe run, as it was when it was read.
#[derive(Clone, Copy, Debug)]
pub struct Empty<'s> {
    slot: &'s Atomic<Fingerprint>,
    word: &'s Atomic<Word>,
}

impl Space {
    /// The number of lines in which `places` keys take two thirds of the slots at most, and one slot is
    /// left EMPTY to end every probe run.
    pub(super) const fn lines_for(places: u64) -> u64 {
        (places + places / 2 + 1).div_ceil(SLOTS as u64)
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

    /// Goes along the probe run of a key.
    #[inline]
    pub(super) fn probe(&self, key: Fingerprint) -> Probe<'_> {
        let mut at = key.home(self.lines.len());
        loop {
            let line = &self.lines[at];
            let keys = line.load();
            if let Some(word) = line.words.get(first(|nth| keys[nth] == key)) {
                return Probe::Key(word);
            }
            let vacant = first(|nth| keys[nth].is_vacant());
            if vacant < SLOTS {
                if keys[vacant].is_empty() {
                    return Probe::Empty(line.empty(vacant));
                }
                // ORDERING: acquire side of *closed*: the next era is linked. A seal stays as it is.
                line.keys[vacant].load(Acquire);
                return Probe::Sealed;
            }
            at = self.after(at);
        }
    }

    /// The same for who has not found the key in the first line. Not inlined: it is for one key of seven, where the space is as
    /// full as it may be.
    #[inline(never)]
    pub(super) fn probe_further(&self, key: Fingerprint) -> Probe<'_> {
        self.probe(key)
    }

    /// Finds `key` or claims the first EMPTY slot of its run for it; the word beside it. The caller has a place for the
    /// key, so there is such a slot, unless the run was sealed: then `None`.
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

    /// Has the memory where the probe run of a key begins made ready for use, if it is not.
    #[inline]
    pub(super) fn populate(&self, key: Fingerprint) {
        self.lines.populate(key.home(self.lines.len()));
    }

    /// The same for the first so many parts of the memory for which nobody has done it in this way.
    pub(super) fn populate_ahead(&self, parts: usize) {
        self.lines.populate_ahead(parts);
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

impl<'s> Empty<'s> {
    /// Gives the slot to `key`, whose probe run ended at it, and the word beside it to the caller; `None` if
    /// something has come between. The caller has a place for the key.
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

/// The first slot of which that is true, [`SLOTS`] if it is of none. All four are looked at, without a branch for each.
#[inline(always)]
fn first(of: impl Fn(usize) -> bool) -> usize {
    (0..SLOTS).rev().fold(SLOTS, |at, nth| if of(nth) { nth } else { at })
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
    fn keys_take_two_thirds_of_the_slots_at_most_and_leave_one() {
        for places in 0..1000 {
            let slots = Space::lines_for(places) * SLOTS as u64;
            assert!(slots > places && 2 * slots >= 3 * places, "{places}");
            // And no more lines than that takes.
            assert!(slots <= places + places / 2 + SLOTS as u64, "{places}");
        }
    }

    #[test]
    fn the_bytes_of_a_space_are_those_of_its_lines() {
        let space = Space::new(3).unwrap();
        assert_eq!(Space::bytes_of(3), size_of_val(&*space.lines) as u64);
        assert_eq!(space.lines(), 3);
    }

    /// In the last line of a space there is nothing behind it to ask for, and nothing comes of that.
    #[test]
    fn a_key_is_found_in_the_first_line_of_its_run_and_not_in_the_next() {
        let space = Space::new(3).unwrap();
        let keys = [1, 2, 3, 4, 5].map(|n| Fingerprint::of_hash(u64::MAX - n));
        let words = keys.map(|key| std::ptr::from_ref(space.claim(key).unwrap()));
        for (key, word) in keys.into_iter().zip(words) {
            let found = space.first_line(key).find(key);
            assert_eq!(
                space.first_line(key).find_or_prefetch(key).map(std::ptr::from_ref),
                found.map(std::ptr::from_ref)
            );
            assert_eq!(found.map(std::ptr::from_ref), (key != keys[4]).then_some(word));
            assert!(matches!(space.probe_further(key), Probe::Key(found) if std::ptr::eq(found, word)));
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
