//! Reads the words of a table to save them, and creates a table from saved words.
//!
//! # What a reader sees
//!
//! A reader visits the keys part by part. A *part* is a range of fingerprints, so each key belongs
//! to one part, whichever array contains the key. For each part, the reader first collects the keys
//! from the root and from the next array, and then reads the word of each key as a peek does.
//!
//! The reader finds every key that was charged before the call and is not idle. Such a key is live
//! in one array, and its fingerprint is also in all arrays from which the key was moved and that
//! are still in use. When the reader loads the two arrays, the key has a slot in one of them, or
//! it has been evicted since, which means that it was idle.
//!
//! No key is found twice, because the keys of a part are sorted and duplicates are removed.
//! Turnovers between two parts, or while a part is read, do not matter, because `known_in` follows
//! a key that has moved.
//!
//! # Progress
//!
//! Reading is lock-free, like a peek. The reader holds a guard only while it collects the keys of
//! one part or reads one word, so it does not delay the reclamation of memory while the caller
//! writes the words.

use super::space::Fingerprint;
use super::turnover::Table;
use crate::error::Refused;
use crate::quota::{Enforced, Quota};
use crate::rule::{AnyRule, Word, begin, load, update};
use crate::time::Tick;
use std::time::Duration;

/// The average number of lines in a part.
const LINES: u64 = if cfg!(tollgate_loom) { 1 } else { 256 };

/// The word of a key, with the quota under which the word was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedWord {
    pub(crate) word: Word,
    pub(crate) quota: Quota,
    /// True if the quota is the key's own.
    pub(crate) is_own: bool,
}

impl Table {
    /// Returns the number of parts in which to visit the keys.
    pub(crate) fn parts(&self) -> u64 {
        self.with_last(|last| (last.space.lines() as u64).div_ceil(LINES))
    }

    /// Returns the keys of a part, in order.
    pub(crate) fn keys_of_part(&self, part: u64, parts: u64) -> Vec<Fingerprint> {
        let bound = |part: u64| (u128::from(part) << 64).div_ceil(u128::from(parts));
        // Both values are at most 2^64 - 1, because `part` is below `parts`.
        #[allow(clippy::cast_possible_truncation)]
        let range = bound(part) as u64..=(bound(part + 1) - 1) as u64;
        let mut keys: Vec<_> = self.with_arrays(|root, next| {
            let arrays = [Some(root), next].into_iter().flatten();
            arrays.flat_map(|array| array.space.keys_in(range.clone())).collect()
        });
        keys.sort_unstable_by_key(|key| key.bits());
        keys.dedup();
        keys
    }

    /// Returns the word of a key, or `None` if the key is not in the table or was never charged.
    pub(crate) fn word_of(&self, key: Fingerprint) -> Option<SavedWord> {
        self.known_in(key, |array, word| {
            let word = load(word);
            let quota = array.rules.of(key).enforced.quota;
            let is_own = array.rules.own_quota(key).is_some();
            word.is_live().then_some(SavedWord { word, quota, is_own })
        })
    }

    /// Returns the table's mark. A caller that saves the words reads the mark after them, so that
    /// the mark covers the keys that were evicted in the meantime.
    pub(crate) fn mark(&self) -> Tick {
        self.with_last(|last| last.forgotten.get())
    }

    /// Creates a table that contains the given keys with their words.
    pub(crate) fn restored(
        (max_keys, grace): (usize, Duration),
        rule: Enforced<AnyRule>,
        own: &[(Fingerprint, Option<Enforced<AnyRule>>)],
        keys: &[(Fingerprint, Word)],
        (mark, now): (Tick, Tick),
    ) -> Result<Self, Refused> {
        // The table has room for a quarter more keys, so that the first new keys do not start a
        // turnover.
        let room = keys.len() as u64 + keys.len() as u64 / 4;
        let table = Self::with_room_for(room, max_keys, grace, rule, own)?;
        table.with_last(|root| {
            root.forgotten.raise(mark);
            for &(key, word) in keys {
                let is_given = root.place_at_once(now);
                debug_assert!(is_given, "the table has room for all keys");
                let Some(cell) = root.space.claim(key) else { continue };
                if !begin(cell, word) {
                    // The keys contain this key twice.
                    root.give_back();
                    update(cell, |_| word);
                }
            }
        });
        Ok(table)
    }
}
