//! Tests waits that end in time, or are refused immediately.

use crate::simulation::{Simulation, Sleep, ms};
use std::cell::{Cell, RefCell};
use std::future::ready;
use std::hash::Hash;
use std::rc::Rc;
use std::time::Duration;
use tollgate::{
    Algorithm, Decision, DecisionParts, DecisionSource, Limiter, Quota, SingleLimiter, WindowAlign,
};
use tollgate_wait::{NextWaiter, Turn, WaitError, WaitQueue, Waitable};

/// An answer given to a caller, and the time at which the answer arrived.
type Answer = Option<(Result<(), WaitError>, Duration)>;

/// Returns the answer to a caller that may wait for `max_wait`, and the time at which the answer
/// arrived.
fn answer(
    simulation: &mut Simulation,
    queues: &Rc<WaitQueue<Limiter<u64>, impl Fn(Duration) -> Sleep + 'static>>,
    cost: u64,
    max_wait: Duration,
) -> Rc<Cell<Answer>> {
    answer_for(simulation, queues, 7, cost, max_wait)
}

fn answer_for<Q: Hash + 'static>(
    simulation: &mut Simulation,
    queues: &Rc<WaitQueue<impl Waitable<Q> + 'static, impl Fn(Duration) -> Sleep + 'static>>,
    key: Q,
    cost: u64,
    max_wait: Duration,
) -> Rc<Cell<Answer>> {
    let (queues, slot, clock) = (Rc::clone(queues), Rc::new(Cell::new(None)), simulation.clock.clone());
    let told = Rc::clone(&slot);
    simulation.spawn(async move {
        let result = queues.until_n_within(&key, cost, max_wait).await.map(|_| ());
        told.set(Some((result, clock.now().since(tollgate::Tick::ZERO))));
    });
    simulation.settle();
    slot
}

/// Waits behind waiters with random costs. For buckets, a refusal reports the actual wait to the
/// nanosecond. For windows, it reports at most the actual wait.
#[test]
fn the_wait_that_a_refusal_tells_is_the_wait_that_comes() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..400 {
        let mut simulation = Simulation::new(round);
        let algorithm =
            [Algorithm::TokenBucket, Algorithm::LeakyBucket, Algorithm::FixedWindow][random.usize(..3)];
        let builder = if algorithm == Algorithm::FixedWindow {
            Limiter::builder(Quota::per_second(10)).align(WindowAlign::ClockStart)
        } else {
            Limiter::builder(Quota::per_second(10).burst(6))
        };
        let limiter: Limiter<u64> =
            builder.algorithm(algorithm).clock(simulation.clock.clone()).build().unwrap();
        let queues = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()));
        simulation.run_for(Duration::from_nanos(random.u64(..3_000_000_000)));
        let _ = queues.limiter().check_n(&7, random.u64(1..=6));
        for _ in 0..random.usize(1..20) {
            let _ = answer(&mut simulation, &queues, random.u64(1..=6), Duration::MAX);
        }
        simulation.run_for(Duration::from_nanos(random.u64(..50_000_000)));

        let (came, cost) = (simulation.now(), random.u64(1..=6));
        let waiting = queues.waiting();
        let told = match answer(&mut simulation, &queues, cost, Duration::ZERO).get() {
            Some((Err(WaitError::TooLong { wait, .. }), _)) => wait,
            Some((Ok(()), _)) => continue,
            other => panic!("{other:?}"),
        };
        assert_eq!(queues.waiting(), waiting, "a refusal leaves nothing behind");
        let early = answer(&mut simulation, &queues, cost, told - Duration::from_nanos(1));
        assert!(matches!(early.get(), Some((Err(WaitError::TooLong { .. }), _))));
        let slack = if algorithm == Algorithm::FixedWindow { ms(20_000) } else { Duration::ZERO };
        let in_time = answer(&mut simulation, &queues, cost, told + slack);
        simulation.run_for(ms(30_000));
        let (result, at) = in_time.get().unwrap();
        assert_eq!(result, Ok(()), "round {round}, {algorithm}");
        if slack.is_zero() {
            assert_eq!(at - came, told, "round {round}, {algorithm}");
        } else {
            assert!(at - came >= told, "round {round}, {algorithm}");
        }
    }
}

/// Callers keep their order and wait until a pause ends, whether the pause began before or during
/// their wait.
#[test]
fn callers_wait_until_a_pause_of_their_key_has_ended() {
    let mut simulation = Simulation::new(9);
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_second(10).burst(1)).clock(simulation.clock.clone()).build().unwrap();
    let queues = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()));
    queues.limiter().pause(&7, ms(1_000)).unwrap();
    let refused = answer(&mut simulation, &queues, 1, ms(999));
    let expected = WaitError::TooLong { wait: ms(1_000), max_wait: ms(999) };
    assert_eq!(refused.get(), Some((Err(expected), Duration::ZERO)));
    let first = answer(&mut simulation, &queues, 1, Duration::MAX);
    let second = answer(&mut simulation, &queues, 1, Duration::MAX);
    simulation.run_for(ms(500));
    queues.limiter().pause(&7, ms(1_500)).unwrap();
    simulation.run_for(ms(1_499));
    assert_eq!((first.get(), second.get()), (None, None));
    simulation.run_for(ms(1));
    assert_eq!((first.get(), second.get()), (Some((Ok(()), ms(2_000))), None));
    simulation.run_for(ms(100));
    assert_eq!(second.get(), Some((Ok(()), ms(2_100))));
}

#[test]
fn a_refusal_charges_nothing_and_inserts_nothing() {
    let mut simulation = Simulation::new(8);
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_second(5)).clock(simulation.clock.clone()).build().unwrap();
    let queues = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()));
    let never = answer(&mut simulation, &queues, 6, Duration::MAX);
    let expected = WaitError::Never { cost: 6, capacity: 5 };
    assert_eq!(never.get(), Some((Err(expected), Duration::ZERO)));
    assert!(queues.limiter().is_empty());

    let _ = queues.limiter().check_n(&7, 5);
    let refused = answer(&mut simulation, &queues, 2, ms(399));
    let expected = WaitError::TooLong { wait: ms(400), max_wait: ms(399) };
    assert_eq!(refused.get(), Some((Err(expected), Duration::ZERO)));
    // A cost that can never be admitted is refused immediately, even behind other waiters.
    let _waits = answer(&mut simulation, &queues, 1, ms(200));
    let never = answer(&mut simulation, &queues, 6, Duration::MAX);
    assert_eq!(never.get(), Some((Err(WaitError::Never { cost: 6, capacity: 5 }), Duration::ZERO)));
    assert_eq!(queues.limiter().peek(&7).retry_after(), Some(ms(200)));
}

/// A caller that only checks, without waiting, may take the tokens that a waiter needs. The wait
/// then ends at its deadline.
#[test]
fn a_wait_expires_if_others_take_its_tokens() {
    let mut simulation = Simulation::new(9);
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_second(5).burst(1)).clock(simulation.clock.clone()).build().unwrap();
    let queues = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()));
    assert!(queues.limiter().check(&7).is_allowed());
    let waits = answer(&mut simulation, &queues, 1, ms(350));
    simulation.run_for(ms(199));
    simulation.clock.advance(ms(1));
    assert!(queues.limiter().check(&7).is_allowed());
    simulation.run_for(ms(1_000));
    assert_eq!(waits.get(), Some((Err(WaitError::Expired { max_wait: ms(350), in_flight: None }), ms(350))));
    assert_eq!(queues.waiting(), 0);
}

/// A wait of zero is a check that overtakes no waiter.
#[test]
fn a_wait_of_zero_respects_the_queue() {
    let mut simulation = Simulation::new(10);
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_second(10).burst(10)).clock(simulation.clock.clone()).build().unwrap();
    let queues = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()));
    assert_eq!(answer(&mut simulation, &queues, 8, Duration::ZERO).get().unwrap().0, Ok(()));
    let waits = answer(&mut simulation, &queues, 10, Duration::MAX);
    let passes = answer(&mut simulation, &queues, 1, Duration::ZERO);
    let expected = WaitError::TooLong { wait: ms(900), max_wait: Duration::ZERO };
    assert_eq!(passes.get().unwrap().0, Err(expected));
    simulation.run_for(ms(800));
    assert_eq!(waits.get(), Some((Ok(()), ms(800))));
}

#[test]
fn a_quota_of_the_key_and_a_new_quota_count() {
    let mut simulation = Simulation::new(11);
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_second(10).burst(1)).clock(simulation.clock.clone()).build().unwrap();
    limiter.set_key_quota(&7, Quota::per_second(2).burst(1)).unwrap();
    let queues = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()));
    let answers: Vec<_> = (0..3).map(|_| answer(&mut simulation, &queues, 1, Duration::MAX)).collect();
    let refused = answer(&mut simulation, &queues, 1, Duration::ZERO);
    let expected = WaitError::TooLong { wait: ms(1_500), max_wait: Duration::ZERO };
    assert_eq!(refused.get().unwrap().0, Err(expected));
    simulation.run_for(ms(2_000));
    let times: Vec<_> = answers.iter().map(|answer| answer.get().unwrap().1).collect();
    assert_eq!(times, [ms(0), ms(500), ms(1_000)]);
}

#[test]
fn one_resource_has_a_queue_without_keys() {
    let mut simulation = Simulation::new(12);
    let limiter = SingleLimiter::builder(Quota::per_second(5).burst(1))
        .clock(simulation.clock.clone())
        .build()
        .unwrap();
    let queue = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()));
    let times = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..3 {
        let (queue, times, clock) = (Rc::clone(&queue), Rc::clone(&times), simulation.clock.clone());
        simulation.spawn(async move {
            let turn = queue.until_ready(&()).await.unwrap();
            assert_eq!(turn.at(), clock.now());
            times.borrow_mut().push(turn.at().since(tollgate::Tick::ZERO));
        });
    }
    simulation.run_for(ms(1_000));
    assert_eq!(*times.borrow(), [ms(0), ms(200), ms(400)]);
}

/// A limiter whose store is sometimes unreachable. Without the store, a limiter with half of the
/// quota answers.
struct Shared {
    store: SingleLimiter,
    stand_in: SingleLimiter,
    is_away: Cell<bool>,
}

impl Shared {
    fn new(simulation: &Simulation, quota: Quota, is_away: bool) -> Self {
        let limiter = |quota| SingleLimiter::builder(quota).clock(simulation.clock.clone()).build().unwrap();
        Self { store: limiter(quota), stand_in: limiter(half(quota)), is_away: Cell::new(is_away) }
    }

    fn set_quota(&self, quota: Quota) {
        self.store.set_quota(quota).unwrap();
        self.stand_in.set_quota(half(quota)).unwrap();
    }

    fn answer(&self, cost: u64, ask: impl Fn(&SingleLimiter) -> Decision) -> Decision {
        if self.is_away.get() {
            return ask(&self.stand_in);
        }
        let answer = ask(&self.store);
        Decision::from(DecisionParts {
            outcome: answer.outcome(),
            cost,
            capacity: answer.capacity(),
            remaining: answer.remaining(),
            wait: answer.retry_after(),
            reset_after: answer.reset_after(),
            refill_after: answer.refill_after(),
            at: answer.at(),
            source: DecisionSource::Store,
        })
    }
}

fn half(quota: Quota) -> Quota {
    Quota::new(quota.tokens().div_ceil(2), quota.period()).burst(quota.capacity().div_ceil(2))
}

impl Waitable<()> for Shared {
    type Turn = Turn;

    fn take(
        &self,
        (): &(),
        cost: u64,
        _: NextWaiter<'_>,
    ) -> impl Future<Output = Result<Turn, Decision>> + Send {
        ready(self.answer(cost, |limiter| limiter.check_n(cost)).try_into())
    }

    fn peek_n(&self, (): &(), cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.answer(cost, |limiter| limiter.peek_n(cost)))
    }

    fn quota(&self, (): &()) -> Quota {
        self.store.quota()
    }

    fn quota_of(&self, (): &(), answer: &Decision) -> Quota {
        if answer.source() == DecisionSource::Store { self.store.quota() } else { self.stand_in.quota() }
    }
}

/// If a limiter with half of the quota answers, waiters wait at half of the rate, even if the sum
/// of their costs is above this limiter's capacity.
#[test]
fn the_wait_behind_a_stand_in_is_told_at_its_rate() {
    let mut random = fastrand::Rng::with_seed(13);
    for round in 0..200 {
        let mut simulation = Simulation::new(round);
        let shared = Shared::new(&simulation, Quota::per_second(10).burst(6), true);
        let queue = Rc::new(WaitQueue::with_sleep(shared, simulation.sleeper()));
        for _ in 0..random.usize(2..12) {
            let _ = answer_for(&mut simulation, &queue, (), random.u64(1..=3), Duration::MAX);
        }
        simulation.run_for(Duration::from_nanos(random.u64(..50_000_000)));
        let (came, cost) = (simulation.now(), random.u64(1..=3));
        let told = match answer_for(&mut simulation, &queue, (), cost, Duration::ZERO).get() {
            Some((Err(WaitError::TooLong { wait, .. }), _)) => wait,
            Some((Ok(()), _)) => continue,
            other => panic!("{other:?}"),
        };
        let in_time = answer_for(&mut simulation, &queue, (), cost, told);
        simulation.run_for(ms(30_000));
        assert_eq!(in_time.get(), Some((Ok(()), came + told)), "round {round}");
    }
}

/// Whatever the store and the quota do, a waiter receives `Never` only if its cost is above the
/// quota's capacity. A waiter receives `NoRetryTime` only if the store could admit the cost but the
/// store's replacement could not.
#[test]
fn never_is_told_only_where_no_state_can_pay() {
    let mut random = fastrand::Rng::with_seed(14);
    let quotas = [(10, 6), (20, 8), (4, 2), (5, 5)].map(|(rate, burst)| Quota::per_second(rate).burst(burst));
    // How many callers proceeded, received `Never`, received `NoRetryTime`, and were late.
    let told: Rc<RefCell<[u64; 4]>> = Rc::default();
    for round in 0..300 {
        let mut simulation = Simulation::new(round);
        let shared = Shared::new(&simulation, quotas[0], random.bool());
        let queue = Rc::new(WaitQueue::with_sleep(shared, simulation.sleeper()));
        for _ in 0..40 {
            let (shared, told) = (Rc::clone(&queue), Rc::clone(&told));
            let (cost, max_wait) = (random.u64(1..=8), ms(random.u64(..4_000)));
            let waits = random.bool();
            simulation.spawn(async move {
                let turn = match waits {
                    true => shared.until_n(&(), cost).await,
                    false => shared.until_n_within(&(), cost, max_wait).await,
                };
                let Shared { store, stand_in, is_away } = shared.limiter();
                let at = match turn {
                    Ok(_) => 0,
                    Err(WaitError::Never { cost: its, capacity }) => {
                        assert_eq!((its, capacity), (cost, store.quota().capacity()));
                        assert!(cost > capacity, "{cost} of {capacity}");
                        1
                    }
                    Err(WaitError::NoRetryTime) => {
                        assert!(is_away.get() && cost > stand_in.quota().capacity());
                        2
                    }
                    Err(WaitError::TooLong { .. } | WaitError::Expired { .. }) => 3,
                    Err(other) => panic!("{other}"),
                };
                told.borrow_mut()[at] += 1;
            });
            simulation.run_for(ms(random.u64(..300)));
            match random.u64(..6) {
                0 => queue.limiter().is_away.set(random.bool()),
                1 => queue.limiter().set_quota(random.choice(quotas).unwrap()),
                _ => {}
            }
        }
        simulation.run_for(ms(120_000));
        assert_eq!(queue.waiting(), 0, "round {round}");
    }
    assert!(told.borrow().iter().all(|count| *count > 100), "{told:?}");
}
