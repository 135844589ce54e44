//! The system refuses `membarrier` to a thread after other threads have begun to rely on it. Guards
//! without a fence may be invisible to this thread, so it frees nothing.

use crate::{alone, membarrier};
use std::thread;
use std::time::Duration;
use tollgate::{Algorithm, Chargeable, ManualClock, Quota, SingleLimiter, Tick};

/// The number of admissions that one thread makes. They fill 2,500 chunks of more than 150 bytes.
const ADMISSIONS: u64 = 20_000;

/// More than the bytes kept by the log and the next collections, and less than all these chunks.
const LITTLE: usize = 100_000;

/// Much more than `LITTLE`, and less than all these chunks.
const MUCH: usize = 300_000;

/// A log of eight admissions, each at its own time.
struct Admissions(SingleLimiter);

impl Admissions {
    fn new() -> Self {
        let quota = Quota::new(8, Duration::from_micros(8));
        let builder = SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog);
        Self(builder.clock(ManualClock::new()).build().unwrap())
    }

    /// Fills the log with the admissions of turn `turn`, and returns the bytes of the log.
    fn admit(&self, turn: u64) -> usize {
        for at in turn * ADMISSIONS..(turn + 1) * ADMISSIONS {
            assert!(self.0.at(Tick::from_nanos(1_000 * at)).check().is_allowed());
        }
        self.0.bytes()
    }
}

#[test]
fn a_thread_that_is_refused_the_barrier_late_frees_nothing() {
    let _alone = alone();
    if membarrier::is_refused() {
        return membarrier::not_done("the system refuses membarrier from the beginning");
    }
    let log = Admissions::new();
    // From now on all threads rely on the barrier.
    let bytes = log.admit(0);
    assert!(bytes < LITTLE, "{bytes} bytes");
    thread::scope(|scope| {
        scope.spawn(|| {
            if !membarrier::refuse() {
                return membarrier::not_done("the system does not let a thread refuse itself a call");
            }
            let bytes = log.admit(1);
            assert!(bytes > MUCH, "retired chunks were freed without a barrier: {bytes} bytes are left");
        });
    });
    // The barrier is not refused to this thread, so it frees the chunks. A collection looks at a
    // few hundred values, and the next collection follows soon.
    log.admit(2);
    let bytes = log.admit(3);
    assert!(bytes < LITTLE, "{bytes} bytes");
}
