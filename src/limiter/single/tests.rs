//! Tests of leases. In these tests, a manual clock counts as the limiter's own.

use super::*;
use crate::clock::ManualClock;
use crate::sync::thread;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// A limiter of one token per nanosecond, which grants leases to this many lines.
fn leasing(lines: u64, burst: u64) -> (SingleLimiter, ManualClock) {
    leasing_with(lines, quota(burst), 0)
}

fn leasing_with(lines: u64, quota: Quota, debt: u64) -> (SingleLimiter, ManualClock) {
    let clock = ManualClock::new();
    clock.set(Tick::from_nanos(1_000_000));
    let leases = Leases::new(lines, Clock::from(&clock));
    leases.note_contention();
    let method = Method::Rate { algorithm: Algorithm::TokenBucket, phase: Duration::ZERO, debt };
    let rule = method.any(quota).unwrap();
    (SingleLimiter::new(method, rule, Clock::from(&clock), Some(Arc::new(leases))), clock)
}

fn quota(burst: u64) -> Quota {
    Quota::new(1, Duration::from_nanos(1)).burst(burst)
}

/// Tokens per nanoseconds: a token of one grain, of 1,000 grains, and of 7 grains that are shorter
/// than a nanosecond. A bucket may be early by two grains of the last, which are less than a token.
const RATES: [(u64, u64, u64); 3] = [(1, 1, 0), (1, 1_000, 0), (3, 20, 6)];

/// The most that is out with two lines and a burst of 256.
const RESERVE: u64 = 16;

/// Takes all tokens that the limiter admits now.
fn drain(limiter: &SingleLimiter) -> u64 {
    let costs = (0..20).rev().map(|power| 1 << power);
    costs.map(|cost| (0..).take_while(|_| limiter.check_n(cost).is_allowed()).count() as u64 * cost).sum()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of(&mut self, values: &[u64]) -> u64 {
        values[usize::try_from(self.below(values.len() as u64)).unwrap()]
    }
}

#[test]
fn threads_with_leases_admit_in_any_interval_what_one_bucket_admits() {
    let sizes = [(2, 2, 256), (3, 2, 700), (4, 4, 512), (8, 3, 1_000)];
    for (size, rate) in sizes.into_iter().flat_map(|size| RATES.map(|rate| (size, rate))) {
        let ((threads, lines, burst), (tokens, nanos, early)) = (size, rate);
        let quota = Quota::new(tokens, Duration::from_nanos(nanos)).burst(burst);
        let (limiter, clock) = leasing_with(lines, quota, 0);
        let (start, end) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
        let (admitted, leased) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut failures = Vec::new();
        const ROUNDS: u64 = 2_000;
        thread::scope(|scope| {
            for number in 0..threads {
                let (limiter, start, end, admitted, leased) = (&limiter, &start, &end, &admitted, &leased);
                scope.spawn(move || {
                    let mut random = Random(number as u64);
                    for _ in 0..ROUNDS {
                        start.wait();
                        for _ in 0..random.below(60) {
                            let cost = random.one_of(&[1, 1, 1, 2, 3, 40]);
                            let charge = limiter.check_n(cost);
                            if !charge.is_allowed() {
                                continue;
                            }
                            admitted.fetch_add(charge.charged(), SeqCst);
                            let Figures::Leased { lease, .. } = charge.figures else { continue };
                            leased.fetch_add(1, SeqCst);
                            if random.below(8) == 0 {
                                let (_, leases) = limiter.leases.as_ref().unwrap();
                                admitted.fetch_sub(leases.refund(lease, cost), SeqCst);
                            }
                        }
                        end.wait();
                    }
                });
            }
            let (mut random, mut meter) = (Random(77), 0_u64);
            // The threads wait for all rounds, so a failure is reported after the last one.
            let mut judge = |is_right: bool, what: String| failures.extend((!is_right).then_some(what));
            for round in 0..ROUNDS {
                let passed = random.one_of(&[1, 5, 20, 60, burst]) * nanos / tokens;
                clock.advance(Duration::from_nanos(passed));
                // A token is as many units as the period has nanoseconds.
                meter = meter.saturating_sub(passed * tokens);
                start.wait();
                end.wait();
                meter += admitted.swap(0, SeqCst) * nanos;
                let most = burst * nanos + early;
                judge(
                    meter <= most,
                    format!("{meter} of {most} units in round {round}, {threads} threads, {quota:?}"),
                );
                if random.below(4) == 0 {
                    meter += drain(&limiter) * nanos;
                    judge(meter <= most, format!("{meter} of {most} units after a drain, {quota:?}"));
                    // Part of a token may have refilled, and part of a grain may have passed.
                    let least = (burst - burst / 16).saturating_sub(limiter.lost()) * nanos;
                    let least = least.saturating_sub(nanos - 1 + early);
                    judge(meter >= least, format!("only {meter} of {most} units, {quota:?}"));
                }
            }
        });
        assert_eq!(failures, Vec::<String>::new());
        assert!(leased.load(SeqCst) > ROUNDS, "{leased:?} leased tokens test little");
    }
}

#[test]
fn a_limiter_that_never_had_two_threads_at_once_grants_no_leases() {
    let builder = SingleLimiter::builder(quota(1 << 20)).clock(ManualClock::new());
    let limiter = builder.core_leases().build().unwrap();
    assert!((0..10_000).all(|_| limiter.check().is_allowed() && limiter.leased() == 0));
    assert_eq!(drain(&limiter), (1 << 20) - 10_000);
}

#[test]
fn a_denial_brings_home_what_is_out_and_then_writes_nothing() {
    let (limiter, clock) = leasing(2, 256);
    assert!(limiter.check().is_allowed());
    assert_eq!(limiter.leased(), 7);
    // The reserve is 16 tokens.
    assert_eq!(1 + drain(&limiter), 240);
    assert_eq!(limiter.leased(), 0);
    let before = format!("{limiter:?}");
    assert!(!limiter.check().is_allowed());
    assert_eq!(format!("{limiter:?}"), before);
    // After a refill of the reserve, nothing is missing.
    clock.advance(Duration::from_nanos(256));
    assert_eq!(drain(&limiter), 256);
}

#[test]
fn a_retry_after_a_denial_succeeds_and_one_tick_earlier_is_denied() {
    for cost in [1, 100, 250, 256] {
        let (limiter, clock) = leasing(2, 256);
        for _ in 0..3 {
            assert!(limiter.check().is_allowed());
            drain(&limiter);
            let wait = limiter.check_n(cost).retry_after().unwrap();
            clock.advance(wait - Duration::from_nanos(1));
            assert!(!limiter.check_n(cost).is_allowed());
            clock.advance(Duration::from_nanos(1));
            assert!(limiter.check_n(cost).is_allowed());
            clock.advance(Duration::from_nanos(1_000));
        }
    }
}

#[test]
fn a_decision_tells_the_time_of_the_lease_and_at_most_what_remains() {
    let (limiter, clock) = leasing(2, 256);
    let first = limiter.check();
    clock.advance(Duration::from_nanos(5));
    let second = limiter.check();
    assert_eq!(first.at(), second.at());
    assert_eq!((second.remaining(), second.capacity(), second.charged()), (6, 256, 1));
    assert!(second.remaining() <= drain(&limiter));
}

#[test]
fn refunds_return_to_the_lease_while_it_is_there() {
    let (limiter, _) = leasing(2, 256);
    let charges: Vec<_> = (0..3).map(|_| limiter.check()).collect();
    assert_eq!(limiter.leased(), 5);
    charges.iter().for_each(|charge| limiter.refund(charge));
    assert_eq!(limiter.leased(), 8);
    // A lease never has more tokens than it began with.
    limiter.refund(&charges[0]);
    assert_eq!(limiter.leased(), 8);
    let charge = limiter.check();
    drain(&limiter);
    limiter.refund(&charge);
    assert_eq!((limiter.leased(), drain(&limiter)), (0, 0), "the refund is void");
}

#[test]
fn a_request_that_the_rest_of_a_lease_cannot_pay_takes_another() {
    for cost in [3, 5, 100, 128] {
        let (limiter, clock) = leasing(2, 4_096);
        let first = limiter.check_n(cost);
        for _ in 0..100 {
            clock.advance(Duration::from_nanos(cost));
            let charge = limiter.check_n(cost);
            assert!(matches!(charge.figures, Figures::Leased { .. }), "{charge:?}");
            assert!(charge.remaining() + cost <= 128);
        }
        let out = limiter.leased();
        limiter.refund(&first);
        assert_eq!(limiter.leased(), out, "the first lease was replaced");
        // The bucket lacks no more than a lease and the reserve, and what is out comes home.
        assert!(drain(&limiter) >= 4_096 - 128 - 256);
    }
}

#[test]
fn a_charge_of_the_word_is_refunded_beside_leases() {
    let (limiter, _) = leasing(2, 256);
    assert!(limiter.check().is_allowed());
    let charge = limiter.check_n(100);
    limiter.refund(&charge);
    assert_eq!(1 + drain(&limiter), 240);
}

#[test]
fn a_reset_voids_refunds_and_fills_the_bucket() {
    let (limiter, _) = leasing(2, 256);
    let (lease, charge) = (limiter.check(), limiter.check_n(100));
    limiter.reset();
    assert_eq!(limiter.leased(), 0);
    [lease, charge].iter().for_each(|charge| limiter.refund(charge));
    assert_eq!(limiter.leased(), 0);
    assert!((240..=256).contains(&drain(&limiter)));
}

/// A smaller quota is set while tokens are out, and a larger one after the bucket has refilled.
#[test]
fn a_change_of_quota_owes_what_is_out() {
    for burst in [8, 100, 255, 1_000] {
        let (limiter, clock) = leasing(2, 256);
        let lease = limiter.check();
        clock.advance(Duration::from_nanos(10_000));
        let spent = (0..5).filter(|_| limiter.check().is_allowed()).count() as u64;
        assert_eq!((spent, limiter.leased()), (5, 2));
        limiter.set_quota(quota(burst)).unwrap();
        assert_eq!(limiter.leased(), 0, "no token of the earlier quota can be spent");
        limiter.refund(&lease);
        let admitted = spent + drain(&limiter);
        assert!(admitted <= burst.max(spent), "{admitted} of {burst}");
        assert!(admitted + RESERVE >= burst, "{admitted} of {burst}");
    }
}

#[test]
fn a_saved_limiter_owes_what_is_out() {
    let (limiter, clock) = leasing(2, 256);
    assert!(limiter.check().is_allowed());
    let mut saved = Vec::new();
    limiter.save(&mut saved).unwrap();
    let loaded = SingleLimiter::builder(quota(256)).clock(&clock).load(&saved[..]).unwrap();
    let admitted = 1 + drain(&loaded);
    assert!((240..=256).contains(&admitted), "{admitted}");
}

/// The two times advance by turns, and neither is admitted more than one bucket admits.
#[test]
fn checks_at_another_time_charge_the_word() {
    let (limiter, clock) = leasing(2, 256);
    let (mut by_clock, mut at_zero) = (0, 0);
    for _ in 0..2_000 {
        clock.advance(Duration::from_nanos(1));
        by_clock += u64::from(limiter.check().is_allowed());
        at_zero += u64::from(limiter.at(Tick::ZERO).check().is_allowed());
    }
    assert!(at_zero <= 256 && by_clock <= 256 + 2_000, "{by_clock} and {at_zero}");
    assert!(limiter.at(Tick::ZERO).check_n(0).is_allowed());
}

#[test]
fn what_cannot_be_leased_is_refused_with_the_reason() {
    let refused = |builder: Builder<SingleLimiter>| builder.core_leases().build().unwrap_err().to_string();
    for algorithm in Algorithm::ALL {
        let builder = SingleLimiter::builder(Quota::per_second(30_000)).algorithm(algorithm).core_leases();
        let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket);
        assert_eq!(builder.build().is_ok(), is_bucket, "{algorithm}");
    }
    let least = 128 * Leases::lines();
    let too_small = refused(SingleLimiter::builder(Quota::per_second(least - 1)));
    assert!(
        too_small.contains(&format!("{} is too small", least - 1)) && too_small.contains(&least.to_string())
    );
    assert!(SingleLimiter::builder(Quota::per_second(least)).core_leases().build().is_ok());
}

/// The file may come from a machine with fewer cores.
#[test]
fn a_file_whose_burst_is_too_small_for_the_cores_loads_without_leases() {
    let builder = || SingleLimiter::builder(quota(128 * Leases::lines() - 1)).clock(ManualClock::new());
    let limiter = builder().build().unwrap();
    let _ = limiter.check_n(100);
    let mut saved = Vec::new();
    limiter.save(&mut saved).unwrap();
    let error = builder().core_leases().load(&saved[..]).unwrap_err().to_string();
    assert!(error.contains("too small for leases") && error.contains("leave core_leases out"), "{error}");
    assert_eq!(drain(&builder().load(&saved[..]).unwrap()), 128 * Leases::lines() - 101);
}

#[test]
fn the_lease_of_a_thread_that_ended_comes_home() {
    let (limiter, clock) = leasing(64, 8_192);
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| assert!(limiter.check().is_allowed()));
        }
    });
    let out = limiter.leased();
    assert!(out >= 7, "{out}");
    clock.advance(Duration::from_nanos(10_000));
    // The reserve is 512 tokens. What came home was not spent.
    assert_eq!((drain(&limiter), limiter.leased(), limiter.lost()), (8_192 - 512 + out, 0, 0));
}

/// One of two threads takes a lease and falls idle. The other one asks for twice the rate.
#[test]
fn a_thread_alone_gets_the_whole_rate_while_another_is_idle() {
    let (limiter, clock) = leasing(2, 256);
    let mut admitted = 0;
    let mut ask = |nanos: u64| {
        for _ in 0..nanos {
            clock.advance(Duration::from_nanos(1));
            admitted += u64::from(limiter.check().is_allowed()) + u64::from(limiter.check().is_allowed());
        }
    };
    for _ in 0..10 {
        thread::scope(|scope| {
            _ = scope.spawn(|| assert!(limiter.check().is_allowed() || limiter.leased() == 0))
        });
        ask(2_000);
    }
    assert!(admitted >= 19_800, "{admitted} of 20,000");
    assert!(admitted <= 20_000 + 256);
}

#[test]
fn a_cost_of_0_takes_no_lease() {
    let (limiter, _) = leasing(2, 256);
    assert!(limiter.check_n(0).is_allowed());
    assert_eq!((limiter.leased(), limiter.peek().remaining()), (0, 240));
    assert!(limiter.check().is_allowed() && limiter.check_n(0).is_allowed());
    assert_eq!((limiter.leased(), limiter.check_n(257).retry_after()), (7, None));
}

#[test]
fn reservations_and_charges_of_several_limits_use_the_word() {
    let (limiter, _) = leasing(2, 256);
    limiter.reserve(100).unwrap().commit(60);
    let both = &mut [crate::limiter::Charge::new(&limiter, 1), crate::limiter::Charge::new(&limiter, 1)];
    assert!(crate::limiter::check_all(both).is_ok());
    assert_eq!((limiter.leased(), limiter.peek().remaining()), (0, 256 - 62));
    assert!(limiter.bytes() > 2 * 128);
}

/// Other threads take what remains while a thread keeps its decision.
#[test]
fn remaining_is_never_more_than_can_be_taken() {
    let (limiter, clock) = leasing(2, 256);
    let mut random = Random(5);
    for _ in 0..3_000 {
        clock.advance(Duration::from_nanos(random.below(40)));
        let decision =
            if random.below(3) == 0 { limiter.peek() } else { limiter.check_n(1 + random.below(9)) };
        let is_told = decision.charged() == 0 || matches!(decision.figures, Figures::Leased { .. });
        if random.below(8) == 0 && is_told {
            let admitted = drain(&limiter);
            assert!(decision.remaining() <= admitted, "{decision:?}, and {admitted} were admitted");
        }
        if random.below(20) == 0 {
            thread::scope(|scope| _ = scope.spawn(|| limiter.check()));
        }
    }
}

#[test]
fn a_peek_that_would_be_denied_returns_the_leases_as_a_check_does() {
    let (limiter, clock) = leasing(2, 256);
    assert!(limiter.check().is_allowed());
    clock.advance(Duration::from_nanos(10_000));
    assert_eq!(limiter.leased(), 7);
    assert!(limiter.peek_n(240).is_allowed());
    assert_eq!(limiter.leased(), 7);
    let wait = limiter.peek_n(250).retry_after().unwrap();
    clock.advance(wait);
    assert!(limiter.peek_n(250).is_allowed());
    let other = SingleLimiter::builder(quota(1)).clock(&clock).build().unwrap();
    assert!(limiter.check().is_allowed());
    clock.advance(Duration::from_nanos(10_000));
    let both =
        || crate::check_all(&mut [crate::Charge::new(&other, 1), crate::Charge::new(&limiter, 250)]).is_ok();
    if !both() {
        clock.advance(Duration::from_nanos(20));
        assert!(both());
    }
}

#[test]
fn leases_are_returned_after_a_change_of_quota_as_well() {
    let (limiter, clock) = leasing(2, 256);
    limiter.set_quota(quota(512)).unwrap();
    assert!(limiter.check().is_allowed());
    assert!(limiter.leased() > 0);
    clock.advance(Duration::from_nanos(10_000));
    // The returned bucket lacks what was out and is not returned, until it has refilled.
    let _ = limiter.is_idle();
    assert_eq!((limiter.leased(), limiter.lost()), (0, 0));
    clock.advance(Duration::from_nanos(2 * RESERVE));
    assert!(limiter.is_idle());
    assert_eq!(drain(&limiter), 512);
}

/// A charge has refilled, or a return has followed it, and its refund must give back nothing that a
/// later charge holds.
#[test]
fn a_late_refund_returns_no_tokens_of_later_charges() {
    for returns in [false, true] {
        let (limiter, clock) = leasing(2, 256);
        assert!(limiter.check().is_allowed());
        let early = limiter.check_n(100);
        if returns {
            limiter.bring_leases_home();
        }
        clock.advance(Duration::from_nanos(101 + if returns { 0 } else { 7 }));
        assert!(limiter.check_n(100).is_allowed());
        limiter.refund(&early);
        let admitted = 100 + drain(&limiter);
        assert!(admitted <= 256, "{admitted} of 256 at one instant");
    }
}

#[test]
fn a_forced_charge_takes_what_is_out_and_not_spent() {
    let (limiter, clock) = leasing(2, 256);
    assert!(limiter.check().is_allowed());
    clock.advance(Duration::from_nanos(10_000));
    // The reserve counts as missing, but for the seven tokens that are returned.
    assert_eq!(limiter.force(256), 256 - RESERVE + 7);
    assert_eq!((limiter.leased(), drain(&limiter)), (0, 0));
}

#[test]
fn a_lease_of_another_limiter_is_not_refunded() {
    let [(one, _), (other, _)] = [(); 2].map(|()| leasing(2, 256));
    let charge = one.check();
    assert!(other.check().is_allowed());
    let before = other.leased();
    other.refund(&charge);
    assert_eq!(other.leased(), before);
}

#[test]
fn a_loaded_limiter_grants_leases_and_owes_what_was_charged() {
    let burst = 256 * Leases::lines();
    let builder = || SingleLimiter::builder(quota(burst)).core_leases();
    let (clock, mut saved) = (ManualClock::new(), Vec::new());
    let limiter = builder().clock(&clock).build().unwrap();
    assert!(limiter.check_n(100).is_allowed());
    limiter.save(&mut saved).unwrap();
    let loaded = builder().clock(&clock).load(&saved[..]).unwrap();
    loaded.leases.as_ref().unwrap().1.note_contention();
    assert!(loaded.check().is_allowed());
    assert!(loaded.leased() > 0);
    let admitted = 101 + drain(&loaded);
    assert!((burst - burst / 16..=burst).contains(&admitted), "{admitted} of {burst}");
}

/// A settlement takes the bucket into debt while tokens are out.
#[test]
fn debt_beside_leases_is_bounded_as_without_them() {
    let (limiter, clock) = leasing_with(2, quota(256), 50);
    let held = limiter.reserve(100).unwrap();
    assert!(limiter.check().is_allowed());
    assert_eq!(limiter.leased(), 7);
    let settled = held.commit(1_000);
    // The forced charge also takes the seven tokens that are returned.
    assert_eq!(settled.charged, 256 + 50 - 1);
    assert_eq!((limiter.leased(), limiter.force(1), drain(&limiter)), (0, 0, 0));
    clock.advance(Duration::from_nanos(50));
    assert_eq!(drain(&limiter), 0, "the debt is paid first");
    clock.advance(Duration::from_nanos(256));
    assert_eq!(drain(&limiter), 256);
}

/// Beyond the last time of a leased word, the leases are returned, and none is granted any more.
#[test]
fn leases_end_at_the_last_time_of_a_leased_word() {
    const LAST: u64 = 1 << 60;
    let (limiter, clock) = leasing(2, 256);
    clock.set(Tick::from_nanos(LAST - 200));
    assert!(limiter.check().is_allowed());
    assert_eq!(limiter.leased(), 7);
    clock.set(Tick::from_nanos(LAST - 100));
    // The charge would end beyond the last time.
    assert!(limiter.check_n(120).is_allowed());
    assert_eq!(limiter.leased(), 0);
    clock.set(Tick::from_nanos(LAST + 1_000));
    assert_eq!(drain(&limiter), 256);
    assert_eq!(limiter.leased(), 0);
}
