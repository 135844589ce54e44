//! Quotas that are changed while the limiter is in use: the default quota, and keys' own quotas.

use super::store::{ALGORITHMS, Gate, IntoGate};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use tollgate::rule::Refused;
use tollgate::{Algorithm, DecisionSource, Limiter, ManualClock, Outcome, Quota, Tick, WhenFull};

const HOUR: Duration = Duration::from_secs(3_600);

fn per_hour(limit: u64) -> Quota {
    Quota::per_hour(limit)
}

fn limiter(algorithm: Algorithm, quota: Quota) -> (Gate<u64>, ManualClock) {
    let clock = ManualClock::new();
    // The time is not at the boundary of a window.
    clock.advance(HOUR / 10);
    (Limiter::builder(quota).algorithm(algorithm).max_keys(10_000).clock(&clock).gate(), clock)
}

/// The way in which a quota is changed.
#[derive(Clone, Copy, Debug)]
enum Way {
    Default,
    Own,
}

const WAYS: [Way; 2] = [Way::Default, Way::Own];

fn change(limiter: &Gate<u64>, way: Way, key: u64, quota: Quota, now: Tick) {
    match way {
        Way::Default => limiter.at(now).set_quota(quota).unwrap(),
        Way::Own => limiter.at(now).set_key_quotas([(&key, Some(quota))]).unwrap(),
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Check(u64, u64),
    Refund,
    Period(u64),
    RemoveOwn,
}

fn any_algorithm() -> impl Strategy<Value = Algorithm> {
    prop::sample::select(ALGORITHMS.to_vec())
}

fn any_way() -> impl Strategy<Value = Way> {
    prop::sample::select(WAYS.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 2_000 }))]

    /// Charged tokens stay charged: the remaining tokens are the new capacity minus the tokens
    /// taken.
    #[test]
    fn what_is_missing_stays_missing(
        algorithm in any_algorithm(),
        way in any_way(),
        steps in prop::collection::vec((1_u64..2_000, 0_u64..1_500, 0_u64..7_200_000), 1..12),
    ) {
        let mut limit = 1_000;
        let (limiter, clock) = limiter(algorithm, per_hour(limit));
        assert!(limiter.check(&7).is_allowed());
        for (next, cost, millis) in steps {
            clock.advance(Duration::from_millis(millis));
            let _ = limiter.check_n(&7, cost);
            let before = limiter.peek(&7).remaining();
            change(&limiter, way, 7, per_hour(next), clock.now());
            let after = limiter.peek(&7);
            prop_assert_eq!(after.capacity(), next);
            let left = (before + next).saturating_sub(limit);
            if matches!(algorithm, Algorithm::SlidingWindow | Algorithm::SlidingLog) && before == 0 {
                // After the limit was lowered, more tokens may count than the limit.
                prop_assert!(after.remaining() <= left);
            } else {
                prop_assert_eq!(after.remaining(), left, "of {} before", before);
            }
            limit = next;
        }
    }

    /// A limiter whose quota is raised admits everything that a limiter with the old quota admits.
    #[test]
    fn raising_never_denies_what_the_old_quota_admits(
        algorithm in any_algorithm(),
        way in any_way(),
        limit in 1_u64..500,
        raises in prop::collection::vec(0_u64..300, 1..4),
        steps in prop::collection::vec((1_u64..200, 0_u64..2_000_000), 1..60),
    ) {
        let (low, clock) = limiter(algorithm, per_hour(limit));
        let high: Gate<u64> =
            Limiter::builder(per_hour(limit)).algorithm(algorithm).clock(&clock).gate();
        let mut raised = limit;
        for (n, &(cost, millis)) in steps.iter().enumerate() {
            clock.advance(Duration::from_millis(millis));
            if let Some(more) = raises.get(n / 5).filter(|_| n % 5 == 4) {
                raised += more;
                change(&high, way, 7, per_hour(raised), clock.now());
            }
            if low.check_n(&7, cost).is_allowed() {
                let decision = high.check_n(&7, cost);
                prop_assert!(decision.is_allowed(), "{:?}", decision);
            }
        }
    }

    /// At any instant, no more is admitted than the larger of the two capacities. Across several
    /// changes, this also holds if each of them raises the capacity.
    #[test]
    fn no_change_grants_more_than_the_larger_burst(
        algorithm in any_algorithm(),
        way in any_way(),
        quotas in prop::collection::vec((1_u64..1_000, 1_u64..7_200), 2..8),
        costs in prop::collection::vec(1_u64..400, 40),
        // The thread that changes the quota reads a time that another thread has already passed.
        // The new rate applies from the later time.
        skews in prop::collection::vec(prop_oneof![Just(0), 0_u64..3_000], 8),
    ) {
        let mut quotas = quotas;
        if quotas.len() > 2 {
            quotas.sort();
        }
        let quota = |&(limit, seconds): &(u64, u64)| Quota::new(limit, Duration::from_secs(seconds));
        let (limiter, _) = limiter(algorithm, quota(&quotas[0]));
        let now = Tick::from_nanos(10_000_000_000_000);
        let (mut admitted, mut refilled) = (0, 0);
        for (n, quota) in quotas.iter().map(quota).enumerate() {
            if n > 0 {
                // Windows of another length have different boundaries in between.
                let skew = if algorithm.has_windows() { 0 } else { skews[n] };
                change(&limiter, way, 7, quota, Tick::from_nanos(now.as_nanos() - skew * 1_000_000_000));
                refilled += (quota.tokens() * skew).div_ceil(quota.period().as_secs());
            }
            for &cost in &costs[n * 5..n * 5 + 5] {
                admitted += limiter.at(now).check_n(&7, cost).charged();
            }
        }
        let largest = quotas.iter().map(|&(limit, _)| limit).max().unwrap();
        prop_assert!(admitted <= largest + refilled, "{} of {} + {}", admitted, largest, refilled);
    }

    /// Two limiters receive the same requests and changes, but only one receives refunds. The other
    /// one admits everything that the first one admits. (Refunds are in the reverse order of their
    /// charges. `Rule::refund` describes the effect of another order on a bucket.)
    #[test]
    fn refunds_around_changes_admit_nothing_that_others_would_not_get(
        algorithm in any_algorithm(),
        way in any_way(),
        // Either a request and the part of its cost that is given back later, or a refund, or a
        // change.
        steps in prop::collection::vec(
            (0_u64..40_000, prop_oneof![
                4 => (1_u64..=10, 0_u64..=10).prop_map(|(cost, back)| Act::Check(cost, back.min(cost))),
                2 => Just(Act::Refund),
                1 => prop::sample::select(vec![1_u64, 10, 60, 600]).prop_map(Act::Period),
                1 => Just(Act::RemoveOwn),
            ]), 1..40),
    ) {
        let (real, clock) = limiter(algorithm, Quota::new(10, Duration::from_secs(60)));
        let (twin, _) = limiter(algorithm, real.quota());
        let mut charges = Vec::new();
        for (millis, act) in steps {
            clock.advance(Duration::from_millis(millis));
            let now = clock.now();
            match act {
                Act::Check(cost, back) => {
                    let charge = real.at(now).check_n(&7, cost);
                    if charge.is_allowed() {
                        let kept = twin.at(now).check_n(&7, cost - back);
                        prop_assert!(kept.is_allowed(), "{:?} instead of {:?}", kept, charge);
                        charges.push((charge, back));
                    }
                }
                Act::Refund => {
                    // Other callers take everything that is available, before and after.
                    for refund in [None, charges.pop()] {
                        refund.iter().for_each(|(charge, back)| real.at(now).refund_n(&7, charge, *back));
                        while real.at(now).check(&7).is_allowed() {
                            prop_assert!(twin.at(now).check(&7).is_allowed(), "after {:?}", refund);
                        }
                    }
                }
                Act::Period(seconds) => {
                    let quota = Quota::new(10, Duration::from_secs(seconds));
                    change(&real, way, 7, quota, now);
                    change(&twin, way, 7, quota, now);
                }
                Act::RemoveOwn => {
                    for gate in [&real, &twin] {
                        gate.at(now).set_key_quotas([(&7, None)]).unwrap();
                    }
                }
            }
        }
    }

    /// Nothing panics, for any quotas, times and costs. This includes refunds of charges made under
    /// other quotas.
    #[test]
    fn changes_never_panic(
        algorithm in any_algorithm(),
        way in any_way(),
        steps in prop::collection::vec(
            (1_u64..u64::MAX, 1_u64..1 << 61, any::<u64>(), any::<u64>(), any::<u64>()), 1..20),
    ) {
        let (limiter, _) = limiter(algorithm, per_hour(3));
        let mut charges = Vec::new();
        for (limit, period, at, cost, shift) in steps {
            let now = Tick::from_nanos(at >> (shift % 64));
            let limit = limit >> (shift / 64 % 64);
            let quota = Quota::new(limit, Duration::from_nanos(period >> (shift / 4_096 % 61)));
            // Most changes are refused, and a refused change has no effect.
            let _ = limiter.at(now).set_key_quotas([(&7, Some(quota))]);
            if matches!(way, Way::Default) {
                let _ = limiter.at(now).set_quota(quota);
            }
            charges.push(limiter.at(now).check_n(&7, cost));
            charges.push(limiter.at(now).check(&7));
            let charge = charges[usize::try_from(shift % charges.len() as u64).unwrap()];
            limiter.at(now).refund_n(&7, &charge, cost);
            let peek = limiter.at(now).peek(&7);
            prop_assert!(peek.remaining() <= peek.capacity());
        }
    }
}

#[test]
fn a_quota_of_its_own_holds_for_one_key_until_it_is_removed() {
    for &algorithm in ALGORITHMS {
        let (limiter, _) = limiter(algorithm, per_hour(2));
        for key in 0..100 {
            assert!(limiter.check(&key).is_allowed());
        }
        limiter.set_key_quota(&7, per_hour(10)).unwrap();
        // This key is not tracked yet.
        limiter.set_key_quota(&1_000, per_hour(20)).unwrap();
        assert_eq!(limiter.stats().own_quotas, 2);
        assert_eq!((limiter.peek(&7).capacity(), limiter.peek(&7).remaining()), (10, 9), "{algorithm}");
        assert_eq!(limiter.check_n(&1_000, 15).remaining(), 5);
        for key in (0..100).filter(|&key| key != 7) {
            assert_eq!((limiter.peek(&key).capacity(), limiter.peek(&key).remaining()), (2, 1));
        }
        limiter.set_quota(per_hour(3)).unwrap();
        assert_eq!((limiter.peek(&7).capacity(), limiter.peek(&8).capacity()), (10, 3));

        limiter.set_key_quota(&7, None).unwrap();
        limiter.set_key_quota(&7, None).unwrap();
        assert_eq!((limiter.key_quota(&7), limiter.key_quota(&1_000)), (None, Some(per_hour(20))));
        assert_eq!(limiter.quota(), per_hour(3));
        assert_eq!((limiter.peek(&7).capacity(), limiter.peek(&7).remaining()), (3, 2), "{algorithm}");
        assert_eq!(limiter.stats().own_quotas, 1);
    }
}

#[test]
fn a_quota_of_its_own_outlives_the_state_of_its_key() {
    let (limiter, clock) = limiter(Algorithm::TokenBucket, per_hour(2));
    limiter.set_key_quota(&7, per_hour(10)).unwrap();
    assert!(limiter.check(&7).is_allowed());
    clock.advance(HOUR * 3);
    while limiter.sweep(usize::MAX) {}
    assert!(limiter.is_empty());
    assert_eq!(limiter.check(&7).capacity(), 10);
    limiter.clear();
    assert_eq!(limiter.check(&7).capacity(), 10, "clearing forgets keys, not quotas");
}

/// A change does not make the store forget a key, even if the store has no room for more.
#[test]
fn a_change_at_the_cap_forgets_nobody() {
    let builder = Limiter::builder(per_hour(1)).max_keys(1_000).clock(ManualClock::new());
    let limiter: Gate<u64> = builder.gate();
    for key in 0..1_000 {
        assert!(limiter.check(&key).is_allowed());
    }
    for limit in 2..6 {
        limiter.set_quota(per_hour(limit)).unwrap();
        limiter.set_key_quota(&7, per_hour(100 * limit)).unwrap();
        for key in (0..1_000).filter(|&key| key != 7) {
            assert_eq!((limiter.peek(&key).capacity(), limiter.peek(&key).remaining()), (limit, limit - 1));
        }
        assert_eq!(limiter.peek(&7).remaining(), 100 * limit - 1);
        assert_eq!(limiter.check(&5_000).source(), DecisionSource::Policy);
        assert_eq!(limiter.len(), 1_000);
    }
}

#[test]
fn many_quotas_are_one_change_and_a_refused_one_changes_nothing() {
    let (limiter, _) = limiter(Algorithm::FixedWindow, per_hour(2));
    assert!(limiter.check(&1).is_allowed());
    let quotas: Vec<(u64, Quota)> = (0..1_000).map(|key| (key, per_hour(key + 1))).collect();
    limiter.set_key_quotas(quotas.iter().map(|(key, quota)| (key, Some(*quota)))).unwrap();
    for key in 0..1_000 {
        assert_eq!(limiter.peek(&key).capacity(), key + 1);
    }
    let mut refused = quotas.clone();
    refused[500].1 = per_hour(0);
    let refused = refused.iter().map(|(key, _)| (key, Some(per_hour(5)))).chain([(&500, Some(per_hour(0)))]);
    assert_eq!(limiter.set_key_quotas(refused), Err(Refused::ZeroTokens.into()));
    assert_eq!(limiter.set_quota(per_hour(0)), Err(Refused::ZeroTokens.into()));
    for key in 0..1_000 {
        assert_eq!(limiter.peek(&key).capacity(), key + 1);
    }
    assert_eq!(limiter.peek(&5_000).capacity(), 2);
    limiter.set_key_quotas((0..1_000).map(|key| (&quotas[key].0, None))).unwrap();
    assert_eq!(limiter.stats().own_quotas, 0);
    assert_eq!(limiter.peek(&999).capacity(), 2);
}

#[test]
fn a_cost_above_a_lowered_quota_is_refused_for_good() {
    for &algorithm in ALGORITHMS {
        for way in WAYS {
            let (limiter, clock) = limiter(algorithm, per_hour(100));
            assert!(limiter.check_n(&7, 80).is_allowed());
            change(&limiter, way, 7, per_hour(10), clock.now());
            assert_eq!(limiter.check_n(&7, 11).outcome(), Outcome::TooCostly, "{algorithm}");
            assert!(!limiter.check(&7).is_allowed());
        }
    }
}

#[test]
fn keys_that_share_a_state_follow_the_default_quota() {
    let builder =
        Limiter::builder(per_hour(10)).max_keys(1).when_full(WhenFull::Share).clock(ManualClock::new());
    let limiter: Gate<u64> = builder.gate();
    assert!(limiter.check(&1).is_allowed());
    assert_eq!(limiter.check_n(&2, 4).source(), DecisionSource::Overflow);
    limiter.set_quota(per_hour(100)).unwrap();
    assert_eq!((limiter.peek(&3).capacity(), limiter.peek(&3).remaining()), (100, 96));
    let charge = limiter.check_n(&4, 90);
    assert_eq!((charge.source(), charge.remaining()), (DecisionSource::Overflow, 6));
    limiter.set_quota(per_hour(50)).unwrap();
    assert!(!limiter.check(&5).is_allowed());
    limiter.refund(&4, &charge);
    assert_eq!(limiter.peek(&6).remaining(), 0, "the charge is from before the change");
    limiter.clear();
    assert_eq!((limiter.len(), limiter.peek(&6).remaining()), (0, 50));
}

/// Threads take all tokens they can get while the quota is raised. The clock stands still, so they
/// receive exactly the tokens of the largest quota.
#[test]
fn changes_race_charges_and_exactly_the_larger_burst_is_granted() {
    for &algorithm in ALGORITHMS {
        for way in WAYS {
            changes_race_charges(algorithm, way);
        }
    }
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn changes_race_charges(algorithm: Algorithm, way: Way) {
    const LARGE: u64 = 5_000;
    let (limiter, clock) = limiter(algorithm, per_hour(LARGE / 2));
    let (limiter, now) = (&limiter, clock.now());
    for key in 0..50 {
        assert!(limiter.check(&key).is_allowed());
    }
    let (is_over, admitted) = (&AtomicBool::new(false), &AtomicU64::new(1));
    thread::scope(|scope| {
        for racer in 0..2 {
            scope.spawn(move || {
                let mut fresh = 1_000_000 * (racer + 1);
                while !is_over.load(SeqCst) {
                    admitted.fetch_add(limiter.check(&7).charged(), SeqCst);
                    // This also begins turnovers and rounds for other reasons.
                    let _ = limiter.check(&fresh);
                    fresh += 1;
                }
            });
        }
        // This also runs if an assertion fails, because the racers would otherwise never end.
        let _ends = Ends(is_over);
        for limit in (LARGE / 2..LARGE).step_by(25) {
            change(limiter, way, 7, per_hour(limit), now);
            // A change has taken effect when the call returns.
            assert_eq!(limiter.peek(&7).capacity(), limit);
        }
    });
    change(limiter, way, 7, per_hour(LARGE), now);
    while limiter.check(&7).is_allowed() {
        admitted.fetch_add(1, SeqCst);
    }
    assert_eq!(admitted.load(SeqCst), LARGE, "{algorithm} {way:?}");
}

/// Two threads change quotas: each changes the quotas of its own keys, and both change the default.
/// No change is lost.
#[test]
fn changes_race_changes_and_none_is_lost() {
    let (limiter, _) = limiter(Algorithm::TokenBucket, per_hour(1));
    let limiter = &limiter;
    thread::scope(|scope| {
        for racer in 0..3_u64 {
            scope.spawn(move || {
                for n in 0..100 {
                    let key = racer * 1_000 + n;
                    limiter.set_key_quota(&key, per_hour(key + 1)).unwrap();
                    assert_eq!(limiter.peek(&key).capacity(), key + 1);
                    if n % 10 == 9 {
                        limiter.set_key_quota(&key, None).unwrap();
                        limiter.set_quota(per_hour(2 + n)).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(limiter.stats().own_quotas, 270);
    for racer in 0..3 {
        for n in (0..100).filter(|n| n % 10 != 9) {
            let key = racer * 1_000 + n;
            assert_eq!(limiter.peek(&key).capacity(), key + 1);
        }
    }
    limiter.set_quota(per_hour(77)).unwrap();
    assert_eq!(limiter.peek(&9_999).capacity(), 77);
}

/// Quotas of individual keys require memory, which the limiter counts.
#[test]
fn the_memory_of_quotas_is_counted() {
    let (limiter, _) = limiter(Algorithm::TokenBucket, per_hour(1));
    let keys: Vec<u64> = (0..10_000).collect();
    let before = limiter.stats().bytes;
    limiter.set_key_quotas(keys.iter().map(|key| (key, Some(per_hour(2))))).unwrap();
    let each = (limiter.stats().bytes - before) / keys.len();
    assert!((120..400).contains(&each), "{each} bytes");
}

/// A change takes effect at its own time, not at the time of the key's next use. A call that only
/// looks does not change this.
#[test]
fn a_change_takes_effect_at_its_own_time() {
    for &algorithm in ALGORITHMS {
        for way in WAYS {
            // The quota is ten an hour, all of them taken, and then eleven. A peek looks ahead.
            let (gate, clock) = limiter(algorithm, per_hour(10));
            let now = clock.now();
            assert!(gate.check_n(&7, 10).is_allowed());
            change(&gate, way, 7, per_hour(11), now);
            let _ = gate.at(now + 3 * HOUR).peek(&7);
            assert_eq!(gate.at(now).check_n(&7, 5).charged(), 0, "{algorithm} {way:?}");
            assert_eq!(gate.at(now).peek(&7).remaining(), 1, "{algorithm} {way:?}");
        }
    }
    for way in WAYS {
        let rates = [Quota::new(10, Duration::from_secs(1)), per_hour(10)];
        for (slower, [from, to]) in [(true, rates), (false, [rates[1], rates[0]])] {
            let (gate, clock) = limiter(Algorithm::TokenBucket, from);
            assert!(gate.check_n(&7, 10).is_allowed());
            change(&gate, way, 7, to, clock.now());
            clock.advance(Duration::from_secs(2));
            assert_eq!(gate.peek(&7).remaining(), if slower { 0 } else { 10 }, "{way:?}");
        }
    }
}

/// The state that keys share also refills at the new rate.
#[test]
fn a_change_concerns_the_shared_state_at_once() {
    let clock = ManualClock::new();
    let builder =
        Limiter::builder(Quota::per_second(10)).max_keys(1).when_full(WhenFull::Share).clock(&clock);
    let gate: Gate<u64> = builder.gate();
    assert!(gate.check(&1).is_allowed());
    assert_eq!(gate.check_n(&2, 10).source(), DecisionSource::Overflow);
    gate.set_quota(per_hour(10)).unwrap();
    clock.advance(Duration::from_secs(2));
    let next = gate.check(&3);
    assert_eq!((next.source(), next.is_allowed(), next.remaining()), (DecisionSource::Overflow, false, 0));
}

/// If the length of windows changes, an older charge is given back only to a window that contains
/// it.
#[test]
fn a_refund_after_a_change_of_length_gives_nothing_to_another_window() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let gate: Gate<u64> =
            Limiter::builder(per_hour(10)).algorithm(algorithm).clock(ManualClock::new()).gate();
        let at = |minutes: u64| Tick::ZERO + Duration::from_secs(60 * minutes);
        let charge = gate.at(at(1)).check_n(&7, 10);
        gate.at(at(2)).set_quota(Quota::new(10, Duration::from_secs(600))).unwrap();
        assert!(gate.at(at(55)).check_n(&7, 10).is_allowed());
        gate.at(at(55)).refund_n(&7, &charge, 10);
        assert_eq!(gate.at(at(55)).check(&7).charged(), 0, "{algorithm}");
    }
}

/// Ten tokens are reserved, and refill under a faster quota. These tokens then belong to other
/// callers, whatever the quota becomes later.
#[test]
fn a_release_after_a_raise_gives_nothing_of_others() {
    for way in WAYS {
        for last in [per_hour(10), per_hour(1).burst(10)] {
            let (gate, clock) = limiter(Algorithm::TokenBucket, per_hour(1).burst(10));
            let held = gate.reserve(&7, 10).unwrap();
            change(&gate, way, 7, per_hour(10), clock.now());
            clock.advance(HOUR);
            change(&gate, way, 7, last, clock.now());
            assert!(gate.check_n(&7, 10).is_allowed(), "the bucket is full");
            held.release();
            assert!(!gate.check(&7).is_allowed(), "{way:?}, {last}");
        }
    }
}

/// Windows of one length do not count charges made in between under another length.
#[test]
fn a_refund_after_two_changes_of_length_gives_nothing_of_others() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        for way in WAYS {
            let (gate, _) = limiter(algorithm, per_hour(10));
            let at = |minutes: u64| Tick::ZERO + Duration::from_secs(60 * minutes);
            let charge = gate.at(at(1)).check_n(&7, 10);
            change(&gate, way, 7, Quota::new(10, Duration::from_secs(300)), at(2));
            assert!(gate.at(at(20)).check_n(&7, 10).is_allowed());
            change(&gate, way, 7, per_hour(10), at(21));
            gate.at(at(22)).refund_n(&7, &charge, 10);
            assert!(!gate.at(at(22)).check(&7).is_allowed(), "{algorithm} {way:?}");
        }
    }
}

/// The refill under the key's own quota still counts under the limiter's quota.
#[test]
fn a_charge_from_before_an_own_quota_is_removed_gives_nothing_back() {
    let (gate, clock) = limiter(Algorithm::TokenBucket, per_hour(1).burst(10));
    let held = gate.reserve(&7, 10).unwrap();
    gate.set_key_quota(&7, per_hour(10)).unwrap();
    clock.advance(HOUR);
    gate.set_key_quota(&7, None).unwrap();
    assert!(gate.check_n(&7, 10).is_allowed(), "the bucket is full");
    held.release();
    assert!(!gate.check(&7).is_allowed());
}

/// A log finds each charge by its time. All other rules void the refunds of the key's charges from
/// before the change.
#[test]
fn a_change_voids_the_refunds_of_its_own_keys_and_of_no_others() {
    for &algorithm in ALGORITHMS {
        for way in WAYS {
            let (gate, clock) = limiter(algorithm, per_hour(10));
            let [changed, other] = [&7, &8].map(|key| gate.reserve(key, 4).unwrap());
            change(&gate, way, 7, per_hour(20), clock.now());
            let [after, _] = [7, 8].map(|key| gate.check_n(&key, 1));
            changed.release();
            other.release();
            let is_log = algorithm == Algorithm::SlidingLog;
            let left = if is_log { 19 } else { 15 };
            assert_eq!(gate.peek(&7).remaining(), left, "{algorithm} {way:?}");
            let is_changed = matches!(way, Way::Default) && !is_log;
            let left = if is_changed { 15 } else { gate.peek(&8).capacity() - 1 };
            assert_eq!(gate.peek(&8).remaining(), left, "{algorithm} {way:?}");
            // A charge in the same tick as the change was made after it.
            gate.refund(&7, &after);
            assert_eq!(gate.peek(&7).remaining(), if is_log { 20 } else { 16 }, "{algorithm} {way:?}");
        }
    }
}

#[test]
fn a_quota_that_is_set_again_voids_nothing_and_makes_no_array() {
    for &algorithm in ALGORITHMS {
        let (gate, _) = limiter(algorithm, per_hour(10));
        gate.set_key_quota(&7, per_hour(20)).unwrap();
        let open = [&7, &8].map(|key| gate.reserve(key, 10).unwrap());
        let before = gate.stats();
        for _ in 0..100 {
            gate.set_quota(per_hour(10)).unwrap();
            gate.set_key_quotas([(&7, Some(per_hour(20))), (&8, None)]).unwrap();
        }
        assert_eq!((gate.stats().turnovers, gate.stats().bytes), (before.turnovers, before.bytes));
        open.into_iter().for_each(tollgate::Reservation::release);
        assert_eq!([7, 8].map(|key| gate.peek(&key).remaining()), [20, 10], "{algorithm}");
    }
}

/// The same rate in other words decides alike. It is what `quota` tells.
#[test]
fn an_equal_rate_in_other_words_voids_nothing() {
    let (gate, _) = limiter(Algorithm::TokenBucket, Quota::per_minute(60).burst(60));
    let open = gate.reserve(&7, 60).unwrap();
    gate.set_quota(Quota::per_second(1).burst(60)).unwrap();
    assert_eq!(gate.quota(), Quota::per_second(1).burst(60));
    open.release();
    assert_eq!(gate.peek(&7).remaining(), 60);
}

/// The bucket refills under the key's own quota; then others spend it under the limiter's quota.
/// The clock goes on by seconds, while a charge is held for hours.
#[test]
fn a_charge_from_before_an_own_quota_stays_void_after_its_removal() {
    let fast = Quota::new(10, Duration::from_micros(10));
    for forgotten in [false, true] {
        let (gate, clock) = limiter(Algorithm::TokenBucket, per_hour(10));
        let second = || clock.advance(Duration::from_secs(1));
        let charges = [7, 8].map(|key| gate.check_n(&key, 10));
        second();
        gate.set_key_quota(&7, fast).unwrap();
        second();
        if forgotten {
            while gate.sweep(1 << 10) {}
        }
        gate.set_key_quota(&7, None).unwrap();
        // Other changes and turnovers change nothing about it.
        gate.set_key_quota(&9, fast).unwrap();
        while gate.sweep(1 << 10) {}
        second();
        assert_eq!(gate.check_n(&7, 10).charged(), 10);
        gate.refund(&7, &charges[0]);
        assert_eq!(gate.check(&7).charged(), 0, "forgotten: {forgotten}");
        gate.refund(&8, &charges[1]);
        assert_eq!(gate.check_n(&8, 10).charged(), 10);
    }
}

/// A year ahead, one key gets a quota of its own. No other key is delayed.
#[test]
fn a_quota_that_one_key_gets_at_a_time_ahead_delays_no_other_key() {
    let year = Tick::ZERO + Duration::from_secs(365 * 24 * 3600);
    let at = |seconds: u64| Tick::ZERO + Duration::from_secs(seconds);
    for &algorithm in ALGORITHMS {
        let (gate, _) = limiter(algorithm, Quota::per_second(10));
        assert!(gate.at(at(1)).check(&7).is_allowed());
        gate.at(year).set_key_quotas([(&1, Some(Quota::per_second(99)))]).unwrap();
        assert!(gate.at(at(2)).check(&7).is_allowed(), "{algorithm}");
        gate.at(at(3)).set_quota(Quota::per_second(20)).unwrap();
        assert!(gate.at(at(4)).check(&7).is_allowed(), "{algorithm}");
    }
    let builder = Limiter::builder(Quota::per_second(10)).max_keys(1).when_full(WhenFull::Share);
    let gate: Gate<u64> = builder.clock(ManualClock::new()).gate();
    assert_eq!(gate.at(at(1)).check_n(&1, 10).source(), DecisionSource::Key);
    assert_eq!(gate.at(at(1)).check(&2).source(), DecisionSource::Overflow);
    gate.at(year).set_key_quotas([(&1, Some(Quota::per_second(99)))]).unwrap();
    gate.at(at(3)).set_quota(per_hour(36_001).burst(10)).unwrap();
    assert!(gate.at(at(4)).check(&2).is_allowed());
}

/// The caller's time of the change is stale, so the new rate also refills the time since then. The
/// limiter cannot know by how much, but the excess has a bound.
#[test]
fn a_change_at_a_stale_time_admits_at_most_what_the_new_rate_refills_and_a_capacity() {
    let at = |millis: u64| Tick::ZERO + Duration::from_millis(millis);
    for stale in [0, 1, 5, 10, 2_000] {
        let (gate, _) = limiter(Algorithm::TokenBucket, Quota::per_second(1_000));
        let now = 3_000;
        let first = gate.at(at(now)).check_n(&7, 1_000).charged();
        gate.at(at(now - stale)).set_quota(Quota::per_second(10_000).burst(1_000)).unwrap();
        let second = (0..2_000).map(|_| gate.at(at(now)).check(&7).charged()).sum::<u64>();
        assert_eq!(first, 1_000);
        assert!(second <= (10 * stale).min(1_000), "{second} of a change stale by {stale} ms");
    }
}

/// A check at a time ahead delays its key. The operator's cure works for each algorithm, and for
/// keys that come in later.
#[test]
fn a_reset_after_a_time_ahead_brings_the_key_back() {
    let at = |seconds: u64| Tick::ZERO + Duration::from_secs(seconds);
    for &algorithm in ALGORITHMS {
        for clear in [false, true] {
            let (gate, _) = limiter(algorithm, Quota::per_second(10));
            assert!(gate.at(at(86_400)).check(&1).is_allowed());
            if clear {
                gate.at(at(2)).clear()
            } else {
                gate.reset(&1)
            }
            // A sliding window counts the charges of the second before.
            for second in [10, 12, 14, 16] {
                let charged = [1, 100 + second].map(|key| gate.at(at(second)).check_n(&key, 10).charged());
                assert_eq!(charged, [10, 10], "{algorithm}, clear: {clear}, second {second}");
            }
        }
    }
}
