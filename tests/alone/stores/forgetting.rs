//! Forgetting changes no decision, for any times that callers pass: stalled threads, clocks that
//! jump or are set back.
//!
//! A forgotten key is charged no earlier than the time at which it became idle. A map that never
//! forgets therefore makes the same decision, if it is asked at the time at which the charge
//! counts: `Decision::at`.

use super::store::{ALGORITHMS, Gate, IntoGate};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tollgate::{
    Algorithm, Chargeable, Decision, DecisionSource, Limiter, ManualClock, Quota, SingleLimiter, Tick,
    WhenFull,
};

const SECOND: u64 = 1_000_000_000;
const CENTURY: u64 = 36_525 * 24 * 3_600 * SECOND;

fn second(n: u64) -> Tick {
    Tick::from_nanos(n * SECOND)
}

fn single(quota: Quota, algorithm: Algorithm) -> SingleLimiter {
    SingleLimiter::builder(quota).algorithm(algorithm).clock(ManualClock::new()).build().unwrap()
}

/// A linear congruential generator (Knuth, MMIX), high bits.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn place(&mut self, n: u64) -> usize {
        usize::try_from(self.below(n)).unwrap()
    }
}

/// Each part of a batch counts at the time at which its keys are collected, so a slow iterator does
/// no harm.
#[test]
fn a_slow_iterator_gives_no_burst_twice() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        let clock = ManualClock::new();
        let builder = Limiter::builder(Quota::per_second(1)).algorithm(algorithm);
        let limiter: Gate<u64> = builder.clock(&clock).gate();
        let keys: Vec<u64> = (0..64).map(|n| if n % 32 == 0 { 7_777 } else { 1_000 + n }).collect();
        let (mut asked, mut decisions) = (0, Vec::new());
        let slow = keys.iter().inspect(|_| {
            asked += 1;
            if asked == 33 {
                clock.advance(Duration::from_secs(5));
                while limiter.sweep(4_096) {}
            }
        });
        limiter.check_many(slow, &mut decisions);
        let one = single(Quota::per_second(1), algorithm);
        for decision in [&decisions[0], &decisions[32], &limiter.check(&7_777)] {
            assert_eq!(decision.is_allowed(), one.at(decision.at()).check().is_allowed(), "{algorithm}");
        }
        assert_eq!(decisions[32].at(), second(5), "{algorithm}");
    }
}

#[test]
fn a_thread_that_was_stalled_finds_no_second_burst() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        let quota = Quota::per_second(10);
        let limiter: Gate<u64> =
            Limiter::builder(quota).algorithm(algorithm).clock(ManualClock::new()).gate();
        let one = single(quota, algorithm);
        let ask = |now| {
            let decision = limiter.at(now).check(&1);
            assert_eq!(decision.is_allowed(), one.at(decision.at()).check().is_allowed(), "{algorithm}");
            decision
        };
        let early: u64 = (0..20).map(|_| ask(second(0)).charged()).sum();
        while limiter.at(second(10)).sweep(4_096) {}
        assert!(limiter.is_empty());
        let late: Vec<_> = (0..20).map(|_| ask(second(0))).collect();
        let idle = if algorithm == Algorithm::SlidingWindow { 2 } else { 1 };
        assert_eq!((early, late[0].at()), (10, second(idle)), "{algorithm}");
    }
}

#[test]
fn a_clock_set_back_after_a_sweep_gives_no_burst_twice() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        let clock = ManualClock::new();
        let builder = Limiter::builder(Quota::per_second(2)).algorithm(algorithm);
        let limiter: Gate<String> = builder.clock(&clock).gate();
        let one = single(Quota::per_second(2), algorithm);
        for (now, cost) in [(100, 2), (110, 0), (100, 2), (109, 1), (100, 1), (101, 1), (111, 2)] {
            clock.set(second(now));
            if now == 110 {
                while limiter.sweep(4_096) {}
                assert!(limiter.is_empty());
            }
            let decision = limiter.check_n("alice", cost);
            assert_eq!(
                decision.is_allowed(),
                one.at(decision.at()).check_n(cost).is_allowed(),
                "{algorithm} {now}"
            );
        }
    }
}

/// Threads are preempted at any point, and the table forgets idle keys immediately.
#[test]
fn without_a_grace_no_two_charges_are_too_close() {
    let _alone = crate::alone();
    const INTERVAL: u64 = 20_000;
    const KEYS: usize = 32;
    let quota = Quota::new(1, Duration::from_nanos(INTERVAL));
    let limiter: Gate<u64> = Limiter::builder(quota).clock(ManualClock::new()).grace(Duration::ZERO).gate();
    let (time, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    // ORDERING: all of these are relaxed, because they are only a clock and a flag.
    let read = || Tick::from_nanos(time.fetch_add(1_000, Relaxed));
    let admitted = Mutex::new(vec![Vec::new(); KEYS]);
    thread::scope(|scope| {
        let checks: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for asked in 0..200_000 {
                        let key = asked % KEYS;
                        // The loop ends even if the other thread rarely gets a core.
                        if asked % 1_000 == 0 {
                            limiter.at(read()).sweep(4_096);
                        }
                        let decision = limiter.at(read()).check(&(key as u64));
                        if decision.is_allowed() {
                            admitted.lock().unwrap()[key].push(decision.at());
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                limiter.at(read()).sweep(4_096);
            }
        });
        for check in checks {
            check.join().unwrap();
        }
        is_over.store(true, Relaxed);
    });
    for mut times in admitted.into_inner().unwrap() {
        times.sort_unstable();
        let is_close = |two: &&[Tick]| two[1].since(two[0]).as_nanos() < u128::from(INTERVAL);
        assert_eq!(times.windows(2).filter(is_close).count(), 0, "of {}", times.len());
    }
    assert!(limiter.stats().evicted > 100, "{:?}", limiter.stats());
}

/// The admissions of a key, with the times at which they count.
#[derive(Default)]
struct Admitted(Vec<(u64, u64)>);

impl Admitted {
    fn note(&mut self, algorithm: Algorithm, quota: Quota, now: Tick, charge: &Decision) {
        let period = u64::try_from(quota.period().as_nanos()).unwrap();
        // Windows and logs count a stale charge at the key's time. This time is derived from the
        // time at which the charge stops counting.
        let until = (now + charge.reset_after()).as_nanos();
        let at = match algorithm {
            Algorithm::FixedWindow | Algorithm::SlidingLog => until.saturating_sub(period),
            Algorithm::SlidingWindow => until.saturating_sub(2 * period),
            _ => charge.at().as_nanos(),
        };
        self.0.push((at, charge.charged()));
    }

    /// Returns whether all trailing intervals of these times satisfy the bound of the algorithm.
    fn are_within_the_bound(mut self, algorithm: Algorithm, quota: Quota) -> bool {
        let (limit, period) = (u128::from(quota.tokens()), quota.period().as_nanos());
        self.0.sort_unstable();
        (0..self.0.len()).all(|first| {
            let mut sum = 0;
            self.0[first..].iter().all(|&(at, cost)| {
                sum += u128::from(cost);
                let span = u128::from(at - self.0[first].0);
                match algorithm {
                    Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::SlidingWindow => {
                        sum <= limit * (span / period + 1)
                    }
                    // A bucket may be two nanoseconds early if an interval is not a whole number of
                    // nanoseconds.
                    _ => sum * period <= limit * (period + span + 2),
                }
            })
        })
    }
}

/// The clocks of several callers. They advance, are set back, and jump.
struct Clocks {
    random: Random,
    now: u64,
    of: [i64; 4],
}

impl Clocks {
    fn read(&mut self) -> Tick {
        self.now += self.random.below(4_000_000);
        let caller = self.random.place(4);
        let by = i64::try_from(self.random.below(3 * SECOND)).unwrap();
        match self.random.below(400) {
            0 => self.of[caller] = -by,
            1 => self.of[caller] = by,
            2..=5 => self.of[caller] /= 2,
            6 => self.now += self.random.below(2 * SECOND),
            // One clock reading is far off.
            7 if self.random.below(10) == 0 => return Tick::from_nanos(self.now + CENTURY),
            _ => {}
        }
        Tick::from_nanos(self.now.saturating_add_signed(self.of[caller]))
    }
}

/// Compares a limiter at such times with a map that never forgets. The map is asked at the times at
/// which the limiter's charges count.
fn forgets_as_if_it_never_did(algorithm: Algorithm, seed: u64, gives_back: bool) -> (u64, u64) {
    let mut random = Random(seed);
    let period = [1 + random.below(50_000_000), 1 + random.below(SECOND)][random.place(2)];
    let quota = Quota::new(1 + random.below(5), Duration::from_nanos(period.max(10)));
    let grace = [0, 1_000_000, 50_000_000, SECOND][random.place(4)];
    let (cap, keys) = (1 + random.below(120), 1 + random.below(400));
    let builder =
        Limiter::builder(quota).algorithm(algorithm).clock(ManualClock::new()).when_full(WhenFull::Deny);
    let limiter: Gate<u64> =
        builder.max_keys(usize::try_from(cap).unwrap()).grace(Duration::from_nanos(grace)).gate();
    let mut map: HashMap<u64, (SingleLimiter, Admitted)> = HashMap::new();
    let mut clocks = Clocks { random: Random(!seed), now: 10 * SECOND, of: [0; 4] };
    let (mut last, mut late) = (None, 0);
    for step in 0..4_000 {
        let (now, key) = (clocks.read(), random.below(keys));
        let (one, admitted) =
            map.entry(key).or_insert_with(|| (single(quota, algorithm), Admitted::default()));
        match random.below(40) {
            0 => {
                limiter.at(now).sweep(usize::try_from(random.below(400)).unwrap());
            }
            1 if gives_back => {
                if let Some((key, charge, same)) = last.take() {
                    limiter.at(now).refund_n(&key, &charge, u64::MAX);
                    map[&key].0.at(now).refund_n(&same, u64::MAX);
                }
            }
            2 if gives_back => {
                limiter.reset(&key);
                one.reset();
                last = None;
            }
            3..=5 => {
                let peek = limiter.at(now).peek(&key);
                if peek.source() == DecisionSource::Key {
                    let expected = one.at(peek.at()).peek();
                    assert_eq!(
                        (peek.is_allowed(), peek.remaining()),
                        (expected.is_allowed(), expected.remaining()),
                        "{algorithm} seed {seed} step {step}: {peek:?}"
                    );
                }
            }
            _ => {
                let cost = random.below(quota.tokens() + 1);
                let decision = limiter.at(now).check_n(&key, cost);
                if decision.source() != DecisionSource::Key {
                    continue;
                }
                let expected = one.at(decision.at()).check_n(cost);
                let late_by = decision.at().since(now);
                late += u64::from(!late_by.is_zero() && decision.charged() > 0);
                assert_eq!(
                    (decision.is_allowed(), decision.remaining(), decision.retry_after()),
                    (expected.is_allowed(), expected.remaining(), expected.retry_after()),
                    "{algorithm} {quota} seed {seed} step {step} at {now:?}: {decision:?}"
                );
                if decision.charged() > 0 {
                    assert_eq!(decision.reset_after(), expected.reset_after() + late_by, "{algorithm}");
                    admitted.note(algorithm, quota, now, &decision);
                    last = Some((key, decision, expected));
                }
            }
        }
    }
    for (key, (_, admitted)) in map {
        assert!(gives_back || admitted.are_within_the_bound(algorithm, quota), "{algorithm} {seed} {key}");
    }
    (limiter.stats().evicted, late)
}

#[test]
fn at_any_times_a_map_that_never_forgets_decides_alike() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        let (mut evicted, mut late) = (0, 0);
        for seed in 0..60 {
            let done = forgets_as_if_it_never_did(algorithm, seed, seed % 2 == 0);
            (evicted, late) = (evicted + done.0, late + done.1);
        }
        assert!(evicted > 3_000 && late > 50, "{algorithm}: {evicted} evicted, {late} charged late");
    }
}

/// The table is full of keys that are throttled for an hour. A caller with a different clock
/// requests a place.
#[test]
fn a_time_a_century_ahead_is_neither_amnesty_nor_lock_out() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        let builder = Limiter::builder(Quota::per_hour(1)).algorithm(algorithm).max_keys(100);
        let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
        let (now, century) = (second(7_200), Tick::from_nanos(7_200 * SECOND + CENTURY));
        assert!((0..90).all(|key| limiter.at(now).check(&key).is_allowed()));
        // The caller first finds room, and then a full table.
        for key in 1_000..1_020 {
            let ahead = limiter.at(century).check(&key);
            assert_eq!(ahead.is_allowed(), ahead.source() == DecisionSource::Key);
            let (other, late) = (key + 1_000, limiter.at(now).check(&(key + 1_000)));
            assert_eq!(late.at(), now, "{algorithm}: {other} is not delayed");
            limiter.at(century).sweep(1);
            limiter.at(now).sweep(4_096);
        }
        assert_eq!(limiter.stats().evicted, 0, "{algorithm}");
        for key in 0..90 {
            let again = limiter.at(now).check(&key);
            assert_eq!((again.is_allowed(), again.source()), (false, DecisionSource::Key), "{algorithm}");
        }
    }
}

/// A sweep at a time far ahead forgets keys if other keys have reached that time. A forgotten key
/// is then charged no earlier than the time at which it would be idle, and other keys are delayed
/// by no more than that.
#[test]
fn a_jump_ahead_and_back_delays_no_longer_than_an_idle_time() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        let builder = Limiter::builder(Quota::per_minute(1)).algorithm(algorithm).max_keys(1_000);
        let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
        let (now, hour) = (second(7_200), second(10_800));
        assert!((0..90).all(|key| limiter.at(now).check(&key).is_allowed()));
        assert!((100..110).all(|key| limiter.at(hour).check(&key).is_allowed()));
        for _ in 0..2 {
            while limiter.at(hour).sweep(4_096) {}
        }
        assert_eq!(limiter.len(), 10, "{algorithm} {:?}", limiter.stats());
        let idle = second(7_200 + if algorithm == Algorithm::SlidingWindow { 120 } else { 60 });
        for key in [0, 1, 2, 500, 501] {
            let soon = second(7_201);
            let late = limiter.at(soon).check(&key);
            assert_eq!((late.is_allowed(), late.at()), (true, idle), "{algorithm}: {late:?}");
            let again = limiter.at(soon).check(&key);
            assert!(!again.is_allowed(), "{algorithm}");
            // The delay is exact to the tick.
            let then = soon + again.retry_after().unwrap();
            let before = Tick::from_nanos(then.as_nanos() - 1);
            assert!(!limiter.at(before).check(&key).is_allowed(), "{algorithm}");
            assert!(limiter.at(then).check(&key).is_allowed(), "{algorithm}");
        }
    }
}

/// The keys of a long burst become idle in a year. One request whose time is far ahead does not
/// make new keys wait until that time.
#[test]
fn one_time_far_ahead_delays_new_keys_by_no_other_keys_burst() {
    let _alone = crate::alone();
    let month = Duration::from_secs(30 * 24 * 3_600);
    let (quota, now) = (Quota::new(1, month).burst(12), second(1_000_000_000));
    for before in (1..400).step_by(7) {
        let limiter: Gate<u64> = Limiter::builder(quota).max_keys(1_000).clock(ManualClock::new()).gate();
        assert!((0..before).all(|key| limiter.at(now).check_n(&key, 12).is_allowed()));
        let _ = limiter.at(Tick::MAX).check(&1_000);
        assert!(limiter.at(now).check_n(&1_001, 12).is_allowed());
        assert_eq!(limiter.at(now).check(&1_001).retry_after(), Some(month), "after {before} keys");
    }
}

/// The limiter only knows the times of its calls, and a night passes between the calls of two days.
#[test]
fn a_log_of_days_still_makes_the_table_forget() {
    let _alone = crate::alone();
    for &algorithm in ALGORITHMS {
        let builder = Limiter::builder(Quota::per_second(1)).algorithm(algorithm).max_keys(100);
        let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
        let mut refused = 0;
        for key in 0..10_000 {
            let (day, line) = (key / 100, key % 100);
            let decision = limiter.at(second(day * 24 * 3_600 + 10 * line)).check(&key);
            refused += u64::from(decision.source() == DecisionSource::Policy);
        }
        assert_eq!(refused, 0, "{algorithm}: of 10,000");
        assert!(limiter.stats().evicted > 9_000, "{algorithm}: {:?}", limiter.stats());
    }
}

/// One key of a full table becomes idle just after all keys were judged, and the keys are judged
/// again only after another grace.
#[test]
fn an_idle_key_makes_room_after_so_many_were_refused() {
    let _alone = crate::alone();
    const CAP: u64 = 1_600;
    let quota = Quota::new(100, Duration::from_secs(1_000));
    let builder =
        Limiter::builder(quota).max_keys(usize::try_from(CAP).unwrap()).grace(Duration::from_secs(10));
    let limiter: Gate<u64> = builder.when_full(WhenFull::Deny).clock(ManualClock::new()).gate();
    for key in 0..CAP {
        // The 77th key is idle after ten seconds.
        assert!(limiter.at(second(1_000)).check_n(&key, if key == 77 { 1 } else { 100 }).is_allowed());
    }
    let refused = |key: u64, now| limiter.at(now).check(&key).source() == DecisionSource::Policy;
    let turned = limiter.stats().turnovers;
    let judged = (CAP..3 * CAP).take_while(|&key| {
        assert!(refused(key, Tick::from_nanos(1_019_500_000_000)));
        limiter.stats().turnovers == turned
    });
    assert!(judged.count() < 100);
    let refused = (CAP..5 * CAP).take_while(|&key| refused(key, second(1_021))).count() as u64;
    assert!(refused <= 4_096 + 8, "{refused} were refused");
    assert_eq!(limiter.stats().evicted, 1);
}

/// A thread that inserts keys at an old time contradicts each sweep. The sweep still ends.
#[test]
fn a_sweep_that_is_contradicted_ends() {
    let _alone = crate::alone();
    let builder = Limiter::builder(Quota::per_hour(1)).max_keys(10).grace(Duration::from_secs(10));
    let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
    assert!((0..10).all(|key| limiter.at(second(100)).check(&key).is_allowed()));
    let mut others = 10..1_000;
    // The time is three years ahead.
    while limiter.at(second(100_000_000)).sweep(1) {
        assert!(!limiter.at(second(100)).check(&others.next().unwrap()).is_allowed());
    }
    assert_eq!((limiter.len(), limiter.stats().evicted), (10, 0));
    assert!(others.start > 13);
}
