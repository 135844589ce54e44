//! Tests waiters that do not act when their turn arrives.

use crate::simulation::{Simulation, Sleep, TaskId, ms};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use tollgate::{Algorithm, Quota, SingleLimiter, Tick, WindowAlign};
use tollgate_wait::WaitQueue;

type Starts = Rc<RefCell<Vec<(u64, Duration)>>>;

type Queue = WaitQueue<SingleLimiter, Box<dyn Fn(Duration) -> Sleep>>;

fn queue(simulation: &Simulation, quota: Quota, patience: Duration) -> Rc<Queue> {
    let limiter = SingleLimiter::builder(quota).clock(simulation.clock.clone()).build().unwrap();
    let sleep: Box<dyn Fn(Duration) -> Sleep> = Box::new(simulation.sleeper());
    Rc::new(WaitQueue::with_sleep(limiter, sleep).patience(patience))
}

/// Spawns a caller that waits for `cost` tokens and records when it proceeds.
fn come(simulation: &mut Simulation, queue: &Rc<Queue>, starts: &Starts, caller: u64, cost: u64) -> TaskId {
    let (queue, starts, clock) = (Rc::clone(queue), Rc::clone(starts), simulation.clock.clone());
    let task = simulation.spawn(async move {
        queue.until_n(&(), cost).await.unwrap();
        starts.borrow_mut().push((caller, clock.now().since(Tick::ZERO)));
    });
    simulation.settle();
    task
}

/// Spawns `count` waiters under a quota of five tokens a second, after a charge at time 0.
fn waiters(simulation: &mut Simulation, count: u64) -> (Rc<Queue>, Vec<TaskId>, Starts) {
    let queue = queue(simulation, Quota::per_second(5).burst(1), ms(50));
    assert!(queue.limiter().check().is_allowed());
    let starts = Starts::default();
    let tasks = (0..count).map(|caller| come(simulation, &queue, &starts, caller, 1)).collect();
    (queue, tasks, starts)
}

/// If the first waiter's future is leaked, the second waiter is delayed only until its own turn.
#[test]
fn a_leaked_waiter_delays_nobody_past_its_own_turn() {
    let mut simulation = Simulation::new(1);
    let (queue, tasks, starts) = waiters(&mut simulation, 5);
    simulation.forget(tasks[0]);
    simulation.run_for(ms(5_000));
    let expected = [(1, ms(400)), (2, ms(600)), (3, ms(800)), (4, ms(1_000))];
    assert_eq!(*starts.borrow(), expected);
    assert_eq!(queue.waiting(), 0, "what was leaked is not counted for ever");
}

/// Each of several leaked waiters at the front delays the other waiters by at most the patience.
#[test]
fn each_leaked_waiter_costs_the_patience_at_most() {
    let mut simulation = Simulation::new(2);
    let (queue, tasks, starts) = waiters(&mut simulation, 12);
    for task in &tasks[..10] {
        simulation.forget(*task);
    }
    simulation.run_for(ms(60_000));
    let starts = starts.borrow();
    assert_eq!(starts.iter().map(|(caller, _)| *caller).collect::<Vec<_>>(), [10, 11]);
    // The turn of caller 10 would be after eleven intervals.
    assert!(starts[0].1 <= ms(200) * 11 + ms(50) * 10, "{:?}", starts[0].1);
    assert_eq!(queue.waiting(), 0);
}

/// A window frees all its tokens at its end, long before the turns of the waiters at the average
/// rate.
#[test]
fn a_leaked_waiter_costs_the_patience_at_most_at_the_end_of_a_window() {
    let starts = starts_at_the_end_of_a_window(0);
    let expected: Vec<_> = (1..50).map(|caller| (caller, DAY + ms(1_000))).collect();
    assert_eq!(starts, expected);
}

/// The timers of the waiters behind the leaked one are those of their earlier places.
#[test]
fn a_waiter_leaked_in_a_long_line_costs_twenty_patiences_at_most() {
    let starts = starts_at_the_end_of_a_window(25);
    let callers: Vec<u64> = starts.iter().map(|&(caller, _)| caller).collect();
    assert_eq!(callers, (0..50).filter(|&caller| caller != 25).collect::<Vec<_>>());
    assert!(starts.iter().all(|&(_, at)| at <= DAY + ms(22_000)), "{starts:?}");
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Lets 50 callers wait from one second before the end of a window, and leaks one of them. Returns
/// when the others proceed.
fn starts_at_the_end_of_a_window(leaked: u64) -> Vec<(u64, Duration)> {
    let mut simulation = Simulation::new(14);
    let builder = SingleLimiter::builder(Quota::per_day(100)).algorithm(Algorithm::FixedWindow);
    let builder = builder.align(WindowAlign::ClockStart).clock(simulation.clock.clone());
    let sleep: Box<dyn Fn(Duration) -> Sleep> = Box::new(simulation.sleeper());
    let queue = Rc::new(WaitQueue::with_sleep(builder.build().unwrap(), sleep).patience(ms(1_000)));
    simulation.clock.advance(DAY - ms(1_000));
    assert!(queue.limiter().check_n(100).is_allowed());
    let starts = Starts::default();
    let tasks: Vec<_> = (0..50).map(|caller| come(&mut simulation, &queue, &starts, caller, 1)).collect();
    simulation.forget(tasks[usize::try_from(leaked).unwrap()]);
    simulation.run_for(ms(60_000));
    starts.borrow().clone()
}

/// The waiters of a long line check on the first waiter in turns, and not all of them in each
/// interval of the patience.
#[test]
fn a_long_line_checks_on_its_first_waiter_with_few_sleeps() {
    let mut simulation = Simulation::new(15);
    let limiter = SingleLimiter::builder(Quota::per_hour(1)).clock(simulation.clock.clone()).build().unwrap();
    assert!(limiter.check().is_allowed());
    let (sleeps, sleep) = (Rc::new(Cell::new(0)), simulation.sleeper());
    let counted = Rc::clone(&sleeps);
    let sleep: Box<dyn Fn(Duration) -> Sleep> = Box::new(move |time| {
        counted.set(counted.get() + 1);
        sleep(time)
    });
    let queue = Rc::new(WaitQueue::with_sleep(limiter, sleep).patience(ms(1_000)));
    let starts = Starts::default();
    for caller in 0..200 {
        come(&mut simulation, &queue, &starts, caller, 1);
    }
    sleeps.set(0);
    simulation.run_for(ms(60_000));
    // In a minute, the first waiter sleeps 60 times, and the waiter behind n others 60 / (n + 1)
    // times. Behind ten and more others, it sleeps 60 / 11 to 60 / 20 times. The sum is about 950.
    assert!((60..=1_100).contains(&sleeps.get()), "{}", sleeps.get());
}

/// A waiter in the middle of the line is woken and then leaked.
#[test]
fn a_waiter_that_is_woken_and_not_polled_blocks_nobody() {
    let mut simulation = Simulation::new(3);
    let (_queue, tasks, starts) = waiters(&mut simulation, 4);
    simulation.forget(tasks[1]);
    simulation.run_for(ms(60_000));
    let starts = starts.borrow();
    assert_eq!(starts.iter().map(|(caller, _)| *caller).collect::<Vec<_>>(), [0, 2, 3]);
    assert!(starts[1].1 <= ms(600) + ms(50), "{:?}", starts[1].1);
}

/// A task keeps its place if its runtime does not run the task for a while.
#[test]
fn a_waiter_that_comes_back_is_before_those_who_came_later() {
    let mut simulation = Simulation::new(4);
    let (queue, tasks, starts) = waiters(&mut simulation, 5);
    let first = simulation.stall(tasks[0]);
    simulation.run_for(ms(500));
    assert_eq!(*starts.borrow(), [(1, ms(400))]);
    simulation.go_on(tasks[0], first);
    simulation.run_for(ms(5_000));
    let callers: Vec<_> = starts.borrow().iter().map(|(caller, _)| *caller).collect();
    assert_eq!(callers, [1, 0, 2, 3, 4]);
    assert_eq!(starts.borrow().last().unwrap().1, ms(1_200));
    assert_eq!(queue.waiting(), 0);
}

/// A returning waiter is placed before later waiters, even if its line was removed in the meantime
/// and the later waiters are in a new line.
#[test]
fn a_waiter_that_comes_back_is_before_those_of_a_new_line() {
    let mut simulation = Simulation::new(13);
    let (queue, tasks, starts) = waiters(&mut simulation, 3);
    let second = simulation.stall(tasks[1]);
    simulation.run_for(ms(1_000));
    assert_eq!(queue.waiting_keys(), 0);
    assert!(queue.limiter().check().is_allowed());
    for caller in 3..6 {
        come(&mut simulation, &queue, &starts, caller, 1);
    }
    simulation.go_on(tasks[1], second);
    simulation.run_for(ms(5_000));
    let callers: Vec<_> = starts.borrow().iter().map(|(caller, _)| *caller).collect();
    assert_eq!(callers, [0, 2, 1, 3, 4, 5]);
    assert_eq!(queue.waiting(), 0);
}

/// A container that has exhausted its processor quota stops for one or several periods of 100 ms.
/// Its waiters keep their order.
#[test]
fn a_pause_of_a_container_costs_no_waiter_its_place() {
    let mut simulation = Simulation::new(12);
    let limiter = SingleLimiter::builder(Quota::per_second(5).burst(1)).clock(simulation.clock.clone());
    let sleep: Box<dyn Fn(Duration) -> Sleep> = Box::new(simulation.sleeper());
    let queue = Rc::new(WaitQueue::with_sleep(limiter.build().unwrap(), sleep));
    assert!(queue.limiter().check().is_allowed());
    let starts = Starts::default();
    let tasks: Vec<_> = (0..3).map(|caller| come(&mut simulation, &queue, &starts, caller, 1)).collect();
    let first = simulation.stall(tasks[0]);
    simulation.run_for(ms(200 + 700));
    assert_eq!(*starts.borrow(), [], "the first has its place");
    simulation.go_on(tasks[0], first);
    simulation.run_for(ms(1_000));
    assert_eq!(*starts.borrow(), [(0, ms(900)), (1, ms(1_100)), (2, ms(1_300))]);
}

/// Dropping a waiter that has lost its place does not affect the other waiters.
#[test]
fn a_waiter_that_lost_its_place_can_leave() {
    let mut simulation = Simulation::new(5);
    let (queue, tasks, starts) = waiters(&mut simulation, 3);
    let first = simulation.stall(tasks[0]);
    simulation.run_for(ms(500));
    drop(first);
    assert_eq!(queue.waiting(), 1);
    simulation.run_for(ms(5_000));
    assert_eq!(*starts.borrow(), [(1, ms(400)), (2, ms(600))]);
    assert_eq!(queue.waiting(), 0);
}

/// Whichever waiter removes the leaked first waiter also wakes the new first waiter, even if these
/// are two different waiters.
#[test]
fn the_one_behind_a_leaked_waiter_is_woken_by_whoever_notices() {
    let mut simulation = Simulation::new(6);
    let queue = queue(&simulation, Quota::per_second(100), ms(300));
    assert!(queue.limiter().check_n(100).is_allowed());
    let starts = Starts::default();
    let first = come(&mut simulation, &queue, &starts, 0, 100);
    come(&mut simulation, &queue, &starts, 1, 1);
    simulation.run_for(ms(995));
    assert!(queue.limiter().check().is_allowed());
    // The first waiter is denied, sleeps for 10 ms, and is leaked. The second waiter sleeps until
    // 1,300 ms.
    simulation.run_for(ms(6));
    simulation.forget(first);
    come(&mut simulation, &queue, &starts, 2, 1);
    simulation.run_for(ms(2_000));
    assert_eq!(*starts.borrow(), [(1, ms(1_311)), (2, ms(1_311))]);
}

/// A first waiter that acts keeps its place, even if it is denied again and again, whatever the
/// order of timers that end at the same time.
#[test]
fn a_waiter_whose_tokens_are_taken_by_others_keeps_its_place() {
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed);
        let (queue, _tasks, starts) = waiters(&mut simulation, 3);
        for _ in 0..3 {
            simulation.run_for(ms(200) - Duration::from_nanos(1));
            simulation.clock.advance(Duration::from_nanos(1));
            assert!(queue.limiter().check().is_allowed());
            simulation.settle();
        }
        simulation.run_for(ms(2_000));
        assert_eq!(*starts.borrow(), [(0, ms(800)), (1, ms(1_000)), (2, ms(1_200))]);
    }
}

/// The queue may be the last owner of a waker, and the waker may own another waiter. The queue must
/// not drop such a waker under the lock, because the other waiter takes the lock to leave its line.
#[test]
fn a_waker_that_owns_another_waiter_is_dropped_without_the_lock() {
    type Held = Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>;
    struct Owner(#[allow(dead_code)] Held);
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {}
    }

    let limiter = SingleLimiter::builder(Quota::per_hour(1)).build().unwrap();
    assert!(limiter.check().is_allowed());
    let queue = Arc::new(WaitQueue::with_sleep(limiter, |_| std::future::pending()));
    let wait = || {
        let queue = Arc::clone(&queue);
        let wait = async move {
            let _turn = queue.until_ready(&()).await;
        };
        let mut wait: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(wait);
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        wait
    };
    let _first = wait();
    let (mut replaced, mut dropped) = (wait(), wait());
    for waiter in [&mut replaced, &mut dropped] {
        let owner = Waker::from(Arc::new(Owner(Mutex::new(Some(wait())))));
        assert!(waiter.as_mut().poll(&mut Context::from_waker(&owner)).is_pending());
    }
    assert_eq!(queue.waiting(), 5);
    assert!(replaced.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(queue.waiting(), 4);
    drop(dropped);
    assert_eq!(queue.waiting(), 2);
}

/// A costly waiter sleeps as the first, and then another waiter returns to its place in front. The
/// costly waiter continues to sleep, and is not treated as a waiter that has stopped acting.
#[test]
fn a_waiter_that_sleeps_is_not_passed_because_another_came_back() {
    let mut simulation = Simulation::new(8);
    let queue = queue(&simulation, Quota::per_second(1).burst(10), ms(100));
    // The costly waiter's next check happens long after the other waiters' patience has ended.
    let queue = Rc::new(Rc::into_inner(queue).unwrap().recheck(ms(60_000)));
    assert!(queue.limiter().check_n(10).is_allowed());
    let starts = Starts::default();
    let first = come(&mut simulation, &queue, &starts, 0, 1);
    come(&mut simulation, &queue, &starts, 1, 1);
    come(&mut simulation, &queue, &starts, 2, 10);
    let stalled = simulation.stall(first);
    simulation.run_for(ms(2_500));
    assert_eq!(*starts.borrow(), [(1, ms(2_000))], "the second went, and the costly one is the first");
    simulation.go_on(first, stalled);
    simulation.settle();
    for caller in 3..6 {
        come(&mut simulation, &queue, &starts, caller, 1);
    }
    simulation.run_for(ms(20_000));
    let order: Vec<_> = starts.borrow().iter().map(|(caller, _)| *caller).collect();
    assert_eq!(order, [1, 0, 2, 3, 4, 5]);
}

/// Callers that wait for less than the patience also remove a leaked waiter, using the system
/// clock.
#[test]
fn short_waits_pass_a_leaked_waiter() {
    let limiter = SingleLimiter::builder(Quota::per_second(1_000).burst(1)).build().unwrap();
    let queue = WaitQueue::with_sleep(&limiter, |_| std::future::pending()).patience(ms(20));
    let (begin, _first) = loop {
        let _ = limiter.check_n(1);
        let mut first = Box::pin(queue.until_ready(&()));
        // The patience begins at the end of this time.
        let begin = std::time::Instant::now();
        // On a busy machine, a token may be available again because a millisecond has passed.
        if first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            break (begin, first);
        }
    };
    while queue.block_until_n_within(&(), 1, ms(2)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(60), "a leaked waiter blocks the key");
    }
    assert!(begin.elapsed() >= ms(20), "{:?}", begin.elapsed());
}
