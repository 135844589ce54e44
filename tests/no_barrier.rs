//! Checks in a process to which the system refuses `membarrier`, as sandboxes and other systems do.
//! The checks run a fence instead, and memory is freed as usual. The same holds in a process for
//! which a sandbox only pretends to execute the call.
//!
//! This test is built without the test harness, because the refusal applies only to threads that
//! start after it, and because allocations are counted for the whole process.

mod membarrier;

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tollgate::{Algorithm, Chargeable, Limiter, ManualClock, Quota, SingleLimiter, Tick};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: every call is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller upholds the same contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The argument of the process for which the system only pretends to execute the call.
const PRETENDED: &str = "pretended";

fn main() {
    // Other systems do not have this call.
    if cfg!(target_os = "linux") {
        if std::env::args().nth(1).as_deref() != Some(PRETENDED) {
            let program = std::env::current_exe().unwrap();
            assert!(Command::new(program).arg(PRETENDED).status().unwrap().success());
        } else if membarrier::pretend() {
            a_pretended_barrier_is_not_relied_on();
        } else {
            return membarrier::not_done("the system does not let a process answer its own calls");
        }
        if !membarrier::refuse() {
            return membarrier::not_done("the system does not let a process refuse itself a call");
        }
    }
    small_chunks_of_logs_are_freed();
    tables_grow_and_give_their_memory_back();
    println!("without membarrier, what is retired is freed all the same");
}

/// The first guard of a process decides whether the process relies on the barrier. After this
/// function, the system refuses the call. A process that relies on the barrier then frees nothing,
/// and the tests of freed memory fail.
fn a_pretended_barrier_is_not_relied_on() {
    let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(1)).build().unwrap();
    assert!(limiter.check(&1).is_allowed());
}

fn small_chunks_of_logs_are_freed() {
    let builder = SingleLimiter::builder(Quota::per_second(8)).algorithm(Algorithm::SlidingLog);
    let log = builder.clock(ManualClock::new()).build().unwrap();
    let mut most = 0;
    for second in 0..10_000 {
        let now = Tick::ZERO + second * Duration::from_secs(1);
        assert!((0..8).all(|_| log.at(now).check().is_allowed()));
        if second == 1_000 {
            most = LIVE.load(Relaxed) + 40_000;
        }
        assert!(second < 1_000 || LIVE.load(Relaxed) < most, "{} bytes", LIVE.load(Relaxed));
    }
}

fn tables_grow_and_give_their_memory_back() {
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build().unwrap();
    thread::scope(|scope| {
        for thread in 0..2 {
            let limiter = &limiter;
            scope.spawn(move || {
                // Each thread shares half of its keys with the other thread.
                let keys = thread * 20_000..thread * 20_000 + 40_000;
                keys.filter(|key| limiter.at(Tick::ZERO).check(key).is_allowed()).count()
            });
        }
    });
    assert_eq!(limiter.len(), 60_000);
    // Both insertions of new keys and sweeps help with the turnover.
    for key in 100_000..100_400 {
        assert!(limiter.at(Tick::ZERO).check(&key).is_allowed());
        limiter.at(Tick::ZERO).sweep(64);
    }
    let (stats, memory) = (limiter.stats(), limiter.stats().bytes);
    assert!(memory < 40 * stats.room, "{memory} bytes, {stats:?}");
}
