//! Compares a rule with its oracle, for any quota, times, costs, refunds and resets.

use super::input::Input;
use crate::oracle::{END, Oracle, PACKED};
use std::time::Duration;
use tollgate::rule::{AnyRule, Rule, Word};
use tollgate::{Algorithm, Decision, Outcome, Quota, Tick};

/// How many nanoseconds early a bucket may be if its interval is not a whole number of nanoseconds.
/// If a time steps back, the bucket may also be this late.
const SLACK: u64 = 2;

/// The maximum number of calls. More calls find nothing new, and the oracle takes quadratic time.
const CALLS: usize = 64;

pub fn algorithm(input: &mut Input<'_>) -> Algorithm {
    PACKED[input.below(PACKED.len())]
}

/// Returns any quota, including quotas that no rule accepts.
pub fn quota(input: &mut Input<'_>) -> Quota {
    let period = match input.below(4) {
        0 => Duration::from_secs(1),
        1 => Duration::from_millis(10),
        2 => Duration::from_nanos(input.number()),
        _ => Duration::new(input.number(), 999_999_999),
    };
    let quota = Quota::new(input.number(), period);
    if input.below(2) == 0 { quota } else { quota.burst(input.number()) }
}

struct RuleRun<'d> {
    input: Input<'d>,
    algorithm: Algorithm,
    rule: AnyRule,
    oracle: Oracle,
    word: Word,
    period: u64,
    interval: u64,
    now: u64,
    /// The latest time so far.
    latest: u64,
    /// The retry time of the last denial.
    retry_at: u64,
}

pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let (algorithm, quota) = (algorithm(&mut input), quota(&mut input));
    let phase = input.number();
    let rule = match AnyRule::new(algorithm, quota, Duration::from_nanos(phase)) {
        Ok(rule) => rule,
        Err(refused) => {
            assert!(refused.to_string().contains("allowed: "), "{refused}");
            return;
        }
    };
    let period = u64::try_from(quota.period().as_nanos()).expect("it was accepted");
    let oracle = Oracle::new(algorithm, quota, if algorithm.has_windows() { phase % period } else { 0 });
    let interval = period / quota.tokens();
    let word = Word::FRESH;
    let mut run =
        RuleRun { input, algorithm, rule, oracle, word, period, interval, now: 0, latest: 0, retry_at: 0 };
    for _ in 0..CALLS {
        if run.input.is_empty() {
            return;
        }
        run.step();
    }
}

impl RuleRun<'_> {
    fn step(&mut self) {
        self.now = match self.input.below(8) {
            0 | 1 => self.now,
            2 => self.now.saturating_add(self.input.share(self.interval)),
            3 => self.now.saturating_add(self.input.share(self.period)),
            4 => self.retry_at.saturating_sub(u64::from(self.input.byte()) & 1),
            5 => self.now.saturating_sub(self.input.number()),
            6 => self.now.saturating_add(self.input.number()),
            _ => self.input.number(),
        }
        .min(END);
        self.latest = self.latest.max(self.now);
        let cost = match self.input.below(4) {
            0 | 1 => 1,
            2 => self.input.share(self.oracle.capacity()),
            _ => self.input.number(),
        };
        match self.input.below(16) {
            0 => {
                self.word = self.rule.reset(self.word);
                self.oracle.reset();
            }
            1 => self.refund_at_once(cost),
            _ => {
                let _ = self.check(cost);
            }
        }
    }

    /// Returns the earliest and the latest time at which the oracle may agree with the decision.
    fn around(&self) -> (u64, u64) {
        match self.oracle.is_exact() {
            true => (self.now, self.now),
            false if self.now == self.latest => (self.now, self.now + SLACK),
            false => (self.now.saturating_sub(SLACK), self.now + SLACK),
        }
    }

    fn check(&mut self, cost: u64) -> Decision {
        let now = Tick::from_nanos(self.now);
        let (early, late) = self.around();
        let peeked = self.rule.peek(self.word, now, cost);
        let (next, decision) = self.rule.decide(self.word, now, cost);
        let capacity = self.oracle.capacity();
        assert_eq!(peeked.outcome(), decision.outcome());
        assert_eq!((decision.at(), decision.capacity()), (now, capacity));
        assert_eq!(next != self.word, decision.charged() > 0, "a charge changes the word, a denial does not");
        if cost > capacity {
            assert_eq!((decision.outcome(), decision.retry_after()), (Outcome::TooCostly, None));
        } else if decision.is_allowed() {
            assert!(self.oracle.fits(late, cost), "{decision:?} is too much");
        } else {
            assert!(!self.oracle.fits(early, cost), "{decision:?} would have fitted");
            self.is_true(&decision, next, cost);
        }
        if decision.is_allowed() {
            self.oracle.charge(self.now, cost);
        }
        let remaining = self.oracle.remaining(early)..=self.oracle.remaining(late);
        assert!(remaining.contains(&decision.remaining()), "{decision:?} remains, not {remaining:?}");
        self.word = next;
        decision
    }

    /// Asserts that the request passes at its retry time, but not a nanosecond earlier.
    fn is_true(&mut self, denial: &Decision, word: Word, cost: u64) {
        let Some(wait) = denial.retry_after() else { return };
        let then = denial.at() + wait;
        self.retry_at = then.as_nanos();
        assert!(wait > Duration::ZERO);
        assert!(self.rule.decide(word, then, cost).1.is_allowed(), "{denial:?}");
        let before = Tick::from_nanos(then.as_nanos() - 1);
        assert!(!self.rule.decide(word, before, cost).1.is_allowed(), "{denial:?}");
        if self.oracle.is_exact() {
            assert!(self.oracle.fits(self.retry_at, cost) && !self.oracle.fits(self.retry_at - 1, cost));
        }
    }

    /// Charges a cost, and immediately refunds a part of the charge.
    fn refund_at_once(&mut self, cost: u64) {
        let before = self.oracle.charges();
        let decision = self.check(cost);
        let tokens = self.input.number();
        let now = Tick::from_nanos(self.now);
        let refunded = self.rule.refund(self.word, now, &decision, tokens);
        if decision.charged() == 0 || tokens == 0 {
            assert_eq!(refunded, self.word, "nothing was charged, so nothing comes back");
            return;
        }
        if decision.reset_after() == Duration::MAX {
            // The part of the charge beyond the last tick is unknown, so fewer tokens are returned.
            return;
        }
        self.word = refunded;
        self.oracle.refund(before, tokens);
        let (early, late) = self.around();
        let remaining = self.oracle.remaining(early)..=self.oracle.remaining(late);
        let peeked = self.rule.peek(self.word, now, 1).remaining();
        assert!(remaining.contains(&peeked), "{peeked} remain of {:?}, not {remaining:?}", self.algorithm);
    }
}
