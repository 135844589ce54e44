//! One array of slots, grouped in cache lines: probing and claiming.

use super::slot::Fingerprint;
use crate::error::ConfigError;
use crate::rule::Word;
use crate::sync::{Atomic, Ordering::Relaxed};
use std::mem::size_of;

/// Slots in a line.
const SLOTS: usize = 4;

/// Four slots that share a cache line; fingerprints together, so that they compare as one vector.
#[derive(Debug)]
#[repr(C, align(64))]
struct Line {
    keys: [Atomic<Fingerprint>; SLOTS],
    words: [Atomic<Word>; SLOTS],
}

#[cfg(not(tollgate_loom))]
const _: () = assert!(size_of::<Line>() == 64);

/// An array of lines. A key's probe run begins at the line its fingerprint names and goes on, line by
/// line and around the end, until it meets the key or an EMPTY slot.
#[derive(Debug)]
pub(super) struct Space {
    lines: Box<[Line]>,
}

/// The slot of a key after [`Space::claim`].
pub(super) struct Claim<'s> {
    pub(super) word: &'s Atomic<Word>,
    /// Did this call put the key there?
    pub(super) is_new: bool,
}

impl Space {
    /// A space in which `max_keys` keys take two thirds of the slots at most.
    pub(super) fn for_keys(max_keys: usize) -> Result<Self, ConfigError> {
        // Twice as much as any machine has, and small enough for every sum below.
        const MOST: usize = usize::MAX >> 8;
        if max_keys == 0 || max_keys > MOST {
            return Err(ConfigError::MaxKeys { max_keys, most: MOST });
        }
        // One slot more than there can be keys, so that an EMPTY one ends every probe run.
        let slots = max_keys + max_keys / 2 + 1;
        let count = slots.div_ceil(SLOTS);
        match allocate(count) {
            Some(lines) => Ok(Self { lines }),
            None => Err(ConfigError::OutOfMemory { max_keys, bytes: count * size_of::<Line>() }),
        }
    }

    #[inline]
    pub(super) fn find(&self, key: Fingerprint) -> Option<&Atomic<Word>> {
        let mut at = key.home(self.lines.len());
        loop {
            let line = &self.lines[at];
            // ORDERING: relaxed; a fingerprint publishes nothing, see the ledger of `table`.
            let keys = line.keys.each_ref().map(|slot| slot.load(Relaxed));
            // All four at once, without a branch for each.
            let hits = mask(keys.map(|found| found == key));
            if hits != 0 {
                return Some(&line.words[hits.trailing_zeros() as usize]);
            }
            if mask(keys.map(Fingerprint::is_empty)) != 0 {
                return None;
            }
            at = self.after(at);
        }
    }

    /// Finds `key` or claims the first EMPTY slot of its run for it. The caller has reserved a place, so
    /// there is one.
    pub(super) fn claim(&self, key: Fingerprint) -> Claim<'_> {
        let mut at = key.home(self.lines.len());
        loop {
            let line = &self.lines[at];
            for (slot, word) in line.keys.iter().zip(&line.words) {
                // ORDERING: relaxed, as in `find`.
                let mut found = slot.load(Relaxed);
                if found.is_empty() {
                    // ORDERING: relaxed twice; whoever reads the fingerprint needs nothing else of ours.
                    match slot.compare_exchange(Fingerprint::EMPTY, key, Relaxed, Relaxed) {
                        Ok(_) => return Claim { word, is_new: true },
                        Err(other) => found = other,
                    }
                }
                if found == key {
                    return Claim { word, is_new: false };
                }
            }
            at = self.after(at);
        }
    }

    /// Asks the processor to load the line where `key`'s probe run begins.
    #[inline]
    pub(super) fn prefetch(&self, key: Fingerprint) {
        let line = &self.lines[key.home(self.lines.len())];
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch reads nothing as far as the program can see; `line` is a valid reference.
        #[allow(unsafe_code)]
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = line;
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        if at + 1 == self.lines.len() { 0 } else { at + 1 }
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val::<[Line]>(&self.lines)
    }
}

/// One bit for each slot, the first the lowest.
#[inline]
fn mask(of: [bool; SLOTS]) -> u32 {
    of.into_iter().rev().fold(0, |mask, bit| mask << 1 | u32::from(bit))
}

/// Zeroed lines, or `None` if there is no memory for them.
#[cfg(not(tollgate_loom))]
fn allocate(count: usize) -> Option<Box<[Line]>> {
    use std::alloc::{Layout, alloc_zeroed};
    let layout = Layout::array::<Line>(count).ok()?;
    // SAFETY: `count` is not 0 (`for_keys` asks for one slot at least), nor is the size of a line, so
    // neither is the layout's.
    #[allow(unsafe_code)]
    let start = unsafe { alloc_zeroed(layout) }.cast::<Line>();
    if start.is_null() {
        return None;
    }
    let lines = std::ptr::slice_from_raw_parts_mut(start, count);
    // SAFETY: the block was just allocated by the global allocator with the layout of `[Line]` of this
    // length, which is what `Box` frees it with, and all zero is a valid line: EMPTY and fresh.
    #[allow(unsafe_code)]
    Some(unsafe { Box::from_raw(lines) })
}

/// Loom's atomics can't be made from zeroed memory.
#[cfg(tollgate_loom)]
fn allocate(count: usize) -> Option<Box<[Line]>> {
    let line = || Line {
        keys: std::array::from_fn(|_| Atomic::new(Fingerprint::EMPTY)),
        words: std::array::from_fn(|_| Atomic::new(Word::FRESH)),
    };
    Some((0..count).map(|_| line()).collect())
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_home_run_on_around_the_end() {
        let space = Space::for_keys(7).unwrap();
        // All begin in the last of three lines.
        let keys = [1, 2, 3, 4, 5, 6, 7].map(|n| Fingerprint::of_hash(u64::MAX - n));
        for key in keys {
            assert!(space.find(key).is_none());
            assert!(space.claim(key).is_new);
        }
        let words = keys.map(|key| std::ptr::from_ref(space.find(key).unwrap()));
        for (i, word) in words.iter().enumerate() {
            assert!(!words[..i].contains(word), "two keys share a slot");
            assert!(std::ptr::eq(*word, space.claim(keys[i]).word));
        }
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        let error = Space::for_keys(usize::MAX >> 8).unwrap_err();
        assert!(error.to_string().contains("the system refused"), "{error}");
        assert!(Space::for_keys(0).is_err());
        assert!(Space::for_keys(usize::MAX).is_err());
    }
}
