//! Bytes in use, by counting what is allocated. (Who maps memory past the allocator tells how much: `Subject::bytes`.)
//!
//! It counts only while a table is being filled. In the timed part an allocation pays for one load of a flag
//! that nobody writes, so that subjects which allocate there are not charged for being counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

static COUNTING: AtomicBool = AtomicBool::new(false);
/// Allocated minus freed since counting began; below zero if older blocks are freed.
static IN_USE: AtomicI64 = AtomicI64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(allocated: usize, freed: usize) {
    if COUNTING.load(Relaxed) {
        IN_USE.fetch_add(allocated as i64 - freed as i64, Relaxed);
    }
}

// SAFETY: every call is passed on to `System` as it came, which keeps the contract.
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

/// What `work` returns, and the bytes it left allocated.
pub fn grown_by<T>(work: impl FnOnce() -> T) -> (T, u64) {
    IN_USE.store(0, Relaxed);
    COUNTING.store(true, Relaxed);
    let result = work();
    COUNTING.store(false, Relaxed);
    (result, u64::try_from(IN_USE.load(Relaxed)).unwrap_or(0))
}

/// Gives what is free back to the system; and from now on large blocks come from there and go back at once, as glibc does it in a
/// process that has not freed larger ones yet (its documented threshold of 128 KiB). It keeps more and more of them otherwise: then
/// a subject that allocates gets the memory of the subject before, ready for use, and one that maps its own pays for it.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
            // SAFETY: it changes no block that there is.
            let set = unsafe { libc::mallopt(parameter, 128 << 10) };
            assert_eq!(set, 1, "glibc refuses its own default");
        }
        // SAFETY: it touches what is free, and nothing else.
        unsafe { libc::malloc_trim(0) };
    }
}

/// The bytes this machine could still give, where it tells.
pub fn available() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = told.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}
