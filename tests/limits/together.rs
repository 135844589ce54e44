//! Compares several limits that are charged together with a plain count for each limit.

use proptest::prelude::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;
use tollgate::store::ExactKeys;
use tollgate::{
    Algorithm, Charge, Chargeable, Decision, DecisionSource, InFlight, Limiter, ManualClock, Outcome, Quota,
    SingleLimiter, Tick, WhenFull, check_all,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn single(limit: u64, clock: &ManualClock) -> SingleLimiter {
    SingleLimiter::builder(Quota::per_hour(limit)).clock(clock).build().unwrap()
}

fn keyed(limit: u64, clock: &ManualClock) -> Limiter<u64> {
    Limiter::builder(Quota::per_hour(limit)).clock(clock).build().unwrap()
}

/// The limits of the property: one for each key, one for the key divided by two, and one for all
/// keys. Each limit may have any algorithm. They are looked at in different ways.
struct Limits(Limiter<u64>, Half, SingleLimiter);

enum Half {
    Fingerprints(Box<Limiter<u64>>),
    Exact(Box<Limiter<u64, ExactKeys<u64>>>),
}

impl Limits {
    fn new(algorithms: [Algorithm; 3], is_exact: bool, clock: &ManualClock) -> Self {
        let builder = |nth: usize| {
            Limiter::<u64>::builder(Quota::per_hour(LIMITS[nth])).algorithm(algorithms[nth]).clock(clock)
        };
        let half = match is_exact {
            true => Half::Exact(Box::new(builder(1).exact_keys().build().unwrap())),
            false => Half::Fingerprints(Box::new(builder(1).build().unwrap())),
        };
        let all = SingleLimiter::builder(Quota::per_hour(LIMITS[2])).algorithm(algorithms[2]);
        Self(builder(0).build().unwrap(), half, all.clock(clock).build().unwrap())
    }
}

fn algorithms() -> impl Strategy<Value = [Algorithm; 3]> {
    prop::array::uniform3(prop::sample::select(&Algorithm::PACKED[..]))
}

/// A request to the three limits of the property: a key, and a cost for each limit.
#[derive(Clone, Debug)]
struct Request {
    key: u64,
    costs: [u64; 3],
    order: usize,
    shadow: Option<usize>,
    given_back: bool,
}

fn request() -> impl Strategy<Value = Request> {
    let costs = prop::array::uniform3(0..6_u64);
    (0..3_u64, costs, 0..6_usize, prop::option::weighted(0.2, 0..3_usize), prop::bool::weighted(0.2))
        .prop_map(|(key, costs, order, shadow, given_back)| Request { key, costs, order, shadow, given_back })
}

/// Returns the index of the binding charge, whose decision becomes the error's decision.
fn binding(charges: &mut [Charge<'_>]) -> Option<usize> {
    let denied = check_all(charges).err()?;
    let index = denied.index().expect("several limits were asked");
    assert_eq!(Some(&denied.decision()), charges[index].decision());
    Some(index)
}

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
const LIMITS: [u64; 3] = [5, 12, 20];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    // Time stands still, so each state is a count.
    #[test]
    fn all_are_charged_or_none_in_whatever_order(
        algorithms in algorithms(),
        is_exact in prop::bool::weighted(0.2),
        requests in prop::collection::vec(request(), 1..60),
    ) {
        let clock = ManualClock::new();
        let Limits(by_key, by_half, global) = &Limits::new(algorithms, is_exact, &clock);
        let mut taken: HashMap<(usize, u64), u64> = HashMap::new();
        for Request { key, costs, order, shadow, given_back } in requests {
            let half = key / 2;
            let key_gate = by_key.for_key(&key);
            let half_gate: Box<dyn Chargeable + '_> = match by_half {
                Half::Fingerprints(limiter) => Box::new(limiter.for_key(&half)),
                Half::Exact(limiter) => Box::new(limiter.for_key(&half)),
            };
            let gates: [&dyn Chargeable; 3] = [&key_gate, &half_gate, global];
            let states = [(0, key), (1, half), (2, 0)];
            let order = ORDERS[order];
            let mut parts = order.map(|limit| {
                let part = Charge::new(gates[limit], costs[limit]);
                if shadow == Some(limit) { part.shadow() } else { part }
            });
            let left = |taken: &HashMap<_, _>, limit: usize| {
                LIMITS[limit] - taken.get(&states[limit]).copied().unwrap_or(0)
            };
            let fits = |taken: &HashMap<_, _>, limit: usize| costs[limit] <= left(taken, limit);
            let enforced = |limit: usize| shadow != Some(limit);
            let refused = (0..3).any(|limit| enforced(limit) && !fits(&taken, limit));

            let before = taken.clone();
            let binding = binding(&mut parts);
            prop_assert_eq!(binding.is_some(), refused);
            for (part, &limit) in parts.iter().zip(&order) {
                let decision = part.decision().unwrap();
                prop_assert_eq!(decision.is_allowed(), fits(&before, limit));
                let charged = !refused && fits(&before, limit);
                if charged {
                    *taken.entry(states[limit]).or_default() += costs[limit];
                }
                // A refusal reports the figures from before the charge.
                prop_assert_eq!(decision.remaining(), left(&taken, limit));
            }
            if let Some(index) = binding {
                let wait = |index: usize| parts[index].decision().unwrap().retry_after().unwrap_or(Duration::MAX);
                prop_assert!(enforced(order[index]) && !fits(&before, order[index]));
                let others = (0..3).filter(|&index| enforced(order[index]) && !fits(&before, order[index]));
                prop_assert!(others.map(wait).all(|other| other <= wait(index)));
            }
            if given_back {
                for part in &mut parts {
                    part.refund();
                    part.refund();
                }
                taken = before;
            }
            for (limit, gate) in gates.iter().enumerate() {
                prop_assert_eq!(gate.peek_n(0).remaining(), left(&taken, limit));
            }
        }
    }
}

/// An event for two limits that differ only in the way in which they are asked.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The clock advances, or is set back.
    SetClock {
        milliseconds: u64,
    },
    /// Requests tokens for a key, and gives some of them back, either now or after the next event.
    Ask {
        key: u64,
        cost: u64,
        back: u64,
        is_late: bool,
    },
    Reset {
        key: u64,
    },
    Clear,
    SetQuota {
        tokens: u64,
    },
    SetKeyQuota {
        key: u64,
        tokens: Option<u64>,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let ask = (0..3_u64, 0..7_u64, 0..7_u64, any::<bool>());
    prop_oneof![
        8 => ask.prop_map(|(key, cost, back, is_late)| Event::Ask { key, cost, back, is_late }),
        4 => (0..5_000_u64).prop_map(|milliseconds| Event::SetClock { milliseconds }),
        1 => (0..3_u64).prop_map(|key| Event::Reset { key }),
        1 => Just(Event::Clear),
        1 => (1..9_u64).prop_map(|tokens| Event::SetQuota { tokens }),
        1 => (0..3_u64, prop::option::of(1..9_u64)).prop_map(|(key, tokens)| Event::SetKeyQuota { key, tokens }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The answers have the same times and figures, and the charges can be refunded in the same
    /// way.
    #[test]
    fn a_charge_together_is_that_of_a_check(
        algorithm in prop::sample::select(&Algorithm::PACKED[..]),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let clock = ManualClock::new();
        let quota = |tokens| Quota::new(tokens, Duration::from_secs(1));
        let keyed = || -> Limiter<u64> {
            let builder = Limiter::builder(quota(5)).algorithm(algorithm).clock(&clock);
            builder.grace(Duration::from_millis(100)).build().unwrap()
        };
        let all = || {
            let builder = SingleLimiter::builder(quota(5)).algorithm(algorithm);
            builder.clock(&clock).build().unwrap()
        };
        let (alone, together) = ((keyed(), all()), (keyed(), all()));
        let settle = |alone_or_together: &(Limiter<u64>, SingleLimiter), key: u64, charges: [Decision; 2], back| {
            alone_or_together.0.refund_n(&key, &charges[0], back);
            alone_or_together.1.refund_n(&charges[1], back);
        };
        let mut open: Option<(u64, [Decision; 2], [Decision; 2], u64)> = None;
        for event in events {
            let late = open.take();
            match event {
                Event::SetClock { milliseconds } => {
                    clock.set(Tick::ZERO + Duration::from_millis(milliseconds));
                }
                Event::Ask { key, cost, back, is_late } => {
                    let of_alone = [alone.0.check_n(&key, cost), alone.1.check_n(cost)];
                    let key_limit = together.0.for_key(&key);
                    let of_together = [&key_limit as &dyn Chargeable, &together.1].map(|limit| {
                        let mut charges = [Charge::new(limit, cost)];
                        let _ = check_all(&mut charges);
                        *charges[0].decision().unwrap()
                    });
                    let figures = |charges: [Decision; 2]| format!("{charges:?}");
                    prop_assert_eq!(figures(of_together), figures(of_alone));
                    match is_late {
                        true => open = Some((key, of_alone, of_together, back)),
                        false => {
                            settle(&alone, key, of_alone, back);
                            settle(&together, key, of_together, back);
                        }
                    }
                }
                Event::Reset { key } => for limits in [&alone, &together] {
                    limits.0.reset(&key);
                    limits.1.reset();
                },
                Event::Clear => for limits in [&alone, &together] {
                    limits.0.clear();
                },
                Event::SetQuota { tokens } => for limits in [&alone, &together] {
                    limits.0.set_quota(quota(tokens)).unwrap();
                    limits.1.set_quota(quota(tokens)).unwrap();
                },
                Event::SetKeyQuota { key, tokens } => for limits in [&alone, &together] {
                    limits.0.set_key_quota(&key, tokens.map(quota)).unwrap();
                },
            }
            if let Some((key, of_alone, of_together, back)) = late {
                settle(&alone, key, of_alone, back);
                settle(&together, key, of_together, back);
            }
            for key in 0..3 {
                let figures = |limits: &(Limiter<u64>, SingleLimiter)| {
                    format!("{:?} {:?}", limits.0.peek(&key), limits.1.peek())
                };
                prop_assert_eq!(figures(&together), figures(&alone), "{:?}", event);
            }
        }
    }
}

#[test]
fn no_limits_at_all_refuse_nothing() {
    assert_eq!(binding(&mut []), None);
}

#[test]
fn the_limit_with_the_longest_wait_binds_and_never_is_the_longest() {
    let clock = ManualClock::new();
    let (fast, slow) = (
        SingleLimiter::builder(Quota::per_minute(1)).clock(&clock).build().unwrap(),
        SingleLimiter::builder(Quota::per_hour(1)).clock(&clock).build().unwrap(),
    );
    assert!(fast.check().is_allowed() && slow.check().is_allowed());
    let ask = |fast_cost| {
        let mut parts = [Charge::new(&fast, fast_cost), Charge::new(&slow, 1)];
        let binding = binding(&mut parts);
        (binding, parts.map(|part| part.decision().unwrap().retry_after()))
    };
    assert_eq!(ask(1), (Some(1), [Some(HOUR / 60), Some(HOUR)]));
    assert_eq!(ask(2), (Some(0), [None, Some(HOUR)]));
    clock.advance(HOUR / 60);
    assert_eq!(ask(1), (Some(1), [Some(Duration::ZERO), Some(HOUR - HOUR / 60)]));
}

#[test]
fn of_several_that_wait_as_long_the_first_binds() {
    let clock = ManualClock::new();
    let limits = [1, 1, 1].map(|limit| single(limit, &clock));
    let ask = || binding(&mut limits.each_ref().map(|limit| Charge::new(limit, 1)));
    assert_eq!((ask(), ask()), (None, Some(0)));
}

#[test]
fn a_client_that_is_denied_by_any_limit_writes_nothing() {
    let clock = ManualClock::new();
    let (first, second) = (single(2, &clock), single(1, &clock));
    assert!(second.check().is_allowed());
    clock.advance(Duration::from_secs(1));
    for _ in 0..10 {
        assert_eq!(binding(&mut [Charge::new(&first, 1), Charge::new(&second, 1)]), Some(1));
        // The key is like a new one. It has not even had a charge that was given back.
        assert!(first.is_idle());
    }
}

/// Limits that are not looked at are peeked: exact keys, and all limits after the first few.
#[test]
fn a_denial_by_a_limit_that_is_not_looked_at_writes_nothing() {
    let clock = ManualClock::new();
    let exact = |limit| -> Limiter<u64, ExactKeys<u64>> {
        let builder = Limiter::builder(Quota::per_hour(limit)).clock(&clock);
        builder.exact_keys().build().unwrap()
    };
    for before in [0, 1, 8] {
        let others: Vec<SingleLimiter> = (0..before).map(|_| single(1, &clock)).collect();
        let (charged, denying) = (exact(2), exact(1));
        assert!(denying.check(&7).is_allowed());
        let keys = (charged.for_key(&7), denying.for_key(&7));
        let mut charges: Vec<Charge<'_>> = others.iter().map(|limit| Charge::new(limit, 1)).collect();
        charges.extend([Charge::new(&keys.0, 1), Charge::new(&keys.1, 1)]);
        assert_eq!(binding(&mut charges), Some(before + 1));
        // If the key had been charged, it would still be here, even after a refund.
        assert!(charged.is_empty(), "{before} others");
    }
}

/// A limit that answers a peek and a charge differently, as after a lost race.
struct Fickle<'g>(&'g SingleLimiter);

impl Chargeable for Fickle<'_> {
    fn check_n(&self, _cost: u64) -> Decision {
        self.0.check_n(2)
    }

    fn peek_n(&self, _cost: u64) -> Decision {
        self.0.peek()
    }

    fn refund_n(&self, _charge: &Decision, _tokens: u64) {
        panic!("nothing was charged");
    }
}

#[test]
fn what_was_charged_before_a_lost_race_is_given_back() {
    let clock = ManualClock::new();
    let (first, second, lost) = (single(3, &clock), single(3, &clock), single(1, &clock));
    let fickle = Fickle(&lost);
    let mut parts = [
        Charge::new(&first, 1),
        Charge::new(&second, 2),
        Charge::new(&fickle, 1),
        Charge::new(&second, 1).shadow(),
    ];
    assert_eq!(binding(&mut parts), Some(2));
    assert_eq!((first.peek().remaining(), second.peek().remaining()), (3, 3));
    let remaining = parts.map(|part| part.decision().unwrap().remaining());
    assert_eq!(remaining, [3, 3, 1, 3]);
}

#[test]
fn what_the_full_policy_answers_counts_as_any_answer() {
    let clock = ManualClock::new();
    let build = |full| -> Limiter<u64> {
        Limiter::builder(Quota::per_hour(9)).max_keys(1).when_full(full).clock(&clock).build().unwrap()
    };
    for (full, expected) in [(WhenFull::Deny, Some(1)), (WhenFull::Allow, None), (WhenFull::Share, None)] {
        let (limiter, all) = (build(full), single(9, &clock));
        assert!(limiter.check(&1).is_allowed());
        let key = limiter.for_key(&2);
        let mut parts = [Charge::new(&all, 1), Charge::new(&key, 1)];
        assert_eq!(binding(&mut parts), expected, "{full:?}");
        assert_ne!(parts[1].decision().unwrap().source(), DecisionSource::Key);
        assert_eq!(all.peek().remaining(), if expected.is_none() { 8 } else { 9 });
        assert_eq!(limiter.stats().refused, 1, "{full:?}");
    }
}

/// All limits but the first are peeked at before any of them is charged. The peek must let a new
/// key look for the place of an idle key.
#[test]
fn a_full_table_makes_room_for_new_keys_of_several_limits() {
    const KEYS: u64 = 8_192;
    let clock = ManualClock::new();
    let quota = Quota::new(24, 24 * HOUR).burst(24);
    let limiter: Limiter<u64> =
        Limiter::builder(quota).max_keys(8_192).when_full(WhenFull::Deny).clock(&clock).build().unwrap();
    // Eight keys are idle after an hour. The others stay throttled.
    for key in 0..KEYS {
        let cost = if key % 1_024 == 0 { 1 } else { 24 };
        assert!(limiter.check_n(&key, cost).is_allowed());
    }
    clock.advance(2 * HOUR);
    let all = single(1_000, &clock);
    let is_admitted = |key: u64| {
        let key = limiter.for_key(&key);
        binding(&mut [Charge::new(&all, 1), Charge::new(&key, 1)]).is_none()
    };
    let refused = (KEYS..2 * KEYS).take_while(|&key| !is_admitted(key)).count();
    assert!(refused <= 8_192 / 64 + 8, "{refused}");
}

/// The keys of a full limiter stay the same for a month, and then new keys arrive. Only an
/// insertion finds out that the old keys may be evicted, because a single time so far ahead is not
/// believed.
#[test]
fn new_keys_replace_old_ones_after_a_month_in_check_all() {
    const KEYS: usize = 100;
    fn count<'l, C: Chargeable + 'l>(clock: &ManualClock, limit_of: impl Fn(&'l u64) -> C, keys: &'l [u64]) {
        let all = single(1_000_000, clock);
        let refused = |keys: &'l [u64]| {
            let is_refused = |key: &&'l u64| {
                let limit = limit_of(key);
                binding(&mut [Charge::new(&all, 1), Charge::new(&limit, 1)]).is_some()
            };
            keys.iter().filter(is_refused).count()
        };
        let (old, new) = keys.split_at(keys.len() / 2);
        clock.advance(Duration::from_secs(1));
        assert_eq!(refused(old), 0);
        clock.advance(31 * 24 * HOUR);
        let refused = refused(new);
        assert!(refused <= 8, "{refused}");
        assert_eq!(all.peek().remaining(), 1_000_000 - (new.len() - refused) as u64);
    }
    let keys: Vec<u64> = (0..2 * KEYS as u64).collect();
    for when_full in [WhenFull::Deny, WhenFull::Share] {
        let clock = ManualClock::new();
        let builder = || {
            let builder = Limiter::<u64>::builder(Quota::per_hour(1)).max_keys(KEYS);
            builder.when_full(when_full).clock(&clock)
        };
        let limiter = builder().build().unwrap();
        count(&clock, |key| limiter.for_key(key), &keys);
        let limiter = builder().exact_keys().build().unwrap();
        count(&clock, |key| limiter.for_key(key), &keys);
        let builder = InFlight::<u64>::builder(1).max_keys(KEYS).when_full(when_full).clock(&clock);
        let limiter = builder.build().unwrap();
        count(&clock, |key| limiter.empty_permit(key), &keys);
    }
}

/// An insertion that finds room may be followed by the denial of another limit.
#[test]
fn a_key_that_found_room_is_not_charged_if_another_limit_denies() {
    let clock = ManualClock::new();
    let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(9))
        .max_keys(1)
        .when_full(WhenFull::Deny)
        .clock(&clock)
        .build()
        .unwrap();
    assert!(limiter.check(&1).is_allowed());
    clock.advance(31 * 24 * HOUR);
    let (all, denying) = (single(9, &clock), single(1, &clock));
    assert!(denying.check().is_allowed());
    let key = limiter.for_key(&2);
    for _ in 0..10 {
        let denied = binding(&mut [Charge::new(&all, 1), Charge::new(&key, 1), Charge::new(&denying, 1)]);
        assert!(denied.is_some());
    }
    assert_eq!(limiter.peek(&2).source(), DecisionSource::Key, "the key found room");
    assert_eq!((limiter.peek(&2).remaining(), all.peek().remaining()), (9, 9));
}

#[test]
fn a_cost_above_a_capacity_is_never_allowed_and_charges_nobody() {
    let clock = ManualClock::new();
    let (wide, narrow) = (single(10, &clock), single(3, &clock));
    let mut parts = [Charge::new(&wide, 4), Charge::new(&narrow, 4)];
    assert_eq!(binding(&mut parts), Some(1));
    assert_eq!(parts[1].decision().unwrap().outcome(), Outcome::TooCostly);
    assert!(wide.is_idle());
}

/// Threads ask both limits in opposite orders. The charges equal the admitted requests and never
/// exceed a limit, and no token is lost.
#[test]
fn races_admit_no_more_than_any_limit_and_lose_nothing() {
    const EACH: u64 = 2_000;
    for algorithm in Algorithm::PACKED {
        let clock = ManualClock::new();
        let limit = |limit| {
            let builder = SingleLimiter::builder(Quota::per_hour(limit)).algorithm(algorithm).clock(&clock);
            builder.build().unwrap()
        };
        let (one, two) = (limit(1_500), limit(1_000));
        let ask = |forward: bool| {
            let ask = |_: &u64| {
                let mut parts = [Charge::new(&one, 1), Charge::new(&two, 1)];
                if !forward {
                    parts.reverse();
                }
                check_all(&mut parts).is_ok()
            };
            (0..EACH).filter(ask).count() as u64
        };
        let admitted: u64 = thread::scope(|scope| {
            let threads = [true, false, true].map(|forward| scope.spawn(move || ask(forward)));
            threads.map(|thread| thread.join().unwrap()).iter().sum()
        });
        assert!(admitted <= 1_000, "{algorithm}: {admitted}");
        // Refusals may have crossed, but their tokens were returned.
        assert_eq!((one.peek().remaining(), two.peek().remaining()), (1_500 - admitted, 1_000 - admitted));
        let rest = (0..EACH).filter(|_| check_all(&mut [Charge::new(&one, 1), Charge::new(&two, 1)]).is_ok());
        assert_eq!(rest.count() as u64, 1_000 - admitted, "{algorithm}");
    }
}

#[test]
fn a_charge_is_given_back_in_part_once() {
    let clock = ManualClock::new();
    let (limiter, other) = (keyed(9, &clock), single(9, &clock));
    let key = limiter.for_key(&7);
    let mut charges = [Charge::new(&key, 5), Charge::new(&other, 5)];
    charges[0].refund_n(5);
    assert_eq!(binding(&mut charges), None);
    for _ in 0..2 {
        charges[0].refund_n(3);
        charges[1].refund();
    }
    assert_eq!((limiter.peek(&7).remaining(), other.peek().remaining()), (7, 9));
}

/// A limit that runs a function between the look at the limit and its charge.
struct Between<'l, C, F>(&'l C, F);

impl<C: Chargeable, F: Fn()> Chargeable for Between<'_, C, F> {
    fn check_n(&self, cost: u64) -> Decision {
        self.0.check_n(cost)
    }

    fn peek_n(&self, cost: u64) -> Decision {
        self.0.peek_n(cost)
    }

    fn look<'m>(&'m self, cost: u64, look: &mut tollgate::Look<'m>) {
        self.0.look(cost, look);
        (self.1)();
    }

    fn refund_n(&self, charge: &Decision, tokens: u64) {
        self.0.refund_n(charge, tokens);
    }
}

/// The observed state is charged only if it is unchanged.
#[test]
fn a_charge_between_a_look_and_its_charge_counts() {
    for algorithm in Algorithm::PACKED {
        let clock = ManualClock::new();
        let limit = |limit| -> Limiter<u64> {
            let builder = Limiter::builder(Quota::per_hour(limit)).algorithm(algorithm);
            builder.clock(&clock).build().unwrap()
        };
        let (first, raced) = (limit(9), limit(3));
        let (first_key, raced_key) = (first.for_key(&7), raced.for_key(&7));
        assert!(first_key.check_n(1).is_allowed() && raced_key.check_n(1).is_allowed());
        let between = Between(&raced_key, || assert!(raced.check(&7).is_allowed()));
        assert_eq!(binding(&mut [Charge::new(&first_key, 1), Charge::new(&between, 1)]), None, "{algorithm}");
        assert_eq!((first.peek(&7).remaining(), raced.peek(&7).remaining()), (7, 0), "{algorithm}");
        raced.set_quota(Quota::per_hour(4)).unwrap();
        assert_eq!(
            binding(&mut [Charge::new(&first_key, 1), Charge::new(&between, 1)]),
            Some(1),
            "{algorithm}: the last token is gone"
        );
        assert_eq!((first.peek(&7).remaining(), raced.peek(&7).remaining()), (7, 0), "{algorithm}");
    }
}

#[test]
fn a_change_of_quota_between_a_look_and_its_charge_counts() {
    for algorithm in Algorithm::PACKED {
        let clock = ManualClock::new();
        let builder = Limiter::builder(Quota::per_hour(9)).algorithm(algorithm).clock(&clock);
        let each: Limiter<u64> = builder.build().unwrap();
        let all = SingleLimiter::builder(Quota::per_hour(9)).algorithm(algorithm).clock(&clock);
        let all = all.build().unwrap();
        let key = each.for_key(&7);
        assert!(key.check_n(1).is_allowed() && all.check().is_allowed());
        for quota in [5, 4] {
            let lower = || each.set_quota(Quota::per_hour(quota)).unwrap();
            let (key, all_too) =
                (Between(&key, lower), Between(&all, || all.set_quota(Quota::per_hour(quota)).unwrap()));
            assert_eq!(binding(&mut [Charge::new(&key, 1), Charge::new(&all_too, 1)]), None, "{algorithm}");
        }
        // Three tokens were charged. A window carries over its count, and a bucket carries over its
        // missing tokens.
        let left = [each.peek(&7), all.peek()].map(|answer| (answer.capacity(), answer.remaining()));
        assert_eq!(left, [(4, 1); 2], "{algorithm}");
    }
}

/// This also holds for more limits than are looked at together.
#[test]
fn many_limits_are_charged_all_or_none() {
    for denying in 0..20 {
        let clock = ManualClock::new();
        let limits: Vec<SingleLimiter> =
            (0..20).map(|nth| single(if nth == denying { 2 } else { 9 }, &clock)).collect();
        let ask = || {
            let mut charges: Vec<Charge<'_>> = limits.iter().map(|limit| Charge::new(limit, 1)).collect();
            let binding = binding(&mut charges);
            assert!(charges.iter().all(|charge| charge.decision().is_some()));
            binding
        };
        assert_eq!([ask(), ask(), ask(), ask()], [None, None, Some(denying), Some(denying)]);
        for (nth, limit) in limits.iter().enumerate() {
            assert_eq!(limit.peek().remaining(), if nth == denying { 0 } else { 7 });
        }
    }
}

/// Charges can be asked again, whichever limit denies, and whether or not that limit is looked at.
#[test]
fn charges_may_be_asked_again() {
    for denying in 0..3 {
        let clock = ManualClock::new();
        let left = |nth: usize| if nth == denying { 2 } else { 3 };
        let exact: Limiter<u64, ExactKeys<u64>> =
            Limiter::builder(Quota::per_hour(left(1))).clock(&clock).exact_keys().build().unwrap();
        let (first, second, third) = (single(left(0), &clock), exact.for_key(&7), single(left(2), &clock));
        let limits: [&dyn Chargeable; 3] = [&first, &second, &third];
        let mut charges = limits.map(|limit| Charge::new(limit, 1));
        assert_eq!([(); 3].map(|()| binding(&mut charges)), [None, None, Some(denying)]);
        // Nothing of the last request was charged, so nothing is given back.
        charges.iter_mut().for_each(Charge::refund);
        for (nth, limit) in limits.iter().enumerate() {
            assert_eq!(charges[nth].decision().unwrap().remaining(), left(nth) - 2, "{nth} of {denying}");
            assert_eq!(limit.peek_n(1).remaining(), left(nth) - 2, "{nth} of {denying}");
        }
    }
}

/// If a call panics, charges made by earlier calls remain as if that call had not been made.
#[test]
fn what_an_earlier_call_has_charged_is_not_given_back_after_a_panic() {
    let clock = ManualClock::new();
    let (first, second) = (single(9, &clock), single(9, &clock));
    let asked = Cell::new(0);
    let panicking = Between(&first, || {
        asked.set(asked.get() + 1);
        assert!(asked.get() < 2, "the second look panics");
    });
    let mut charges = [Charge::new(&panicking, 1), Charge::new(&second, 1)];
    assert_eq!(binding(&mut charges), None);
    assert!(catch_unwind(AssertUnwindSafe(|| check_all(&mut charges))).is_err());
    charges.iter_mut().for_each(Charge::refund);
    assert_eq!((first.peek().remaining(), second.peek().remaining()), (8, 8));
}
