//! Tests the bounds on the number of waiters, and the state that remains after waiting.

use crate::simulation::Simulation;
use std::cell::RefCell;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;
use tollgate::{InFlight, Limiter, ManualClock, Quota, SingleLimiter, WhenFull};
use tollgate_wait::{WaitError, WaitQueue, Waitable};

type Queue = WaitQueue<SingleLimiter, fn(Duration) -> std::future::Pending<()>>;

/// A queue without tokens, whose sleeps never end.
fn empty_queue() -> Arc<Queue> {
    let limiter = SingleLimiter::builder(Quota::per_hour(1)).build().unwrap();
    assert!(limiter.check().is_allowed());
    Arc::new(WaitQueue::with_sleep(limiter, |_| pending()))
}

#[test]
fn no_more_wait_than_the_settings_allow() {
    let mut simulation = Simulation::new(1);
    let limiter: Limiter<u64> =
        Limiter::builder(Quota::per_second(5).burst(1)).clock(simulation.clock.clone()).build().unwrap();
    let queues =
        Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()).max_waiters(5).max_waiters_per_key(3));
    let answers = Rc::new(std::cell::RefCell::new(Vec::new()));
    // For the first key, one caller proceeds immediately, three wait, and one is refused. For the
    // second key, two callers may wait.
    for (number, key) in [7, 7, 7, 7, 7, 8, 8, 8, 8].into_iter().enumerate() {
        let (queues, answers) = (Rc::clone(&queues), Rc::clone(&answers));
        simulation.spawn(async move {
            let result = queues.until_ready(&key).await.map(|_| ());
            answers.borrow_mut().push((number, result));
        });
        simulation.settle();
    }
    let for_one = Err(WaitError::Full { waiting: 3, for_key: true });
    let for_all = Err(WaitError::Full { waiting: 5, for_key: false });
    assert_eq!(*answers.borrow(), [(0, Ok(())), (4, for_one), (5, Ok(())), (8, for_all)]);
    assert_eq!((queues.waiting(), queues.waiting_keys()), (5, 2));
    simulation.run_for(Duration::from_secs(1));
    assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0));
    assert!(answers.borrow()[4..].iter().all(|(_, result)| result.is_ok()));
}

#[test]
fn a_table_without_a_place_is_told() {
    let simulation = Simulation::new(2);
    let limiter: Limiter<u64> = Limiter::builder(Quota::per_hour(1))
        .max_keys(1)
        .when_full(WhenFull::Deny)
        .clock(simulation.clock.clone())
        .build()
        .unwrap();
    let queues = WaitQueue::new(limiter);
    let mut refused = None;
    for key in 0..1_000 {
        if let Err(error) = queues.block_until_ready(&key) {
            refused = Some(error);
            break;
        }
    }
    assert_eq!(refused, Some(WaitError::NoRetryTime));
}

/// Waiters in front and behind, with and without a maximum wait, are woken by the closing thread,
/// and not by their timers. Later callers find the queue closed, even if a token is available.
fn close_with_waiters<L: Waitable<u64> + 'static>(limiter: L) {
    let (mut simulation, hour) = (Simulation::new(3), Duration::from_secs(3_600));
    let queue = WaitQueue::with_sleep(limiter, simulation.sleeper()).recheck(hour).patience(hour);
    let (queue, answers) = (Rc::new(queue), Rc::new(RefCell::new(Vec::new())));
    let held = pollster::block_on(queue.until_ready(&7)).ok();
    assert!(held.is_some());
    for caller in 0..6 {
        let (queue, answers) = (Rc::clone(&queue), Rc::clone(&answers));
        simulation.spawn(async move {
            let turn = match caller % 2 {
                0 => queue.until_ready(&7).await,
                _ => queue.until_ready_within(&7, hour * 1_000).await,
            };
            answers.borrow_mut().push(turn.map(drop));
        });
    }
    simulation.run_for(Duration::from_secs(1));
    assert_eq!((queue.waiting(), answers.borrow().len()), (6, 0));
    queue.close();
    simulation.settle();
    assert_eq!(*answers.borrow(), [Err(WaitError::Closed); 6]);
    assert_eq!((queue.waiting(), queue.waiting_keys()), (0, 0));
    for cost in [0, 1] {
        let later = queue.block_until_n_within(&8, cost, Duration::ZERO);
        assert_eq!(later.map(drop), Err(WaitError::Closed));
        assert!(pollster::block_on(queue.limiter().peek_n(&8, cost)).is_allowed());
    }
    queue.close();
}

#[test]
fn a_queue_that_closes_ends_all_waits_at_once() {
    let rate = || Limiter::builder(Quota::per_day(1)).clock(ManualClock::new()).build().unwrap();
    let jobs = || InFlight::builder(1).build().unwrap();
    close_with_waiters::<Limiter<u64>>(rate());
    close_with_waiters::<InFlight<u64>>(jobs());
    close_with_waiters::<(Limiter<u64>, InFlight<u64>)>((rate(), jobs()));
}

/// Threads are parked without a timer that would wake them.
#[test]
fn a_queue_that_closes_wakes_parked_threads() {
    let limiter = SingleLimiter::builder(Quota::per_day(1)).build().unwrap();
    let queue = WaitQueue::new(limiter).recheck(Duration::from_secs(3_600));
    assert!(queue.block_until_ready(&()).is_ok());
    thread::scope(|scope| {
        let waiters = [(); 4].map(|()| scope.spawn(|| queue.block_until_ready(&())));
        while queue.waiting() < 4 {
            thread::yield_now();
        }
        queue.close();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Err(WaitError::Closed));
        }
    });
}

#[test]
fn errors_name_the_value_and_what_helps() {
    let texts = [
        WaitError::TooLong { wait: Duration::from_millis(400), max_wait: Duration::from_millis(300) }
            .to_string(),
        WaitError::Never { cost: 6, capacity: 5 }.to_string(),
        WaitError::Full { waiting: 3, for_key: true }.to_string(),
    ];
    assert!(texts[0].contains("400ms") && texts[0].contains("300ms"), "{}", texts[0]);
    assert!(texts[1].contains('6') && texts[1].contains('5'), "{}", texts[1]);
    assert!(texts[2].contains('3') && texts[2].contains("for one key"), "{}", texts[2]);
}

/// A thread drops its thread-locals last. At that point, a lock that requires its own thread-local
/// could no longer be taken.
#[test]
fn a_waiter_in_a_thread_local_leaves_when_the_thread_ends() {
    thread_local! {
        static KEPT: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>> = const { RefCell::new(None) };
    }
    let queue = empty_queue();
    let shared = Arc::clone(&queue);
    let thread = thread::spawn(move || {
        KEPT.with_borrow_mut(|kept| {
            let wait = kept.insert(Box::pin(async move { assert!(shared.until_ready(&()).await.is_ok()) }));
            assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        });
    });
    thread.join().unwrap();
    assert_eq!((queue.waiting(), queue.waiting_keys()), (0, 0));
}

/// A waker runs while no lock is held, so it may join the same line, and may panic.
#[test]
fn a_waker_joins_the_same_line_and_panics() {
    struct Joins(Arc<Queue>, AtomicBool);
    impl Wake for Joins {
        fn wake(self: Arc<Self>) {
            assert_eq!((self.0.waiting(), self.0.waiting_keys()), (1, 1));
            let joins = pin!(self.0.until_ready(&()));
            assert!(joins.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            self.1.store(true, Relaxed);
            panic!("a waker panics");
        }
    }

    let queue = empty_queue();
    let mut first = Box::pin(queue.until_ready(&()));
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut second = pin!(queue.until_ready(&()));
    let joins = Arc::new(Joins(Arc::clone(&queue), AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&joins));
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err());
    assert!(joins.1.load(Relaxed), "the waker was called, and joined");
    // It is the second waiter's turn. When this waiter is polled, it becomes the first waiter and
    // sleeps.
    assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!((queue.waiting(), queue.waiting_keys()), (1, 1));
}

/// Wakers of several waiters of several keys panic. The waiters behind them are woken as well, and
/// the caller that closes the queue receives the first panic.
#[test]
fn wakers_that_panic_keep_nobody_asleep_in_a_queue_that_closes() {
    struct Woken(AtomicBool, bool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
            assert!(!self.1, "a waker panics");
        }
    }

    let limiter: Limiter<u64> = Limiter::builder(Quota::per_day(1)).build().unwrap();
    let queue = WaitQueue::with_sleep(limiter, |_| pending());
    let mut waiters = Vec::new();
    for key in 0..20 {
        assert!(queue.limiter().check(&key).is_allowed());
        for number in 0..3 {
            let queue = &queue;
            let mut wait = Box::pin(async move { queue.until_ready(&key).await.map(drop) });
            let woken = Arc::new(Woken(AtomicBool::new(false), number == 0));
            let waker = Waker::from(Arc::clone(&woken));
            assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            waiters.push((woken, wait));
        }
    }
    let panic = catch_unwind(AssertUnwindSafe(|| queue.close())).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"a waker panics"));
    assert_eq!(waiters.iter().filter(|(woken, _)| !woken.0.load(Relaxed)).count(), 0);
}

/// The queue owns the last reference to the waker of a waiter that leaves, and drops it.
#[test]
fn a_waker_that_panics_when_it_is_dropped_does_not_keep_the_next_waiter_asleep() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Relaxed);
        }
    }
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("a waker panics when it is dropped");
        }
    }

    let queue = empty_queue();
    let mut first = Box::pin(queue.until_ready(&()));
    let panics = Waker::from(Arc::new(Panics));
    assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
    drop(panics);
    let mut second = pin!(queue.until_ready(&()));
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(first))).is_err());
    assert!(woken.0.load(Relaxed));
}
