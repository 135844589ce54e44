//! [`Runtime`]: where the tasks of a client run, and how a thread waits for one of them.
//!
//! A client without a runtime starts its tasks in the runtime of the caller. Such a client moves
//! from runtime to runtime: if one ends, the next request starts the tasks again in its own.
//!
//! A client with a thread drives a runtime of one thread there. The runtime never leaves its
//! thread, because dropping a runtime inside an asynchronous function would panic. Dropping
//! [`RuntimeThread`] ends the thread, and waits for nothing: a task on the thread itself may hold
//! the last reference to the client.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot::{Sender, channel};
use tokio::task::JoinHandle;

/// The name of a client's thread.
const NAME: &str = "tollgate-redis";
/// The runtime looks up the names of servers on a second thread, which ends if it was idle for this
/// long.
const IDLE: Duration = Duration::from_secs(1);

/// How long after the deadline a caller waits for a task, which notices the deadline a moment
/// later. After this time, the runtime does not run the task.
pub(crate) const MARGIN: Duration = Duration::from_millis(5);

/// Where the tasks of a client run.
pub(crate) enum Runtime {
    /// In the runtime of the caller that starts them.
    OfCaller,
    Given(Handle),
    Own(RuntimeThread),
}

/// The setting from which a [`Runtime`] is started.
#[derive(Clone, Default)]
pub(crate) enum RuntimeSetting {
    #[default]
    OfCaller,
    Given(Handle),
    Thread,
}

impl RuntimeSetting {
    /// Returns an error if the system refuses a thread.
    pub(crate) fn start(self) -> io::Result<Runtime> {
        Ok(match self {
            Self::OfCaller => Runtime::OfCaller,
            Self::Given(handle) => Runtime::Given(handle),
            Self::Thread => Runtime::Own(RuntimeThread::start()?),
        })
    }
}

/// A thread that drives a runtime until this value is dropped.
pub(crate) struct RuntimeThread {
    handle: Handle,
    /// Dropping the sender ends the thread.
    _end: Sender<()>,
}

impl RuntimeThread {
    /// Returns an error if the system refuses the thread, or the files that a runtime needs.
    fn start() -> io::Result<Self> {
        let (end, ended) = channel();
        let (tell, told) = mpsc::channel();
        thread::Builder::new().name(NAME.to_owned()).spawn(move || {
            let mut builder = Builder::new_current_thread();
            builder.enable_io().enable_time();
            match builder.thread_name(NAME).max_blocking_threads(1).thread_keep_alive(IDLE).build() {
                Ok(runtime) => {
                    let _ = tell.send(Ok(runtime.handle().clone()));
                    // An error means that the sender was dropped.
                    let _ = runtime.block_on(ended);
                    // A slow look-up of a server's name must not delay the end of this thread.
                    runtime.shutdown_background();
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        })?;
        let ended_early = |_| io::Error::other("the thread of the runtime has ended");
        Ok(Self { handle: told.recv().map_err(ended_early)??, _end: end })
    }
}

impl Runtime {
    /// Returns the runtime in which a task that is started now will run. Returns `None` if the
    /// client has no runtime, and the caller is not inside one either.
    pub(crate) fn current(&self) -> Option<Handle> {
        match self {
            Self::OfCaller => Handle::try_current().ok(),
            Self::Given(handle) | Self::Own(RuntimeThread { handle, .. }) => Some(handle.clone()),
        }
    }

    /// Starts a task. If there is no runtime or it has ended, drops the task, which may do the rest
    /// in its destructor.
    pub(crate) fn spawn<F>(&self, task: F) -> Option<JoinHandle<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        Some(self.current()?.spawn(task))
    }

    /// Runs a function on a new thread. If the system refuses the thread, drops the function. A
    /// blocking thread of tokio might be busy with the look-up of a name. If tokio has no such
    /// thread and the system refuses one, tokio panics.
    pub(crate) fn spawn_blocking(&self, work: impl FnOnce() + Send + 'static) {
        drop(thread::Builder::new().name(NAME.to_owned()).spawn(work));
    }

    /// Returns whether a future that is polled now has a timer.
    pub(crate) fn has_timer(&self) -> bool {
        matches!(self, Self::Own(_)) || Handle::try_current().is_ok()
    }

    /// Lets any executor poll `future`, if the client has a thread: the timers and tasks of the
    /// future are then on that thread. The future must hold the client, because a timer panics once
    /// its runtime has ended. For the same reason, a future never uses the timers of a runtime that
    /// was given.
    pub(crate) async fn within<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _entered = self.enter();
            future.as_mut().poll(context)
        })
        .await
    }

    fn enter(&self) -> Option<EnterGuard<'_>> {
        match self {
            Self::Own(thread) => Some(thread.handle.enter()),
            Self::OfCaller | Self::Given(_) => None,
        }
    }
}

/// Wakes a thread that waits in [`block_until`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `future` is ready or the deadline has passed. The future needs no
/// runtime.
pub(crate) fn block_until<F: Future + Unpin>(future: &mut F, deadline: Instant) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut context) {
            return Some(output);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_that_hangs_delays_no_sweep() {
        let runtime = RuntimeSetting::Thread.start().unwrap();
        let (end, ended) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        // The only thread for look-ups of names waits.
        runtime.current().unwrap().spawn_blocking(move || ended.recv());
        runtime.spawn_blocking(move || tell.send(()).unwrap());
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(end);
    }
}
