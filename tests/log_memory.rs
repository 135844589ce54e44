//! A sliding log allocates memory as it is used, and frees it. Built without the test harness:
//! allocations are counted for the whole process, and the harness's thread allocates now and then.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Algorithm, Chargeable, ManualClock, Quota, SingleLimiter, Tick};

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        ALLOCATIONS.fetch_add(1, Relaxed);
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

const SECOND: Duration = Duration::from_secs(1);

fn log(clock: &ManualClock) -> SingleLimiter {
    let builder = SingleLimiter::builder(Quota::new(100_000, SECOND)).algorithm(Algorithm::SlidingLog);
    builder.clock(clock).build().unwrap()
}

/// The live bytes beyond `before`. Retired values count until a collection frees them.
fn live_above(before: usize) -> usize {
    LIVE.load(Relaxed).saturating_sub(before)
}

fn main() {
    // This thread's participants come first: one for the walk over the states, one for their logs.
    let _ = log(&ManualClock::new()).bytes();
    let clock = ManualClock::new();
    let before = LIVE.load(Relaxed);
    let log = log(&clock);
    // Its rule, which a change of the quota replaces.
    let rule = live_above(before);
    assert_eq!(log.bytes() - size_of::<SingleLimiter>(), rule);
    assert!(rule < 400, "{rule}");

    // Three tokens of 100,000, in one charge or in several.
    for _ in 0..3 {
        assert!(log.at(Tick::ZERO).check().is_allowed());
    }
    assert!(live_above(before) < rule + 400, "{}", live_above(before));
    assert!(log.at(Tick::ZERO).check_n(90_000).is_allowed());
    assert!(live_above(before) < rule + 400, "{}", live_above(before));

    // The log holds what it uses, at every size.
    for used in 5..10_000_u64 {
        assert!(log.at(Tick::ZERO).check().is_allowed());
        let bytes = usize::try_from(used).unwrap() * 24 + 2_000;
        assert!(live_above(before) < bytes, "{used} admissions in {} bytes", live_above(before));
    }
    // The log reports the bytes that the allocator counts.
    assert_eq!(log.bytes() - size_of::<SingleLimiter>(), live_above(before));

    // Denials, peeks and questions allocate nothing.
    let allocations = ALLOCATIONS.load(Relaxed);
    for _ in 0..1_000 {
        assert!(!log.at(Tick::ZERO).check_n(90_000).is_allowed());
        let _ = (log.at(Tick::ZERO).peek(), log.is_idle(), log.bytes());
    }
    assert_eq!(ALLOCATIONS.load(Relaxed), allocations);

    // All of it is let go by one admission after an idle period, and freed by the admissions after
    // it, a part at a time.
    let later = Tick::ZERO + 3 * SECOND;
    for _ in 0..200 {
        assert!(log.at(later).check().is_allowed());
    }
    assert!(log.bytes() < 200 * 24 + 1_000, "{}", log.bytes());
    assert!(live_above(before) < 20_000, "{}", live_above(before));

    // At the limit for many periods, it holds three times the admissions of a period at the most.
    let mut most = 0;
    for n in 0..1_000_000_u64 {
        assert!(log.at(later + SECOND + Duration::from_nanos(n * 10_000)).check().is_allowed());
        if n % 1_000 == 0 {
            most = most.max(log.bytes());
        }
    }
    assert!(most < 24 * 100_000 + 10_000, "{most}");
    println!("at most {most} bytes for 100,000 admissions in a period");
    drop(log);

    // Small chunks, one retired every eight admissions, and no call of `sweep`.
    let small = SingleLimiter::builder(Quota::per_second(8))
        .algorithm(Algorithm::SlidingLog)
        .clock(&clock)
        .build()
        .unwrap();
    for second in 0..10_000 {
        // As many chunks as wait for the next collection, and as many again.
        assert!((0..8).all(|_| small.at(Tick::ZERO + second * SECOND).check().is_allowed()));
        assert!(live_above(before) < 200 * 200, "{} bytes after {second} seconds", live_above(before));
    }
    drop(small);

    // Dropped by whichever thread is the last, while the others are still about to drop it.
    for round in 0..300_u64 {
        let log = Arc::new(self::log(&clock));
        thread::scope(|scope| {
            for _ in 0..3 {
                let log = Arc::clone(&log);
                scope.spawn(move || {
                    let charges: Vec<_> =
                        (0..100 + round).map(|n| log.at(later + Duration::from_nanos(n)).check()).collect();
                    log.refund(&charges[0]);
                    log.reset();
                    assert!(log.at(later).check().is_allowed());
                    drop(log);
                });
            }
            drop(log);
        });
    }
    // A thread is joined before what it keeps for itself is dropped. A log for each round would be
    // six hundred thousand bytes.
    let deadline = Instant::now() + 60 * SECOND;
    while live_above(before) >= 20_000 {
        assert!(Instant::now() < deadline, "{} bytes are left", live_above(before));
        thread::yield_now();
    }
    println!("a log takes memory as it is used, and gives it back");
}
