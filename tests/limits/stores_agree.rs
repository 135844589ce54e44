//! Both stores make the same decisions after any calls: charges, forced charges, refunds, sweeps,
//! clears and quota changes.
//!
//! The stores have little in common except the rules: a table turns over with all its keys, but
//! cells are evicted and translated one by one. Keys are left unused for a long time after a
//! change, so the test detects a change that takes effect only when its key is used again.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::store::ExactKeys;
use tollgate::{Algorithm, Decision, Limiter, ManualClock, Quota, Tick, WindowAlign};

#[derive(Clone, Copy, Debug)]
enum Call {
    Check { cost: u64 },
    Force { tokens: u64 },
    Refund { charge: usize, tokens: u64 },
    SetQuota(Quota),
    SetKeyQuota(Option<Quota>),
    SweepTable,
    SweepExact,
    Clear,
}

fn quota() -> impl Strategy<Value = Quota> {
    let period =
        prop::sample::select(&[1_000, 777, 3_600_000, 10_000_000_000, 59, 2_592_000_000_000_000][..]);
    (1_u64..50, period).prop_map(|(limit, nanos)| Quota::new(limit, Duration::from_nanos(nanos)))
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        8 => (1_u64..13).prop_map(|cost| Call::Check { cost }),
        1 => (1_u64..60).prop_map(|tokens| Call::Force { tokens }),
        1 => (0_usize..1_000, 0_u64..10).prop_map(|(charge, tokens)| Call::Refund { charge, tokens }),
        1 => quota().prop_map(Call::SetQuota),
        2 => prop::option::of(quota()).prop_map(Call::SetKeyQuota),
        1 => Just(Call::SweepTable),
        1 => Just(Call::SweepExact),
        1 => prop_oneof![3 => Just(Call::Check { cost: 1 }), 1 => Just(Call::Clear)],
    ]
}

/// The time before a call, in nanoseconds.
fn pause() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0), 1 => 0_u64..100, 1 => 0_u64..5_000_000, 1 => 0_u64..1 << 34, 1 => 0_u64..2_000]
}

struct Pair {
    table: Limiter<u64>,
    exact: Limiter<u64, ExactKeys<u64>>,
}

impl Pair {
    /// Returns `None` if the algorithm refuses the quota.
    fn new(algorithm: Algorithm, quota: Quota, debt: u64) -> Option<Self> {
        let builder = || {
            let builder =
                Limiter::<u64>::builder(quota).algorithm(algorithm).max_keys(64).clock(ManualClock::new());
            let builder = builder.grace(Duration::from_nanos(1)).max_debt(debt);
            if algorithm.has_windows() { builder.align(WindowAlign::ClockStart) } else { builder }
        };
        Some(Self { table: builder().build().ok()?, exact: builder().exact_keys().build().ok()? })
    }

    fn set(&self, key: Option<u64>, quota: Option<Quota>, now: Tick) -> bool {
        let (table, exact) = match (key, quota) {
            (None, Some(quota)) => (self.table.at(now).set_quota(quota), self.exact.at(now).set_quota(quota)),
            (Some(key), quota) => (
                self.table.at(now).set_key_quotas([(&key, quota)]),
                self.exact.at(now).set_key_quotas([(&key, quota)]),
            ),
            (None, None) => return true,
        };
        assert_eq!(table, exact);
        table.is_ok()
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(debug_assertions) { 500 } else { 5_000 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn both_stores_decide_alike_whatever_is_done(
        algorithm in prop::sample::select(&Algorithm::PACKED[..]),
        first in quota(),
        debt in prop_oneof![Just(0), 1_u64..30],
        start in 0_u64..1 << 40,
        calls in prop::collection::vec((pause(), 0_u64..5, call()), 1..200),
    ) {
        let Some(pair) = Pair::new(algorithm, first, debt) else { return Ok(()) };
        let mut now = Tick::from_nanos(start);
        // The charges, each with the tokens that were not given back yet.
        let mut charges: Vec<(u64, [Decision; 2], u64)> = Vec::new();
        // The keys that have lost their own quotas since the limiter's quota last changed. A table
        // voids refunds of such a key once more when it forgets that the key had a quota.
        let mut former: Vec<u64> = Vec::new();
        for (pause, key, call) in calls {
            now = now + Duration::from_nanos(pause);
            match call {
                Call::Check { cost } => {
                    let decisions = [pair.table.at(now).check_n(&key, cost), pair.exact.at(now).check_n(&key, cost)];
                    prop_assert_eq!(decisions[0], decisions[1], "{}", algorithm);
                    if !former.contains(&key) {
                        charges.push((key, decisions, decisions[0].charged()));
                    }
                }
                Call::Force { tokens } => {
                    let charged = [pair.table.at(now).force(&key, tokens), pair.exact.at(now).force(&key, tokens)];
                    prop_assert_eq!(charged[0], charged[1], "{}", algorithm);
                }
                Call::Refund { charge, tokens } => {
                    // No token may be given back twice.
                    let charge = charge % charges.len().max(1);
                    if let Some((key, [of_table, of_exact], left)) = charges.get_mut(charge) {
                        let tokens = tokens.min(*left);
                        *left -= tokens;
                        pair.table.at(now).refund_n(key, of_table, tokens);
                        pair.exact.at(now).refund_n(key, of_exact, tokens);
                    }
                }
                Call::SetQuota(quota) => {
                    let before = pair.table.quota();
                    if pair.set(None, Some(quota), now) && quota != before {
                        former.clear();
                    }
                }
                Call::SetKeyQuota(quota) => {
                    let had_own = pair.table.key_quota(&key).is_some();
                    if pair.set(Some(key), quota, now) && had_own {
                        former.push(key);
                        charges.retain(|(charged, ..)| *charged != key);
                    }
                }
                Call::SweepTable => while pair.table.at(now).sweep(4_096) {},
                Call::SweepExact => while pair.exact.at(now).sweep(4_096) {},
                Call::Clear => {
                    pair.table.at(now).clear();
                    pair.exact.at(now).clear();
                }
            }
        }
    }
}
