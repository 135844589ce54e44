//! Requests that wait for a store.
//!
//! The check of a request is a future, which the stream's filter owns and only the stream's worker
//! polls, in hooks of the stream. Listeners of decisions may therefore use the stream. While the
//! request waits, Envoy holds it back, and the worker serves other streams. An answer of the store,
//! or the end of the deadline, wakes the check on the module's own thread. The waker posts an event
//! to the worker, whose hook polls the check again.
//!
//! # Invariants
//!
//! 1. No event is posted after the filter was destroyed. Envoy destroys the filters of a worker on
//!    the worker, before the worker ends, and an event may not be posted to a worker that has
//!    ended.
//! 2. At most one event of a check is under way. The hook allows the next event before it polls the
//!    check, so a wake during the poll is not lost.
//!
//! # Progress
//!
//! The lock of a waker is held while an event is posted, or for a few instructions, and only by
//! this stream. A request that a store need not decide has no waker.

#![allow(unsafe_code)]

use crate::abi::{self, EnvoyScheduler, EnvoyStream};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use tollgate_http::program::{Checked, WaitingCheck};

/// How often a check yields before it sends its request over a connection without recent traffic.
/// The check is polled again at once, because an event for each yield would delay the request.
pub(crate) const YIELDS: usize = 2;

/// The check of a request that Envoy holds back.
pub(crate) struct Suspended {
    check: WaitingCheck,
    wakes: Arc<StreamWaker>,
}

/// A check after its first hook.
pub(crate) enum Begun {
    Decided(Checked),
    Waits(Box<Suspended>),
}

/// Wakes a check by an event of its stream.
struct StreamWaker(Mutex<Wakes>);

struct Wakes {
    /// `None` once the check has ended.
    scheduler: Option<Scheduler>,
    /// Whether an event is under way.
    is_posted: bool,
}

/// Posts the events of a stream.
struct Scheduler(*mut EnvoyScheduler);

// SAFETY: Envoy's scheduler may be used and deleted on any thread.
unsafe impl Send for Scheduler {}

impl Scheduler {
    fn new(stream: *mut EnvoyStream) -> Self {
        // SAFETY: the stream belongs to the running hook.
        Self(unsafe { abi::envoy_dynamic_module_callback_http_filter_scheduler_new(stream) })
    }

    fn post(&self) {
        // SAFETY: the scheduler has not been deleted, and the filter of its stream has not been
        // destroyed, by invariant 1.
        unsafe { abi::envoy_dynamic_module_callback_http_filter_scheduler_commit(self.0, 0) }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: the module owns the scheduler, and does not use it again.
        unsafe { abi::envoy_dynamic_module_callback_http_filter_scheduler_delete(self.0) }
    }
}

impl Suspended {
    /// Begins a check, in a hook of its stream.
    pub(crate) fn begin(mut check: WaitingCheck, stream: *mut EnvoyStream) -> Begun {
        // Most checks are decided by a lease, and need no scheduler.
        for _ in 0..=YIELDS {
            let mut context = Context::from_waker(Waker::noop());
            if let Poll::Ready(checked) = Pin::new(&mut check).poll(&mut context) {
                return Begun::Decided(checked);
            }
        }
        let wakes = Wakes { scheduler: Some(Scheduler::new(stream)), is_posted: false };
        let mut suspended = Self { check, wakes: Arc::new(StreamWaker(Mutex::new(wakes))) };
        match suspended.poll() {
            Poll::Ready(checked) => Begun::Decided(checked),
            Poll::Pending => Begun::Waits(Box::new(suspended)),
        }
    }

    /// Polls the check, in a hook of its stream.
    pub(crate) fn poll(&mut self) -> Poll<Checked> {
        self.wakes.locked().is_posted = false;
        let waker = Waker::from(Arc::clone(&self.wakes));
        Pin::new(&mut self.check).poll(&mut Context::from_waker(&waker))
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        self.wakes.locked().scheduler = None;
    }
}

impl StreamWaker {
    fn locked(&self) -> MutexGuard<'_, Wakes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut wakes = self.locked();
        if let (Some(scheduler), false) = (&wakes.scheduler, wakes.is_posted) {
            scheduler.post();
            wakes.is_posted = true;
        }
    }
}
