//! Misuse: for any input, builders and parsers return a limiter, or an error that names the value,
//! the allowed range and the fix. Nothing panics.

use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use tollgate::rule::{AnyRule, Refused, Rule, Word};
use tollgate::{
    Algorithm, Chargeable, ConfigError, Decision, DecisionParts, DecisionSource, Limiter, ManualClock,
    Outcome, Quota, SingleLimiter, Sweeper, Tick, WhenFull, WindowAlign,
};

/// Numbers near every boundary.
fn number() -> impl Strategy<Value = u64> {
    const EDGES: [u64; 12] =
        [0, 1, 2, 3, 32_767, 32_768, 2_000_000_000, 1 << 31, 1 << 32, 1 << 61, 1 << 63, u64::MAX];
    let near = prop::sample::select(&EDGES[..]).prop_flat_map(|edge| {
        prop_oneof![Just(edge), Just(edge.saturating_sub(1)), Just(edge.saturating_add(1))]
    });
    prop_oneof![3 => near, 2 => (0..=64_u32).prop_flat_map(|bits| {
        0..=1_u64.checked_shl(bits).unwrap_or(u64::MAX)
    })]
}

fn duration() -> impl Strategy<Value = Duration> {
    let seconds = prop_oneof![Just(0), Just(1), Just(60), Just(86_400), Just(315_360_000), number()];
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        number().prop_map(Duration::from_nanos),
        (seconds, prop_oneof![Just(0), Just(1), 0..1_000_000_000_u32])
            .prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
    ]
}

fn quota() -> impl Strategy<Value = Quota> {
    (number(), duration(), prop::option::of(number())).prop_map(|(limit, period, burst)| {
        let quota = Quota::new(limit, period);
        burst.map_or(quota, |burst| quota.burst(burst))
    })
}

fn align() -> impl Strategy<Value = Option<WindowAlign>> {
    prop_oneof![3 => Just(None), 1 => Just(Some(WindowAlign::ClockStart)), 1 => Just(Some(WindowAlign::UnixEpoch))]
}

/// Returns the refused value as its message shows it, and whether the value is outside the range
/// that the message allows.
fn refused_value(error: &ConfigError) -> (String, bool) {
    match *error.refused() {
        Refused::ZeroTokens => ("0 tokens ".to_owned(), true),
        Refused::NoRefill { burst } => (format!("burst {burst} "), true),
        Refused::ZeroPeriod => ("period 0 ".to_owned(), true),
        Refused::ZeroBurst => ("burst 0 ".to_owned(), true),
        Refused::PeriodTooLong { period, most } => (format!("period {period:?} "), period > most),
        Refused::PeriodTooShort { period, least, .. } => (format!("period {period:?} "), period < least),
        Refused::RateTooHigh { tokens, most, .. } => (format!("{tokens} tokens "), tokens > most && most > 0),
        Refused::BurstTooLarge { burst, most } => (format!("burst {burst} "), burst > most && most > 0),
        Refused::BurstUnsupported { burst, .. } => (format!("burst {burst} "), true),
        Refused::TooManyTokens { tokens, most, .. } => {
            (format!("{tokens} tokens "), tokens > most && most > 0)
        }
        Refused::MaxKeysOutOfRange { max_keys, most } => {
            (format!("max_keys {max_keys} "), max_keys == 0 || max_keys > most)
        }
        Refused::AlignUnsupported { algorithm } => (format!("for a {algorithm}"), !algorithm.has_windows()),
        Refused::SweepIntervalOutOfRange { every, least, most } => {
            (format!("every {every:?} "), every < least || every > most)
        }
        Refused::OutOfMemory { bytes } => (format!("{bytes} bytes"), true),
        ref other => (other.to_string(), true),
    }
}

/// A message has three parts, none of which is empty: the value, the allowed range and the fix.
fn is_helpful(error: &ConfigError) -> Result<(), TestCaseError> {
    let message = error.to_string();
    let (value, is_outside) = refused_value(error);
    prop_assert!(message.contains(&value), "{value:?} is not named: {message}");
    prop_assert!(is_outside, "what is refused is within what is allowed: {message}");
    let parts: Vec<&str> = message.split("; ").collect();
    let has_range =
        !matches!(error.refused(), Refused::AlignUnsupported { .. } | Refused::OutOfMemory { .. });
    if has_range {
        prop_assert!(parts.len() >= 3 && parts[1].starts_with("allowed: "), "no range: {message}");
    }
    let fix = parts.last().copied().unwrap_or_default();
    prop_assert!(parts.len() >= 2 && fix.split(' ').count() >= 3, "no fix: {message}");
    Ok(())
}

/// Fixes one mistake after the other, as each error suggests, until the configuration is valid.
fn mended(error: &ConfigError, quota: Quota) -> Option<Quota> {
    let with_limit = |limit| match quota.explicit_burst() {
        Some(burst) => Quota::new(limit, quota.period()).burst(burst),
        None => Quota::new(limit, quota.period()),
    };
    let with_period = |period| match quota.explicit_burst() {
        Some(burst) => Quota::new(quota.tokens(), period).burst(burst),
        None => Quota::new(quota.tokens(), period),
    };
    match *error.refused() {
        Refused::ZeroTokens | Refused::NoRefill { .. } => Some(with_limit(1)),
        Refused::ZeroPeriod => Some(with_period(Duration::from_nanos(1))),
        Refused::PeriodTooLong { most, .. } => Some(with_period(most)),
        Refused::PeriodTooShort { least, .. } => Some(with_period(least)),
        Refused::RateTooHigh { most, .. }
        | Refused::TooManyTokens { most, .. }
        | Refused::LogTooLarge { most, .. } => Some(with_limit(most)),
        Refused::ZeroBurst => Some(quota.burst(1)),
        Refused::BurstTooLarge { most, .. } if quota.explicit_burst().is_some() => Some(quota.burst(most)),
        // If no burst is specified, the limit is the burst.
        Refused::BurstTooLarge { most, .. } => Some(quota.burst(most)),
        Refused::BurstUnsupported { .. } => Some(Quota::new(quota.tokens(), quota.period())),
        _ => None,
    }
}

/// Returns a limiter of the algorithm with three of five tokens charged.
fn charged(algorithm: Algorithm, quota: Quota) -> SingleLimiter {
    let builder = SingleLimiter::builder(quota).algorithm(algorithm).clock(ManualClock::new());
    let limiter = builder.build().unwrap();
    assert_eq!(limiter.at(Tick::ZERO).check_n(3).remaining(), 2);
    limiter
}

/// Returns a number for the kind of an algorithm: a bucket, a window, two windows, or a log.
/// Charges of one kind are not part of another kind's states.
fn kind(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::FixedWindow => 1,
        Algorithm::SlidingWindow => 2,
        Algorithm::SlidingLog => 3,
        _ => 0,
    }
}

/// In one case, the charge belongs to a window that began before tick 0.
#[test]
fn a_charge_of_another_kind_of_state_gives_nothing_back() {
    let quota = Quota::per_day(5);
    for to in Algorithm::ALL {
        for (of, hours) in
            Algorithm::PACKED.into_iter().flat_map(|of| [0, 1, 12, 23].map(|hours| (of, hours)))
        {
            let phase = Duration::from_secs(3_600 * hours);
            // The log identifies its charges by their times, and this time is one of them.
            if kind(of) == kind(to) || to == Algorithm::SlidingLog && hours == 0 {
                continue;
            }
            let (_, charge) = AnyRule::new(of, quota, phase).unwrap().decide(Word::FRESH, Tick::ZERO, 3);
            let limiter = charged(to, quota);
            limiter.at(Tick::ZERO).refund_n(&charge, u64::MAX);
            assert_eq!(limiter.at(Tick::ZERO).peek().remaining(), 2, "{of}, {hours} h, to {to}");
        }
        let limiter = charged(to, quota);
        if to != Algorithm::SlidingLog {
            let log = SingleLimiter::builder(quota).algorithm(Algorithm::SlidingLog).build().unwrap();
            limiter.at(Tick::from_nanos(7)).refund_n(&log.at(Tick::from_nanos(7)).check_n(3), u64::MAX);
            assert_eq!(limiter.at(Tick::ZERO).peek().remaining(), 2, "a log's, to {to}");
        }
    }
}

/// A charge made by another limiter gives nothing back, even with the same quota, algorithm and
/// time. Neither does the limiter's own charge from before a reset.
#[test]
fn a_charge_of_another_limiter_gives_nothing_back() {
    let quota = Quota::per_day(5);
    for to in Algorithm::ALL {
        let limiter = charged(to, quota);
        for of in Algorithm::ALL {
            let other = charged(of, quota);
            let charge = other.at(Tick::ZERO).check();
            limiter.at(Tick::ZERO).refund_n(&charge, u64::MAX);
            assert_eq!(limiter.at(Tick::ZERO).peek().remaining(), 2, "of a {of} to a {to}");
            other.at(Tick::ZERO).refund_n(&charge, u64::MAX);
            assert_eq!(other.at(Tick::ZERO).peek().remaining(), 2, "{of}");
        }
        let void = limiter.at(Tick::ZERO).check();
        limiter.reset();
        assert!(limiter.at(Tick::ZERO).check_n(3).is_allowed());
        limiter.at(Tick::ZERO).refund_n(&void, u64::MAX);
        assert_eq!(limiter.at(Tick::ZERO).peek().remaining(), 2, "{to}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_refusal_names_value_range_and_fix_and_every_limiter_that_is_built_works(
        quota in quota(),
        algorithm in prop::sample::select(&Algorithm::ALL[..]),
        align in align(),
        max_keys in prop_oneof![2 => 1..100_usize, 1 => number().prop_map(|n| usize::try_from(n).unwrap_or(0))],
        grace in duration(),
        full in prop::sample::select(&[WhenFull::Deny, WhenFull::Allow, WhenFull::Share][..]),
        exact in any::<bool>(),
        calls in prop::collection::vec((0..40_u64, number(), number()), 1..30),
    ) {
        let builder = Limiter::<u64>::builder(quota).algorithm(algorithm).max_keys(max_keys).grace(grace);
        let builder = builder.when_full(full).clock(ManualClock::new());
        let builder = match align { Some(align) => builder.align(align), None => builder };
        macro_rules! try_it {
            ($builder:expr) => {
                match $builder.build() {
                    Err(error) => is_helpful(&error)?,
                    Ok(limiter) => {
                        for &(key, cost, now) in &calls {
                            let now = Tick::from_nanos(now);
                            let decision = limiter.at(now).check_n(&key, cost);
                            prop_assert!(decision.remaining() <= decision.capacity());
                            prop_assert!(decision.charged() <= cost);
                            let _ = (limiter.at(now).peek_n(&key, cost), format!("{decision:?}"));
                            limiter.at(now).refund_n(&key, &decision, cost);
                            // This is another limiter's decision, at another time.
                            limiter.at(Tick::MAX).refund_n(&(key + 1), &decision, u64::MAX);
                            let _ = limiter.at(now).sweep(usize::try_from(cost % 100).unwrap());
                            prop_assert!(limiter.len() <= max_keys);
                        }
                        limiter.reset(&7);
                        limiter.at(Tick::MAX).clear();
                        prop_assert!(limiter.at(Tick::MAX).peek(&7).remaining() <= limiter.peek(&7).capacity());
                    }
                }
            };
        }
        if exact { try_it!(builder.exact_keys()) } else { try_it!(builder) }
    }

    /// A decision made outside this crate was not charged to any state of the limiter.
    #[test]
    fn a_report_gives_nothing_back_whatever_it_says(
        figures in (number(), number(), number(), number()),
        times in (prop::option::of(duration()), duration(), duration()),
        tokens in number(),
        now in number(),
    ) {
        let (cost, limit, remaining, at) = figures;
        let (wait, reset_after, refill_after) = times;
        let report = Decision::from(DecisionParts {
            outcome: Outcome::Allowed,
            cost, capacity: limit, remaining, wait, reset_after, refill_after,
            at: Tick::from_nanos(at),
            source: DecisionSource::Key,
        });
        for algorithm in Algorithm::ALL {
            let limiter = charged(algorithm, Quota::per_day(5));
            limiter.at(Tick::from_nanos(now)).refund_n(&report, tokens);
            prop_assert_eq!(limiter.at(Tick::ZERO).peek().remaining(), 2, "{}", algorithm);
        }
    }

    /// A caller who follows the errors has a limiter after a few steps.
    #[test]
    fn doing_what_the_errors_allow_leads_to_a_limiter(
        quota in quota(), algorithm in prop::sample::select(&Algorithm::ALL[..])
    ) {
        let mut quota = quota;
        for _ in 0..8 {
            match SingleLimiter::builder(quota).algorithm(algorithm).build() {
                Ok(limiter) => {
                    prop_assert!(limiter.at(Tick::ZERO).check().is_allowed());
                    return Ok(());
                }
                Err(error) => {
                    is_helpful(&error)?;
                    let next = mended(&error, quota);
                    prop_assert!(next.is_some(), "no way on from {error}");
                    quota = next.unwrap_or(quota);
                }
            }
        }
        prop_assert!(false, "eight errors were not enough, {quota} is left");
    }

    #[test]
    fn names_of_algorithms_are_read_back_and_others_are_refused_with_those_there_are(name in "\\PC{0,20}") {
        match name.parse::<Algorithm>() {
            Ok(algorithm) => prop_assert_eq!(algorithm.to_string(), name),
            Err(refused) => {
                let message = refused.to_string();
                prop_assert!(message.contains(&format!("{name:?}")), "{message}");
                for algorithm in Algorithm::ALL {
                    prop_assert!(message.contains(&algorithm.to_string()), "{message}");
                }
            }
        }
    }

    #[test]
    fn intervals_of_a_housekeeper_are_refused_with_value_range_and_fix(time in duration()) {
        // An interval that may be accepted would start a thread.
        let is_outside = time < Duration::from_micros(1) || time > Duration::from_secs(1_000_000);
        let time = if is_outside { time } else { Duration::ZERO };
        let limiter = Limiter::<u64>::builder(Quota::per_second(1)).build().unwrap();
        let refused = Sweeper::start(Arc::new(limiter), time).err();
        prop_assert!(refused.is_some());
        if let Some(error) = refused {
            is_helpful(&error)?;
        }
    }
}
