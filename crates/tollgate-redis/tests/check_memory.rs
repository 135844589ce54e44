//! Tests that a check that is decided on this machine allocates nothing.
//!
//! The test counts the allocations of its own thread, so it runs without a test harness.

#[cfg(unix)]
mod counting {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;

    pub(crate) struct Counting;

    thread_local! {
        /// The number of allocations by this thread.
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn allocations() -> u64 {
        COUNT.get()
    }

    #[allow(unsafe_code)]
    // SAFETY: every call is passed to the system allocator unchanged.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            let _ = COUNT.try_with(|count| count.set(count.get() + 1));
            // SAFETY: the caller's promise is passed on.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the caller's promise is passed on.
            unsafe { System.dealloc(block, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;
}

#[cfg(unix)]
fn main() {
    use std::time::Duration;
    use tollgate::{Algorithm, Quota};
    use tollgate_redis::{Client, SharedLimiter};
    use tollgate_testing::store::server::Server;

    const CHECKS: u64 = 2_000;

    let server = Server::start();
    let client = Client::builder(server.url()).runtime_thread().build().unwrap();
    let year = Duration::from_secs(365 * 86_400);
    let builder = |name: &str| {
        SharedLimiter::<str>::builder(&client, name, Quota::new(10 * CHECKS, year))
            .algorithm(Algorithm::SlidingWindow)
            .deadline(Duration::from_secs(20))
    };
    let leased = builder("leased").lease(500).build().unwrap();
    let unsynced = builder("unsynced").max_unsynced(500).build().unwrap();
    for (name, limiter) in [("leased", leased), ("unsynced", unsynced)] {
        for _ in 0..CHECKS {
            assert!(limiter.check_blocking("alice").is_allowed());
        }
        let (mut here, mut allocating) = (0, 0);
        for _ in 0..CHECKS {
            let before = counting::allocations();
            match limiter.try_check("alice") {
                Ok(_) => {
                    here += 1;
                    allocating += u64::from(counting::allocations() > before);
                }
                Err(pending) => drop(pending.wait()),
            }
        }
        println!("{name}: {here} of {CHECKS} checks were decided here, {allocating} of these allocated");
        // A request for the next lease, or to push counts, allocates its task.
        assert!(
            here > CHECKS / 2 && allocating <= CHECKS / 50,
            "{name}: {here} here, {allocating} allocated"
        );
        // Denials allocate nothing.
        while limiter.check_blocking("alice").is_allowed() {}
        let denied = limiter.check_blocking("alice");
        assert!(!denied.is_allowed(), "{denied:?}");
        let before = counting::allocations();
        assert!((0..100).all(|_| limiter.try_check("alice").is_ok_and(|decision| !decision.is_allowed())));
        assert_eq!(counting::allocations(), before, "{name}: a denial allocates");
    }
}

#[cfg(not(unix))]
fn main() {}
