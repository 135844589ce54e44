//! A set of items, based on [`scc::HashIndex`]. A lookup finds an item by its hash and a predicate.
//!
//! This is the only file in the crate that uses scc. Models cannot use scc, because its bitmaps and
//! epochs are std atomics, which loom does not track. Instead, models use the shim's list behind a
//! loom mutex, with the same three operations, each of which is one step.
//!
//! # The end of a thread
//!
//! scc keeps a thread-local variable, which is destroyed when its thread ends. A later call of scc
//! panics, and a panic in the destructor of another thread-local variable aborts the process. A
//! call from such a destructor therefore starts a thread and waits for it ([`elsewhere`]). To
//! detect this case, the crate has another thread-local variable, which is destroyed before scc's
//! ([`is_here`]).
//!
//! The other thread only handles items, which any thread may handle. The caller's predicates may
//! refer to values that belong to the calling thread, so they run on the calling thread.
//!
//! # Progress
//!
//! `find` takes no lock and never waits, except at the end of a thread. (While scc resizes its
//! array, a lookup also moves a few buckets if their locks are free.) `insert` and `remove` take
//! scc's lock on one bucket of 32 items. These two operations may wait for another thread that
//! inserts or removes an item in the same bucket. A call that finds the array too full or too empty
//! also allocates the next array.
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
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::{ptr, thread};

/// Whether this thread can use scc.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scc {
    /// This thread has not used an index yet.
    Unknown,
    Here,
    /// This thread is ending, and scc's thread-local variable may be destroyed.
    Gone,
}

thread_local! {
    /// This variable has no destructor, so it can be read until the thread has ended.
    static SCC: Cell<Scc> = const { Cell::new(Scc::Unknown) };
    static END: ThreadEnd = const { ThreadEnd };
}

/// Records the end of its thread when dropped.
struct ThreadEnd;

impl Drop for ThreadEnd {
    fn drop(&mut self) {
        SCC.set(Scc::Gone);
    }
}

/// Returns whether this thread can use scc.
#[inline(always)]
fn is_here() -> bool {
    SCC.get() == Scc::Here || is_here_from_now_on()
}

#[cold]
#[inline(never)]
fn is_here_from_now_on() -> bool {
    if SCC.get() == Scc::Gone {
        return false;
    }
    // Thread-local variables are destroyed in the reverse order of their first use, so `END` is
    // destroyed before scc's variable.
    drop(scc::Guard::new());
    END.with(|ThreadEnd| SCC.set(Scc::Here));
    true
}

/// Calls `call` on another thread, and waits for the result.
#[cold]
#[inline(never)]
fn elsewhere<R: Send>(call: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let started = thread::Builder::new().spawn_scoped(scope, call);
        let started = started.expect("a call at the end of a thread needs another thread");
        started.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Announces that this thread is reading. Each lookup also makes this announcement on its own, but
/// several lookups can share one.
pub(crate) struct Reading {
    _guard: Option<scc::Guard>,
}

/// Announces that this thread starts to read.
pub(crate) fn reading() -> Reading {
    Reading { _guard: is_here().then(scc::Guard::new) }
}

/// Makes scc try to advance its epoch, and returns the epoch. When the epoch has advanced, scc can
/// drop more of the removed items. The epoch does not advance while a thread keeps reading.
pub(crate) fn epoch() -> u64 {
    let epoch = || {
        let guard = scc::Guard::new();
        guard.set_has_garbage();
        guard.accelerate();
        u8::from(guard.epoch()).into()
    };
    if is_here() { epoch() } else { elsewhere(epoch) }
}

/// A set of items, no two of which are equal.
pub(crate) struct Index<T> {
    items: ManuallyDrop<Items<T>>,
    drop: fn(Items<T>),
}

type Items<T> = HashIndex<IndexEntry<T>, (), BuildHasherDefault<Given>>;

impl<T: Item + Clone + Deref + Send + Sync + 'static> Index<T> {
    /// How many bytes an item occupies in scc's array: the item itself, and one byte of the item's
    /// hash.
    pub(crate) const ITEM_BYTES: usize = size_of::<T>() + 1;

    pub(crate) fn new() -> Self {
        let drop = |items| if is_here() { drop(items) } else { elsewhere(|| drop(items)) };
        Self { items: ManuallyDrop::new(Items::default()), drop }
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
        if is_here() {
            return self.items.peek_with(&What { hash, is }, |item, ()| visit(&item.0));
        }
        self.find_elsewhere(hash, &is).map(|item| visit(&item))
    }

    /// Adds an item. Returns the item as an error if the set already contains an equal item.
    pub(crate) fn insert(&self, item: T) -> Result<(), T> {
        let insert = || self.items.insert_sync(IndexEntry(item), ()).map_err(|(item, ())| item.0);
        if is_here() { insert() } else { elsewhere(insert) }
    }

    /// Removes the item that has this hash and for which `is` returns true. For each item, exactly
    /// one call returns true.
    pub(crate) fn remove(&self, hash: u64, is: impl Fn(&T) -> bool) -> bool {
        if is_here() {
            return self.items.remove_sync(&What { hash, is });
        }
        self.find_elsewhere(hash, &is).is_some_and(|found| {
            let is_found = |item: &T| ptr::eq(&raw const **item, &raw const *found);
            elsewhere(|| self.items.remove_sync(&What { hash, is: is_found }))
        })
    }

    /// Returns all items that were in the set when the call started and were not removed during the
    /// call. If scc replaces the array during the call, an item may appear more than once.
    #[cfg(feature = "serde")]
    pub(crate) fn all(&self) -> Vec<T> {
        let all = || self.items.iter(&scc::Guard::new()).map(|(item, ())| item.0.clone()).collect();
        if is_here() { all() } else { elsewhere(all) }
    }

    /// Returns how many items fit into the current array.
    pub(crate) fn capacity(&self) -> usize {
        let capacity = || self.items.capacity();
        if is_here() { capacity() } else { elsewhere(capacity) }
    }

    /// Searches like [`find`](Self::find), at the end of a thread. `is` runs on this thread. It is
    /// a trait object, because starting a thread takes much code, which a type parameter would
    /// compile once for each caller.
    #[cold]
    #[inline(never)]
    fn find_elsewhere(&self, hash: u64, is: &dyn Fn(&T) -> bool) -> Option<T> {
        let with_hash = || {
            let items = RefCell::new(Vec::new());
            let note = |item: &T| {
                items.borrow_mut().push(item.clone());
                false
            };
            self.items.peek_with(&What { hash, is: note }, |_, ()| ());
            items.into_inner()
        };
        elsewhere(with_hash).into_iter().find(|item| is(item))
    }
}

/// scc uses its thread-local variable when an index is dropped.
impl<T> Drop for Index<T> {
    fn drop(&mut self) {
        // SAFETY: the field is not used after this call, because the index is being dropped.
        #[allow(unsafe_code)]
        let items = unsafe { ManuallyDrop::take(&mut self.items) };
        (self.drop)(items);
    }
}

/// An item that serves as scc's key.
struct IndexEntry<T>(T);

impl<T: Item> Hash for IndexEntry<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash());
    }
}

impl<T: Item> PartialEq for IndexEntry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash() == other.0.hash() && self.0.key() == other.0.key()
    }
}

impl<T: Item> Eq for IndexEntry<T> {}

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

impl<T: Item, F: Fn(&T) -> bool> Equivalent<IndexEntry<T>> for What<F> {
    fn equivalent(&self, IndexEntry(item): &IndexEntry<T>) -> bool {
        self.hash == item.hash() && (self.is)(item)
    }
}
