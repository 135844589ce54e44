//! On real threads, no trailing interval admits more than the algorithm's bound, judged by the
//! times of the admissions.
//!
//! Four threads request far more than they may have, at times that advance, stand still and are
//! stale, from a limiter that turns over all the time. The admissions of each key are sorted by
//! time, and the intervals between any two admissions are compared with the *Bound* of the
//! algorithm's page.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use tollgate::rule::{AnyRule, Rule, Word};
use tollgate::store::{Accepts, Store};
use tollgate::{
    Algorithm, Builder, Chargeable, Decision, DecisionSource, Limiter, ManualClock, Quota, SingleLimiter,
    Tick, WhenFull,
};
use tollgate_testing::race::{PACKED, Random, StartLine};

const MILLI: u64 = 1_000_000;
/// The largest difference between times that are used together.
const GRACE: u64 = 4 * MILLI;
const THREADS: usize = 4;
const ROUNDS: u64 = 1_000;
/// The keys whose bounds are checked.
const KEYS: u64 = 3;
/// How many nanoseconds early a bucket may be if an interval is not a whole number of nanoseconds.
const EARLY: i128 = 2;

/// One token in 2 ms, and one in 1.428571... ms.
const QUOTAS: [Quota; 2] =
    [Quota::new(5, Duration::from_millis(10)), Quota::new(7, Duration::from_millis(10))];

/// A limiter from which threads request tokens.
trait Target: Sync {
    /// Charges the key's state, and returns the charge if the request was admitted.
    fn charge(&self, key: u64, cost: u64, now: Tick) -> Option<Decision>;
    /// Performs other work on the limiter during the race.
    fn disturb(&self, random: &mut Random, now: Tick);
}

impl<S: Store + Accepts<u64> + Sync> Target for Limiter<u64, S> {
    fn charge(&self, key: u64, cost: u64, now: Tick) -> Option<Decision> {
        let decision = self.at(now).check_n(&key, cost);
        (decision.source() == DecisionSource::Key && decision.is_allowed()).then_some(decision)
    }

    fn disturb(&self, random: &mut Random, now: Tick) {
        let _ = self.at(now).check(&(KEYS + random.below(2_000)));
        if random.below(4) == 0 {
            let _ = self.at(now).sweep(32);
        }
    }
}

impl Target for Vec<SingleLimiter> {
    fn charge(&self, key: u64, cost: u64, now: Tick) -> Option<Decision> {
        let decision = self[usize::try_from(key).unwrap()].at(now).check_n(cost);
        decision.is_allowed().then_some(decision)
    }

    fn disturb(&self, _random: &mut Random, _now: Tick) {}
}

/// A limiter that is broken on purpose: it reads the word under one lock, and changes it under
/// another.
struct CheckThenAct {
    rule: AnyRule,
    words: Vec<Mutex<Word>>,
}

impl Target for CheckThenAct {
    fn charge(&self, key: u64, cost: u64, now: Tick) -> Option<Decision> {
        let word = &self.words[usize::try_from(key).unwrap()];
        let found = *word.lock().unwrap();
        thread::yield_now();
        let (next, decision) = self.rule.decide(found, now, cost);
        *word.lock().unwrap() = next;
        decision.is_allowed().then_some(decision)
    }

    fn disturb(&self, _random: &mut Random, _now: Tick) {}
}

/// An admission of a key.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    /// Returns the time at which the admission counts. A window counts a stale time at the
    /// beginning of the window that the key has reached.
    at: u64,
    cost: u64,
    /// The time at which the request may start.
    starts: u64,
}

impl Admitted {
    fn new(decision: &Decision, algorithm: Algorithm, period: u64) -> Self {
        let asked_at = decision.at().as_nanos();
        let nanos = |wait: Duration| u64::try_from(wait.as_nanos()).unwrap();
        let until = asked_at + nanos(decision.reset_after());
        let at = match algorithm {
            Algorithm::FixedWindow => asked_at.max(until - period),
            Algorithm::SlidingWindow => asked_at.max(until - 2 * period),
            _ => asked_at,
        };
        Self { at, cost: decision.charged(), starts: asked_at + nanos(decision.start_after()) }
    }
}

/// Lets the threads race. Returns the admissions of each key, ordered by time.
fn race(target: &impl Target, algorithm: Algorithm, quota: Quota, seed: u64) -> Vec<Vec<Admitted>> {
    let period = u64::try_from(quota.period().as_nanos()).unwrap();
    let line = StartLine::new(THREADS);
    let run = |thread: usize| {
        // All threads draw the same times.
        let mut times = Random(seed);
        let mut random = Random(seed ^ 1 << 40 ^ (thread as u64) << 50);
        let mut admitted = Vec::new();
        let (mut time, mut lane) = (1_000 * MILLI, line.lane());
        for _ in 0..ROUNDS {
            lane.wait();
            for _ in 0..4 {
                let now = Tick::from_nanos(time + random.below(GRACE + 1));
                target.disturb(&mut random, now);
                let key = random.below(KEYS);
                // A queue's bound on starts holds for requests of one token.
                let cost = if algorithm == Algorithm::LeakyQueue { 1 } else { 1 + random.below(4) / 3 };
                if let Some(decision) = target.charge(key, cost, now) {
                    admitted.push((key, Admitted::new(&decision, algorithm, period)));
                }
            }
            // Most pauses are shorter than the time of a token. A few are so long that the key
            // becomes idle.
            time += match times.below(50) {
                0 => 40 * MILLI,
                _ => times.below(GRACE),
            };
        }
        admitted
    };
    let all: Vec<(u64, Admitted)> = thread::scope(|scope| {
        let racers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        racers.into_iter().flat_map(|racer| racer.join().unwrap()).collect()
    });
    let of_key = |key| {
        let mut of_key: Vec<_> =
            all.iter().filter(|(of, _)| *of == key).map(|(_, admitted)| *admitted).collect();
        of_key.sort_by_key(|admitted| admitted.at);
        of_key
    };
    (0..KEYS).map(of_key).collect()
}

/// Considers every interval between two of these times, which ascend. Returns the largest excess of
/// an interval's tokens over the refill at the rate, multiplied by the period.
fn most_beyond_the_rate(times: impl IntoIterator<Item = (u64, u64)>, limit: i128, period: i128) -> i128 {
    let (mut taken, mut best_start, mut most) = (0, i128::MIN, i128::MIN);
    for (at, cost) in times {
        best_start = best_start.max(i128::from(at) * limit - taken);
        taken += i128::from(cost) * period;
        most = most.max(taken - i128::from(at) * limit + best_start);
    }
    most
}

/// Returns the maximum number of tokens admitted between two times that are `span` apart, both
/// included.
fn most_within(admitted: &[Admitted], span: u64) -> u64 {
    let (mut first, mut sum, mut most) = (0, 0, 0);
    for last in admitted {
        sum += last.cost;
        while admitted[first].at + span < last.at {
            sum -= admitted[first].cost;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

/// Returns the fault in a key's admissions. Too few admissions to show anything are also a fault.
fn verdict(algorithm: Algorithm, quota: Quota, admitted: &[Admitted]) -> Result<(), String> {
    let period = u64::try_from(quota.period().as_nanos()).unwrap();
    let (limit, nanos) = (i128::from(quota.tokens()), i128::from(period));
    if algorithm.has_windows() {
        // The bound is stepped, and it is tightest just below a whole number of periods.
        for periods in 1..=5 {
            let most = most_within(admitted, periods * period - 1);
            let bound = quota.tokens() * (periods + 1);
            if most > bound {
                return Err(format!("{most} within {periods} periods, where {bound} is the most"));
            }
        }
        let in_one = most_within(admitted, period - 1);
        assert!(in_one > quota.tokens(), "{algorithm}: {in_one} in a period do not come near the bound");
        return Ok(());
    }
    let early = if nanos % limit == 0 { 0 } else { EARLY * limit };
    let most = most_beyond_the_rate(admitted.iter().map(|one| (one.at, one.cost)), limit, nanos);
    if most > limit * nanos + early {
        return Err(format!("{most} beyond the rate, where {limit} x {nanos} is the most"));
    }
    assert!(10 * most > 9 * limit * nanos, "{algorithm}: {most} beyond the rate are far from a full burst");
    if algorithm == Algorithm::LeakyQueue {
        let mut starts: Vec<_> = admitted.iter().map(|one| (one.starts, 1)).collect();
        starts.sort_unstable();
        let most = most_beyond_the_rate(starts, limit, nanos);
        if most > nanos + early {
            return Err(format!("{most} starts beyond the rate, where one token is the most"));
        }
    }
    Ok(())
}

fn every_interval_is_within_its_bound<T: Target>(build: impl Fn(Algorithm, Quota) -> T, and: impl Fn(&T)) {
    for (seed, algorithm) in (1..).zip(PACKED) {
        for quota in QUOTAS {
            let target = build(algorithm, quota);
            for (key, admitted) in race(&target, algorithm, quota, seed).iter().enumerate() {
                assert!(admitted.len() > 300, "{algorithm}: {} admissions", admitted.len());
                if let Err(wrong) = verdict(algorithm, quota, admitted) {
                    panic!("{algorithm}, {quota}, key {key}: {wrong}");
                }
            }
            and(&target);
        }
    }
}

fn builder(algorithm: Algorithm, quota: Quota) -> Builder<Limiter<u64>> {
    let builder = Limiter::builder(quota).algorithm(algorithm).clock(ManualClock::new());
    builder.max_keys(30).grace(Duration::from_nanos(GRACE)).when_full(WhenFull::Deny)
}

fn turned_over<S: Store>(limiter: &Limiter<u64, S>) {
    let stats = limiter.stats();
    assert!(stats.turnovers > 50 && stats.evicted > 300, "{stats:?}");
}

#[test]
fn no_interval_of_a_table_that_turns_over_exceeds_its_bound() {
    every_interval_is_within_its_bound(
        |algorithm, quota| builder(algorithm, quota).build().unwrap(),
        turned_over,
    );
}

#[test]
fn no_interval_of_exact_keys_that_come_and_go_exceeds_its_bound() {
    let build = |algorithm, quota| builder(algorithm, quota).exact_keys().build().unwrap();
    every_interval_is_within_its_bound(build, turned_over);
}

#[test]
fn no_interval_of_a_single_limiter_exceeds_its_bound() {
    let single = |algorithm, quota| {
        let builder = SingleLimiter::builder(quota).algorithm(algorithm);
        builder.clock(ManualClock::new()).build().unwrap()
    };
    let build = |algorithm, quota| (0..KEYS).map(|_| single(algorithm, quota)).collect::<Vec<_>>();
    every_interval_is_within_its_bound(build, |_| ());
}

/// A broken limiter must exceed the bounds. Otherwise this test would prove nothing.
#[test]
fn a_limiter_that_checks_and_then_acts_exceeds_the_bound_of_every_algorithm() {
    for algorithm in PACKED {
        let exceeds = |seed| {
            let rule = AnyRule::new(algorithm, QUOTAS[0], Duration::ZERO).unwrap();
            let words = (0..KEYS).map(|_| Mutex::new(Word::FRESH)).collect();
            let broken = CheckThenAct { rule, words };
            let admitted = race(&broken, algorithm, QUOTAS[0], seed);
            admitted.iter().any(|admitted| verdict(algorithm, QUOTAS[0], admitted).is_err())
        };
        assert!((0..100).any(exceeds), "{algorithm}");
    }
}
