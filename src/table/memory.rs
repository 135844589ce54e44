//! The memory that the eras of a table take: how much is permitted, and how it is allocated.

use crate::sync::{Atomic, Ordering::Relaxed};
use std::alloc::{Layout, alloc_zeroed};
use std::sync::Arc;

/// The bytes that all eras of a table take which are not freed yet, and the most they may.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: Atomic<u64>,
    most: u64,
}

impl Memory {
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { bytes: Atomic::new(0), most })
    }

    pub(super) fn bytes(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.bytes.load(Relaxed)
    }

    /// Is more than half of it taken?
    pub(super) fn is_short(&self) -> bool {
        self.bytes() > self.most / 2
    }
}

/// The permission to allocate an era, held until it is freed.
#[derive(Debug)]
pub(super) struct Permit {
    of: Arc<Memory>,
    bytes: u64,
}

impl Permit {
    pub(super) fn take(of: &Arc<Memory>, bytes: u64) -> Option<Self> {
        Self::take_up_to(of, bytes, 0)
    }

    /// The same, where the most is no less than `most`.
    pub(super) fn take_up_to(of: &Arc<Memory>, bytes: u64, most: u64) -> Option<Self> {
        let add = |sum: u64| sum.checked_add(bytes).filter(|&sum| sum <= of.most.max(most));
        // ORDERING: relaxed twice; a count.
        of.bytes.fetch_update(Relaxed, Relaxed, add).ok()?;
        Some(Self { of: Arc::clone(of), bytes })
    }

    /// Gives back what is more than `bytes`.
    pub(super) fn lower_to(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "what is allocated was permitted");
        // ORDERING: relaxed; a count.
        self.of.bytes.fetch_sub(self.bytes - bytes, Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // ORDERING: relaxed; a count.
        self.of.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// So many zeroed values, or `None` if there is no memory for them. Large ones cost nothing before they are
/// touched, because the system hands out zeroed pages.
///
/// # Safety
///
/// All bytes zero is a valid `T`, and what `zero` makes. (Loom's atomics are none, so for the models
/// `zero` makes them.)
#[allow(unsafe_code)]
pub(super) unsafe fn zeroed<T>(count: usize, zero: impl Fn() -> T) -> Option<Box<[T]>> {
    if cfg!(tollgate_loom) {
        return Some((0..count).map(|_| zero()).collect());
    }
    let layout = Layout::array::<T>(count).ok()?;
    assert!(layout.size() > 0, "there is something to allocate");
    // SAFETY: the size of the layout is not 0: asserted.
    let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if start.is_null() {
        return None;
    }
    let values = std::ptr::slice_from_raw_parts_mut(start, count);
    // SAFETY: the block was just allocated by the global allocator with the layout of `[T]` of this length,
    // which is what `Box` frees it with, and all zero is valid: the caller says so.
    Some(unsafe { Box::from_raw(values) })
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_permitted_is_never_exceeded_and_comes_back() {
        let memory = Memory::new(100);
        let first = Permit::take(&memory, 60).unwrap();
        assert!(memory.is_short());
        assert!(Permit::take(&memory, 41).is_none());
        assert!(Permit::take(&memory, u64::MAX).is_none());
        let second = Permit::take(&memory, 40).unwrap();
        assert_eq!(memory.bytes(), 100);
        drop(first);
        assert_eq!(memory.bytes(), 40);
        assert!(!memory.is_short());
        drop(second);
        assert_eq!(memory.bytes(), 0);
    }
    #[test]
    fn memory_is_short_when_more_than_half_of_it_is_taken() {
        let memory = Memory::new(100);
        let _half = Permit::take(&memory, 50).unwrap();
        assert!(!memory.is_short());
        let _more = Permit::take(&memory, 1).unwrap();
        assert!(memory.is_short());
    }

    #[test]
    fn what_is_given_back_early_is_not_given_back_twice() {
        let memory = Memory::new(100);
        let mut permit = Permit::take(&memory, 60).unwrap();
        permit.lower_to(20);
        assert_eq!(memory.bytes(), 20);
        drop(permit);
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn more_is_permitted_where_the_most_is_raised() {
        let memory = Memory::new(100);
        let _first = Permit::take_up_to(&memory, 120, 120).unwrap();
        assert!(Permit::take_up_to(&memory, 1, 120).is_none());
    }
}
