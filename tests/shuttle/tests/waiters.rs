//! Callers on four threads that wait for three keys, at random schedules: some wait to the end,
//! some have a deadline, some give up. In the end nobody waits, and each token that was charged
//! went to a caller. The queue has two shards here: two of the keys share a mutex, and the third
//! has another one.
//!
//! Shuttle may switch threads at every operation of the shards' mutexes, of the count of waiters
//! and of the limiter's atomics.
//! Time stands still until a waiter sleeps; a sleep that is shorter than the patience moves the
//! clock on. A waiter that is not the first sleeps for longer, and here that sleep never ends: only
//! its waker tells it that its turn has come. So a wake that is lost is a deadlock, which shuttle
//! reports.
//!
//! `make shuttle SEED=n` runs the schedules of one seed again.

mod runner;

use loom as shuttle;
use shuttle::rand::{Rng, thread_rng};
use std::future::{Future, poll_fn};
use std::ops::AddAssign;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tollgate::{Limiter, ManualClock, Quota, Tick};
use tollgate_wait::{WaitError, WaitQueue};

const THREADS: usize = 4;
/// The waits of each thread.
const WAITS: usize = 8;
const KEYS: usize = 3;
const BURST: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(3_600);
/// The time of a token.
const TOKEN: Duration = Duration::from_millis(10);

fn one_of(choices: u64) -> u64 {
    thread_rng().gen_range(0..choices)
}

fn quota() -> Quota {
    Quota::new(1, TOKEN).burst(BURST)
}

/// A sleep by a clock that the sleepers move.
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

/// The charges of a thread: of which key, when, and how many tokens.
type Charges = Vec<(usize, Tick, u64)>;

/// How often callers went, gave up and were refused, in all schedules.
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

/// Polls a future at most so often, and drops it then.
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

fn wait<S, F>(queues: &WaitQueue<Limiter<usize>, S>, charges: &mut Charges, figures: &mut Figures)
where
    S: Fn(Duration) -> F,
    F: Future<Output = ()>,
{
    let (key, cost) = (one_of(KEYS as u64) as usize, 1 + one_of(BURST));
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
        Ok(turn) => {
            charges.push((key, turn.at(), turn.charged()));
            figures.went += 1;
        }
        Err(WaitError::NoRetryTime) => figures.gave_up += 1,
        Err(WaitError::TooLong { .. } | WaitError::Expired { .. }) => figures.too_late += 1,
        Err(other) => panic!("{other}"),
    }
}

fn schedule() -> Figures {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(quota()).clock(&clock).build().unwrap();
    let sleeping = clock.clone();
    let sleep = move |time| Sleep { clock: sleeping.clone(), time, end: sleeping.now() + time };
    let queues = WaitQueue::with_sleep(limiter, sleep).patience(PATIENCE);
    let queues = Arc::new(queues);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let queues = Arc::clone(&queues);
            shuttle::thread::spawn(move || {
                let (mut charges, mut figures) = (Charges::new(), Figures::default());
                (0..WAITS).for_each(|_| wait(&queues, &mut charges, &mut figures));
                (charges, figures)
            })
        })
        .collect();
    let (mut charges, mut sum) = (Charges::new(), Figures::default());
    for thread in threads {
        let (its, figures) = thread.join().unwrap();
        charges.extend(its);
        sum += figures;
    }
    assert_eq!((queues.waiting(), queues.waiting_keys()), (0, 0), "somebody is left in a line");

    // The same charges in the order of their times, by one thread.
    let again: Limiter<usize> = Limiter::builder(quota()).clock(&clock).build().unwrap();
    charges.sort_by_key(|&(_, at, _)| at);
    for (key, at, cost) in charges {
        assert!(again.at(at).check_n(&key, cost).is_allowed(), "key {key} was given too much");
    }
    for key in 0..KEYS {
        let (left, expected) = (queues.limiter().peek(&key).remaining(), again.peek(&key).remaining());
        assert_eq!(left, expected, "a token of key {key} was charged and nobody got it");
    }
    sum
}

#[test]
fn waiters_at_random_schedules_lose_no_wake_and_no_token() {
    let sum = Arc::new(Mutex::new(Figures::default()));
    let counted = Arc::clone(&sum);
    runner::run("waiters", 0, move || *counted.lock().unwrap() += schedule());
    let sum = *sum.lock().unwrap();
    println!("waiters: {sum:?}");
    let counted = [sum.went, sum.gave_up, sum.too_late];
    assert!(runner::repeated().is_some() || !counted.contains(&0), "something was not explored: {sum:?}");
}
