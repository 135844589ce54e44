//! Runs all kinds of load, from all cores, for a chosen time: floods, clears, sweeps, refunds,
//! quota changes, and jumps of the clock. In the end every token is accounted for, and the memory
//! has not grown.
//!
//! The time is constant within a round, so that charges of one key commute and the admissions of
//! each key are known. Between rounds, the time advances, jumps, and steps back by no more than the
//! grace.
//!
//! In a round of changes, one thread changes the default quota, and then the quotas of some keys.
//! Meanwhile the other threads charge keys that were just cleared, and keys that are used only
//! once. The final state of the counted keys is known: it is the limit minus the charges, because
//! the limit only rises while the keys are charged.
//!
//! `TOLLGATE_SOAK_SECONDS` is the duration (`make soak MINUTES=10`), a second by default.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::store::{Accepts, Store};
use tollgate::{
    Algorithm, Builder, Chargeable, Decision, DecisionSource, Limiter, ManualClock, Quota, QuotaError,
    SingleLimiter, Tick, WhenFull,
};
use tollgate_testing::race::{PACKED, Random, StartLine};

/// The keys whose tokens are counted.
const KEYS: usize = 300;
const MAX_KEYS: usize = 4_000;
const MILLI: u64 = 1_000_000;
const GRACE: Duration = Duration::from_secs(1);
const QUOTA: Quota = Quota::new(3, Duration::from_millis(300));
/// The keys that receive their own quotas, and the values to which all limits are raised in steps
/// of one.
const OWN: Range<u64> = 0..10;
const RAISED: u64 = 7;
const RAISED_OWN: u64 = 11;
const DAY: u64 = 24 * 3_600 * 1_000 * MILLI;

/// The work of all threads in a round.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// Many charges of a few keys.
    Hot { keys: u64 },
    /// Charges of all keys, and as many charges of keys that are never used again.
    Flood,
    /// Refunds of some charges that were made at this time.
    Refunds,
    /// All threads perform upkeep.
    Sweep,
    /// One thread clears all keys.
    Clear,
    /// One thread raises the common quota, another raises some keys' own quotas, and all threads
    /// charge keys.
    Raise,
    /// One thread peeks at each key, restores the quotas, and clears all keys.
    Restore,
}

/// The decisions that one thread received for a key in one round.
#[derive(Clone, Copy, Default)]
struct Seen {
    asked: u64,
    admitted: u64,
    refunded: u64,
    /// The maximum number of tokens missing from the key's limit, according to the decisions.
    taken: Option<u64>,
}

/// The plan that all threads follow. It contains the next round and the time of this round.
struct Plan {
    random: Random,
    now: u64,
    /// The latest time so far.
    latest: u64,
    /// The next rounds at the same time, in reverse order.
    next: Vec<Load>,
}

impl Plan {
    fn next(&mut self, round: u64) -> (Load, Tick) {
        if let Some(load) = self.next.pop() {
            // The limiter's keys have reached this time, but the oracles' keys have not. No later
            // round returns to this time.
            self.latest += 2 * u64::try_from(GRACE.as_nanos()).unwrap();
            return (load, Tick::from_nanos(self.now));
        }
        // A round of refunds follows charges at the same time.
        if round % 4 == 1 {
            return (Load::Refunds, Tick::from_nanos(self.now));
        }
        self.now = match self.random.below(40) {
            0 => self.latest + self.random.below(DAY),
            1..=5 => self.latest - self.random.below(1_000 * MILLI),
            6..=20 => self.latest + self.random.below(1_000 * MILLI),
            _ => self.latest + self.random.below(100 * MILLI),
        };
        self.latest = self.latest.max(self.now);
        let load = match self.random.below(20) {
            0 if self.random.below(2) == 0 => Load::Clear,
            0 => {
                self.next = vec![Load::Restore, Load::Raise];
                Load::Clear
            }
            1..=3 => Load::Sweep,
            4..=9 => Load::Flood,
            _ => Load::Hot { keys: 1 + self.random.below(KEYS as u64) },
        };
        (load, Tick::from_nanos(self.now))
    }
}

/// The work of one thread.
struct Worker<'w, S> {
    limiter: &'w Limiter<u64, S>,
    thread: usize,
    random: Random,
    /// The next key that no thread has used.
    fresh: u64,
    /// Charges that this thread may refund.
    charges: Vec<(u64, Decision)>,
    seen: Vec<Seen>,
}

impl<S: Store + Accepts<u64>> Worker<'_, S> {
    fn work(&mut self, load: Load, now: Tick) {
        self.seen = vec![Seen::default(); KEYS];
        let charges = std::mem::take(&mut self.charges);
        match load {
            Load::Hot { keys } => (0..1_000).for_each(|_| self.charge(keys, now)),
            Load::Flood => {
                for _ in 0..1_000 {
                    self.charge(KEYS as u64, now);
                    self.fresh += 1;
                    let _ = self.limiter.at(now).check(&self.fresh);
                }
            }
            Load::Refunds => {
                for (key, charge) in charges {
                    if self.random.below(2) == 0 {
                        self.limiter.at(now).refund_n(&key, &charge, 1);
                        self.seen[usize::try_from(key).unwrap()].refunded += 1;
                    }
                }
            }
            Load::Sweep => while self.limiter.at(now).sweep(256) {},
            Load::Raise => self.raise(now),
            Load::Restore if self.thread == 0 => self.restore(now),
            Load::Clear if self.thread == 0 => self.limiter.at(now).clear(),
            Load::Clear | Load::Restore => {}
        }
    }

    fn raise(&mut self, now: Tick) {
        // In any order of these calls, no key's limit is lowered.
        let steps = if self.thread == 0 { QUOTA.tokens() + 1..=RAISED } else { RAISED + 1..=RAISED_OWN };
        for limit in steps {
            (0..500).for_each(|_| self.charge(KEYS as u64, now));
            self.fresh += 1;
            let _ = self.limiter.at(now).check(&self.fresh);
            match self.thread {
                0 => change(|| self.limiter.at(now).set_quota(raised(limit))),
                1 => change(|| self.limiter.at(now).set_key_quotas(own(Some(raised(limit))))),
                _ => {}
            }
        }
        // The quotas of these charges are replaced before the charges can be refunded.
        self.charges.clear();
    }

    fn restore(&mut self, now: Tick) {
        for (key, seen) in (0..).zip(&mut self.seen) {
            let peek = self.limiter.at(now).peek(&key);
            if peek.source() == DecisionSource::Key {
                let limit = if OWN.contains(&key) { RAISED_OWN } else { RAISED };
                assert_eq!(peek.capacity(), limit, "key {key} at {now:?}");
            }
            // A key without a place has not taken any tokens.
            seen.taken = Some(if peek.source() == DecisionSource::Key {
                peek.capacity() - peek.remaining()
            } else {
                0
            });
        }
        change(|| self.limiter.at(now).set_key_quotas(own(None)));
        change(|| self.limiter.at(now).set_quota(QUOTA));
        self.limiter.at(now).clear();
    }

    fn charge(&mut self, keys: u64, now: Tick) {
        let key = self.random.below(keys);
        let decision = self.limiter.at(now).check(&key);
        if decision.source() == DecisionSource::Key {
            let seen = &mut self.seen[usize::try_from(key).unwrap()];
            seen.asked += 1;
            seen.admitted += decision.charged();
            if decision.is_allowed() {
                self.charges.push((key, decision));
            }
        }
    }
}

fn raised(limit: u64) -> Quota {
    Quota::new(limit, QUOTA.period())
}

fn own(quota: Option<Quota>) -> impl Iterator<Item = (&'static u64, Option<Quota>)> {
    const KEYS: [u64; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
    KEYS.iter().map(move |key| (key, quota))
}

/// Repeats a quota change until there is memory for it.
fn change(attempt: impl Fn() -> Result<(), QuotaError>) {
    while let Err(error) = attempt() {
        assert!(error.is_temporary(), "{error}");
    }
}

/// The oracles, which are limiters that never forget, and the expected admissions of each key.
struct Books {
    singles: Vec<SingleLimiter>,
    /// The charges of the previous round.
    charges: Vec<Vec<Decision>>,
    admitted: u64,
    /// The tokens taken from each key while quotas were raised.
    raised: Vec<u64>,
    raises: u64,
}

impl Books {
    fn close(&mut self, load: Load, now: Tick, threads: &[Vec<Seen>]) {
        for (key, single) in self.singles.iter().enumerate() {
            if matches!(load, Load::Clear | Load::Restore) {
                single.reset();
            }
            let total = |part: fn(&Seen) -> u64| threads.iter().map(|seen| part(&seen[key])).sum::<u64>();
            if matches!(load, Load::Raise) {
                self.raised[key] = total(|seen| seen.admitted);
                self.raises += self.raised[key];
                continue;
            }
            if let Some(taken) = threads.iter().find_map(|seen| seen[key].taken) {
                assert_eq!(taken, self.raised[key], "key {key} at {now:?}");
            }
            let refunded = total(|seen| seen.refunded);
            let refunds = self.charges[key].drain(..).zip(0..refunded);
            let given_back = refunds.map(|(charge, _)| single.at(now).refund_n(&charge, 1)).count() as u64;
            assert_eq!(given_back, refunded, "key {key} at {now:?}");
            let asked = (0..total(|seen| seen.asked)).map(|_| single.at(now).check());
            self.charges[key] = asked.filter(Decision::is_allowed).collect();
            let expected = self.charges[key].len() as u64;
            assert_eq!(total(|seen| seen.admitted), expected, "key {key} at {now:?}");
            self.admitted += expected;
        }
    }
}

/// Returns the memory in use in kilobytes, if the system reports it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn soak<S: Store + Accepts<u64> + Send + Sync>(
    limiter: &Limiter<u64, S>,
    algorithm: Algorithm,
    time: Duration,
) {
    let single = |_| {
        let builder = SingleLimiter::builder(QUOTA).algorithm(algorithm);
        builder.clock(ManualClock::new()).build().unwrap()
    };
    let singles = (0..KEYS).map(single).collect();
    let mut books =
        Books { singles, charges: vec![Vec::new(); KEYS], admitted: 0, raised: vec![0; KEYS], raises: 0 };
    let threads = thread::available_parallelism().map_or(2, usize::from).max(2);
    let mut plan = Plan {
        random: Random(7),
        now: DAY,
        latest: DAY,
        next: vec![Load::Restore, Load::Raise, Load::Clear],
    };
    let mut workers: Vec<_> = (0..threads)
        .map(|thread| {
            let random = Random((thread as u64 + 1) << 32);
            let fresh = (thread as u64 + 1) << 40;
            Worker { limiter, thread, random, fresh, charges: Vec::new(), seen: Vec::new() }
        })
        .collect();
    let (mut round, mut most, mut memory) = (0, 0, Vec::new());
    let start = Instant::now();
    while start.elapsed() < time || round < 40 {
        let batch: Vec<_> = (round..round + 20).map(|round| plan.next(round)).collect();
        let line = StartLine::new(threads);
        let seen: Vec<Vec<Vec<Seen>>> = thread::scope(|scope| {
            let racers: Vec<_> = workers
                .iter_mut()
                .map(|worker| {
                    let (batch, mut lane) = (&batch, line.lane());
                    let mut run = move |&(load, now)| {
                        lane.wait();
                        worker.work(load, now);
                        std::mem::take(&mut worker.seen)
                    };
                    scope.spawn(move || batch.iter().map(&mut run).collect())
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        for (index, &(load, now)) in batch.iter().enumerate() {
            let of_round: Vec<_> = seen.iter().map(|thread| thread[index].clone()).collect();
            books.close(load, now, &of_round);
        }
        round += 20;
        most = most.max(limiter.stats().bytes);
        memory.push(resident().unwrap_or(0));
        assert!(limiter.len() <= MAX_KEYS);
    }
    println!(
        "{algorithm}: {round} rounds, {} admitted, {} more while quotas were raised, {:?}",
        books.admitted,
        books.raises,
        limiter.stats()
    );
    assert!(books.admitted > round, "there was hardly any load");
    assert!(books.raises > 0, "no quota was changed");
    let (early, late) = memory.split_at(memory.len() / 2);
    let (early, late) = (early.iter().max(), late.iter().max());
    println!("at most {most} bytes by its own count; {early:?}, then {late:?} kilobytes of the process");
    // The number of recorded charges varies, and the allocator keeps some of the freed memory.
    assert!(late <= early.map(|early| early + early / 16 + 1_024).as_ref(), "memory grows: {memory:?}");
}

fn builder(algorithm: Algorithm) -> Builder<Limiter<u64>> {
    let builder = Limiter::builder(QUOTA).algorithm(algorithm).clock(ManualClock::new());
    builder.max_keys(MAX_KEYS).grace(GRACE).when_full(WhenFull::Deny)
}

#[test]
fn under_load_of_every_kind_all_tokens_are_accounted_for_and_memory_does_not_grow() {
    let seconds = match std::env::var("TOLLGATE_SOAK_SECONDS") {
        Ok(text) => text.parse().expect("TOLLGATE_SOAK_SECONDS is a number of seconds"),
        Err(_) => 1.0,
    };
    let share = Duration::from_secs_f64(seconds / PACKED.len() as f64 / 2.0);
    for algorithm in PACKED {
        soak(&builder(algorithm).build().unwrap(), algorithm, share);
        soak(&builder(algorithm).exact_keys().build().unwrap(), algorithm, share);
    }
}
