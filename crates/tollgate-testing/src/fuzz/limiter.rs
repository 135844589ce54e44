//! Compares a limiter with a map that never forgets. The limiter uses either store. The operations
//! are checks, refunds, resets, sweeps and clears.

use super::input::Input;
use super::rule::{algorithm, quota};
use std::collections::HashMap;
use std::time::Duration;
use tollgate::store::{Accepts, Store};
use tollgate::{
    Algorithm, Chargeable, Decision, DecisionSource, Limiter, ManualClock, Quota, SingleLimiter, Tick,
    WhenFull,
};

/// The number of different keys.
const KEYS: u8 = 64;
const CALLS: usize = 400;

pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let (algorithm, quota) = (algorithm(&mut input), quota(&mut input));
    let grace = [Duration::ZERO, Duration::from_millis(1), Duration::from_secs(1)][input.below(3)];
    let full = [WhenFull::Deny, WhenFull::Allow, WhenFull::Share][input.below(3)];
    let max_keys = 1 + input.below(usize::from(KEYS));
    let clock = ManualClock::new();
    let builder = Limiter::<u8>::builder(quota).algorithm(algorithm).clock(&clock);
    let builder = builder.max_keys(max_keys).grace(grace).when_full(full);
    let is_exact = input.below(2) == 1;
    // Other targets test refused quotas.
    if is_exact {
        let Ok(limiter) = builder.exact_keys().build() else { return };
        LimiterRun::new(input, &limiter, clock, algorithm, quota, grace).all();
    } else {
        let Ok(limiter) = builder.build() else { return };
        LimiterRun::new(input, &limiter, clock, algorithm, quota, grace).all();
    }
}

struct LimiterRun<'r, S> {
    input: Input<'r>,
    limiter: &'r Limiter<u8, S>,
    clock: ManualClock,
    algorithm: Algorithm,
    quota: Quota,
    period: u64,
    grace: u64,
    latest: u64,
    map: HashMap<u8, SingleLimiter>,
    /// The charges that may still be refunded. Each may be refunded once.
    charges: Vec<(u8, Decision, Option<Decision>)>,
}

impl<'r, S: Store + Accepts<u8>> LimiterRun<'r, S> {
    fn new(
        input: Input<'r>,
        limiter: &'r Limiter<u8, S>,
        clock: ManualClock,
        algorithm: Algorithm,
        quota: Quota,
        grace: Duration,
    ) -> Self {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).expect("it was accepted");
        let (period, grace) = (nanos(quota.period()), nanos(grace));
        let (map, charges) = (HashMap::new(), Vec::new());
        Self { input, limiter, clock, algorithm, quota, period, grace, latest: 0, map, charges }
    }

    fn all(mut self) {
        for _ in 0..CALLS {
            if self.input.is_empty() {
                break;
            }
            self.step();
            assert!(self.limiter.len() <= self.limiter.stats().max_keys);
        }
    }

    fn step(&mut self) {
        self.latest = match self.input.below(8) {
            0..=4 => self.latest,
            5 => self.latest.saturating_add(self.input.share(self.period / self.quota.tokens())),
            6 => self.latest.saturating_add(self.input.share(self.period)),
            _ => self.latest.saturating_add(self.input.number()),
        }
        .min(Tick::MAX.as_nanos());
        // Concurrent calls may use times that differ by at most the grace.
        let back = if self.input.below(4) == 0 { self.input.share(self.grace).min(self.grace) } else { 0 };
        let now = Tick::from_nanos(self.latest.saturating_sub(back));
        self.clock.set(now);
        match self.input.below(16) {
            0 => {
                let _ = self.limiter.sweep(usize::from(self.input.byte()));
            }
            1 => self.refund(now),
            2 => {
                let key = self.key();
                self.limiter.reset(&key);
                self.of_map(key).reset();
                self.void();
            }
            3 if self.input.below(4) == 0 => {
                self.limiter.clear();
                self.map.values().for_each(SingleLimiter::reset);
                self.void();
            }
            4 => self.many(now),
            5 => {
                let key = self.key();
                let peeked = self.limiter.peek(&key);
                let expected = self.of_map(key).at(now).peek();
                self.compare(key, peeked, expected);
            }
            6 => {
                let (key, cost) = (self.key(), self.input.number());
                let decision = self.limiter.at(now).check_n(&key, cost);
                self.charged(key, cost, decision, now);
            }
            _ => {
                let (key, cost) = (self.key(), u64::from(self.input.byte() % 4));
                let decision = self.limiter.check_n(&key, cost);
                self.charged(key, cost, decision, now);
            }
        }
    }

    fn key(&mut self) -> u8 {
        self.input.byte() % KEYS
    }

    fn of_map(&mut self, key: u8) -> &SingleLimiter {
        let (algorithm, quota) = (self.algorithm, self.quota);
        self.map.entry(key).or_insert_with(|| {
            let builder = SingleLimiter::builder(quota).algorithm(algorithm);
            builder.clock(ManualClock::new()).build().expect("the limiter was built")
        })
    }

    fn many(&mut self, now: Tick) {
        let keys: Vec<u8> = (0..self.input.below(40)).map(|_| self.key()).collect();
        let mut decisions = Vec::new();
        self.limiter.check_many(&keys, &mut decisions);
        assert_eq!(decisions.len(), keys.len());
        for (key, decision) in keys.into_iter().zip(decisions) {
            self.charged(key, 1, decision, now);
        }
    }

    /// Compares the decision with the map's. If the key's own state answered, also charges the map.
    fn charged(&mut self, key: u8, cost: u64, decision: Decision, now: Tick) {
        let expected = match decision.source() {
            DecisionSource::Key => self.of_map(key).at(now).check_n(cost),
            _ => self.of_map(key).at(now).peek_n(cost),
        };
        self.compare(key, decision, expected);
        if decision.source() == DecisionSource::Key && decision.charged() > 0 {
            self.charges.push((key, decision, Some(expected)));
        }
    }

    /// Compares the limiter's answer with the map's. If the limiter has no room for the key, the
    /// key must be idle in the map.
    fn compare(&mut self, key: u8, decision: Decision, expected: Decision) {
        if decision.source() == DecisionSource::Key {
            assert_eq!(decision, expected, "key {key}");
        } else {
            let left = self.of_map(key).at(decision.at()).peek().remaining();
            assert_eq!(
                left,
                decision.capacity(),
                "key {key} is not idle, and was told that there is no place"
            );
        }
    }

    fn refund(&mut self, now: Tick) {
        if self.charges.is_empty() {
            return;
        }
        let index = self.input.below(self.charges.len().min(256));
        let (key, charge, of_map) = self.charges.swap_remove(index);
        let tokens = self.input.number();
        self.limiter.at(now).refund_n(&key, &charge, tokens);
        if let Some(charge) = of_map {
            self.of_map(key).at(now).refund_n(&charge, tokens);
        }
    }

    /// Discards all charges, because a reset of any key makes them invalid.
    fn void(&mut self) {
        self.charges.iter_mut().for_each(|(_, _, of_map)| *of_map = None);
    }
}
