//! A set of items, based on [`scc::HashIndex`]. A lookup finds an item by its hash and a predicate.
//!
//! This is the only file in the crate that uses scc. Models cannot use scc, because its bitmaps and
//! epochs are std atomics, which loom does not track. Instead, models use the shim's list behind a
//! loom mutex, with the same three operations, each of which is one step.
//!
//! # Progress
//!
//! `find` takes no lock and never waits. (While scc resizes its array, a lookup also moves a few
//! buckets if their locks are free.) `insert` and `remove` take scc's lock on one bucket of 32
//! items. These two operations may wait for another thread that inserts or removes an item in the
//! same bucket. A call that finds the array too full or too empty also allocates the next array.
//!
//! # Memory
//!
//! scc keeps a removed item in its bucket until another item is inserted into the full bucket, or
//! until the array is replaced. At that point, scc drops the item if no thread can see it any more.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! This file contains no atomic operations. The crate relies on scc's promise that a lookup sees
//! all writes made to an item before it was inserted.

use super::item::{Given, Item};
use scc::{Equivalent, HashIndex};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Announces that this thread is reading. Each lookup also makes this announcement on its own.
pub(crate) struct Reading(scc::Guard);

/// Announces that this thread starts to read.
pub(crate) fn reading() -> Reading {
    Reading(scc::Guard::new())
}

/// Makes scc try to advance its epoch, and returns the epoch. When the epoch has advanced, scc can
/// drop more of the removed items. The epoch does not advance while a thread keeps reading.
pub(crate) fn epoch(Reading(guard): &Reading) -> u64 {
    guard.set_has_garbage();
    guard.accelerate();
    u8::from(guard.epoch()).into()
}

/// A set of items, no two of which are equal.
pub(crate) struct Index<T>(HashIndex<Entry<T>, (), BuildHasherDefault<Given>>);

impl<T: Item + 'static> Index<T> {
    /// How many bytes an item occupies in scc's array: the item itself, and one byte of the item's
    /// hash.
    pub(crate) const ITEM_BYTES: usize = size_of::<T>() + 1;

    pub(crate) fn new() -> Self {
        Self(HashIndex::default())
    }

    /// Searches for the item that has this hash and for which `is` returns true. Passes the item to
    /// `visit` if it exists.
    #[inline]
    pub(crate) fn find<R>(
        &self,
        hash: u64,
        is: impl Fn(&T) -> bool,
        visit: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        self.0.peek_with(&What { hash, is }, |item, ()| visit(&item.0))
    }

    /// Adds an item. Returns the item as an error if the set already contains an equal item.
    pub(crate) fn insert(&self, item: T) -> Result<(), T> {
        self.0.insert_sync(Entry(item), ()).map_err(|(item, ())| item.0)
    }

    /// Removes the item that has this hash and for which `is` returns true. For each item, exactly
    /// one call returns true.
    pub(crate) fn remove(&self, hash: u64, is: impl Fn(&T) -> bool) -> bool {
        self.0.remove_sync(&What { hash, is })
    }

    /// Returns how many items fit into the current array.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// An item that serves as scc's key.
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

/// A query for scc: a hash, and a predicate that identifies an item with that hash.
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
