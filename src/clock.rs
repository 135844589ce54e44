//! The clocks of a limiter: the processor's counter guarded by the system clock, the system clock
//! alone, the system's coarse clock, and a clock for tests.
//!
//! | file | what it is |
//! |---|---|
//! | `anchor.rs` | the guard, which converts counts to readings of the system's clock, as values; it states and tests its bounds |
//! | `counter.rs` | the counters of x86-64 and aarch64, and whether the kernel trusts them |
//! | `system.rs` | the clocks of Linux; `instant.rs` elsewhere |
//! | `manual.rs` | a clock that its owner moves |
//!
//! No clock uses a thread, so a clock neither stops after a `fork` nor lags because a thread does
//! not run. Reading a clock takes no lock and allocates nothing. Readings on different threads
//! share no mutable data, except for the time of a manual clock, which only its owner changes.

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(tollgate_loom)))]
mod anchor;
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), not(tollgate_loom))),
    path = "clock/no_counter.rs"
)]
mod counter;
mod manual;
#[cfg_attr(not(all(target_os = "linux", not(tollgate_loom))), path = "clock/instant.rs")]
mod system;

pub use manual::ManualClock;

use crate::time::Tick;
use counter::CounterClock;
use std::cell::Cell;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use system::SystemClock;

/// The clock of a limiter. All clones of a clock share one origin, so limiters that use these
/// clones agree on the ticks. A limiter that was [loaded](crate::Builder::load) continues the ticks
/// of the saved limiter instead.
///
/// | clock | a reading costs | within a thread | between threads | deviation from the system's clock |
/// |---|---|---|---|---|
/// | [`counter`](Clock::counter) | one instruction and a multiplication; once a millisecond and thread, two calls into the vDSO | never back | back by less than 0.1 ms, typically nanoseconds; where a core's counter is out of step, by less than 2 ms | early by less than 1 ms, late by up to 1 ms, typically by less than 0.1 µs; same rate |
/// | [`system`](Clock::system) | one call into the vDSO, or a system call | never back | never back | none |
/// | [`coarse`](Clock::coarse) | a call into the vDSO that reads memory; or as the default | never back | as the clock that it reads | late by up to the resolution |
/// | [`ManualClock`] | one load | as its owner sets it | as its owner sets it | independent |
///
/// If a reading is early by a millisecond, a key receives its tokens a millisecond too soon. The
/// number of tokens wrongly granted or wrongly denied is therefore at most the rate times a
/// millisecond. Within a limiter, time never runs backwards for a key, whatever the clock does.
///
/// # Platforms
///
/// On x86-64 Linux, the default is the counter. This requires that the processor reports a constant
/// counter rate, and that the kernel derives its own clock from the counter (the clock source is
/// `tsc`). Otherwise, and on all other systems, the default is the monotonic clock.
/// [`kind`](Clock::kind) reports the clock that is actually read.
///
/// | system | `Clock::default()` | [`counter`](Clock::counter) | [`coarse`](Clock::coarse) |
/// |---|---|---|---|
/// | x86-64 Linux, clock source `tsc` | counter | counter | the system's coarse clock, or the counter if that is too coarse |
/// | x86-64 Linux, other clock sources (virtual machines with `kvm-clock` or Hyper-V's or Xen's, `hpet`, `acpi_pm`), or a sandbox that hides the clock source | system | system | the system's coarse clock, or the system's clock |
/// | aarch64 Linux, clock source `arch_sys_counter` | system | counter; compiled, but never run | the system's coarse clock, or the system's clock |
/// | other Linux | system | system | the system's coarse clock, or the system's clock |
/// | macOS, Windows, all others | system | system | system |
///
/// Only the first row was measured and tested, on an AMD EPYC in a virtual machine. On macOS and
/// Windows, the clocks use std's `Instant`, and have not been tried. On aarch64, the counter is not
/// the default, because some chips have errata that the kernel can work around but a program
/// cannot. The guard bounds the effect of such errata.
///
/// The monotonic clock of Linux and macOS, and therefore every clock that is based on it, stops
/// while the machine is suspended. The monotonic clock of Windows keeps running.
///
/// ```
/// use tollgate::{Clock, ClockKind, Limiter, Quota};
///
/// let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(100)).build()?;
/// println!("the time is read from {}", limiter.clock().kind());
///
/// // The system's clock, whatever the default is.
/// let builder = Limiter::<u64>::builder(Quota::per_second(100)).clock(Clock::system());
/// assert_eq!(builder.build()?.clock().kind(), ClockKind::System);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Clock(TimeSource);

/// The time source.
#[derive(Clone)]
enum TimeSource {
    Counter(CounterClock),
    Manual(ManualClock),
    System(SystemClock),
}

/// The time source that a [`Clock`] reads, for logs and metrics. It depends on the platform.
///
/// ```
/// use tollgate::{Clock, ClockKind};
///
/// assert_eq!(Clock::system().kind(), ClockKind::System);
/// assert_eq!(Clock::system().kind().to_string(), "system");
/// assert!([ClockKind::Counter, ClockKind::System].contains(&Clock::default().kind()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClockKind {
    /// The processor's counter, which interpolates between readings of the system clock that are a
    /// millisecond apart.
    Counter,
    /// The system's monotonic clock.
    System,
    /// The system's coarse clock.
    Coarse,
    /// A clock that its owner sets.
    Manual,
}

impl Clock {
    /// Returns a clock that reads the processor's counter, guarded by the system clock. Its ticks
    /// count from now.
    ///
    /// If the kernel does not derive its own clock from the counter, and on other
    /// [platforms](Clock#platforms), this method returns the [`system`](Clock::system) clock.
    ///
    /// The counter only interpolates. Each thread reads the system clock once a millisecond, and
    /// the counter in between, so this clock runs at the rate of the system clock. The counter may
    /// be reset, stop while a virtual machine is moved, or differ between cores. The error caused
    /// by such a fault is bounded:
    ///
    /// - A reading is early by less than a millisecond, without exception.
    /// - A reading is late by a millisecond at most, and only if the counter has lost time against
    ///   the system clock. There are two exceptions, which delay requests but never admit one too
    ///   early. If the counter slows down to an eighth of its rate, readings can be late by seven
    ///   milliseconds. The counter steps back if the thread moves to a core whose counter is
    ///   behind, or if the counter has stopped. If the thread has just paused for about as long as
    ///   the step, its readings can be late by the whole step, for a millisecond.
    /// - Within a thread, time never steps back. Between threads, a later reading can return an
    ///   earlier time. The difference is a few nanoseconds if the counters of all cores are in
    ///   step. If the counters are not in step, the difference is less than two milliseconds,
    ///   because one thread may be early and the other late.
    ///
    /// If a thread reads this clock less than once a millisecond, it reads the system clock each
    /// time, with two calls where [`system`](Clock::system) needs one. The same applies to every
    /// thread's first two milliseconds.
    ///
    /// ```
    /// use tollgate::Clock;
    /// let clock = Clock::counter();
    /// assert!(clock.now() <= clock.now());
    /// ```
    pub fn counter() -> Self {
        match CounterClock::trusted() {
            Some(counter) => Self(TimeSource::Counter(counter)),
            None => Self::system(),
        }
    }

    /// Returns a clock that reads the operating system's monotonic clock. Its ticks count from now.
    ///
    /// ```
    /// use tollgate::Clock;
    /// let clock = Clock::system();
    /// assert!(clock.now() <= clock.now());
    /// ```
    pub fn system() -> Self {
        Self(TimeSource::System(SystemClock::monotonic()))
    }

    /// Returns a clock that may be late by up to `resolution`.
    ///
    /// On Linux, this is the system's coarse clock, which the kernel advances at each timer tick
    /// (every 1 to 10 ms, often 4 ms). If `resolution` is finer than a timer tick, and on other
    /// systems, this is the [default](Clock::default) clock, which is more precise than requested.
    ///
    /// The coarse clock is worthwhile where the default is the system clock, because reading the
    /// system clock takes three times as long. Where the default is the counter, a coarse clock
    /// does not make a check faster, because the processor does other work while it reads the
    /// counter. If many checks can share one reading, use [`Limiter::at`](crate::Limiter::at),
    /// which is cheaper than any clock.
    ///
    /// The coarse clock is late by up to a timer tick, which can delay a request but never admits
    /// one too early. In a virtual machine the clock is even later while the processor that handles
    /// timer ticks does not run. The coarse clock uses no thread.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Limiter, Quota};
    ///
    /// let clock = Clock::coarse(Duration::from_millis(10));
    /// let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(100)).clock(clock).build()?;
    /// assert!(limiter.check(&7).is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn coarse(resolution: Duration) -> Self {
        match SystemClock::coarse(resolution) {
            Some(coarse) => Self(TimeSource::System(coarse)),
            None => Self::default(),
        }
    }

    /// Returns the current time.
    ///
    /// # Progress
    ///
    /// This method is wait-free and does not allocate.
    ///
    /// ```
    /// let clock = tollgate::Clock::system();
    /// let before = clock.now();
    /// assert!(clock.now() >= before);
    /// ```
    #[inline]
    pub fn now(&self) -> Tick {
        match &self.0 {
            TimeSource::Counter(counter) => counter.since(CounterClock::read()),
            TimeSource::Manual(manual) => manual.now(),
            TimeSource::System(system) => system.now(),
        }
    }

    /// Returns the current time. All counter clocks share one reading of the counter, which the
    /// first of them stores in the argument.
    #[inline]
    pub(crate) fn shared(&self, SharedReading(read): &SharedReading) -> Tick {
        let TimeSource::Counter(counter) = &self.0 else { return self.now() };
        if read.get() == 0 {
            read.set(CounterClock::read());
        }
        counter.since(read.get())
    }

    /// Returns the time source that this clock reads; see [Platforms](Clock#platforms).
    ///
    /// ```
    /// use tollgate::{Clock, ClockKind, ManualClock};
    /// assert_eq!(Clock::from(ManualClock::new()).kind(), ClockKind::Manual);
    /// ```
    pub fn kind(&self) -> ClockKind {
        match &self.0 {
            TimeSource::Counter(_) => ClockKind::Counter,
            TimeSource::Manual(_) => ClockKind::Manual,
            TimeSource::System(system) if system.is_coarse() => ClockKind::Coarse,
            TimeSource::System(_) => ClockKind::System,
        }
    }

    /// Returns a clock of the same kind that now reads `tick`. A manual clock is returned as it is,
    /// because its owner sets its time.
    pub(crate) fn resumed_at(&self, tick: Tick) -> Self {
        let mut clock = self.clone();
        match &mut clock.0 {
            TimeSource::Counter(counter) => counter.resume_at(tick),
            TimeSource::Manual(_) => {}
            TimeSource::System(system) => system.resume_at(tick),
        }
        clock
    }

    /// Returns true if this clock follows the time of day. A manual clock does not, so windows that
    /// use a manual clock are not aligned to the time of day.
    pub(crate) fn is_real(&self) -> bool {
        !matches!(self.0, TimeSource::Manual(_))
    }

    /// Returns the time from the Unix epoch to tick 0, according to the current time of day.
    pub(crate) fn origin_since_epoch(&self) -> Duration {
        let now = self.now().since(Tick::ZERO);
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(now)
    }
}

/// One reading of the counter, shared by several clocks; 0 until the first clock has read the
/// counter.
#[derive(Debug, Default)]
pub(crate) struct SharedReading(Cell<u64>);

impl Default for Clock {
    /// Returns [`Clock::counter`] on x86-64 if the kernel trusts the counter, otherwise
    /// [`Clock::system`].
    ///
    /// See [Platforms](Clock#platforms) for the list of systems.
    fn default() -> Self {
        if cfg!(target_arch = "x86_64") { Self::counter() } else { Self::system() }
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self(TimeSource::Manual(clock))
    }
}

impl From<&ManualClock> for Clock {
    fn from(clock: &ManualClock) -> Self {
        clock.clone().into()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({} at {:?})", self.kind(), self.now())
    }
}

impl fmt::Display for ClockKind {
    /// Writes one word: `counter`, `system`, `coarse` or `manual`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::System => "system",
            Self::Coarse => "coarse",
            Self::Manual => "manual",
        })
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_clock_goes_on_from_the_tick_at_which_it_is_resumed() {
        // A clock may be resumed at a later tick than the machine has been running for.
        for tick in [Tick::ZERO, Tick::from_nanos(1 << 60)] {
            for clock in [Clock::system(), Clock::counter(), Clock::coarse(Duration::MAX)] {
                let resumed = clock.resumed_at(tick);
                assert_eq!(resumed.kind(), clock.kind());
                let (first, start) = (resumed.now(), std::time::Instant::now());
                while resumed.now().since(tick) < Duration::from_millis(20) {
                    assert!(start.elapsed() < Duration::from_secs(20), "{resumed:?} stands still");
                }
                assert!(first.since(tick) < Duration::from_secs(10), "{first:?}");
                assert!(start.elapsed() + first.since(tick) >= Duration::from_millis(18));
            }
        }
        let manual = ManualClock::new();
        assert_eq!(Clock::from(&manual).resumed_at(Tick::MAX).now(), Tick::ZERO);
    }

    #[test]
    fn what_is_asked_for_is_what_is_read_or_the_system_s_clock() {
        assert_eq!(Clock::system().kind(), ClockKind::System);
        assert_eq!(Clock::from(ManualClock::new()).kind(), ClockKind::Manual);
        let counter = if CounterClock::trusted().is_some() { ClockKind::Counter } else { ClockKind::System };
        assert_eq!(Clock::counter().kind(), counter);
        let default = if cfg!(target_arch = "x86_64") { counter } else { ClockKind::System };
        assert_eq!(Clock::default().kind(), default);
        // A resolution of 500 µs is finer than any kernel's tick, and a resolution of 10 ms is as
        // coarse as the coarsest tick.
        assert_eq!(Clock::coarse(Duration::from_micros(500)).kind(), default);
        assert_eq!(Clock::coarse(Duration::ZERO).kind(), default);
        let coarse = if cfg!(target_os = "linux") { ClockKind::Coarse } else { default };
        assert_eq!(Clock::coarse(Duration::from_millis(10)).kind(), coarse);
        assert_eq!(Clock::coarse(Duration::MAX).kind(), coarse);
    }

    #[test]
    fn debug_names_what_is_read() {
        let text = format!("{:?}", Clock::from(ManualClock::new()));
        assert_eq!(text, "Clock(manual at Tick(0ns))");
        for clock in [Clock::default(), Clock::coarse(Duration::from_secs(1))] {
            assert!(format!("{clock:?}").starts_with(&format!("Clock({} at ", clock.kind())), "{clock:?}");
        }
    }

    #[test]
    fn clones_have_one_origin() {
        for clock in [Clock::default(), Clock::system(), Clock::coarse(Duration::from_millis(10))] {
            let clone = clock.clone();
            let first = clock.now();
            assert!(clone.now() >= first, "{clock:?}");
        }
    }

    #[test]
    fn the_origin_of_a_clock_that_has_run_for_a_while_lies_back() {
        let hour = Duration::from_secs(3600);
        let clock = ManualClock::new();
        clock.set(Tick::ZERO + hour);
        let origin = Clock::from(clock).origin_since_epoch();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!((origin + hour).abs_diff(now) < Duration::from_secs(5));
    }

    #[test]
    fn the_origin_of_a_new_clock_is_now() {
        for clock in [Clock::default(), Clock::system(), Clock::coarse(Duration::from_millis(10))] {
            let origin = clock.origin_since_epoch();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            assert!(now.abs_diff(origin) < Duration::from_secs(5), "{clock:?}");
        }
    }

    #[test]
    fn clocks_of_the_counter_share_a_reading_and_others_read_their_own() {
        let (earlier, later, manual) = (Clock::counter(), Clock::counter(), ManualClock::new());
        let reading = SharedReading::default();
        let first = earlier.shared(&reading);
        assert!(first <= earlier.now());
        let own = Clock::from(&manual);
        assert_eq!(own.shared(&reading), Tick::ZERO);
        manual.set(Tick::from_nanos(7));
        assert_eq!(own.shared(&reading), Tick::from_nanos(7));
        if CounterClock::trusted().is_some() {
            while earlier.now() == first {}
            assert_eq!(earlier.shared(&reading), first);
            // Each clock counts ticks from its own origin.
            assert!(later.shared(&reading) <= first);
            assert!(earlier.shared(&SharedReading::default()) > first);
        }
    }
}
