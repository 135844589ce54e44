//! Measures three kinds of waits:
//!
//! - A wait that ends immediately, because no caller waits and the tokens are available. It is
//!   compared with a check of the same limiter.
//! - The same wait in a queue in which another key has waiters.
//! - A wait that joins a line and leaves it, while 1,000 other keys have waiters.
//!
//! All measurements use the default clock. The quota of the first group is never exhausted.

use criterion::{Criterion, criterion_group, criterion_main};
use std::future::{Future, pending, poll_fn};
use std::hint::black_box;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Decision, Limiter, Quota};
use tollgate_wait::WaitQueue;

/// The number of other keys, each of which has a waiter.
const OTHERS: u64 = 1_000;

/// Polls a future once.
fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn wait(criterion: &mut Criterion) {
    let ample = Quota::per_second(1_000_000_000).burst(1 << 60);
    let limiter = Limiter::<u64>::builder(ample).build().expect("a valid limiter");
    let queues = WaitQueue::with_sleep(limiter, |_: Duration| pending::<()>());
    let mut group = criterion.benchmark_group("a key");
    group.bench_function("check", |bencher| {
        bencher.iter(|| queues.limiter().check(black_box(&7)).is_allowed());
    });
    group.bench_function("wait, nobody waits", |bencher| {
        bencher.iter(|| poll(pin!(queues.until_ready(black_box(&7)))).is_ready());
    });
    let slow = Quota::per_day(1);
    assert!(queues.limiter().set_key_quota(&8, slow).is_ok());
    assert!(queues.limiter().check(&8).is_allowed());
    let mut other = pin!(queues.until_ready(&8));
    assert!(poll(other.as_mut()).is_pending());
    group.bench_function("wait, another key has a waiter", |bencher| {
        bencher.iter(|| poll(pin!(queues.until_ready(black_box(&7)))).is_ready());
    });
    group.finish();
}

/// A sleep that ends when it is polled for the second time.
fn nap(_: Duration) -> impl Future<Output = ()> {
    let mut polled = false;
    poll_fn(move |_| if mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending })
}

/// Joins the line of a key whose token was taken in the previous turn. Then gives the token back,
/// takes it again and leaves the line.
fn join_and_leave<F: Future<Output = ()>>(
    queues: &WaitQueue<Limiter<u64>, impl Fn(Duration) -> F>,
    key: u64,
    last: &mut Decision,
) {
    let mut wait = pin!(queues.until_ready(&key));
    assert!(poll(wait.as_mut()).is_pending());
    queues.limiter().refund(&key, last);
    let Poll::Ready(Ok(turn)) = poll(wait) else { panic!("the token is there") };
    *last = *turn;
}

fn join(criterion: &mut Criterion) {
    let limiter = Limiter::<u64>::builder(Quota::per_day(1)).build().expect("a valid limiter");
    let queues = WaitQueue::with_sleep(limiter, nap);
    let keys: Vec<u64> = (0..OTHERS).collect();
    keys.iter().for_each(|key| assert!(queues.limiter().check(key).is_allowed()));
    let mut waiters: Vec<_> = keys.iter().map(|key| Box::pin(queues.until_ready(key))).collect();
    waiters.iter_mut().for_each(|waiter| assert!(poll(waiter.as_mut()).is_pending()));
    let mut lanes = [OTHERS, OTHERS + 1].map(|key| (key, queues.limiter().check(&key)));
    let mut group = criterion.benchmark_group("join and leave, 1000 other keys have waiters");
    for (threads, name) in [(1, "one thread"), (2, "two threads, a key each")] {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let (barrier, queues) = (&Barrier::new(threads), &queues);
                let run = |(key, last): &mut (u64, Decision)| {
                    barrier.wait();
                    let start = Instant::now();
                    (0..iterations).for_each(|_| join_and_leave(queues, *key, last));
                    start.elapsed()
                };
                thread::scope(|scope| {
                    let lanes = lanes[..threads].iter_mut();
                    let lanes: Vec<_> = lanes.map(|lane| scope.spawn(move || run(lane))).collect();
                    lanes.into_iter().map(|lane| lane.join().expect("it does not panic")).max()
                })
                .expect("there is a thread")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, wait, join);
criterion_main!(benches);
