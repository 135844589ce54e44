//! Streams and sinks that are slowed down to a limit.

use crate::limiter::Waitable;
use crate::outcome::{Turn, WaitError};
use crate::queue::WaitQueue;
use crate::sleep::Sleep;
use futures_util::{Sink, SinkExt, Stream, StreamExt, stream};
use std::hash::Hash;

impl<L, S> WaitQueue<L, S> {
    /// Returns a stream that yields each item of `stream` after the item's turn for `key`. While
    /// `stream` has no item, no token is taken. If the wait for an item fails, the error replaces
    /// the item.
    ///
    /// ```
    /// use futures_util::{StreamExt, stream};
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_wait::WaitQueue;
    ///
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(5)).build()?;
    /// # let queue = WaitQueue::with_sleep(limiter, |_| std::future::ready(()));
    /// # let calls = pollster::block_on(
    /// queue.pace_stream("api", stream::iter(["one", "two"])).collect::<Vec<_>>()
    /// # );
    /// # assert_eq!(calls, [Ok("one"), Ok("two")]);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn pace_stream<Q, T>(&self, key: &Q, stream: T) -> impl Stream<Item = Result<T::Item, WaitError>>
    where
        L: Waitable<Q, Turn = Turn>,
        Q: Hash + ?Sized,
        S: Sleep,
        T: Stream,
    {
        stream.then(async |item| self.until_ready(key).await.map(|_| item))
    }

    /// Returns a sink that forwards each item to `sink` after the item's turn for `key`. If the
    /// wait for an item fails, the item is dropped and the error is returned. The sink continues to
    /// work after this error. An item takes its turn before `sink` is polled for readiness.
    ///
    /// ```
    /// use futures_util::{SinkExt, sink};
    /// use std::convert::Infallible;
    /// use tollgate::{Limiter, Quota};
    /// use tollgate_wait::{WaitError, WaitQueue};
    ///
    /// let limiter: Limiter<String> = Limiter::builder(Quota::per_second(5)).build()?;
    /// # let queue = WaitQueue::with_sleep(limiter, |_| std::future::ready(()));
    /// # pollster::block_on(async {
    /// let writer = sink::drain().sink_map_err(|error: Infallible| match error {});
    /// let mut paced = std::pin::pin!(queue.pace_sink("disk", writer));
    /// paced.send("block").await?;
    /// # Ok::<(), WaitError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pace_sink<Q, I, T>(&self, key: &Q, sink: T) -> impl Sink<I, Error = T::Error>
    where
        L: Waitable<Q, Turn = Turn>,
        Q: Hash + ?Sized,
        S: Sleep,
        T: Sink<I>,
        T::Error: From<WaitError>,
    {
        // `SinkExt::with` cannot be used after an error, because it polls the finished future
        // again.
        sink.with_flat_map(move |item| {
            stream::once(async move {
                self.until_ready(key).await?;
                Ok(item)
            })
        })
    }
}
