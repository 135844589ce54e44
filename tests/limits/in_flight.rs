//! Permits in flight are taken, given back, made void, and held together with rates.

use proptest::prelude::*;
use std::collections::HashSet;
use std::mem;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use tollgate::rule::{AnyRule, Permits as RulePermits, Refused, Rule, Word};
use tollgate::store::Accepts;
use tollgate::{
    Builder, Charge, Chargeable, DecisionSource, InFlight, Limiter, ManualClock, Outcome, Quota,
    SingleLimiter, Tick, WhenFull, check_all, reserve_all,
};
use tollgate_testing::oracle::permits::Permits;
use tollgate_testing::race::Random;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// The key under which the oracle counts the state that keys without a slot share.
const SHARED: u64 = u64::MAX;

fn at(limit: u64) -> (ManualClock, Builder<InFlight<u64>>) {
    let clock = ManualClock::new();
    clock.set(Tick::ZERO + 100 * SECOND);
    let builder = InFlight::builder(limit).clock(&clock);
    (clock, builder)
}

/// Runs a test with both stores.
macro_rules! both_stores {
    ($builder:expr, $test:expr) => {{
        let (clock, builder) = $builder;
        $test(&clock, builder.build().unwrap());
        let (clock, builder) = $builder;
        $test(&clock, builder.exact_keys().build().unwrap());
    }};
}

#[test]
fn a_permit_comes_back_once_when_it_is_dropped() {
    fn test<S: Accepts<u64>>(_: &ManualClock, gate: InFlight<u64, S>) {
        let first = gate.acquire(&7).unwrap();
        let second = gate.acquire_owned(7).unwrap();
        let refused = gate.acquire(&7).unwrap_err().decision();
        assert_eq!((refused.outcome(), refused.remaining()), (Outcome::Denied, 0));
        assert_eq!((refused.retry_after(), refused.reset_after()), (None, Duration::MAX));
        assert!(gate.acquire(&8).is_ok(), "another key");
        first.release();
        assert_eq!(gate.in_flight(&7), 1);
        let third = gate.acquire(&7).unwrap();
        assert!(gate.acquire(&7).is_err());
        drop((second, third));
        assert_eq!(gate.in_flight(&7), 0);
    }
    both_stores!(at(2), test);
}

#[test]
fn an_owned_permit_outlives_the_limit_and_its_thread() {
    fn is_static_and_shared<T: Send + Sync + 'static>(permit: T) -> T {
        permit
    }
    let gate: InFlight<str> = InFlight::builder(1).build().unwrap();
    let permit = is_static_and_shared(gate.acquire_owned("alice".to_owned()).unwrap());
    let other = gate.clone();
    drop(gate);
    assert_eq!(other.in_flight("alice"), 1);
    thread::spawn(move || drop(permit)).join().unwrap();
    assert_eq!(other.in_flight("alice"), 0);
}

#[test]
fn several_places_are_taken_all_or_none() {
    let gate: InFlight<u64> = InFlight::builder(3).build().unwrap();
    let two = gate.acquire_n(&1, 2).unwrap();
    assert_eq!((two.count(), gate.acquire_n(&1, 2).is_err(), gate.in_flight(&1)), (2, true, 2));
    let too_many = gate.acquire_n(&1, 4).unwrap_err().decision();
    assert_eq!(too_many.outcome(), Outcome::TooCostly);
    let none = gate.acquire_n(&1, 0).unwrap();
    assert_eq!((none.count(), gate.in_flight(&1)), (0, 2));
}

#[test]
fn a_limit_that_is_lowered_takes_no_permit_away() {
    fn test<S: Accepts<u64>>(_: &ManualClock, gate: InFlight<u64, S>) {
        let held: Vec<_> = (0..3).map(|_| gate.acquire(&7).unwrap()).collect();
        gate.set_limit(1).unwrap();
        assert_eq!((gate.limit(), gate.in_flight(&7)), (1, 3));
        for (left, permit) in (0..3).rev().zip(held) {
            let refused = gate.acquire(&7).unwrap_err();
            let text = format!("too many in flight: {} of 1 permits are held", left + 1);
            assert!(refused.to_string().starts_with(&text), "{refused}");
            drop(permit);
            assert_eq!(gate.in_flight(&7), left);
        }
        let held = gate.acquire(&7).unwrap();
        gate.set_limit(2).unwrap();
        assert!(gate.acquire(&7).is_ok());
        drop(held);
        assert_eq!(gate.in_flight(&7), 0, "taken under one limit, given back under another");
    }
    both_stores!(at(3), test);
}

#[test]
fn a_limit_out_of_range_is_refused_and_changes_nothing() {
    let gate: InFlight<u64> = InFlight::builder(1_000_000).build().unwrap();
    assert!(gate.acquire_n(&1, 1_000_000).is_ok());
    for limit in [0, 1_000_001, u64::MAX] {
        let error = Refused::InFlightOutOfRange { limit, most: 1_000_000 };
        assert_eq!(gate.set_limit(limit), Err(error.clone().into()));
        assert_eq!(InFlight::<u64>::builder(limit).build().unwrap_err(), error.into());
    }
    assert_eq!(gate.limit(), 1_000_000);
}

/// A leaked permit is known nowhere else.
#[test]
fn a_leaked_permit_keeps_its_place_until_a_reset() {
    fn test<S: Accepts<u64>>(clock: &ManualClock, gate: InFlight<u64, S>) {
        for undo in [|gate: &InFlight<u64, S>| gate.reset(&7), |gate: &InFlight<u64, S>| gate.clear()] {
            mem::forget(gate.acquire(&7).unwrap());
            clock.advance(1_000_000 * SECOND);
            while gate.sweep(4_096) {}
            assert!(gate.acquire(&7).is_err(), "no time makes the key idle");
            undo(&gate);
            assert!(gate.acquire(&7).is_ok());
        }
    }
    both_stores!(at(1), test);
}

/// If one number counted the resets of all keys, as with rates, bob's place would be lost.
#[test]
fn a_reset_of_one_key_leaves_the_permits_of_others() {
    fn test<S: Accepts<u64>>(_: &ManualClock, gate: InFlight<u64, S>) {
        let [alice, bob] = [1, 2].map(|key| gate.acquire(if key == 1 { &1 } else { &2 }).unwrap());
        gate.reset(&1);
        assert_eq!((gate.in_flight(&1), gate.in_flight(&2)), (0, 1));
        drop(bob);
        assert_eq!(gate.in_flight(&2), 0);
        drop(alice);
    }
    both_stores!(at(1), test);
}

#[test]
fn a_void_permit_gives_back_nothing_of_others() {
    fn test<S: Accepts<u64>>(clock: &ManualClock, gate: InFlight<u64, S>) {
        let start = clock.now();
        // In the later cases, the key has been forgotten, and the clock shows the time at which the
        // void permit was taken.
        for (wait, back) in [(0, false), (0, true), (9, false), (9, true), (30, true)] {
            let void = gate.acquire(&7).unwrap();
            gate.reset(&7);
            clock.advance(wait * SECOND);
            while gate.sweep(4_096) {}
            assert_eq!(gate.stats().keys, usize::from(wait == 0), "the key is forgotten");
            if back {
                clock.set(start);
            }
            let held = gate.acquire(&7).unwrap();
            drop(void);
            assert_eq!(gate.in_flight(&7), 1);
            assert!(gate.acquire(&7).is_err());
            drop(held);
            assert_eq!(gate.in_flight(&7), 0);
        }
    }
    both_stores!(at(1), test);
}

#[test]
fn a_full_table_refuses_a_new_key_until_a_permit_is_back() {
    fn test<S: Accepts<u64>>(clock: &ManualClock, gate: InFlight<u64, S>) {
        let first = gate.acquire_owned(0).unwrap();
        let held: Vec<_> = (1..8).map(|key| gate.acquire_owned(key).unwrap()).collect();
        clock.advance(1_000_000 * SECOND);
        let refused = gate.acquire(&100).unwrap_err();
        assert_eq!(refused.decision().source(), DecisionSource::Policy);
        assert!(refused.to_string().starts_with("the limiter has no room for a new key"));
        assert!((0..8).all(|key| gate.in_flight(&key) == 1), "a key with a permit out stays");
        drop(first);
        clock.advance(2 * SECOND);
        let new = (0..100).find_map(|_| gate.acquire(&100).ok());
        assert!(new.is_some(), "the slot of a key without a permit is free");
        drop(held);
    }
    let with = |(clock, builder): (ManualClock, Builder<InFlight<u64>>)| (clock, builder.max_keys(8));
    both_stores!(with(at(1)), test);
}

#[test]
fn what_a_policy_lets_through_holds_nothing() {
    let (_, builder) = at(1);
    let gate = builder.max_keys(1).when_full(WhenFull::Allow).build().unwrap();
    let held = gate.acquire(&1).unwrap();
    let untracked = [gate.acquire(&2).unwrap(), gate.acquire(&2).unwrap()];
    assert_eq!(untracked.map(|permit| permit.count()), [0, 0]);
    assert_eq!((gate.in_flight(&1), held.count()), (1, 1));
}

#[test]
fn a_permit_holds_one_charge_at_a_time() {
    let (clock, builder) = at(9);
    let gate = builder.build().unwrap();
    let permit = gate.empty_permit(&1);
    assert_eq!((permit.count(), gate.in_flight(&1)), (0, 0));
    let charge = permit.check_n(3);
    assert!(charge.is_allowed() && permit.check_n(0).is_allowed() && permit.peek_n(0).is_allowed());
    for refused in [permit.check_n(1), permit.peek_n(1)] {
        assert_eq!((refused.outcome(), refused.retry_after()), (Outcome::Denied, None));
        assert_eq!((refused.capacity(), refused.remaining(), refused.at()), (9, 6, clock.now()));
        assert!(refused.ok().unwrap_err().to_string().contains("3 of 9 permits are held"));
    }
    assert_eq!(permit.check_n(10).outcome(), Outcome::TooCostly);
    assert_eq!(permit.force(1), 0);
    for (back, left) in [(1, 2), (0, 2), (9, 0), (9, 0)] {
        permit.refund_n(&charge, back);
        assert_eq!((permit.count(), gate.in_flight(&1)), (left, left));
    }
    assert!(permit.check_n(1).is_allowed(), "it is free again");
    drop(permit);
    assert_eq!(gate.in_flight(&1), 0);
}

/// Refunding a request that took nothing gives nothing back, as with every limit.
#[test]
fn a_refund_of_what_took_no_place_ends_no_permit() {
    let gate: InFlight<u64> = InFlight::builder(9).build().unwrap();
    let permit = gate.empty_permit(&1);
    let charge = permit.check_n(2);
    for nothing in [permit.check_n(0), permit.check_n(1), permit.peek_n(1)] {
        permit.refund(&nothing);
        assert_eq!((permit.count(), gate.in_flight(&1)), (2, 2), "{nothing:?}");
    }
    // While the permit is held, the request needs no other place. Refunding the request gives back
    // only the rate's token.
    let rate = SingleLimiter::builder(Quota::per_hour(1)).clock(ManualClock::new()).build().unwrap();
    let mut charges = [Charge::new(&permit, 0), Charge::new(&rate, 1)];
    assert!(check_all(&mut charges).is_ok());
    charges.iter_mut().for_each(Charge::refund);
    assert_eq!((permit.count(), gate.in_flight(&1), rate.peek().remaining()), (2, 2, 1));
    permit.refund(&charge);
    assert_eq!((permit.count(), gate.in_flight(&1)), (0, 0));
}

#[test]
fn a_permit_is_taken_with_rates_or_none_is_charged() {
    let rate = |n| SingleLimiter::builder(Quota::per_hour(n)).clock(ManualClock::new()).build().unwrap();
    let (rate, day) = (rate(9), rate(2));
    let gate: InFlight<u64> = InFlight::builder(1).build().unwrap();
    // The permit may have any position among the charges.
    for place in 0..3 {
        let ask = || {
            let permit = gate.empty_permit(&7);
            let mut charges = vec![Charge::new(&rate, 2), Charge::new(&day, 1)];
            charges.insert(place, Charge::new(&permit, 1));
            check_all(&mut charges).map(|()| permit)
        };
        let left = |rate: &SingleLimiter| rate.peek().remaining();
        let held = ask().unwrap();
        assert_eq!((held.count(), left(&rate), left(&day)), (1, 7, 1));
        let denied = ask().unwrap_err();
        assert_eq!((denied.index(), denied.decision().retry_after()), (Some(place), None));
        assert_eq!((gate.in_flight(&7), left(&rate), left(&day)), (1, 7, 1), "nothing is charged");
        drop(held);
        drop(ask().unwrap());
        assert!(ask().unwrap_err().decision().retry_after().is_some(), "a rate denies");
        assert_eq!((gate.in_flight(&7), left(&rate), left(&day)), (0, 5, 0));
        rate.reset();
        day.reset();
    }
}

#[test]
fn a_permit_in_a_reservation_comes_back_when_that_is_settled_or_dropped() {
    let clock = ManualClock::new();
    let tokens = SingleLimiter::builder(Quota::per_hour(99)).clock(&clock).build().unwrap();
    let gate: InFlight<u64> = InFlight::builder(1).build().unwrap();
    let reserve = || {
        let limits: [(Box<dyn Chargeable + '_>, u64); 2] =
            [(Box::new(&tokens), 10), (Box::new(gate.empty_permit_owned(7)), 1)];
        reserve_all(limits)
    };
    let mut held = reserve().unwrap();
    assert_eq!(reserve().err().unwrap().index(), Some(1));
    // The stream takes more tokens, but no second place.
    held.record(|limit| [30, 1][limit]).unwrap();
    held.record(|limit| [5, 0][limit]).unwrap();
    assert_eq!((gate.in_flight(&7), tokens.peek().remaining()), (1, 64));
    held.commit(|limit| [35, 1][limit]);
    assert_eq!((gate.in_flight(&7), tokens.peek().remaining()), (0, 64));
    drop(reserve().unwrap());
    assert_eq!((gate.in_flight(&7), tokens.peek().remaining()), (0, 54), "the rate keeps its tokens");
    reserve().unwrap().release();
    assert_eq!((gate.in_flight(&7), tokens.peek().remaining()), (0, 54));
}

fn any_time() -> impl Strategy<Value = Tick> {
    prop_oneof![0..5_000_000_u64, 0..=Tick::MAX.as_nanos()].prop_map(Tick::from_nanos)
}

fn any_cost() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..6_u64, 1 => 999_000..1_001_000_u64, 1 => any::<u64>()]
}

/// A step of a random test.
#[derive(Clone, Debug)]
enum Step {
    Acquire {
        key: u64,
        places: u64,
    },
    /// Releases one of the held permits: its index modulo their number.
    Release(usize),
    Leak(usize),
    Reset(u64),
    Clear,
    SetLimit(u64),
    Sweep,
    /// The time in milliseconds since the start. It may also step back.
    Time(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..7_u64, 1..5_u64).prop_map(|(key, places)| Step::Acquire { key, places }),
        6 => (0..20_usize).prop_map(Step::Release),
        1 => (0..20_usize).prop_map(Step::Leak),
        2 => (0..7_u64).prop_map(Step::Reset),
        1 => Just(Step::Clear),
        1 => (1..6_u64).prop_map(Step::SetLimit),
        2 => Just(Step::Sweep),
        3 => prop_oneof![0..20_u64, 0..20_000_u64].prop_map(Step::Time),
    ]
}

/// Runs the steps with a table of three keys, and compares each answer with the oracle's.
fn agrees<S: Accepts<u64>>(clock: &ManualClock, gate: InFlight<u64, S>, steps: &[Step]) {
    let (start, mut oracle, mut held) = (clock.now(), Permits::new(4), Vec::new());
    let mut leaked = HashSet::new();
    for step in steps {
        match *step {
            Step::Acquire { key, places } => {
                let permit = gate.empty_permit_owned(key);
                let answer = permit.check_n(places);
                let counted = match answer.source() {
                    DecisionSource::Key => key,
                    DecisionSource::Overflow => SHARED,
                    _ => {
                        assert_eq!((answer.is_allowed(), oracle.out(key)), (false, 0), "{step:?}");
                        continue;
                    }
                };
                assert!(counted == key || oracle.out(key) == 0, "a key with a permit has a slot");
                assert_eq!(answer.is_allowed(), oracle.fits(counted, places), "{step:?}");
                assert_eq!(answer.outcome() == Outcome::TooCostly, places > oracle.limit);
                if answer.is_allowed() {
                    held.push((counted, oracle.take(counted, places), permit));
                }
                assert_eq!(answer.remaining(), oracle.limit.saturating_sub(oracle.out(counted)));
            }
            Step::Release(_) | Step::Leak(_) if held.is_empty() => {}
            Step::Release(nth) => {
                let (key, number, permit) = held.swap_remove(nth % held.len());
                oracle.give_back(key, number);
                drop(permit);
            }
            Step::Leak(nth) => {
                let (key, _, permit) = held.swap_remove(nth % held.len());
                leaked.insert(key);
                mem::forget(permit);
            }
            Step::Reset(key) => {
                oracle.reset(|other| other == key);
                gate.reset(&key);
            }
            Step::Clear => {
                oracle.reset(|_| true);
                gate.clear();
            }
            Step::SetLimit(limit) => {
                oracle.limit = limit;
                gate.set_limit(limit).unwrap();
            }
            Step::Sweep => while gate.sweep(4_096) {},
            Step::Time(millis) => clock.set(start + Duration::from_millis(millis)),
        }
        let apart = usize::from(oracle.out(SHARED) > 0);
        assert!(oracle.keys() - apart <= 3, "more keys than the table takes");
        for key in (0..7).filter(|&key| oracle.out(key) > 0) {
            assert_eq!(gate.in_flight(&key), oracle.out(key), "key {key} after {step:?}");
        }
    }
    // No place is lost except the leaked ones.
    drop(held);
    for key in (0..7).filter(|key| !leaked.contains(key)) {
        assert!(leaked.contains(&SHARED) || gate.in_flight(&key) == 0, "key {key}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every rule guarantees this contract to its store, for any times, costs and words.
    #[test]
    fn the_rule_keeps_the_contract_of_rules_at_any_times_and_costs(
        limit in prop_oneof![1..5_u64, 999_990..=1_000_000_u64],
        steps in prop::collection::vec((any_time(), any_cost(), any::<bool>()), 1..60),
    ) {
        let rule = AnyRule::Permits(RulePermits::new(limit).unwrap());
        let (mut word, mut charges) = (Word::FRESH, Vec::new());
        for (now, cost, is_refund) in steps {
            let before = word;
            if is_refund {
                let Some(charge) = charges.pop() else { continue };
                word = rule.refund(word, now, &charge, cost);
                prop_assert!(rule.answer(word, now, 0).remaining() >= rule.answer(before, now, 0).remaining());
            } else {
                let out = limit - rule.answer(word, now, 0).remaining();
                let (next, answer) = rule.decide(word, now, cost);
                word = next;
                prop_assert_eq!(answer.is_allowed(), cost <= limit - out);
                prop_assert_eq!(word != before, answer.charged() > 0);
                prop_assert_eq!(answer.retry_after().is_some(), answer.is_allowed());
                prop_assert_eq!(answer.remaining(), limit - out - answer.charged());
                charges.push(answer);
                let (forced, charged) = rule.force(word, now, cost);
                prop_assert_eq!(charged, cost.min(answer.remaining()));
                prop_assert_eq!(forced != word, charged > 0);
            }
            prop_assert!(word != Word::FRESH || before == Word::FRESH);
            let is_free = rule.answer(word, now, 0).remaining() == limit;
            prop_assert!(is_free || !rule.is_idle(word, Tick::MAX));
            prop_assert!(rule.is_idle(rule.reset(word), Tick::MAX) || now.since(Tick::ZERO) > 36_500 * DAY);
            prop_assert_eq!(rule.answer(rule.reset(word), now, 0).remaining(), limit);
        }
        prop_assert!(rule.max_debt(0).is_ok());
        prop_assert_eq!(rule.max_debt(1), Err(Refused::DebtTooLarge { debt: 1, most: 0 }));
    }

    /// A table that is far too small gives the same answers as the list of permits.
    #[test]
    fn permits_are_taken_and_given_back_as_the_oracle_does(
        steps in prop::collection::vec(any_step(), 1..120),
        when_full in prop_oneof![Just(WhenFull::Deny), Just(WhenFull::Share)],
    ) {
        let small = || {
            let (clock, builder) = at(4);
            (clock, builder.max_keys(3).when_full(when_full))
        };
        both_stores!(small(), |clock: &ManualClock, gate| agrees(clock, gate, &steps));
    }
}

/// Keys without a slot share a state. Permits of this state stay in use when such a key gets a
/// slot.
#[test]
fn a_key_holds_permits_of_the_shared_state_and_its_own_together_twice_the_limit() {
    fn test<S: Accepts<u64>>(clock: &ManualClock, gate: InFlight<u64, S>) {
        let first = gate.acquire(&1).unwrap();
        let take_all = |source| -> Vec<_> {
            let permits = (0..5).map_while(|_| gate.acquire(&2).ok()).collect();
            assert_eq!(gate.acquire(&2).unwrap_err().decision().source(), source);
            permits
        };
        let shared = take_all(DecisionSource::Overflow);
        drop(first);
        clock.advance(2 * SECOND);
        while gate.sweep(64) {}
        let own = take_all(DecisionSource::Key);
        assert_eq!((shared.len(), own.len()), (2, 2));
    }
    let full = || {
        let (clock, builder) = at(2);
        (clock, builder.max_keys(1).when_full(WhenFull::Share))
    };
    both_stores!(full(), test);
}

/// Each holder counts itself. At the same time, other keys are used and reset, so the table turns
/// over all the time.
#[test]
fn never_more_than_the_limit_are_in_flight_at_any_moment() {
    fn test<S: Accepts<u64>>(clock: &ManualClock, gate: InFlight<u64, S>) {
        const LIMIT: u64 = 3;
        const KEYS: usize = 4;
        let threads = thread::available_parallelism().map_or(2, usize::from).max(2) * 2;
        let line = Barrier::new(threads);
        // For each key, the number of permits in use, and the number of permits taken so far.
        let counts = [const { [const { AtomicU64::new(0) }; 2] }; KEYS];
        thread::scope(|scope| {
            for seed in 1..=threads as u64 {
                let (gate, counts, line) = (&gate, &counts, &line);
                scope.spawn(move || {
                    let (mut random, mut held) = (Random(seed), Vec::new());
                    line.wait();
                    for round in 0..20_000 {
                        let key = random.below(KEYS as u64);
                        let [out, taken] = &counts[usize::try_from(key).unwrap()];
                        if random.below(2) == 0 {
                            if let Ok(permit) = gate.acquire_owned(key) {
                                let now = out.fetch_add(1, SeqCst) + 1;
                                assert!(now <= LIMIT, "{now} of key {key}");
                                taken.fetch_add(1, SeqCst);
                                held.push((out, permit));
                            }
                        } else if let Some((out, permit)) = held.pop() {
                            out.fetch_sub(1, SeqCst);
                            drop(permit);
                        }
                        let other = KEYS as u64 + random.below(500);
                        drop(gate.acquire(&other));
                        match round % 64 {
                            0 => gate.reset(&other),
                            1 => clock.advance(SECOND),
                            2 => _ = gate.sweep(64),
                            _ => {}
                        }
                    }
                    held.iter().for_each(|(out, _)| _ = out.fetch_sub(1, SeqCst));
                });
            }
        });
        for (key, [out, taken]) in (0..).zip(&counts) {
            assert!(taken.load(SeqCst) > 1_000, "of key {key}");
            assert_eq!((out.load(SeqCst), gate.in_flight(&key)), (0, 0), "none is lost");
        }
        assert!(gate.stats().turnovers > 10, "{:?}", gate.stats());
    }
    let small = || {
        let (clock, builder) = at(3);
        (clock, builder.max_keys(40))
    };
    both_stores!(small(), test);
}

/// Two requests race for the rate and the place. Each request is charged to both or to neither.
#[test]
fn requests_race_for_a_place_and_a_rate_and_none_is_charged_in_part() {
    let rate: Limiter<u64> =
        Limiter::builder(Quota::per_hour(1_000_000)).clock(ManualClock::new()).build().unwrap();
    let gate: InFlight<u64> = InFlight::builder(1).build().unwrap();
    let passed: u64 = thread::scope(|scope| {
        let racer = || {
            let pass = |_: &u32| {
                let (permit, rate) = (gate.empty_permit(&7), rate.for_key(&7));
                check_all(&mut [Charge::new(&rate, 1), Charge::new(&permit, 1)]).is_ok()
            };
            (0..20_000).filter(pass).count() as u64
        };
        let racers = [scope.spawn(racer), scope.spawn(racer)];
        racers.into_iter().map(|racer| racer.join().unwrap()).sum()
    });
    assert!(passed > 0);
    assert_eq!((rate.peek(&7).remaining(), gate.in_flight(&7)), (1_000_000 - passed, 0));
}
