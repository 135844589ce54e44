//! The memory of a table's arrays: its bound, its allocation, and its return to the system.

use super::pages::{Leaving, Pages};
use crate::sync::{Atomic, Ordering::Relaxed};
use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;
use std::sync::Arc;

/// Tracks and limits the bytes held by a table's arrays that are not yet freed.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: Atomic<u64>,
    most: u64,
    /// Freed memory that has not been given back to the system yet. Its bytes are counted until
    /// then.
    leaving: Leaving,
}

impl Memory {
    pub(super) fn new(most: u64) -> Arc<Self> {
        Arc::new(Self { bytes: Atomic::new(0), most, leaving: Leaving::default() })
    }

    pub(super) fn bytes(&self) -> u64 {
        // ORDERING: relaxed; a count.
        self.bytes.load(Relaxed)
    }

    /// Returns whether more than half of the permitted memory is taken.
    pub(super) fn is_short(&self) -> bool {
        self.bytes() > self.most / 2
    }

    /// Returns whether there is freed memory that has not been given back yet.
    #[inline]
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.bytes() > 0
    }

    /// Gives back up to `parts` parts of freed memory. Returns false if there is no such memory, or
    /// if another thread is giving it back. The caller need not wait for that thread.
    pub(super) fn give_back(&self, parts: usize) -> bool {
        self.leaving.give_back(parts, &self.bytes)
    }

    fn are_back(&self, bytes: u64) {
        // ORDERING: relaxed; a count.
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// The permission to allocate an array. Each array holds a permit until the array is freed.
#[derive(Debug)]
pub(super) struct MemoryGrant {
    of: Arc<Memory>,
    bytes: u64,
}

impl MemoryGrant {
    pub(super) fn take(of: &Arc<Memory>, bytes: u64) -> Option<Self> {
        Self::take_up_to(of, bytes, 0)
    }

    /// Takes a permit for `bytes` bytes. The bound on the total is `most` bytes, if that is more
    /// than the usual bound.
    pub(super) fn take_up_to(of: &Arc<Memory>, bytes: u64, most: u64) -> Option<Self> {
        let add = |sum: u64| sum.checked_add(bytes).filter(|&sum| sum <= of.most.max(most));
        // ORDERING: both accesses are relaxed, because this is a count.
        let is_taken = || of.bytes.fetch_update(Relaxed, Relaxed, add).is_ok();
        let is_permitted = is_taken() || {
            // First give back all freed memory, even though this delays the current thread.
            of.leaving.give_all_back(&of.bytes);
            is_taken()
        };
        is_permitted.then(|| Self { of: Arc::clone(of), bytes })
    }

    /// Returns whether more than half of the permitted memory is taken.
    pub(super) fn is_short(&self) -> bool {
        self.of.is_short()
    }

    /// Returns whether there is freed memory that has not been given back yet.
    #[inline]
    pub(super) fn is_leaving(&self) -> bool {
        self.of.is_leaving()
    }

    /// Lowers the permit to `bytes` bytes, and returns the rest.
    pub(super) fn lower_to(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.bytes, "what is allocated was permitted");
        self.of.are_back(self.bytes - bytes);
        self.bytes = bytes;
    }

    /// Hands over a block, to be given back later, and the part of the permit that covers it.
    fn leave(&mut self, block: Box<Pages>, bytes: u64) {
        self.bytes -= bytes;
        self.of.leaving.take(block, &self.of.bytes);
    }
}

impl Drop for MemoryGrant {
    fn drop(&mut self) {
        self.of.are_back(self.bytes);
    }
}

/// Allocates `count` zeroed values. Returns `None` if there is no memory for them.
///
/// A small block comes from the allocator. (If the values are aligned to more than 16 bytes, std
/// itself fills the block with zeroes.) A large block comes from the system, which provides the
/// block's memory part by part: see `pages`.
///
/// # Safety
///
/// A `T` whose bytes are all zero must be valid and equal to the result of `zero`. (A loom atomic
/// must not be created from zeroed memory, so models call `zero`.)
#[allow(unsafe_code)]
pub(super) unsafe fn zeroed<T>(count: usize, zero: impl Fn() -> T) -> Option<Zeroed<T>> {
    if cfg!(tollgate_loom) {
        let values: Box<[T]> = (0..count).map(|_| zero()).collect();
        return Some(Zeroed { values: NonNull::from(Box::leak(values)), pages: None });
    }
    let layout = Layout::array::<T>(count).ok()?;
    assert!(layout.size() > 0, "there is something to allocate");
    let mut pages = Pages::new(layout.size());
    let start = match &mut pages {
        Some(pages) => pages.start(),
        // SAFETY: the size of the layout is not 0, as asserted above.
        None => NonNull::new(unsafe { alloc_zeroed(layout) }),
    };
    let start = start?.cast::<T>();
    assert!(start.is_aligned(), "pages are aligned to more than any value is");
    Some(Zeroed { values: NonNull::slice_from_raw_parts(start, count), pages })
}

/// Values whose memory was zeroed when it was allocated.
#[derive(Debug)]
pub(super) struct Zeroed<T> {
    values: NonNull<[T]>,
    /// The block of system memory that contains the values. `None` if the block came from the
    /// allocator.
    pages: Option<Box<Pages>>,
}

impl<T> std::ops::Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the slice contains valid values. The values are never moved or given away, and
        // live until this `Zeroed` is dropped or `leave` empties the slice.
        #[allow(unsafe_code)]
        unsafe {
            self.values.as_ref()
        }
    }
}

impl<T> Zeroed<T> {
    /// Pre-faults the memory around a value, which takes less time than a separate fault for each
    /// page.
    #[inline]
    pub(super) fn populate(&self, nth: usize) {
        if let Some(pages) = &self.pages {
            pages.populate(nth * size_of::<T>());
        }
    }

    /// Pre-faults the next `parts` parts of the memory, starting where earlier calls left off.
    /// `touch` must write to a value that is still zero.
    pub(super) fn populate_ahead(&self, parts: usize, touch: impl Fn(&T)) {
        if let Some(pages) = &self.pages {
            pages.ahead(parts).for_each(|byte| touch(&self[byte / size_of::<T>()]));
        }
    }

    /// Hands over a block of system memory, to be given back later, and the part of `permit` that
    /// covers it. The slice is empty afterwards. Does nothing if the block came from the allocator.
    pub(super) fn leave(&mut self, permit: &mut MemoryGrant) {
        if let Some(pages) = self.pages.take() {
            let bytes = size_of_val::<[T]>(self) as u64;
            self.values = NonNull::slice_from_raw_parts(NonNull::dangling(), 0);
            permit.leave(pages, bytes);
        }
    }
}

#[cfg(all(test, target_os = "linux", not(tollgate_loom)))]
impl<T> Zeroed<T> {
    /// Returns how many bytes of a block of system memory are resident.
    pub(super) fn resident(&self) -> Option<usize> {
        self.pages.as_ref().map(|pages| pages.resident())
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        const {
            let is_plain = cfg!(tollgate_loom) || !std::mem::needs_drop::<T>();
            assert!(is_plain, "what is mapped is given back without a look at it");
        }
        if self.pages.is_none() {
            // SAFETY: the block came from the global allocator with the layout of a `[T]` of this
            // length. A box frees the block with the same layout. After `leave`, the slice is
            // empty, so the box frees nothing.
            #[allow(unsafe_code)]
            unsafe {
                drop(Box::from_raw(self.values.as_ptr()));
            }
        }
    }
}

// SAFETY: `Zeroed` owns its values, like a box, and hands out only shared references to them.
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Sync> Sync for Zeroed<T> {}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_permitted_is_never_exceeded_and_comes_back() {
        let memory = Memory::new(100);
        let first = MemoryGrant::take(&memory, 60).unwrap();
        assert!(memory.is_short());
        assert!(MemoryGrant::take(&memory, 41).is_none());
        assert!(MemoryGrant::take(&memory, u64::MAX).is_none());
        let second = MemoryGrant::take(&memory, 40).unwrap();
        assert_eq!(memory.bytes(), 100);
        drop(first);
        assert_eq!(memory.bytes(), 40);
        assert!(!memory.is_short());
        drop(second);
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn a_block_of_any_size_is_aligned_and_zero_from_end_to_end() {
        #[repr(align(64))]
        struct Line([Atomic<u64>; 8]);
        const MANY: usize = (64 << 10) / size_of::<Line>();
        for lines in [1, 2, 1_000, MANY - 1, MANY, MANY + 1, 32 * MANY, 33 * MANY + 1] {
            let line = || Line(std::array::from_fn(|_| Atomic::new(0)));
            // SAFETY: the atomics are of type u64, and `line` makes zeroes.
            #[allow(unsafe_code)]
            let values = unsafe { zeroed(lines, line) }.unwrap();
            assert_eq!(
                (values.len(), values.pages.is_some()),
                (lines, cfg!(target_os = "linux") && lines >= MANY)
            );
            assert!(values.as_ptr().addr().is_multiple_of(align_of::<Line>()));
            values.populate(lines - 1);
            let words = || values.iter().flat_map(|line| &line.0);
            assert!(words().all(|word| word.swap(1, Relaxed) == 0));
            (0..lines).for_each(|line| values.populate(line));
            assert!(words().all(|word| word.load(Relaxed) == 1));
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_is_asked_for_where_a_value_is() {
        const COUNT: usize = (512 << 10) / 8 + 1;
        // SAFETY: the atomics are of type u64, and their value is 0.
        #[allow(unsafe_code)]
        let values = unsafe { zeroed(COUNT, || Atomic::new(0_u64)) }.unwrap();
        let resident = || values.resident().unwrap();
        assert_eq!(resident(), 0);
        // The last part is a page.
        values.populate(COUNT - 1);
        assert_eq!(resident(), 4096);
        values.populate(COUNT - 2);
        assert_eq!(resident(), 4096 + (64 << 10));
    }

    /// Only a block of system memory is given back later. A block that came from the allocator is
    /// freed directly.
    #[test]
    #[cfg(target_os = "linux")]
    fn the_bytes_of_a_large_block_are_taken_until_it_is_given_back_or_something_else_needs_them() {
        const LARGE: u64 = 8 << 20;
        let memory = Memory::new(2 * LARGE);
        let freed = |bytes: u64| {
            let mut permit = MemoryGrant::take(&memory, bytes + 100).unwrap();
            // SAFETY: the values are bytes, and they are 0.
            #[allow(unsafe_code)]
            let mut values = unsafe { zeroed(usize::try_from(bytes).unwrap(), || 0_u8) }.unwrap();
            values.leave(&mut permit);
            assert_eq!(values.is_empty(), bytes == LARGE);
        };
        freed(1_000);
        assert_eq!((memory.bytes(), memory.is_leaving(), memory.give_back(1)), (0, false, false));
        freed(LARGE);
        assert_eq!((memory.bytes(), memory.is_leaving()), (LARGE, true));
        assert!(memory.give_back(1));
        assert!(memory.bytes() < LARGE);
        while memory.give_back(1) {}
        assert_eq!((memory.bytes(), memory.is_leaving()), (0, false));
        // Freed memory is given back early if a permit needs it.
        freed(LARGE);
        drop(MemoryGrant::take(&memory, LARGE).unwrap());
        assert!(memory.is_leaving());
        assert!(MemoryGrant::take(&memory, 2 * LARGE + 1).is_none());
        assert_eq!(memory.bytes(), 0);
        freed(LARGE);
        drop(MemoryGrant::take(&memory, LARGE + 1).unwrap());
        assert_eq!((memory.bytes(), memory.is_leaving()), (0, false));
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        // SAFETY: the value is a byte, and it is 0.
        #[allow(unsafe_code)]
        let refused = unsafe { [usize::MAX, usize::MAX / 4].map(|bytes| zeroed(bytes, || 0_u8)) };
        assert!(refused.iter().all(Option::is_none));
    }

    #[test]
    fn memory_is_short_when_more_than_half_of_it_is_taken() {
        let memory = Memory::new(100);
        let _half = MemoryGrant::take(&memory, 50).unwrap();
        assert!(!memory.is_short());
        let _more = MemoryGrant::take(&memory, 1).unwrap();
        assert!(memory.is_short());
    }

    #[test]
    fn what_is_given_back_early_is_not_given_back_twice() {
        let memory = Memory::new(100);
        let mut permit = MemoryGrant::take(&memory, 60).unwrap();
        permit.lower_to(20);
        assert_eq!(memory.bytes(), 20);
        drop(permit);
        assert_eq!(memory.bytes(), 0);
    }

    #[test]
    fn more_is_permitted_where_the_most_is_raised() {
        let memory = Memory::new(100);
        let _first = MemoryGrant::take_up_to(&memory, 120, 120).unwrap();
        assert!(MemoryGrant::take_up_to(&memory, 1, 120).is_none());
    }
}
