//! Tests that random restarts of walks do not change the decisions of a limiter.

use super::{Accepts, Builder, Limiter, Store};
use crate::algorithm::Algorithm;
use crate::decision::Decision;
use crate::quota::Quota;
use crate::reclaim::toss;
use crate::time::Tick;
use proptest::prelude::*;
use std::time::Duration;

const LIMIT: u64 = 20;
const PERIOD: Duration = Duration::from_millis(100);

/// A random operation on a key.
#[derive(Clone, Copy, Debug)]
enum Act {
    Check(u64, u64),
    Peek(u64),
    /// A refund of an earlier check.
    Refund(u64, u64),
    Reset(u64),
    /// A change to the limit for all keys or for one key.
    Change(u64, Option<u64>),
    Sweep,
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    // These are more keys than the first array can hold.
    let key = || 0..100_u64;
    let act = prop_oneof![
        20 => (key(), 0..5_u64).prop_map(|(key, cost)| Act::Check(key, cost)),
        3 => key().prop_map(Act::Peek),
        5 => (key(), 1..5_u64).prop_map(|(key, tokens)| Act::Refund(key, tokens)),
        1 => key().prop_map(Act::Reset),
        1 => (10..30_u64, proptest::option::of(key())).prop_map(|(limit, key)| Act::Change(limit, key)),
        1 => Just(Act::Sweep),
        3 => (0..150_u64).prop_map(Act::Wait),
    ];
    proptest::collection::vec(act, 1..400)
}

fn builder(algorithm: Algorithm) -> Builder<Limiter<u64>> {
    Limiter::builder(Quota::new(LIMIT, PERIOD)).algorithm(algorithm).grace(Duration::ZERO).max_keys(10_000)
}

/// Performs the operations and returns the decisions. (The remaining keys are not compared, because
/// the hashes determine which keys are found idle.)
fn decided<S: Store + Accepts<u64>>(limiter: &Limiter<u64, S>, acts: &[Act]) -> Vec<Decision> {
    let (mut now, mut decisions) = (Tick::ZERO + PERIOD, Vec::new());
    let mut last = [None; 100];
    for &act in acts {
        match act {
            Act::Check(key, cost) => {
                let decision = limiter.at(now).check_n(&key, cost);
                last[usize::try_from(key).unwrap()] = Some(decision);
                decisions.push(decision);
            }
            Act::Peek(key) => decisions.push(limiter.at(now).peek(&key)),
            Act::Refund(key, tokens) => {
                if let Some(charge) = last[usize::try_from(key).unwrap()] {
                    limiter.at(now).refund_n(&key, &charge, tokens);
                }
            }
            Act::Reset(key) => limiter.reset(&key),
            Act::Change(limit, None) => limiter.at(now).set_quota(Quota::new(limit, PERIOD)).unwrap(),
            Act::Change(limit, Some(key)) => {
                limiter.at(now).set_key_quotas([(&key, Some(Quota::new(limit, PERIOD)))]).unwrap();
            }
            Act::Sweep => {
                limiter.at(now).sweep(usize::MAX);
            }
            Act::Wait(millis) => now = now + Duration::from_millis(millis),
        }
    }
    decisions
}

/// Returns the visible parts of a decision.
fn seen(decision: &Decision) -> impl PartialEq + std::fmt::Debug + use<> {
    let waits = (decision.retry_after(), decision.reset_after(), decision.start_after());
    (decision.outcome(), decision.remaining(), decision.charged(), decision.at(), waits)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn walks_that_begin_again_decide_alike(acts in acts(), coin: u64) {
        // Algorithms with windows are excluded, because the windows of each limiter start at
        // different times.
        for algorithm in Algorithm::ALL.into_iter().filter(|other| !other.has_windows()) {
            let build = || builder(algorithm).exact_keys().build().unwrap();
            let again = toss(coin, || decided(&build(), &acts));
            for (again, decision) in again.iter().zip(decided(&build(), &acts)) {
                prop_assert_eq!(seen(again), seen(&decision), "{:?}", algorithm);
            }
            if algorithm != Algorithm::SlidingLog {
                let build = || builder(algorithm).build().unwrap();
                let again = toss(coin, || decided(&build(), &acts));
                for (again, decision) in again.iter().zip(decided(&build(), &acts)) {
                    prop_assert_eq!(seen(again), seen(&decision), "{:?}", algorithm);
                }
            }
        }
    }
}
