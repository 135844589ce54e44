//! A map without values, from whatever can find an item to the item, over [`scc::HashIndex`].
//!
//! This file knows scc and nothing else of the crate does. What the models have in its place is in the shim:
//! scc is not built for loom (its bitmaps and epochs stay std's), so they take a list behind loom's mutex,
//! which does the same three things, each of them at once.
//!
//! # Progress
//!
//! `find` takes no lock and waits for nobody. (While scc resizes its array, a lookup moves a few
//! buckets if it gets their locks at once, and goes on without them if not.) `insert` and `remove` take
//! scc's lock on one bucket of 32 items, and may wait for another thread that inserts or removes in the same
//! bucket; one that also finds the array too full or too empty allocates the next.
//!
//! # Memory
//!
//! scc keeps a removed item in its bucket until the bucket is full and somebody inserts there, or the array is
//! replaced; then it drops it, if nobody can see it any more.
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! There is no atomic operation here. That a lookup sees what was written to an item before it was inserted is
//! scc's promise, and trusted.

use super::find::{Find, Hashed};
use scc::{Equivalent, HashIndex};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Says that this thread reads. A lookup says so itself.
pub(crate) struct Reading(scc::Guard);

/// Begins to read.
pub(crate) fn reading() -> Reading {
    Reading(scc::Guard::new())
}

/// A number that changes as what was removed becomes free to go; and asks for it to change. It stands still
/// while a thread reads and does not end.
pub(crate) fn epoch(Reading(guard): &Reading) -> u64 {
    guard.set_has_garbage();
    guard.accelerate();
    u8::from(guard.epoch()).into()
}

/// Items, no two of which are equal.
pub(crate) struct Index<T>(HashIndex<Item<T>, (), BuildHasherDefault<Given>>);

impl<T: Find<T> + 'static> Index<T> {
    /// What an item takes in scc's array: a place for it, and a byte of its hash.
    pub(crate) const ITEM_BYTES: usize = size_of::<T>() + 1;

    pub(crate) fn new() -> Self {
        Self(HashIndex::default())
    }

    /// Gives the item to `visit`, if it is there.
    #[inline]
    pub(crate) fn find<R>(&self, what: &impl Find<T>, visit: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.peek_with(&What(what), |item, ()| visit(&item.0))
    }

    /// Adds an item unless an equal one is there; then it is handed back.
    pub(crate) fn insert(&self, item: T) -> Result<(), T> {
        self.0.insert_sync(Item(item), ()).map_err(|(item, ())| item.0)
    }

    /// Removes what is found; true of one caller for each item.
    pub(crate) fn remove(&self, what: &impl Find<T>) -> bool {
        self.0.remove_sync(&What(what))
    }

    /// How many items have room in the array that there is.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// An item as scc's key.
struct Item<T>(T);

impl<T: Find<T>> Hash for Item<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash());
    }
}

impl<T: Find<T>> PartialEq for Item<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.is(&other.0)
    }
}

impl<T: Find<T>> Eq for Item<T> {}

/// What is looked for, as scc's question.
struct What<'w, W>(&'w W);

impl<W: Hashed> Hash for What<'_, W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash());
    }
}

impl<T, W: Find<T>> Equivalent<Item<T>> for What<'_, W> {
    fn equivalent(&self, item: &Item<T>) -> bool {
        self.0.is(&item.0)
    }
}

/// Hands on the hash that an item brings with it.
#[derive(Clone, Copy, Default)]
struct Given(u64);

impl Hasher for Given {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("items write one u64");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
