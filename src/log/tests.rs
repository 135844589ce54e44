//! Tests that compare the sliding log with a list of all admissions.

use super::*;
use crate::decision::Figures;
use crate::quota::Quota;
use crate::reclaim::{Link, toss};
use crate::rule::{Gcra, Rule, Word};
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const NOW: Tick = Tick::from_nanos(1_000_000);

/// No other rule has replaced this one.
const LATEST: fn() -> bool = || true;

static RETIRED: LazyLock<Bag> = LazyLock::new(Bag::new);

fn rule(limit: u64, period: u64) -> SlidingLog {
    SlidingLog::new(Quota::new(limit, Duration::from_nanos(period))).unwrap()
}

fn at(nanos: u64) -> Tick {
    Tick::from_nanos(NOW.as_nanos() + nanos)
}

/// Creates a log, and makes `charges` charges of one token, a nanosecond apart. Returns the log and
/// the decisions.
fn charged(rule: &SlidingLog, charges: u64) -> (Log, Vec<Decision>) {
    let log = Log::new();
    let charges =
        (0..charges).map(|n| log.check(|| Tick::ZERO, rule, at(n), 1, &RETIRED, LATEST).unwrap()).collect();
    (log, charges)
}

/// Applies the rule `new` to the log at `now`. Returns that rule with the past of the log.
fn change(log: &Log, old: &SlidingLog, new: &SlidingLog, now: Tick) -> SlidingLog {
    let new = new.with_past(under_guard(|guard| log.past(old, now, guard)));
    log.change(LATEST);
    new
}

fn is_sealed_at(log: &Log, rule: &SlidingLog, judged_at: Tick) -> bool {
    log.seal_if_idle(rule, judged_at, &RETIRED, |_| (), LATEST).unwrap()
}

fn chunks(log: &Log) -> usize {
    under_guard(|guard| {
        let (mut chunks, mut at) = (0, log.root.load(guard)?);
        while let Some(chunk) = at {
            (chunks, at) = (chunks + 1, chunk.next()?);
        }
        Ok(chunks)
    })
}

/// Creates logs with each kind of end: not begun, an empty slot, a full row, a chunk after a reset.
fn ends(rule: &SlidingLog) -> Vec<Log> {
    let mut logs: Vec<_> = [0, 1, 7, 8, 9, 100].map(|charges| charged(rule, charges).0).into();
    for charges in [1, 8] {
        let (log, _) = charged(rule, charges);
        log.reset(rule, &RETIRED).unwrap();
        logs.push(log);
    }
    logs
}

#[test]
fn a_sealed_log_answers_nothing_ever_after_wherever_it_ends() {
    let rule = rule(100, 1_000);
    let charge = charged(&rule, 1).1[0];
    for log in ends(&rule) {
        assert!(!log.is_sealed());
        assert!(is_sealed_at(&log, &rule, at(2_000)));
        for time in [0, 1_000, 1_000_000] {
            assert!(log.is_sealed());
            assert!(is_sealed_at(&log, &rule, at(time)));
            assert_eq!(log.check(|| Tick::ZERO, &rule, at(time), 1, &RETIRED, LATEST), None);
            assert_eq!(log.check(|| Tick::ZERO, &rule, at(time), 101, &RETIRED, LATEST), None);
            assert_eq!(log.peek(&rule, at(time), 1, LATEST), None);
            assert_eq!(log.refund(&charge, 1), None);
            assert_eq!(log.reset(&rule, &RETIRED), None);
        }
    }
}

#[test]
fn only_an_idle_log_is_sealed_to_be_evicted() {
    let rule = rule(100, 1_000);
    for charges in [1, 8, 9, 100] {
        let (log, decisions) = charged(&rule, charges);
        assert!(!is_sealed_at(&log, &rule, at(charges + 998)));
        assert_eq!(log.peek(&rule, at(999), 1, LATEST).unwrap().remaining(), 100 - charges);
        // Once all charges are given back, a log gives the same decisions as a new log, except at
        // times before its last charge.
        for charge in &decisions {
            log.refund(charge, 1).unwrap();
        }
        if charges > 1 {
            assert!(!is_sealed_at(&log, &rule, at(charges - 2)));
        }
        assert!(is_sealed_at(&log, &rule, at(charges - 1)));
        let (log, _) = charged(&rule, charges);
        assert!(is_sealed_at(&log, &rule, at(charges + 999)));
        assert!(log.is_sealed());
    }
}

/// A thread that still reads an evicted log may keep it for a while.
#[test]
fn a_log_that_is_sealed_idle_keeps_little_memory() {
    let rule = rule(100_000, 100_000);
    let (log, _) = charged(&rule, 50_000);
    assert!(log.bytes() > 400_000);
    assert!(is_sealed_at(&log, &rule, at(200_000)));
    assert!(log.bytes() < 200, "{}", log.bytes());
}

#[test]
fn a_log_goes_on_under_another_quota_with_what_counts() {
    let (old, new) = (rule(100, 1_000), rule(30, 2_000));
    let (log, _) = charged(&old, 50);
    let new = change(&log, &old, &new, at(1_019));
    // Thirty admissions of the old window remain, and they count for the length of the new period.
    let denied = log.check(|| Tick::ZERO, &new, at(1_019), 1, &RETIRED, LATEST).unwrap();
    assert_eq!((denied.remaining(), denied.capacity()), (0, 30));
    assert_eq!(denied.retry_after(), Some(Duration::from_nanos(20 + 2_000 - 1_019)));
    assert_eq!(denied.reset_after(), Duration::from_nanos(49 + 2_000 - 1_019));
    assert!(!log.check(|| Tick::ZERO, &new, at(2_019), 1, &RETIRED, LATEST).unwrap().is_allowed());
    assert!(log.check(|| Tick::ZERO, &new, at(2_020), 1, &RETIRED, LATEST).unwrap().is_allowed());
}

#[test]
fn a_helper_that_comes_late_changes_nothing() {
    // Admissions that had left the old window would count again under the longer period.
    let (old, new) = (rule(100, 1_000), rule(100, 10_000));
    for charges in [1, 3, 50] {
        let (log, _) = charged(&old, charges);
        let new = change(&log, &old, &new, at(5_000));
        let is_due = Cell::new(true);
        let late = || log.change(|| is_due.get());
        let remaining = || log.peek(&new, at(5_000), 1, LATEST).map(|peek| peek.remaining());
        // A helper that has not seen another helper's change repeats it.
        late();
        assert_eq!(remaining(), Some(100));
        let bytes = log.bytes();
        (0..1_000).for_each(|_| late());
        is_due.set(false);
        late();
        assert_eq!((remaining(), log.bytes()), (Some(100), bytes));
        assert!(log.check(|| Tick::ZERO, &new, at(5_000), 60, &RETIRED, LATEST).unwrap().is_allowed());
        late();
        assert_eq!(remaining(), Some(40));
        assert!(is_sealed_at(&log, &new, at(15_000)));
        late();
        assert_eq!(remaining(), None);
    }
}

#[test]
fn a_change_seals_a_log_that_has_not_begun() {
    let (old, new) = (rule(100, 1_000), rule(100, 10_000));
    let log = Log::new();
    change(&log, &old, &new, at(5_000));
    assert!(log.is_sealed());
    let begun = Log::begun(&old);
    let new = change(&begun, &old, &new, at(5_000));
    assert_eq!(begun.peek(&new, at(0), 1, LATEST).unwrap().remaining(), 100);
}

/// A thread writes nothing if other threads have replaced the rule that it used.
#[test]
fn nothing_is_decided_under_a_rule_that_was_replaced() {
    let (old, new) = (rule(100, 1_000), rule(200, 10_000));
    let (log, charges) = charged(&old, 50);
    let replaced = Cell::new(false);
    let is_latest = || {
        // The rule is replaced after the thread has read the log.
        if !replaced.replace(true) {
            change(&log, &old, &new, at(49));
        }
        true
    };
    // The first attempt fails, and the second attempt counts the same charges again.
    let charge = log.check(|| Tick::ZERO, &old, at(49), 50, &RETIRED, is_latest).unwrap();
    assert_eq!((charge.charged(), charge.remaining()), (50, 0));
    for charge in &charges {
        log.refund(charge, 1).unwrap();
    }
    log.refund(&charge, 50).unwrap();
    let not_latest = || false;
    assert_eq!(log.check(|| Tick::ZERO, &old, at(49), 1, &RETIRED, not_latest), None);
    assert_eq!(log.peek(&old, at(49), 1, not_latest), None);
    assert_eq!(log.force(|| Tick::ZERO, &old, at(49), 1, &RETIRED, not_latest), None);
    assert_eq!(log.seal_if_idle(&old, at(5_000), &RETIRED, |_| (), not_latest), None);
    assert!(!log.is_sealed());
}

/// A thread with an old `now` must not find an empty window, and fill it a second time.
#[test]
fn a_stale_charge_is_not_judged_before_what_was_left_out() {
    let rule = rule(10, 1_000);
    let (log, _) = charged(&rule, 10);
    let rule = change(&log, &rule, &rule, at(1_500));
    let stale = log.check(|| Tick::ZERO, &rule, at(5), 10, &RETIRED, LATEST).unwrap();
    assert!(stale.is_allowed());
    // The charge is counted at the time when the last admission left the window, and not before.
    assert_eq!(stale.reset_after(), Duration::from_nanos(9 + 1_000 + 1_000 - 5));
}

/// The second change has a shorter period and an older time.
#[test]
fn a_change_takes_no_key_back_in_time() {
    let (old, new) = (rule(4, 1_997), rule(1, 1_000));
    let (log, _) = charged(&old, 2);
    let first = change(&log, &old, &new, at(1_997));
    let second = change(&log, &first, &new, at(1_996));
    assert!(!log.is_idle(&second, at(1_996)) && log.is_idle(&second, at(1_997)));
}

#[test]
fn a_limit_below_what_is_held_admits_nothing_until_enough_is_out() {
    let (old, new) = (rule(1_000_000, 1_000), rule(1, 1_000));
    let log = Log::new();
    for (time, cost) in [(0, 300_000), (10, 1), (20, 699_999)] {
        assert!(log.check(|| Tick::ZERO, &old, at(time), cost, &RETIRED, LATEST).unwrap().is_allowed());
    }
    let new = change(&log, &old, &new, at(20));
    let denied = log.check(|| Tick::ZERO, &new, at(20), 1, &RETIRED, LATEST).unwrap();
    assert_eq!((denied.remaining(), denied.retry_after()), (0, Some(Duration::from_nanos(1_000))));
    assert!(!log.check(|| Tick::ZERO, &new, at(1_019), 1, &RETIRED, LATEST).unwrap().is_allowed());
    // After the limit is raised again, the log has forgotten nothing.
    let old = change(&log, &new, &old, at(1_000));
    assert_eq!(log.peek(&old, at(1_000), 1, LATEST).unwrap().remaining(), 300_000);
    assert_eq!(log.peek(&old, at(1_010), 1, LATEST).unwrap().remaining(), 300_001);
    assert_eq!(log.peek(&old, at(1_020), 1, LATEST).unwrap().remaining(), 1_000_000);
}

#[test]
fn a_refund_after_a_change_gives_back_what_its_charge_still_holds() {
    let (old, new) = (rule(100, 1_000), rule(10, 5_000));
    let log = Log::new();
    let charge = |time, cost| log.check(|| Tick::ZERO, &old, at(time), cost, &RETIRED, LATEST).unwrap();
    let (first, second, third) = (charge(0, 8), charge(1, 2), charge(2, 50));
    log.refund(&first, 3).unwrap();
    log.refund(&second, 2).unwrap();
    let new = change(&log, &old, &new, at(2));
    let remaining = || log.peek(&new, at(2), 1, LATEST).unwrap().remaining();
    log.refund(&third, 48).unwrap();
    assert_eq!(remaining(), 3);
    // All tokens of this charge are already given back.
    log.refund(&second, 2).unwrap();
    assert_eq!(remaining(), 3);
    log.refund(&first, u64::MAX).unwrap();
    assert_eq!(remaining(), 8);
    log.refund(&third, u64::MAX).unwrap();
    assert_eq!(remaining(), 10);
}

#[test]
fn a_charge_that_no_log_made_gives_back_nothing() {
    let rule = rule(100, 1_000);
    let (log, _) = charged(&rule, 50);
    let bucket = Gcra::token_bucket(Quota::new(50, Duration::from_nanos(1_000))).unwrap();
    for cost in [1, 50] {
        let (_, foreign) = bucket.decide(Word::FRESH, at(0), cost);
        assert!(foreign.charged() > 0);
        log.refund(&foreign, u64::MAX).unwrap();
    }
    assert_eq!(log.peek(&rule, at(49), 1, LATEST).unwrap().remaining(), 50);
}

#[test]
fn times_too_far_apart_for_one_row_are_kept_in_several() {
    const DAY: u64 = 24 * 3_600 * 1_000_000_000;
    let rule = rule(1_000_000, 3_650 * DAY);
    let log = Log::new();
    let charge = |n| Tick::from_nanos(n * DAY);
    for n in 0..200 {
        assert!(
            log.check(|| Tick::ZERO, &rule, charge(n), 4_000 + n, &RETIRED, LATEST).unwrap().is_allowed()
        );
    }
    let before = chunks(&log);
    let rule = change(&log, &rule, &rule, charge(200));
    let mut held: u64 = (0..200).map(|n| 4_000 + n).sum();
    for n in 0..200 {
        assert_eq!(log.peek(&rule, charge(3_650 + n - 1), 1, LATEST).unwrap().remaining(), 1_000_000 - held);
        held -= 4_000 + n;
    }
    let chunks = chunks(&log);
    assert!((3..=before + 1).contains(&chunks), "{chunks} chunks, {before} before");
}

/// After a burst, each sparse admission ends its row early, but must not make the next row larger.
#[test]
fn sparse_admissions_take_neither_large_chunks_nor_many() {
    const HOUR: u64 = 3_600 * 1_000_000_000;
    let rule = rule(1_000_000, 3_650 * 24 * HOUR);
    let (log, _) = charged(&rule, 20_000);
    let before = log.bytes();
    assert!(before < 3 * 8 * 20_000, "{before}");
    for n in 1..2_000 {
        assert!(log.check(|| Tick::ZERO, &rule, at(3 * n * HOUR), 1, &RETIRED, LATEST).unwrap().is_allowed());
    }
    let bytes = log.bytes();
    assert!(bytes < before + 60 * 2_000, "{bytes} after {before}");
    let chunks = chunks(&log);
    assert!(chunks < 40, "{chunks} chunks");
}

#[test]
fn a_long_chain_is_freed_without_deep_recursion() {
    let fields = SlotFields::of_tokens(1);
    let chunk = |next| Chunk::with_row(Start::first(0, fields), vec![EMPTY], next);
    let next = (0..1_000_000).fold(Link::null(), |next, _| Link::to(chunk(next)));
    drop(Log { root: Root::to(chunk(next)) });
}

/// Whenever an eviction has looked at the log, the test charges and resets the log, as other
/// threads might.
#[test]
fn a_call_that_is_held_up_in_many_eras_keeps_few_chunks() {
    const TIMES: usize = 500;
    let rule = rule(100, 1_000);
    let (log, retired, times) = (Log::new(), Bag::new(), Cell::new(0));
    let charge_and_reset = || {
        for _ in 0..100 {
            let charge = log.check(|| Tick::ZERO, &rule, NOW, 1, &retired, LATEST).unwrap();
            log.refund(&charge, 1).unwrap();
        }
        log.reset(&rule, &retired).unwrap();
    };
    charge_and_reset();
    let bytes = retired.bytes();
    let forget = |_| {
        if times.get() < TIMES {
            times.set(times.get() + 1);
            charge_and_reset();
            retired.collect();
            // Guards of other tests may delay this for a while.
            let end = Instant::now() + Duration::from_secs(60);
            while retired.bytes() > 10 * bytes {
                retired.collect();
                assert!(Instant::now() < end, "{} bytes wait after {} times", retired.bytes(), times.get());
            }
        }
    };
    let sealed = log.seal_if_idle(&rule, NOW, &retired, forget, LATEST);
    assert_eq!((sealed, times.get()), (Some(true), TIMES));
}

/// The chunks before a reset are retired, even if the era of the guard ends during the reset.
#[test]
fn what_is_out_is_retired_however_often_a_walk_begins_again() {
    let rule = rule(1_000, 1_000);
    for coin in 0..50 {
        let (log, _) = charged(&rule, 1_000);
        let full = log.bytes();
        toss(coin, || log.reset(&rule, &RETIRED)).unwrap();
        let reset = log.bytes();
        assert!(full > 8_000 && reset < 500, "{reset} of {full} bytes");
    }
}

/// A random operation.
#[derive(Clone, Copy, Debug)]
enum Act {
    Charge(u64),
    Refund(usize, u64),
    Reset,
    /// A change to a quota with this limit and this period.
    Change(u64, u64),
    Evict,
}

/// A plain list of the admissions. Each entry contains the time and the tokens not given back.
struct List {
    limit: u64,
    period: u64,
    admitted: Vec<(u64, u64)>,
    time: u64,
    /// The time at which the last admission left its window before a change of the quota. A reset
    /// does not change this time.
    out: u64,
}

impl List {
    fn held(&self, now: u64) -> u64 {
        let time = now.max(self.time);
        let counts = self.admitted.iter().filter(|(at, _)| at + self.period > time);
        counts.map(|(_, tokens)| tokens).sum()
    }

    fn fits(&self, now: u64, cost: u64) -> bool {
        cost <= self.limit.saturating_sub(self.held(now))
    }

    /// Returns the time until a cost fits, which is the time until some admission leaves the
    /// window.
    fn wait(&self, now: u64, fits: impl Fn(u64) -> bool) -> u64 {
        let mut times: Vec<_> = self.admitted.iter().map(|(at, _)| at + self.period).collect();
        times.push(now);
        times.sort_unstable();
        times.into_iter().find(|at| *at >= now && fits(*at)).unwrap() - now
    }

    fn change(&mut self, limit: u64, period: u64, now: u64) {
        let time = now.max(self.time);
        let out = self.admitted.iter().map(|(at, _)| at + self.period).filter(|out| *out <= time).max();
        let old = self.period;
        self.admitted.retain(|(at, _)| at + old > time);
        self.out = self.out.max(out.unwrap_or(0));
        self.time = self.time.max(self.out);
        (self.limit, self.period) = (limit, period);
    }
}

fn agree(log: &Log, rule: &SlidingLog, list: &List, now: u64, cost: u64) -> Result<(), TestCaseError> {
    let peek = log.peek(rule, Tick::from_nanos(now), cost, LATEST).unwrap();
    prop_assert_eq!(peek.remaining(), list.limit.saturating_sub(list.held(now)));
    prop_assert_eq!(peek.is_allowed(), list.fits(now, cost));
    if cost <= list.limit {
        let wait = list.wait(now, |at| list.fits(at, cost));
        prop_assert_eq!(peek.retry_after(), Some(Duration::from_nanos(wait)));
    }
    let reset = list.wait(now, |at| list.held(at) == 0);
    prop_assert_eq!(peek.reset_after(), Duration::from_nanos(reset));
    let is_idle = list.held(now) == 0 && list.time <= now;
    prop_assert_eq!(log.is_idle(rule, Tick::from_nanos(now)), is_idle);
    Ok(())
}

fn limits() -> impl Strategy<Value = u64> {
    prop_oneof![1..30_u64, 1..200_u64, Just(1_000_000)]
}

fn periods() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1_000_u64), 1..3_000_u64, Just(1_000_000_000_000_000)]
}

fn acts() -> impl Strategy<Value = Vec<(u64, u64, Act)>> {
    let act = prop_oneof![
        12 => prop_oneof![1..4_u64, 1..60_u64, 1..1_100_000_u64].prop_map(Act::Charge),
        4 => (0..12_usize, prop_oneof![1..4_u64, Just(u64::MAX)]).prop_map(|(n, t)| Act::Refund(n, t)),
        1 => Just(Act::Reset),
        2 => (limits(), periods()).prop_map(|(limit, period)| Act::Change(limit, period)),
        1 => Just(Act::Evict),
    ];
    let forth =
        prop_oneof![4 => Just(0), 3 => 0..300_u64, 1 => 0..4_000_u64, 1 => 0..100_000_000_000_000_u64];
    let back = prop_oneof![6 => Just(0), 1 => 0..2_000_u64];
    prop::collection::vec((forth, back, act), 1..80)
}

/// Compares a log with a plain list after each operation.
fn compare(limit: u64, period: u64, acts: &[(u64, u64, Act)]) -> Result<(), TestCaseError> {
    let mut rule = rule(limit, period);
    let mut log = Log::begun(&rule);
    let mut list = List { limit, period, admitted: Vec::new(), time: 0, out: 0 };
    let mut charges: Vec<Decision> = Vec::new();
    let (mut most, mut least) = (limit, period);
    // All tokens ever admitted, excluding those given back.
    let mut all: Vec<(u64, u64)> = Vec::new();
    let mut clock = 1_000_000;
    for &(forth, back, act) in acts {
        clock += forth;
        let now = clock - back;
        let tick = Tick::from_nanos(now);
        agree(&log, &rule, &list, now, 1)?;
        match act {
            Act::Charge(cost) => {
                agree(&log, &rule, &list, now, cost)?;
                let decision = log.check(|| Tick::ZERO, &rule, tick, cost, &RETIRED, LATEST).unwrap();
                prop_assert_eq!(decision.is_allowed(), list.fits(now, cost));
                if decision.is_allowed() {
                    list.time = list.time.max(now);
                    list.admitted.push((list.time, cost));
                    all.push((list.time, cost));
                    charges.push(decision);
                    let out = list.time + list.period - now;
                    prop_assert_eq!(decision.reset_after(), Duration::from_nanos(out));
                }
            }
            Act::Refund(back, tokens) => {
                if let Some(charge) = charges.iter().rev().nth(back) {
                    let Figures::Held { until, period, .. } = charge.figures else { unreachable!() };
                    let counted = until - period;
                    log.refund(charge, tokens).unwrap();
                    for admitted in [&mut list.admitted, &mut all] {
                        let mut left = tokens.min(charge.charged());
                        for (_, held) in admitted.iter_mut().rev().filter(|(at, _)| *at == counted) {
                            let given = left.min(*held);
                            (*held, left) = (*held - given, left - given);
                        }
                    }
                }
            }
            Act::Reset => {
                log.reset(&rule, &RETIRED).unwrap();
                list.admitted.clear();
                list.time = list.out;
                all.clear();
                charges.clear();
            }
            Act::Change(limit, period) => {
                let new = self::rule(limit, period);
                let held = list.held(now);
                let new = change(&log, &rule, &new, tick);
                log.change(|| false);
                let raised = limit >= list.limit && period <= list.period;
                list.change(limit, period, now);
                prop_assert!(!raised || list.held(now) <= held);
                rule = new;
                (most, least) = (most.max(limit), least.min(period));
            }
            Act::Evict => {
                let is_idle = list.held(now) == 0 && list.time <= now;
                prop_assert_eq!(is_sealed_at(&log, &rule, tick), is_idle);
                if is_idle {
                    rule = rule.with_past(Past::NONE);
                    log = Log::begun(&rule);
                    list.admitted.clear();
                    (list.time, list.out) = (0, 0);
                    // The eviction mark covers all times earlier than this.
                    clock = clock.max(now + 4_000);
                }
            }
        }
        agree(&log, &rule, &list, now, 1)?;
    }
    // No change of quota admits more than the larger limit.
    for (first, (from, _)) in all.iter().enumerate() {
        let within = all[first..].iter().filter(|(at, _)| at - from < least);
        prop_assert!(within.map(|(_, tokens)| tokens).sum::<u64>() <= most);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changes_of_quota_decide_as_a_plain_list(limit in limits(), period in periods(), acts in acts()) {
        compare(limit, period, &acts)?;
    }
}

/// The charge of 4 does not fit into the chunk created by the reset, so another chunk is created.
#[test]
fn what_a_reset_has_wiped_is_not_the_last_that_was_out() {
    let acts = [
        (0, 0, Act::Charge(1)),
        (0, 0, Act::Reset),
        (0, 0, Act::Change(30, 1_000)),
        (3, 0, Act::Charge(4)),
        (0, 0, Act::Change(1, 1_000)),
        (213, 0, Act::Charge(1)),
        (784, 0, Act::Charge(1)),
        (0, 0, Act::Change(1, 1)),
        (0, 1, Act::Charge(1)),
    ];
    compare(3, 1_000, &acts).unwrap();
}
