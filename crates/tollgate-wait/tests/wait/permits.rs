//! Tests waiting for permits, alone and paired with a rate.

use crate::simulation::{Simulation, Sleep, TaskId, ms};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;
use std::time::Duration;
use tollgate::{Decision, InFlight, Limiter, Quota, SingleLimiter, Tick};
use tollgate_wait::{WaitError, WaitQueue, Waitable};

/// A duration longer than any test.
const LONG: Duration = Duration::from_secs(100 * 86_400);

type Queue<L> = Rc<WaitQueue<L, Box<dyn Fn(Duration) -> Sleep>>>;
type Jobs = InFlight<u64>;
type Both = (Limiter<u64>, Jobs);

/// Creates a queue whose waiters check the limiter only when they are woken.
fn queue<L>(simulation: &Simulation, limiter: L) -> Queue<L> {
    let sleep: Box<dyn Fn(Duration) -> Sleep> = Box::new(simulation.sleeper());
    Rc::new(WaitQueue::with_sleep(limiter, sleep).patience(LONG).recheck(LONG))
}

fn jobs(limit: u64) -> Jobs {
    InFlight::builder(limit).build().unwrap()
}

/// The callers in the order in which they started to work, and their starting times.
type Begun = Rc<RefCell<Vec<(u64, Duration)>>>;

/// Spawns a caller that waits for its turn and then works for some time.
fn come<L>(
    simulation: &mut Simulation,
    queue: &Queue<L>,
    begun: &Begun,
    caller: u64,
    work: Duration,
) -> TaskId
where
    L: Waitable<u64> + 'static,
{
    let (queue, begun, clock) = (Rc::clone(queue), Rc::clone(begun), simulation.clock.clone());
    let sleep = simulation.sleeper();
    let task = simulation.spawn(async move {
        let turn = queue.until_ready(&7).await.unwrap_or_else(|error| panic!("{error}"));
        begun.borrow_mut().push((caller, clock.now().since(Tick::ZERO)));
        sleep(work).await;
        drop(turn);
    });
    simulation.settle();
    task
}

/// An answer given to a caller with a deadline, and the time at which the answer arrived.
type Told = Rc<Cell<Option<(Result<(), WaitError>, Duration)>>>;

fn told<L>(simulation: &mut Simulation, queue: &Queue<L>, permits: u64, max_wait: Duration) -> Told
where
    L: Waitable<u64> + 'static,
{
    let (queue, told, clock) = (Rc::clone(queue), Told::default(), simulation.clock.clone());
    let slot = Rc::clone(&told);
    simulation.spawn(async move {
        let turn = queue.until_n_within(&7, permits, max_wait).await.map(|_| ());
        slot.set(Some((turn, clock.now().since(Tick::ZERO))));
    });
    simulation.settle();
    told
}

#[test]
fn each_permit_that_comes_back_goes_to_the_next_at_once() {
    let mut simulation = Simulation::new(1);
    let queue = queue(&simulation, jobs(2));
    let begun = Begun::default();
    for (caller, work) in [300, 100, 50, 500, 10, 10].into_iter().enumerate() {
        come(&mut simulation, &queue, &begun, caller as u64, ms(work));
    }
    assert_eq!((queue.waiting(), queue.limiter().in_flight(&7)), (4, 2));
    simulation.run_for(ms(1_000));
    let times = [(0, 0), (1, 0), (2, 100), (3, 150), (4, 300), (5, 310)];
    assert_eq!(*begun.borrow(), times.map(|(caller, at)| (caller, ms(at))));
    assert_eq!((queue.waiting(), queue.limiter().in_flight(&7)), (0, 0));
}

/// Requests for fewer permits do not overtake a request for several permits, and each returned
/// permit wakes that request's waiter.
#[test]
fn a_request_for_several_permits_waits_for_all_of_them() {
    let mut simulation = Simulation::new(2);
    let queue = queue(&simulation, jobs(3));
    let begun = Begun::default();
    for work in [100, 200, 300] {
        come(&mut simulation, &queue, &begun, 0, ms(work));
    }
    let three = told(&mut simulation, &queue, 3, LONG);
    come(&mut simulation, &queue, &begun, 1, ms(0));
    simulation.run_for(ms(1_000));
    assert_eq!(three.get(), Some((Ok(()), ms(300))));
    assert_eq!(begun.borrow().last(), Some(&(1, ms(300))));
    let never = told(&mut simulation, &queue, 4, LONG).get().unwrap().0;
    assert_eq!(never, Err(WaitError::Never { cost: 4, capacity: 3 }));
}

#[test]
fn a_wait_that_expires_tells_how_many_permits_are_out() {
    let mut simulation = Simulation::new(3);
    let queue = queue(&simulation, jobs(2));
    let begun = Begun::default();
    // One permit is never returned.
    mem::forget(queue.block_until_ready(&7).unwrap());
    come(&mut simulation, &queue, &begun, 0, ms(250));
    let expired = |max_wait, out| Err(WaitError::Expired { max_wait, in_flight: Some(out) });
    let at_once = told(&mut simulation, &queue, 1, Duration::ZERO);
    assert_eq!(at_once.get(), Some((expired(Duration::ZERO, 2), ms(0))));
    let first = told(&mut simulation, &queue, 1, ms(100));
    let behind = told(&mut simulation, &queue, 1, ms(200));
    // Behind other waiters, a wait of zero is refused even if the number of permits in use is
    // unknown.
    assert_eq!(told(&mut simulation, &queue, 1, Duration::ZERO).get(), at_once.get());
    let both = told(&mut simulation, &queue, 2, ms(400));
    simulation.run_for(ms(1_000));
    assert_eq!(first.get(), Some((expired(ms(100), 2), ms(100))));
    assert_eq!(behind.get(), Some((expired(ms(200), 2), ms(200))));
    assert_eq!(both.get(), Some((expired(ms(400), 1), ms(400))));
    assert_eq!((queue.waiting(), queue.limiter().in_flight(&7)), (0, 1));
    let text = both.get().unwrap().0.unwrap_err().to_string();
    assert!(text.contains("400ms") && text.contains("1 permits are in use"), "{text}");
}

/// If a waiter whose turn has arrived is dropped before it is polled, the turn passes to the next
/// waiter.
#[test]
fn a_permit_for_one_who_leaves_goes_to_the_next() {
    let mut simulation = Simulation::new(4);
    let queue = queue(&simulation, jobs(1));
    let begun = Begun::default();
    let permit = queue.block_until_ready(&7).unwrap();
    let first = come(&mut simulation, &queue, &begun, 1, ms(0));
    come(&mut simulation, &queue, &begun, 2, ms(0));
    drop(permit);
    simulation.drop_task(first);
    simulation.settle();
    assert_eq!(*begun.borrow(), [(2, ms(0))]);
}

fn both(simulation: &Simulation, quota: Quota, limit: u64) -> Queue<Both> {
    let rate = Limiter::builder(quota).clock(simulation.clock.clone()).build().unwrap();
    queue(simulation, (rate, jobs(limit)))
}

#[test]
fn a_rate_and_a_permit_are_taken_together_or_not_at_all() {
    let mut simulation = Simulation::new(5);
    let queue = both(&simulation, Quota::per_second(10).burst(3), 2);
    let held = [(); 2].map(|()| queue.block_until_ready(&7).unwrap());
    let (rate, jobs) = queue.limiter();
    assert_eq!((rate.peek(&7).remaining(), jobs.in_flight(&7)), (1, 2));
    // No permit is available, so no token is taken, and the time is unknown.
    let expired = WaitError::Expired { max_wait: Duration::ZERO, in_flight: Some(2) };
    assert_eq!(told(&mut simulation, &queue, 1, Duration::ZERO).get().unwrap().0, Err(expired));
    assert_eq!(rate.peek(&7).remaining(), 1);
    // No token is available, so no permit is taken, and the time is known.
    drop(held);
    let late = WaitError::TooLong { wait: ms(100), max_wait: Duration::ZERO };
    assert_eq!(told(&mut simulation, &queue, 2, Duration::ZERO).get().unwrap().0, Err(late));
    assert_eq!((rate.peek(&7).remaining(), jobs.in_flight(&7)), (1, 0));
    // A cost applies to the rate, so it may exceed the permit limit.
    let three = told(&mut simulation, &queue, 3, ms(200));
    simulation.run_for(ms(200));
    assert_eq!(three.get(), Some((Ok(()), ms(200))));
    let never = told(&mut simulation, &queue, 4, LONG).get().unwrap().0;
    assert_eq!(never, Err(WaitError::Never { cost: 4, capacity: 3 }));
    // Behind other waiters, a caller is refused immediately if the rate alone would take too long.
    let begun = Begun::default();
    for caller in 0..8 {
        come(&mut simulation, &queue, &begun, caller, ms(0));
    }
    let late = told(&mut simulation, &queue, 1, ms(500)).get().unwrap().0;
    assert!(matches!(late, Err(WaitError::TooLong { wait, .. }) if wait >= ms(800)), "{late:?}");
}

/// After the documented interval, a waiter detects changes that do not wake it: a refund, a reset,
/// a larger quota, and a returned permit that was taken without the queue.
#[test]
fn a_waiter_asks_again_at_the_stated_interval() {
    let mut simulation = Simulation::new(6);
    let clock = simulation.clock.clone();
    let limiter = || SingleLimiter::builder(Quota::per_hour(1)).clock(clock.clone()).build().unwrap();
    let goes = |simulation: &mut Simulation, change: &dyn Fn(&SingleLimiter, &Decision)| {
        let limiter = limiter();
        let charge = limiter.check();
        assert!(charge.is_allowed());
        let queue = Rc::new(WaitQueue::with_sleep(limiter, simulation.sleeper()));
        let (shared, went) = (Rc::clone(&queue), Rc::new(Cell::new(false)));
        let slot = Rc::clone(&went);
        simulation.spawn(async move {
            slot.set(shared.until_ready(&()).await.is_ok());
        });
        simulation.run_for(ms(5_300));
        change(queue.limiter(), &charge);
        simulation.run_for(ms(699));
        assert!(!went.get());
        simulation.run_for(ms(1));
        assert!(went.get());
    };
    goes(&mut simulation, &|limiter, _| limiter.set_quota(Quota::per_hour(2)).unwrap());
    goes(&mut simulation, &|limiter, _| limiter.reset());
    goes(&mut simulation, &|limiter, charge| limiter.refund(charge));

    let queue = Rc::new(WaitQueue::with_sleep(jobs(1), simulation.sleeper()).recheck(ms(100)));
    let permit = queue.limiter().acquire_owned(7_u64).unwrap();
    let (shared, went) = (Rc::clone(&queue), Rc::new(Cell::new(false)));
    let slot = Rc::clone(&went);
    simulation.spawn(async move {
        slot.set(shared.until_ready(&7_u64).await.is_ok());
    });
    simulation.run_for(ms(1_050));
    drop(permit);
    simulation.run_for(ms(49));
    assert!(!went.get());
    simulation.run_for(ms(1));
    assert!(went.get());
}

/// A caller in the random test.
struct Caller {
    task: TaskId,
    cost: u64,
}

/// Random callers of three keys wait, work, and hang up while they wait or work. A waiter checks
/// the limiter only when it is woken or its tokens are available. No caller is overtaken, no caller
/// waits for an available permit or token, the limits hold, and no permit or token is lost.
fn random_callers<L>(new: impl Fn(&Simulation) -> Queue<L>, can_pass: impl Fn(&L, u64, u64) -> bool)
where
    L: Waitable<u64> + 'static,
{
    let callers = 60_000;
    let mut simulation = Simulation::new(7);
    let mut random = fastrand::Rng::with_seed(8);
    let queue = new(&simulation);
    let begun: Rc<RefCell<Vec<(usize, u64)>>> = Rc::default();
    let mut waiting: [BTreeMap<u64, Caller>; 3] = Default::default();
    let mut working: Vec<TaskId> = Vec::new();
    let (mut last, mut went, mut left) = ([0; 3], 0_u64, 0_u64);
    for number in 1..=callers {
        let (at, cost) = (random.usize(..3), random.u64(1..=3));
        let (shared, list, sleep) = (Rc::clone(&queue), Rc::clone(&begun), simulation.sleeper());
        let work = Duration::from_micros(random.u64(..15_000));
        let task = simulation.spawn(async move {
            let turn = shared.until_n(&(at as u64), cost).await.unwrap_or_else(|error| panic!("{error}"));
            list.borrow_mut().push((at, number));
            sleep(work).await;
            drop(turn);
        });
        waiting[at].insert(number, Caller { task, cost });
        simulation.settle();
        // Some callers hang up: the first waiter, another waiter, or a working caller.
        let line = &mut waiting[random.usize(..3)];
        let chosen = if random.bool() { line.keys().next() } else { line.keys().nth(random.usize(..8)) };
        let chosen = chosen.copied().filter(|_| random.u64(..4) > 0);
        if let Some(number) = chosen.filter(|number| !begun.borrow().iter().any(|it| it.1 == *number)) {
            simulation.drop_task(line.remove(&number).unwrap().task);
            left += 1;
        }
        if random.u64(..8) == 0 && !working.is_empty() {
            simulation.drop_task(working.swap_remove(random.usize(..working.len())));
        }
        simulation.run_for(Duration::from_micros(random.u64(..4_000)));
        for (at, number) in begun.borrow_mut().drain(..) {
            assert!(number > last[at], "caller {number} was overtaken by {}", last[at]);
            (last[at], went) = (number, went + 1);
            working.push(waiting[at].remove(&number).unwrap().task);
        }
        for (key, line) in waiting.iter().enumerate() {
            let Some((number, first)) = line.iter().next() else { continue };
            let is_there = can_pass(queue.limiter(), key as u64, first.cost);
            assert!(!is_there, "caller {number} waits for {} that are there", first.cost);
        }
    }
    assert!(went > callers / 4 && left > callers / 10, "{went} went, {left} left");
    for line in &waiting {
        line.values().for_each(|caller| simulation.drop_task(caller.task));
    }
    simulation.run_for(ms(1_000));
    assert_eq!((queue.waiting(), queue.waiting_keys()), (0, 0));
    for key in 0..3 {
        assert!(can_pass(queue.limiter(), key, 3), "something of key {key} was lost");
    }
}

#[test]
fn random_holders_lose_no_permit_and_no_turn() {
    random_callers(
        |simulation| queue(simulation, jobs(3)),
        |jobs, key, permits| {
            assert!(jobs.in_flight(&key) <= 3);
            jobs.in_flight(&key) + permits <= 3
        },
    );
}

#[test]
fn random_callers_of_a_rate_and_a_permit_lose_neither() {
    random_callers(
        |simulation| both(simulation, Quota::per_second(500).burst(3), 2),
        |(rate, jobs), key, cost| {
            assert!(jobs.in_flight(&key) <= 2);
            jobs.in_flight(&key) < 2 && rate.peek_n(&key, cost).is_allowed()
        },
    );
}
