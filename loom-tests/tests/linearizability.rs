//! Every execution of a race on one key has a legal order.
//!
//! The models use the checker of the library's own tests (`crates/tollgate-testing/src/oracle`),
//! with two single-threaded limiters: the oracle and the rule.
//!
//! The stamps are not loom's atomics here, so they order nothing. A denial may therefore miss a
//! refund that has returned, as the documentation of `Limiter` describes under *What a denial rests
//! on*. The models below show that this occurs, that the figures of a denial may also lack a
//! charge, and that nothing else is missed.

mod model;

use loom::sync::Arc;
use model::{Atomics, Bound, Explored, Seen, explore};
use oracle::history::{Answer, ByDefinition, ByRule, Call, Denials, Event, legal_order};
use oracle::{Oracle, PACKED};
use std::sync::Mutex;
use std::time::Duration;
use tollgate::rule::AnyRule;
use tollgate::store::ExactKeys;
use tollgate::{Algorithm, Chargeable, Decision, Limiter, ManualClock, Quota, SingleLimiter, Tick, WhenFull};

const NOW: Tick = Tick::from_nanos(5_000_000_000);
/// A time at which keys that were charged at `NOW` are idle.
const LATER: Tick = Tick::from_nanos(9_000_000_000);
const GRACE: Duration = Duration::from_nanos(1);

/// The phases: before the race, during the race, and after all threads were joined.
const BEFORE: usize = 0;
const RACE: usize = 1;
const AFTER: usize = 2;

/// The history of one execution.
#[derive(Clone, Default)]
struct Recorder(std::sync::Arc<Mutex<(u64, Vec<Event>)>>);

impl Recorder {
    /// The calls of one thread in one round.
    fn of(&self, thread: usize, round: usize) -> Part {
        Part { recorder: self.clone(), thread, round }
    }

    fn stamp(&self) -> u64 {
        let mut recorded = self.0.lock().unwrap();
        recorded.0 += 1;
        recorded.0
    }

    fn history(&self) -> Vec<Event> {
        self.0.lock().unwrap().1.clone()
    }
}

struct Part {
    recorder: Recorder,
    thread: usize,
    round: usize,
}

/// A check's stamp and its decision.
#[derive(Clone, Copy)]
struct Checked {
    of: u64,
    decision: Decision,
}

impl Part {
    fn call(&self, call: Call, made: impl FnOnce() -> Option<Answer>) -> u64 {
        let called = self.recorder.stamp();
        let answer = made();
        let returned = self.recorder.stamp();
        let event = Event { thread: self.thread, round: self.round, called, returned, call, answer };
        self.recorder.0.lock().unwrap().1.push(event);
        called
    }

    fn check(&self, cost: u64, now: Tick, check: impl FnOnce() -> Decision) -> Checked {
        let mut decided = None;
        let of = self.call(Call::Check { cost, now }, || Some((*decided.insert(check())).into()));
        Checked { of, decision: decided.expect("it was made") }
    }

    fn refund(&self, Checked { of, decision }: Checked, now: Tick, refund: impl FnOnce()) {
        self.call(Call::Refund { of, charge: decision, tokens: 1, now }, || {
            refund();
            None
        });
    }

    fn reset(&self, reset: impl FnOnce()) {
        self.call(Call::Reset, || {
            reset();
            None
        });
    }
}

/// Returns whether the history has a legal order, according to both the oracle and the rule.
fn is_legal(algorithm: Algorithm, per_second: u64, history: &[Event], denials: Denials) -> bool {
    let quota = Quota::per_second(per_second);
    let rule = AnyRule::new(algorithm, quota, Duration::ZERO).unwrap();
    let oracle = legal_order(&ByDefinition(Oracle::new(algorithm, quota, 0)), history, denials);
    let verdict = legal_order(&ByRule(rule), history, denials).is_some();
    assert_eq!(verdict, oracle.is_some(), "oracle and rule differ: {history:#?}");
    verdict
}

/// Asserts that there is a legal order, with no more freedom than `Limiter` documents. `seen`
/// records whether that freedom was needed.
#[track_caller]
fn assert_legal(algorithm: Algorithm, per_second: u64, recorder: &Recorder, seen: &Seen) {
    let history = recorder.history();
    let now = is_legal(algorithm, per_second, &history, Denials::OnThePresent);
    assert!(
        now || is_legal(algorithm, per_second, &history, Denials::OnAMomentAgo),
        "no legal order, {algorithm}: {history:#?}"
    );
    seen.note(if now { "on the present" } else { "on a moment ago" });
}

fn single(algorithm: Algorithm, per_second: u64) -> Arc<SingleLimiter> {
    let builder = SingleLimiter::builder(Quota::per_second(per_second));
    Arc::new(builder.algorithm(algorithm).clock(ManualClock::new()).build().unwrap())
}

/// Two threads charge and a third gives back tokens, under a limit of two.
fn charges_and_refund(algorithm: Algorithm, bound: Bound, atomics: Atomics) {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, atomics, move |threads| {
        let (gate, recorder) = (single(algorithm, 2), Recorder::default());
        let check =
            |part: &Part, cost, gate: &SingleLimiter| part.check(cost, NOW, || gate.at(NOW).check_n(cost));
        let first = check(&recorder.of(0, BEFORE), 1, &gate);
        let other = threads.spawn({
            let (gate, part) = (Arc::clone(&gate), recorder.of(1, RACE));
            move || check(&part, 1, &gate)
        });
        let refunder = threads.spawn({
            let (gate, part) = (Arc::clone(&gate), recorder.of(2, RACE));
            move || part.refund(first, NOW, || gate.at(NOW).refund_n(&first.decision, 1))
        });
        check(&recorder.of(0, RACE), 1, &gate);
        check(&recorder.of(0, RACE), 1, &gate);
        other.join().unwrap();
        refunder.join().unwrap();
        check(&recorder.of(0, AFTER), 1, &gate);
        assert_legal(algorithm, 2, &recorder, &note);
    });
    seen.expect(&["\"on a moment ago\"", "\"on the present\""]);
}

#[test]
fn charge_races_charge_and_refund_in_a_legal_order() {
    for algorithm in PACKED {
        charges_and_refund(algorithm, Bound::Preemptions(2), Atomics::Touched);
    }
}

#[test]
#[ignore = "deep: make loom-deep"]
fn charge_races_charge_and_refund_in_a_legal_order_deeply() {
    for algorithm in PACKED {
        charges_and_refund(algorithm, Bound::Preemptions(3), Atomics::Touched);
    }
}

/// A denial may also miss a reset. A denial outside a race misses nothing.
#[test]
fn charge_races_reset_in_a_legal_order() {
    for algorithm in PACKED {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
            let (gate, recorder) = (single(algorithm, 1), Recorder::default());
            let check = |part: Part, gate: &SingleLimiter| part.check(1, NOW, || gate.at(NOW).check());
            check(recorder.of(0, BEFORE), &gate);
            let resetter = threads.spawn({
                let (gate, part) = (Arc::clone(&gate), recorder.of(1, RACE));
                move || part.reset(|| gate.reset())
            });
            check(recorder.of(0, RACE), &gate);
            check(recorder.of(0, RACE), &gate);
            resetter.join().unwrap();
            check(recorder.of(0, AFTER), &gate);
            assert_legal(algorithm, 1, &recorder, &note);
        });
        seen.expect(&["\"on a moment ago\"", "\"on the present\""]);
    }
}

/// A denial may also miss a charge. It then reports a different number of remaining tokens, but it
/// is still a denial.
#[test]
fn charge_races_denial_and_only_its_figures_may_be_a_moment_old() {
    for algorithm in PACKED {
        let seen = Seen::default();
        let note = seen.clone();
        explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
            let (gate, recorder) = (single(algorithm, 3), Recorder::default());
            let check = |part: &Part, cost, gate: &SingleLimiter| {
                part.check(cost, NOW, || gate.at(NOW).check_n(cost))
            };
            check(&recorder.of(0, BEFORE), 1, &gate);
            let other = threads.spawn({
                let (gate, part) = (Arc::clone(&gate), recorder.of(1, RACE));
                move || check(&part, 1, &gate)
            });
            for _ in 0..2 {
                let denied = check(&recorder.of(0, RACE), 3, &gate).decision;
                assert!(!denied.is_allowed());
            }
            other.join().unwrap();
            check(&recorder.of(0, AFTER), 3, &gate);
            assert_legal(algorithm, 3, &recorder, &note);
        });
        seen.expect(&["\"on a moment ago\"", "\"on the present\""]);
    }
}

/// A key is charged and refunded while its array is turned over, part by part.
fn charge_and_step(algorithm: Algorithm, bound: Bound, atomics: Atomics) -> Explored {
    let seen = Seen::default();
    let note = seen.clone();
    explore(bound, atomics, move |threads| {
        let builder = Limiter::builder(Quota::per_second(2)).algorithm(algorithm).max_keys(16);
        let builder = builder.grace(GRACE).when_full(WhenFull::Deny).clock(ManualClock::new());
        let (gate, recorder) = (Arc::new(builder.build().unwrap()), Recorder::default());
        let check = |part: &Part, gate: &Limiter<u64>| part.check(1, NOW, || gate.at(NOW).check(&1));
        let first = check(&recorder.of(0, BEFORE), &gate);
        // The third key begins the turnover. No chunk has been moved yet.
        for key in 2..=3 {
            assert!(gate.at(NOW).check(&key).is_allowed());
        }
        let other = threads.spawn({
            let (gate, part) = (Arc::clone(&gate), recorder.of(1, RACE));
            move || {
                let _ = gate.at(NOW).sweep(4);
                check(&part, &gate);
            }
        });
        let part = recorder.of(0, RACE);
        check(&part, &gate);
        part.refund(first, NOW, || gate.at(NOW).refund_n(&1, &first.decision, 1));
        other.join().unwrap();
        check(&recorder.of(0, AFTER), &gate);
        assert_legal(algorithm, 2, &recorder, &note);
    })
}

#[test]
fn charge_races_turnover_in_a_legal_order() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow] {
        charge_and_step(algorithm, Bound::Preemptions(2), Atomics::Touched);
    }
}

#[test]
#[ignore = "deep: make loom-deep"]
fn charge_races_turnover_in_a_legal_order_deeply() {
    for algorithm in PACKED {
        charge_and_step(algorithm, Bound::Preemptions(2), Atomics::Touched);
    }
}

/// An idle exact key is sealed, unlinked and forgotten while both threads request it again.
fn eviction_and_charge(algorithm: Algorithm, bound: Bound, atomics: Atomics) {
    let (seen, evicted) = (Seen::default(), Seen::default());
    let notes = (seen.clone(), evicted.clone());
    explore(bound, atomics, move |threads| {
        let builder = Limiter::<u64>::builder(Quota::per_second(2)).algorithm(algorithm).max_keys(4);
        let builder = builder.exact_keys().grace(GRACE).when_full(WhenFull::Deny).clock(ManualClock::new());
        let (gate, recorder) = (Arc::new(builder.build().unwrap()), Recorder::default());
        let check = |part: &Part, now, gate: &Limiter<u64, ExactKeys<u64>>| {
            part.check(1, now, || gate.at(now).check(&1))
        };
        check(&recorder.of(0, BEFORE), NOW, &gate);
        let other = threads.spawn({
            let (gate, part) = (Arc::clone(&gate), recorder.of(1, RACE));
            move || {
                while gate.at(LATER).sweep(1) {}
                check(&part, LATER, &gate);
            }
        });
        let part = recorder.of(0, RACE);
        check(&part, LATER, &gate);
        check(&part, LATER, &gate);
        other.join().unwrap();
        check(&recorder.of(0, AFTER), LATER, &gate);
        assert_legal(algorithm, 2, &recorder, &notes.0);
        notes.1.note(gate.stats().evicted);
    });
    evicted.expect(&["0", "1"]);
    seen.expect(&["\"on the present\""]);
}

#[test]
fn eviction_races_charge_in_a_legal_order() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::SlidingWindow] {
        eviction_and_charge(algorithm, Bound::Preemptions(2), Atomics::Touched);
    }
}

/// A fixed window that is broken on purpose, because its number and its count are two atomics.
struct TornWindow {
    number: loom::sync::atomic::AtomicU64,
    count: loom::sync::atomic::AtomicU64,
}

impl TornWindow {
    /// Charges one token under a limit of one.
    fn check(&self, now: Tick) -> Answer {
        use loom::sync::atomic::Ordering::SeqCst;
        let window = now.as_nanos() / 1_000_000_000;
        if window > self.number.load(SeqCst) {
            self.number.store(window, SeqCst);
            // The second thread that stores here wipes the charge of the first.
            self.count.store(0, SeqCst);
        }
        let allowed = self.count.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
        Answer { allowed, remaining: 0, decision: None }
    }
}

/// The checker must find a broken limiter.
#[test]
fn a_window_in_two_atomics_is_found_out() {
    let seen = Seen::default();
    let note = seen.clone();
    explore(Bound::Exhaustive, Atomics::Touched, move |threads| {
        let (number, count) = (loom::sync::atomic::AtomicU64::new(0), loom::sync::atomic::AtomicU64::new(0));
        let (gate, recorder) = (Arc::new(TornWindow { number, count }), Recorder::default());
        let check = |part: Part, gate: &TornWindow| {
            part.call(Call::Check { cost: 1, now: NOW }, || Some(gate.check(NOW)));
        };
        let other = threads.spawn({
            let (gate, part) = (Arc::clone(&gate), recorder.of(1, RACE));
            move || check(part, &gate)
        });
        check(recorder.of(0, RACE), &gate);
        other.join().unwrap();
        let history = recorder.history();
        note.note(is_legal(Algorithm::FixedWindow, 1, &history, Denials::OnAMomentAgo));
    });
    seen.expect(&["false", "true"]);
}
