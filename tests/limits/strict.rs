//! A strict quota is an upper bound: whatever clients do, no interval of one period admits more
//! tokens than the quota has. This check must pass for the sliding log, which counts each request.
//! It must fail for a quota that is not strict.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::{Algorithm, ManualClock, Quota, SingleLimiter};

/// Returns the maximum number of tokens that any half-open interval of one period admits to a
/// client that follows `steps`. Each step is a wait, the number of requests after the wait, and the
/// cost of each request.
fn most_in_a_period(quota: Quota, period: Duration, algorithm: Algorithm, steps: &[(u64, u16, u64)]) -> u64 {
    let clock = ManualClock::new();
    let limiter = SingleLimiter::builder(quota).algorithm(algorithm).clock(&clock).build().unwrap();
    let mut admitted: Vec<(u128, u64)> = Vec::new();
    for &(wait, times, cost) in steps {
        clock.advance(Duration::from_nanos(wait));
        for _ in 0..times {
            let decision = limiter.check_n(cost);
            admitted.push((clock.now().as_nanos().into(), decision.charged()));
            // The most demanding client asks again at the first moment that may succeed.
            clock.advance(decision.retry_after().unwrap_or_default().min(period));
        }
    }
    let sums = admitted.iter().enumerate().map(|(first, &(from, _))| {
        let within = admitted[first..].iter().take_while(|(at, _)| at - from < period.as_nanos());
        within.map(|(_, tokens)| tokens).sum()
    });
    sums.max().unwrap_or(0)
}

fn steps(period: u64) -> impl Strategy<Value = Vec<(u64, u16, u64)>> {
    let wait = prop_oneof![Just(0), 0..period / 4, 0..period * 2];
    prop::collection::vec((wait, 0..60_u16, 1..4_u64), 1..12)
}

proptest! {
    #[test]
    fn no_period_admits_more_than_a_strict_quota_has(
        (tokens, burst) in (1..40_u64).prop_flat_map(|n| (Just(n), prop::option::of(1..n + 3))),
        (period, steps) in prop_oneof![Just(1000), Just(997), Just(60_000_000_000), 200..5000_u64]
            .prop_flat_map(|period| (Just(period), steps(period))),
    ) {
        let length = Duration::from_nanos(period);
        let quota = Quota::new(tokens, length);
        let quota = burst.map_or(quota, |burst| quota.burst(burst));
        // No limiter accepts a rate of 0, which a burst of all tokens leaves.
        prop_assume!(quota.strict().tokens() > 0);
        for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::LeakyQueue] {
            let most = most_in_a_period(quota.strict(), length, algorithm, &steps);
            prop_assert!(most <= tokens, "{most} of {tokens}: {algorithm} {}", quota.strict());
        }
        let log = Quota::new(tokens, length);
        let most = most_in_a_period(log, length, Algorithm::SlidingLog, &steps);
        prop_assert!(most <= tokens, "{most} of {tokens}: log");
    }
}

#[test]
fn a_quota_that_is_not_strict_admits_nearly_twice_its_tokens() {
    let minute = Duration::from_secs(60);
    let greedy = [(0, 400, 1)];
    let most = |quota| most_in_a_period(quota, minute, Algorithm::TokenBucket, &greedy);
    assert_eq!(most(Quota::per_minute(100)), 199);
    assert_eq!(most(Quota::per_minute(100).strict()), 99, "a closed interval has one more");
    assert_eq!(most(Quota::per_minute(1).strict()), 1);
    assert_eq!(most(Quota::per_minute(1).burst(1).strict()), 1);
    assert_eq!(Quota::per_minute(1).burst(5).strict().tokens(), 0, "no limiter accepts this");
}

#[test]
fn a_burst_that_leaves_a_strict_quota_no_rate_is_named() {
    let refused = |quota| SingleLimiter::builder(quota).build().unwrap_err().to_string();
    for (quota, burst) in [
        (Quota::per_minute(100).burst(120).strict(), 120),
        (Quota::per_minute(100).burst(100).strict(), 100),
        (Quota::per_minute(1).burst(2).strict(), 2),
        (Quota::per_minute(0).burst(5), 5),
    ] {
        assert_eq!(
            refused(quota),
            format!(
                "burst {burst} beside 0 tokens would never refill; allowed: 1 token and more; a strict quota takes \
                 its burst from its tokens, so choose a burst below them, or leave the burst out"
            )
        );
    }
    assert!(refused(Quota::per_minute(0)).starts_with("0 tokens would deny every request"));
}
