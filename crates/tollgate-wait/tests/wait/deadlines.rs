//! Waits that end in time, or are refused at once.

use crate::simulation::Simulation;
use std::cell::{Cell, RefCell};
use std::future::ready;
use std::rc::Rc;
use std::time::Duration;
use tollgate::{Algorithm, Decision, Limiter, Quota, SingleLimiter, WindowAlign};
use tollgate_wait::{WaitError, WaitQueue, Waitable};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What a caller was told, and when.
type Answer = Option<(Result<(), WaitError>, Duration)>;

/// The answer to a caller that may wait for `max_wait`, and when it came.
fn answer(
    simulation: &mut Simulation,
    queues: &Rc<WaitQueue<Limiter<u64>, impl Fn(Duration) -> crate::simulation::Sleep + 'static>>,
    cost: u64,
    max_wait: Duration,
) -> Rc<Cell<Answer>> {
    let (queues, slot, clock) = (Rc::clone(queues), Rc::new(Cell::new(None)), simulation.clock.clone());
    let told = Rc::clone(&slot);
    simulation.spawn(async move {
        let result = queues.until_n_within(&7, cost, max_wait).await.map(|_| ());
        told.set(Some((result, clock.now().since(tollgate::Tick::ZERO))));
    });
    simulation.settle();
    slot
}

/// Behind waiters of random costs, the wait that is told is the wait that comes: for buckets to
/// the nanosecond, for windows no less.
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
    // A cost that can never be paid is refused behind others, too, and at once.
    let _waits = answer(&mut simulation, &queues, 1, ms(200));
    let never = answer(&mut simulation, &queues, 6, Duration::MAX);
    assert_eq!(never.get(), Some((Err(WaitError::Never { cost: 6, capacity: 5 }), Duration::ZERO)));
    assert_eq!(queues.limiter().peek(&7).retry_after(), Some(ms(200)));
}

/// Who only checks may take what a waiter waits for. Its wait then ends by its deadline.
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
    assert_eq!(waits.get(), Some((Err(WaitError::Expired { max_wait: ms(350) }), ms(350))));
    assert_eq!(queues.waiting(), 0);
}

/// A wait of zero is a check that passes no waiter.
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

/// Answers by a limiter with a share of the quota, as a shared limit does while its store is away.
struct StandIn(SingleLimiter);

impl Waitable<()> for StandIn {
    fn check_n(&self, (): &(), cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.0.check_n(cost))
    }

    fn peek_n(&self, (): &(), cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.0.peek_n(cost))
    }

    fn quota(&self, (): &()) -> Quota {
        Quota::per_second(10).burst(6)
    }
}

/// Together, the waiters ask for more than the stand-in can hold. Each alone does not.
#[test]
fn a_queue_behind_a_stand_in_is_not_told_never() {
    let mut simulation = Simulation::new(13);
    let limiter = SingleLimiter::builder(Quota::per_second(5).burst(3)).clock(simulation.clock.clone());
    let queue = Rc::new(WaitQueue::with_sleep(StandIn(limiter.build().unwrap()), simulation.sleeper()));
    let answers: Rc<RefCell<Vec<_>>> = Rc::default();
    for cost in [3, 1, 2, 1, 3, 4] {
        let (queue, answers) = (Rc::clone(&queue), Rc::clone(&answers));
        simulation.spawn(async move {
            let turn = queue.until_n_within(&(), cost, ms(10_000)).await;
            answers.borrow_mut().push((cost, turn.map(|_| ())));
        });
        simulation.settle();
    }
    simulation.run_for(ms(10_000));
    let never = WaitError::Never { cost: 4, capacity: 3 };
    let goes = |cost| (cost, Ok(()));
    assert_eq!(*answers.borrow(), [goes(3), (4, Err(never)), goes(1), goes(2), goes(1), goes(3)]);
}
