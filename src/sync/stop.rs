//! Stops a thread at a chosen point in its work, for unit tests.
//!
//! A stopped thread keeps everything that it had at that point: a guard, a frozen word, a slot
//! without a charge. While a test holds the [`Stopped`], the thread does not run, as if it had
//! stopped forever. When the test drops the [`Stopped`], the thread resumes and runs to its end. If
//! the thread never resumed, its guard would delay collections for which other tests in the process
//! wait.

use std::any::Any;
use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;
use std::time::Duration;

thread_local! {
    static STOP: RefCell<Option<Stop>> = const { RefCell::new(None) };
}

/// The step at which a thread must stop.
struct Stop {
    step: Box<dyn Any>,
    has_stopped: Sender<()>,
    go_on: Receiver<()>,
}

/// A stopped thread. Dropping this value resumes the thread.
pub(crate) struct Stopped(#[allow(dead_code)] Sender<()>);

/// Stops the thread if a test has requested a stop at this step.
pub(crate) fn reach<S: PartialEq + 'static>(step: S) {
    let stop = STOP.with_borrow_mut(|stop| stop.take_if(|stop| stop.step.downcast_ref() == Some(&step)));
    if let Some(stop) = stop {
        stop.has_stopped.send(()).expect("the test waits for it");
        // An error means that the `Stopped` was dropped.
        let _ = stop.go_on.recv();
    }
}

/// Starts a thread that calls `work`, and returns once the thread has stopped at `step`.
pub(crate) fn stop_at<'scope, S: Copy + Debug + PartialEq + Send + 'static>(
    scope: &'scope Scope<'scope, '_>,
    step: S,
    work: impl FnOnce() + Send + 'scope,
) -> Stopped {
    let (has_stopped, stops) = channel();
    let (stopped, go_on) = channel();
    scope.spawn(move || {
        STOP.set(Some(Stop { step: Box::new(step), has_stopped, go_on }));
        work();
    });
    stops.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{step:?} was never reached"));
    Stopped(stopped)
}
