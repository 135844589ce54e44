//! Under random schedules, four threads perform hundreds of operations on one limiter: charges,
//! refunds, floods of new keys, sweeps, evictions and quota changes, all at once. In the end every
//! token is accounted for.
//!
//! Loom explores all schedules of a race of few operations. Shuttle picks some schedules of a long
//! race, and may switch threads at every atomic operation of the library. The constants are those
//! of the models, so a table begins with two places and turns over all the time.
//!
//! Shuttle cannot show weak memory, because its atomics are sequentially consistent. It also cannot
//! show memory that is freed too early, because the shim frees nothing before a limiter is dropped.
//!
//! A schedule is derived from a seed, and so are all random numbers here. A failure names its seed,
//! and `make shuttle SEED=n` runs that schedule again. `SCHEDULES=n` sets the number of schedules.

mod runner;

use loom as shuttle;
use shuttle::rand::{Rng, thread_rng};
use std::fmt;
use std::ops::{AddAssign, Range};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tollgate::store::{Accepts, ExactKeys, Fingerprints};
use tollgate::{Algorithm, Builder, Decision, DecisionSource, Limiter, ManualClock, Quota, Tick, WhenFull};

/// The time of the first round.
const START: u64 = 5_000_000_000;
const THREADS: u64 = 4;
/// Between rounds all keys become idle.
const ROUNDS: u64 = 3;
/// The number of operations of each thread in a round.
const OPERATIONS: u64 = 25;
/// Keys under the default quota. Their tokens are counted.
const COMMON: Range<u64> = 0..2;
/// Keys with their own quotas. Their tokens are also counted.
const OWN: Range<u64> = 2..4;
/// A key that is given its own quota, and loses it.
const FICKLE: u64 = 4;
/// The first of the keys that are requested once.
const FLOOD: u64 = 100;
/// The counts for one limiter, or for all limiters.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    schedules: u64,
    operations: u64,
    admitted: u64,
    refunded: u64,
    changes: u64,
    full: u64,
    turnovers: u64,
    evicted: u64,
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.operations += other.operations;
        self.admitted += other.admitted;
        self.refunded += other.refunded;
        self.changes += other.changes;
        self.full += other.full;
        self.turnovers += other.turnovers;
        self.evicted += other.evicted;
    }
}

/// The store that the schedules run with.
trait Built: Accepts<u64> + Sized + Send + Sync + 'static {
    const ALGORITHMS: &[Algorithm];

    fn build(builder: Builder<Limiter<u64>>) -> Limiter<u64, Self>;
}

impl Built for Fingerprints {
    const ALGORITHMS: &[Algorithm] = &Algorithm::PACKED;

    fn build(builder: Builder<Limiter<u64>>) -> Limiter<u64> {
        builder.build().unwrap()
    }
}

impl Built for ExactKeys<u64> {
    const ALGORITHMS: &[Algorithm] =
        &[Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog];

    fn build(builder: Builder<Limiter<u64>>) -> Limiter<u64, Self> {
        builder.exact_keys().build().unwrap()
    }
}

fn one_of(range: Range<u64>) -> u64 {
    thread_rng().gen_range(range)
}

/// One thread in one round, in which the time is constant.
struct Worker<S: Built> {
    limiter: Arc<Limiter<u64, S>>,
    thread: u64,
    now: Tick,
    /// The limits that this thread set last: the default, or the limits of the keys with their own
    /// quotas. No other thread sets them, so they only rise, and no token already taken is
    /// forgotten.
    limits: [u64; 2],
    fresh: u64,
    /// Whether quotas change in this schedule. A change voids the refunds of earlier charges.
    changes: bool,
    /// Charges that the thread may give back.
    charges: Vec<(u64, Decision)>,
    /// For each key whose tokens are counted, the tokens taken minus the tokens given back.
    taken: [u64; OWN.end as usize],
    /// For each of these keys, the tokens given back, perhaps in vain.
    given: [u64; OWN.end as usize],
    figures: Figures,
}

impl<S: Built> Worker<S> {
    fn work(mut self) -> Self {
        for _ in 0..OPERATIONS {
            self.figures.operations += 1;
            match one_of(0..20) {
                0..=9 => self.charge(),
                10..=12 => self.refund(),
                13..=15 => self.flood(),
                16 => {
                    let _ = self.limiter.at(self.now).sweep(8);
                }
                17 => {
                    let _ = self.limiter.at(self.now).peek(&one_of(0..OWN.end));
                }
                _ if self.changes => self.change(),
                _ => self.flood(),
            }
        }
        self
    }

    fn charge(&mut self) {
        let key = one_of(0..OWN.end);
        let decision = self.limiter.at(self.now).check_n(&key, one_of(1..3));
        if decision.source() != DecisionSource::Key {
            self.figures.full += 1;
        } else if decision.is_allowed() {
            self.taken[key as usize] += decision.charged();
            self.figures.admitted += decision.charged();
            self.charges.push((key, decision));
        }
    }

    fn refund(&mut self) {
        if let Some((key, charge)) = self.charges.pop() {
            self.limiter.at(self.now).refund_n(&key, &charge, charge.charged());
            // One thread may give back tokens that another has taken, so only sums over all threads
            // count.
            self.taken[key as usize] = self.taken[key as usize].wrapping_sub(charge.charged());
            self.given[key as usize] += charge.charged();
            self.figures.refunded += charge.charged();
        }
    }

    fn flood(&mut self) {
        self.fresh += THREADS;
        let _ = self.limiter.at(self.now).check(&self.fresh);
    }

    fn change(&mut self) {
        let raise = one_of(1..3);
        match self.thread {
            0 => {
                self.limits[0] += raise;
                self.limiter.at(self.now).set_quota(Quota::per_second(self.limits[0])).unwrap();
            }
            1 => {
                let index = one_of(0..2) as usize;
                self.limits[index] += raise;
                let quota = Quota::per_second(self.limits[index]);
                self.limiter
                    .at(self.now)
                    .set_key_quotas([(&(OWN.start + index as u64), Some(quota))])
                    .unwrap();
            }
            _ => {
                let quota = (one_of(0..2) == 0).then(|| Quota::per_second(raise));
                self.limiter.at(self.now).set_key_quotas([(&FICKLE, quota)]).unwrap();
                let _ = self.limiter.at(self.now).check(&FICKLE);
            }
        }
        self.figures.changes += 1;
    }
}

/// One execution.
fn schedule<S: Built>(algorithm: Algorithm) -> Figures {
    // The cap may or may not have room for all keys.
    let max_keys = if one_of(0..2) == 0 { 8 } else { 512 };
    let builder = Limiter::builder(Quota::per_second(3)).algorithm(algorithm).clock(ManualClock::new());
    let builder = builder.max_keys(max_keys).when_full(WhenFull::Deny).grace(Duration::from_nanos(1));
    let limiter = Arc::new(S::build(builder));
    let changes = one_of(0..3) > 0;
    let own = Some(Quota::per_second(4));
    limiter.at(Tick::ZERO).set_key_quotas([(&2, own), (&3, own)]).unwrap();
    let mut limits = [[3; 2], [4; 2], [0; 2], [0; 2]];
    let mut figures = Figures { schedules: 1, ..Figures::default() };
    for round in 0..ROUNDS {
        let now = Tick::from_nanos(START + 10_000_000_000 * round);
        let threads = (0..THREADS).map(|thread| {
            let worker = Worker {
                limiter: Arc::clone(&limiter),
                thread,
                now,
                limits: limits[thread as usize],
                fresh: FLOOD + thread + 1_000 * round,
                changes,
                charges: Vec::new(),
                taken: [0; OWN.end as usize],
                given: [0; OWN.end as usize],
                figures: Figures::default(),
            };
            shuttle::thread::spawn(move || worker.work())
        });
        let threads: Vec<_> = threads.collect();
        let [mut taken, mut given] = [[0_u64; OWN.end as usize]; 2];
        for (thread, done) in threads.into_iter().enumerate() {
            let worker = done.join().unwrap();
            limits[thread] = worker.limits;
            figures += worker.figures;
            for (sum, part) in taken.iter_mut().zip(worker.taken) {
                *sum = sum.wrapping_add(part);
            }
            given.iter_mut().zip(worker.given).for_each(|(sum, part)| *sum += part);
        }
        let own = |key: u64| limits[1][(key - OWN.start) as usize];
        let limit = |key| if COMMON.contains(&key) { limits[0][0] } else { own(key) };
        for (key, taken) in (0..OWN.end).zip(taken) {
            let peek = limiter.at(now).peek(&key);
            if peek.source() != DecisionSource::Key {
                assert_eq!(taken, 0, "key {key} of round {round} was forgotten");
                continue;
            }
            assert_eq!(peek.capacity(), limit(key), "the limit of key {key} in round {round}");
            assert!(taken <= limit(key), "key {key} of round {round} was admitted {taken}: {peek:?}");
            let most = limit(key) - taken;
            let least = if changes { most.saturating_sub(given[key as usize]) } else { most };
            let left = peek.remaining();
            assert!(
                (least..=most).contains(&left),
                "key {key} has {left} in round {round}, not {least} to {most}"
            );
        }
        assert!(limiter.len() <= max_keys);
    }
    let stats = limiter.stats();
    figures.turnovers = stats.turnovers;
    figures.evicted = stats.evicted;
    figures
}

fn all_tokens_are_accounted_for<S: Built>(store: impl fmt::Display) {
    for (index, &algorithm) in (0..).zip(S::ALGORITHMS) {
        let start = Instant::now();
        let sum = Arc::new(Mutex::new(Figures::default()));
        let counted = Arc::clone(&sum);
        // Each algorithm has its own seeds. Otherwise all algorithms would run the same schedules.
        runner::run(format_args!("{store}, {algorithm}"), index, move || {
            *counted.lock().unwrap() += schedule::<S>(algorithm);
        });
        let sum = *sum.lock().unwrap();
        println!("{store}, {algorithm}: {sum:?}, {:.1?}", start.elapsed());
        let counted =
            [sum.schedules, sum.admitted, sum.refunded, sum.changes, sum.full, sum.turnovers, sum.evicted];
        assert!(runner::repeated().is_some() || !counted.contains(&0), "something was not explored: {sum:?}");
    }
}

#[test]
fn a_table_at_random_schedules_accounts_for_all_tokens() {
    all_tokens_are_accounted_for::<Fingerprints>("fingerprints");
}

#[test]
fn exact_keys_at_random_schedules_account_for_all_tokens() {
    all_tokens_are_accounted_for::<ExactKeys<u64>>("exact keys");
}
