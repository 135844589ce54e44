//! Who reads the time: the operating system, the processor, a shared updater, or a test.

#[cfg(not(tollgate_loom))]
mod coarse;
mod manual;

pub use manual::ManualClock;

#[cfg(not(tollgate_loom))]
use crate::error::ConfigError;
use crate::time::Tick;
use std::fmt;
#[cfg(not(tollgate_loom))]
use std::sync::Arc;
#[cfg(not(tollgate_loom))]
use std::time::Duration;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where a limiter reads the time. Clones share one origin, so limiters with clones of one clock
/// agree about the ticks.
///
/// | clock | a reading costs | resolution | steps |
/// |---|---|---|---|
/// | [`monotonic`](Clock::monotonic) (default) | one call into the system's vDSO | 1 ns | never back |
/// | [`tsc`](Clock::tsc) (feature `tsc`) | one instruction and a multiplication | about 1 ns | never back where the counter is invariant; else it is the one above |
/// | [`coarse`](Clock::coarse) | one load | as chosen | never back; late by up to its resolution |
/// | [`manual`](Clock::manual) | one load | 1 ns | as its owner says |
///
/// Whatever a clock does, a limiter stays safe: for each key time never runs backwards.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Clock, Limiter, Quota};
///
/// let clock = Clock::coarse(Duration::from_millis(1))?;
/// let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(100)).clock(clock).build()?;
/// assert!(limiter.check(&7).allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Clock {
    /// What is read, if it is this one. Apart from the others, for a jump by table takes longer than to read it.
    #[cfg(feature = "tsc")]
    counter: Option<Counter>,
    reading: Reading,
}

/// The time stamp counter, or what quanta reads in its place.
#[cfg(feature = "tsc")]
#[derive(Clone)]
struct Counter {
    clock: quanta::Clock,
    origin: u64,
    /// How many nanoseconds pass while it counts to 2^[`RATE_BITS`].
    rate: u64,
    /// What it has counted at the last tick.
    most: u64,
}

#[derive(Clone)]
enum Reading {
    Monotonic(Instant),
    #[cfg(not(tollgate_loom))]
    Coarse(Arc<coarse::Coarse>),
    Manual(ManualClock),
}

/// Up to four counts a nanosecond a rate is exact to one part in 2^38, a microsecond in three days: the quartz is a thousand
/// times worse.
#[cfg(feature = "tsc")]
const RATE_BITS: u32 = 40;

impl Clock {
    /// The operating system's monotonic clock, counted from now.
    ///
    /// ```
    /// use tollgate::Clock;
    /// let clock = Clock::monotonic();
    /// assert!(clock.now() <= clock.now());
    /// ```
    pub fn monotonic() -> Self {
        Self::of(Reading::Monotonic(Instant::now()))
    }

    /// The processor's time stamp counter, counted from now; where it is not invariant (or there is
    /// none), the operating system's monotonic clock. The first call measures the counter's rate, which
    /// takes some milliseconds.
    ///
    /// The counters of two sockets can differ by some nanoseconds. Such skew can delay a request by as
    /// much; it grants none.
    ///
    /// ```
    /// use tollgate::Clock;
    /// let clock = Clock::tsc();
    /// assert!(clock.now() <= clock.now());
    /// ```
    #[cfg(feature = "tsc")]
    pub fn tsc() -> Self {
        let clock = quanta::Clock::new();
        let rate = clock.delta_as_nanos(0, 1 << RATE_BITS);
        let most = most_counted(rate);
        let origin = clock.raw();
        Self { counter: Some(Counter { clock, origin, rate, most }), ..Self::monotonic() }
    }

    /// A clock that one thread moves every `resolution`, so that reading it is one load. It is late by up
    /// to the resolution (more if the thread is not scheduled), which can delay a request and never
    /// grants one. The thread ends with the last clone of the clock.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Resolution`] outside 100 µs to 1 s, [`ConfigError::NoThread`] if the system
    /// refuses the thread.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Clock;
    /// assert!(Clock::coarse(Duration::from_millis(1)).is_ok());
    /// assert!(Clock::coarse(Duration::ZERO).is_err());
    /// ```
    #[cfg(not(tollgate_loom))]
    pub fn coarse(resolution: Duration) -> Result<Self, ConfigError> {
        Ok(Self::of(Reading::Coarse(Arc::new(coarse::Coarse::start(resolution)?))))
    }

    /// A clock that stands still until its owner moves it; for tests and simulations.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Quota, SingleLimiter};
    ///
    /// let clock = Clock::manual();
    /// let gate = SingleLimiter::builder(Quota::per_second(1)).clock(clock.clone()).build()?;
    /// assert!(gate.check().allowed());
    /// assert!(!gate.check().allowed());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(gate.check().allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn manual() -> ManualClock {
        ManualClock::default()
    }

    /// The time now. Wait-free.
    ///
    /// ```
    /// let clock = tollgate::Clock::monotonic();
    /// let before = clock.now();
    /// assert!(clock.now() >= before);
    /// ```
    #[inline]
    pub fn now(&self) -> Tick {
        #[cfg(feature = "tsc")]
        if let Some(counter) = &self.counter {
            return counter.now();
        }
        match &self.reading {
            #[cfg(not(tollgate_loom))]
            Reading::Coarse(coarse) => coarse.now(),
            Reading::Manual(manual) => manual.now(),
            Reading::Monotonic(origin) => ask_system(origin),
        }
    }

    fn of(reading: Reading) -> Self {
        Self {
            #[cfg(feature = "tsc")]
            counter: None,
            reading,
        }
    }

    /// Does it follow the time of day? A manual clock doesn't, so its windows are not aligned to it.
    pub(crate) fn is_real(&self) -> bool {
        !matches!(self.reading, Reading::Manual(_))
    }

    /// How long after the Unix epoch tick 0 was, by the system's time of day as it is now.
    pub(crate) fn origin_since_epoch(&self) -> std::time::Duration {
        let now = self.now().since(Tick::ZERO);
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(now)
    }
}

#[cfg(feature = "tsc")]
impl Counter {
    #[inline(always)]
    fn now(&self) -> Tick {
        self.at(self.clock.raw())
    }

    #[inline(always)]
    fn at(&self, count: u64) -> Tick {
        let counted = count.wrapping_sub(self.origin);
        // A count before the origin makes this a very large one.
        if counted > self.most {
            return beyond(counted);
        }
        // With a rate of our own there is one multiplication and no question of what `clock` is.
        let nanos = (u128::from(counted) * u128::from(self.rate)) >> RATE_BITS;
        // No more than the last tick.
        #[allow(clippy::cast_possible_truncation)]
        let nanos = nanos as u64;
        Tick::within(nanos)
    }
}

/// What a counter of that rate may have counted: until the last tick, and less than what a count before its origin is. (So one that
/// counts more than four a nanosecond runs for a shorter time: at five for 58 years.)
#[cfg(feature = "tsc")]
fn most_counted(rate: u64) -> u64 {
    let last = u128::from(Tick::MAX.as_nanos()) << RATE_BITS;
    u64::try_from(last / u128::from(rate.max(1))).unwrap_or(u64::MAX).min(u64::MAX / 2)
}

/// The time of a count that is out of range.
#[cfg(feature = "tsc")]
#[cold]
fn beyond(counted: u64) -> Tick {
    if counted > u64::MAX / 2 { Tick::ZERO } else { Tick::MAX }
}

/// Not inlined: it is a call and several steps more, and would take registers of those who have a faster clock.
#[inline(never)]
fn ask_system(origin: &Instant) -> Tick {
    Tick::from(origin.elapsed())
}

impl Default for Clock {
    /// [`Clock::monotonic`].
    fn default() -> Self {
        Self::monotonic()
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self::of(Reading::Manual(clock))
    }
}

impl From<&ManualClock> for Clock {
    fn from(clock: &ManualClock) -> Self {
        clock.clone().into()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.reading {
            #[cfg(feature = "tsc")]
            _ if self.counter.is_some() => "tsc",
            Reading::Monotonic(_) => "monotonic",
            #[cfg(not(tollgate_loom))]
            Reading::Coarse(_) => "coarse",
            Reading::Manual(_) => "manual",
        };
        write!(f, "Clock({kind} at {:?})", self.now())
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_coarse_clock_moves_and_never_passes_the_true_time() {
        let before = Instant::now();
        let coarse = Clock::coarse(Duration::from_micros(100)).unwrap();
        let start = Instant::now();
        let first = coarse.now();
        while coarse.now() == first {
            assert!(start.elapsed() < Duration::from_secs(20), "the updater never ran");
            crate::sync::thread::yield_now();
        }
        // Its origin is after `before`.
        let read = coarse.now();
        assert!(read.since(Tick::ZERO) <= before.elapsed());
    }

    /// Whatever it has counted, and however fast it is; also where another core's counter is behind the origin.
    #[cfg(feature = "tsc")]
    #[test]
    fn a_counter_tells_no_time_before_its_origin_and_none_after_the_last_tick() {
        // Up to 32 counts a nanosecond, and down to one in 64.
        for rate in
            (RATE_BITS - 5..=RATE_BITS + 6).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1])
        {
            for origin in [0, 1, 1 << 40, u64::MAX / 2, u64::MAX - 1] {
                let counter = Counter { clock: quanta::Clock::new(), origin, rate, most: most_counted(rate) };
                let exact = |counted: u64| {
                    let nanos = (u128::from(counted) * u128::from(rate)) >> RATE_BITS;
                    Tick::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
                };
                let most = counter.most;
                let beyond = if most < u64::MAX / 2 { most + 1 } else { most };
                for counted in [0, 1, 2, 1000, most / 2, most - 1, most, beyond] {
                    assert_eq!(
                        counter.at(origin.wrapping_add(counted)),
                        exact(counted),
                        "{counted} at {rate}"
                    );
                }
                assert_eq!(counter.at(origin.wrapping_sub(1)), Tick::ZERO);
                assert_eq!(counter.at(origin.wrapping_sub(1 << 40)), Tick::ZERO);
            }
        }
    }

    #[cfg(feature = "tsc")]
    #[test]
    fn the_time_stamp_counter_counts_nanoseconds() {
        let clock = Clock::tsc();
        let (before, first, after) = (Instant::now(), clock.now(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let (shortest, last, longest) = (after.elapsed(), clock.now(), before.elapsed());
        let counted = last.since(first);
        // Its rate was measured in a few milliseconds.
        assert!(
            counted > shortest.mul_f64(0.99) && counted < longest.mul_f64(1.01),
            "{counted:?} in {longest:?}"
        );
    }

    #[test]
    fn dropping_the_last_clone_of_a_coarse_clock_ends_its_thread() {
        let clock = Clock::coarse(Duration::from_secs(1)).unwrap();
        let clone = clock.clone();
        let start = Instant::now();
        drop(clock);
        assert_eq!(clone.now(), clone.now());
        // Joins the thread, which sleeps for a second unless it is woken.
        drop(clone);
        assert!(start.elapsed() < Duration::from_millis(900));
    }

    #[test]
    fn a_resolution_out_of_range_is_refused_with_the_range() {
        for wrong in [Duration::ZERO, Duration::from_micros(99), Duration::from_secs(2)] {
            let error = Clock::coarse(wrong).unwrap_err().to_string();
            assert!(error.contains("allowed: 100µs to 1s"), "{error}");
        }
    }

    #[test]
    fn the_origin_of_a_clock_that_has_run_for_a_while_lies_back() {
        let hour = Duration::from_secs(3600);
        let clock = Clock::manual();
        clock.set(Tick::ZERO + hour);
        let origin = Clock::from(clock).origin_since_epoch();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!((origin + hour).abs_diff(now) < Duration::from_secs(5));
    }

    #[test]
    fn the_origin_of_a_new_clock_is_now() {
        let clock = Clock::monotonic();
        let origin = clock.origin_since_epoch();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(now.abs_diff(origin) < Duration::from_secs(5));
    }
}
