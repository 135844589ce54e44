//! The table: one slot of 16 bytes for each key, found by fingerprint, claimed without a lock.
//!
//! This table is one space of fixed size, allocated when it is built: `max_keys` is a hard cap on the
//! keys *and* on the memory. A key that was once inserted stays; it is not evicted when it becomes
//! idle. Its pages are zero until a key is written to them, so a system that commits memory lazily
//! spends what the keys take.
//!
//! # State
//!
//! The life of a slot, and nothing else is legal:
//!
//! ```text
//! fingerprint:  EMPTY -> fp            a key claims the first EMPTY slot of its probe run, by CAS
//! word:         fresh -> w1 -> w2 ...  charges, by `rule::update`
//! ```
//!
//! and `claimed`, the number of places given out, from 0 to `max_keys`.
//!
//! # Invariants
//!
//! 1. A fingerprint never changes once written, and EMPTY never comes back.
//! 2. All slots before a key's slot in its probe run are taken by other keys. (It was claimed as the
//!    first EMPTY one, and by 1 they stay taken.)
//! 3. So a fingerprint is in one slot at most: two threads that insert it meet in the same slot, and of
//!    their compare-and-swaps one succeeds and the other finds the fingerprint there.
//! 4. `max_keys` is at least `claimed`, which is at least the number of slots taken: a place is
//!    reserved before the slot is claimed, and given back by who finds the key there already.
//! 5. There are more slots than `max_keys`, so a probe run always ends at an EMPTY slot.
//!
//! A thread may be refused a place that another one reserved for the same key and is about to give
//! back. It happens only within as many keys of the cap as there are threads inserting, and the answer is
//! then the full policy's, one moment early.
//!
//! # Progress
//!
//! Lookups are wait-free bounded by the table's size (and touch 1.2 lines on average when the table is
//! full). Insertions are lock-free: each failed compare-and-swap means that another thread inserted a
//! key or took a place. A thread that stops between reserving a place and claiming its slot keeps that
//! one place, and nothing else.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! All atomics of the table are relaxed. A fingerprint publishes nothing: the word beside it is
//! an atomic of its own, valid (fresh) before the fingerprint is written. The zeroed memory becomes
//! visible to other threads by whatever handed them the limiter. The order of modifications of one
//! location is all that invariants 1 to 3 need: `insert_races_insert_keeps_one` fails when the claim is
//! a load and a store.

mod slot;
mod space;

pub(crate) use slot::Fingerprint;

use crate::error::ConfigError;
use crate::rule::Word;
use crate::sync::{Atomic, Ordering::Relaxed};
use space::Space;

/// Keys and their words, in one space.
#[derive(Debug)]
pub(crate) struct Table {
    space: Space,
    claimed: Atomic<u64>,
    max_keys: u64,
}

/// There is no place for a new key.
#[derive(Debug)]
pub(crate) struct TableFull;

impl Table {
    pub(crate) fn new(max_keys: usize) -> Result<Self, ConfigError> {
        let space = Space::for_keys(max_keys)?;
        Ok(Self { space, claimed: Atomic::new(0), max_keys: max_keys as u64 })
    }

    /// The word of a key that is in the table.
    #[inline]
    pub(crate) fn find(&self, key: Fingerprint) -> Option<&Atomic<Word>> {
        self.space.find(key)
    }

    /// The word of a key, which is inserted if need be.
    #[cold]
    pub(crate) fn insert(&self, key: Fingerprint) -> Result<&Atomic<Word>, TableFull> {
        // ORDERING: relaxed twice; the count publishes nothing.
        let reserved = self.claimed.fetch_update(Relaxed, Relaxed, |n| (n < self.max_keys).then_some(n + 1));
        if reserved.is_err() {
            // The key itself may have come in since it was not found.
            return self.space.find(key).ok_or(TableFull);
        }
        let claim = self.space.claim(key);
        if !claim.is_new {
            // ORDERING: relaxed, as above.
            self.claimed.fetch_sub(1, Relaxed);
        }
        Ok(claim.word)
    }

    /// Asks the processor to load what [`find`](Self::find) will read.
    #[inline]
    pub(crate) fn prefetch(&self, key: Fingerprint) {
        self.space.prefetch(key);
    }

    /// Would a new key find a place now?
    pub(crate) fn has_room(&self) -> bool {
        (self.len() as u64) < self.max_keys
    }

    /// The number of keys in the table, counting those that are being inserted.
    pub(crate) fn len(&self) -> usize {
        // ORDERING: relaxed, as above.
        // At most `max_keys`, which was a usize.
        #[allow(clippy::cast_possible_truncation)]
        let len = self.claimed.load(Relaxed) as usize;
        len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.space.bytes()
    }
}
