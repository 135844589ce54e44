//! A set of items that are found by their hash and a test, over [`scc::HashIndex`].
//!
//! Only this file of the crate uses scc. The models use the list behind loom's mutex in the shim,
//! whose operations are the same three, each of them one step: scc is not built for loom (its
//! bitmaps and epochs would stay std's).
//!
//! # Progress
//!
//! `find` takes no lock and never waits. (While scc resizes its array, a lookup moves a few buckets
//! if their locks are free, and continues without them if not.) `insert` and `remove` take scc's
//! lock on one bucket of 32 items, and may wait for another thread that inserts or removes in the
//! same bucket. One that also finds the array too full or too empty allocates the next.
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
//! There is no atomic operation here. scc promises that a lookup sees what was written to an item
//! before it was inserted, and this crate trusts it.

use super::item::{Given, Item};
use scc::{Equivalent, HashIndex};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Announces that this thread reads. A lookup does so by itself.
pub(crate) struct Reading(scc::Guard);

/// Announces that this thread begins to read.
pub(crate) fn reading() -> Reading {
    Reading(scc::Guard::new())
}

/// Returns scc's epoch, which changes as removed items become free to drop, and asks scc to advance
/// it. It stands still while a thread keeps reading.
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

    /// Passes the item that has this hash and that `is` accepts to `visit`, if it is there.
    #[inline]
    pub(crate) fn find<R>(
        &self,
        hash: u64,
        is: impl Fn(&T) -> bool,
        visit: impl FnOnce(&T) -> R,
    ) -> Option<R> {
        self.0.peek_with(&What { hash, is }, |item, ()| visit(&item.0))
    }

    /// Adds an item, or hands it back if an equal one is there.
    pub(crate) fn insert(&self, item: T) -> Result<(), T> {
        self.0.insert_sync(Entry(item), ()).map_err(|(item, ())| item.0)
    }

    /// Removes the item that has this hash and that `is` accepts. Returns true to one caller for
    /// each item.
    pub(crate) fn remove(&self, hash: u64, is: impl Fn(&T) -> bool) -> bool {
        self.0.remove_sync(&What { hash, is })
    }

    /// Returns how many items the present array has room for.
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

/// What is asked for, as scc's query: a hash, and which item of that hash it is.
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
