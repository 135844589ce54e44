//! Converts counts of the processor's counter to readings of the system clock. The counter is
//! trusted for only a millisecond at a time.
//!
//! A [`CounterReader`] keeps an *anchor*, which is a count and the system time at that count. A
//! reading computes the time that the counter has measured since the anchor. If this time is
//! between 0 and a millisecond, the reader adds it to the anchor's time. Otherwise the reader reads
//! the system clock and creates a new anchor. The counter thus only interpolates, and the system
//! clock determines the rate and the time.
//!
//! # The rate
//!
//! From one anchor to the next, the reader measures the nanoseconds per count. It uses this rate as
//! soon as two consecutive measurements agree to within one part in 32. Until then, and after a
//! jump of the counter, the reader uses the system clock, for two milliseconds at most. No caller
//! waits for a calibration. The reader also detects a change of the rate, for example after a
//! virtual machine has moved to another processor.
//!
//! # Invariants
//!
//! These invariants hold whatever the counter does, and wherever the thread is stopped:
//!
//! 1. *Early by less than a millisecond.* An anchor's time is never later than the system clock,
//!    and a reading adds less than [`SPAN`] to it.
//! 2. *Late by at most [`GAP`] plus the time that the counter has lost* against the system clock
//!    since the anchor. The reader reads the system clock before and after the counter, and creates
//!    an anchor only if the two readings differ by at most [`GAP`]. A counter loses time while it
//!    stands still, when it steps back, or when it slows down. For example, a counter that slows
//!    down to an eighth of its rate loses seven milliseconds. A counter also loses time if its
//!    measured rate was a little too low. That loss is at most 16 µs in a millisecond, which occurs
//!    if each of two anchors was created at the end of its gap.
//! 3. *A loss ends within a millisecond of counting*, because the anchor ends then. While a thread
//!    keeps reading, a step back costs at most a millisecond, because a longer step leaves the
//!    anchor's range immediately. The count can return to that range only after a pause about as
//!    long as the step. The first readings after the pause are then late by the whole step.
//! 4. *Never back within a thread.* The reader remembers the latest time that it has returned, and
//!    never returns an earlier time.
//!
//! Invariants 1 and 2 allow a thread to read an earlier time than another thread has already read.
//! The difference is less than a millisecond plus the time lost by the later reader's counter.
//! While both threads keep reading, the difference is less than two milliseconds. If the counters
//! of all cores are in step, it is less than 0.1 ms, and typically a few nanoseconds.
//!
//! # Orderings
//!
//! Threads share no data here, because each thread has its own reader. This module therefore
//! contains no atomic operations, and needs no model.
//!
//! # Progress
//!
//! A reading is wait-free: it takes no lock, contains no loop and does not allocate.

use std::cell::Cell;

/// The number of counted nanoseconds after which an anchor ends.
const SPAN: u64 = 1_000_000;

/// The maximum number of nanoseconds, according to the system clock, that may pass while the
/// counter is read for an anchor. Reading the counter takes about 50 ns, or longer if the thread is
/// interrupted.
const GAP: u64 = 4_000;

/// The minimum number of nanoseconds over which a rate is measured. This is less than [`SPAN`],
/// because an anchor with a slightly wrong rate may end slightly before a millisecond has passed.
const MEASURED: u64 = SPAN / 2;

/// Two measurements of the rate agree if they differ by at most one part in this number. Each
/// measurement may be wrong by twice [`GAP`] in [`MEASURED`], which is half of the allowed
/// difference.
const AGREEMENT: u64 = 32;

/// Rates are expressed as nanoseconds per count, times two to the power of `RATE_BITS`.
const RATE_BITS: u32 = 32;

/// The rate of every real counter lies between these two rates: 64 counts per nanosecond, and one
/// count in 4 µs.
const FASTEST: u64 = 1 << (RATE_BITS - 6);
const SLOWEST: u64 = 1 << (RATE_BITS + 12);

/// The clocks that a [`CounterReader`] reads.
pub(super) trait Source {
    /// The counter.
    fn count(&self) -> u64;
    /// The system clock in nanoseconds. It is at most 2^63, and never steps back.
    fn system(&self) -> u64;
}

/// A count, and the system time at that count.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    count: u64,
    time: u64,
    /// The last measured rate; 0 if no rate was measured.
    rate: u64,
    /// How many counts after `count` this anchor ends; 0 until two measurements of the rate agree.
    span: u64,
}

impl Anchor {
    /// A thread's initial anchor, with count 0 and time 0. The first measured rate is therefore the
    /// average since the machine was started.
    const NONE: Self = Self { count: 0, time: 0, rate: 0, span: 0 };

    /// Returns the time at `count`, if the anchor is valid there.
    #[inline(always)]
    fn time_at(self, count: u64) -> Option<u64> {
        let counted = count.wrapping_sub(self.count);
        // A count before the anchor wraps around to a very large number. The product is less than
        // the dividend in `spanning`, so it does not overflow.
        (counted < self.span).then(|| self.time + ((counted * self.rate) >> RATE_BITS))
    }

    /// Returns the next anchor, for a `count` that was read between two readings of the system
    /// clock.
    fn next(self, before: u64, count: u64, after: u64) -> Self {
        let passed = before.saturating_sub(self.time);
        // If the thread was stopped between the two readings, the time of the count is only roughly
        // known. The reader then keeps the old anchor, which is still valid.
        let is_vague = after.saturating_sub(before) > GAP;
        if is_vague || passed < MEASURED {
            return self;
        }
        let rate = self.rate_since(count, passed);
        let is_agreed = rate != 0 && rate.abs_diff(self.rate) <= self.rate / AGREEMENT;
        Self { count, time: before, rate, span: if is_agreed { spanning(rate) } else { 0 } }
    }

    /// Returns the rate of a counter that reached `count` in `passed` nanoseconds, or 0 if no real
    /// counter runs at that rate.
    fn rate_since(self, count: u64, passed: u64) -> u64 {
        let counted = u128::from(count.wrapping_sub(self.count));
        let rate = (u128::from(passed) << RATE_BITS).checked_div(counted);
        let rate = rate.and_then(|rate| u64::try_from(rate).ok());
        rate.filter(|rate| (FASTEST..=SLOWEST).contains(rate)).unwrap_or(0)
    }
}

/// Returns the number of counts in [`SPAN`] nanoseconds at this rate.
fn spanning(rate: u64) -> u64 {
    (SPAN << RATE_BITS) / rate
}

/// The state of one thread that reads a guarded counter.
#[derive(Debug)]
pub(super) struct CounterReader {
    anchor: Cell<Anchor>,
    /// The latest time that `now` has returned.
    latest: Cell<u64>,
}

impl CounterReader {
    pub(super) const fn new() -> Self {
        Self { anchor: Cell::new(Anchor::NONE), latest: Cell::new(0) }
    }

    /// Returns the current system time in nanoseconds.
    #[inline(always)]
    pub(super) fn now(&self, source: &impl Source) -> u64 {
        match self.anchor.get().time_at(source.count()) {
            Some(time) => self.no_earlier(time),
            None => self.ask(source),
        }
    }

    /// Reads the system clock, and creates a new anchor. This is the slow path.
    #[cold]
    #[inline(never)]
    fn ask(&self, source: &impl Source) -> u64 {
        let (before, count, after) = (source.system(), source.count(), source.system());
        self.anchor.set(self.anchor.get().next(before, count, after));
        self.no_earlier(after)
    }

    /// Returns `time`, or the latest time that was returned before, whichever is later.
    #[inline(always)]
    fn no_earlier(&self, time: u64) -> u64 {
        if time < self.latest.get() {
            return self.stepped_back();
        }
        self.latest.set(time);
        time
    }

    /// Answers a reading that would step back. This is rare, so it is a branch: a maximum would
    /// delay every reading by the latest time.
    #[cold]
    #[inline(never)]
    fn stepped_back(&self) -> u64 {
        self.latest.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limiter::{Chargeable, SingleLimiter};
    use crate::quota::Quota;
    use crate::time::Tick;
    use proptest::prelude::*;

    const MILLISECOND: u64 = 1_000_000;
    const SECOND: i64 = 1_000_000_000;
    /// The error of a measured rate after a millisecond, plus the duration of a call.
    const ROUGHLY: u64 = 17_000;

    /// A fake system clock and a fake counter. Both advance with each reading, and whenever the
    /// test moves them.
    struct Fake {
        now: Cell<u64>,
        /// The counter, in millionths of a count.
        counted: Cell<u128>,
        /// Counts per millisecond.
        rate: Cell<u64>,
        /// How many counts the current core is ahead.
        ahead: Cell<i64>,
        /// The number of readings after which the thread is stopped, and the duration of the stop.
        stop: Cell<Option<(u32, u64)>>,
        /// The maximum random delay of a reading, in nanoseconds.
        jitter: Cell<u64>,
        chance: Cell<u64>,
        /// How often the system's clock was read.
        asked: Cell<u64>,
    }

    impl Fake {
        const RATE: u64 = 2_445_420;

        fn new() -> Self {
            Self {
                now: Cell::new(77 * MILLISECOND),
                counted: Cell::new(1 << 90),
                rate: Cell::new(Self::RATE),
                ahead: Cell::new(0),
                stop: Cell::new(None),
                jitter: Cell::new(0),
                chance: Cell::new(1),
                asked: Cell::new(0),
            }
        }

        /// Returns a reader that has measured the rate.
        fn settled(&self) -> CounterReader {
            let reader = CounterReader::new();
            self.watch(&reader, 3 * MILLISECOND, 10_000);
            assert!(reader.anchor.get().span > 0);
            reader
        }

        /// Reads the clock every `every` nanoseconds, for `long` nanoseconds.
        fn watch(&self, reader: &CounterReader, long: u64, every: u64) {
            for _ in 0..long / every {
                self.pass(every);
                reader.now(self);
            }
        }

        fn pass(&self, nanos: u64) {
            self.now.set(self.now.get() + nanos);
            self.counted.set(self.counted.get() + u128::from(nanos) * u128::from(self.rate.get()));
        }

        /// Moves the counter ahead or back by as many counts as it makes in `nanos` nanoseconds.
        fn jump(&self, nanos: i64) {
            let counts = i128::from(nanos) * i128::from(Self::RATE) / 1_000_000;
            self.ahead.set(self.ahead.get() + i64::try_from(counts).unwrap());
        }

        fn to_read(&self) {
            let chance = self.chance.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.chance.set(chance);
            self.pass(20 + (chance >> 33) % (self.jitter.get() + 1));
            match self.stop.take() {
                Some((0, long)) => self.pass(long),
                Some((readings, long)) => self.stop.set(Some((readings - 1, long))),
                None => {}
            }
        }
    }

    impl Source for Fake {
        fn count(&self) -> u64 {
            self.to_read();
            // The counter wraps around, as a real counter does.
            #[allow(clippy::cast_possible_truncation)]
            let counted = (self.counted.get() / 1_000_000) as u64;
            counted.wrapping_add_signed(self.ahead.get())
        }

        fn system(&self) -> u64 {
            self.to_read();
            self.asked.set(self.asked.get() + 1);
            self.now.get()
        }
    }

    /// Two limiters that are checked at the same times. One uses the guarded counter, and the other
    /// uses the system clock.
    struct Beside {
        guarded: SingleLimiter,
        exact: SingleLimiter,
        /// How many more requests the guarded limiter has admitted than the other limiter.
        more: i64,
        most: i64,
        least: i64,
    }

    impl Beside {
        /// Tokens per millisecond.
        const RATE: i64 = 1_000;

        fn new() -> Self {
            let build = || SingleLimiter::builder(Quota::per_second(1_000_000).burst(1)).build().unwrap();
            Self { guarded: build(), exact: build(), more: 0, most: 0, least: 0 }
        }

        /// Checks both limiters twice for each token.
        fn ask(&mut self, fake: &Fake, reader: &CounterReader, long: u64) {
            for _ in 0..long / 500 {
                fake.pass(500);
                let time = reader.now(fake);
                let admitted = self.guarded.at(Tick::from_nanos(time)).check().is_allowed();
                let exactly = self.exact.at(Tick::from_nanos(fake.now.get())).check().is_allowed();
                self.more += i64::from(admitted) - i64::from(exactly);
                (self.most, self.least) = (self.most.max(self.more), self.least.min(self.more));
            }
        }

        /// Asserts that the tokens granted or denied in excess are less than the rate times a
        /// millisecond, plus the error of a measured rate.
        #[track_caller]
        fn assert_within_a_millisecond(&self) {
            let most = Self::RATE + 17;
            assert!(self.most <= most && self.least >= -most, "from {} to {}", self.least, self.most);
        }
    }

    /// Disturbs the counter at many points within the millisecond for which an anchor is valid, and
    /// checks both limiters before and after each disturbance.
    #[track_caller]
    fn disturbed(disturb: impl Fn(&Fake)) {
        for phase in 0..20 {
            let fake = Fake::new();
            let (reader, mut beside) = (fake.settled(), Beside::new());
            beside.ask(&fake, &reader, 2 * MILLISECOND + phase * 53_000);
            disturb(&fake);
            beside.ask(&fake, &reader, 4 * MILLISECOND);
            beside.assert_within_a_millisecond();
            let (time, now) = (reader.now(&fake), fake.now.get());
            assert!(time.abs_diff(now) <= GAP + ROUGHLY, "{time} is not {now} again");
        }
    }

    #[test]
    fn a_counter_reset_to_0_costs_a_millisecond_at_most() {
        disturbed(|fake| fake.counted.set(0));
        disturbed(|fake| fake.counted.set(0x1234_5678_9abc));
    }

    #[test]
    fn a_jump_ahead_costs_a_millisecond_at_most() {
        for jump in [100, 500_000, 900_000, 1_000_000, 5_000_000, 1_600_000_000, 1 << 60] {
            disturbed(|fake| fake.jump(jump));
        }
    }

    #[test]
    fn a_jump_back_costs_a_millisecond_at_most() {
        for jump in [100, 500_000, 900_000, 1_000_000, 5_000_000, 1_600_000_000, 1 << 60] {
            disturbed(|fake| fake.jump(-jump));
        }
    }

    #[test]
    fn a_core_1600_ms_behind_costs_a_millisecond_at_most() {
        for stay in [70, 300, 700, 1_100, 2_500] {
            let fake = Fake::new();
            let (reader, mut beside) = (fake.settled(), Beside::new());
            for _ in 0..20 {
                fake.jump(-16 * SECOND / 10);
                beside.ask(&fake, &reader, stay * 1_000);
                fake.jump(16 * SECOND / 10);
                beside.ask(&fake, &reader, stay * 1_000);
            }
            beside.assert_within_a_millisecond();
        }
    }

    #[test]
    fn an_hour_of_suspend_costs_a_millisecond_at_most() {
        let hour = 3_600 * SECOND.unsigned_abs();
        // The counter stood still, but the system clock did not.
        disturbed(|fake| fake.now.set(fake.now.get() + hour));
        // The counter kept running, but the system clock did not.
        disturbed(|fake| fake.jump(3_600 * SECOND));
        // Both kept running.
        disturbed(|fake| fake.pass(hour));
        // Both stood still, and the counter restarted at 0.
        disturbed(|fake| fake.counted.set(0));
    }

    #[test]
    fn two_hundred_ppm_of_drift_change_no_rate() {
        for rate in [Fake::RATE - Fake::RATE / 5_000, Fake::RATE + Fake::RATE / 5_000] {
            let fake = Fake::new();
            let (reader, mut beside) = (fake.settled(), Beside::new());
            fake.rate.set(rate);
            beside.ask(&fake, &reader, 200 * MILLISECOND);
            // The two limiters differ by at most one in 200,000 requests. With the counter alone,
            // they would differ by forty.
            assert!(beside.most <= 1 && beside.least >= -1, "from {} to {}", beside.least, beside.most);
            assert!(reader.now(&fake).abs_diff(fake.now.get()) < 500);
        }
    }

    /// This happens when a virtual machine moves to another processor.
    #[test]
    fn another_rate_costs_a_millisecond_at_most_and_is_found() {
        for rate in [Fake::RATE / 2, Fake::RATE * 5 / 4, Fake::RATE * 2] {
            disturbed(|fake| fake.rate.set(rate));
        }
    }

    #[test]
    fn a_thread_stopped_between_two_readings_is_off_by_the_gap_at_most() {
        let pauses = [MILLISECOND, 1_000 * MILLISECOND];
        let stops = [3_900, 4_000, 20_000, 100_000, 999_000, 5 * MILLISECOND, 10_000 * MILLISECOND];
        for (pause, long) in pauses.iter().flat_map(|&pause| stops.map(|stop| (pause, stop))) {
            // The thread is stopped before it reads the count, and before each of the three
            // readings for an anchor.
            for reading in 0..4 {
                let fake = Fake::new();
                let reader = fake.settled();
                // Let all earlier anchors expire. (After a long pause, a stop hardly changes the
                // measured rate.)
                fake.pass(pause);
                fake.stop.set(Some((reading, long)));
                for _ in 0..5_000 {
                    let before = fake.now.get();
                    let time = reader.now(&fake);
                    let most = fake.now.get() + ROUGHLY;
                    assert!(time <= most, "{time} is early after {long} ns");
                    assert!(time + GAP + ROUGHLY >= before, "{time} is late after {long} ns");
                    fake.pass(1_000);
                }
            }
        }
    }

    #[test]
    fn a_new_thread_whose_readings_take_long_finds_no_wrong_rate() {
        for seed in 0..200 {
            let fake = Fake::new();
            fake.jitter.set(1_900);
            fake.chance.set(seed);
            let reader = CounterReader::new();
            for _ in 0..3_000 {
                fake.pass(300);
                let before = fake.now.get();
                let time = reader.now(&fake);
                let (least, most) = (before - GAP - ROUGHLY, fake.now.get() + ROUGHLY);
                assert!((least..=most).contains(&time), "{time} is not in {least}..={most}, {seed}");
            }
            assert!(reader.anchor.get().span > 0);
        }
    }

    /// To the reader, this case looks the same as a pause of less than a millisecond.
    #[test]
    fn after_a_pause_as_long_as_a_step_back_it_is_late_for_a_millisecond() {
        let fake = Fake::new();
        let reader = fake.settled();
        let anchored = reader.anchor.get().time;
        let step = 1_600 * MILLISECOND;
        // A tenth of a millisecond passes in addition to the step.
        fake.pass(anchored + step + MILLISECOND / 10 - fake.now.get());
        fake.jump(-16 * SECOND / 10);
        assert!(fake.now.get() - reader.now(&fake) > step - MILLISECOND);
        fake.watch(&reader, MILLISECOND, 1_000);
        assert!(reader.now(&fake).abs_diff(fake.now.get()) <= GAP + ROUGHLY);
    }

    #[test]
    fn the_system_is_asked_once_a_millisecond() {
        let fake = Fake::new();
        let reader = fake.settled();
        fake.asked.set(0);
        fake.watch(&reader, 100 * MILLISECOND, 1_000);
        // For each anchor, the system clock was read both before and after the count.
        assert!((190..=210).contains(&fake.asked.get()), "{} times", fake.asked.get());
    }

    #[test]
    fn a_new_thread_asks_the_system_for_two_milliseconds_at_most() {
        let fake = Fake::new();
        let reader = CounterReader::new();
        fake.watch(&reader, 2 * MILLISECOND, 1_000);
        fake.asked.set(0);
        fake.watch(&reader, MILLISECOND / 2, 1_000);
        assert!(fake.asked.get() <= 2, "{} times", fake.asked.get());
    }

    /// Includes a counter like the one in an ARM processor, which ticks once every 41 ns.
    #[test]
    fn slow_and_fast_counters_keep_the_system_s_time() {
        for rate in [1_000, 24_000, 1_000_000, 6_000_000, 60_000_000] {
            let fake = Fake::new();
            fake.rate.set(rate);
            let reader = CounterReader::new();
            fake.watch(&reader, 3 * MILLISECOND, 10_000);
            fake.asked.set(0);
            for _ in 0..10_000 {
                fake.pass(700);
                let time = reader.now(&fake);
                // One count of the slowest counter is a microsecond.
                assert!(time.abs_diff(fake.now.get()) <= 2_200, "{time} at {}, {rate}", fake.now.get());
            }
            assert!(fake.asked.get() < 30, "{} times at {rate}", fake.asked.get());
        }
    }

    /// An anchor of a fast counter is valid for many counts. If the counter slows down, the anchor
    /// ends only after that many slow counts.
    #[test]
    fn a_counter_that_slows_down_is_late_until_its_last_anchor_ends() {
        let fake = Fake::new();
        fake.rate.set(8 * Fake::RATE);
        let reader = CounterReader::new();
        fake.watch(&reader, 3 * MILLISECOND, 10_000);
        let anchored = reader.anchor.get().time;
        while reader.anchor.get().time == anchored {
            fake.watch(&reader, 10_000, 10_000);
        }
        assert!(reader.anchor.get().span > 0);
        fake.rate.set(Fake::RATE);
        fake.watch(&reader, 6 * MILLISECOND, 10_000);
        assert!(reader.now(&fake) + 4 * MILLISECOND < fake.now.get());
        fake.watch(&reader, 4 * MILLISECOND, 10_000);
        assert!(reader.now(&fake).abs_diff(fake.now.get()) <= GAP + ROUGHLY);
        assert!(reader.anchor.get().span > 0);
    }

    #[test]
    fn what_is_no_counter_is_never_trusted() {
        for rate in [0, 1, 100, 100_000_000] {
            let fake = Fake::new();
            fake.rate.set(rate);
            let reader = CounterReader::new();
            for _ in 0..10_000 {
                fake.pass(1_000);
                assert_eq!(reader.now(&fake), fake.now.get());
            }
        }
    }

    #[test]
    fn threads_on_cores_in_step_are_less_than_0_1_ms_apart() {
        let fake = Fake::new();
        let readers = [fake.settled(), CounterReader::new(), fake.settled()];
        let mut latest = 0;
        for step in 0..30_000 {
            fake.pass(700);
            let time = readers[step % 3].now(&fake);
            assert!(time + 100_000 > latest, "{time} after {latest}");
            latest = latest.max(time);
        }
    }

    /// How far a core's counter is ahead or behind, in nanoseconds. The difference is at most two
    /// seconds, and often less than a millisecond.
    fn core() -> impl Strategy<Value = i64> {
        prop_oneof![Just(0), -1_000_000..=1_000_000_i64, -2 * SECOND..=2 * SECOND]
    }

    proptest! {
        /// Two threads read at least every 50 µs, each on either of two cores.
        #[test]
        fn no_thread_is_further_than_a_millisecond_from_the_system_s_clock(
            ahead in core(),
            steps in prop::collection::vec((0..50_000_u64, any::<prop::sample::Index>(), 0..40_u8), 1..400),
        ) {
            let fake = Fake::new();
            let readers = [fake.settled(), fake.settled()];
            // The first reader paused while the second reader settled. This pause is longer than
            // any later pause in this test.
            readers[0].now(&fake);
            let (mut latest, mut is_away) = ([0, 0], false);
            for (nanos, _, what) in steps {
                fake.pass(nanos);
                // Occasionally a thread moves to another core, or is stopped between two readings.
                match what {
                    0 | 1 => {
                        fake.jump(if is_away { -ahead } else { ahead });
                        is_away = !is_away;
                    }
                    2..5 => fake.stop.set(Some((u32::from(what) - 1, nanos))),
                    _ => {}
                }
                let latest_of_both = latest[0].max(latest[1]);
                for (reader, latest) in readers.iter().zip(&mut latest) {
                    let before = fake.now.get();
                    let time = reader.now(&fake);
                    let longest = MILLISECOND + GAP + ROUGHLY + 2 * 50_000;
                    prop_assert!(time < fake.now.get() + MILLISECOND, "{} early", time - fake.now.get());
                    prop_assert!(time + longest > before, "{} late", before - time);
                    prop_assert!(time >= *latest, "{} back", *latest - time);
                    let apart = longest + MILLISECOND;
                    prop_assert!(time + apart > latest_of_both, "{} back", latest_of_both - time);
                    *latest = time;
                }
            }
        }

        /// The counter may run at any speed and behave arbitrarily, and the thread may pause for
        /// any length of time.
        #[test]
        fn no_counter_makes_a_reading_early_by_a_millisecond_or_step_back(
            steps in prop::collection::vec((0..3_000_000_u64, any::<i32>(), 0..60_u8), 1..200),
        ) {
            let fake = Fake::new();
            let reader = fake.settled();
            let mut latest = 0;
            for (nanos, by, what) in steps {
                fake.pass(if by % 3 == 0 { nanos } else { nanos / 100 });
                match what {
                    0 => fake.jump(i64::from(by)),
                    1 => fake.ahead.set(i64::from(by) << 30),
                    2 => fake.jump(-i64::from(by % 1_000_000)),
                    3 => fake.rate.set(u64::from(by.unsigned_abs())),
                    4..8 => fake.stop.set(Some((u32::from(what) - 4, nanos))),
                    8 => fake.now.set(fake.now.get() + nanos),
                    _ => fake.rate.set(Fake::RATE),
                }
                let time = reader.now(&fake);
                prop_assert!(time < fake.now.get() + MILLISECOND, "{} early", time - fake.now.get());
                prop_assert!(time >= latest, "{} back", latest - time);
                latest = time;
            }
            // If the counter was faster before, two anchors may be valid for longer than a
            // millisecond after the counter recovers: the last anchor, and an anchor whose rate was
            // measured across the change. Three milliseconds later the reader has recovered as
            // well.
            fake.rate.set(Fake::RATE);
            for after in [1, 3] {
                let anchored = reader.anchor.get().span.div_ceil(Fake::RATE);
                fake.watch(&reader, (anchored + after) * MILLISECOND, 10_000);
            }
            let (time, now) = (reader.now(&fake), fake.now.get());
            prop_assert!(time.abs_diff(now) <= GAP + ROUGHLY, "{} is not {} again", time, now);
            prop_assert!(reader.anchor.get().span > 0);
        }
    }
}
