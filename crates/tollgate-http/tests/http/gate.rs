//! Holds answers back until the test lets them through.

use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

/// A gate that is initially open.
#[derive(Default)]
pub(crate) struct Gate(Mutex<State>);

#[derive(Default)]
struct State {
    closed: bool,
    waiting: Vec<Waker>,
}

impl Gate {
    pub(crate) fn close(&self) {
        self.0.lock().unwrap().closed = true;
    }

    pub(crate) fn open(&self) {
        let mut state = self.0.lock().unwrap();
        state.closed = false;
        state.waiting.drain(..).for_each(Waker::wake);
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        !self.0.lock().unwrap().waiting.is_empty()
    }

    /// Waits while the gate is closed.
    pub(crate) async fn pass(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            if !state.closed {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
