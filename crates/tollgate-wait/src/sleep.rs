//! The sleepers of a queue.

use std::future::Future;
use std::time::Duration;

/// Creates the sleeps of a [`WaitQueue`](crate::WaitQueue)'s async methods. The trait is
/// implemented for [`TokioSleep`] and for functions that return a future. The future must be ready
/// after the given time.
///
/// [`WaitQueue::with_sleep`](crate::WaitQueue::with_sleep) accepts such a function for any other
/// runtime, for example a function that returns an `async_io::Timer`. Threads require no sleeper.
#[diagnostic::on_unimplemented(
    message = "a queue cannot sleep with `{Self}`",
    note = "enable the feature `tokio` of tollgate-wait, or create the queue with `WaitQueue::with_sleep`"
)]
pub trait Sleep {
    /// The future of one sleep.
    type Sleeping: Future<Output = ()>;

    /// Returns a future that is ready after `time`, which may be as long as [`Duration::MAX`].
    #[doc(hidden)]
    fn sleep(&self, time: Duration) -> Self::Sleeping;
}

impl<S: Fn(Duration) -> F, F: Future<Output = ()>> Sleep for S {
    type Sleeping = F;

    fn sleep(&self, time: Duration) -> F {
        self(time)
    }
}

/// Sleeps with tokio's timer. This type implements [`Sleep`] if the feature `tokio` is on. Without
/// this feature, a queue with this sleeper offers no async methods, just the methods for threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioSleep;

#[cfg(feature = "tokio")]
impl Sleep for TokioSleep {
    type Sleeping = tokio::time::Sleep;

    fn sleep(&self, time: Duration) -> tokio::time::Sleep {
        tokio::time::sleep(time)
    }
}
