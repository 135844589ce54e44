//! Bytes in use: the allocated bytes, which this module counts, and the resident bytes, which the
//! system counts. A subject that maps memory itself reports its bytes with `Subject::bytes`.
//!
//! Allocations are counted only while a table is filled. In the timed part, an allocation loads one
//! flag that no thread writes, so that counting costs the subjects nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

static COUNTING: AtomicBool = AtomicBool::new(false);
/// Allocated minus freed bytes since counting began. The value is below zero if older blocks were
/// freed.
static IN_USE: AtomicI64 = AtomicI64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(allocated: usize, freed: usize) {
    if COUNTING.load(Relaxed) {
        IN_USE.fetch_add(allocated as i64 - freed as i64, Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to `System`, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(start, layout, size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

/// The additional bytes.
pub struct Grown {
    pub allocated: u64,
    /// The resident bytes of the process, including those that the allocator cannot return; `None`
    /// if the system does not report them.
    pub resident: Option<u64>,
}

/// Runs `work`. Returns its result, and the bytes that are still in use afterwards.
pub fn grown_by<T>(work: impl FnOnce() -> T) -> (T, Grown) {
    // Otherwise, garbage of earlier subjects would be freed meanwhile, and free blocks would be
    // reused.
    (0..64).for_each(|_| crossbeam_epoch::pin().flush());
    give_back();
    let before = resident();
    IN_USE.store(0, Relaxed);
    COUNTING.store(true, Relaxed);
    let result = work();
    COUNTING.store(false, Relaxed);
    give_back();
    let resident = before.zip(resident()).map(|(before, after)| after.saturating_sub(before));
    (result, Grown { allocated: u64::try_from(IN_USE.load(Relaxed)).unwrap_or(0), resident })
}

/// Returns the resident bytes of this process, if the system reports them.
fn resident() -> Option<u64> {
    told("/proc/self/smaps_rollup", "Rss:")
}

/// Returns free memory to the system. From then on, large blocks are taken from the system and
/// returned to it immediately, as glibc does in a process that has not yet freed larger blocks (its
/// documented threshold of 128 KiB). Otherwise, glibc keeps more and more blocks: a subject that
/// allocates would get the memory of an earlier subject, ready for use, and a subject that maps its
/// own memory would pay for it.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
            // SAFETY: the call changes no existing block.
            let set = unsafe { libc::mallopt(parameter, 128 << 10) };
            assert_eq!(set, 1, "glibc refuses its own default");
        }
        // SAFETY: the call touches only free memory.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Returns the bytes of memory that are available on this machine, if the system reports them.
pub fn available() -> Option<u64> {
    told("/proc/meminfo", "MemAvailable:")
}

/// Returns the value with this name in a file of the system, in bytes. The file has kibibytes.
fn told(file: &str, name: &str) -> Option<u64> {
    let told = std::fs::read_to_string(file).ok()?;
    let line = told.lines().find(|line| line.starts_with(name))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}
