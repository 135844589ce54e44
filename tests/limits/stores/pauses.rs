//! Keys that are paused.

use super::store::{ALGORITHMS, Gate, IntoGate};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use tollgate::{
    Charge, Decision, DecisionSource, Limiter, ManualClock, Outcome, Quota, Tick, WhenFull, check_all,
};

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

fn at(millis: u64) -> Tick {
    Tick::ZERO + Duration::from_millis(millis)
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Check(u64),
    Peek(u64),
    Refund,
    Force(u64),
    Quota(u64),
    OwnQuota(Option<u64>),
    Pause(u64),
    Sweep,
    Reset,
    Clear,
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0_u64..8).prop_map(Act::Check),
        3 => (0_u64..8).prop_map(Act::Peek),
        2 => Just(Act::Refund),
        1 => (0_u64..8).prop_map(Act::Force),
        1 => (1_u64..9).prop_map(Act::Quota),
        1 => prop::option::of(1_u64..9).prop_map(Act::OwnQuota),
        3 => (0_u64..20_000).prop_map(Act::Pause),
        1 => Just(Act::Sweep),
        1 => Just(Act::Reset),
        1 => Just(Act::Clear),
    ]
}

/// Returns the expected answer to a request of `cost` tokens during a pause until `end`, computed
/// from a twin that is not paused.
fn expected(twin: &Gate<u64>, key: u64, cost: u64, now: Tick, end: Tick) -> (Outcome, Option<Duration>) {
    let then = twin.at(end).peek_n(&key, cost);
    match then.outcome() {
        Outcome::TooCostly => (Outcome::TooCostly, None),
        _ => (Outcome::Denied, then.retry_after().map(|more| end.since(now) + more)),
    }
}

fn figures(decision: Decision) -> (Outcome, u64, u64, Option<Duration>, Duration) {
    let (remaining, capacity) = (decision.remaining(), decision.capacity());
    (decision.outcome(), remaining, capacity, decision.retry_after(), decision.reset_after())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 2_000 }))]

    /// During a pause nothing is admitted, and each answer reports when the request will pass.
    /// Otherwise the limiter decides like a twin that was never paused and received no requests
    /// during pauses. With a penalty, a denied check also pauses its key, and a denied peek reports
    /// this.
    #[test]
    fn a_pause_holds_and_changes_nothing_else(
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        penalty in prop::option::of((1_u64..10_000).prop_map(Duration::from_millis)),
        acts in prop::collection::vec((0_u64..3, any_act(), 0_u64..4_000), 1..60),
    ) {
        let build = || {
            let builder = Limiter::builder(Quota::new(5, 3 * SECOND)).algorithm(algorithm);
            builder.max_keys(1_000).clock(ManualClock::new())
        };
        let with_penalty = penalty.map(|penalty| build().penalty(penalty));
        let limiter: Gate<u64> = with_penalty.unwrap_or_else(build).gate();
        let twin: Gate<u64> = build().gate();
        let mut ends = [Tick::ZERO; 3];
        let mut charges: [Vec<(Decision, Decision)>; 3] = Default::default();
        let mut millis = 0;
        for (key, act, later) in acts {
            millis += later;
            let (index, now) = (usize::try_from(key).unwrap(), at(millis));
            let (asked_now, twin_now) = (limiter.at(now), twin.at(now));
            let is_paused = now < ends[index];
            match act {
                Act::Check(cost) | Act::Peek(cost) if is_paused && cost > 0 => {
                    let asked = match act {
                        Act::Check(_) => asked_now.check_n(&key, cost),
                        _ => asked_now.peek_n(&key, cost),
                    };
                    let told = (asked.outcome(), asked.retry_after());
                    prop_assert_eq!(told, expected(&twin, key, cost, now, ends[index]));
                    prop_assert_eq!((asked.remaining(), asked.charged(), asked.at()), (0, 0, now));
                    prop_assert_eq!(asked.source(), DecisionSource::Pause);
                }
                Act::Check(cost) | Act::Peek(cost) => {
                    let (asked, should) = match act {
                        Act::Check(_) => (asked_now.check_n(&key, cost), twin_now.check_n(&key, cost)),
                        _ => (asked_now.peek_n(&key, cost), twin_now.peek_n(&key, cost)),
                    };
                    prop_assert_eq!(asked.source(), DecisionSource::Key);
                    match penalty.filter(|_| should.outcome() == Outcome::Denied) {
                        None => prop_assert_eq!(figures(asked), figures(should)),
                        Some(penalty) => {
                            let told = (asked.outcome(), asked.retry_after());
                            prop_assert_eq!(told, expected(&twin, key, cost, now, now + penalty));
                            if let Act::Check(_) = act {
                                ends[index] = now + penalty;
                            }
                        }
                    }
                    if let Act::Check(_) = act {
                        charges[index].push((asked, should));
                    }
                }
                Act::Refund => if let Some((charge, twins)) = charges[index].pop() {
                    asked_now.refund(&key, &charge);
                    twin_now.refund(&key, &twins);
                },
                Act::Force(tokens) => {
                    prop_assert_eq!(asked_now.force(&key, tokens), twin_now.force(&key, tokens));
                }
                Act::Quota(tokens) => {
                    asked_now.set_quota(Quota::new(tokens, 3 * SECOND)).unwrap();
                    twin_now.set_quota(Quota::new(tokens, 3 * SECOND)).unwrap();
                }
                Act::OwnQuota(tokens) => {
                    let quota = tokens.map(|tokens| Quota::new(tokens, 2 * SECOND));
                    asked_now.set_key_quotas([(&key, quota)]).unwrap();
                    twin_now.set_key_quotas([(&key, quota)]).unwrap();
                }
                Act::Pause(length) => {
                    asked_now.pause(&key, Duration::from_millis(length)).unwrap();
                    ends[index] = ends[index].max(at(millis + length));
                }
                // A limiter may forget a pause only after the pause has ended.
                Act::Sweep => {
                    while asked_now.sweep(1_024) {}
                    while twin_now.sweep(1_024) {}
                }
                Act::Reset => {
                    limiter.reset(&key);
                    twin.reset(&key);
                    ends[index] = Tick::ZERO;
                }
                Act::Clear => {
                    asked_now.clear();
                    twin_now.clear();
                    ends = [Tick::ZERO; 3];
                }
            }
        }
    }
}

#[test]
fn a_pause_ends_at_its_end_and_not_a_nanosecond_earlier() {
    for &algorithm in ALGORITHMS {
        let limiter = Limiter::<String>::builder(Quota::per_second(5)).algorithm(algorithm).gate();
        let start = Tick::ZERO + SECOND;
        limiter.at(start).pause("alice", SECOND + NANO).unwrap();
        let end = start + SECOND + NANO;
        assert_eq!(limiter.at(Tick::ZERO).check("alice").retry_after(), Some(2 * SECOND + NANO));
        let last = limiter.at(start + SECOND).check("alice");
        assert_eq!((last.outcome(), last.retry_after()), (Outcome::Denied, Some(NANO)), "{algorithm}");
        assert_eq!(limiter.at(end).check("alice").remaining(), 4);
        assert!(limiter.at(start).check("bob").is_allowed());
    }
}

#[test]
fn a_later_pause_extends_and_an_earlier_end_shortens_nothing() {
    let limiter = Limiter::<u64>::builder(Quota::per_second(5)).gate();
    for (now, time, end) in
        [(0, 5_000, 5_000), (1_000, 1_000, 5_000), (2_000, 9_000, 11_000), (3_000, 0, 11_000)]
    {
        limiter.at(at(now)).pause(&7, Duration::from_millis(time)).unwrap();
        assert_eq!(limiter.at(at(now)).check(&7).retry_after(), Some(at(end).since(at(now))));
    }
}

/// The sweep forgets a pause that ended later than the next pause does.
#[test]
fn a_pause_is_not_prolonged_after_the_clock_was_set_back() {
    let limiter = Limiter::<u64>::builder(Quota::per_second(5)).gate();
    limiter.at(at(0)).pause(&7, 100 * SECOND).unwrap();
    while limiter.at(at(200_000)).sweep(1_024) {}
    limiter.at(at(0)).pause(&8, SECOND).unwrap();
    assert_eq!(limiter.at(at(0)).check(&8).retry_after(), Some(SECOND));
    assert!(limiter.at(at(1_000)).check(&8).is_allowed());
}

#[test]
fn a_pause_without_end_ends_at_the_last_tick() {
    let limiter = Limiter::<u64>::builder(Quota::per_second(5)).gate();
    for time in [Duration::from_secs(1 << 40), Duration::MAX] {
        limiter.at(at(5)).pause(&7, time).unwrap();
        assert_eq!(limiter.at(at(9)).check(&7).retry_after(), Some(Tick::MAX.since(at(9))));
    }
    assert!(limiter.at(Tick::MAX).check(&7).is_allowed());
    limiter.at(Tick::MAX).pause(&8, SECOND).unwrap();
    assert!(limiter.at(Tick::MAX).check(&8).is_allowed());
}

#[test]
fn every_way_to_deny_a_key_starts_its_penalty_and_none_extends_it() {
    let one = || Limiter::<u64>::builder(Quota::per_second(1)).clock(ManualClock::new());
    let (limiter, other) = (one().penalty(9 * SECOND).gate(), one().gate());
    let mut decisions = Vec::new();
    limiter.check_many(&[1, 2, 3, 4, 5, 1], &mut decisions);
    assert_eq!(decisions[5].retry_after(), Some(9 * SECOND));
    assert_eq!(limiter.reserve(&2, 1).unwrap_err().decision().retry_after(), Some(9 * SECOND));
    let (key, first) = (limiter.for_key(&3), other.for_key(&3));
    assert!(check_all(&mut [Charge::new(&first, 1), Charge::new(&key, 1)]).is_err());
    let key = limiter.for_key(&4);
    assert!(check_all(&mut [Charge::new(&key, 1).shadow()]).is_ok(), "a limit on trial");
    // The peek applies nothing, and neither does a request that another limit denies.
    assert_eq!(limiter.peek(&5).retry_after(), Some(9 * SECOND));
    let key = limiter.for_key(&6);
    assert!(check_all(&mut [Charge::new(&key, 1), Charge::new(&first, 2)]).is_err());
    let now = limiter.clock().now();
    for (key, is_paused) in [(1, true), (2, true), (3, true), (4, true), (5, false), (6, false)] {
        let decision = limiter.at(now + SECOND).check(&key);
        assert_eq!(decision.is_allowed(), !is_paused, "{key}");
        if is_paused {
            assert_eq!(
                (decision.source(), decision.retry_after()),
                (DecisionSource::Pause, Some(8 * SECOND))
            );
            let end = now + 9 * SECOND;
            assert!(!limiter.at(Tick::from_nanos(end.as_nanos() - 1)).check(&key).is_allowed(), "{key}");
            assert!(limiter.at(end).check(&key).is_allowed(), "{key}");
        }
    }
}

#[test]
fn only_the_state_of_a_key_starts_a_penalty() {
    let builder = Limiter::<u64>::builder(Quota::per_second(1)).max_keys(1).penalty(9 * SECOND);
    let limiter = builder.clock(ManualClock::new()).gate();
    assert!(limiter.check(&1).is_allowed());
    assert_eq!(limiter.check_n(&1, 2).outcome(), Outcome::TooCostly);
    assert_eq!(limiter.check(&2).source(), DecisionSource::Policy, "the table is full");
    assert!(limiter.at(at(1_000)).check(&1).is_allowed());
    assert!(limiter.at(at(50_000)).check(&2).is_allowed());
    // There is room for one pause. Another denial is an ordinary denial.
    assert!(limiter.at(at(50_000)).pause(&3, 9 * SECOND).is_ok());
    let denied = limiter.at(at(50_000)).check(&2);
    assert_eq!((denied.source(), denied.retry_after()), (DecisionSource::Key, Some(SECOND)));
    assert!(limiter.at(at(51_000)).check(&2).is_allowed());
}

#[test]
fn each_class_has_the_penalty_and_a_reset_ends_it() {
    let builder = Limiter::<u64>::builder(Quota::per_hour(1)).of_store().penalty(2 * SECOND);
    let limiter = builder.class("paid", Quota::per_hour(2)).clock(ManualClock::new()).build().unwrap();
    for (class, limiter) in limiter.classes() {
        assert!((0..limiter.quota().tokens()).all(|_| limiter.check(&7).is_allowed()), "{class}");
        assert_eq!(limiter.check(&7).source(), DecisionSource::Key, "{class}");
        assert_eq!(limiter.check(&7).source(), DecisionSource::Pause, "{class}");
        limiter.reset(&7);
        assert!(limiter.check(&7).is_allowed(), "{class}");
    }
}

#[test]
fn a_penalty_of_no_length_is_refused_and_one_without_end_is_not() {
    let builder = || Limiter::<u64>::builder(Quota::per_second(1)).clock(ManualClock::new()).of_store();
    let refused = builder().penalty(Duration::ZERO).build().unwrap_err();
    assert!(
        refused.to_string().starts_with("penalty 0 would pause no key; allowed: 1ns and more"),
        "{refused}"
    );
    let limiter = builder().penalty(Duration::MAX).build().unwrap();
    assert!(limiter.check(&7).is_allowed());
    assert!(!limiter.check(&7).is_allowed());
    assert_eq!(
        limiter.at(Tick::from_nanos(Tick::MAX.as_nanos() - 1)).check(&7).source(),
        DecisionSource::Pause
    );
}

#[test]
fn a_pause_of_no_length_takes_no_place() {
    let limiter = Limiter::<u64>::builder(Quota::per_second(5)).gate();
    let bytes = limiter.stats().bytes;
    limiter.pause(&7, Duration::ZERO).unwrap();
    assert!(limiter.check(&7).is_allowed());
    let limiter = Limiter::<u64>::builder(Quota::per_second(5)).gate();
    limiter.pause(&7, NANO).unwrap();
    assert!(limiter.stats().bytes > bytes, "the pauses are counted");
}

#[test]
fn every_way_to_charge_a_key_finds_it_paused() {
    let limiter = Limiter::<u64>::builder(Quota::per_hour(5)).clock(ManualClock::new()).gate();
    let other = Limiter::<u64>::builder(Quota::per_hour(5)).clock(ManualClock::new()).gate();
    assert_eq!(limiter.check(&7).remaining(), 4);
    limiter.pause(&7, SECOND).unwrap();
    let mut decisions = Vec::new();
    limiter.check_many(&[7, 8, 7], &mut decisions);
    assert_eq!(decisions.iter().map(Decision::is_allowed).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(limiter.reserve(&7, 2).unwrap_err().decision().retry_after(), Some(SECOND));
    let (key, first) = (limiter.for_key(&7), other.for_key(&7));
    let denied = check_all(&mut [Charge::new(&first, 1), Charge::new(&key, 1)]).unwrap_err();
    assert_eq!((denied.index(), denied.decision().retry_after()), (Some(1), Some(SECOND)));
    assert_eq!(other.peek(&7).remaining(), 5, "what the other limit was charged is given back");
    // A request that costs nothing is allowed, and tokens that are already spent are charged.
    assert!(limiter.check_n(&7, 0).is_allowed());
    assert_eq!(limiter.force(&7, 2), 2);
    assert_eq!(limiter.at(limiter.clock().now() + SECOND).peek(&7).remaining(), 2);
}

#[test]
fn the_first_pause_while_many_keys_are_read_applies_to_the_keys_of_the_batch() {
    let limiter = Limiter::<u64>::builder(Quota::per_hour(5)).clock(ManualClock::new()).gate();
    let (keys, mut decisions) = (Vec::from_iter(0..40), Vec::new());
    let pause_last = |key: &&u64| {
        if **key == 39 {
            limiter.pause(*key, SECOND).unwrap();
        }
    };
    limiter.check_many(keys.iter().inspect(pause_last), &mut decisions);
    let allowed = decisions.iter().filter(|decision| decision.is_allowed()).count();
    assert_eq!((allowed, decisions[39].is_allowed()), (39, false));
}

#[test]
fn a_class_is_paused_apart_from_others() {
    let limiter = Limiter::<u64>::builder(Quota::per_hour(5)).of_store().class("paid", Quota::per_hour(9));
    let limiter = limiter.build().unwrap();
    limiter.class("paid").unwrap().pause(&7, SECOND).unwrap();
    assert!(limiter.default_class().check(&7).is_allowed());
    assert!(!limiter.class("paid").unwrap().check(&7).is_allowed());
    limiter.clear();
    assert!(limiter.class("paid").unwrap().check(&7).is_allowed());
}

/// A key that finds the table full can be paused.
#[test]
fn a_key_without_a_place_is_paused() {
    for when_full in [WhenFull::Deny, WhenFull::Allow, WhenFull::Share] {
        let limiter = Limiter::<u64>::builder(Quota::per_second(1)).max_keys(1).when_full(when_full).gate();
        assert!(limiter.at(at(0)).check(&1).is_allowed());
        limiter.at(at(0)).pause(&2, SECOND).unwrap();
        let paused = limiter.at(at(1)).check(&2);
        assert_eq!(paused.outcome(), Outcome::Denied, "{when_full}");
        // At the retry time, the other key's place is free.
        assert_eq!(paused.retry_after(), Some(Duration::from_millis(999)), "{when_full}");
        assert_eq!(limiter.stats().refused, 0);
    }
}

/// The table is still full when this pause ends, but the pause and not the policy is the answer.
#[test]
fn a_pause_of_a_key_without_a_place_is_an_answer_of_the_key() {
    for when_full in [WhenFull::Deny, WhenFull::Allow, WhenFull::Share] {
        let limiter = Limiter::<u64>::builder(Quota::per_second(1)).max_keys(1).when_full(when_full).gate();
        assert!(limiter.at(at(0)).check(&1).is_allowed());
        limiter.at(at(0)).pause(&2, SECOND / 2).unwrap();
        let paused = limiter.at(at(1)).check(&2);
        assert_eq!(
            (paused.outcome(), paused.source()),
            (Outcome::Denied, DecisionSource::Pause),
            "{when_full}"
        );
        assert_eq!(limiter.stats().refused, 0, "{when_full}");
    }
}

#[test]
fn as_many_keys_are_paused_as_tracked_and_the_call_says_so() {
    let limiter = Limiter::<u64>::builder(Quota::per_second(1)).max_keys(100).gate();
    let pause = |key, now| limiter.at(now).pause(&key, SECOND);
    assert!((0..100).all(|key| pause(key, at(0)).is_ok()));
    let refused = pause(100, at(0)).unwrap_err();
    assert!(refused.to_string().contains("allowed: 100 at one time"), "{refused}");
    assert!(limiter.at(at(0)).check(&100).is_allowed());
    assert!(pause(5, at(500)).is_ok(), "it is paused already");
    assert!((0..100).all(|key| !limiter.at(at(999)).check(&key).is_allowed()));
    // Pauses that have ended make room.
    let late = at(100_000);
    assert!((200..300).all(|key| pause(key, late).is_ok()));
    assert_eq!(limiter.at(late).check(&200).source(), DecisionSource::Pause);
    assert!((200..300).all(|key| !limiter.at(late).check(&key).is_allowed()));
}

#[test]
fn a_sweep_forgets_pauses_that_are_over_and_no_others() {
    let limiter = Limiter::<u64>::builder(Quota::per_second(1)).max_keys(100_000).gate();
    for key in 0..50_000 {
        let seconds = if key % 100 == 0 { 100 } else { 1 };
        limiter.at(at(0)).pause(&key, seconds * SECOND).unwrap();
    }
    let full = limiter.stats().bytes;
    let mut now = limiter.at(at(50_000));
    // Memory is not freed while a thread of another test holds a guard, and that thread may be
    // preempted.
    for second in 51..=90 {
        now = limiter.at(at(second * 1_000));
        while now.sweep(4_096) {}
        if limiter.stats().bytes < full / 2 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!((0..50_000).all(|key| now.peek(&key).is_allowed() == (key % 100 != 0)));
    assert!(limiter.stats().bytes < full / 2, "{} of {full}", limiter.stats().bytes);
}

/// While threads check a key, it is paused for a while, again and again. Nothing is admitted
/// between the return of the call that pauses the key and the end of the pause.
#[test]
fn no_thread_is_admitted_during_a_pause() {
    let clock = ManualClock::new();
    let limiter = Limiter::<u64>::builder(Quota::per_second(1_000_000_000)).clock(&clock).gate();
    // The number is odd during a pause.
    let (turns, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    let before = turns.load(SeqCst);
                    let is_allowed = limiter.check(&7).is_allowed();
                    let is_paused = before % 2 == 1 && turns.load(SeqCst) == before;
                    assert!(!(is_paused && is_allowed), "in turn {before}");
                }
            });
        }
        for turn in 0..2_000_u64 {
            limiter.pause(&7, SECOND).unwrap();
            turns.fetch_add(1, SeqCst);
            limiter.pause(&turn, SECOND).unwrap();
            assert!(!limiter.check(&7).is_allowed());
            turns.fetch_add(1, SeqCst);
            clock.advance(2 * SECOND);
            let _ = limiter.check(&7);
        }
        done.store(true, SeqCst);
    });
}
