//! Queues for rate limits, and for limits on the requests in flight. The callers of one key proceed
//! in order, each as soon as its tokens or permit become available.
//!
//! A check of [tollgate](https://docs.rs/tollgate) returns an answer immediately. This crate is for
//! callers that would rather wait, such as jobs, writers, and clients of a third-party API.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{Limiter, Quota};
//! use tollgate_wait::WaitQueue;
//!
//! # #[cfg(feature = "tokio")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Five calls a second to each host.
//! let limiter: Limiter<String> = Limiter::builder(Quota::per_second(5)).build()?;
//! let queue = WaitQueue::new(limiter);
//!
//! queue.until_ready("api.example.com").await?;
//! // Call it now. The next call has a cost of three tokens, and waits for at most ten seconds:
//! queue.until_n_within("api.example.com", 3, Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! # Permits
//!
//! A queue in front of an [`InFlight`](tollgate::InFlight) hands out permits. The permits limit how
//! many of a key's requests run at the same time, while all other requests wait. A queue can also
//! be in front of a pair of a rate limiter and an `InFlight`. Each wait then takes from both or
//! from neither.
//!
//! ```
//! use std::time::Duration;
//! use tollgate::{InFlight, Limiter, Quota};
//! use tollgate_wait::WaitQueue;
//!
//! # #[cfg(feature = "tokio")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Eight jobs of each customer at once, and a hundred in a minute.
//! let rate: Limiter<String> = Limiter::builder(Quota::per_minute(100)).build()?;
//! let jobs: InFlight<String> = InFlight::builder(8).build()?;
//! let queue = WaitQueue::new((rate, jobs));
//!
//! let (_turn, permit) = queue.until_ready_within("alice", Duration::from_secs(10)).await?;
//! // The job runs here.
//! drop(permit);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! When a permit is dropped, it is returned, and its key's first waiter is woken. Because it is
//! unknown when a permit will be returned, a wait for a permit is never refused as too long. If no
//! permit is returned in time, the wait ends with [`WaitError::Expired`], which contains the number
//! of permits in use.
//!
//! A permit that is never dropped, for example after [`std::mem::forget`] or in a task that hangs,
//! lowers its key's limit until [`InFlight::reset`](tollgate::InFlight::reset) is called.
//!
//! # Guarantees
//!
//! - *Order.* A key's waiters proceed in order of arrival, whatever their costs. A waiter with a
//!   high cost is not starved by cheaper ones.
//! - *Leaving costs nothing.* A waiter is charged when its turn arrives. If its future is dropped
//!   earlier, no token is charged, and the turn passes to the next waiter. (A shared limit may have
//!   charged a request that was in transit when the future was dropped.)
//! - *Deadlines.* A wait that cannot end in time fails immediately, without a charge.
//!   [`WaitError::TooLong`] contains the time that the wait would take. This time is exact for
//!   buckets, and an estimate for windows and logs. A cost above the capacity of the quota fails
//!   with [`WaitError::Never`].
//! - *An unreachable store.* While the store of a shared limit is unreachable, a local limiter with
//!   a share of the quota replaces it. Waits are then computed at the local limiter's rate. If the
//!   store could admit a cost, but the local limiter never can, the wait fails with
//!   [`WaitError::NoRetryTime`].
//! - *One charge.* A wait returns a [`Turn`], which is the decision of a charge that was already
//!   made, or a permit that is already taken. Do not check again.
//! - *A forgotten waiter blocks others only briefly.* A waiter may fail to act when its turn
//!   arrives, because its task is not run or its future was leaked. Such a waiter delays the
//!   waiters behind it, after the end of its sleep, by about the
//!   [`patience`](WaitQueue::patience), or by the length of this sleep if that is longer. In a long
//!   line, it delays them by at most twenty times the patience and the length of two sleeps. If a
//!   waiter that was passed over is polled later, it returns to its place.
//! - *Bounded memory.* A key has a queue only while it has waiters.
//!   [`max_waiters`](WaitQueue::max_waiters) bounds all queues together, and
//!   [`max_waiters_per_key`](WaitQueue::max_waiters_per_key) bounds each queue.
//! - *One wake-up for each turn.* A waiter that proceeds wakes the next waiter, and a returned
//!   permit wakes the first waiter. All other waiters continue to sleep, and rarely wake up to
//!   check on the first waiter: the second waiter at most once in each interval of
//!   [`patience`](WaitQueue::patience), and waiters further behind once in up to twenty such
//!   intervals.
//! - *A queue can be closed.* [`close`](WaitQueue::close) ends all waits, for example at a
//!   shutdown. Waiters and later callers receive [`WaitError::Closed`] at once.
//! - *Changes take effect.* The first waiter of a key checks its limiter at least once every
//!   [`recheck`](WaitQueue::recheck), a second by default. This check detects a larger quota, a
//!   refund, a reset, and a returned permit that was taken without the queue.
//!
//! # Limits
//!
//! - *Checks do not queue.* A call to [`Limiter::check`](tollgate::Limiter::check) may take a token
//!   before a waiter does. [`until_n_within`](WaitQueue::until_n_within) with a wait of zero
//!   respects the queue: the call is either admitted immediately, or fails.
//! - *Returned tokens do not wake a waiter.* The first waiter sleeps for the retry time of its
//!   denial, or for the [`recheck`](WaitQueue::recheck) if that is shorter. A refund, a reset or a
//!   larger quota takes effect when the waiter checks again.
//! - *A leaky queue is charged when a request starts.*
//!   [`LeakyQueue`](tollgate::Algorithm::LeakyQueue) admits requests before they may start. A
//!   waiter waits for its start and is charged then, so its callers are evenly spaced: ten callers
//!   of a limit of `10/h` start six minutes apart. If other callers check the same limiter without
//!   the queue, they are charged earlier, and waiters start after them. The wait in
//!   [`WaitError::TooLong`] is an estimate.
//! - *A waiter starts the penalty of its limiter.* With
//!   [`Builder::penalty`](tollgate::Builder::penalty), the first waiter of a key is denied and
//!   thereby pauses the key, so each turn takes a whole penalty. Choose a limiter without a penalty.
//! - *A queue belongs to one process.* The waiters for a shared limit are in order on each machine,
//!   and the store decides between machines. If another machine returns a shared permit, a waiter
//!   finds it at the next [`recheck`](WaitQueue::recheck), unless a waiter on that machine takes it
//!   first.
//! - *Wakers must not panic.* A waiter that proceeds or leaves wakes the next waiter. If that
//!   waiter's waker panics, the panic reaches the waiter that leaves, and its charged turn is lost.
//! - *A timer is not exact.* With a burst of 1, the time to the next turn starts at each turn, so
//!   each turn loses the resolution of the sleeper (a millisecond for tokio's timer). A burst of
//!   two or more compensates for this loss.
//!
//! # Servers with limits of their own
//!
//! With the feature `tower`, `WaitLayer` is a layer for HTTP clients such as those of hyper and
//! reqwest. Each request waits for its turn among the requests with the same key, which is usually
//! the host. The layer reads the server's limits from each response, and pauses a key that the
//! server refuses. It can also resend a refused request if that is safe, and hold a request's
//! permit until the body of the response ends.
//!
//! The feature `http` provides `Paced`, the limiter below the layer, for other clients and for
//! threads. It also provides `Answer`, which parses a response's fields.
//!
//! # Sleeping
//!
//! The crate does not depend on a runtime. With the feature `tokio`, queues created with
//! [`WaitQueue::new`] have async methods that sleep with tokio's timer. [`WaitQueue::with_sleep`]
//! accepts any other sleeper, for example a function that returns an `async_io::Timer`. Threads
//! wait in [`block_until_ready`](WaitQueue::block_until_ready), which requires no sleeper.
//!
//! # Tests
//!
//! A test need not sleep. With tokio's paused time, a sleeper sets the limiter's clock to tokio's
//! time after each sleep. (`Paced::clock` sets the clock of a `Paced` limiter in the same way.)
//! Tokio requires the feature `test-util` for this.
//!
//! ```
//! use tokio::time::Instant;
//! use tollgate::{Limiter, ManualClock, Quota, Tick};
//! use tollgate_wait::WaitQueue;
//!
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let clock = ManualClock::new();
//!     let limiter: Limiter<String> = Limiter::builder(Quota::per_hour(1)).clock(&clock).build()?;
//!     let start = Instant::now();
//!     let queue = WaitQueue::with_sleep(limiter, move |time| {
//!         let clock = clock.clone();
//!         async move {
//!             tokio::time::sleep(time).await;
//!             clock.set(Tick::from(start.elapsed()));
//!         }
//!     });
//!
//!     queue.until_ready("alice").await?;
//!     queue.until_ready("alice").await?; // ends in milliseconds
//!     assert_eq!(start.elapsed().as_secs(), 3600);
//!     Ok(())
//! }
//! ```
//!
//! # How it works
//!
//! A waiter has a place in its key's line. Only the first waiter checks the limiter. If the check
//! is denied, the waiter sleeps until the denial's `retry_after` has passed or a permit is
//! returned, and checks again. When the waiter is admitted, it leaves the line and wakes the second
//! waiter.
//!
//! The other waiters sleep until they are woken. Each of them also has a timer, in case the first
//! waiter does not act. If the first waiter does not act while this timer runs, it is removed from
//! the line until it is polled.
//!
//! The lines are divided into 64 shards, each behind a mutex, so waiters of different keys rarely
//! contend. A mutex is held only during operations on one line, and never while the limiter is
//! checked or a waiter is woken. If no key has waiters, a wait locks no mutex and is only a check.
//! Returning a permit locks the mutex of its shard.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! - `tokio`: queues sleep with tokio's timer, unless they are created with another sleeper.
//! - `stream`: streams and sinks that are slowed down to a limit.
//! - `http`: parses the limits in server responses, and adds a limiter that obeys them.
//! - `tower`: a layer for HTTP clients. Requests wait for their turn and obey the servers' limits.
//!   This feature includes `http`.

#[cfg(feature = "http")]
mod answer;
mod driver;
mod limiter;
mod line;
mod lines;
mod outcome;
#[cfg(feature = "http")]
mod paced;
mod permit;
mod queue;
mod settings;
mod sleep;
#[cfg(feature = "stream")]
mod stream;
mod thread;
#[cfg(feature = "tower")]
mod tower;

#[cfg(feature = "http")]
pub use answer::{Answer, ServerLimit};
pub use limiter::Waitable;
pub use outcome::{Turn, WaitError};
#[cfg(feature = "http")]
pub use paced::Paced;
pub use permit::{Held, NextWaiter};
pub use queue::WaitQueue;
pub use sleep::{Sleep, TokioSleep};
#[cfg(feature = "tower")]
pub use tower::{
    HeldBody, Hold, NoRetry, Repeat, RequestNumber, UntilEnd, UntilHead, WaitLayer, WaitService,
    WaitServiceError, idempotent,
};

/// Tests the examples of the README.
#[cfg(all(doctest, feature = "tokio", feature = "tower"))]
#[doc = include_str!("../README.md")]
struct Readme;
