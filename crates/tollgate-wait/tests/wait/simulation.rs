//! A single-threaded simulation in virtual time. It consists of tasks, their timers, and a clock
//! for limiters. Ready tasks run in a random order. When no task is ready, the time advances to the
//! next timer.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tollgate::{ManualClock, Tick};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) type TaskId = u64;

/// The wakers of timers, indexed by the end of the timer and a number.
type Timers = BTreeMap<(Tick, u64), Waker>;

pub(crate) struct Simulation {
    pub clock: ManualClock,
    timers: Rc<RefCell<Timers>>,
    tasks: HashMap<TaskId, Pin<Box<dyn Future<Output = ()>>>>,
    ready: Arc<Ready>,
    last_task: TaskId,
    random: fastrand::Rng,
}

#[derive(Default)]
struct Ready {
    tasks: Mutex<Vec<TaskId>>,
    wakes: AtomicU64,
}

struct Task(TaskId, Arc<Ready>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.1.wakes.fetch_add(1, Relaxed);
        let mut ready = self.1.tasks.lock().unwrap();
        if !ready.contains(&self.0) {
            ready.push(self.0);
        }
    }
}

impl Simulation {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            clock: ManualClock::new(),
            timers: Rc::default(),
            tasks: HashMap::new(),
            ready: Arc::default(),
            last_task: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Returns a sleeper for queues.
    pub(crate) fn sleeper(&self) -> impl Fn(Duration) -> Sleep + Clone + use<> {
        let (clock, timers) = (self.clock.clone(), Rc::clone(&self.timers));
        move |time| Sleep {
            end: clock.now() + time,
            number: None,
            clock: clock.clone(),
            timers: Rc::clone(&timers),
        }
    }

    pub(crate) fn spawn(&mut self, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.last_task += 1;
        self.tasks.insert(self.last_task, Box::pin(future));
        self.ready.tasks.lock().unwrap().push(self.last_task);
        self.last_task
    }

    /// Drops a task, as if its caller hung up.
    pub(crate) fn drop_task(&mut self, task: TaskId) {
        self.tasks.remove(&task);
    }

    /// Leaks a task, which is then never polled again and never dropped.
    pub(crate) fn forget(&mut self, task: TaskId) {
        std::mem::forget(self.tasks.remove(&task));
    }

    /// Removes a task from the simulation, like a runtime that stops running the task for a while.
    pub(crate) fn stall(&mut self, task: TaskId) -> Pin<Box<dyn Future<Output = ()>>> {
        self.tasks.remove(&task).unwrap()
    }

    pub(crate) fn go_on(&mut self, task: TaskId, future: Pin<Box<dyn Future<Output = ()>>>) {
        self.tasks.insert(task, future);
        self.ready.tasks.lock().unwrap().push(task);
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.now().since(Tick::ZERO)
    }

    /// Returns how many times tasks were woken, except by timers.
    pub(crate) fn wakes(&self) -> u64 {
        self.ready.wakes.load(Relaxed)
    }

    /// Polls tasks until no task is ready.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut ready = self.ready.tasks.lock().unwrap();
            if ready.is_empty() {
                return;
            }
            let next = self.random.usize(..ready.len());
            let id = ready.swap_remove(next);
            drop(ready);
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            let waker = Waker::from(Arc::new(Task(id, Arc::clone(&self.ready))));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                self.tasks.remove(&id);
            }
        }
    }

    /// Advances the time by `time`, and runs all tasks and timers that become due.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        loop {
            self.settle();
            let first = self.timers.borrow().keys().next().copied();
            match first.filter(|(at, _)| *at <= end) {
                Some(next) => {
                    self.clock.set(next.0.max(self.clock.now()));
                    let waker = self.timers.borrow_mut().remove(&next).unwrap();
                    let wakes = self.wakes();
                    waker.wake();
                    self.ready.wakes.store(wakes, Relaxed);
                }
                None => break,
            }
        }
        self.clock.set(end);
    }
}

pub(crate) struct Sleep {
    end: Tick,
    number: Option<u64>,
    clock: ManualClock,
    timers: Rc<RefCell<Timers>>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.end {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| fastrand::u64(..));
        self.timers.borrow_mut().insert((self.end, number), cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.timers.borrow_mut().remove(&(self.end, number));
        }
    }
}
