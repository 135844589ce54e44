//! Tests that a waiter takes a constant amount of memory, however many wait and have left.
//!
//! The test counts the allocations of the whole process, so it runs without a test harness.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tollgate::{Quota, SingleLimiter};
use tollgate_wait::{Turn, WaitError, WaitQueue};

struct Counting;

/// The number of bytes that are currently allocated.
static BYTES: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The maximum number of bytes for a waiter: its future, and its entry in the queue. The queue is a
/// ring, and up to half of the ring is free.
const WAITER: usize = 1_000;

type Wait<'q> = Pin<Box<dyn Future<Output = Result<Turn, WaitError>> + 'q>>;

fn main() {
    let limiter = SingleLimiter::builder(Quota::per_hour(1)).build().unwrap();
    assert!(limiter.check().is_allowed());
    // No waiter is polled again, and none loses its place for this.
    let hour = Duration::from_secs(3_600);
    let queue = WaitQueue::with_sleep(limiter, |_: Duration| pending()).patience(hour);
    let queue = queue.max_waiters_per_key(usize::MAX);
    let join = || {
        let mut wait: Wait<'_> = Box::pin(queue.until_ready_within(&(), Duration::from_secs(u64::MAX)));
        assert!(matches!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
        wait
    };
    let mut random = fastrand::Rng::with_seed(41);
    // The first line that is printed allocates a buffer. The first waiter of a thread behind
    // another one registers the thread as a reader of the limiter.
    println!("a wait: {} bytes", size_of_val(&*[join(), join()][1]));
    for count in [1_400, 7_000] {
        let mut waits: Vec<Wait<'_>> = Vec::with_capacity(count);
        let before = BYTES.load(Relaxed);
        let bytes = || BYTES.load(Relaxed) - before;
        waits.extend((0..count).map(|_| join()));
        let of_all = bytes();
        println!("{count} waiters: {} bytes each", of_all / count);
        assert!(of_all <= count * WAITER, "{of_all} bytes for {count} waiters");
        // Half of the waiters leave, at random, and others arrive, five times.
        for _ in 0..5 {
            for _ in 0..count / 2 {
                drop(waits.swap_remove(random.usize(..waits.len())));
            }
            assert_eq!(queue.waiting(), count / 2);
            waits.extend((0..count / 2).map(|_| join()));
            assert!(bytes() <= of_all, "{} bytes instead of {of_all}", bytes());
        }
        waits.clear();
        assert_eq!((queue.waiting(), queue.waiting_keys(), bytes()), (0, 0, 0));
    }
}
