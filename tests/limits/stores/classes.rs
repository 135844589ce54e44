//! Each class of callers decides like its own map that never forgets, whatever the other classes
//! do.

use super::store::{ALGORITHMS, Gate, IntoGate, Tiers};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use tollgate::kind::Sweepable;
use tollgate::rule::Refused;
use tollgate::{
    Algorithm, Builder, ClassSettings, DecisionSource, Limiter, ManualClock, Outcome, Quota, Sweeper, Tick,
    WhenFull,
};
use tollgate_testing::oracle::Oracle;
use tollgate_testing::race::{Random, StartLine};

const SECOND: u64 = 1_000_000_000;

fn base(quota: Quota, clock: &ManualClock) -> Builder<Gate<u64>> {
    Limiter::builder(quota).clock(clock).of_store()
}

/// Two classes.
type Two = [Arc<Gate<u64>>; 2];

/// Returns two plans: free callers have 2 an hour, paying callers 5 an hour.
fn two_plans() -> (Arc<Tiers<u64>>, ManualClock, Two) {
    let clock = ManualClock::new();
    let limiter = base(Quota::per_hour(2), &clock).class("paid", Quota::per_hour(5)).build().unwrap();
    let classes = two_of(&limiter);
    (Arc::new(limiter), clock, classes)
}

/// Returns the default class, and the paid class.
fn two_of(limiter: &Tiers<u64>) -> Two {
    [limiter.default_class(), limiter.class("paid").unwrap()].map(Arc::clone)
}

#[test]
fn a_class_judges_by_its_own_quota_and_algorithm() {
    for &algorithm in ALGORITHMS {
        let clock = ManualClock::new();
        let settings = ClassSettings::from(Quota::per_second(3)).algorithm(algorithm);
        let limiter = base(Quota::per_hour(1), &clock).class("other", settings).build().unwrap();
        let other = limiter.class("other").unwrap();
        let alone: Gate<u64> =
            Limiter::builder(Quota::per_second(3)).algorithm(algorithm).clock(&clock).gate();
        for step in 0..40 {
            clock.advance(Duration::from_millis(100 * (step % 4)));
            let (decision, expected) = (other.check(&7), alone.check(&7));
            assert_eq!(decision.outcome(), expected.outcome(), "{algorithm}, step {step}");
            assert_eq!(decision.remaining(), expected.remaining(), "{algorithm}, step {step}");
        }
        assert_eq!(limiter.default_class().check(&7).capacity(), 1);
    }
}

#[test]
fn a_key_that_changes_its_class_begins_anew_and_finds_what_it_used() {
    let (limiter, clock, [free, paid]) = two_plans();
    let ask = |class: &Gate<u64>| class.check(&7).is_allowed();
    let (free, paid) = (&*free, &*paid);
    assert_eq!([free, free, free].map(ask), [true, true, false]);
    assert_eq!([paid; 6].map(ask), [true, true, true, true, true, false], "it begins anew");
    assert!(!ask(free), "it finds what it used");
    clock.advance(Duration::from_secs(1_800));
    assert_eq!(free.peek(&7).remaining(), 1, "and what has come back");
    // Both classes have forgotten the key, so both treat it as a new key.
    clock.advance(Duration::from_secs(7_200));
    limiter.sweep_while(&|| true);
    assert_eq!(limiter.stats().keys, 0);
    assert_eq!(
        ([free; 3].map(ask), [paid; 6].map(ask).map(u8::from)),
        ([true, true, false], [1, 1, 1, 1, 1, 0])
    );
}

#[test]
fn a_refund_through_another_class_gives_back_nothing() {
    // The quotas are equal, so the charge would also fit the other class.
    let builder = base(Quota::per_hour(2), &ManualClock::new());
    let limiter = builder.class("paid", Quota::per_hour(2)).build().unwrap();
    let [free, paid] = two_of(&limiter);
    let [taken, charge] = [&free, &paid].map(|class| class.check_n(&7, 2));
    assert!(taken.is_allowed() && charge.is_allowed());
    free.refund(&7, &charge);
    let left = || [&free, &paid].map(|class| class.peek(&7).remaining());
    assert_eq!(left(), [0, 0]);
    paid.refund(&7, &charge);
    assert_eq!(left(), [0, 2]);
}

#[test]
fn resets_and_new_quotas_of_a_class_leave_the_others_alone() {
    let (limiter, _clock, [free, paid]) = two_plans();
    let left = || [&free, &paid].map(|class| class.peek(&7).remaining());
    for class in [&free, &paid] {
        assert!(class.check_n(&7, 2).is_allowed());
    }
    assert_eq!(left(), [0, 3]);
    paid.set_quota(Quota::per_hour(9)).unwrap();
    assert_eq!(left(), [0, 7], "what is taken stays taken, and only of this class");
    assert_eq!(free.quota(), Quota::per_hour(2));
    free.reset(&7);
    assert_eq!(left(), [2, 7]);
    paid.set_key_quota(&7, Quota::per_hour(1)).unwrap();
    assert_eq!([&free, &paid].map(|class| class.peek(&7).capacity()), [2, 1]);
    for class in [&free, &paid] {
        assert!(class.check_n(&8, 2).is_allowed());
    }
    limiter.clear();
    assert_eq!([&free, &paid].map(|class| class.peek(&8).remaining()), [2, 9]);
}

#[test]
fn a_flood_in_one_class_takes_no_places_of_another() {
    let clock = ManualClock::new();
    let builder = base(Quota::per_hour(1), &clock).max_keys(300).when_full(WhenFull::Deny);
    let paid = ClassSettings::from(Quota::per_hour(1)).max_keys(100);
    let limiter = builder.class("paid", paid).build().unwrap();
    let [free, paid] = two_of(&limiter);
    let admitted = |class: &Gate<u64>| (0..1_000_u64).filter(|key| class.check(key).is_allowed()).count();
    assert_eq!([&*free, &*paid].map(admitted), [200, 100]);
    let (stats, each) = (limiter.stats(), [&free, &paid].map(|class| class.stats()));
    assert_eq!((stats.keys, stats.max_keys, stats.refused), (300, 300, 800 + 900));
    assert_eq!((stats.turnovers, stats.evicted), (each[0].turnovers + each[1].turnovers, 0));
    assert!(stats.room == each[0].room + each[1].room && stats.own_quotas == 0);
    assert!(stats.bytes > each[0].bytes + each[1].bytes);
    clock.advance(Duration::from_secs(3_602));
    limiter.sweep_while(&|| true);
    assert_eq!((limiter.stats().keys, limiter.stats().evicted), (0, 300));
    paid.set_key_quota(&7, Quota::per_hour(2)).unwrap();
    assert_eq!(limiter.stats().own_quotas, 1);
}

/// The cap holds for all classes together, for any shares.
#[test]
fn shares_add_up_to_the_cap() {
    let shares = |max_keys: usize, given: &[Option<usize>]| {
        let one = Quota::per_hour(1);
        let mut builder = base(one, &ManualClock::new()).max_keys(max_keys).class("0", one);
        for (place, share) in (1..).zip(given) {
            let settings = ClassSettings::from(one);
            let settings = share.map_or(settings, |share| settings.max_keys(share));
            builder = builder.class(place.to_string(), settings);
        }
        let shares = |limiter: Tiers<u64>| -> Vec<usize> {
            limiter.classes().map(|(_, class)| class.stats().max_keys).collect()
        };
        builder.build().map(shares)
    };
    assert_eq!(shares(100, &[]), Ok(vec![50, 50]));
    assert_eq!(shares(101, &[None]), Ok(vec![35, 33, 33]));
    assert_eq!(shares(101, &[Some(1)]), Ok(vec![50, 50, 1]));
    assert_eq!(shares(3, &[Some(1)]), Ok(vec![1, 1, 1]));
    let refused = Err(Refused::ClassKeys { max_keys: 2, classes: 3, least: 3 }.into());
    assert_eq!(shares(2, &[Some(1)]), refused);
    let refused = Err(Refused::ClassKeys { max_keys: 9, classes: 4, least: usize::MAX }.into());
    assert_eq!(shares(9, &[Some(usize::MAX), Some(2)]), refused);
    // This is the error of a limiter for no keys.
    let nothing = base(Quota::per_hour(1), &ManualClock::new()).max_keys(0).build().err().unwrap();
    let error = Box::new(nothing.refused().clone());
    assert_eq!(shares(9, &[Some(0)]), Err(Refused::Class { class: "1".to_owned(), error }.into()));
}

#[test]
fn a_name_that_no_class_has_is_told_and_the_default_class_has_one() {
    let (limiter, clock, [free, paid]) = two_plans();
    assert!(Arc::ptr_eq(limiter.class("paid").unwrap(), &paid));
    assert!(Arc::ptr_eq(limiter.class("default").unwrap(), &free));
    assert!(limiter.class("Paid").is_none() && limiter.class("").is_none());
    let builder = base(Quota::per_hour(1), &clock).class("a", Quota::per_hour(1));
    let many = builder.class("b", Quota::per_hour(1)).default_class("free").build().unwrap();
    let names: Vec<_> = many.classes().map(|(name, _)| name).collect();
    assert_eq!(names, ["free", "a", "b"]);
    assert!(Arc::ptr_eq(many.class("free").unwrap(), many.default_class()));
    assert!(many.class("default").is_none());
    assert!(format!("{limiter:?}").contains("\"paid\": Limiter {"), "{limiter:?}");
}

#[test]
fn what_a_class_cannot_be_is_refused_when_the_limiter_is_built() {
    let one = Quota::per_hour(1);
    let refused = |name: &str, settings: ClassSettings| {
        let clock = ManualClock::new();
        base(one, &clock).class("paid", one).class(name, settings).build().err().unwrap().to_string()
    };
    assert_eq!(
        refused("", one.into()),
        "invalid class name \"\" of 0 bytes; allowed: 1 to 128 bytes; name a class as your service names \
         the plan"
    );
    assert!(refused(&"n".repeat(129), one.into()).contains(" of 129 bytes; allowed: 1 to 128 bytes; "));
    assert_eq!(
        refused("paid", one.into()),
        "class \"paid\" was given two quotas; allowed: one for each name; leave one out, or give it \
         another name"
    );
    assert!(refused("default", one.into()).starts_with("class \"default\" was given two quotas"));
    assert!(refused("x", Quota::per_hour(0).into()).starts_with("class \"x\": 0 tokens would deny"));
    let burst = ClassSettings::from(one.burst(2)).algorithm(Algorithm::FixedWindow);
    assert!(refused("x", burst).starts_with("class \"x\": burst 2 has no meaning for a fixed-window"));
    assert!(base(one, &ManualClock::new()).class("n".repeat(128), one).build().is_ok());
}

/// All classes share one alignment, so at least one of them must have windows.
#[test]
fn an_alignment_needs_one_class_with_windows() {
    let one = Quota::per_hour(1);
    let build = |algorithm| {
        let builder = base(one, &ManualClock::new()).align(tollgate::WindowAlign::UnixEpoch);
        builder.class("other", ClassSettings::from(one).algorithm(algorithm)).build().err()
    };
    assert_eq!(build(Algorithm::FixedWindow), None);
    let refused = Refused::AlignUnsupported { algorithm: Algorithm::TokenBucket };
    assert_eq!(build(Algorithm::LeakyBucket), Some(refused.into()));
}

#[test]
fn a_sweeper_sweeps_all_classes() {
    let (limiter, clock, classes) = two_plans();
    for class in &classes {
        assert!(class.check(&7).is_allowed());
    }
    clock.advance(Duration::from_secs(2 * 3_600));
    let asked = AtomicU64::new(0);
    limiter.sweep_while(&|| asked.fetch_add(1, SeqCst) < 1);
    assert_eq!(limiter.stats().keys, 1, "it stopped when it was told to");
    let sweeper = Sweeper::start(Arc::clone(&limiter), Duration::from_millis(1)).unwrap();
    while limiter.stats().keys > 0 {
        thread::yield_now();
    }
    drop(sweeper);
}

/// One request of the property below.
#[derive(Clone, Debug)]
struct Step {
    class: usize,
    key: u64,
    cost: u64,
    /// The seconds since the previous request.
    after: u64,
    given_back: bool,
    swept: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let after = prop_oneof![4 => Just(0), 3 => 0..5_u64, 1 => 20..200_u64];
    (0..3_usize, 0..12_u64, 0..5_u64, after, prop::bool::weighted(0.15), prop::bool::weighted(0.1)).prop_map(
        |(class, key, cost, after, given_back, swept)| Step { class, key, cost, after, given_back, swept },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Keys change their classes all the time, and the tables forget keys as soon as they may.
    #[test]
    fn classes_decide_as_a_map_for_each_that_never_forgets(
        algorithms in prop::array::uniform3(prop::sample::select(ALGORITHMS.to_vec())),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let quotas = [2, 4, 12].map(|tokens| Quota::new(tokens, Duration::from_secs(24)));
        let clock = ManualClock::new();
        let builder = base(quotas[0], &clock).algorithm(algorithms[0]).grace(Duration::ZERO).max_keys(30);
        let settings = |n: usize| ClassSettings::from(quotas[n]).algorithm(algorithms[n]);
        let limiter = builder.class("1", settings(1)).class("2", settings(2)).build().unwrap();
        let classes = [limiter.default_class(), limiter.class("1").unwrap(), limiter.class("2").unwrap()];
        let mut never_forgets: HashMap<(usize, u64), Oracle> = HashMap::new();
        for Step { class: n, key, cost, after, given_back, swept } in steps {
            clock.advance(Duration::from_secs(after));
            if swept {
                limiter.sweep_while(&|| true);
            }
            let class = classes[n];
            let oracle = || Oracle::new(algorithms[n], quotas[n], 0);
            let peeked = class.peek_n(&key, cost);
            let decision = class.check_n(&key, cost);
            if decision.source() == DecisionSource::Policy {
                // Each class has ten places for twelve keys.
                prop_assert!(class.len() == 10 && decision.outcome() == Outcome::Denied);
                continue;
            }
            // A peek can only guess whether the check will treat an idle key as a new one.
            if peeked.source() != DecisionSource::Policy {
                prop_assert_eq!(peeked.outcome(), decision.outcome());
            }
            let oracle = never_forgets.entry((n, key)).or_insert_with(oracle);
            let at = decision.at().as_nanos();
            let fits = oracle.fits(at, cost);
            prop_assert_eq!(decision.is_allowed(), fits, "class {} key {} cost {} at {}", n, key, cost, at);
            if fits && cost > 0 {
                oracle.charge(at, cost);
                if given_back {
                    class.refund(&key, &decision);
                    oracle.refund(oracle.charges() - 1, cost);
                }
            }
            prop_assert_eq!(class.at(Tick::from_nanos(at)).peek_n(&key, 0).remaining(), oracle.remaining(at));
        }
    }
}

/// Threads check the same keys in both classes, while a class gets new quotas and is swept. No time
/// passes, so the admissions of a key in each class are exactly its quota.
#[test]
fn racing_classes_admit_what_each_quota_allows_and_no_more() {
    const KEYS: u64 = 40;
    const THREADS: u64 = 3;
    for &algorithm in ALGORITHMS {
        let clock = ManualClock::new();
        clock.advance(Duration::from_nanos(SECOND));
        let builder = base(Quota::per_hour(20), &clock).algorithm(algorithm).grace(Duration::ZERO);
        let limiter = builder.class("paid", Quota::per_hour(50)).build().unwrap();
        let classes = two_of(&limiter);
        let counts = || -> Vec<AtomicU64> { (0..KEYS).map(|_| AtomicU64::new(0)).collect() };
        let (admitted, is_over) = ([counts(), counts()], AtomicBool::new(false));
        let line = StartLine::new(usize::try_from(THREADS).unwrap());
        thread::scope(|scope| {
            let racers: Vec<_> = (0..THREADS)
                .map(|seed| {
                    let (classes, admitted, line) = (&classes, &admitted, &line);
                    scope.spawn(move || {
                        let mut random = Random(seed);
                        line.lane().wait();
                        for _ in 0..KEYS * 400 {
                            let (n, key) = (usize::try_from(random.below(2)).unwrap(), random.below(KEYS));
                            if classes[n].check(&key).is_allowed() {
                                admitted[n][usize::try_from(key).unwrap()].fetch_add(1, SeqCst);
                            }
                        }
                    })
                })
                .collect();
            let (limiter, classes, is_over) = (&limiter, &classes, &is_over);
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    // The quota becomes larger, and smaller again: charged tokens stay charged.
                    classes[1].set_quota(Quota::per_hour(50)).unwrap();
                    limiter.sweep_while(&|| true);
                    thread::yield_now();
                }
            });
            let ended: Vec<_> = racers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            is_over.store(true, SeqCst);
            assert!(ended.iter().all(Result::is_ok));
        });
        for (counts, quota) in admitted.iter().zip([20, 50]) {
            let counts: Vec<u64> = counts.iter().map(|count| count.load(SeqCst)).collect();
            assert_eq!(counts, vec![quota; counts.len()], "{algorithm}");
        }
    }
}
