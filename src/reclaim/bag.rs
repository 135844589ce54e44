//! What was unlinked and waits until no guard may have seen it.

use super::barrier;
use super::guard::Guard;
use super::participant::REGISTRY;
use crate::sync::{
    Atomic, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::ptr;

/// A collection is due whenever so many bytes more were retired.
const EVERY: u64 = if cfg!(tollgate_loom) { 2 } else { 32 << 10 };

/// A value counts for no fewer than so many of them.
const LEAST: u64 = if cfg!(tollgate_loom) { 1 } else { 256 };

/// When a collection has kept something, the next is due after so many calls of `tidy`: the thread that was in the
/// way may have gone on.
const AGAIN: u16 = 4096;

/// A collection looks at so many values at the most: to free one may take as long as a check.
const MOST: usize = if cfg!(tollgate_loom) { 2 } else { 256 };

/// The retired values of one limiter, until they are freed.
#[derive(Debug)]
pub(crate) struct Bag {
    /// The value that came last.
    last: AtomicPtr<Header>,
    /// What a collection has not looked at.
    rest: AtomicPtr<Header>,
    /// The bytes that were ever retired.
    retired: Atomic<u64>,
    /// 0 if no collection is due; or at which call of `tidy` one is, from 1.
    due: Atomic<u16>,
    /// The bytes of those that are not freed yet.
    bytes: Atomic<u64>,
}

/// A value that can be retired.
pub(crate) trait Retire: Send + 'static {
    /// The bytes that are freed with it, if nobody else counts them.
    fn bytes(&self, guard: &Guard) -> usize;
}

/// What stands before each value that a link leads to.
#[derive(Debug)]
pub(super) struct Header {
    /// An age in which it was not linked yet, or one that ended before.
    born: u64,
    /// The age in which it was retired; 0 until a collection has looked at it.
    retired: Atomic<u64>,
    /// The next in the bag, or null.
    next: AtomicPtr<Header>,
    /// The bytes that it adds to those of its bag.
    bytes: Atomic<u64>,
    /// Frees the node that begins with this header.
    free: unsafe fn(*mut Header),
}

/// A value with its header.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Node<T> {
    header: Header,
    pub(super) value: T,
}

impl<T> Node<T> {
    pub(super) fn new(value: T, born: u64) -> Self {
        let (retired, next) = (Atomic::new(0), AtomicPtr::new(ptr::null_mut()));
        let header = Header { born, retired, next, bytes: Atomic::new(0), free: free::<T> };
        Self { header, value }
    }
}

/// Frees a node.
///
/// # Safety
///
/// `header` is that of a `Node<T>` which came from a box, and nobody else has it.
#[allow(unsafe_code)]
unsafe fn free<T>(header: *mut Header) {
    // SAFETY: the caller's; a node begins with its header.
    drop(unsafe { Box::from_raw(header.cast::<Node<T>>()) });
}

/// A list of headers that one thread has, joined by `next`.
#[derive(Debug)]
struct List(*mut Header);

#[allow(unsafe_code)]
impl List {
    const fn empty() -> Self {
        Self(ptr::null_mut())
    }

    fn first(&self) -> Option<&Header> {
        // SAFETY: null, or a value that this list alone has.
        unsafe { self.0.as_ref() }
    }

    fn pop(&mut self) -> Option<*mut Header> {
        // ORDERING: relaxed; it came with the list.
        let next = self.first()?.next.load(Relaxed);
        Some(std::mem::replace(&mut self.0, next))
    }

    fn push(&mut self, header: *mut Header) {
        // SAFETY: it came from another list, or a link, and nobody else has it.
        let next = unsafe { &(*header).next };
        // ORDERING: relaxed; whoever publishes the list releases it.
        next.store(self.0, Relaxed);
        self.0 = header;
    }
}

#[allow(unsafe_code)]
impl Bag {
    /// An empty bag.
    #[cfg(not(tollgate_loom))]
    pub(crate) const fn new() -> Self {
        let (last, rest) = (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()));
        Self { last, rest, retired: Atomic::new(0), due: Atomic::new(0), bytes: Atomic::new(0) }
    }

    /// An empty bag.
    #[cfg(tollgate_loom)]
    pub(crate) fn new() -> Self {
        let (last, rest) = (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()));
        Self { last, rest, retired: Atomic::new(0), due: Atomic::new(0), bytes: Atomic::new(0) }
    }

    /// The bytes of the values that are not freed yet.
    pub(crate) fn bytes(&self) -> usize {
        // ORDERING: relaxed; a count.
        let bytes = self.bytes.load(Relaxed);
        // What is allocated fits into memory.
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Takes a value that was unlinked.
    ///
    /// # Safety
    ///
    /// The node came from a box. No link leads to it any more, so no new guard can reach it; it is retired
    /// once.
    pub(super) unsafe fn retire<T: Retire>(&self, node: *mut Node<T>, guard: &Guard) {
        // SAFETY: nobody frees it before this call gives it away.
        let Node { header, value } = unsafe { &*node };
        let bytes = value.bytes(guard) as u64;
        // ORDERING: relaxed, both; a count, and what the bag publishes with the value.
        header.bytes.store(bytes, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        let mut one = List::empty();
        one.push(node.cast());
        self.put(one);
        let more = bytes.max(LEAST);
        // ORDERING: relaxed; a count.
        let before = self.retired.fetch_add(more, Relaxed);
        if before / EVERY != before.wrapping_add(more) / EVERY {
            // ORDERING: relaxed; a hint.
            self.due.store(1, Relaxed);
        }
    }

    /// Collects if that is due: for a thread that has just dropped a guard under which it may have retired
    /// something. (Before, what it has retired would be kept for its own guard.)
    #[inline]
    pub(crate) fn tidy(&self) {
        // ORDERING: relaxed; a hint.
        let due = self.due.load(Relaxed);
        if due > 0 {
            self.tidy_in(due);
        }
    }

    #[cold]
    fn tidy_in(&self, due: u16) {
        // ORDERING: relaxed; a hint. Calls that come at once may count as one.
        self.due.store(due - 1, Relaxed);
        if due == 1 {
            self.collect();
        }
    }

    /// Frees values that no guard may have seen; looks at no more than a few hundred. Lock-free. The
    /// caller's own guard is one of those that are asked.
    pub(crate) fn collect(&self) {
        let mut taken = Self::take(&self.rest);
        if taken.first().is_none() {
            taken = Self::take(&self.last);
        }
        let mut free = List::empty();
        for _ in 0..MOST {
            let Some(header) = taken.pop() else { break };
            free.push(header);
        }
        // The others must not wait for this thread.
        self.put_back(taken);
        let mut kept = List::empty();
        // Whoever is seen to read reads: that takes no barrier.
        Self::keep_what_is_met(&mut free, &mut kept);
        if free.first().is_some() {
            let age = REGISTRY.end_age();
            free = Self::stamped(free, age);
            if barrier::heavy() {
                Self::keep_what_is_met(&mut free, &mut kept);
            } else {
                // The system has refused the barrier, so nothing is known of who reads.
                while let Some(header) = free.pop() {
                    kept.push(header);
                }
            }
        }
        if kept.first().is_some() {
            // ORDERING: relaxed; a hint.
            self.due.store(AGAIN, Relaxed);
            self.put(kept);
        }
        self.free(free);
    }

    /// Moves the values that an announced guard may have seen.
    fn keep_what_is_met(free: &mut List, kept: &mut List) {
        for interval in REGISTRY.intervals() {
            let mut others = List::empty();
            while let Some(header) = free.pop() {
                // SAFETY: it is in a list that this thread alone has.
                let Header { born, retired, .. } = unsafe { &*header };
                // ORDERING: relaxed; it came with the list. (0, if no age was noted yet, is met by no interval.)
                let is_met = interval.meets(*born, retired.load(Relaxed));
                if is_met { &mut *kept } else { &mut others }.push(header);
            }
            *free = others;
        }
    }

    /// Notes the age in which values were retired that no collection has looked at before.
    fn stamped(mut list: List, age: u64) -> List {
        let mut stamped = List::empty();
        while let Some(header) = list.pop() {
            // SAFETY: it is in a list that this thread alone has.
            let retired = unsafe { &(*header).retired };
            // ORDERING: relaxed twice; it came with the list, and goes with one.
            if retired.load(Relaxed) == 0 {
                retired.store(age, Relaxed);
            }
            stamped.push(header);
        }
        stamped
    }

    fn take(from: &AtomicPtr<Header>) -> List {
        // ORDERING: relaxed; a look.
        if from.load(Relaxed).is_null() {
            return List::empty();
        }
        // ORDERING: acquire side of *bag*.
        List(from.swap(ptr::null_mut(), Acquire))
    }

    /// Puts values back for the next collection to begin with.
    fn put_back(&self, list: List) {
        // ORDERING: release side of *bag*; relaxed where another thread has left some.
        if list.first().is_some()
            && self.rest.compare_exchange(ptr::null_mut(), list.0, Release, Relaxed).is_err()
        {
            self.put(list);
        }
    }

    /// Adds values, one by one.
    fn put(&self, mut list: List) {
        while let Some(header) = list.pop() {
            // SAFETY: nobody else has it yet.
            let next = unsafe { &(*header).next };
            // ORDERING: relaxed; it is not dereferenced.
            let mut last = self.last.load(Relaxed);
            loop {
                // ORDERING: relaxed; published by the compare-and-swap.
                next.store(last, Relaxed);
                // ORDERING: release side of *bag*; relaxed where another thread was first.
                match self.last.compare_exchange_weak(last, header, Release, Relaxed) {
                    Ok(_) => break,
                    Err(found) => last = found,
                }
            }
        }
    }

    /// Frees values that no guard may have seen.
    fn free(&self, mut list: List) {
        while let Some(header) = list.pop() {
            // SAFETY: it is in a list that this thread alone has.
            let Header { bytes, free, .. } = unsafe { &*header };
            // ORDERING: relaxed; it came with the list.
            let (bytes, free) = (bytes.load(Relaxed), *free);
            // ORDERING: relaxed; a count.
            self.bytes.fetch_sub(bytes, Relaxed);
            // SAFETY: `free` is that of the node's type, and nobody else has the node.
            unsafe { free(header) };
        }
    }
}

/// Whoever drops a bag has the last reference to what its values were linked in, so no thread is in a call
/// that may have seen one, whatever guards it holds.
impl Drop for Bag {
    fn drop(&mut self) {
        for from in [&self.rest, &self.last] {
            self.free(Self::take(from));
        }
    }
}
