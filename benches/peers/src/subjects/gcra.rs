//! The decision of the limiters that this program builds on other crates' maps: the generic cell
//! rate algorithm in its simplest form, in whole nanoseconds.

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

    /// Like [`charge`](Self::charge), for several threads. A denial writes nothing.
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

/// Returns whether a key with this arrival time is idle.
pub fn is_idle(arrival: u64, now: u64) -> bool {
    arrival <= now
}

/// Returns the processor's counter in nanoseconds, which governor's default clock also reads. This
/// function uses the clock of this library, which needs fewer steps than the arithmetic of quanta.
#[inline]
pub fn now() -> u64 {
    static CLOCK: LazyLock<Clock> = LazyLock::new(super::counter);
    CLOCK.now().as_nanos()
}
