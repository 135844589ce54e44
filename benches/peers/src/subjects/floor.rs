//! Floors, which limit nothing: the minimum cost of a limiter with this clock, first without keys
//! and then with keys.

use super::gcra::{Gcra, now};
use super::ours::coarse;
use super::{
    BARE_TABLE, BARE_TABLE_BATCHES, BARE_TABLE_COARSE, Built, CLOCK, FLOOR, Rows, Setting, Subject, Upkeep,
    each, kept,
};
use crate::keys::Key;
use crossbeam_epoch::{Guard, Owned, pin};
use foldhash::fast::RandomState;
use std::hash::BuildHasher;
use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, SeqCst},
};

pub fn all<K: Key>() -> Rows<K> {
    vec![
        (CLOCK, |_| {
            each(|key: &K| {
                black_box(key);
                black_box(now());
                true
            })
        }),
        (FLOOR, |setting| {
            // The array has as many bytes as the table of this library for this number of keys.
            let (rule, hasher) = (Gcra::new(setting.quota), RandomState::default());
            let words = Words(new((slots(setting.keys) * 16).div_ceil(size_of::<Line>())));
            let check = move |Words(lines): &Words, key: &K| {
                let line = &lines[scaled(hasher.hash_one(key), lines.len())];
                // Without the prefetch, the floor would wait first for the clock and then for
                // memory, which is not the minimum.
                line.prefetch();
                rule.charge_shared(&line.0[0], now())
            };
            // The minimum work of a turnover: each word is read, and written to fresh memory.
            let copy = |Words(lines): &Words| {
                black_box(lines.iter().map(Line::copy).collect::<Vec<_>>());
            };
            let zero = |Words(lines): &Words| lines.iter().for_each(Line::zero);
            let upkeep = Upkeep { sweep: Some(copy), clear: Some(zero), ..Upkeep::NONE };
            kept(words, check, upkeep)
        }),
        (BARE_TABLE, |setting| bare::<K>(setting, now)),
        (BARE_TABLE_COARSE, |setting| {
            let clock = coarse();
            bare::<K>(setting, move || clock.now().as_nanos())
        }),
        (BARE_TABLE_BATCHES, |setting| {
            Ok(Box::new(Batches { rule: Gcra::new(setting.quota), table: BareTable::new(setting.keys) }))
        }),
    ]
}

/// The states of the floor without a table.
struct Words(Box<[Line]>);

fn bare<K: Key>(setting: Setting, now: impl Fn() -> u64 + Send + Sync + 'static) -> Built<K> {
    let (rule, table) = (Gcra::new(setting.quota), BareTable::new(setting.keys));
    let check = move |table: &BareTable, key: &K| {
        let hash = table.hasher.hash_one(key);
        table.prefetch(hash);
        let now = now();
        table.word(hash, &pin()).is_some_and(|word| rule.charge_shared(word, now))
    };
    kept(table, check, Upkeep::NONE)
}

/// Checks 32 keys with one reading of the clock and one pin. The line of each key is prefetched
/// before the first one is needed.
struct Batches {
    rule: Gcra,
    table: BareTable,
}

impl<K: Key> Subject<K> for Batches {
    fn decide(&self, keys: &[K]) -> u64 {
        let mut admitted = 0;
        for batch in keys.chunks(32) {
            let mut hashes = [0; 32];
            for (hash, key) in hashes.iter_mut().zip(batch) {
                *hash = self.table.hasher.hash_one(key);
                self.table.prefetch(*hash);
            }
            let (now, guard) = (now(), pin());
            for &hash in &hashes[..batch.len()] {
                let word = self.table.word(hash, &guard);
                admitted += u64::from(word.is_some_and(|word| self.rule.charge_shared(word, now)));
            }
        }
        admitted
    }
}

/// A table with open addressing that identifies keys by their hashes: the remainder of a concurrent
/// table if keys stay forever and all have the same rule. In a flood, it grows in the same steps as
/// this library's table, but all at once, while a thread that needs a place waits. A thread that
/// began before the growth may lose a key.
struct BareTable {
    lines: crossbeam_epoch::Atomic<Lines>,
    /// The address of the slots, for a prefetch, which needs no guard.
    first: AtomicUsize,
    count: AtomicUsize,
    hasher: RandomState,
    taken: Apart,
    growing: Mutex<()>,
    most: usize,
}

/// A counter on its own cache line, which a lookup does not read.
#[derive(Default)]
#[repr(align(128))]
struct Apart(AtomicUsize);

/// The number of slots in a line, which has the hashes first and then the words.
const SLOTS: usize = 4;
/// The number of places of a new table, and the factor by which a table grows.
const FIRST: usize = 40;
const GROWTH: usize = 4;

impl BareTable {
    fn new(most: usize) -> Self {
        let lines = Lines::for_keys(FIRST.min(most));
        let table = Self {
            lines: crossbeam_epoch::Atomic::null(),
            first: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            hasher: RandomState::default(),
            taken: Apart::default(),
            growing: Mutex::new(()),
            most,
        };
        table.put(lines, &pin());
        table
    }

    fn put(&self, lines: Lines, guard: &Guard) {
        self.first.store(lines.lines.as_ptr().addr(), Relaxed);
        self.count.store(lines.lines.len(), Relaxed);
        let old = self.lines.swap(Owned::new(lines), SeqCst, guard);
        if !old.is_null() {
            // SAFETY: the table is unlinked, so no thread finds it any more.
            unsafe { guard.defer_destroy(old) };
        }
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        fetch(self.first.load(Relaxed) + scaled(hash, self.count.load(Relaxed)) * size_of::<Line>());
    }

    #[inline]
    fn lines<'g>(&self, guard: &'g Guard) -> &'g Lines {
        // SAFETY: the pointer is never null, and old tables are freed by the epoch.
        unsafe { self.lines.load(Acquire, guard).deref() }
    }

    /// Returns the word of a key, which is inserted if it is new and there is room. Keys with equal
    /// hashes share a word.
    #[inline]
    fn word<'g>(&self, hash: u64, guard: &'g Guard) -> Option<&'g AtomicU64> {
        let hash = hash.max(1);
        let lines = self.lines(guard);
        match lines.find(hash) {
            Ok(word) => Some(word),
            Err(vacant) => self.insert(hash, lines, vacant, guard),
        }
    }

    #[inline(never)]
    fn insert<'g>(
        &self,
        hash: u64,
        mut lines: &'g Lines,
        (mut slot, mut word): (&'g AtomicU64, &'g AtomicU64),
        guard: &'g Guard,
    ) -> Option<&'g AtomicU64> {
        loop {
            if self.taken.0.fetch_add(1, Relaxed) < lines.places {
                if slot.compare_exchange(0, hash, Relaxed, Relaxed).is_ok() {
                    return Some(word);
                }
                self.taken.0.fetch_sub(1, Relaxed);
            } else {
                self.taken.0.fetch_sub(1, Relaxed);
                if lines.places >= self.most {
                    return None;
                }
                self.grow(lines, guard);
            }
            lines = self.lines(guard);
            match lines.find(hash) {
                Ok(word) => return Some(word),
                Err(vacant) => (slot, word) = vacant,
            }
        }
    }

    fn grow(&self, from: &Lines, guard: &Guard) {
        let _growing = self.growing.lock().unwrap();
        if std::ptr::eq(self.lines(guard), from) {
            let next = Lines::for_keys((GROWTH * from.places).min(self.most));
            from.lines.iter().for_each(|line| next.take_over(line));
            self.put(next, guard);
        }
    }
}

impl Drop for BareTable {
    fn drop(&mut self) {
        // SAFETY: no other thread has the table, because `self` is mutable.
        drop(unsafe { std::mem::take(&mut self.lines).into_owned() });
    }
}

/// A table for this many places, which has half as many slots again.
struct Lines {
    lines: Box<[Line]>,
    places: usize,
}

impl Lines {
    fn for_keys(places: usize) -> Self {
        Self { lines: new(slots(places).div_ceil(SLOTS) + 1), places }
    }

    /// Returns the word of a key, or otherwise the first vacant slot for the key and the word of
    /// that slot.
    #[inline]
    fn find(&self, hash: u64) -> Result<&AtomicU64, (&AtomicU64, &AtomicU64)> {
        let mut at = scaled(hash, self.lines.len());
        loop {
            let (hashes, words) = self.lines[at].0.split_at(SLOTS);
            let found = std::array::from_fn::<u64, SLOTS, _>(|slot| hashes[slot].load(Relaxed));
            if let Some(slot) = first(found.map(|found| found == hash)) {
                return Ok(&words[slot]);
            }
            if let Some(slot) = first(found.map(|found| found == 0)) {
                return Err((&hashes[slot], &words[slot]));
            }
            at = (at + 1) % self.lines.len();
        }
    }

    /// Copies the keys of a line of a smaller table into this table, which no other thread has yet.
    fn take_over(&self, line: &Line) {
        let (hashes, words) = line.0.split_at(SLOTS);
        for (hash, word) in hashes.iter().zip(words) {
            let hash = hash.load(Relaxed);
            if hash == 0 {
                continue;
            }
            if let Err((slot, to)) = self.find(hash) {
                slot.store(hash, Relaxed);
                to.store(word.load(Relaxed), Relaxed);
            }
        }
    }
}

fn new(lines: usize) -> Box<[Line]> {
    (0..lines).map(|_| Line::default()).collect()
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

/// Returns the number of slots that this library has for this many keys: three slots for two keys,
/// and two slots per key if the keys are few.
fn slots(keys: usize) -> usize {
    const ROOMY: usize = 1 << 14;
    (keys + keys / 2).max(ROOMY.min(2 * keys))
}

/// Returns the place of a hash among `count` places.
#[inline]
fn scaled(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// Returns the index of the first value that is true, without a branch for each value.
#[inline]
fn first(of: [bool; SLOTS]) -> Option<usize> {
    let mask = of.into_iter().rev().fold(0_u32, |mask, bit| mask << 1 | u32::from(bit));
    (mask != 0).then(|| mask.trailing_zeros() as usize)
}

/// Prefetches the cache line at this address.
#[inline]
fn fetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no visible effect, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
