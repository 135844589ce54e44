//! What limits nothing: the least that a limiter with this clock can cost, first without keys and then with them.

use super::gcra::{Gcra, now};
use super::ours::coarse;
use super::{Built, FIXED_TABLE, FIXED_TABLE_COARSE, FLOOR, Rows, Setting, Upkeep, kept};
use crate::keys::Key;
use crossbeam_epoch::{Guard, Owned, pin};
use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

pub fn all<K: Key>() -> Rows<K> {
    vec![
        (FLOOR, |setting| {
            // As many bytes as the table of this library takes for that many keys, at 24 each.
            let (rule, hasher) = (Gcra::new(setting.quota), RandomState::default());
            let lines = Lines::new((setting.keys * 24).div_ceil(size_of::<Line>()));
            let check = move |lines: &Lines, key: &K| {
                let line = lines.home(hasher.hash_one(key));
                // Or it would wait for the clock and then for memory, which is not the least.
                line.prefetch();
                rule.charge_shared(&line.0[0], now())
            };
            // The least that a turnover can do: each word is read, and written to memory that is fresh.
            let copy = |lines: &Lines| {
                black_box(lines.0.iter().map(Line::copy).collect::<Vec<_>>());
            };
            let zero = |lines: &Lines| lines.0.iter().for_each(Line::zero);
            let upkeep = Upkeep { sweep: Some(copy), clear: Some(zero), ..Upkeep::NONE };
            kept(lines, check, upkeep)
        }),
        (FIXED_TABLE, |setting| fixed::<K>(setting, now)),
        (FIXED_TABLE_COARSE, |setting| {
            let clock = coarse();
            fixed::<K>(setting, move || clock.now().as_nanos())
        }),
    ]
}

fn fixed<K: Key>(setting: Setting, now: impl Fn() -> u64 + Send + Sync + 'static) -> Built<K> {
    let (rule, table) = (Gcra::new(setting.quota), FixedTable::new(setting.keys));
    let check = move |table: &FixedTable, key: &K| {
        let hash = table.hasher.hash_one(key);
        table.prefetch(hash);
        let now = now();
        let guard = pin();
        table.word(hash, &guard).is_some_and(|word| rule.charge_shared(word, now))
    };
    kept(table, check, Upkeep::NONE)
}

/// Keys, known by their hashes, in slots that are found and claimed as those of any open addressing: what is left of a
/// concurrent table that has its last size from the beginning, whose keys stay for ever and all have one rule. It may be
/// replaced under its readers, so they pin the epoch; nobody does.
struct FixedTable {
    lines: crossbeam_epoch::Atomic<Lines>,
    /// For the prefetch, which needs no guard.
    first: usize,
    count: usize,
    hasher: RandomState,
    taken: Apart,
    most: usize,
}

/// On a line of its own: whoever finds a key does not read it.
#[derive(Default)]
#[repr(align(128))]
struct Apart(AtomicUsize);

/// Slots in a line: hashes, then words.
const SLOTS: usize = 4;

impl FixedTable {
    /// Two thirds of the slots are taken by so many keys.
    fn new(keys: usize) -> Self {
        let lines = Lines::new((keys + keys / 2).div_ceil(SLOTS) + 1);
        let (first, count) = (lines.0.as_ptr().addr(), lines.0.len());
        let (lines, hasher) = (Owned::new(lines).into(), RandomState::default());
        Self { lines, first, count, hasher, taken: Apart::default(), most: keys }
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        fetch(self.first + scaled(hash, self.count) * size_of::<Line>());
    }

    /// The word of a key, that of a new one if there is room; or of any that has the same hash.
    #[inline]
    fn word<'g>(&self, hash: u64, guard: &'g Guard) -> Option<&'g AtomicU64> {
        let hash = hash.max(1);
        // SAFETY: it is never null, and whoever replaces it would leave the old one to the epoch.
        let lines = unsafe { self.lines.load(std::sync::atomic::Ordering::Acquire, guard).deref() };
        let mut at = scaled(hash, lines.0.len());
        loop {
            let (hashes, words) = lines.0[at].0.split_at(SLOTS);
            let found = std::array::from_fn::<u64, SLOTS, _>(|slot| hashes[slot].load(Relaxed));
            if let Some(slot) = first(found.map(|found| found == hash)) {
                return Some(&words[slot]);
            }
            match first(found.map(|found| found == 0)) {
                Some(slot) => {
                    if self.taken.0.fetch_add(1, Relaxed) >= self.most {
                        return None;
                    }
                    if hashes[slot].compare_exchange(0, hash, Relaxed, Relaxed).is_ok() {
                        return Some(&words[slot]);
                    }
                    self.taken.0.fetch_sub(1, Relaxed);
                }
                None => at = (at + 1) % lines.0.len(),
            }
        }
    }
}

impl Drop for FixedTable {
    fn drop(&mut self) {
        // SAFETY: nobody else has it any more.
        drop(unsafe { std::mem::take(&mut self.lines).into_owned() });
    }
}

struct Lines(Box<[Line]>);

impl Lines {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| Line::default()).collect())
    }

    #[inline]
    fn home(&self, hash: u64) -> &Line {
        &self.0[scaled(hash, self.0.len())]
    }
}

#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 2 * SLOTS]);

impl Line {
    #[inline]
    fn prefetch(&self) {
        fetch(std::ptr::from_ref(self).addr());
    }

    fn copy(&self) -> Self {
        Self(self.0.each_ref().map(|word| AtomicU64::new(word.load(Relaxed))))
    }

    fn zero(&self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }
}

/// A hash's place among so many.
#[inline]
fn scaled(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// The first that is true, found without a branch for each.
#[inline]
fn first(of: [bool; SLOTS]) -> Option<usize> {
    let mask = of.into_iter().rev().fold(0_u32, |mask, bit| mask << 1 | u32::from(bit));
    (mask != 0).then(|| mask.trailing_zeros() as usize)
}

/// Asks the processor to load the line there.
#[inline]
fn fetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing as far as the program can see, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
