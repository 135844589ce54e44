//! Bags of unlinked values. A value stays in its bag until no remaining guard may have seen the
//! value.

use super::barrier;
use super::guard::REGISTRY;
use crate::sync::{
    Atomic, AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::fmt::Debug;
use std::ptr;

/// The number of retired bytes after which another collection is due.
const EVERY: u64 = if cfg!(tollgate_loom) { 2 } else { 32 << 10 };

/// Each value counts as at least this many retired bytes.
const LEAST: u64 = if cfg!(tollgate_loom) { 1 } else { 256 };

/// After a collection that kept values, the next collection is due after this many calls to `tidy`.
/// By then, the guard for which the values were kept may have been dropped.
const AGAIN: u16 = 4096;

/// After a collection that did not examine all values, the next collection is due after this many
/// calls to `tidy`. If the collection kept values and left only old values unexamined, `AGAIN`
/// applies instead, because the remaining old values must probably be kept as well.
const SOON: u16 = 16;

/// The maximum number of values that a collection examines in each pile. Freeing a value may take
/// as long as a check.
const MOST: usize = if cfg!(tollgate_loom) { 2 } else { 256 };

/// A collection stops examining a pile once the examined values occupy this many bytes. The
/// allocator returns large blocks to the system, which takes longer than a check. This number is
/// larger than [`EVERY`], so that collections keep up with retirements.
const MOST_BYTES: u64 = if cfg!(tollgate_loom) { 1 << 20 } else { 2 * EVERY };

/// The retired values of one limiter. The values stay in the bag until they are freed.
#[derive(Debug)]
pub(crate) struct Bag {
    /// The values that no collection has examined.
    new: Pile,
    /// The values that earlier collections have kept. A parked thread may keep many of them, so new
    /// values are in a separate pile and do not wait for kept values.
    kept: Pile,
    /// The total number of bytes ever retired, including values that are already freed.
    retired: Atomic<u64>,
    /// 1 if a collection is due because of the retired bytes, otherwise 0.
    due: Atomic<u8>,
    /// The number of calls to `tidy` before the next collection, or 0 if no collection is
    /// scheduled. This field is separate from `due`, so that a thread that counts down late cannot
    /// cancel a collection that is due.
    again: Atomic<u16>,
    /// The bytes of all values that have not been freed yet.
    bytes: Atomic<u64>,
}

/// Values that wait for a collection.
#[derive(Debug)]
struct Pile {
    /// The value that was added last.
    last: AtomicPtr<Header>,
    /// The values that a collection took but did not examine. The next collection examines these
    /// values first.
    rest: AtomicPtr<Header>,
}

/// A value that can be retired.
pub(crate) trait Retire: Debug + Send + 'static {
    /// Returns the number of bytes that are freed with the value. Bytes that are counted elsewhere
    /// are not included.
    fn bytes(&self) -> usize;
}

/// The header of a value. Each value that a link points to has a header.
#[derive(Debug)]
pub(super) struct Header {
    /// An era no later than the era in which the value was linked.
    born: u64,
    /// The era in which the value was retired, or 0 until a collection has examined the value.
    retired: Atomic<u64>,
    /// The next header in the bag, or null.
    next: AtomicPtr<Header>,
    /// How many bytes `Bag::bytes` counts for this value.
    bytes: Atomic<u64>,
    /// Frees the node that starts with this header.
    free: unsafe fn(*mut Header),
}

impl Header {
    /// Returns whether a guard of this era may have seen the value.
    fn meets(&self, era: u64) -> bool {
        // ORDERING: relaxed, because the value is published with the list. (`retired` is 0 until a
        // collection has examined the header, and no guard has era 0.)
        self.born <= era && era <= self.retired.load(Relaxed)
    }
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
/// `header` must belong to a `Node<T>` that came from a box. No other thread or pointer may use the
/// node.
#[allow(unsafe_code)]
unsafe fn free<T>(header: *mut Header) {
    // SAFETY: the caller guarantees that the node came from a box and is not used any more. A node
    // starts with its header.
    drop(unsafe { Box::from_raw(header.cast::<Node<T>>()) });
}

/// A list of headers linked through `next`. One thread owns the list.
#[derive(Debug)]
struct List(*mut Header);

#[allow(unsafe_code)]
impl List {
    const fn empty() -> Self {
        Self(ptr::null_mut())
    }

    fn first(&self) -> Option<&Header> {
        // SAFETY: the pointer is null, or points to a value that only this list owns.
        unsafe { self.0.as_ref() }
    }

    fn iter(&self) -> impl Iterator<Item = &Header> {
        // ORDERING: relaxed; published with the list.
        let next = |header: &&Header| header.next.load(Relaxed);
        // SAFETY: as in `first`.
        std::iter::successors(self.first(), move |header| unsafe { next(header).as_ref() })
    }

    fn pop(&mut self) -> Option<*mut Header> {
        // ORDERING: relaxed; published with the list.
        let next = self.first()?.next.load(Relaxed);
        Some(std::mem::replace(&mut self.0, next))
    }

    fn push(&mut self, header: *mut Header) {
        // SAFETY: the header came from another list or from a link, so only this call can access
        // the header.
        let next = unsafe { &(*header).next };
        // ORDERING: relaxed, because the operation that publishes the list is a release.
        next.store(self.0, Relaxed);
        self.0 = header;
    }

    /// Moves all headers for which `is_given` returns true to another list.
    fn give(&mut self, to: &mut Self, is_given: impl Fn(&Header) -> bool) {
        let mut others = Self::empty();
        while let Some(header) = self.pop() {
            // SAFETY: the header was in this list and is not in any list now, so only this thread
            // can access the header.
            let is_given = is_given(unsafe { &*header });
            if is_given { &mut *to } else { &mut others }.push(header);
        }
        *self = others;
    }
}

#[allow(unsafe_code)]
impl Pile {
    fn empty() -> Self {
        Self { last: AtomicPtr::new(ptr::null_mut()), rest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Takes the values that a collection will examine. Also returns whether the pile had more
    /// values.
    fn take_some(&self) -> (List, bool) {
        let mut taken = Self::take(&self.rest);
        let is_rest = taken.first().is_some();
        if !is_rest {
            taken = Self::take(&self.last);
        }
        let (mut some, mut bytes) = (List::empty(), 0);
        for _ in 0..MOST {
            let Some(header) = taken.pop() else { break };
            // SAFETY: the header was in a list that only this call owns.
            let Header { bytes: more, .. } = unsafe { &*header };
            // ORDERING: relaxed; published with the list.
            bytes += more.load(Relaxed);
            some.push(header);
            if bytes >= MOST_BYTES {
                break;
            }
        }
        // ORDERING: relaxed; a hint. (Values added after `last` was taken do not count.)
        let are_more = taken.first().is_some() || is_rest && !self.last.load(Relaxed).is_null();
        // Put the other values back now, so that their collection does not have to wait for this
        // thread.
        self.put_back(taken);
        (some, are_more)
    }

    fn take(from: &AtomicPtr<Header>) -> List {
        // ORDERING: relaxed; this load only avoids a swap.
        if from.load(Relaxed).is_null() {
            return List::empty();
        }
        // ORDERING: acquire side of *bag*.
        List(from.swap(ptr::null_mut(), Acquire))
    }

    /// Puts values back, so that the next collection starts with them.
    fn put_back(&self, list: List) {
        // ORDERING: release side of *bag*. Relaxed if another thread got there first.
        if list.first().is_some()
            && self.rest.compare_exchange(ptr::null_mut(), list.0, Release, Relaxed).is_err()
        {
            self.put(list);
        }
    }

    /// Adds the values one by one.
    fn put(&self, mut list: List) {
        while let Some(header) = list.pop() {
            // SAFETY: the header is not in any pile yet, so only this thread can access the header.
            let next = unsafe { &(*header).next };
            // ORDERING: release side of *bag*. Relaxed if another thread got there first.
            let _ = self.last.fetch_update(Release, Relaxed, |last| {
                // ORDERING: relaxed; published by the update.
                next.store(last, Relaxed);
                Some(header)
            });
        }
    }
}

#[allow(unsafe_code)]
impl Bag {
    /// Creates an empty bag.
    pub(crate) fn new() -> Self {
        let [new, kept] = [(); 2].map(|()| Pile::empty());
        Self {
            new,
            kept,
            retired: Atomic::new(0),
            due: Atomic::new(0),
            again: Atomic::new(0),
            bytes: Atomic::new(0),
        }
    }

    /// Returns the bytes of all values that have not been freed yet.
    pub(crate) fn bytes(&self) -> usize {
        // ORDERING: relaxed; a count.
        usize::try_from(self.bytes.load(Relaxed)).unwrap_or(usize::MAX)
    }

    /// Retires an unlinked value. A later collection frees the value.
    ///
    /// # Safety
    ///
    /// The node must come from a box. No link may lead to the node any more, so that no new guard
    /// can reach it. A node must not be retired twice.
    pub(super) unsafe fn retire<T: Retire>(&self, node: *mut Node<T>) {
        // SAFETY: the node cannot be freed before this call puts the node into the bag.
        let Node { header, value } = unsafe { &*node };
        let bytes = value.bytes() as u64;
        // ORDERING: both accesses are relaxed. The bag publishes the first number with the value,
        // and the second number is a count.
        header.bytes.store(bytes, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        // The header was not in any list before.
        self.new.put(List(node.cast()));
        let more = bytes.max(LEAST);
        // ORDERING: relaxed; a count.
        let before = self.retired.fetch_add(more, Relaxed);
        if before / EVERY != before.wrapping_add(more) / EVERY {
            // ORDERING: relaxed; a hint.
            self.due.store(1, Relaxed);
        }
    }

    /// Runs a collection if one is due. A thread that has retired a value must first drop the guard
    /// under which it did so. Otherwise that guard would keep the value.
    #[inline]
    pub(crate) fn tidy(&self) {
        // ORDERING: both loads are relaxed, because the values are hints.
        let (is_due, again) = (self.due.load(Relaxed) == 1, self.again.load(Relaxed));
        if is_due || again > 0 {
            self.tidy_in(is_due, again);
        }
    }

    #[cold]
    fn tidy_in(&self, is_due: bool, again: u16) {
        if is_due {
            // ORDERING: relaxed; a hint.
            self.due.store(0, Relaxed);
        } else {
            // ORDERING: relaxed; a hint. Simultaneous calls may count as one.
            self.again.store(again - 1, Relaxed);
        }
        if is_due || again == 1 {
            self.collect();
        }
    }

    /// Frees values that no guard may have seen. Examines at most a few hundred values. This method
    /// is lock-free. The calling thread's own guards also keep values.
    pub(crate) fn collect(&self) {
        let (mut free, are_more_new) = self.new.take_some();
        let (mut old, are_more_old) = self.kept.take_some();
        let mut kept = List::empty();
        if free.first().is_none() {
            // First move the values kept by visible guards into `kept`. This does not require
            // ending an era.
            Self::keep_what_is_met(&mut old, &mut kept);
        }
        old.give(&mut free, |_| true);
        if free.first().is_some() {
            let era = REGISTRY.end_era();
            // Values that no collection has examined before are retired in this era.
            for Header { retired, .. } in free.iter() {
                // ORDERING: both accesses are relaxed. The value was published with the previous
                // list, and will be published with the next list.
                if retired.load(Relaxed) == 0 {
                    retired.store(era, Relaxed);
                }
            }
            if barrier::heavy() {
                Self::keep_what_is_met(&mut free, &mut kept);
            } else {
                // The system has refused the barrier, so some guards may be invisible to this
                // thread. Keep all values.
                free.give(&mut kept, |_| true);
            }
        }
        let is_any_kept = kept.first().is_some();
        let again = match is_any_kept {
            _ if are_more_new => SOON,
            true => AGAIN,
            false if are_more_old => SOON,
            false => 0,
        };
        // If a collection finds nothing, another collection has taken the values. The schedule of
        // that collection is left unchanged.
        if again > 0 {
            // ORDERING: relaxed; a hint.
            self.again.store(again, Relaxed);
        }
        self.kept.put(kept);
        self.free(free);
    }

    /// Moves values from `free` to `kept` if an announced guard may have seen them.
    fn keep_what_is_met(free: &mut List, kept: &mut List) {
        for era in REGISTRY.guards() {
            if free.first().is_none() {
                return;
            }
            free.give(kept, |header| header.meets(era));
        }
    }

    fn free(&self, mut list: List) {
        while let Some(header) = list.pop() {
            // SAFETY: the header is in a list that only this thread owns.
            let Header { bytes, free, .. } = unsafe { &*header };
            // ORDERING: relaxed; published with the list.
            let (bytes, free) = (bytes.load(Relaxed), *free);
            // ORDERING: relaxed; a count.
            self.bytes.fetch_sub(bytes, Relaxed);
            // SAFETY: `free` is the function for the node's type, and only this thread can access
            // the node.
            unsafe { free(header) };
        }
    }
}

/// The thread that drops a bag owns the last reference to the links that led to the bag's values.
/// Therefore no running call can have seen any of these values, even if the call's thread holds
/// guards.
impl Drop for Bag {
    fn drop(&mut self) {
        for Pile { last, rest } in [&self.new, &self.kept] {
            self.free(Pile::take(last));
            self.free(Pile::take(rest));
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::{Bag, MOST, Node, Retire, SOON};
    use std::sync::atomic::Ordering::Relaxed;

    #[derive(Debug)]
    struct Small;

    impl Retire for Small {
        fn bytes(&self) -> usize {
            1
        }
    }

    #[test]
    fn a_value_meets_the_guards_that_it_lived_beside() {
        let Node { header, .. } = Node::new((), 3);
        let is_met = || [2, 3, 4, 5, 6].map(|era| header.meets(era));
        assert_eq!(is_met(), [false; 5], "its era is not noted yet");
        header.retired.store(5, Relaxed);
        assert_eq!(is_met(), [false, true, true, true, false]);
    }

    /// The calling thread read the count before the collection became due.
    #[test]
    fn a_call_that_counts_down_late_forgets_no_collection() {
        let bag = Bag::new();
        bag.due.store(1, Relaxed);
        bag.tidy_in(false, 4_000);
        assert_eq!(bag.due.load(Relaxed), 1);
    }

    #[test]
    #[allow(unsafe_code)]
    fn a_collection_of_what_was_left_over_schedules_one_for_later_values() {
        let bag = Bag::new();
        let retire = |count| {
            for _ in 0..count {
                // SAFETY: no link leads to this new node.
                unsafe { bag.retire(Box::into_raw(Box::new(Node::new(Small, 3)))) };
            }
        };
        retire(MOST + 1);
        bag.collect();
        retire(1);
        bag.collect();
        assert_eq!(bag.again.load(Relaxed), SOON);
    }
}
