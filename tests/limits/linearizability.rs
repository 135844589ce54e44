//! Charges, refunds and resets of a key take effect one after the other, whatever the threads and
//! the table do.
//!
//! Threads make random requests for one key, while other keys and sweeps make the store grow, turn
//! over and forget. The checker (`oracle/history.rs`) must find a legal order of each history.
//!
//! The stamps are read-modify-writes of one counter, so each call sees the calls that returned
//! before it. A denial can therefore miss nothing, and must satisfy the same rule as the other
//! calls. (`loom-tests/tests/linearizability.rs` shows what a denial may miss without the counter.)

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use tollgate::rule::AnyRule;
use tollgate::store::{Accepts, Store};
use tollgate::{
    Algorithm, Chargeable, Decision, DecisionSource, Limiter, ManualClock, Quota, SingleLimiter, Tick,
    WhenFull,
};
use tollgate_testing::oracle::Oracle;
use tollgate_testing::oracle::history::{Answer, ByDefinition, ByRule, Call, Denials, Event, legal_order};
use tollgate_testing::race::{Random, StartLine};

const MILLI: u64 = 1_000_000;
/// The largest difference between times that are used together.
const GRACE_NANOS: u64 = 5 * MILLI;
const GRACE: Duration = Duration::from_nanos(GRACE_NANOS);
/// After this time every key is idle.
const PAUSE: u64 = 500 * MILLI;
const ROUNDS: usize = 3;

/// A limiter for which threads race.
trait Target: Sync {
    /// Returns `None` if the answer was not based on the key's state.
    fn check(&self, cost: u64, now: Tick) -> Option<Answer>;
    fn refund(&self, charge: &Decision, tokens: u64, now: Tick);
    fn reset(&self);
    /// Performs other work on the limiter during the race.
    fn disturb(&self, random: &mut Random, now: Tick);
}

/// One key of a limiter that has room for few keys.
impl<S: Store + Accepts<u64> + Sync> Target for Limiter<u64, S> {
    fn check(&self, cost: u64, now: Tick) -> Option<Answer> {
        let decision = self.at(now).check_n(&0, cost);
        (decision.source() == DecisionSource::Key).then(|| decision.into())
    }

    fn refund(&self, charge: &Decision, tokens: u64, now: Tick) {
        self.at(now).refund_n(&0, charge, tokens);
    }

    fn reset(&self) {
        Limiter::reset(self, &0);
    }

    fn disturb(&self, random: &mut Random, now: Tick) {
        match random.below(4) {
            0 => {
                let _ = self.at(now).sweep(32);
            }
            1 => {}
            _ => {
                let _ = self.at(now).check(&(1 + random.below(1_000)));
            }
        }
    }
}

impl Target for SingleLimiter {
    fn check(&self, cost: u64, now: Tick) -> Option<Answer> {
        Some(self.at(now).check_n(cost).into())
    }

    fn refund(&self, charge: &Decision, tokens: u64, now: Tick) {
        self.at(now).refund_n(charge, tokens);
    }

    fn reset(&self) {
        SingleLimiter::reset(self);
    }

    fn disturb(&self, _random: &mut Random, _now: Tick) {}
}

/// A sliding window that is broken on purpose: the window's number is in one atomic, and the counts
/// are in another.
struct TornPair {
    oracle: Oracle,
    period: u64,
    limit: u64,
    number: AtomicU64,
    /// The upper half contains the previous count, and the lower half contains the current count.
    counts: AtomicU64,
}

impl TornPair {
    fn new(quota: Quota) -> Self {
        let period = u64::try_from(quota.period().as_nanos()).unwrap();
        let oracle = Oracle::new(Algorithm::SlidingWindow, quota, 0);
        let (number, counts) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { oracle, period, limit: quota.tokens(), number, counts }
    }
}

impl Target for TornPair {
    fn check(&self, cost: u64, now: Tick) -> Option<Answer> {
        let (window, elapsed) = (now.as_nanos() / self.period, now.as_nanos() % self.period);
        let number = self.number.load(SeqCst);
        if window > number {
            let present = self.counts.load(SeqCst) & 0xffff_ffff;
            let previous = if window == number + 1 { present } else { 0 };
            // A thread that loads between these two lines finds the new number together with the
            // old counts.
            self.number.store(window, SeqCst);
            thread::yield_now();
            self.counts.store(previous << 32, SeqCst);
        }
        loop {
            let counts = self.counts.load(SeqCst);
            let (previous, present) = (counts >> 32, counts & 0xffff_ffff);
            let weighted = (previous * (self.period - elapsed)).div_ceil(self.period);
            let free = self.limit.saturating_sub(present).saturating_sub(weighted);
            if cost > free {
                return Some(Answer { allowed: false, remaining: free, decision: None });
            }
            if self.counts.compare_exchange(counts, counts + cost, SeqCst, SeqCst).is_ok() {
                return Some(Answer { allowed: true, remaining: free - cost, decision: None });
            }
        }
    }

    fn refund(&self, _charge: &Decision, _tokens: u64, _now: Tick) {}
    fn reset(&self) {}
    fn disturb(&self, _random: &mut Random, _now: Tick) {}
}

/// The kinds of calls in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mix {
    Checks,
    /// Also refunds charges of the same round. All times in a round are the same.
    PromptRefunds,
    /// Also resets.
    Resets,
    /// Makes all kinds of calls, at times that differ by the grace at most. Refunds and resets
    /// alternate from one history to the next. (A reset makes earlier charges void, and a small
    /// part of the charges made meanwhile. With both, the effect of a refund would not follow from
    /// the calls.)
    Anything,
}

impl Mix {
    const ALL: [Self; 4] = [Self::Checks, Self::PromptRefunds, Self::Resets, Self::Anything];
}

/// The source of the stamps.
struct Stamps(AtomicU64);

impl Stamps {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, SeqCst)
    }
}

/// One thread's part in the histories.
struct Racer<'r, T> {
    target: &'r T,
    stamps: &'r Stamps,
    thread: usize,
    random: Random,
    /// Whether the racer resets, or refunds.
    resets: bool,
    seen: Vec<Event>,
    /// The charges that the racer may refund.
    charges: Vec<Held>,
}

/// What is left of a charge.
struct Held {
    round: usize,
    /// The stamp of the charge.
    of: u64,
    decision: Decision,
    tokens: u64,
}

impl<T: Target> Racer<'_, T> {
    fn call(&mut self, mix: Mix, round: usize, time: u64) {
        let skew = if mix == Mix::Anything { self.random.below(GRACE_NANOS + 1) } else { 0 };
        let now = Tick::from_nanos(time + skew);
        let kind = self.random.below(6);
        let may_refund = !self.resets && matches!(mix, Mix::PromptRefunds | Mix::Anything) && kind < 2;
        let prompt = |charge: &Held| mix == Mix::Anything || charge.round == round;
        if may_refund && let Some(held) = self.charges.iter_mut().find(|charge| prompt(charge)) {
            let tokens = 1 + self.random.below(held.tokens);
            held.tokens -= tokens;
            let (of, charge) = (held.of, held.decision);
            self.charges.retain(|charge| charge.tokens > 0);
            self.record(round, Call::Refund { of, charge, tokens, now });
            return;
        }
        let call = match mix {
            Mix::Resets | Mix::Anything if self.resets && kind == 2 => Call::Reset,
            _ => Call::Check { cost: 1 + self.random.below(5) / 3, now },
        };
        self.record(round, call);
    }

    /// Occasionally lets another thread run in the middle of a call. If all threads share a core,
    /// calls would otherwise hardly ever overlap.
    fn pause(&mut self) {
        if self.random.below(8) == 0 {
            thread::yield_now();
        }
    }

    fn record(&mut self, round: usize, call: Call) {
        let called = self.stamps.next();
        self.pause();
        let answer = match call {
            Call::Check { cost, now } => self.target.check(cost, now),
            Call::Refund { ref charge, tokens, now, .. } => {
                self.target.refund(charge, tokens, now);
                None
            }
            Call::Reset => {
                self.target.reset();
                None
            }
        };
        self.pause();
        let returned = self.stamps.next();
        if matches!(call, Call::Check { .. }) && answer.is_none() {
            // There was no place for the key, so the answer does not reflect the key's state.
            return;
        }
        if let Some(decision) = answer.and_then(|answer| answer.decision)
            && decision.charged() > 0
        {
            self.charges.push(Held { round, of: called, decision, tokens: decision.charged() });
        }
        self.seen.push(Event { thread: self.thread, round, called, returned, call, answer });
    }
}

/// Runs `count` histories, one after the other, with this many threads.
fn race<T: Target>(target: &T, threads: usize, count: u64, mix: Mix, seed: u64) -> Vec<Vec<Event>> {
    let line = StartLine::new(threads);
    let stamps = Stamps(AtomicU64::new(0));
    let run = |thread: usize| {
        let mut lane = line.lane();
        (0..count)
            .map(|number| {
                // All threads draw the same times.
                let mut times = Random(seed ^ number << 8);
                let random = Random(seed ^ number << 8 ^ 0xabc << 40 ^ (thread as u64) << 52);
                let (seen, charges) = (Vec::new(), Vec::new());
                let resets = mix == Mix::Resets || mix == Mix::Anything && number % 2 == 1;
                let mut racer = Racer { target, stamps: &stamps, thread, random, resets, seen, charges };
                let mut time = (1 + number) * PAUSE;
                for round in 0..ROUNDS {
                    lane.wait();
                    for _ in 0..1 + racer.random.below(3) {
                        let ahead = racer.random.below(2) * GRACE_NANOS;
                        target.disturb(&mut racer.random, Tick::from_nanos(time + ahead));
                        racer.call(mix, round, time);
                    }
                    // The pause is zero, or the time of a few tokens, or so long that the key is
                    // idle and may be forgotten.
                    time += MILLI
                        * match times.below(3) {
                            0 => 0,
                            1 => times.below(30),
                            _ => 30 + times.below(60),
                        };
                }
                lane.wait();
                racer.seen
            })
            .collect::<Vec<_>>()
    };
    let seen: Vec<Vec<Vec<Event>>> = thread::scope(|scope| {
        let racers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    let mut threads: Vec<_> = seen.into_iter().map(Vec::into_iter).collect();
    (0..count).map(|_| threads.iter_mut().flat_map(|thread| thread.next().unwrap()).collect()).collect()
}

/// Statistics of the histories.
#[derive(Debug, Default)]
struct Shown {
    histories: u64,
    /// Histories in which calls of two threads overlapped.
    overlapping: u64,
    admitted: u64,
    denied: u64,
    refunds: u64,
    resets: u64,
}

impl Shown {
    fn add(&mut self, history: &[Event]) {
        let overlap =
            |a: &Event, b: &Event| a.thread != b.thread && a.called < b.returned && b.called < a.returned;
        self.histories += 1;
        self.overlapping += u64::from(history.iter().any(|a| history.iter().any(|b| overlap(a, b))));
        for event in history {
            match (event.call, event.answer) {
                (Call::Refund { .. }, _) => self.refunds += 1,
                (Call::Reset, _) => self.resets += 1,
                (_, Some(answer)) if answer.allowed => self.admitted += 1,
                _ => self.denied += 1,
            }
        }
    }
}

/// Returns whether there is a legal order. The rule always decides, and so does the oracle if it is
/// exact. A log has no rule on a word.
fn is_legal(algorithm: Algorithm, quota: Quota, mix: Mix, history: &[Event]) -> bool {
    let oracle = Oracle::new(algorithm, quota, 0);
    if mix != Mix::Anything && oracle.is_exact() {
        let limiter = ByDefinition(oracle);
        if legal_order(&limiter, history, Denials::OnThePresent).is_none() {
            return false;
        }
    }
    if algorithm == Algorithm::SlidingLog {
        return true;
    }
    let limiter = ByRule(AnyRule::new(algorithm, quota, Duration::ZERO).unwrap());
    legal_order(&limiter, history, Denials::OnThePresent).is_some()
}

/// Three tokens in 30 ms, and a rate whose interval is not a whole number of nanoseconds.
const QUOTAS: [Quota; 2] =
    [Quota::new(3, Duration::from_millis(30)), Quota::new(7, Duration::from_nanos(50_000_001))];

/// Runs each kind of race once, and adds the statistics to `shown`.
fn race_all<T: Target>(
    algorithms: &[Algorithm],
    build: impl Fn(Algorithm, Quota) -> T,
    histories: u64,
    and: impl Fn(&T),
    shown: &mut Shown,
) {
    for (case, &algorithm) in (1..).zip(algorithms) {
        for quota in QUOTAS {
            for mix in Mix::ALL {
                let refunds = matches!(mix, Mix::PromptRefunds | Mix::Anything);
                if algorithm == Algorithm::SlidingLog && refunds {
                    // A log gives tokens back one admission after the other: see its page.
                    continue;
                }
                for threads in 2..=4 {
                    let target = build(algorithm, quota);
                    for history in race(&target, threads, histories, mix, case) {
                        shown.add(&history);
                        assert!(
                            is_legal(algorithm, quota, mix, &history),
                            "no legal order, {algorithm}, {quota}, {mix:?}: {history:#?}"
                        );
                    }
                    and(&target);
                }
            }
        }
    }
}

fn every_history_is_legal<T: Target>(
    algorithms: &[Algorithm],
    build: impl Fn(Algorithm, Quota) -> T,
    histories: u64,
    and: impl Fn(&T),
) -> Shown {
    let mut shown = Shown::default();
    // A third of the histories overlap. If other programs use the cores, fewer overlap, and the
    // races are repeated.
    for _ in 0..5 {
        race_all(algorithms, &build, histories, &and, &mut shown);
        if shown.overlapping > 10 {
            break;
        }
    }
    println!("{shown:?}");
    for count in [shown.admitted, shown.denied, shown.refunds, shown.resets] {
        assert!(count > shown.histories / 10, "{shown:?}");
    }
    assert!(shown.overlapping > 10, "the threads hardly met: {shown:?}");
    shown
}

/// Returns a builder with room for 24 keys. A thousand other keys compete for this room.
fn builder(algorithm: Algorithm, quota: Quota) -> tollgate::Builder<Limiter<u64>> {
    let builder = Limiter::builder(quota).algorithm(algorithm).clock(ManualClock::new());
    builder.max_keys(24).grace(GRACE).when_full(WhenFull::Deny)
}

fn turned_over<S: Store>(limiter: &Limiter<u64, S>) {
    let stats = limiter.stats();
    assert!(stats.turnovers > 10 && stats.evicted > 100, "{stats:?}");
}

#[test]
fn the_history_of_a_key_in_a_table_that_turns_over_has_a_legal_order() {
    let build = |algorithm, quota| builder(algorithm, quota).build().unwrap();
    every_history_is_legal(&Algorithm::PACKED, build, 100, turned_over);
}

#[test]
fn the_history_of_an_exact_key_that_comes_and_goes_has_a_legal_order() {
    let build = |algorithm, quota| builder(algorithm, quota).exact_keys().build().unwrap();
    every_history_is_legal(&Algorithm::ALL, build, 100, turned_over);
}

#[test]
fn the_history_of_a_single_limiter_has_a_legal_order() {
    let build = |algorithm, quota| {
        let builder = SingleLimiter::builder(quota).algorithm(algorithm);
        builder.clock(ManualClock::new()).build().unwrap()
    };
    every_history_is_legal(&Algorithm::ALL, build, 100, |_| ());
}

/// The checker must detect a broken limiter.
#[test]
fn a_window_pair_in_two_atomics_is_found_out() {
    let quota = QUOTAS[0];
    for seed in 0..1_000 {
        let target = TornPair::new(quota);
        let histories = race(&target, 2, 100, Mix::Checks, seed);
        let limiter = ByDefinition(target.oracle.clone());
        let legal = |history: &Vec<Event>| legal_order(&limiter, history, Denials::OnThePresent).is_some();
        if let Some(illegal) = histories.iter().position(|history| !legal(history)) {
            // A single thread is never wrong.
            println!("history {illegal} of seed {seed}");
            let alone = race(&TornPair::new(quota), 1, 100, Mix::Checks, seed);
            assert!(alone.iter().all(legal));
            return;
        }
    }
    panic!("a hundred thousand histories of a torn pair, and all are legal");
}
