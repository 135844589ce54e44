//! Compares every algorithm with its oracle, and tests the promises that concern rules. Quotas are
//! random, from one per 30 days to 1.25e9 per second. Costs and times are also random. The times
//! step, jump, stand still and go back.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::rule::{AnyRule, Refused, Rule, Word};
use tollgate::{Algorithm, Decision, ManualClock, Outcome, Quota, SingleLimiter, Tick};
use tollgate_testing::oracle::{END, Oracle};

const DAY: u64 = 24 * 3600 * 1_000_000_000;

/// How many nanoseconds early a bucket may be if an interval is not a whole number of nanoseconds.
/// A bucket is late only if its time steps back.
const EARLY: u64 = 2;
const LATE: u64 = 2;

/// Returns whole numbers whose sizes are spread evenly over the powers of two.
fn spread(least: u64, most: u64) -> impl Strategy<Value = u64> {
    let bits = 64 - least.leading_zeros()..=64 - most.leading_zeros();
    bits.prop_flat_map(move |bits| {
        let high = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        let low = if bits == 0 { 0 } else { 1 << (bits - 1) };
        low.clamp(least, most)..=high.clamp(least, most)
    })
}

#[derive(Clone, Debug)]
struct Case {
    algorithm: Algorithm,
    quota: Quota,
    phase: u64,
    /// The debt, in 64ths of the capacity, as far as it fits.
    debt: u64,
}

impl Case {
    /// Returns the rule, and the debt that it allows.
    fn rule_and_debt(&self) -> (AnyRule, u64) {
        let rule = AnyRule::new(self.algorithm, self.quota, Duration::from_nanos(self.phase)).unwrap();
        let debt = u128::from(self.capacity()) * u128::from(self.debt) / 64;
        let debt = u64::try_from(debt).unwrap();
        match rule.max_debt(debt) {
            Ok(rule) => (rule, debt),
            Err(Refused::DebtTooLarge { most, .. }) => (rule.max_debt(most).unwrap(), most),
            Err(other) => panic!("{other}"),
        }
    }

    fn rule(&self) -> AnyRule {
        self.rule_and_debt().0
    }

    fn oracle(&self) -> Oracle {
        Oracle::new(self.algorithm, self.quota, self.phase).max_debt(self.rule_and_debt().1)
    }

    fn capacity(&self) -> u64 {
        self.quota.capacity()
    }
}

/// Returns quotas of all sizes that an algorithm accepts.
fn case(algorithm: Algorithm) -> impl Strategy<Value = Case> {
    let period = prop_oneof![Just(1_000_000_000), Just(60_000_000_000), spread(1, 30 * DAY), Just(30 * DAY),];
    let quota = period.prop_flat_map(move |period| {
        let most = 2 * period;
        let limit = prop_oneof![Just(1), spread(1, most), Just(most)];
        let debt = prop_oneof![Just(0), spread(1, 640)];
        (limit, prop::option::of(spread(1, 1 << 40)), 0..period, debt).prop_map(
            move |(limit, burst, phase, debt)| {
                let quota = Quota::new(limit, Duration::from_nanos(period));
                let quota = match burst {
                    Some(burst) if !algorithm.has_windows() => quota.burst(burst),
                    _ => quota,
                };
                Case { algorithm, quota, phase: if algorithm.has_windows() { phase } else { 0 }, debt }
            },
        )
    });
    quota.prop_filter("the algorithm refuses this quota", |case| {
        AnyRule::new(case.algorithm, case.quota, Duration::ZERO).is_ok()
    })
}

fn any_case() -> impl Strategy<Value = Case> {
    prop::sample::select(&Algorithm::PACKED[..]).prop_flat_map(case)
}

/// How the time of a request relates to the time of the previous request.
#[derive(Clone, Copy, Debug)]
enum Step {
    Same,
    /// A number of 64ths of an emission interval.
    Intervals(u64),
    /// A number of 64ths of a period.
    Periods(u64),
    Nanos(u64),
    /// The retry time of the last denial, or one nanosecond earlier.
    Retry {
        early: bool,
    },
    Back(u64),
    To(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Same),
        4 => (0..200_u64).prop_map(Step::Intervals),
        3 => (0..200_u64).prop_map(Step::Periods),
        2 => (0..5_u64).prop_map(Step::Nanos),
        3 => any::<bool>().prop_map(|early| Step::Retry { early }),
        1 => spread(1, DAY).prop_map(Step::Back),
        1 => prop_oneof![spread(1, 40 * DAY), spread(1, END), Just(END)].prop_map(Step::To),
    ]
}

/// A cost: either a share of the capacity, or a number that is small, zero, or too large.
#[derive(Clone, Copy, Debug)]
enum Cost {
    Tokens(u64),
    Share(u64),
    Over(u64),
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        6 => Just(Cost::Tokens(1)),
        2 => (0..4_u64).prop_map(Cost::Tokens),
        4 => (0..=64_u64).prop_map(Cost::Share),
        1 => spread(1, u64::MAX).prop_map(Cost::Over),
    ]
}

/// A request, or a refund of a share, in 64ths, of an earlier request's tokens.
#[derive(Clone, Debug)]
enum Act {
    Request(Step, Cost),
    Refund(prop::sample::Index, u64),
}

/// A charge, the tokens of the charge that were not given back, and the tokens given back since the
/// charge was made, by this charge and earlier ones.
#[derive(Clone, Copy, Debug)]
struct Held {
    charge: Decision,
    kept: u64,
    earlier: u64,
}

fn requests() -> impl Strategy<Value = Vec<(Step, Cost)>> {
    prop::collection::vec((step(), cost()), 1..40)
}

/// Converts steps and costs to times and costs for a case.
struct Script {
    period: u64,
    limit: u64,
    capacity: u64,
    now: u64,
    retry: u64,
}

impl Script {
    fn new(case: &Case) -> Self {
        let period = u64::try_from(case.quota.period().as_nanos()).unwrap();
        let limit = case.quota.tokens();
        Self { period, limit, capacity: case.capacity(), now: DAY, retry: 0 }
    }

    fn next(&mut self, (step, cost): (Step, Cost)) -> (Tick, u64) {
        let part = |of: u64, parts: u64| u64::try_from(u128::from(of) * u128::from(parts) / 64).unwrap();
        self.now = match step {
            Step::Same => self.now,
            Step::Intervals(n) => self.now.saturating_add(part(self.period / self.limit, n)),
            Step::Periods(n) => self.now.saturating_add(part(self.period, n)),
            Step::Nanos(n) => self.now + n,
            Step::Retry { early } => (self.now + self.retry).saturating_sub(u64::from(early)),
            Step::Back(n) => self.now.saturating_sub(n),
            Step::To(n) => n,
        }
        .min(END);
        let cost = match cost {
            Cost::Tokens(n) => n,
            Cost::Share(n) => part(self.capacity, n),
            Cost::Over(n) => self.capacity.saturating_add(n),
        };
        (Tick::from_nanos(self.now), cost)
    }

    fn saw(&mut self, decision: &Decision) {
        self.retry = decision
            .retry_after()
            .and_then(|wait| u64::try_from(wait.as_nanos()).ok())
            .unwrap_or(0)
            .min(END - self.now);
    }
}

/// Compares a time of the rule with the oracle's time. The rule's time is never later, and is
/// earlier only where this is promised.
fn agree(
    rule: Option<Duration>,
    oracle: Option<u64>,
    now: u64,
    (early, late): (u64, u64),
) -> Result<(), TestCaseError> {
    let rule = rule.map(|wait| now + u64::try_from(wait.as_nanos()).unwrap());
    match (rule, oracle) {
        (Some(rule), Some(exact)) => {
            prop_assert!(rule <= exact + late, "late: {rule} instead of {exact}");
            prop_assert!(rule + early >= exact, "early: {rule} instead of {exact}");
        }
        // The retry time is shortly before the end of time.
        (Some(rule), None) => prop_assert!(rule + early > END),
        (None, None) => {}
        (None, Some(exact)) => prop_assert!(exact + late > END, "never instead of {exact}"),
    }
    Ok(())
}

/// Plays the requests to the rule and to the oracle, and compares every figure of every answer.
/// `forced` is a pattern, applied repeatedly, of the requests to charge by force.
fn compare(case: &Case, requests: &[(Step, Cost)], forced: &[bool]) -> Result<(), TestCaseError> {
    let (rule, mut oracle, mut script) = (case.rule(), case.oracle(), Script::new(case));
    let mut word = Word::FRESH;
    let mut latest = 0;
    for (&request, &is_forced) in requests.iter().zip(forced.iter().cycle()) {
        let (tick, cost) = script.next(request);
        let now = tick.as_nanos();
        latest = now.max(latest);
        let early = if oracle.is_exact() { 0 } else { EARLY };
        let late = if oracle.is_exact() || latest == now { 0 } else { LATE };
        let slack = (early, late);
        if is_forced {
            let (next, charged) = rule.force(word, tick, cost);
            let most = oracle.forced(now.saturating_sub(late), cost)..=oracle.forced(now + early, cost);
            prop_assert!(most.contains(&charged), "{charged} forced, not {most:?}");
            prop_assert_eq!(next != word, charged > 0);
            oracle.charge(now, charged);
            word = next;
            if let (0, Some(idle)) = (early + late, oracle.idle_at(now)) {
                prop_assert!(rule.is_idle(word, Tick::from_nanos(idle)));
                prop_assert!(
                    idle == now || !rule.is_idle(word, Tick::from_nanos(idle - 1)),
                    "forgotten early"
                );
            }
            continue;
        }
        let peeked = rule.peek(word, tick, cost);
        let (next, decision) = rule.decide(word, tick, cost);

        prop_assert_eq!(decision.capacity(), oracle.capacity());
        prop_assert_eq!(decision.at(), tick);
        prop_assert_eq!(peeked.outcome(), decision.outcome());
        let (at_least, at_most) = (now.saturating_sub(late), now + early);
        if oracle.fits(at_least, cost) && cost <= oracle.capacity() {
            prop_assert_eq!(decision.outcome(), Outcome::Allowed);
        } else if cost > oracle.capacity() {
            prop_assert_eq!(decision.outcome(), Outcome::TooCostly);
            prop_assert_eq!(decision.retry_after(), None);
        } else if decision.is_allowed() {
            prop_assert!(oracle.fits(at_most, cost), "admitted {} ns too early", early);
        } else {
            agree(decision.retry_after(), oracle.fits_at(now, cost), now, slack)?;
        }

        if case.algorithm == Algorithm::LeakyQueue && decision.is_allowed() {
            let start = decision.start_after();
            agree((start != Duration::MAX).then_some(start), oracle.turn_at(now), now, slack)?;
        } else {
            prop_assert_eq!(decision.start_after(), Duration::ZERO);
        }
        let remaining = oracle.remaining(at_least)..=oracle.remaining(at_most);
        prop_assert!(remaining.contains(&peeked.remaining()), "{peeked:?} not in {remaining:?}");
        if decision.is_allowed() {
            oracle.charge(now, cost);
        }
        let remaining = oracle.remaining(at_least)..=oracle.remaining(at_most);
        prop_assert!(remaining.contains(&decision.remaining()), "{decision:?} not in {remaining:?}");
        let reset = decision.reset_after();
        agree((reset != Duration::MAX).then_some(reset), oracle.idle_at(now), now, slack)?;

        script.saw(&decision);
        word = next;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn token_bucket_decides_as_its_oracle(case in case(Algorithm::TokenBucket), requests in requests()) {
        compare(&case, &requests, &[false])?;
    }

    #[test]
    fn leaky_bucket_decides_as_its_oracle(case in case(Algorithm::LeakyBucket), requests in requests()) {
        compare(&case, &requests, &[false])?;
    }

    #[test]
    fn leaky_queue_decides_as_its_oracle(case in case(Algorithm::LeakyQueue), requests in requests()) {
        compare(&case, &requests, &[false])?;
    }

    #[test]
    fn fixed_window_decides_as_its_oracle(case in case(Algorithm::FixedWindow), requests in requests()) {
        compare(&case, &requests, &[false])?;
    }

    #[test]
    fn sliding_window_decides_as_its_oracle(case in case(Algorithm::SlidingWindow), requests in requests()) {
        compare(&case, &requests, &[false])?;
    }

    #[test]
    fn forced_charges_and_debts_decide_as_the_oracle(
        case in any_case(), requests in requests(), forced in prop::collection::vec(any::<bool>(), 1..8)
    ) {
        compare(&case, &requests, &forced)?;
    }

    // An immediate refund gives back the whole charge, even if the key has gone into debt since.
    #[test]
    fn a_debt_of_others_takes_nothing_from_a_refund(case in any_case(), tokens in 1..64_u64, owed in spread(1, 1 << 40)) {
        let (rule, now) = (case.rule(), Tick::from_nanos(DAY));
        let (held, charge) = rule.decide(Word::FRESH, now, tokens.min(case.capacity()));
        prop_assume!(charge.reset_after() != Duration::MAX);
        let back = rule.refund(rule.force(held, now, owed).0, now, &charge, u64::MAX);
        let charged = rule.force(held, now, owed).1;
        let without = rule.force(Word::FRESH, now, charged).0;
        prop_assert_eq!(rule.peek(back, now, 1), rule.peek(without, now, 1));
        prop_assert_eq!(rule.force(back, now, u64::MAX).1, rule.force(without, now, u64::MAX).1);
    }

    // Promise 1, from the bounds that the rules state.
    #[test]
    fn no_trailing_interval_admits_more_than_the_stated_bound(case in any_case(), requests in requests()) {
        let (rule, mut oracle, mut script) = (case.rule(), case.oracle(), Script::new(&case));
        let mut word = Word::FRESH;
        for request in requests {
            let (tick, cost) = script.next(request);
            let (next, decision) = rule.decide(word, tick, cost);
            if decision.is_allowed() && case.algorithm.has_windows() {
                // A window counts a stale time in the word's window: the charge has that window's
                // time.
                let counted = oracle.window_start(tick.as_nanos()).max(tick.as_nanos());
                oracle.charge(counted, cost);
            } else if decision.is_allowed() {
                oracle.charge(tick.as_nanos(), cost);
            }
            script.saw(&decision);
            word = next;
        }
        let (limit, period) = (u128::from(script.limit), u128::from(script.period));
        for span in [0, 1, script.period / 2, script.period - 1, script.period, 3 * script.period] {
            let bound = if case.algorithm.has_windows() {
                limit * (u128::from(span) / period + 2)
            } else {
                let early = if oracle.is_exact() { 0 } else { EARLY };
                u128::from(script.capacity) + u128::from(span + early) * limit / period
            };
            prop_assert!(u128::from(oracle.most_within(span)) <= bound);
        }
    }

    // Promise 5, and invariants 2 and 3 of the rules.
    #[test]
    fn a_denial_keeps_the_word_and_a_charge_changes_it(case in any_case(), requests in requests()) {
        let (rule, mut script) = (case.rule(), Script::new(&case));
        let mut word = Word::FRESH;
        for request in requests {
            let (tick, cost) = script.next(request);
            let (next, decision) = rule.decide(word, tick, cost);
            prop_assert_eq!(next != word, decision.charged() > 0);
            prop_assert!(word.is_fresh() || !next.is_fresh());
            script.saw(&decision);
            word = next;
        }
        prop_assert_eq!(rule.reset(word).is_fresh(), word.is_fresh());
    }

    // Promise 6.
    #[test]
    fn retry_and_reset_times_are_true_to_the_nanosecond(case in any_case(), requests in requests()) {
        let (rule, mut script) = (case.rule(), Script::new(&case));
        let mut word = Word::FRESH;
        for request in requests {
            let (tick, cost) = script.next(request);
            let (next, decision) = rule.decide(word, tick, cost);
            if let (Outcome::Denied, Some(wait)) = (decision.outcome(), decision.retry_after()) {
                prop_assert!(wait > Duration::ZERO);
                let then = tick + wait;
                prop_assert!(rule.decide(next, then, cost).1.is_allowed());
                let before = Tick::from_nanos(then.as_nanos() - 1);
                prop_assert!(!rule.decide(next, before, cost).1.is_allowed());
            }
            let reset = decision.reset_after();
            if reset != Duration::MAX {
                let then = tick + reset;
                prop_assert_eq!(rule.peek(next, then, 1).remaining(), decision.capacity());
                prop_assert!(rule.is_idle(next, then));
                if reset > Duration::ZERO {
                    let before = Tick::from_nanos(then.as_nanos() - 1);
                    prop_assert!(!rule.is_idle(next, before));
                    prop_assert!(rule.peek(next, before, 1).remaining() < decision.capacity());
                }
            }
            let refill = decision.refill_after();
            prop_assert_eq!(refill == Duration::ZERO, decision.remaining() == decision.capacity());
            prop_assert!(refill <= reset);
            if !refill.is_zero() && refill != Duration::MAX {
                let remaining_in = |wait| rule.peek(next, tick + wait, 1).remaining();
                prop_assert!(remaining_in(refill) > decision.remaining());
                let is_bucket = !matches!(case.algorithm, Algorithm::FixedWindow | Algorithm::SlidingWindow);
                let before = refill - Duration::from_nanos(1);
                prop_assert!(!is_bucket || remaining_in(before) == decision.remaining());
            }
            script.saw(&decision);
            word = next;
        }
    }

    // Promise 7: an older `now` can delay, never grant.
    #[test]
    fn a_stale_time_is_never_given_more(case in any_case(), requests in requests(), back in spread(1, 40 * DAY)) {
        let (rule, mut script) = (case.rule(), Script::new(&case));
        let mut word = Word::FRESH;
        for request in requests {
            let (tick, cost) = script.next(request);
            let stale = Tick::from_nanos(tick.as_nanos().saturating_sub(back));
            let (next, decision) = rule.decide(word, tick, cost);
            if !decision.is_allowed() {
                prop_assert!(!rule.decide(word, stale, cost).1.is_allowed());
            }
            prop_assert!(rule.peek(word, stale, 1).remaining() <= rule.peek(word, tick, 1).remaining());
            script.saw(&decision);
            word = next;
        }
    }

    // Promise 2 follows from this test: an idle word may be forgotten.
    #[test]
    fn an_idle_word_decides_as_a_fresh_one_ever_after(
        case in any_case(), before in requests(), after in requests()
    ) {
        let (rule, mut script) = (case.rule(), Script::new(&case));
        let mut word = Word::FRESH;
        for request in before {
            let (tick, cost) = script.next(request);
            let (next, decision) = rule.decide(word, tick, cost);
            script.saw(&decision);
            word = next;
        }
        let now = Tick::from_nanos(script.now);
        let Some(idle) = now.as_nanos().checked_add(
            u64::try_from(rule.peek(word, now, 1).reset_after().as_nanos()).unwrap_or(u64::MAX)
        ) else { return Ok(()) };
        prop_assume!(idle <= END);
        script.now = idle;
        prop_assert!(rule.is_idle(word, Tick::from_nanos(idle)));
        let mut forgotten = Word::FRESH;
        for request in after.into_iter().filter(|(step, _)| !matches!(step, Step::Back(_) | Step::To(_))) {
            let (tick, cost) = script.next(request);
            // `Retry { early }` from a denial of nothing would step before the idle time.
            let tick = tick.max(Tick::from_nanos(idle));
            let (kept, with) = rule.decide(word, tick, cost);
            let (fresh, without) = rule.decide(forgotten, tick, cost);
            prop_assert_eq!(with, without);
            script.saw(&with);
            (word, forgotten) = (kept, fresh);
        }
    }

    // Words that were refunded or reset also have this property, for times in any order afterwards.
    #[test]
    fn an_idle_word_is_idle_whatever_it_went_through(
        case in any_case(), before in requests(), reset in any::<bool>(),
        (from, after) in (step(), requests())
    ) {
        let (rule, mut script) = (case.rule(), Script::new(&case));
        let mut word = Word::FRESH;
        for request in before {
            let (tick, cost) = script.next(request);
            let (next, decision) = rule.decide(word, tick, cost);
            word = if reset { rule.reset(next) } else { rule.refund(next, tick, &decision, u64::MAX) };
        }
        let from = script.next((from, Cost::Tokens(0))).0;
        if !rule.is_idle(word, from) {
            return Ok(());
        }
        let mut forgotten = Word::FRESH;
        for request in after {
            let (tick, cost) = script.next(request);
            let tick = tick.max(from);
            let (kept, with) = rule.decide(word, tick, cost);
            let (fresh, without) = rule.decide(forgotten, tick, cost);
            prop_assert_eq!(with, without);
            script.saw(&with);
            (word, forgotten) = (kept, fresh);
        }
    }

    #[test]
    fn a_refund_at_once_is_as_if_the_request_had_never_come(
        case in any_case(), requests in requests(), cost in cost()
    ) {
        let (rule, mut script) = (case.rule(), Script::new(&case));
        let mut word = Word::FRESH;
        for request in requests {
            let (tick, cost) = script.next(request);
            let (next, decision) = rule.decide(word, tick, cost);
            script.saw(&decision);
            word = next;
        }
        let (tick, cost) = script.next((Step::Same, cost));
        let (charged, charge) = rule.decide(word, tick, cost);
        if charge.reset_after() == Duration::MAX {
            // The part of a charge that lies beyond the end of time is unknown, so less is given
            // back.
            return Ok(());
        }
        let back = rule.refund(charged, tick, &charge, u64::MAX);
        prop_assert_eq!(rule.peek(back, tick, 1), rule.peek(word, tick, 1));
        // A refund in two parts gives the same word.
        let part = rule.refund(charged, tick, &charge, cost / 2);
        let both = rule.refund(part, tick, &charge, cost - cost / 2);
        prop_assert_eq!(rule.peek(both, tick, 1), rule.peek(word, tick, 1));
        // A denial or a peek took no tokens, so none are given back.
        let denied = rule.decide(charged, tick, u64::MAX).1;
        prop_assert_eq!(rule.refund(charged, tick, &denied, u64::MAX), charged);
        let peeked = rule.peek(charged, tick, 1);
        prop_assert_eq!(rule.refund(charged, tick, &peeked, u64::MAX), charged);
    }

    #[test]
    fn a_late_refund_never_gives_more_than_if_the_request_had_never_come(
        case in any_case(), requests in requests(), chosen in any::<prop::sample::Index>()
    ) {
        let (rule, mut oracle, mut script) = (case.rule(), case.oracle(), Script::new(&case));
        let early = if oracle.is_exact() { 0 } else { 2 * EARLY };
        let mut word = Word::FRESH;
        let mut charges = Vec::new();
        for (step, cost) in requests {
            // The charges must be ordered by their times: see `Rule::refund`.
            if matches!(step, Step::Back(_) | Step::To(_) | Step::Retry { .. }) {
                continue;
            }
            let (tick, cost) = script.next((step, cost));
            let (next, decision) = rule.decide(word, tick, cost);
            if decision.charged() > 0 {
                charges.push(decision);
                oracle.charge(tick.as_nanos(), cost);
            }
            word = next;
        }
        prop_assume!(!charges.is_empty());
        let index = chosen.index(charges.len());
        let now = Tick::from_nanos(script.now);
        let kept = rule.peek(word, now, 1).remaining();
        let after = rule.peek(rule.refund(word, now, &charges[index], u64::MAX), now, 1).remaining();
        oracle.forget(index);
        let never_came = oracle.remaining(now.as_nanos() + early);
        prop_assert!(after <= never_came, "{after} is more than {never_came}");
        prop_assert!(kept <= after);
        if case.algorithm.has_windows() {
            prop_assert_eq!(after, oracle.remaining(now.as_nanos()));
        }
    }

    // Windows give back exactly, in any order. With a bucket, refunding a charge may admit
    // additional tokens: at most as many as this charge and earlier ones have given back since it
    // was made.
    #[test]
    fn refunds_in_any_order_admit_no_more_than_their_stated_bound(
        case in any_case(),
        acts in prop::collection::vec(prop_oneof![
            3 => (step(), cost()).prop_map(|request| Act::Request(request.0, request.1)),
            2 => (any::<prop::sample::Index>(), 1..=64_u64).prop_map(|(which, share)| Act::Refund(which, share)),
        ], 1..60),
    ) {
        let (rule, mut script) = (case.rule(), Script::new(&case));
        let (mut word, mut held, mut excess, mut refunds) = (Word::FRESH, Vec::<Held>::new(), 0, 0);
        for act in acts {
            match act {
                // The charges must be in the order of their times.
                Act::Request(Step::Back(_) | Step::To(_) | Step::Retry { .. }, _) => {}
                Act::Request(step, cost) => {
                    let (tick, cost) = script.next((step, cost));
                    let (next, charge) = rule.decide(word, tick, cost);
                    word = next;
                    held.push(Held { charge, kept: charge.charged(), earlier: 0 });
                }
                Act::Refund(which, share) if !held.is_empty() => {
                    let which = which.index(held.len());
                    let Held { charge, kept, earlier } = held[which];
                    let tokens = kept.min(charge.charged() / 64 * share + charge.charged() % 64 * share / 64);
                    let next = rule.refund(word, Tick::from_nanos(script.now), &charge, tokens);
                    if next != word && !case.algorithm.has_windows() {
                        excess = excess.max(earlier);
                        held[which..].iter_mut().for_each(|later| later.earlier += tokens);
                    }
                    (word, refunds) = (next, refunds + 1);
                    held[which].kept -= tokens;
                }
                Act::Refund(..) => {}
            }
        }
        // This also charges all remaining tokens.
        let now = Tick::from_nanos(script.now);
        let rest = rule.decide(word, now, rule.peek(word, now, 1).remaining()).1;
        held.push(Held { charge: rest, kept: rest.charged(), earlier: 0 });
        let mut oracle = Oracle::new(case.algorithm, case.quota, case.phase).max_debt(excess);
        let early = if oracle.is_exact() { 0 } else { EARLY * (1 + refunds) };
        for Held { charge, kept, .. } in held {
            let at = charge.at().as_nanos();
            prop_assert_eq!(oracle.forced(at + early, kept), kept, "{:?}, {} beyond", charge, excess);
            oracle.charge(at, kept);
        }
    }

    // Promise 7: no input causes a panic or an overflow (tests are built with overflow checks).
    #[test]
    fn nothing_panics_for_any_quota_any_time_and_any_cost(
        algorithm in prop::sample::select(&Algorithm::PACKED[..]),
        (limit, nanos, burst) in (spread(0, u64::MAX), spread(0, u64::MAX), prop::option::of(spread(0, u64::MAX))),
        days in prop_oneof![Just(0), spread(0, u64::MAX / DAY)],
        phase in spread(0, u64::MAX),
        calls in prop::collection::vec((spread(0, u64::MAX), spread(0, u64::MAX), spread(0, u64::MAX)), 1..20),
    ) {
        let period = Duration::from_nanos(nanos).saturating_add(Duration::from_secs(days * 24 * 3600));
        let quota = Quota::new(limit, period);
        let quota = burst.map_or(quota, |burst| quota.burst(burst));
        match AnyRule::new(algorithm, quota, Duration::from_nanos(phase)) {
            Err(refused) => prop_assert!(refused.to_string().contains("allowed: "), "{refused}"),
            Ok(rule) => {
                let mut word = Word::FRESH;
                for (now, cost, back) in calls {
                    let now = Tick::from_nanos(now);
                    let (next, decision) = rule.decide(word, now, cost);
                    prop_assert!(decision.remaining() <= decision.capacity());
                    let _ = rule.peek(next, now, cost);
                    let _ = rule.is_idle(next, now);
                    let refunded = rule.refund(next, Tick::from_nanos(back), &decision, back);
                    prop_assert!(refunded.is_fresh() == next.is_fresh());
                    word = if back % 7 == 0 { rule.reset(refunded) } else { refunded };
                }
            }
        }
    }
}

/// Promise 8: the admitted rate of a client that always takes as many tokens as it can, over many
/// bursts.
#[test]
fn long_run_rates_are_exact_to_a_millionth() {
    let awkward = [
        Quota::new(1, Duration::from_secs(30 * 24 * 3600)),
        Quota::new(1, Duration::from_secs(10_000)),
        Quota::per_minute(7),
        Quota::per_hour(1_000_003),
        Quota::per_second(150_000_000),
        Quota::per_second(600_000_000),
        Quota::per_second(999_999_937),
        Quota::per_second(1_249_999_999),
        Quota::per_second(1_250_000_000),
    ];
    for quota in awkward {
        let period = quota.period().as_nanos();
        // The burst refills in less than a fiftieth of the domain of time.
        let whole = u128::from(END) * u128::from(quota.tokens()) / period / 50;
        let burst = u64::try_from(whole).unwrap().min(1_000_000);
        let rule = AnyRule::new(Algorithm::TokenBucket, quota.burst(burst), Duration::ZERO).unwrap();
        // Half of a burst refills between visits, at times that are not multiples of any interval.
        // All visits together take at most a twentieth of the domain of time.
        let gap = u64::try_from(u128::from(burst) * period / u128::from(quota.tokens()) / 2).unwrap() | 1;
        let visits = 20_000.min(END / 20 / gap);
        let mut word = Word::FRESH;
        let mut taken: u128 = 0;
        for visit in 0..=visits {
            let now = Tick::from_nanos(visit * gap);
            let cost = rule.peek(word, now, 1).remaining();
            let (next, decision) = rule.decide(word, now, cost);
            assert!(decision.is_allowed());
            taken += u128::from(cost);
            word = next;
        }
        // The first burst was there from the start, and all later tokens were refilled.
        let flowed = (taken - u128::from(burst)) as f64;
        let exact = (visits * gap) as f64 * quota.tokens() as f64 / period as f64;
        let error = (flowed - exact).abs() - 1.0;
        assert!(error / exact < 1e-6, "{quota}: {flowed} instead of {exact}");
    }
}

/// The last tick is a valid time.
#[test]
fn a_charge_that_is_held_until_the_last_tick_says_so_and_can_be_given_back() {
    // With this period, the last window ends exactly at the end of the domain of time.
    const LENGTH: u64 = 1 << 30;
    for (algorithm, windows) in [(Algorithm::FixedWindow, 1), (Algorithm::SlidingWindow, 2)] {
        let quota = Quota::new(3, Duration::from_nanos(LENGTH));
        let rule = AnyRule::new(algorithm, quota, Duration::ZERO).unwrap();
        let left = windows * LENGTH - 5;
        let now = Tick::from_nanos(END - left);
        let (word, charge) = rule.decide(Word::FRESH, now, 2);
        assert_eq!(charge.reset_after(), Duration::from_nanos(left), "{algorithm}");
        assert_eq!(rule.peek(word, now, 1).reset_after(), Duration::from_nanos(left), "{algorithm}");
        let back = rule.refund(word, now, &charge, 2);
        assert_eq!(rule.peek(back, now, 1).remaining(), 3, "{algorithm}");
    }
}

mod failures_of_other_limiters {
    use super::*;

    fn bucket(quota: Quota) -> AnyRule {
        AnyRule::new(Algorithm::TokenBucket, quota, Duration::ZERO).unwrap()
    }

    fn at(seconds: f64) -> Tick {
        Tick::from(Duration::from_secs_f64(seconds))
    }

    /// Returns how many requests of cost 1 pass at one instant.
    fn burst_of(rule: &AnyRule, now: Tick) -> u64 {
        let mut word = Word::FRESH;
        let mut passed = 0;
        loop {
            let (next, decision) = rule.decide(word, now, 1);
            if !decision.is_allowed() {
                return passed;
            }
            (word, passed) = (next, passed + 1);
        }
    }

    #[test]
    fn a_burst_is_neither_one_short_nor_one_over() {
        for algorithm in Algorithm::PACKED {
            for limit in [1, 2, 10] {
                let rule = AnyRule::new(algorithm, Quota::per_second(limit), Duration::ZERO).unwrap();
                assert_eq!(burst_of(&rule, at(5.0)), limit, "{algorithm}");
            }
        }
        assert_eq!(burst_of(&bucket(Quota::per_second(1).burst(5)), at(0.0)), 5);
    }

    #[test]
    fn millions_per_hour_with_a_burst_of_millions_do_not_wrap() {
        let rule = bucket(Quota::per_hour(5_000_000).burst(50_000_000));
        let (word, all) = rule.decide(Word::FRESH, at(1.0), 50_000_000);
        assert!(all.is_allowed());
        assert!(!rule.decide(word, at(1.0), 1).1.is_allowed());
    }

    #[test]
    fn a_rate_of_one_in_ten_thousand_seconds_gives_its_token_at_ten_thousand_seconds() {
        let rule = bucket(Quota::new(1, Duration::from_secs(10_000)));
        let (word, _) = rule.decide(Word::FRESH, at(0.0), 1);
        assert!(!rule.decide(word, at(9_999.999_999), 1).1.is_allowed());
        assert!(rule.decide(word, at(10_000.0), 1).1.is_allowed());
    }

    #[test]
    fn a_slow_rate_refills_however_often_it_is_asked() {
        let rule = bucket(Quota::per_minute(1));
        let (mut word, _) = rule.decide(Word::FRESH, at(0.0), 1);
        for tenth in 1..600 {
            let (next, decision) = rule.decide(word, at(f64::from(tenth) / 10.0), 1);
            assert!(!decision.is_allowed());
            word = next;
        }
        assert!(rule.decide(word, at(60.0), 1).1.is_allowed());
    }

    #[test]
    fn more_than_one_token_refills_between_two_calls() {
        let rule = bucket(Quota::per_second(10));
        let (word, _) = rule.decide(Word::FRESH, at(0.0), 10);
        assert_eq!(rule.peek(word, at(0.55), 1).remaining(), 5);
    }

    #[test]
    fn a_cost_equal_to_the_capacity_passes_and_one_above_never_does() {
        for algorithm in Algorithm::PACKED {
            let rule = AnyRule::new(algorithm, Quota::per_second(5), Duration::ZERO).unwrap();
            assert!(rule.decide(Word::FRESH, at(1.0), 5).1.is_allowed());
            let over = rule.decide(Word::FRESH, at(1.0), 6).1;
            assert_eq!((over.outcome(), over.retry_after()), (Outcome::TooCostly, None));
        }
    }

    #[test]
    fn years_of_idling_give_one_burst_and_no_more() {
        for algorithm in Algorithm::PACKED {
            let rule = AnyRule::new(algorithm, Quota::per_second(3), Duration::ZERO).unwrap();
            let (mut word, _) = rule.decide(Word::FRESH, at(1.0), 1);
            let later = at(1e9);
            let mut passed = 0;
            while let (next, true) = {
                let (next, decision) = rule.decide(word, later, 1);
                (next, decision.is_allowed())
            } {
                (word, passed) = (next, passed + 1);
            }
            assert_eq!(passed, 3, "{algorithm}");
        }
    }

    #[test]
    fn a_client_that_keeps_trying_is_not_punished_for_it() {
        for algorithm in Algorithm::PACKED {
            let rule = AnyRule::new(algorithm, Quota::per_second(1), Duration::ZERO).unwrap();
            let (word, _) = rule.decide(Word::FRESH, at(10.0), 1);
            for milli in 0..1000 {
                let now = at(10.0 + f64::from(milli) / 1000.0);
                assert_eq!(rule.decide(word, now, 1).0, word);
            }
        }
    }

    #[test]
    fn a_jump_to_the_end_of_time_and_back_delays_and_grants_nothing() {
        for algorithm in Algorithm::PACKED {
            let rule = AnyRule::new(algorithm, Quota::per_second(1), Duration::ZERO).unwrap();
            let (word, far) = rule.decide(Word::FRESH, Tick::from_nanos(u64::MAX), 1);
            assert!(far.is_allowed());
            assert!(!rule.decide(word, at(1.0), 1).1.is_allowed());
            assert!(!rule.decide(word, Tick::MAX, 1).1.is_allowed());
        }
    }

    #[test]
    fn a_fixed_window_admits_twice_its_limit_around_a_boundary_and_no_more() {
        let rule = AnyRule::new(Algorithm::FixedWindow, Quota::per_second(5), Duration::ZERO).unwrap();
        let (word, end) = rule.decide(Word::FRESH, at(0.999), 5);
        let (word, beginning) = rule.decide(word, at(1.0), 5);
        assert!(end.is_allowed() && beginning.is_allowed());
        assert!(!rule.decide(word, at(1.998), 1).1.is_allowed());
    }

    #[test]
    fn a_sliding_window_nears_twice_its_limit_when_the_load_sat_at_the_end() {
        let rule = AnyRule::new(Algorithm::SlidingWindow, Quota::per_second(100), Duration::ZERO).unwrap();
        let (mut word, end) = rule.decide(Word::FRESH, at(0.999_999), 100);
        assert!(end.is_allowed());
        let mut passed = 100;
        for milli in 1000..1999 {
            let (next, decision) = rule.decide(word, at(f64::from(milli) / 1000.0), 1);
            passed += decision.charged();
            word = next;
        }
        assert!((195..=200).contains(&passed), "{passed}");
    }

    /// The key is idle for the first 40 minutes of an hour. It has the whole limit in the remaining
    /// 20 minutes, and again from the next hour on.
    #[test]
    fn a_fixed_window_grants_its_whole_limit_to_a_key_that_begins_late() {
        let rule = AnyRule::new(Algorithm::FixedWindow, Quota::per_hour(100), Duration::ZERO).unwrap();
        let late = at(40.0 * 60.0);
        assert_eq!(burst_of(&rule, late), 100);
        let (word, _) = rule.decide(Word::FRESH, late, 100);
        let refused = rule.decide(word, late, 1).1;
        assert_eq!(refused.retry_after(), Some(Duration::from_secs(20 * 60)));
        assert!(rule.decide(word, at(3_600.0), 100).1.is_allowed());
    }

    /// A request arrives every 10 ms, for 200 periods. A sliding window admits all tokens of the
    /// first period, and then one token less than its limit in each period.
    #[test]
    fn a_saturated_sliding_window_admits_one_token_less_than_its_limit() {
        for (limit, admitted) in [(1, 100), (2, 201), (3, 401), (10, 1_801)] {
            let quota = Quota::new(limit, Duration::from_secs(10));
            for (algorithm, expected) in [
                (Algorithm::SlidingWindow, admitted),
                // The alternatives for small limits. The bucket also admits its burst.
                (Algorithm::SlidingLog, 200 * limit),
                (Algorithm::TokenBucket, 201 * limit - 1),
            ] {
                let clock = ManualClock::new();
                let builder = SingleLimiter::builder(quota).algorithm(algorithm).clock(&clock);
                let limiter = builder.build().unwrap();
                let mut charged = 0;
                for _ in 0..200_000 {
                    charged += limiter.check().charged();
                    clock.advance(Duration::from_millis(10));
                }
                assert_eq!(charged, expected, "{limit} in 10 s, {algorithm}");
            }
        }
    }

    #[test]
    fn a_refund_with_a_stale_time_gives_back_no_burst_that_has_refilled() {
        let rule = bucket(Quota::per_second(10).burst(10));
        let (word, a) = rule.decide(Word::FRESH, at(0.0), 10);
        let (word, b) = rule.decide(word, at(1.0), 10);
        assert!(a.is_allowed() && b.is_allowed());
        // The clock was read at 0, but the refund takes effect after the second burst was taken.
        let word = rule.refund(word, at(0.0), &a, u64::MAX);
        assert!(!rule.decide(word, at(1.0), 1).1.is_allowed());
    }

    #[test]
    fn a_refund_in_the_last_window_of_time_takes_nobody_elses_tokens() {
        for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let rule = AnyRule::new(algorithm, Quota::per_second(9), Duration::ZERO).unwrap();
            let last = Tick::MAX;
            let (word, _) = rule.decide(Word::FRESH, Tick::from_nanos(END - 1_000_000_000), 3);
            let (word, charge) = rule.decide(word, last, 2);
            let before = rule.peek(word, last, 1).remaining();
            let after = rule.peek(rule.refund(word, last, &charge, 2), last, 1).remaining();
            assert_eq!(before, after, "{algorithm}");
        }
    }

    #[test]
    fn a_retry_at_the_last_tick_is_told() {
        let rule = bucket(Quota::per_second(1));
        let before = Tick::from_nanos(END - 1_000_000_000);
        let (word, _) = rule.decide(Word::FRESH, before, 1);
        let denied = rule.decide(word, before, 1).1;
        assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
        assert!(rule.decide(word, Tick::MAX, 1).1.is_allowed());
    }

    #[test]
    fn a_refund_after_the_window_ended_leaves_the_next_window_alone() {
        for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket] {
            let rule = AnyRule::new(algorithm, Quota::per_second(1), Duration::ZERO).unwrap();
            let (word, old) = rule.decide(Word::FRESH, at(0.5), 1);
            let (word, new) = rule.decide(word, at(1.7), 1);
            assert!(old.is_allowed() && new.is_allowed());
            let word = rule.refund(word, at(1.8), &old, 1);
            assert!(!rule.decide(word, at(1.8), 1).1.is_allowed(), "{algorithm}");
            let word = rule.refund(word, at(1.8), &new, 1);
            assert!(rule.decide(word, at(1.8), 1).1.is_allowed(), "{algorithm}");
        }
    }
}

/// The early charge has refilled, and the missing tokens are those of the late charge. A refund
/// with a time that is `back` nanoseconds old finds the early charge still held.
#[test]
fn a_refund_at_a_stale_time_takes_at_most_what_has_refilled_since() {
    let bucket = AnyRule::new(
        Algorithm::TokenBucket,
        Quota::new(1, Duration::from_nanos(1)).burst(512),
        Duration::ZERO,
    )
    .unwrap();
    let (early, now) = (Tick::from_nanos(1_000), Tick::from_nanos(1_600));
    for (back, taken) in [(0, 0), (200, 0), (250, 50), (600, 60)] {
        let (word, charge) = bucket.decide(Word::FRESH, early, 400);
        let (word, _) = bucket.decide(word, now, 60);
        let word = bucket.refund(word, Tick::from_nanos(1_600 - back), &charge, 400);
        assert_eq!(bucket.peek(word, now, 0).remaining(), 512 - 60 + taken, "{back}");
    }
}
