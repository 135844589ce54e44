//! The memory that the eras of a table take: how much is permitted, and how it is allocated.

use crate::sync::{Atomic, Ordering::Relaxed};
#[cfg(not(tollgate_loom))]
use memmap2::MmapMut;
#[cfg(not(tollgate_loom))]
use std::alloc::{Layout, alloc_zeroed};
#[cfg(not(tollgate_loom))]
use std::ptr::NonNull;
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

/// So many zeroed values, or `None` if there is no memory for them.
///
/// On Linux what is large is mapped, past the allocator, and what is very large in huge pages if the system gives them on
/// request. At ten million keys that takes a fifth off a check's time. All of it is written at once, there by the system and
/// elsewhere by std (for values that are aligned to more than 16 bytes). Who begins a turnover of a million keys waits for
/// that: for 48 MB some 12 ms, and 22 if each page is asked for by a fault.
///
/// To write pages only as they are touched was tried: then it is the checks that wait for the system while keys are moved,
/// and of a turnover of a million keys the p99.9 of a check was 23 times that at rest (on a virtual machine), against
/// one and a half times.
///
/// # Safety
///
/// All bytes zero is a valid `T`, and what `zero` makes. (Loom's atomics are none, so for the models
/// `zero` makes them.)
#[allow(unsafe_code)]
pub(super) unsafe fn zeroed<T>(count: usize, zero: impl Fn() -> T) -> Option<Zeroed<T>> {
    #[cfg(tollgate_loom)]
    return Some((0..count).map(|_| zero()).collect());

    #[cfg(not(tollgate_loom))]
    {
        let _ = zero;
        let layout = Layout::array::<T>(count).ok()?;
        assert!(layout.size() > 0, "there is something to allocate");
        let mut map = mapped(layout.size());
        let start = match &mut map {
            Some(map) => map.as_mut_ptr().cast::<T>(),
            // SAFETY: the size of the layout is not 0: asserted.
            None => unsafe { alloc_zeroed(layout) }.cast::<T>(),
        };
        assert!(start.is_aligned(), "pages are aligned to more than any value is");
        let values = NonNull::slice_from_raw_parts(NonNull::new(start)?, count);
        Some(Zeroed { values, map })
    }
}

/// From this size on a block is mapped, as glibc's allocator does from there on at the latest.
#[cfg(all(target_os = "linux", not(tollgate_loom)))]
const MAPPED: usize = 32 << 20;

/// So many bytes from the system, all of them there; `None` if the allocator is to be asked.
#[cfg(all(target_os = "linux", not(tollgate_loom)))]
fn mapped(bytes: usize) -> Option<MmapMut> {
    /// From this size on it is to be in huge pages. Those of smaller blocks gain nothing, and may first have to be made
    /// free: for 48 MB that took up to 175 ms.
    const HUGE: usize = 128 << 20;
    let mut map = if bytes < MAPPED { None } else { MmapMut::map_anon(bytes).ok() }?;
    if bytes >= HUGE {
        // A wish.
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    if map.advise(memmap2::Advice::PopulateWrite).is_err() {
        // Linux before 5.14.
        map.fill(0);
    }
    Some(map)
}

/// Other systems write no pages for us.
#[cfg(not(any(target_os = "linux", tollgate_loom)))]
const fn mapped(_bytes: usize) -> Option<MmapMut> {
    None
}

/// Values that began as zeroes.
#[cfg(tollgate_loom)]
pub(super) type Zeroed<T> = Box<[T]>;

/// Values that began as zeroes.
#[cfg(not(tollgate_loom))]
#[derive(Debug)]
pub(super) struct Zeroed<T> {
    values: NonNull<[T]>,
    /// Where they lie, if not in a block of the allocator.
    map: Option<MmapMut>,
}

#[cfg(not(tollgate_loom))]
impl<T> std::ops::Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: so many valid values, which live until this is dropped and are never moved or given away.
        #[allow(unsafe_code)]
        unsafe {
            self.values.as_ref()
        }
    }
}

#[cfg(not(tollgate_loom))]
impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        const { assert!(!std::mem::needs_drop::<T>(), "what is mapped is given back without a look at it") };
        if self.map.is_none() {
            // SAFETY: it came from the global allocator with the layout of `[T]` of this length, with which a box frees it.
            #[allow(unsafe_code)]
            unsafe {
                drop(Box::from_raw(self.values.as_ptr()));
            }
        }
    }
}

// SAFETY: it owns the values, as a box does, and gives out nothing but shared references to them.
#[cfg(not(tollgate_loom))]
#[allow(unsafe_code)]
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: as above.
#[cfg(not(tollgate_loom))]
#[allow(unsafe_code)]
unsafe impl<T: Sync> Sync for Zeroed<T> {}

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

    /// The bytes of this process that are in memory.
    #[cfg(target_os = "linux")]
    fn resident() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    #[test]
    fn a_block_of_any_size_is_aligned_and_zero_from_end_to_end_and_a_large_one_is_given_back() {
        #[repr(align(64))]
        struct Line([Atomic<u64>; 8]);
        const MANY: usize = (32 << 20) / size_of::<Line>();
        for lines in [1, 2, 1_000, MANY - 1, MANY, MANY + 1, 4 * MANY, 5 * MANY + 1] {
            #[cfg(target_os = "linux")]
            let before = resident();
            let line = || Line(std::array::from_fn(|_| Atomic::new(0)));
            // SAFETY: atomics of u64, and 0 is what `line` makes.
            #[allow(unsafe_code)]
            let values = unsafe { zeroed(lines, line) }.unwrap();
            assert_eq!(
                (values.len(), values.map.is_some()),
                (lines, cfg!(target_os = "linux") && lines >= MANY)
            );
            assert!(values.as_ptr().addr().is_multiple_of(align_of::<Line>()));
            let words = || values.iter().flat_map(|line| &line.0);
            assert!(words().all(|word| word.swap(1, Relaxed) == 0));
            assert!(words().all(|word| word.load(Relaxed) == 1));
            // The process tells of what is so large that it does not matter what other tests take meanwhile. (A block of
            // the allocator may have been there before: see `tests/resident.rs` for those.)
            #[cfg(target_os = "linux")]
            if lines >= MANY {
                let half = before + (lines * size_of::<Line>()) as u64 / 2;
                assert!(resident() > half, "{before} bytes and then {}", resident());
                drop(values);
                assert!(resident() < half, "{before} bytes and then {}", resident());
            }
        }
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        // SAFETY: a byte, and it is 0.
        #[allow(unsafe_code)]
        let refused = unsafe { [usize::MAX, usize::MAX / 4].map(|bytes| zeroed(bytes, || 0_u8)) };
        assert!(refused.iter().all(Option::is_none));
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
