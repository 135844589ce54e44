//! A limiter that is saved and loaded between any two calls decides as its twin, which is never
//! saved.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::store::{Accepts, Persist};
use tollgate::{
    Algorithm, Builder, Decision, DecisionSource, Limiter, ManualClock, Outcome, Quota, SingleLimiter,
};

/// One call, or a restart.
#[derive(Clone, Copy, Debug)]
enum Step {
    Check { key: u64, cost: u64 },
    Force { key: u64, tokens: u64 },
    Pause { key: u64, time: Duration },
    Reset { key: u64 },
    Advance(Duration),
    SetQuota(u64),
    SetKeyQuota { key: u64, limit: Option<u64> },
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..6_u64;
    let time = || prop_oneof![Just(0), 1..1_000_u64, 1..90_000_u64].prop_map(Duration::from_millis);
    let step = prop_oneof![
        8 => (key(), 0..4_u64).prop_map(|(key, cost)| Step::Check { key, cost }),
        1 => (key(), 1..9_u64).prop_map(|(key, tokens)| Step::Force { key, tokens }),
        1 => (key(), time()).prop_map(|(key, time)| Step::Pause { key, time }),
        1 => key().prop_map(|key| Step::Reset { key }),
        4 => time().prop_map(Step::Advance),
        1 => (1..9_u64).prop_map(Step::SetQuota),
        1 => (key(), prop::option::of(1..9_u64)).prop_map(|(key, limit)| Step::SetKeyQuota { key, limit }),
        3 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..80)
}

/// Returns a quota of `limit` tokens in 30 seconds. For some limits, the time of one token is not a
/// whole number of ticks.
fn quota(limit: u64) -> Quota {
    Quota::new(limit, Duration::from_secs(30))
}

/// The parts of a decision that a caller can see.
type Seen = (Outcome, DecisionSource, [u64; 3], Option<Duration>, [Duration; 2]);

fn seen(decision: Decision) -> Seen {
    let counts = [decision.charged(), decision.remaining(), decision.capacity()];
    let times = [decision.reset_after(), decision.start_after()];
    (decision.outcome(), decision.source(), counts, decision.retry_after(), times)
}

fn debt(algorithm: Algorithm) -> u64 {
    if algorithm == Algorithm::SlidingLog { 0 } else { 3 }
}

fn keyed_twins<S>(
    algorithm: Algorithm,
    of_kind: impl Fn(Builder<Limiter<u64>>) -> Builder<Limiter<u64, S>>,
    steps: &[Step],
) where
    S: Persist + Accepts<u64>,
{
    let clock = ManualClock::new();
    let builder = |limit| {
        let builder = Limiter::builder(quota(limit)).algorithm(algorithm).max_debt(debt(algorithm));
        of_kind(builder.grace(Duration::ZERO).clock(&clock))
    };
    let one = builder(3).build().unwrap();
    let mut other = builder(3).build().unwrap();
    let mut limit = 3;
    for &step in steps {
        match step {
            Step::Check { key, cost } => {
                let [one, other] = [&one, &other].map(|limiter| seen(limiter.check_n(&key, cost)));
                assert_eq!(one, other, "{step:?}");
            }
            Step::Force { key, tokens } => {
                assert_eq!(one.force(&key, tokens), other.force(&key, tokens), "{step:?}");
            }
            Step::Pause { key, time } => {
                assert_eq!(one.pause(&key, time).is_ok(), other.pause(&key, time).is_ok());
            }
            Step::Reset { key } => [&one, &other].iter().for_each(|limiter| limiter.reset(&key)),
            Step::Advance(time) => clock.advance(time),
            Step::SetQuota(to) => {
                limit = to;
                [&one, &other].iter().for_each(|limiter| limiter.set_quota(quota(to)).unwrap());
            }
            Step::SetKeyQuota { key, limit } => {
                let own = limit.map(quota);
                [&one, &other].iter().for_each(|limiter| limiter.set_key_quota(&key, own).unwrap());
            }
            Step::Restart => {
                let mut file = Vec::new();
                other.save(&mut file).unwrap();
                other = builder(limit).load(&file[..]).unwrap();
            }
        }
        for key in 0..6 {
            let [one, other] =
                [&one, &other].map(|limiter| (seen(limiter.peek(&key)), limiter.key_quota(&key)));
            assert_eq!(one, other, "{key} after {step:?}");
        }
    }
}

fn single_twins(algorithm: Algorithm, steps: &[Step]) {
    let clock = ManualClock::new();
    let builder = |limit| {
        SingleLimiter::builder(quota(limit)).algorithm(algorithm).max_debt(debt(algorithm)).clock(&clock)
    };
    let one = builder(3).build().unwrap();
    let mut other = builder(3).build().unwrap();
    let mut limit = 3;
    for &step in steps {
        match step {
            Step::Check { cost, .. } => {
                let [one, other] = [&one, &other].map(|limiter| seen(limiter.check_n(cost)));
                assert_eq!(one, other, "{step:?}");
            }
            Step::Force { tokens, .. } => assert_eq!(one.force(tokens), other.force(tokens), "{step:?}"),
            Step::Reset { .. } => [&one, &other].iter().for_each(|limiter| limiter.reset()),
            Step::Advance(time) => clock.advance(time),
            Step::SetQuota(to) => {
                limit = to;
                [&one, &other].iter().for_each(|limiter| limiter.set_quota(quota(to)).unwrap());
            }
            Step::Restart => {
                let mut file = Vec::new();
                other.save(&mut file).unwrap();
                other = builder(limit).load(&file[..]).unwrap();
            }
            Step::Pause { .. } | Step::SetKeyQuota { .. } => {}
        }
        assert_eq!(seen(one.peek()), seen(other.peek()), "after {step:?}");
    }
}

proptest! {
    #[test]
    fn a_restart_between_any_two_calls_changes_no_decision(steps in steps()) {
        for algorithm in Algorithm::PACKED {
            keyed_twins(algorithm, |builder| builder, &steps);
            keyed_twins(algorithm, Builder::<Limiter<_>>::keyed_hash, &steps);
        }
        for algorithm in Algorithm::ALL {
            #[cfg(feature = "serde")]
            keyed_twins(algorithm, Builder::<Limiter<_>>::exact_keys, &steps);
            single_twins(algorithm, &steps);
        }
    }
}
