//! Queues for rate limits, and for limits on the requests in flight: the callers of one key proceed
//! in order, each as soon as its tokens or its permit are available.
//!
//! A check of [tollgate](https://docs.rs/tollgate) returns an answer immediately. This crate is for
//! callers that would rather wait, such as clients of a third-party API, jobs and writers.
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
//! // Call it now. And with a cost of three tokens, but not after more than ten seconds:
//! queue.until_n_within("api.example.com", 3, Duration::from_secs(10)).await?;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "tokio"))]
//! # fn main() {}
//! ```
//!
//! # Permits
//!
//! A queue in front of an [`InFlight`](tollgate::InFlight) hands out permits, which limit the
//! number of requests of a key that run at once; the other requests wait. A queue in front of a
//! pair of a rate limiter and an `InFlight` takes from both or from neither.
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
//! let rate: Limiter<str> = Limiter::builder(Quota::per_minute(100)).build()?;
//! let jobs: InFlight<str> = InFlight::builder(8).build()?;
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
//! A permit is returned when it is dropped, and the first waiter of its key is woken after that.
//! The time at which a permit will be returned is unknown, so a wait for a permit is not refused as
//! too long: it ends with [`WaitError::Expired`], which contains the number of permits in use. A
//! permit that is never dropped ([`std::mem::forget`], a task that hangs) lowers the limit of its
//! key until [`InFlight::reset`](tollgate::InFlight::reset).
//!
//! # Guarantees
//!
//! - *Order.* The waiters of one key proceed in the order in which they arrived, whatever their
//!   costs: a costly waiter does not starve behind cheap ones.
//! - *Leaving costs nothing.* A waiter is charged when its turn arrives. If its future is dropped
//!   earlier, no token is charged, and the next waiter takes the turn. (A shared limit may have
//!   charged a request that was in transit when the future was dropped.)
//! - *Deadlines.* A wait that cannot end in time fails at once, without a charge, and
//!   [`WaitError::TooLong`] contains the time that it would take. This time is exact for buckets,
//!   and an estimate for windows and logs. A cost above the capacity of the quota fails with
//!   [`WaitError::Never`].
//! - *An unreachable store.* While a local limiter with a share of the quota replaces the store of
//!   a shared limit, waits are computed at the rate of the local limiter. A cost that the store
//!   could admit, but the local limiter never can, fails with [`WaitError::NoRetryTime`].
//! - *One charge.* The [`Turn`] that a wait returns is the decision of a charge that was made, and
//!   a returned permit is already taken. Do not check again.
//! - *A forgotten waiter blocks others only briefly.* A waiter may fail to act when its turn
//!   arrives, because its task is not run or its future was leaked. It delays the waiters behind it
//!   by no more than [`patience`](WaitQueue::patience) after the end of its sleep. If it is polled
//!   later, it gets its place back.
//! - *Bounded memory.* A key has a queue only while it has waiters.
//!   [`max_waiters`](WaitQueue::max_waiters) bounds all queues together, and
//!   [`max_waiters_per_key`](WaitQueue::max_waiters_per_key) one queue.
//! - *One wake-up for each turn.* A waiter that proceeds wakes the next waiter, and a returned
//!   permit wakes the first waiter. The other waiters continue to sleep. Only a waiter whose own
//!   turn is overdue wakes up to look at the first waiter, once every
//!   [`patience`](WaitQueue::patience).
//! - *Changes take effect.* The first waiter of a key checks its limiter at least once every
//!   [`recheck`](WaitQueue::recheck), a second by default. It thereby detects a larger quota, a
//!   refund, a reset, and a returned permit that was taken without the queue.
//!
//! # Limits
//!
//! - *Checks do not queue.* A call of [`Limiter::check`](tollgate::Limiter::check) may take a token
//!   before a waiter. [`until_n_within`](WaitQueue::until_n_within) with a wait of zero respects
//!   the queue: it is admitted at once, or fails.
//! - *Returned tokens do not wake a waiter.* The first waiter sleeps for the retry time of its
//!   denial, or for the [`recheck`](WaitQueue::recheck) if that is shorter. A refund, a reset or a
//!   larger quota takes effect when the waiter checks again.
//! - *A leaky queue does not wait.* [`LeakyQueue`](tollgate::Algorithm::LeakyQueue) admits requests
//!   before they may start. Use a token bucket or a leaky bucket here.
//! - *A queue belongs to one process.* The waiters for a shared limit are in order on each machine;
//!   the store decides between machines. A shared permit that another machine returns is found at
//!   the next [`recheck`](WaitQueue::recheck), unless a waiter on that machine takes it.
//! - *A timer is not exact.* With a burst of 1, the time to the next turn starts at each turn, so
//!   each turn loses the resolution of the sleeper (a millisecond for tokio's timer). A burst of
//!   two or more compensates for this loss.
//!
//! # Servers with limits of their own
//!
//! `WaitLayer`, with the feature `tower`, is a layer for HTTP clients such as those of hyper and
//! reqwest. Requests wait for the turn of their key, which is usually the host. The layer reads the
//! server's limits from each response, pauses a key that the server refuses, and can be configured
//! to resend a refused request if that is safe. `Paced`, with the feature `http`, is the limiter
//! below the layer, for other clients and for threads; `Answer` parses the fields of a response.
//!
//! # Sleeping
//!
//! The crate does not depend on a runtime. With the feature `tokio`, the async methods of a queue
//! that [`WaitQueue::new`] creates sleep with tokio's timer. [`WaitQueue::with_sleep`] takes any
//! other sleeper, for example a function that returns an `async_io::Timer`. Threads wait in
//! [`block_until_ready`](WaitQueue::block_until_ready), which needs no sleeper.
//!
//! # How it works
//!
//! A waiter has a place in the line of its key. Only the first waiter checks the limiter. If it is
//! denied, it sleeps for the `retry_after` of the denial, or until a permit is returned, and checks
//! again. When it is admitted, it leaves the line and wakes the second waiter. The other waiters
//! sleep until they are woken. Each of them has a timer for a single purpose: if the first waiter
//! has not acted between the start and the end of the timer, it is removed from the line until it
//! is polled.
//!
//! The lines are divided into 64 shards, each behind a mutex, so waiters of different keys rarely
//! contend. A mutex is held for operations on one line, and never while the limiter is checked or a
//! waiter is woken. If no key has waiters, a wait takes no mutex and is only a check. Returning a
//! permit takes the mutex of its shard.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! - `tokio`: queues sleep with tokio's timer, unless they are built with another sleeper.
//! - `stream`: streams and sinks that are slowed down to a limit.
//! - `http`: parses the limits in the responses of servers, and adds a limiter that obeys them.
//! - `tower`: a layer for HTTP clients that makes requests wait for their turn and obey the limits
//!   of servers. It includes `http`.

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
pub use tower::{NoRetry, Repeat, WaitLayer, WaitService, WaitServiceError, idempotent};

/// The examples of the README.
#[cfg(all(doctest, feature = "tokio", feature = "tower"))]
#[doc = include_str!("../README.md")]
struct Readme;
