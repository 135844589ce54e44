//! The cost of a wait that is over at once, because nobody waits and the tokens are there, beside a
//! check of the same limiter; and of a wait in a queue that another key's waiters are in.
//!
//! One thread, by the default clock. The quota never runs out.

use criterion::{Criterion, criterion_group, criterion_main};
use std::future::{Future, pending};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tollgate::{Limiter, Quota};
use tollgate_wait::WaitQueue;

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

criterion_group!(benches, wait);
criterion_main!(benches);
