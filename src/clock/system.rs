//! The clocks of Linux: the monotonic clock, and the coarse clock. The kernel advances the coarse
//! clock at each timer tick.
//!
//! Both clocks count nanoseconds from the same origin, and stop while the machine is suspended.
//! Each reading is a call into the vDSO. For the monotonic clock, this call reads the processor's
//! counter if the kernel trusts the counter. For the coarse clock, it only reads memory.

use crate::time::Tick;
use std::mem::MaybeUninit;
use std::time::Duration;

/// A system clock, counted from an origin.
#[derive(Clone, Debug)]
pub(super) struct SystemClock {
    /// The reading at tick 0. It is negative if a clock that was continued started before the
    /// machine.
    origin: i64,
    which: libc::clockid_t,
}

impl SystemClock {
    /// Returns the monotonic clock, counted from now.
    pub(super) fn monotonic() -> Self {
        Self { origin: read(libc::CLOCK_MONOTONIC), which: libc::CLOCK_MONOTONIC }
    }

    /// Returns the coarse clock, counted from now, if its resolution is fine enough. The coarse
    /// clock is late, so its first readings may lie before the origin. [`now`](Self::now) then
    /// returns the origin.
    pub(super) fn coarse(resolution: Duration) -> Option<Self> {
        let is_fine = coarse_resolution().is_some_and(|its| its <= resolution);
        is_fine.then(|| Self { origin: read(libc::CLOCK_MONOTONIC), which: libc::CLOCK_MONOTONIC_COARSE })
    }

    /// Moves the origin, so that the clock now reads `tick`.
    pub(super) fn resume_at(&mut self, tick: Tick) {
        self.origin = read(libc::CLOCK_MONOTONIC) - tick.as_nanos().cast_signed();
    }

    pub(super) fn is_coarse(&self) -> bool {
        self.which == libc::CLOCK_MONOTONIC_COARSE
    }

    /// This method is not inlined, because its steps would cost registers in callers that use a
    /// faster clock.
    #[inline(never)]
    pub(super) fn now(&self) -> Tick {
        Tick::from_nanos((read(self.which) - self.origin).max(0).unsigned_abs())
    }
}

/// Returns the origin of a clock that counts by [`nanos`] and now reads `tick`.
pub(super) fn origin(tick: Tick) -> u64 {
    nanos() - tick.as_nanos()
}

/// The value of [`nanos`] at the start of the machine. It is not 0, because the origin of a clock
/// that continues an earlier clock may precede the start of the machine, and must not be negative.
pub(super) const START: u64 = Tick::MAX.as_nanos();

/// Reads the monotonic clock: the nanoseconds since the start of the machine, plus [`START`].
pub(super) fn nanos() -> u64 {
    START + read(libc::CLOCK_MONOTONIC).unsigned_abs()
}

/// Reads a clock: the nanoseconds since the start of the machine.
fn read(which: libc::clockid_t) -> i64 {
    let mut time = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel only writes to `time`.
    #[allow(unsafe_code)]
    unsafe {
        libc::clock_gettime(which, time.as_mut_ptr());
    }
    // SAFETY: `time` contains two integers, which are zero if the kernel wrote nothing. (Both
    // clocks always exist.)
    #[allow(unsafe_code)]
    let time = unsafe { time.assume_init() };
    in_nanos(time)
}

/// Returns the length of the kernel's timer tick (1 to 10 ms), or `None` if the system has no
/// coarse clock.
fn coarse_resolution() -> Option<Duration> {
    let mut resolution = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: the kernel only writes to `resolution`.
    #[allow(unsafe_code)]
    let answer = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, resolution.as_mut_ptr()) };
    // SAFETY: `resolution` contains two integers, which are zero if the kernel wrote nothing.
    #[allow(unsafe_code)]
    let resolution = unsafe { resolution.assume_init() };
    (answer == 0).then(|| Duration::from_nanos(in_nanos(resolution).unsigned_abs()))
}

/// Converts a kernel time to nanoseconds. The result is never negative, and less than 2^63 ns.
#[allow(clippy::unnecessary_fallible_conversions, clippy::useless_conversion)]
fn in_nanos(time: libc::timespec) -> i64 {
    let (seconds, nanos): (i64, i64) = (time.tv_sec.into(), time.tv_nsec.into());
    seconds * 1_000_000_000 + nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_clock_is_late_and_never_early() {
        let Some(clock) = SystemClock::coarse(Duration::from_millis(10)) else {
            panic!("no kernel has a longer tick")
        };
        assert!(clock.is_coarse());
        let clock = SystemClock { origin: 0, ..clock };
        for _ in 0..100_000 {
            let coarse = clock.now().as_nanos();
            assert!(coarse <= nanos() - START, "{coarse} is early");
        }
    }

    #[test]
    fn the_coarse_clock_goes_on_by_itself() {
        let Some(clock) = SystemClock::coarse(Duration::from_millis(10)) else {
            panic!("no kernel has a longer tick")
        };
        let start = nanos();
        while clock.now() == Tick::ZERO {
            assert!(nanos() - start < 20_000_000_000, "it stands still");
        }
        // The clock counts at most the time passed since the origin.
        let counted = clock.now().as_nanos();
        assert!(counted <= (read(libc::CLOCK_MONOTONIC) - clock.origin).unsigned_abs());
    }

    #[test]
    fn a_resolution_finer_than_a_tick_is_not_the_coarse_clock_s() {
        let its = coarse_resolution().unwrap();
        assert!(SystemClock::coarse(its).is_some());
        assert!(SystemClock::coarse(its - Duration::from_nanos(1)).is_none());
        assert!(SystemClock::coarse(Duration::ZERO).is_none());
    }

    #[test]
    fn the_monotonic_clock_counts_as_std_s_does() {
        let earlier = std::time::Instant::now();
        let clock = SystemClock::monotonic();
        let later = std::time::Instant::now();
        for _ in 0..10_000 {
            let least = later.elapsed();
            let counted = clock.now().since(Tick::ZERO);
            assert!(least <= counted && counted <= earlier.elapsed(), "{counted:?}");
        }
        assert!(!clock.is_coarse());
    }
}
