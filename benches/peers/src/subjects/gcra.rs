//! The decision of the limiters that are built here on others' maps: the generic cell rate
//! algorithm, as plain as it gets, in whole nanoseconds.

use super::Quota;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tollgate::Clock;

#[derive(Clone, Copy)]
pub struct Gcra {
    interval: u64,
    tolerance: u64,
}

impl Gcra {
    pub fn new(quota: Quota) -> Self {
        let interval = quota.interval();
        Self { interval, tolerance: interval * u64::from(quota.burst() - 1) }
    }

    /// Charges the arrival time, if there is room.
    #[inline]
    pub fn charge(self, arrival: &mut u64, now: u64) -> bool {
        let from = now.max(*arrival);
        let admitted = from - now <= self.tolerance;
        if admitted {
            *arrival = from + self.interval;
        }
        admitted
    }

    /// As [`charge`](Self::charge), for many threads. A denial writes nothing.
    #[inline]
    pub fn charge_shared(self, arrival: &AtomicU64, now: u64) -> bool {
        let mut seen = arrival.load(Relaxed);
        loop {
            let mut next = seen;
            if !self.charge(&mut next, now) {
                return false;
            }
            match arrival.compare_exchange_weak(seen, next, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(other) => seen = other,
            }
        }
    }
}

/// Is a key with this arrival time as good as new?
pub fn is_idle(arrival: u64, now: u64) -> bool {
    arrival <= now
}

/// The processor's counter as nanoseconds, which governor's default reads, too: by this library's
/// clock, which takes fewer steps for it than quanta's own arithmetic.
#[inline]
pub fn now() -> u64 {
    static CLOCK: LazyLock<Clock> = LazyLock::new(super::counter);
    CLOCK.now().as_nanos()
}
