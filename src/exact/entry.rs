//! The cell of a key, and the queries that find it in the index.

use super::shared_rule::Wanted;
use super::stage::Staged;
use crate::sync::{Atomic, Find, Hashed, Ordering::Relaxed};
use equivalent::Equivalent;
use std::sync::Arc;

/// A key with its state: the *cell*.
#[derive(Debug)]
pub(crate) struct Entry<K> {
    pub(super) hash: u64,
    pub(super) place: u32,
    denied: Atomic<u32>,
    pub(super) state: Staged,
    key: K,
}

impl<K> Entry<K> {
    pub(super) fn new(hash: u64, place: u32, key: K, wanted: Wanted) -> Self {
        let (state, denied) = (Staged::fresh(wanted), Atomic::new(0));
        // ORDERING: relaxed; a count.
        state.counts().cells.fetch_add(1, Relaxed);
        Self { hash, place, denied, state, key }
    }

    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    pub(crate) fn denied(&self) -> u32 {
        // ORDERING: relaxed; a statistic.
        self.denied.load(Relaxed)
    }

    pub(super) fn count_denial(&self) {
        // ORDERING: relaxed twice; a statistic.
        let _ = self.denied.fetch_update(Relaxed, Relaxed, |count| count.checked_add(1));
    }
}

impl<K> Drop for Entry<K> {
    fn drop(&mut self) {
        // ORDERING: relaxed; a count.
        self.state.counts().cells.fetch_sub(1, Relaxed);
    }
}

// The documentation of `exact` says 80 bytes: this and the two counts of an `Arc`.
#[cfg(all(target_pointer_width = "64", not(tollgate_loom)))]
const _: () = assert!(size_of::<Entry<u64>>() == 64);

/// Returns the hash of a key as the index and the places use it. The lowest values are moved away:
/// in a place they mean that it is vacant.
#[inline]
pub(crate) const fn spread(hash: u64) -> u64 {
    if hash >> VACANT_BITS == 0 { !hash } else { hash }
}

/// The number of bits in a vacant place that name the next vacant place.
pub(super) const VACANT_BITS: u32 = 33;

/// Entries are equal if their keys are.
impl<K> Hashed for Arc<Entry<K>> {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl<K: Eq> Find<Arc<Entry<K>>> for Arc<Entry<K>> {
    fn is(&self, other: &Arc<Entry<K>>) -> bool {
        self.hash == other.hash && self.key == other.key
    }
}

/// A query for the entry of `key`, in any borrowed form.
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

impl<Q: ?Sized> Hashed for Asked<'_, Q> {
    #[inline]
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl<K, Q: Equivalent<K> + ?Sized> Find<Arc<Entry<K>>> for Asked<'_, Q> {
    #[inline]
    fn is(&self, entry: &Arc<Entry<K>>) -> bool {
        self.hash == entry.hash && self.key.equivalent(&entry.key)
    }
}

/// A query for this very entry, not for a newer one of the same key.
pub(super) struct Exactly<'e, K>(pub(super) &'e Arc<Entry<K>>);

impl<K> Hashed for Exactly<'_, K> {
    fn hash(&self) -> u64 {
        self.0.hash
    }
}

impl<K> Find<Arc<Entry<K>>> for Exactly<'_, K> {
    fn is(&self, entry: &Arc<Entry<K>>) -> bool {
        Arc::ptr_eq(self.0, entry)
    }
}

/// A query for the entry that has this hash and holds this place.
pub(super) struct At {
    pub(super) hash: u64,
    pub(super) place: u32,
}

impl Hashed for At {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl<K> Find<Arc<Entry<K>>> for At {
    fn is(&self, entry: &Arc<Entry<K>>) -> bool {
        entry.place == self.place && entry.hash == self.hash
    }
}
