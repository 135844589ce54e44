//! An executor that runs one future on a waiting thread. A timer is a time at which the thread
//! wakes up.

use std::cell::Cell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The earliest time at which any [`Nap`] of this thread ends.
#[derive(Default)]
pub(crate) struct Alarm(Cell<Option<Instant>>);

impl Alarm {
    /// Returns a future that is ready after `time`, for a thread parked by [`block_on`].
    pub(crate) fn nap(&self, time: Duration) -> Nap<'_> {
        // If no clock can represent the end of a nap, the nap never ends.
        Nap { alarm: self, end: Instant::now().checked_add(time) }
    }
}

pub(crate) struct Nap<'a> {
    alarm: &'a Alarm,
    end: Option<Instant>,
}

impl Future for Nap<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let Some(end) = self.end else { return Poll::Pending };
        if Instant::now() >= end {
            return Poll::Ready(());
        }
        let earliest = self.alarm.0.get().map_or(end, |other| other.min(end));
        self.alarm.0.set(Some(earliest));
        Poll::Pending
    }
}

/// Runs `future` to completion. The thread is parked until it is woken or a nap ends.
pub(crate) fn block_on<T>(alarm: &Alarm, future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        alarm.0.set(None);
        if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
            return value;
        }
        match alarm.0.get() {
            Some(end) => thread::park_timeout(end.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}
