//! A set of items that are found by their hash and a test, over [`scc::HashIndex`].
//!
//! Only this file of the crate uses scc. Models use a list behind loom's mutex in the shim instead,
//! which has the same three operations, each of them one step, because scc is not built for loom
//! (its bitmaps and epochs would stay atomics of std).
//!
//! # Progress
//!
//! `find` takes no lock and never waits. (While scc resizes its array, a lookup moves a few buckets
//! if their locks are free, and otherwise continues without moving them.) `insert` and `remove`
//! take scc's lock on one bucket of 32 items, and may wait for another thread that inserts or
//! removes in the same bucket. A call that finds the array too full or too empty also allocates the
//! next array.
//!
//! # Memory
//!
//! scc keeps a removed item in its bucket until the bucket is full and another item is inserted
//! there, or the array is replaced. Then it drops the item, if no thread can see it any more.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! There is no atomic operation here. This crate relies on scc's promise that a lookup sees all
//! writes to an item before its insertion.

use super::item::{Given, Item};
use scc::{Equivalent, HashIndex};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Announces that this thread reads. A lookup makes this announcement by itself.
pub(crate) struct Reading(scc::Guard);

/// Announces that this thread begins to read.
pub(crate) fn reading() -> Reading {
    Reading(scc::Guard::new())
}

/// Returns scc's epoch, which changes as removed items become free to drop, and makes scc try to
/// advance it. The epoch does not advance while a thread keeps reading.
pub(crate) fn epoch(Reading(guard): &Reading) -> u64 {
    guard.set_has_garbage();
    guard.accelerate();
    u8::from(guard.epoch()).into()
}

/// A set of items, no two of which are equal.
pub(crate) struct Index<T>(HashIndex<Entry<T>, (), BuildHasherDefault<Given>>);

impl<T: Item + 'static> Index<T> {
    /// The bytes of an item in scc's array: its place, and a byte of its hash.
    pub(crate) const ITEM_BYTES: usize = size_of::<T>() + 1;

    pub(crate) fn new() -> Self {
        Self(HashIndex::default())
    }

    /// Passes the item that has this hash and for which `is` returns true to `visit`, if there is
    /// one.
    #[inline]
    pub(crate) fn find<R>(
        &self,
        hash: u64,
        is: impl Fn(&T) -> bool,
        visit: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        self.0.peek_with(&What { hash, is }, |item, ()| visit(&item.0))
    }

    /// Adds an item, or returns it as an error if an equal item is there.
    pub(crate) fn insert(&self, item: T) -> Result<(), T> {
        self.0.insert_sync(Entry(item), ()).map_err(|(item, ())| item.0)
    }

    /// Removes the item that has this hash and for which `is` returns true. Returns true to exactly
    /// one caller for each item.
    pub(crate) fn remove(&self, hash: u64, is: impl Fn(&T) -> bool) -> bool {
        self.0.remove_sync(&What { hash, is })
    }

    /// Returns the number of items that the present array has room for.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// An item as scc's key.
struct Entry<T>(T);

impl<T: Item> Hash for Entry<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash());
    }
}

impl<T: Item> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash() == other.0.hash() && self.0.key() == other.0.key()
    }
}

impl<T: Item> Eq for Entry<T> {}

/// A query for scc: a hash, and a test that identifies one item with that hash.
struct What<F> {
    hash: u64,
    is: F,
}

impl<F> Hash for What<F> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<T: Item, F: Fn(&T) -> bool> Equivalent<Entry<T>> for What<F> {
    fn equivalent(&self, Entry(item): &Entry<T>) -> bool {
        self.hash == item.hash() && (self.is)(item)
    }
}
