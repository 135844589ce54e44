//! The limiters as their users see them: keys, policies, batches, times and threads.

use super::store::{ALGORITHMS, Gate, IntoGate};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use tollgate::{
    Algorithm, Chargeable, Clock, Decision, DecisionSource, Limiter, ManualClock, Outcome, Quota,
    SingleLimiter, Tick, WhenFull, WindowAlign,
};

const NOW: Tick = Tick::from_nanos(1_000_000_000);

fn limiter<K: Hash + Eq + Send + Sync + 'static>(quota: Quota) -> Gate<K> {
    Limiter::builder(quota).clock(ManualClock::new()).gate()
}

mod keys {
    use super::*;

    #[test]
    fn every_key_has_its_own_state() {
        let limiter: Gate<u64> = limiter(Quota::per_hour(3));
        for round in 0..4 {
            for key in 0..10_000 {
                assert_eq!(limiter.check(&key).is_allowed(), round < 3);
            }
        }
        assert_eq!(limiter.len(), 10_000);
    }

    #[test]
    fn looking_and_refused_requests_insert_nothing() {
        let limiter: Gate<String> = limiter(Quota::per_hour(3));
        assert!(limiter.peek("alice").is_allowed());
        assert!(limiter.check_n("alice", 0).is_allowed());
        assert_eq!(limiter.check_n("alice", 4).outcome(), Outcome::TooCostly);
        limiter.reset("alice");
        assert!(limiter.is_empty());
    }
}

mod time {
    use super::*;

    #[test]
    fn tokens_come_back_as_the_clock_moves() {
        let clock = ManualClock::new();
        let limiter: Gate<String> = Limiter::builder(Quota::per_second(2)).clock(&clock).gate();
        assert_eq!(limiter.check_n("alice", 2).remaining(), 0);
        clock.advance(Duration::from_millis(499));
        assert!(!limiter.check("alice").is_allowed());
        clock.advance(Duration::from_millis(1));
        assert!(limiter.check("alice").is_allowed());
    }

    #[test]
    fn a_clock_set_back_delays_and_set_forward_grants_one_burst() {
        for &algorithm in ALGORITHMS {
            let clock = ManualClock::new();
            let builder = Limiter::builder(Quota::per_second(2)).algorithm(algorithm).clock(&clock);
            let limiter: Gate<String> = builder.gate();
            clock.set(Tick::from_nanos(100_000_000_000));
            assert!(limiter.check_n("alice", 2).is_allowed());
            clock.set(Tick::ZERO);
            assert!(!limiter.check("alice").is_allowed(), "{algorithm}");
            clock.set(Tick::MAX);
            assert!(limiter.check_n("alice", 2).is_allowed(), "{algorithm}");
            assert!(!limiter.check("alice").is_allowed(), "{algorithm}");
        }
    }

    #[test]
    fn a_forced_charge_with_a_stale_time_reaches_the_whole_debt_of_a_new_key() {
        let second = |n| Tick::ZERO + Duration::from_secs(n);
        let builder = Limiter::builder(Quota::per_second(1).burst(10)).max_debt(5);
        let limiter: Gate<String> = builder.clock(ManualClock::new()).gate();
        assert!(limiter.at(second(90)).check_n("alice", 10).is_allowed());
        while limiter.at(second(200)).sweep(4_096) {}
        assert!(limiter.is_empty());
        assert_eq!(limiter.at(second(50)).force("bob", 99), 15);
    }

    #[test]
    fn every_clock_can_drive_a_limiter() {
        let clocks = [
            Clock::default(),
            Clock::counter(),
            Clock::system(),
            Clock::coarse(Duration::from_millis(10)),
            ManualClock::new().into(),
        ];
        for clock in clocks {
            let limiter: Gate<u8> = Limiter::builder(Quota::per_day(1)).clock(clock.clone()).gate();
            assert!(limiter.check(&1).is_allowed());
            assert!(!limiter.check(&1).is_allowed(), "{clock:?}");
        }
    }

    #[test]
    fn windows_are_aligned_to_the_unix_epoch_or_to_the_clock() {
        let day = Duration::from_secs(24 * 3600);
        let build = |align| {
            let builder = SingleLimiter::builder(Quota::per_day(5)).algorithm(Algorithm::FixedWindow);
            builder.align(align).build().unwrap()
        };
        let since_epoch = || std::time::UNIX_EPOCH.elapsed().unwrap();
        let before = since_epoch();
        let gate = build(WindowAlign::UnixEpoch);
        let reset = gate.check().reset_after();
        let until_midnight = day.as_nanos() - before.as_nanos() % day.as_nanos();
        let off = until_midnight.abs_diff(reset.as_nanos());
        // The tolerance is a minute, for a slow machine, even if midnight has just passed.
        let tolerance = Duration::from_secs(60).as_nanos();
        assert!(off < tolerance || off > day.as_nanos() - tolerance, "off by {off} ns");

        let started = build(WindowAlign::ClockStart).check().reset_after();
        assert!(started <= day && started > day - Duration::from_secs(60));

        // A manual clock does not know the time of day.
        let builder = SingleLimiter::builder(Quota::per_day(5)).algorithm(Algorithm::FixedWindow);
        let manual = builder.clock(ManualClock::new()).build().unwrap();
        assert_eq!(manual.check().reset_after(), day);
    }
}

mod refunds {
    use super::*;

    #[test]
    fn a_refund_gives_back_what_was_charged_and_no_more() {
        for &algorithm in ALGORITHMS {
            let builder = Limiter::builder(Quota::per_hour(10)).algorithm(algorithm);
            let limiter: Gate<String> = builder.clock(ManualClock::new()).gate();
            let charge = limiter.check_n("alice", 4);
            let rest = limiter.check_n("alice", 6);
            limiter.at(Tick::ZERO).refund_n("alice", &charge, 3);
            assert_eq!(limiter.peek("alice").remaining(), 3, "{algorithm}");
            limiter.refund("alice", &rest);
            assert_eq!(limiter.peek("alice").remaining(), 9, "{algorithm}");
        }
    }

    #[test]
    fn decisions_that_took_nothing_give_nothing_back() {
        let limiter: Gate<String> = limiter(Quota::per_hour(1));
        let charge = limiter.check("alice");
        let denied = limiter.check("alice");
        let peeked = limiter.peek("bob");
        for decision in [denied, peeked] {
            limiter.refund("alice", &decision);
            assert!(!limiter.check("alice").is_allowed());
        }
        limiter.refund("alice", &charge);
        assert!(limiter.check("alice").is_allowed());
    }

    #[test]
    fn a_single_limiter_follows_its_clock_and_takes_refunds() {
        let clock = ManualClock::new();
        let gate = SingleLimiter::builder(Quota::per_second(1)).clock(&clock).build().unwrap();
        let charge = gate.check();
        assert_eq!(gate.peek().remaining(), 0);
        gate.refund(&charge);
        assert_eq!(gate.peek().remaining(), 1);
        let charge = gate.check();
        clock.advance(Duration::from_secs(1));
        assert_eq!(gate.peek().remaining(), 1);
        // The first charge has refilled, so only the second charge is still held.
        assert!(gate.check().is_allowed());
        gate.refund(&charge);
        assert_eq!(gate.peek().remaining(), 0);
    }

    #[test]
    fn a_refund_reads_the_clock_and_not_the_charge() {
        let clock = ManualClock::new();
        let limiter: Gate<u8> = Limiter::builder(Quota::per_second(10).burst(10)).clock(&clock).gate();
        let old = limiter.check_n(&1, 5);
        clock.advance(Duration::from_secs(1));
        assert!(limiter.check_n(&1, 1).is_allowed());
        limiter.refund(&1, &old);
        assert_eq!(limiter.peek(&1).remaining(), 9);
    }

    /// After a reset, a refund of an earlier charge gives nothing back, even if the same key has
    /// since been charged at the same time.
    #[test]
    fn a_refund_gives_back_nothing_charged_before_a_reset() {
        for &algorithm in ALGORITHMS {
            let builder = Limiter::builder(Quota::per_hour(5)).algorithm(algorithm).clock(ManualClock::new());
            let limiter: Gate<String> = builder.gate();
            let resets: [fn(&Gate<String>); 3] =
                [|limiter| limiter.reset("alice"), |limiter| limiter.reset("bob"), Limiter::clear];
            for reset in resets {
                limiter.reset("alice");
                let charge = limiter.check_n("alice", 2);
                limiter.at(Tick::ZERO).refund_n("alice", &charge, 1);
                assert_eq!(limiter.peek("alice").remaining(), 4, "{algorithm}");
                reset(&limiter);
                let left = limiter.check_n("alice", 2).remaining();
                limiter.refund("alice", &charge);
                assert_eq!(limiter.peek("alice").remaining(), left, "{algorithm}");
                let mut decisions = Vec::new();
                limiter.check_many(["alice", "carol"], &mut decisions);
                limiter.clear();
                assert!(limiter.check_n("alice", 3).is_allowed());
                limiter.refund("alice", &decisions[0]);
                limiter.refund("alice", &limiter.at(limiter.clock().now()).check("alice"));
                assert_eq!(limiter.peek("alice").remaining(), 2, "{algorithm}");
            }
        }
    }

    #[test]
    fn a_refund_of_the_shared_state_is_void_after_a_clear() {
        let builder = Limiter::builder(Quota::per_hour(5)).max_keys(1).when_full(WhenFull::Share);
        let limiter: Gate<u64> = builder.clock(ManualClock::new()).gate();
        assert!(limiter.check(&1).is_allowed());
        let charge = limiter.check_n(&2, 3);
        assert_eq!(charge.source(), DecisionSource::Overflow);
        limiter.clear();
        assert!(limiter.check(&1).is_allowed() && limiter.check_n(&2, 3).is_allowed());
        limiter.refund(&2, &charge);
        let left = limiter.peek(&2);
        assert_eq!((left.source(), left.remaining()), (DecisionSource::Overflow, 2));
        limiter.refund(&2, &limiter.check(&2));
        assert_eq!(limiter.peek(&2).remaining(), 2);
    }

    #[test]
    fn a_refund_of_an_unknown_key_changes_nothing() {
        let limiter: Gate<String> = limiter(Quota::per_hour(1));
        let charge = limiter.check("alice");
        limiter.refund("bob", &charge);
        assert_eq!(limiter.len(), 1);
        assert!(!limiter.check("alice").is_allowed());
    }
}

mod at_the_cap {
    use super::*;

    fn full(policy: WhenFull) -> Gate<u64> {
        let builder = Limiter::builder(Quota::per_hour(2)).max_keys(3).when_full(policy);
        let limiter = builder.clock(ManualClock::new()).gate();
        for key in 0..3 {
            assert!(limiter.check(&key).is_allowed());
        }
        limiter
    }

    /// Asserts that known keys decide as before and that no key is added, whatever policy applies
    /// to new keys.
    fn known_keys_notice_nothing(limiter: &Gate<u64>) {
        for key in 0..3 {
            let second = limiter.check(&key);
            assert!(second.is_allowed());
            assert_eq!(second.source(), DecisionSource::Key);
            assert!(!limiter.check(&key).is_allowed());
        }
        assert_eq!(limiter.len(), 3);
    }

    #[test]
    fn deny_refuses_new_keys_without_a_retry_time() {
        let limiter = full(WhenFull::Deny);
        for key in 100..200 {
            let decision = limiter.check(&key);
            assert_eq!((decision.outcome(), decision.source()), (Outcome::Denied, DecisionSource::Policy));
            assert_eq!((decision.retry_after(), decision.remaining()), (None, 0));
            assert_eq!(limiter.peek(&key), decision, "a peek foretells it");
        }
        known_keys_notice_nothing(&limiter);
    }

    #[test]
    fn admit_lets_new_keys_pass_untracked() {
        let limiter = full(WhenFull::Allow);
        for _ in 0..10 {
            let decision = limiter.check(&100);
            assert!(decision.is_allowed());
            assert_eq!((decision.source(), decision.charged()), (DecisionSource::Policy, 0));
            limiter.refund(&100, &decision);
        }
        known_keys_notice_nothing(&limiter);
    }

    #[test]
    fn share_charges_new_keys_to_one_state() {
        let limiter = full(WhenFull::Share);
        assert_eq!(limiter.peek(&100).source(), DecisionSource::Overflow);
        let first = limiter.check(&100);
        assert!(first.is_allowed());
        assert_eq!(first.source(), DecisionSource::Overflow);
        assert!(limiter.check(&101).is_allowed());
        assert!(!limiter.check(&102).is_allowed());
        limiter.refund(&100, &first);
        assert!(limiter.check(&103).is_allowed());
        known_keys_notice_nothing(&limiter);
    }

    /// If a key loses its slot and receives one again, it can take tokens from both states, as many
    /// as each admits.
    #[test]
    fn a_key_takes_from_the_shared_state_and_its_own_together_twice_the_bound() {
        const ROUNDS: usize = 5;
        for &algorithm in ALGORITHMS {
            let clock = ManualClock::new();
            let builder = Limiter::builder(Quota::per_hour(10)).algorithm(algorithm).max_keys(1);
            let builder = builder.when_full(WhenFull::Share).grace(Duration::ZERO).clock(&clock);
            let limiter: Gate<u64> = builder.gate();
            let forget_idle = || while limiter.sweep(4_096) {};
            let take_all = |source| {
                let decisions =
                    (0..20).map(|_| limiter.check(&2)).inspect(|got| assert_eq!(got.source(), source));
                decisions.filter(Decision::is_allowed).count() as u64
            };
            let mut admitted = Vec::new();
            for _ in 0..ROUNDS {
                // The slot of key 2 is idle, and key 1 takes it.
                clock.advance(Duration::from_secs(2 * 3_600));
                forget_idle();
                assert_eq!(limiter.check(&1).source(), DecisionSource::Key);
                let shared = take_all(DecisionSource::Overflow);
                limiter.reset(&1);
                forget_idle();
                admitted.push(shared + take_all(DecisionSource::Key));
            }
            assert_eq!(admitted, [20; ROUNDS], "{algorithm}");
        }
    }

    #[test]
    fn what_no_key_could_have_is_refused_as_ever() {
        let limiter = full(WhenFull::Allow);
        assert_eq!(limiter.check_n(&100, 3).outcome(), Outcome::TooCostly);
        assert!(limiter.check_n(&100, 0).is_allowed());
        assert_eq!(limiter.check_n(&100, 0).source(), DecisionSource::Key);
        assert_eq!(
            full(WhenFull::Deny).at(Tick::ZERO).peek_n(&100, 0),
            full(WhenFull::Deny).check_n(&100, 0)
        );
    }
}

mod batches {
    use super::*;

    #[test]
    fn a_batch_decides_as_the_single_checks_in_their_order() {
        let one: Gate<u64> = limiter(Quota::per_hour(3));
        let many: Gate<u64> = limiter(Quota::per_hour(3));
        for size in [0_u64, 1, 31, 32, 33, 64, 1000] {
            let keys: Vec<u64> = (0..size).map(|n| n * n % 97).collect();
            let mut decisions = vec![many.peek(&0)];
            many.check_many(&keys, &mut decisions);
            let expected: Vec<_> = keys.iter().map(|key| one.check(key)).collect();
            assert_eq!(decisions[1..], expected);
        }
    }

    /// The batch has new keys, keys further on in their probe run, keys with their own quotas, and
    /// keys that are being moved.
    #[test]
    fn batches_decide_as_single_checks_whatever_their_keys_have_gone_through() {
        for &algorithm in ALGORITHMS {
            for own_quota in [false, true] {
                let clock = ManualClock::new();
                let gate = || -> Gate<u64> {
                    Limiter::builder(Quota::per_hour(3)).algorithm(algorithm).clock(&clock).gate()
                };
                let (one, many) = (gate(), gate());
                if own_quota {
                    for limiter in [&one, &many] {
                        limiter.set_key_quota(&7, Quota::per_hour(5)).unwrap();
                    }
                }
                let mut denied = 0;
                for round in 0..40 {
                    let keys: Vec<u64> = (0..250).map(|n| (n * n + 11 * round * n) % 5_000 % 997).collect();
                    clock.advance(Duration::from_secs(2));
                    if round % 8 == 7 {
                        // This call begins to move all keys, so some keys of the batch are moved
                        // and some are not.
                        many.sweep(1);
                    }
                    let mut decisions = Vec::new();
                    let cost = |key: &u64| if round % 4 < 2 { 1 } else { key % 5 };
                    let costs = keys.iter().map(|key| (key, cost(key)));
                    // A view decides at its own time.
                    let later = clock.now() + Duration::from_secs(round % 2);
                    match round % 4 {
                        0 => many.check_many(&keys, &mut decisions),
                        1 => many.at(later).check_many(&keys, &mut decisions),
                        2 => many.check_many_n(costs, &mut decisions),
                        _ => many.at(later).check_many_n(costs, &mut decisions),
                    }
                    let expected: Vec<_> =
                        keys.iter().map(|key| one.at(later).check_n(key, cost(key))).collect();
                    assert_eq!(decisions, expected, "{algorithm:?} in round {round}");
                    denied += decisions.iter().filter(|decision| !decision.is_allowed()).count();
                }
                assert!((1_000..9_000).contains(&denied), "{denied} denied");
                assert_eq!(one.len(), many.len());
            }
        }
    }

    #[test]
    fn a_batch_of_borrowed_keys_needs_no_owned_ones() {
        let limiter: Gate<String> = limiter(Quota::per_hour(1));
        let mut decisions = Vec::new();
        limiter.check_many(["alice", "bob", "alice"], &mut decisions);
        let allowed: Vec<_> = decisions.iter().map(Decision::is_allowed).collect();
        assert_eq!(allowed, [true, true, false]);
    }

    /// An `Iterator` may start again after it has ended.
    #[test]
    fn an_iterator_that_has_ended_is_not_asked_again() {
        let limiter: Gate<u64> = limiter(Quota::per_hour(1));
        for keys in [0, 1, 31, 33] {
            let mut left = Some(keys);
            let once = std::iter::from_fn(|| match left.expect("it has ended") {
                0 => {
                    left = None;
                    None
                }
                key => {
                    left = Some(key - 1);
                    Some(&0)
                }
            });
            let mut decisions = Vec::new();
            limiter.check_many(once, &mut decisions);
            assert_eq!(decisions.len(), keys);
        }
    }
}

mod threads {
    use super::*;

    const THREADS: u64 = 4;

    /// Runs `body` on several threads that start together, and adds up their results.
    fn race(body: impl Fn(u64) -> u64 + Sync) -> u64 {
        let start = Barrier::new(usize::try_from(THREADS).unwrap());
        thread::scope(|scope| {
            let racers: Vec<_> = (0..THREADS)
                .map(|n| {
                    let (start, body) = (&start, &body);
                    scope.spawn(move || {
                        start.wait();
                        body(n)
                    })
                })
                .collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum()
        })
    }

    #[test]
    fn threads_that_share_a_limit_are_admitted_exactly_as_often_as_it_says() {
        for &algorithm in ALGORITHMS {
            let builder = SingleLimiter::builder(Quota::per_second(10_000)).algorithm(algorithm);
            let gate = builder.build().unwrap();
            let admitted = race(|_| (0..5_000).map(|_| gate.at(NOW).check().charged()).sum());
            assert_eq!(admitted, 10_000, "{algorithm}");
            assert_eq!(gate.at(NOW).peek().remaining(), 0);
        }
    }

    #[test]
    fn threads_that_insert_the_same_keys_make_one_state_of_each() {
        for _ in 0..20 {
            let builder = Limiter::builder(Quota::per_hour(3)).max_keys(2_000);
            let limiter: Gate<u64> = builder.gate();
            let admitted = race(|n| {
                // Each thread begins at a different key, so that the threads meet at different
                // keys.
                let keys = (0..1_000).map(|i| (i + n * 250) % 1_000);
                keys.map(|key| limiter.at(NOW).check(&key).charged()).sum()
            });
            assert_eq!(admitted, 3_000);
            assert_eq!(limiter.len(), 1_000);
        }
    }

    #[test]
    fn threads_that_crowd_the_cap_never_pass_it() {
        for _ in 0..20 {
            let builder = Limiter::builder(Quota::per_hour(1)).max_keys(500);
            let limiter: Gate<u64> = builder.gate();
            let admitted = race(|n| {
                let keys = (0..1_000).map(|i| i * THREADS + n);
                keys.map(|key| limiter.at(NOW).check(&key).charged()).sum()
            });
            assert_eq!((admitted, limiter.len()), (500, 500));
        }
    }

    #[test]
    fn charges_and_refunds_of_many_threads_add_up() {
        for &algorithm in ALGORITHMS {
            let builder = Limiter::builder(Quota::per_hour(1_000)).algorithm(algorithm);
            let limiter: Gate<String> = builder.gate();
            let kept = race(|n| {
                let mut kept = 0;
                for i in 0..2_000 {
                    let cost = 1 + (i + n) % 3;
                    let charge = limiter.at(NOW).check_n("alice", cost);
                    if i % 2 == 0 {
                        limiter.at(NOW).refund_n("alice", &charge, u64::MAX);
                    } else {
                        kept += charge.charged();
                    }
                }
                kept
            });
            assert_eq!(limiter.at(NOW).peek("alice").remaining(), 1_000 - kept, "{algorithm}");
        }
    }

    /// Times of different threads reach a key in any order. Judged by the times of the charges, no
    /// interval exceeds the bound.
    #[test]
    fn threads_with_skewed_clocks_stay_within_the_bound() {
        let rate = 1_000_u64;
        let limiter: Gate<u8> = Limiter::builder(Quota::per_second(rate).burst(5)).gate();
        let times: Vec<_> = thread::scope(|scope| {
            let racers: Vec<_> = (0..THREADS)
                .map(|n| {
                    let limiter = &limiter;
                    scope.spawn(move || {
                        let skew = n * 3_000_000;
                        let stamps = (0..20_000).map(|i| Tick::from_nanos(skew + i * 50_000));
                        stamps.filter(|&now| limiter.at(now).check(&0).is_allowed()).collect::<Vec<_>>()
                    })
                })
                .collect();
            racers.into_iter().flat_map(|racer| racer.join().unwrap()).collect()
        });
        let mut times: Vec<_> = times.into_iter().map(Tick::as_nanos).collect();
        times.sort_unstable();
        assert!(times.len() > 100);
        for (i, from) in times.iter().enumerate() {
            for (n, to) in times[i..].iter().enumerate().step_by(17) {
                let bound = 5 + (to - from) * rate / 1_000_000_000;
                assert!((n as u64) < bound, "{} in {} ns", n + 1, to - from);
            }
        }
    }
}

/// With random keys, costs and times, the limiter decides exactly like a map that never forgets.
#[test]
fn a_limiter_decides_as_a_map_of_single_limiters() {
    fn random(state: &mut u64) -> u64 {
        // A linear congruential generator (Knuth, MMIX), high bits.
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *state >> 33
    }
    for &algorithm in ALGORITHMS {
        let quota = Quota::per_second(20);
        let limiter: Gate<u64> =
            Limiter::builder(quota).algorithm(algorithm).max_keys(300).clock(ManualClock::new()).gate();
        let mut map: HashMap<u64, SingleLimiter> = HashMap::new();
        let (mut state, mut now) = (7, 0);
        for _ in 0..50_000 {
            now += random(&mut state) % 200_000;
            let (key, cost) = (random(&mut state) % 300, random(&mut state) % 7);
            let tick = Tick::from_nanos(now);
            let single = map.entry(key).or_insert_with(|| {
                let builder = SingleLimiter::builder(quota).algorithm(algorithm);
                builder.clock(ManualClock::new()).build().unwrap()
            });
            assert_eq!(limiter.at(tick).peek_n(&key, cost), single.at(tick).peek_n(cost));
            assert_eq!(limiter.at(tick).check_n(&key, cost), single.at(tick).check_n(cost));
        }
    }
}
