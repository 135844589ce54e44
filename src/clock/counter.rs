//! The processor's counter, guarded by the system clock. It is used on Linux if the kernel also
//! trusts the counter.
//!
//! A bare counter is fast but can be wrong. The counters of different cores may be out of step. A
//! counter may be reset or stop when a machine sleeps or a virtual machine is moved. Its rate may
//! also differ from the rate of the system clock. [`anchor`](super::anchor) states the bounds that
//! the guard ensures.
//!
//! In addition, the counter is read only if the kernel derives its own clock from it, because the
//! kernel has then monitored the counter since the machine was started. The file
//! `/sys/devices/system/clocksource/clocksource0/current_clocksource` names the clock source in
//! use. (`available_clocksource` in the same directory lists all possible clock sources.)
//!
//! # Orderings
//!
//! | edge | release side | acquire side | what becomes visible | loom test that fails if it is weakened |
//! |---|---|---|---|---|
//! | (none) | | | | |
//!
//! The threads share one flag, which records whether the counter is trusted. Every thread would
//! compute the same answer, and the flag publishes no other data. Each thread has its own reader of
//! the counter.

use super::anchor::{CounterReader, Source};
use super::system;
use crate::sync::{Atomic, Ordering::Relaxed};
use crate::time::Tick;
use std::fs::File;
use std::io::Read;

thread_local! {
    /// The reader that all clocks on this thread share. Each clock subtracts its own origin.
    static READER: CounterReader = const { CounterReader::new() };
}

/// A clock that reads the guarded counter.
#[derive(Clone, Debug)]
pub(super) struct CounterClock {
    /// The system time at tick 0.
    origin: u64,
}

impl CounterClock {
    /// Returns a clock that counts from now, or `None` if the kernel does not trust the counter.
    pub(super) fn trusted() -> Option<Self> {
        is_trusted().then(|| Self { origin: system::origin(Tick::ZERO) })
    }

    /// Moves the origin, so that the clock now reads `tick`.
    pub(super) fn resume_at(&mut self, tick: Tick) {
        self.origin = system::origin(tick);
    }

    /// Returns the current time. Each counter subtracts its own origin from this time.
    #[inline(always)]
    pub(super) fn read() -> u64 {
        READER.with(|reader| reader.now(&Processor))
    }

    /// Converts a time that `read` returned to a tick.
    #[inline(always)]
    pub(super) fn since(&self, now: u64) -> Tick {
        let passed = now.wrapping_sub(self.origin);
        // A time before the origin wraps around, so one comparison finds it and a time after the
        // last tick.
        if passed > Tick::MAX.as_nanos() {
            return self.outside(passed);
        }
        Tick::from_nanos(passed)
    }

    /// Returns the first tick for a time before the origin, otherwise the last tick.
    #[cold]
    #[inline(never)]
    fn outside(&self, passed: u64) -> Tick {
        let is_before = passed.wrapping_add(self.origin) < self.origin;
        if is_before { Tick::ZERO } else { Tick::MAX }
    }
}

/// The counter of the current core, and the system clock.
struct Processor;

impl Source for Processor {
    #[inline(always)]
    fn count(&self) -> u64 {
        instruction::count()
    }

    fn system(&self) -> u64 {
        system::nanos()
    }
}

const UNKNOWN: u8 = 0;
const TRUSTED: u8 = 1;
const DISTRUSTED: u8 = 2;

/// Returns whether the counter is trusted. The answer requires reading a file, so the first clock
/// that needs the answer stores it for the whole process.
fn is_trusted() -> bool {
    static FOUND: Atomic<u8> = Atomic::new(UNKNOWN);
    // ORDERING: relaxed, because the flag publishes no other data.
    if FOUND.load(Relaxed) == UNKNOWN {
        // (Miri does not support the instruction.)
        let is_trusted = !cfg!(miri) && is_fit(instruction::is_invariant(), clock_source(&mut [0; 32]));
        // ORDERING: relaxed, as above.
        FOUND.store(if is_trusted { TRUSTED } else { DISTRUSTED }, Relaxed);
    }
    // ORDERING: relaxed, as above.
    FOUND.load(Relaxed) == TRUSTED
}

/// Returns true if the counter runs at a constant rate and is the kernel's clock source. `current`
/// is the content of the kernel's file.
fn is_fit(is_invariant: bool, current: &[u8]) -> bool {
    is_invariant && current.trim_ascii() == instruction::SOURCE.as_bytes()
}

/// Returns the kernel's clock source. The result is empty if the kernel does not reveal it, as in a
/// sandbox that hides the file. The file is read into `place`, so that creating a clock does not
/// allocate.
fn clock_source(place: &mut [u8; 32]) -> &[u8] {
    const PATH: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    // The file is shorter than `place`, so one read returns the whole file.
    let len = File::open(PATH).and_then(|mut file| file.read(place)).unwrap_or(0);
    &place[..len]
}

#[cfg(target_arch = "x86_64")]
mod instruction {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// The kernel's name for the counter.
    pub(super) const SOURCE: &str = "tsc";

    /// Reads the time stamp counter. The processor may read the counter a few nanoseconds before
    /// the preceding instructions have completed. In that case, the reading is late by the same
    /// amount. `Builder::core_leases` states what this means for leases between cores.
    #[inline(always)]
    pub(super) fn count() -> u64 {
        // SAFETY: the instruction only reads a register. Linux allows every program to use it,
        // unless the process itself has asked the kernel to forbid the instruction.
        #[allow(unsafe_code)]
        unsafe {
            _rdtsc()
        }
    }

    /// Returns true if the counter runs at a constant rate, at any frequency and in any sleep state
    /// of the core.
    pub(super) fn is_invariant() -> bool {
        const EXTENDED: u32 = 0x8000_0000;
        const POWER: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        let last = cpuid(EXTENDED).eax;
        last >= POWER && cpuid(POWER).edx & INVARIANT != 0
    }

    /// `__cpuid` is a safe function in newer versions of Rust, but an unsafe one in 1.92.
    #[allow(unsafe_code, unused_unsafe)]
    fn cpuid(leaf: u32) -> std::arch::x86_64::CpuidResult {
        // SAFETY: every x86-64 processor supports the instruction, which only queries properties of
        // the processor.
        unsafe { __cpuid(leaf) }
    }
}

#[cfg(target_arch = "aarch64")]
mod instruction {
    /// The kernel's name for the counter.
    pub(super) const SOURCE: &str = "arch_sys_counter";

    /// Reads the virtual counter. The processor may read the counter a few nanoseconds before the
    /// preceding instructions have completed. In that case, the reading is late by the same amount.
    /// `Builder::core_leases` states what this means for leases between cores.
    #[inline(always)]
    pub(super) fn count() -> u64 {
        let count: u64;
        // SAFETY: the instruction reads a register that Linux lets every program read. It does not
        // change memory, flags or the stack.
        #[allow(unsafe_code)]
        unsafe {
            std::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack, preserves_flags));
        }
        count
    }

    /// The architecture guarantees a constant rate.
    pub(super) fn is_invariant() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_trusted_only_if_the_kernel_s_clock_is_made_of_it() {
        let mut own = instruction::SOURCE.as_bytes().to_vec();
        own.push(b'\n');
        assert!(is_fit(true, &own));
        assert!(!is_fit(false, &own));
        for other in ["", "\n", "kvm-clock\n", "hpet\n", "acpi_pm\n", "jiffies", "tsc-early\n", "tsc hpet\n"]
        {
            assert!(!is_fit(true, other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn the_answer_is_that_of_the_kernel_and_stays() {
        let says = std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        let is_invariant = !cfg!(miri) && instruction::is_invariant();
        let expected = is_fit(is_invariant, &says.unwrap_or_default());
        assert_eq!([is_trusted(), is_trusted()], [expected; 2]);
        assert_eq!(CounterClock::trusted().is_some(), expected);
    }

    /// This test also runs where the kernel does not trust the counter, because the guard's bounds
    /// hold there as well.
    #[test]
    fn a_reading_is_within_a_millisecond_of_the_system_s_clock_and_never_back() {
        const MILLISECOND: u64 = 1_000_000;
        let counter = CounterClock { origin: system::START };
        let mut latest = 0;
        for _ in 0..200_000 {
            let before = system::nanos() - system::START;
            let now = counter.since(CounterClock::read()).as_nanos();
            let after = system::nanos() - system::START;
            assert!(now < after + MILLISECOND, "{now} is early at {after}");
            assert!(now + MILLISECOND > before, "{now} is late at {before}");
            assert!(now >= latest, "{now} after {latest}");
            latest = now;
        }
    }

    #[test]
    fn a_time_before_the_origin_is_the_origin() {
        let counter = CounterClock { origin: u64::MAX };
        assert_eq!(counter.since(CounterClock::read()), Tick::ZERO);
    }

    #[test]
    fn a_time_becomes_the_nearest_tick() {
        let (counter, last) = (CounterClock { origin: 7 }, Tick::MAX.as_nanos());
        let ticks = [0, 6, 7, 8, 7 + last, 8 + last, u64::MAX].map(|now| counter.since(now).as_nanos());
        assert_eq!(ticks, [0, 0, 0, 1, last, last, last]);
    }
}
