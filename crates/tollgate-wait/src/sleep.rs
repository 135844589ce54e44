//! How a queue sleeps.

use std::future::Future;
use std::time::Duration;

/// How the async methods of a [`WaitQueue`](crate::WaitQueue) sleep: [`TokioSleep`], or a function
/// that makes a future which is ready after the given time.
///
/// [`WaitQueue::with_sleep`](crate::WaitQueue::with_sleep) takes any other function of a runtime,
/// for example one that makes an `async_io::Timer`. Threads need none.
#[diagnostic::on_unimplemented(
    message = "a queue cannot sleep by `{Self}`",
    note = "enable the feature `tokio` of tollgate-wait, or make the queue by `WaitQueue::with_sleep`"
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

/// Sleeps by tokio's timer. It is a [`Sleep`] with the feature `tokio` only, so that without it the
/// methods of a queue for threads are all that there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioSleep;

#[cfg(feature = "tokio")]
impl Sleep for TokioSleep {
    type Sleeping = tokio::time::Sleep;

    fn sleep(&self, time: Duration) -> tokio::time::Sleep {
        tokio::time::sleep(time)
    }
}
