//! The cell of a key, and the query that finds the cell in the index.

use crate::state::{Counts, Versioned, Wanted};
use crate::sync::{Atomic, Item, Ordering::Relaxed};
use equivalent::Equivalent;
use std::sync::Arc;

/// The *cell* of a key: the key with its state.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    pub(super) hash: u64,
    pub(super) place: u32,
    denied: Atomic<u32>,
    pub(super) state: Versioned,
    key: K,
}

impl<K> Entry<K> {
    pub(super) fn new(hash: u64, place: u32, key: K, wanted: Wanted) -> Self {
        let stamp = Counts::stamp_of_new(wanted.changes);
        let (state, denied) = (Versioned::fresh(wanted, stamp), Atomic::new(0));
        // ORDERING: relaxed; a count.
        state.counts().cells.fetch_add(1, Relaxed);
        Self { hash, place, denied, state, key }
    }

    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    pub(super) fn asked(&self) -> Asked<'_, K> {
        Asked { hash: self.hash, key: &self.key }
    }

    pub(crate) fn denied(&self) -> u32 {
        // ORDERING: relaxed; a statistic.
        self.denied.load(Relaxed)
    }

    pub(super) fn count_denial(&self) {
        // ORDERING: both accesses are relaxed, because this is a statistic.
        let _ = self.denied.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
    }
}

impl<K> Drop for Entry<K> {
    fn drop(&mut self) {
        // ORDERING: relaxed; a count.
        self.state.counts().cells.fetch_sub(1, Relaxed);
    }
}

// The documentation of `exact` says that a cell occupies 80 bytes: the entry, and the two counts of
// its `Arc`.
#[cfg(all(target_pointer_width = "64", not(tollgate_loom)))]
const _: () = assert!(size_of::<Entry<u64>>() == 64);

/// Returns the hash that the index and the places use for a key. The lowest values are replaced,
/// because a value in that range marks a place as vacant.
#[inline]
pub(crate) const fn spread(hash: u64) -> u64 {
    if hash >> VACANT_BITS == 0 { !hash } else { hash }
}

/// How many bits of a vacant place contain the number of the next vacant place.
pub(super) const VACANT_BITS: u32 = 33;

impl<K: Eq> Item for Arc<Entry<K>> {
    type Key = K;

    #[inline]
    fn hash(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn key(&self) -> &K {
        &self.key
    }
}

/// A key in any borrowed form, with its hash.
#[derive(Debug)]
pub(crate) struct Asked<'q, Q: ?Sized> {
    pub(crate) hash: u64,
    pub(crate) key: &'q Q,
}

impl<Q: ?Sized> Clone for Asked<'_, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: ?Sized> Copy for Asked<'_, Q> {}

impl<Q: ?Sized> Asked<'_, Q> {
    /// Returns a predicate that tells whether this is the key of an item with the same hash. All
    /// lookups use this predicate, because scc's search is compiled once for each predicate.
    #[inline]
    pub(super) fn is_key_of<T: Item>(self) -> impl Fn(&T) -> bool
    where
        Q: Equivalent<T::Key>,
    {
        move |item| self.key.equivalent(item.key())
    }
}
