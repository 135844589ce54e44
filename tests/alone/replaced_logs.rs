//! Logs that a quota change replaces while threads walk through them.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use tollgate::{Algorithm, ManualClock, Quota, SingleLimiter};

/// A thread that walks through the versions of a state also walks through its log. Neither walk
/// reaches memory that other threads have freed in the meantime.
#[test]
fn logs_are_replaced_and_freed_while_threads_walk_through_them() {
    let _alone = crate::alone();
    const LEAST: u64 = 2_000;
    const CHANGES: u64 = 3_000;
    let builder = SingleLimiter::builder(Quota::per_hour(LEAST)).algorithm(Algorithm::SlidingLog);
    let limiter = builder.clock(ManualClock::new()).build().unwrap();
    let is_over = AtomicBool::new(false);
    let admitted: u64 = thread::scope(|scope| {
        let charges = [(); 8].map(|()| {
            scope.spawn(|| {
                let mut charged = 0;
                while !is_over.load(SeqCst) {
                    charged += limiter.check().charged();
                }
                charged
            })
        });
        let changes = [(); 2].map(|()| {
            scope.spawn(|| {
                for change in 0..CHANGES {
                    limiter.set_quota(Quota::per_hour(LEAST + change % 2)).unwrap();
                }
            })
        });
        changes.into_iter().for_each(|thread| thread.join().unwrap());
        is_over.store(true, SeqCst);
        charges.map(|thread| thread.join().unwrap()).iter().sum()
    });
    let left = limiter.peek().remaining();
    assert_eq!(admitted + left, limiter.quota().tokens());
}
