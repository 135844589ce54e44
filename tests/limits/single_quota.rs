//! Compares a `SingleLimiter` with a `Limiter` of one key, while the quota is changed in use.

use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use tollgate::{Algorithm, Chargeable, Limiter, ManualClock, Quota, SingleLimiter, Tick};

#[derive(Clone, Debug)]
enum Op {
    Check { cost: u64 },
    Peek { cost: u64 },
    Refund { which: usize, tokens: u64 },
    Reset,
    Quota { tokens: u64, seconds: u64, burst: Option<u64> },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..5_u64).prop_map(|cost| Op::Check { cost }),
        2 => (0..5_u64).prop_map(|cost| Op::Peek { cost }),
        2 => (0..8_usize, 0..5_u64).prop_map(|(which, tokens)| Op::Refund { which, tokens }),
        1 => Just(Op::Reset),
        2 => (1..9_u64, 1..4_u64, prop::option::of(1..9_u64))
            .prop_map(|(tokens, seconds, burst)| Op::Quota { tokens, seconds, burst }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_decides_as_a_key_of_a_limiter_does(ops in prop::collection::vec((op(), 0..700_u64), 1..60)) {
        for algorithm in Algorithm::ALL {
            let quota = Quota::per_second(5);
            let clock = ManualClock::new();
            let single = SingleLimiter::builder(quota).algorithm(algorithm).clock(&clock).build().unwrap();
            let keyed = Limiter::<u8>::builder(quota).algorithm(algorithm).clock(&clock).exact_keys();
            let keyed = keyed.build().unwrap();
            // The key exists from the beginning, like the single limiter's state.
            prop_assert_eq!(single.check(), keyed.check(&7));
            let (mut charges, mut latest) = (Vec::new(), quota);
            for (op, milliseconds) in &ops {
                clock.advance(Duration::from_millis(*milliseconds));
                match *op {
                    Op::Check { cost } => {
                        let (one, other) = (single.check_n(cost), keyed.check_n(&7, cost));
                        prop_assert_eq!(one, other, "{}", algorithm);
                        charges.push((one, other));
                    }
                    Op::Peek { cost } => prop_assert_eq!(single.peek_n(cost), keyed.peek_n(&7, cost)),
                    Op::Refund { which, tokens } => {
                        if which < charges.len() {
                            let (one, other) = charges.swap_remove(which);
                            single.refund_n(&one, tokens);
                            keyed.refund_n(&7, &other, tokens);
                        }
                    }
                    Op::Reset => {
                        single.reset();
                        keyed.reset(&7);
                    }
                    Op::Quota { tokens, seconds, burst } => {
                        let quota = Quota::new(tokens, Duration::from_secs(seconds));
                        let quota = match burst {
                            Some(burst) if algorithm.has_burst() => quota.burst(burst),
                            _ => quota,
                        };
                        single.set_quota(quota).unwrap();
                        keyed.set_quota(quota).unwrap();
                        latest = quota;
                    }
                }
                prop_assert_eq!(single.peek_n(0), keyed.peek_n(&7, 0), "{} after {:?}", algorithm, op);
                prop_assert_eq!(single.is_idle(), keyed.peek_n(&7, 0).reset_after().is_zero());
            }
            // The quota is read only after the check, because the check must not depend on this
            // call.
            prop_assert_eq!(single.quota(), latest);
        }
    }
}

#[test]
fn a_refused_quota_changes_nothing() {
    for algorithm in Algorithm::ALL {
        let limiter = SingleLimiter::builder(Quota::per_hour(2)).algorithm(algorithm).build().unwrap();
        let _ = limiter.at(Tick::ZERO).check();
        assert!(limiter.at(Tick::ZERO).set_quota(Quota::per_hour(0)).is_err());
        assert_eq!(limiter.quota(), Quota::per_hour(2));
        assert_eq!(limiter.at(Tick::ZERO).peek_n(0).remaining(), 1, "{algorithm}");
    }
}

/// Threads charge while the quota is raised. In the end, the number of admissions equals the last
/// quota.
#[test]
fn no_charge_is_lost_or_made_twice_while_the_quota_changes() {
    const LAST: u64 = 3_000;
    for algorithm in Algorithm::ALL {
        let builder = SingleLimiter::builder(Quota::per_hour(1)).algorithm(algorithm);
        let limiter = builder.clock(ManualClock::new()).build().unwrap();
        let (admitted, is_last) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        // This value is read first, so that a later denial was made under the last
                        // quota.
                        let is_last = is_last.load(SeqCst);
                        if limiter.check().is_allowed() {
                            admitted.fetch_add(1, SeqCst);
                        } else if is_last {
                            return;
                        }
                    }
                });
            }
            for tokens in 2..=LAST {
                limiter.set_quota(Quota::per_hour(tokens)).unwrap();
            }
            is_last.store(true, SeqCst);
        });
        assert_eq!(admitted.load(SeqCst), LAST, "{algorithm}");
        assert_eq!(limiter.peek().remaining(), 0, "{algorithm}");
    }
}

#[test]
fn many_changes_take_no_more_memory_than_a_few() {
    for algorithm in Algorithm::ALL {
        let builder = SingleLimiter::builder(Quota::per_hour(1)).algorithm(algorithm);
        let limiter = builder.clock(ManualClock::new()).build().unwrap();
        let before = limiter.bytes();
        let mut most = 0;
        for tokens in 1..=20_000 {
            limiter.set_quota(Quota::per_hour(tokens % 100 + 1)).unwrap();
            let _ = limiter.check();
            most = most.max(limiter.bytes());
        }
        assert!(most < before + 400_000, "{algorithm}: {most} bytes, {before} before");
        assert!(limiter.bytes() > before, "{algorithm}: the last state is counted");
    }
}
