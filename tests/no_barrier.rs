//! Checks in a process to which the system refuses `membarrier`, as sandboxes and other systems do:
//! they run a fence instead, and memory is freed all the same. Built without the test harness: the
//! refusal applies to threads that start after it, and allocations are counted for the whole
//! process.
#![cfg_attr(not(target_os = "linux"), allow(unused))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tollgate::{Algorithm, Clock, Limiter, Quota, SingleLimiter, Tick};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Makes the system refuse the call to this thread and to those that it starts. True if it does so
/// now.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn refuse() -> bool {
    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO,
    };
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let call = u32::try_from(libc::SYS_membarrier).unwrap();
    let refused = SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).unwrap();
    // The number of the call comes first.
    let mut filter = [
        step(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        step(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call),
        step(BPF_RET | BPF_K, 0, 0, refused),
        step(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: numbers.
    let is_meek = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
    // SAFETY: a program of four steps, which lives until the call returns.
    let is_set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } == 0;
    // SAFETY: numbers.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_QUERY, 0, 0) };
    is_meek && is_set && answer < 0
}

/// Other systems have no such call to refuse.
#[cfg(not(target_os = "linux"))]
fn refuse() -> bool {
    true
}

fn main() {
    if !refuse() {
        assert!(std::env::var_os("CI").is_none(), "the system does not let a process refuse itself a call");
        println!("NOT DONE: the system does not let a process refuse itself a call");
        return;
    }
    small_chunks_of_logs_are_freed();
    tables_grow_and_give_their_memory_back();
    println!("without membarrier, what is retired is freed all the same");
}

fn small_chunks_of_logs_are_freed() {
    let builder = SingleLimiter::builder(Quota::per_second(8)).algorithm(Algorithm::SlidingLog);
    let log = builder.clock(Clock::manual()).build().unwrap();
    let mut most = 0;
    for second in 0..10_000 {
        let now = Tick::ZERO + second * Duration::from_secs(1);
        assert!((0..8).all(|_| log.check_at(1, now).is_allowed()));
        if second == 1_000 {
            most = LIVE.load(Relaxed) + 40_000;
        }
        assert!(second < 1_000 || LIVE.load(Relaxed) < most, "{} bytes", LIVE.load(Relaxed));
    }
}

fn tables_grow_and_give_their_memory_back() {
    let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(1)).clock(Clock::manual()).build().unwrap();
    thread::scope(|scope| {
        for thread in 0..2 {
            let limiter = &limiter;
            scope.spawn(move || {
                // Half of each thread's keys are the other's, too.
                let keys = thread * 20_000..thread * 20_000 + 40_000;
                keys.filter(|key| limiter.check_at(key, 1, Tick::ZERO).is_allowed()).count()
            });
        }
    });
    assert_eq!(limiter.len(), 60_000);
    // New keys help with the turnover, and so do sweeps.
    for key in 100_000..100_400 {
        assert!(limiter.check_at(&key, 1, Tick::ZERO).is_allowed());
        limiter.sweep_at(64, Tick::ZERO);
    }
    let (stats, memory) = (limiter.stats(), limiter.bytes());
    assert!(memory < 40 * stats.capacity, "{memory} bytes, {stats:?}");
}
