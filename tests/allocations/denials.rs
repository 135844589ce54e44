//! A denial writes nothing: it changes no byte of a limiter of any kind.
//!
//! An arena holds all memory that the limiters of a test allocate, and is compared byte by byte.
//! The arena never frees memory, so the memory that a collection frees is compared as well.

use crate::alone;
use crate::guards::Stopped;
use std::alloc::Layout;
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tollgate::{
    Algorithm, Charge, Chargeable as _, ClassLimiter, InFlight, Limiter, ManualClock, Quota, SingleLimiter,
    WhenFull, check_all,
};

const BYTES: usize = 128 << 20;

/// Memory that is handed out sequentially to threads that allocate in it.
#[repr(align(4096))]
struct Arena(UnsafeCell<[u8; BYTES]>);

static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));
static USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread allocates in the arena.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

#[allow(unsafe_code)]
// SAFETY: each byte is handed out to one caller, and the tests read it while no other thread runs.
unsafe impl Sync for Arena {}

/// Returns whether this thread allocates in the arena.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Allocates in the arena, where nothing is freed.
pub(crate) fn allocate(layout: Layout) -> *mut u8 {
    let start = USED.load(Relaxed).next_multiple_of(layout.align());
    let end = start + layout.size();
    USED.store(end, Relaxed);
    if end > BYTES {
        return ptr::null_mut();
    }
    ARENA.0.get().cast::<u8>().wrapping_add(start)
}

pub(crate) fn is_of_arena(block: *const u8) -> bool {
    let arena = ARENA.0.get().addr();
    (arena..arena + BYTES).contains(&block.addr())
}

/// Returns the bytes of the arena, beginning at `start`.
fn bytes_from(start: usize) -> Vec<u8> {
    let mut copy = vec![0; USED.load(Relaxed) - start];
    // SAFETY: these bytes are in the arena, and no other thread writes to it.
    #[allow(unsafe_code)]
    unsafe {
        ptr::copy_nonoverlapping(
            ARENA.0.get().cast::<u8>().wrapping_add(start),
            copy.as_mut_ptr(),
            copy.len(),
        );
    }
    copy
}

/// Runs `make`, and then `deny` a thousand times, and asserts that `deny` changes no memory that
/// `make` has allocated. No other test runs meanwhile.
fn assert_writes_nothing<T>(what: &str, make: impl FnOnce() -> T, deny: impl Fn(&T)) {
    // Threads of earlier tests may still be ending. They have written only below this offset.
    let start = USED.load(Relaxed);
    INSIDE.set(true);
    let made = Box::new(make());
    // The first denials may create guards.
    (0..10).for_each(|_| deny(&made));
    INSIDE.set(false);
    let before = bytes_from(start);
    INSIDE.set(true);
    (0..1_000).for_each(|_| deny(&made));
    INSIDE.set(false);
    let after = bytes_from(start);
    assert_eq!(after.len(), before.len(), "{what}: a denial has allocated");
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    assert_eq!(changed, 0, "{what}: bytes that denials have changed");
    assert!(before.len() > 100, "{what}: does this test still look at the limiter?");
    INSIDE.set(true);
    drop(made);
    INSIDE.set(false);
}

fn clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000_000));
    clock
}

const QUOTA: Quota = Quota::new(8, Duration::from_millis(8));

const ALL: [Algorithm; 6] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::LeakyQueue,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
];

/// Makes admissions until more than one collection is due and some requests are denied.
fn spend(clock: &ManualClock, check: impl Fn() -> bool) {
    for _ in 0..2_000 {
        while check() {}
        clock.advance(Duration::from_millis(8));
    }
    while check() {}
}

#[test]
fn a_denial_of_a_known_key_writes_nothing() {
    let _alone = alone();
    for algorithm in ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::SlidingLog) {
        let make = || {
            let clock = clock();
            let limiter: Limiter<u64> =
                Limiter::builder(QUOTA).algorithm(algorithm).clock(&clock).max_keys(1_000).build().unwrap();
            (0..100).for_each(|key| _ = limiter.check(&key));
            spend(&clock, || limiter.check(&7).is_allowed());
            limiter
        };
        assert_writes_nothing(&format!("{algorithm}"), make, |limiter| {
            assert!(!limiter.check(&7).is_allowed());
            // This request can never pass, so its key is not inserted.
            assert!(!limiter.check_n(&1_000, 1_000).is_allowed());
            assert!(limiter.reserve(&7, 8).is_err());
            // The caller owns the memory of the answers.
            INSIDE.set(false);
            let mut decisions = Vec::new();
            limiter.check_many(&[7, 7], &mut decisions);
            assert!(decisions.iter().all(|decision| !decision.is_allowed()));
            drop(decisions);
            INSIDE.set(true);
        });
    }
}

#[test]
fn a_denial_of_an_exact_key_writes_nothing() {
    let _alone = alone();
    for algorithm in ALL {
        let make = || {
            let clock = clock();
            let builder = Limiter::<u64>::builder(QUOTA).algorithm(algorithm).clock(&clock);
            let limiter = builder.max_keys(100).exact_keys().build().unwrap();
            (0..50).for_each(|key| _ = limiter.check(&key));
            spend(&clock, || limiter.check(&7).is_allowed());
            limiter
        };
        assert_writes_nothing(&format!("exact keys, {algorithm}"), make, |limiter| {
            assert!(!limiter.check(&7).is_allowed());
            assert!(!limiter.check_n(&1_000, 1_000).is_allowed());
        });
    }
}

/// The test also runs after a quota change, and while a thread is stopped in a check, which keeps
/// retired memory from being freed.
#[test]
fn a_denial_of_a_single_limiter_writes_nothing() {
    let _alone = alone();
    for algorithm in ALL {
        for changes in [0, 1, 300] {
            let make = || {
                let clock = clock();
                let other: Limiter<u64> = Limiter::builder(QUOTA).clock(ManualClock::new()).build().unwrap();
                let limiter =
                    SingleLimiter::builder(QUOTA).algorithm(algorithm).clock(&clock).build().unwrap();
                spend(&clock, || limiter.check().is_allowed());
                // The stopped thread keeps all memory that exists now.
                let stopped = Stopped::under_guards(other, 1);
                for _ in 0..changes {
                    limiter.set_quota(QUOTA).unwrap();
                }
                spend(&clock, || limiter.check().is_allowed());
                (limiter, stopped)
            };
            assert_writes_nothing(&format!("{algorithm}, {changes} changes"), make, |(limiter, _)| {
                assert!(!limiter.check().is_allowed());
            });
        }
    }
}

#[test]
fn a_denial_of_several_limits_of_a_class_or_of_a_permit_writes_nothing() {
    let _alone = alone();
    let make = || {
        let builder = Limiter::<u64>::builder(QUOTA).clock(clock()).max_keys(100);
        let classes: ClassLimiter<u64> = builder.class("paid", QUOTA).build().unwrap();
        let all = SingleLimiter::builder(QUOTA).clock(clock()).build().unwrap();
        let downloads = InFlight::<u64>::builder(1).clock(clock()).max_keys(100).build().unwrap();
        let permit = downloads.acquire_owned(7).unwrap();
        let paid = classes.class("paid").unwrap();
        while paid.check(&7).is_allowed() {}
        (classes, all, downloads, permit)
    };
    assert_writes_nothing("several limits, a class, a permit", make, |(classes, all, downloads, _)| {
        let key = classes.class("paid").unwrap().for_key(&7);
        assert!(!key.check_n(1).is_allowed());
        assert!(downloads.acquire(&7).is_err());
        assert!(check_all(&mut [Charge::new(all, 1), Charge::new(&key, 1)]).is_err());
    });
}

/// A new key that finds no place is counted, which is a write. The shared state is not written.
#[test]
fn a_denial_by_the_shared_state_writes_its_count_alone() {
    let _alone = alone();
    let clock = clock();
    let builder = Limiter::builder(QUOTA).clock(&clock).max_keys(1).when_full(WhenFull::Share);
    let limiter: Limiter<u64> = builder.build().unwrap();
    assert!(limiter.check(&1).is_allowed());
    while limiter.check(&2).is_allowed() {}
    let (before, refused) = (limiter.check(&2), limiter.stats().refused);
    assert_eq!(limiter.check(&2).retry_after(), before.retry_after());
    assert_eq!(limiter.stats().refused, refused + 1);
}
