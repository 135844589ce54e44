//! Under random schedules, callers on four threads wait for three keys: some wait to the end, some
//! have a deadline, and some give up. In the end no caller waits, and each charged token was given
//! to a caller. The queue has two shards here: two of the keys share a mutex, and the third key has
//! another.
//!
//! Other callers wait for permits, alone and together with a rate, and hold the permits for a
//! while. In the end all permits are returned.
//!
//! In other schedules, a thread closes the queue while callers wait for tokens that never refill.
//!
//! Shuttle may switch threads at every operation of the shards' mutexes, of the count of waiters
//! and of the limiter's atomics. Time is constant until a waiter sleeps. A sleep that is shorter
//! than the patience advances the clock.
//!
//! All waiters except the first sleep for longer than the patience, and so does the first while no
//! permit is free. Here such a sleep never ends, and only the waker wakes the waiter when its turn
//! begins. A lost wake is therefore a deadlock, which shuttle reports.
//!
//! `make shuttle SEED=n` runs the schedules of one seed again.

mod runner;

use loom as shuttle;
use shuttle::rand::{Rng, thread_rng};
use std::future::{Future, poll_fn, ready};
use std::ops::AddAssign;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::{Decision, InFlight, Limiter, ManualClock, Quota, Tick};
use tollgate_wait::{NextWaiter, Turn, WaitError, WaitQueue, Waitable};

const THREADS: usize = 4;
/// The number of waits of each thread.
const WAITS: usize = 8;
const KEYS: usize = 3;
const BURST: u64 = 3;
const PERMITS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(3_600);
/// The time in which a token refills.
const TOKEN: Duration = Duration::from_millis(10);

fn one_of(choices: u64) -> u64 {
    thread_rng().gen_range(0..choices)
}

fn quota() -> Quota {
    Quota::new(1, TOKEN).burst(BURST)
}

/// A sleep on a clock that the sleepers advance.
struct Sleep {
    clock: ManualClock,
    time: Duration,
    end: Tick,
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.end {
            return Poll::Ready(());
        }
        if self.time < PATIENCE {
            if one_of(2) == 0 {
                self.clock.advance(TOKEN / 4);
            }
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

/// A limiter that counts the tokens of all its charges.
struct Counted {
    limiter: Limiter<usize>,
    charged: AtomicU64,
}

impl Waitable<usize> for Counted {
    type Turn = Turn;

    fn take(
        &self,
        key: &usize,
        cost: u64,
        _: NextWaiter<'_>,
    ) -> impl Future<Output = Result<Turn, Decision>> + Send {
        let answer = self.limiter.check_n(key, cost);
        // Relaxed, because this is only a count.
        self.charged.fetch_add(answer.charged(), Relaxed);
        ready(answer.try_into())
    }

    fn peek_n(&self, key: &usize, cost: u64) -> impl Future<Output = Decision> + Send {
        ready(self.limiter.peek_n(key, cost))
    }

    fn quota(&self, _: &usize) -> Quota {
        self.limiter.quota()
    }
}

/// The charges of a thread: the key, the time, and the number of tokens.
type Charges = Vec<(usize, Tick, u64)>;

/// The number of callers that proceeded, gave up and were refused, in all schedules.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    went: u64,
    gave_up: u64,
    too_late: u64,
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        self.went += other.went;
        self.gave_up += other.gave_up;
        self.too_late += other.too_late;
    }
}

/// Polls a future at most `polls` times, and then drops it.
async fn give_up_after<F: Future>(polls: u64, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(move |cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// One wait of a caller that may have a deadline or give up.
fn turn<L, S, F>(queues: &WaitQueue<L, S>, key: usize, cost: u64, figures: &mut Figures) -> Option<L::Turn>
where
    L: Waitable<usize>,
    S: Fn(Duration) -> F,
    F: Future<Output = ()>,
{
    let turn = shuttle::future::block_on(async {
        match one_of(3) {
            0 => queues.until_n(&key, cost).await,
            1 => queues.until_n_within(&key, cost, TOKEN * one_of(8) as u32).await,
            _ => {
                let given_up = Err(WaitError::NoRetryTime);
                give_up_after(one_of(6), queues.until_n(&key, cost)).await.unwrap_or(given_up)
            }
        }
    });
    match turn {
        Ok(_) => figures.went += 1,
        Err(WaitError::NoRetryTime | WaitError::Closed) => figures.gave_up += 1,
        Err(WaitError::TooLong { .. } | WaitError::Expired { .. }) => figures.too_late += 1,
        Err(other) => panic!("{other}"),
    }
    turn.ok()
}

fn queues<L>(clock: &ManualClock, limiter: L) -> Arc<WaitQueue<L, impl Fn(Duration) -> Sleep + use<L>>> {
    let clock = clock.clone();
    let sleep = move |time| Sleep { clock: clock.clone(), time, end: clock.now() + time };
    Arc::new(WaitQueue::with_sleep(limiter, sleep).patience(PATIENCE).recheck(PATIENCE))
}

/// Runs a caller on each thread, and returns the results of all callers.
fn on_threads<T: Send + 'static>(caller: impl Fn() -> T + Clone + Send + 'static) -> Vec<T> {
    let threads: Vec<_> = (0..THREADS).map(|_| shuttle::thread::spawn(caller.clone())).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn schedule() -> Figures {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(quota()).clock(&clock).build().unwrap();
    let queues = queues(&clock, Counted { limiter, charged: AtomicU64::new(0) });
    let shared = Arc::clone(&queues);
    let ended = on_threads(move || {
        let (mut charges, mut figures) = (Charges::new(), Figures::default());
        for _ in 0..WAITS {
            let (key, cost) = (one_of(KEYS as u64) as usize, 1 + one_of(BURST));
            if let Some(turn) = turn(&shared, key, cost, &mut figures) {
                charges.push((key, turn.at(), turn.charged()));
            }
        }
        (charges, figures)
    });
    let (mut charges, mut sum) = (Charges::new(), Figures::default());
    for (its, figures) in ended {
        charges.extend(its);
        sum += figures;
    }
    assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0), "somebody is left in a line");

    // One thread repeats the same charges in the order of their times.
    let again: Limiter<usize> = Limiter::builder(quota()).clock(&clock).build().unwrap();
    charges.sort_by_key(|&(_, at, _)| at);
    let mut got = 0;
    for (key, at, cost) in charges {
        assert!(again.at(at).check_n(&key, cost).is_allowed(), "key {key} was given too much");
        got += cost;
    }
    // The remaining tokens are not compared, because a charge at an earlier time than the previous
    // charge may leave fewer tokens. The load is relaxed because the threads have ended.
    let charged = queues.limiter().charged.load(Relaxed);
    assert_eq!(charged, got, "a token was charged and nobody got it");
    sum
}

/// Each caller holds its permits while other threads run.
fn schedule_of_permits<L>(clock: &ManualClock, limiter: L, permits: &InFlight<usize>) -> Figures
where
    L: Waitable<usize> + Send + Sync + 'static,
{
    let queues = queues(clock, limiter);
    let shared = Arc::clone(&queues);
    let ended = on_threads(move || {
        let mut figures = Figures::default();
        for _ in 0..WAITS {
            let turn = turn(&shared, one_of(KEYS as u64) as usize, 1 + one_of(PERMITS), &mut figures);
            (0..one_of(4)).for_each(|_| shuttle::thread::yield_now());
            drop(turn);
        }
        figures
    });
    assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0), "somebody is left in a line");
    for key in 0..KEYS {
        assert_eq!(permits.in_flight(&key), 0, "a permit of key {key} is lost");
    }
    let mut sum = Figures::default();
    ended.into_iter().for_each(|figures| sum += figures);
    sum
}

/// One thread closes a queue, while each of the others waits once, unless it has a deadline. The
/// queue is then replaced.
fn closed_while_callers_wait() -> Figures {
    let mut sum = Figures::default();
    for _ in 0..WAITS {
        let clock = ManualClock::new();
        let limiter = Limiter::builder(Quota::per_day(1)).clock(&clock).build().unwrap();
        let queues = queues(&clock, Counted { limiter, charged: AtomicU64::new(0) });
        let shared = Arc::clone(&queues);
        let closer = shuttle::thread::spawn(move || shared.close());
        let shared = Arc::clone(&queues);
        let ended = on_threads(move || {
            let mut figures = Figures::default();
            turn(&shared, one_of(2) as usize, 1, &mut figures);
            figures
        });
        closer.join().unwrap();
        assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0), "somebody is left in a line");
        ended.into_iter().for_each(|figures| sum += figures);
    }
    sum
}

fn permits_alone() -> Figures {
    let permits = InFlight::builder(PERMITS).build().unwrap();
    schedule_of_permits(&ManualClock::new(), permits.clone(), &permits)
}

fn permits_and_a_rate() -> Figures {
    let clock = ManualClock::new();
    let rate: Limiter<usize> = Limiter::builder(quota()).clock(&clock).build().unwrap();
    let permits = InFlight::builder(1).build().unwrap();
    schedule_of_permits(&clock, (rate, permits.clone()), &permits)
}

fn explore(what: &str, index: u64, schedule: fn() -> Figures) {
    let sum = Arc::new(Mutex::new(Figures::default()));
    let counted = Arc::clone(&sum);
    runner::run(what, index, move || *counted.lock().unwrap() += schedule());
    let sum = *sum.lock().unwrap();
    println!("{what}: {sum:?}");
    let counted = [sum.went, sum.gave_up, sum.too_late];
    assert!(runner::repeated().is_some() || !counted.contains(&0), "something was not explored: {sum:?}");
}

#[test]
fn waiters_at_random_schedules_lose_no_wake_and_no_token() {
    explore("waiters", 0, schedule);
}

#[test]
fn a_close_at_random_schedules_leaves_no_waiter_asleep() {
    explore("a close", 3, closed_while_callers_wait);
}

#[test]
fn permits_given_back_at_random_schedules_are_heard_of() {
    explore("permits", 1, permits_alone);
}

#[test]
fn a_permit_and_a_rate_at_random_schedules_lose_no_wake() {
    explore("permits and a rate", 2, permits_and_a_rate);
}
