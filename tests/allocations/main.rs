//! Tests of the memory that limiters allocate, free and write, as counted by this program's
//! allocator and by the system. The tests run one at a time, because both count for the whole
//! process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

mod allocation;
mod barrier_refused_late;
mod denials;
#[path = "../guards/mod.rs"]
mod guards;
mod log_memory;
#[path = "../membarrier/mod.rs"]
mod membarrier;
#[cfg(target_os = "linux")]
mod memory_steps;
mod parked;
mod quota_memory;
#[cfg(target_os = "linux")]
mod resident;

struct Counting;

/// The bytes that the process has allocated and not yet freed.
static LIVE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of allocations of this thread.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };

    /// The bytes that this thread has allocated, minus the bytes that it has freed.
    static LIVE_HERE: Cell<isize> = const { Cell::new(0) };
}

fn count_here(bytes: isize) {
    LIVE_HERE.set(LIVE_HERE.get() + bytes);
}

#[allow(unsafe_code)]
// SAFETY: a block of the arena is handed out once and never freed; all other blocks are from the
// system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        if denials::is_inside() {
            return denials::allocate(layout);
        }
        LIVE.fetch_add(layout.size(), Relaxed);
        count_here(layout.size().cast_signed());
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if denials::is_of_arena(block) {
            return;
        }
        count_here(-layout.size().cast_signed());
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Waits until no other test runs, because bytes are counted for the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
