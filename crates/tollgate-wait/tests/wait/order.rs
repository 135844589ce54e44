//! Tests the order in which waiters proceed, and the times at which they do.

use crate::simulation::{Simulation, Sleep, TaskId, ms};
use futures_util::FutureExt;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use tollgate::{Algorithm, Limiter, Quota, WindowAlign};
use tollgate_wait::{WaitError, WaitQueue};

/// The callers that have proceeded, with their times.
type Starts = Rc<RefCell<Vec<(usize, Duration)>>>;

fn queues(
    simulation: &Simulation,
    quota: Quota,
) -> Rc<WaitQueue<Limiter<u64>, impl Fn(Duration) -> Sleep + use<>>> {
    let limiter = Limiter::builder(quota).clock(simulation.clock.clone()).build().unwrap();
    // With this patience, the system clock removes no waiter, however slow the machine is.
    Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()).patience(ms(3_600_000)))
}

fn come<S, F>(
    simulation: &mut Simulation,
    queues: &Rc<WaitQueue<Limiter<u64>, S>>,
    starts: &Starts,
    caller: usize,
    cost: u64,
) -> TaskId
where
    S: Fn(Duration) -> F + 'static,
    F: Future<Output = ()> + 'static,
{
    let (queues, starts, clock) = (Rc::clone(queues), Rc::clone(starts), simulation.clock.clone());
    let task = simulation.spawn(async move {
        queues.until_n(&7, cost).await.unwrap();
        starts.borrow_mut().push((caller, clock.now().since(tollgate::Tick::ZERO)));
    });
    simulation.settle();
    task
}

/// The first waiter is denied, which starts the penalty. The documentation advises against such a
/// limiter.
#[test]
fn each_turn_takes_a_whole_penalty_if_the_limiter_has_one() {
    let mut simulation = Simulation::new(12);
    let limiter = Limiter::builder(Quota::per_second(5).burst(1)).penalty(ms(60_000));
    let limiter: Limiter<u64> = limiter.clock(simulation.clock.clone()).build().unwrap();
    let queues = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()).patience(ms(3_600_000)));
    let starts = Starts::default();
    for caller in 0..3 {
        come(&mut simulation, &queues, &starts, caller, 1);
    }
    simulation.run_for(ms(300_000));
    assert_eq!(*starts.borrow(), [(0, ms(0)), (1, ms(60_000)), (2, ms(120_000))]);
}

/// Half of thirty waiters hang up, and the same number of new waiters arrive. If turns were fixed
/// in advance, there would be gaps, or two waiters with the same turn.
#[test]
fn five_a_second_start_whoever_hangs_up() {
    let mut simulation = Simulation::new(1);
    let queues = queues(&simulation, Quota::per_second(5).burst(1));
    let starts = Starts::default();
    assert!(queues.limiter().check(&7).is_allowed());
    let first: Vec<TaskId> =
        (0..30).map(|caller| come(&mut simulation, &queues, &starts, caller, 1)).collect();
    for task in &first[..15] {
        simulation.drop_task(*task);
    }
    for caller in 30..45 {
        come(&mut simulation, &queues, &starts, caller, 1);
    }
    simulation.run_for(ms(10_000));

    let expected: Vec<_> = (15..45).zip(1..).map(|(caller, turn)| (caller, ms(200) * turn)).collect();
    assert_eq!(*starts.borrow(), expected);
    assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0));
}

/// 1,400 waiters have random costs, such as those of request bodies. 700 of them leave at random
/// times. The others take exactly their own costs, without a gap.
#[test]
fn waiters_that_leave_a_long_line_take_no_token() {
    let mut simulation = Simulation::new(11);
    let mut random = fastrand::Rng::with_seed(41);
    let limiter: Limiter<u64> = Limiter::builder(Quota::per_second(100_000).burst(1_000))
        .clock(simulation.clock.clone())
        .build()
        .unwrap();
    let queues = WaitQueue::with_sleep(limiter, simulation.sleeper()).patience(ms(3_600_000));
    let (queues, starts) = (Rc::new(queues.max_waiters_per_key(1_400)), Starts::default());
    assert!(queues.limiter().check_n(&7, 1_000).is_allowed());
    let costs: Vec<u64> = (0..1_400).map(|_| random.u64(1..=1_000)).collect();
    let tasks: Vec<TaskId> =
        (0..1_400).map(|at| come(&mut simulation, &queues, &starts, at, costs[at])).collect();
    assert_eq!(queues.waiting(), 1_400);
    let mut leaving: Vec<usize> = (0..1_400).collect();
    random.shuffle(&mut leaving);
    leaving.truncate(700);
    for batch in leaving.chunks(10) {
        for at in batch {
            simulation.drop_task(tasks[*at]);
        }
        simulation.run_for(ms(50));
    }
    simulation.run_for(ms(10_000));
    let starts = starts.borrow();
    // Some of the 700 had their turn before they would have left.
    assert!((700..1_400).contains(&starts.len()), "{} starts", starts.len());
    assert!(starts.is_sorted(), "a waiter was overtaken");
    let charged: u64 = starts.iter().map(|(at, _)| costs[*at]).sum();
    let last = starts.last().unwrap().1;
    // A hundred tokens refill in a millisecond.
    assert_eq!(last, Duration::from_micros(charged * 10));
    assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0));
}

#[test]
fn a_costly_waiter_is_not_passed_by_cheap_ones() {
    let mut simulation = Simulation::new(2);
    let queues = queues(&simulation, Quota::per_second(10).burst(10));
    let starts = Starts::default();
    assert!(queues.limiter().check_n(&7, 8).is_allowed());
    // Two tokens are available. They would suffice for the cheap waiter, which arrived later.
    come(&mut simulation, &queues, &starts, 0, 10);
    come(&mut simulation, &queues, &starts, 1, 1);
    simulation.run_for(ms(2_000));
    assert_eq!(*starts.borrow(), [(0, ms(800)), (1, ms(900))]);
}

#[test]
fn the_turn_of_one_who_leaves_is_the_next_ones() {
    let mut simulation = Simulation::new(3);
    let queues = queues(&simulation, Quota::per_second(10).burst(10));
    let starts = Starts::default();
    assert!(queues.limiter().check_n(&7, 10).is_allowed());
    let costly = come(&mut simulation, &queues, &starts, 0, 10);
    come(&mut simulation, &queues, &starts, 1, 3);
    simulation.run_for(ms(500));
    simulation.drop_task(costly);
    simulation.settle();
    // Five tokens have refilled in the meantime, and no other caller waits.
    assert_eq!(*starts.borrow(), [(1, ms(500))]);
    assert_eq!(queues.limiter().peek(&7).remaining(), 2);
}

/// A random caller of one key, and its cost.
struct Caller {
    task: TaskId,
    cost: u64,
}

/// A million callers, many of which hang up at random times. No caller is overtaken, no caller
/// waits while its tokens are available, and every charged token goes to a caller. Each grant and
/// each departure wakes at most one waiter.
#[test]
fn random_cancels_lose_no_token_and_no_turn() {
    let callers = 1_000_000;
    let mut simulation = Simulation::new(4);
    let mut random = fastrand::Rng::with_seed(5);
    let quota = Quota::per_second(1_000).burst(20);
    let queues = queues(&simulation, quota);
    let gone: Rc<RefCell<Vec<(u64, u64, u64)>>> = Rc::default();
    let mut waiting: HashMap<u64, BTreeMap<u64, Caller>> = HashMap::new();
    let (mut charged, mut last_gone, mut left, mut granted) = ([0_u64; 3], [0_u64; 3], 0_u64, 0_u64);

    for number in 1..=callers {
        let (key, cost) = (random.u64(..3), random.u64(1..=20));
        let (shared, list) = (Rc::clone(&queues), Rc::clone(&gone));
        let task = simulation.spawn(async move {
            shared.until_n(&key, cost).await.unwrap();
            list.borrow_mut().push((key, number, cost));
        });
        waiting.entry(key).or_default().insert(number, Caller { task, cost });
        simulation.settle();
        for _ in 0..random.usize(..3) {
            let line = waiting.entry(random.u64(..3)).or_default();
            let chosen = if random.bool() { line.keys().next() } else { line.keys().nth(random.usize(..8)) };
            let Some(chosen) = chosen.copied() else { continue };
            // A caller that has already proceeded is in `gone`, and is no longer a task.
            if gone.borrow().iter().any(|(_, number, _)| *number == chosen) {
                continue;
            }
            simulation.drop_task(line.remove(&chosen).unwrap().task);
            left += 1;
        }
        simulation.run_for(Duration::from_micros(random.u64(..6_000)));

        for (key, number, cost) in gone.borrow_mut().drain(..) {
            let at = usize::try_from(key).unwrap();
            assert!(number > last_gone[at], "caller {number} was overtaken by {}", last_gone[at]);
            (last_gone[at], charged[at], granted) = (number, charged[at] + cost, granted + 1);
            waiting.get_mut(&key).unwrap().remove(&number);
        }
        for (key, line) in &waiting {
            let Some((number, first)) = line.iter().next() else { continue };
            let now = queues.limiter().peek_n(key, first.cost);
            assert!(!now.is_allowed(), "caller {number} waits for {} tokens that are there", first.cost);
        }
    }
    assert!(granted > callers / 3 && left > callers / 10, "{granted} granted, {left} left");
    assert!(simulation.wakes() <= granted + left, "{} wakes, {granted} granted", simulation.wakes());

    // No token is lost: all tokens that were not granted are still available.
    for line in waiting.values() {
        line.values().for_each(|caller| simulation.drop_task(caller.task));
    }
    assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0));
    simulation.run_for(ms(20));
    for key in 0..3 {
        assert_eq!(queues.limiter().peek(&key).remaining(), 20);
    }
    // No token was granted in excess.
    let most = 20 + u64::try_from(simulation.now().as_millis()).unwrap();
    charged.iter().for_each(|charged| assert!(*charged <= most));
}

fn leaky_queue(
    simulation: &Simulation,
    quota: Quota,
) -> Rc<WaitQueue<Limiter<u64>, impl Fn(Duration) -> Sleep + use<>>> {
    let builder = Limiter::builder(quota).algorithm(Algorithm::LeakyQueue);
    let limiter = builder.clock(simulation.clock.clone()).build().unwrap();
    Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()).patience(ms(3_600_000)))
}

/// The waiters of a leaky queue start at even intervals, although its burst would admit all of them
/// at once. A waiter that leaves takes no turn.
#[test]
fn a_leaky_queue_starts_its_waiters_evenly() {
    let minutes = |minutes: u64| ms(minutes * 60_000);
    let mut simulation = Simulation::new(9);
    let queues = leaky_queue(&simulation, Quota::per_hour(10));
    let starts = Starts::default();
    for caller in 0..10 {
        come(&mut simulation, &queues, &starts, caller, 1);
    }
    simulation.run_for(minutes(54));
    let evenly: Vec<_> = (0..10).zip((0..).step_by(6).map(minutes)).collect();
    assert_eq!(*starts.borrow(), evenly);

    // The next callers have costs of 2, 1 and 1. The first of them leaves, and then the second.
    starts.borrow_mut().clear();
    let first = come(&mut simulation, &queues, &starts, 10, 2);
    let second = come(&mut simulation, &queues, &starts, 11, 2);
    come(&mut simulation, &queues, &starts, 12, 2);
    come(&mut simulation, &queues, &starts, 13, 1);
    simulation.run_for(minutes(3));
    simulation.drop_task(first);
    simulation.run_for(minutes(1));
    simulation.drop_task(second);
    simulation.run_for(minutes(60));
    assert_eq!(*starts.borrow(), [(12, minutes(60)), (13, minutes(72))]);
    assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0));
}

/// A caller whose start is too late fails at once, and the wait in its error is the wait until its
/// start, whatever the costs of those before it. A wait of zero takes no later start.
#[test]
fn a_late_start_in_a_leaky_queue_is_refused_at_once() {
    let mut simulation = Simulation::new(10);
    let queues = leaky_queue(&simulation, Quota::per_second(10).burst(5));
    let starts = Starts::default();
    assert!(matches!(queues.until_n_within(&7, 2, ms(0)).now_or_never(), Some(Ok(_))));
    let late = |cost, max_wait| match queues.until_n_within(&7, cost, max_wait).now_or_never() {
        Some(Err(WaitError::TooLong { wait, max_wait: allowed })) if allowed == max_wait => wait,
        other => panic!("{other:?}"),
    };
    assert_eq!((late(1, ms(0)), late(5, ms(199))), (ms(200), ms(200)));
    for (caller, cost) in [3, 1, 5, 5].into_iter().enumerate() {
        come(&mut simulation, &queues, &starts, caller, cost);
    }
    // The waiters have a total cost of 14, and the first of them starts in 200 ms.
    simulation.run_for(ms(50));
    assert_eq!((late(1, ms(1_549)), late(5, ms(0))), (ms(1_550), ms(1_550)));
    let never = queues.until_n_within(&7, 6, ms(100)).now_or_never();
    assert_eq!(never, Some(Err(WaitError::Never { cost: 6, capacity: 5 })));
    come(&mut simulation, &queues, &starts, 4, 1);
    simulation.run_for(ms(10_000));
    let expected = [(0, 200), (1, 500), (2, 600), (3, 1_100), (4, 1_600)];
    assert_eq!(*starts.borrow(), expected.map(|(caller, at)| (caller, ms(at))));
}

/// Callers that find no waiter race for the same start, and one of them gets it. What the others
/// were charged is given back.
#[test]
fn callers_that_race_for_a_start_of_a_leaky_queue_get_one_each() {
    let builder = Limiter::builder(Quota::per_second(100)).algorithm(Algorithm::LeakyQueue);
    let limiter: Limiter<u64> = builder.build().unwrap();
    let queue = WaitQueue::new(limiter);
    let begin = std::time::Instant::now();
    let mut starts: Vec<_> = std::thread::scope(|scope| {
        let callers = (0..20).map(|_| {
            scope.spawn(|| {
                let turn = queue.block_until_ready(&7).unwrap();
                assert_eq!(turn.start_after(), ms(0));
                turn.at()
            })
        });
        let callers: Vec<_> = callers.collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    starts.sort_unstable();
    for pair in starts.windows(2) {
        // A start may be a nanosecond early, because the limiter counts in grains.
        assert!(pair[1].since(pair[0]) >= Duration::from_micros(9_999), "{starts:?}");
    }
    assert!(begin.elapsed() >= ms(189), "{:?}", begin.elapsed());
}

/// A hundred processes have the same limit, and their tokens are available at the same time. With
/// jitter, their callers start at different times, up to the jitter later, and never earlier.
#[test]
fn jitter_spreads_the_callers_of_many_processes() {
    let starts_of = |jitter: Duration| {
        let mut simulation = Simulation::new(12);
        let starts = Starts::default();
        for process in 0..100 {
            let builder = Limiter::builder(Quota::per_minute(1)).clock(simulation.clock.clone());
            let limiter: Limiter<u64> = builder.build().unwrap();
            assert!(limiter.check(&7).is_allowed());
            let queue = WaitQueue::with_sleep(limiter, simulation.sleeper()).jitter(jitter);
            come(&mut simulation, &Rc::new(queue.patience(ms(3_600_000))), &starts, process, 1);
        }
        simulation.run_for(ms(60_000) + jitter);
        let starts = starts.borrow();
        assert_eq!(starts.len(), 100);
        [starts[0].1, starts[49].1, starts[99].1]
    };
    assert_eq!(starts_of(ms(0)), [ms(60_000); 3]);
    let [first, middle, last] = starts_of(ms(10_000));
    assert!(first >= ms(60_000) && last <= ms(70_000), "{first:?} to {last:?}");
    assert!(middle - first > ms(1_000) && last - middle > ms(1_000), "{first:?}, {middle:?}, {last:?}");
}

/// If the line is always full, each token is used the instant it becomes available, for every
/// algorithm.
#[test]
fn no_algorithm_wastes_a_turn() {
    let algorithms = [
        (Algorithm::TokenBucket, Quota::per_second(10).burst(5), 45),
        (Algorithm::LeakyBucket, Quota::per_second(10).burst(5), 45),
        (Algorithm::FixedWindow, Quota::per_second(10), 50),
        (Algorithm::SlidingWindow, Quota::per_second(10), 45),
    ];
    for (algorithm, quota, least) in algorithms {
        let mut simulation = Simulation::new(6);
        let mut builder = Limiter::builder(quota).algorithm(algorithm).clock(simulation.clock.clone());
        if quota.explicit_burst().is_none() {
            builder = builder.align(WindowAlign::ClockStart);
        }
        let limiter: Limiter<u64> = builder.build().unwrap();
        let queues = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()));
        let starts = Starts::default();
        for caller in 0..100 {
            come(&mut simulation, &queues, &starts, caller, 1);
        }
        simulation.run_for(ms(4_999));
        let starts = starts.borrow();
        let order: Vec<usize> = starts.iter().map(|(caller, _)| *caller).collect();
        assert_eq!(order, (0..starts.len()).collect::<Vec<_>>(), "{algorithm}");
        assert!((least..=55).contains(&starts.len()), "{algorithm}: {} starts", starts.len());
    }
}
