//! Compares the sliding log with an oracle that keeps a plain list of admissions. Every figure of
//! every answer is compared, with refunds and resets, for limits from 1 to a million, costs of all
//! sizes, and times that step, jump, stand still, go back and end. On real threads, no admission is
//! lost or made twice.

use proptest::prelude::*;
use std::sync::Barrier;
use std::time::Duration;
use tollgate::{Algorithm, Chargeable, Decision, Limiter, ManualClock, Outcome, Quota, SingleLimiter, Tick};
use tollgate_testing::oracle::{END, Oracle};

const DAY: u64 = 24 * 3600 * 1_000_000_000;

fn gate(limit: u64, period: u64) -> SingleLimiter {
    let quota = Quota::new(limit, Duration::from_nanos(period));
    SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog).clock(ManualClock::new()).build().unwrap()
}

/// Returns whole numbers whose sizes are spread evenly over the powers of two.
fn spread(least: u64, most: u64) -> impl Strategy<Value = u64> {
    let bits = 64 - least.leading_zeros()..=64 - most.leading_zeros();
    bits.prop_flat_map(move |bits| {
        let high = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
        let low = if bits == 0 { 0 } else { 1 << (bits - 1) };
        low.clamp(least, most)..=high.clamp(least, most)
    })
}

fn quotas() -> impl Strategy<Value = (u64, u64)> {
    let limit = prop_oneof![3 => 1..40_u64, 2 => spread(1, 1_000_000), 1 => Just(1_000_000)];
    let period =
        prop_oneof![Just(1), Just(1_000_000_000), spread(1, 3650 * DAY), Just(30 * DAY), Just(3650 * DAY)];
    (limit, period)
}

/// The next call, and the change of the time before it.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A cost: a number of 64ths of the limit, and a number of tokens.
    Charge(u64, u64),
    /// A refund of a charge, counted from the last one.
    Refund(usize, u64),
    Reset,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Same,
    Nanos(u64),
    /// A number of 64ths of a period.
    Periods(u64),
    /// The retry time of the last denial, or one nanosecond earlier.
    Retry(bool),
    Back(u64),
    To(u64),
}

fn acts(refunds: u32) -> impl Strategy<Value = Vec<(Step, Act)>> {
    let step = prop_oneof![
        4 => Just(Step::Same),
        2 => (0..5_u64).prop_map(Step::Nanos),
        5 => (0..20_u64).prop_map(Step::Periods),
        1 => (0..200_u64).prop_map(Step::Periods),
        3 => any::<bool>().prop_map(Step::Retry),
        1 => spread(1, DAY).prop_map(Step::Back),
        1 => prop_oneof![3 => Just(DAY), 1 => spread(1, END), 1 => Just(END)].prop_map(Step::To),
    ];
    let act = prop_oneof![
        12 => (0..4_u64).prop_map(|tokens| Act::Charge(0, tokens)),
        4 => (0..66_u64).prop_map(|part| Act::Charge(part, 0)),
        1 => spread(1, u64::MAX).prop_map(|tokens| Act::Charge(0, tokens)),
        refunds => ((0..12_usize), prop_oneof![1..4_u64, Just(u64::MAX)]).prop_map(|(n, t)| Act::Refund(n, t)),
        refunds.min(1) => Just(Act::Reset),
    ];
    prop::collection::vec((step, act), 1..80)
}

/// Compares a time of the log with the oracle's.
fn agree(wait: Option<Duration>, then: Option<u64>, now: u64) -> Result<(), TestCaseError> {
    let wait = wait.filter(|wait| *wait != Duration::MAX);
    prop_assert_eq!(wait, then.map(|then| Duration::from_nanos(then - now)));
    Ok(())
}

fn figures(decision: &Decision, oracle: &Oracle, now: u64) -> Result<(), TestCaseError> {
    prop_assert_eq!(decision.capacity(), oracle.capacity());
    prop_assert_eq!(decision.at(), Tick::from_nanos(now));
    prop_assert_eq!(decision.remaining(), oracle.remaining(now));
    prop_assert_eq!(decision.start_after(), Duration::ZERO);
    agree(Some(decision.reset_after()), oracle.idle_at(now), now)
}

/// Applies the acts to the log and to the oracle, and compares all figures.
fn compare((limit, period): (u64, u64), acts: &[(Step, Act)]) -> Result<(), TestCaseError> {
    let clock = ManualClock::new();
    let quota = Quota::new(limit, Duration::from_nanos(period));
    let builder = SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog).clock(&clock);
    let log = builder.build().unwrap();
    let mut oracle = Oracle::new(Algorithm::SlidingLog, quota, 0);
    // The charges, each with the time at which it counts.
    let mut charges: Vec<(Decision, u64)> = Vec::new();
    let (mut now, mut retry, mut latest) = (DAY, 0, 0);
    let part = |of: u64, parts: u64| u64::try_from(u128::from(of) * u128::from(parts) / 64).unwrap();
    for &(step, act) in acts {
        now = match step {
            Step::Same => now,
            Step::Nanos(n) => now + n,
            Step::Periods(n) => now.saturating_add(part(period, n)),
            Step::Retry(early) => (now + retry).saturating_sub(u64::from(early)),
            Step::Back(n) => now.saturating_sub(n),
            Step::To(n) => n,
        }
        .min(END);
        let tick = Tick::from_nanos(now);
        clock.set(tick);
        match act {
            Act::Charge(parts, tokens) => {
                let cost = part(limit, parts).saturating_add(tokens);
                let peeked = log.at(tick).peek_n(cost);
                figures(&peeked, &oracle, now)?;
                let decision = log.at(tick).check_n(cost);
                prop_assert_eq!(peeked.outcome(), decision.outcome());
                prop_assert_eq!(peeked.retry_after(), decision.retry_after());
                if cost > limit {
                    prop_assert_eq!(decision.outcome(), Outcome::TooCostly);
                    prop_assert_eq!(decision.retry_after(), None);
                } else if oracle.fits(now, cost) {
                    prop_assert_eq!(decision.outcome(), Outcome::Allowed);
                    prop_assert_eq!(decision.charged(), cost);
                } else {
                    prop_assert_eq!(decision.outcome(), Outcome::Denied);
                    agree(decision.retry_after(), oracle.fits_at(now, cost), now)?;
                }
                if decision.charged() > 0 {
                    oracle.charge(now, cost);
                    latest = now.max(latest);
                    charges.push((decision, latest));
                }
                figures(&decision, &oracle, now)?;
                let wait = decision.retry_after().unwrap_or_default();
                retry = u64::try_from(wait.as_nanos()).unwrap().min(END - now);
            }
            Act::Refund(back, tokens) => {
                if let Some((charge, counted)) = charges.iter().rev().nth(back) {
                    log.at(tick).refund_n(charge, tokens);
                    oracle.give_back(*counted, tokens.min(charge.charged()));
                }
            }
            Act::Reset => {
                log.reset();
                oracle.reset();
                charges.clear();
                latest = 0;
            }
        }
        figures(&log.at(tick).peek(), &oracle, now)?;
        prop_assert_eq!(log.is_idle(), oracle.remaining(now) == limit && latest <= now);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sliding_log_decides_as_its_oracle(quota in quotas(), acts in acts(0)) {
        compare(quota, &acts)?;
    }

    #[test]
    fn sliding_log_gives_back_and_resets_as_its_oracle(quota in quotas(), acts in acts(6)) {
        compare(quota, &acts)?;
    }

    // Promise 7.
    #[test]
    fn a_stale_time_is_never_given_more(
        (limit, period) in quotas(), costs in prop::collection::vec((0..3_u64, 0..40_u64), 1..60), back in spread(1, DAY)
    ) {
        let log = gate(limit, period);
        let mut now = DAY;
        for (cost, parts) in costs {
            now += period / 64 * parts;
            let stale = Tick::from_nanos(now.saturating_sub(back));
            let at_now = log.at(Tick::from_nanos(now)).peek();
            prop_assert!(log.at(stale).peek().remaining() <= at_now.remaining());
            let _ = log.at(Tick::from_nanos(now)).check_n(cost);
        }
    }
}

/// Returns the maximum number of tokens admitted in a period, directly from the list.
fn most_in_a_period(admitted: &mut [(u64, u64)], period: u64) -> u64 {
    admitted.sort_unstable();
    let (mut sum, mut most, mut first) = (0, 0, 0);
    for at in 0..admitted.len() {
        sum += admitted[at].1;
        while admitted[first].0 + period <= admitted[at].0 {
            sum -= admitted[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

#[test]
fn a_hundred_thousand_are_admitted_in_any_period_and_not_one_more() {
    let (limit, period) = (100_000, 1_000_000_000);
    let log = gate(limit, period);
    let mut admitted = Vec::new();
    for n in 0..600_000_u64 {
        let now = n * 7_919 + n * n % 1_009;
        let cost = 1 + n % 3;
        if log.at(Tick::from_nanos(now)).check_n(cost).is_allowed() {
            admitted.push((now, cost));
        }
    }
    let tokens: u64 = admitted.iter().map(|(_, cost)| cost).sum();
    let most = most_in_a_period(&mut admitted, period);
    assert!(most <= limit && most > limit - 3, "{most}");
    assert!(tokens > 4 * limit, "{tokens}");
}

#[test]
fn a_period_ends_to_the_nanosecond() {
    let log = gate(2, 100);
    assert!(log.at(Tick::from_nanos(1_000)).check().is_allowed());
    assert!(log.at(Tick::from_nanos(1_040)).check().is_allowed());
    let denied = log.at(Tick::from_nanos(1_060)).check();
    assert_eq!(denied.retry_after(), Some(Duration::from_nanos(40)));
    assert_eq!(denied.reset_after(), Duration::from_nanos(80));
    assert!(!log.at(Tick::from_nanos(1_099)).check().is_allowed());
    assert!(log.at(Tick::from_nanos(1_100)).check().is_allowed());
    assert!(!log.at(Tick::from_nanos(1_139)).check().is_allowed());
}

/// Admissions are a year apart, so each one overflows the time field of a slot and begins a new
/// chunk.
#[test]
fn sparse_admissions_of_a_long_period_are_all_counted() {
    let year = 365 * DAY;
    let log = gate(1_000_000, 10 * year);
    for n in 0..10 {
        assert_eq!(log.at(Tick::from_nanos(n * year)).check().remaining(), 999_999 - n);
    }
    assert_eq!(log.at(Tick::from_nanos(10 * year)).check().remaining(), 1_000_000 - 10);
}

#[test]
fn refunds_of_charges_at_one_time_are_all_given_back() {
    let log = gate(1_000, 1_000);
    let charges: Vec<_> = (0..500).map(|_| log.at(Tick::ZERO).check_n(2)).collect();
    for (n, charge) in charges.iter().enumerate() {
        assert_eq!(log.at(Tick::ZERO).peek().remaining(), 2 * n as u64);
        log.at(Tick::ZERO).refund_n(charge, 5);
    }
    assert_eq!(log.at(Tick::ZERO).peek().remaining(), 1_000);
    // The tokens given back are at most those charged.
    log.at(Tick::ZERO).refund_n(&charges[0], 2);
    assert_eq!(log.at(Tick::ZERO).check_n(1_000).remaining(), 0);
    assert!(!log.at(Tick::ZERO).check().is_allowed());
}

#[test]
fn what_can_not_work_is_refused_with_value_range_and_fix() {
    let build = |quota: Quota| {
        let built = SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog).build();
        built.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(build(Quota::per_second(1_000_000)), Ok(()));
    let refused = build(Quota::per_second(1_000_001)).unwrap_err();
    assert_eq!(
        refused,
        "1000001 tokens are too many for a sliding-log, which keeps each admission; allowed: 1 to 1000000; \
         count in larger units, or choose a sliding-window, which keeps two counts"
    );
    assert!(build(Quota::per_second(0)).unwrap_err().starts_with("0 tokens"));
    assert!(build(Quota::new(1, Duration::ZERO)).unwrap_err().starts_with("period 0"));
    assert!(build(Quota::per_second(5).burst(9)).unwrap_err().starts_with("burst 9 has no meaning"));
    let builder = SingleLimiter::builder(Quota::per_second(5)).algorithm(Algorithm::SlidingLog);
    let refused = builder.align(tollgate::WindowAlign::ClockStart).build().unwrap_err();
    assert_eq!(refused.setting(), "align");

    let keyed: Result<Limiter<u8>, _> =
        Limiter::builder(Quota::per_second(5)).algorithm(Algorithm::SlidingLog).build();
    let refused = keyed.unwrap_err().to_string();
    assert!(
        refused.starts_with("the state of a sliding-log does not fit the word that a table has"),
        "{refused}"
    );
    assert!(refused.contains("`exact_keys()`") && refused.contains("`SingleLimiter`"), "{refused}");
}

fn race<T: Send>(threads: u64, body: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(usize::try_from(threads).unwrap());
    std::thread::scope(|scope| {
        let racers: Vec<_> = (0..threads)
            .map(|n| {
                let (barrier, body) = (&barrier, &body);
                scope.spawn(move || {
                    barrier.wait();
                    body(n)
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    })
}

#[test]
fn at_a_standing_clock_racing_threads_are_admitted_exactly_the_limit() {
    for round in 0..20 {
        let log = gate(30_000, 1_000_000_000);
        let now = Tick::from_nanos(round);
        let admitted: u64 =
            race(4, |n| (0..20_000).map(|i| log.at(now).check_n(1 + (i + n) % 2).charged()).sum::<u64>())
                .into_iter()
                .sum();
        assert_eq!(admitted + log.at(now).peek().remaining(), 30_000);
        assert_eq!(admitted, 30_000);
    }
}

/// Each thread has its own clock, which advances unevenly and lags. Each answer states the time at
/// which its admission counts. By these times, no period has more than the limit, and an exact
/// replay of the admissions in this order admits each of them.
#[test]
fn racing_threads_never_exceed_the_limit_in_any_period() {
    const PERIOD: u64 = 10_000;
    for round in 0..10 {
        let log = gate(500, PERIOD);
        let mut admitted: Vec<(u64, u64)> = race(4, |n| {
            let mut admitted = Vec::new();
            for i in 0..40_000_u64 {
                let now = Tick::from_nanos(1_000_000 + i * 8 + (i * (n + 7) + round) % 101);
                let decision = log.at(now).check_n(1 + i % 3);
                if decision.is_allowed() {
                    let counted = (decision.at() + decision.reset_after()).as_nanos() - PERIOD;
                    assert!(counted >= now.as_nanos());
                    admitted.push((counted, decision.charged()));
                }
            }
            admitted
        })
        .concat();
        let tokens: u64 = admitted.iter().map(|(_, cost)| cost).sum();
        let most = most_in_a_period(&mut admitted, PERIOD);
        assert!(most <= 500, "{most}");
        // The log does not admit far fewer tokens either: 32 periods pass.
        assert!(tokens > 500 * 30, "{tokens}");
    }
}

#[test]
fn racing_refunds_and_charges_lose_no_token() {
    let log = gate(1_000, 1_000_000_000);
    let kept: u64 = race(4, |n| {
        let mut kept = 0;
        for i in 0..20_000_u64 {
            let cost = 1 + (i + n) % 3;
            let charge = log.at(Tick::from_nanos(i)).check_n(cost);
            if charge.is_allowed() && i % 16 != 0 {
                log.at(Tick::ZERO).refund_n(&charge, u64::MAX);
            } else {
                kept += charge.charged();
            }
        }
        kept
    })
    .into_iter()
    .sum();
    let last = Tick::from_nanos(20_000);
    assert_eq!(log.at(last).peek().remaining(), 1_000 - kept);
}
