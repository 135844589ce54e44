//! Waiting for a rate limit, or for a limit on the requests in flight: the callers of one key
//! proceed in order, each as soon as its tokens or its permit are available.
//!
//! A check of [tollgate](https://docs.rs/tollgate) answers at once. This crate is for callers that
//! would rather wait: clients of somebody else's API, jobs, writers.
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
//! A queue before an [`InFlight`](tollgate::InFlight) gives permits: at most so many requests of a
//! key run at once, and the others wait. A pair of a rate and an `InFlight` gives both, or neither.
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
//! A permit is given back when it is dropped, and the first waiter of its key is woken after that.
//! Nobody knows when a permit comes back, so a wait for one is not refused as too long: it ends
//! with [`WaitError::Expired`], which has the number of permits that are out. A permit that is
//! never dropped ([`std::mem::forget`], a task that hangs) lowers the limit of its key until
//! [`InFlight::reset`](tollgate::InFlight::reset).
//!
//! # Guarantees
//!
//! - *Order.* The waiters of one key proceed in the order in which they arrived, whatever they
//!   cost: a costly waiter does not starve behind cheap ones.
//! - *Leaving costs nothing.* A waiter is charged when its turn comes. If its future is dropped
//!   earlier, nothing was charged, and the next waiter takes the turn. (A shared limit may have
//!   charged a request that was under way when the future was dropped.)
//! - *Deadlines.* A wait that cannot end in time fails at once, without a charge, and
//!   [`WaitError::TooLong`] says how long it would take. A cost above the capacity of the quota
//!   fails with [`WaitError::Never`]. The time is exact for buckets, and an estimate for windows
//!   and logs.
//! - *A store that is away.* While a local limiter with a share of the quota stands in for the
//!   store of a shared limit, waits are told at its rate. A cost that the store could pay and this
//!   limiter never can fails with [`WaitError::NoRetryTime`].
//! - *One charge.* The [`Turn`] that a wait returns is the decision of its charge, and the permit
//!   of a wait is taken. Do not check again.
//! - *A forgotten waiter blocks nobody for long.* A waiter may fail to act when its turn comes: its
//!   task is not run, or its future was leaked. It delays the waiters behind it by no more than
//!   [`patience`](WaitQueue::patience) after the sleep that it had begun. If it is polled later, it
//!   has its place again.
//! - *Bounded memory.* A key has a queue only while somebody waits for it.
//!   [`max_waiters`](WaitQueue::max_waiters) bounds all queues together, and
//!   [`max_waiters_per_key`](WaitQueue::max_waiters_per_key) one queue.
//! - *One wake-up for each turn.* A waiter that proceeds wakes the next one, and so does a permit
//!   that is given back. The others sleep on; only a waiter whose own turn is overdue looks at the
//!   first one, every [`patience`](WaitQueue::patience).
//! - *Changes are heard of.* The first waiter of a key asks its limiter at least every
//!   [`recheck`](WaitQueue::recheck), a second by default. By then it knows of a larger quota, a
//!   refund, a reset, and a permit that was taken without the queue and given back.
//!
//! # Limits
//!
//! - *Checks do not queue.* A call of [`Limiter::check`](tollgate::Limiter::check) may take a token
//!   before a waiter. [`until_n_within`](WaitQueue::until_n_within) with a wait of zero respects
//!   the queue: it is admitted at once, or fails.
//! - *Returned tokens wake nobody.* The first waiter sleeps for the time that the limiter gave, or
//!   for the [`recheck`](WaitQueue::recheck). A refund, a reset or a larger quota counts when the
//!   waiter asks again.
//! - *A leaky queue does not wait.* [`LeakyQueue`](tollgate::Algorithm::LeakyQueue) admits requests
//!   before they may start. Use a token bucket or a leaky bucket here.
//! - *A queue belongs to one process.* The waiters for a shared limit are in order on each machine;
//!   the store decides between machines. A shared permit that another machine gives back is found
//!   at the next [`recheck`](WaitQueue::recheck), if no waiter there takes it.
//! - *A timer is not exact.* With a burst of 1, each turn starts the time to the next one, so each
//!   turn loses the resolution of the sleeper (a millisecond for tokio's). A burst of two or more
//!   makes up for it.
//!
//! # Servers with limits of their own
//!
//! `WaitLayer`, with the feature `tower`, is a layer for HTTP clients such as those of hyper and
//! reqwest. Requests wait for the turn of their key, which usually is the host. The layer learns
//! from each response what the server permits, pauses a key that the server refuses, and on request
//! sends a refused request again if that is safe. `Paced`, with the feature `http`, is the limiter
//! below it, for other clients and for threads; `Answer` reads the fields of a response.
//!
//! # Sleeping
//!
//! The crate names no runtime. The async methods of a queue that [`WaitQueue::new`] makes sleep by
//! tokio's timer, with the feature `tokio`. [`WaitQueue::with_sleep`] takes any other sleeper, for
//! example a function that makes an `async_io::Timer`. Threads wait by
//! [`block_until_ready`](WaitQueue::block_until_ready), which needs no sleeper.
//!
//! # How it works
//!
//! A waiter has a place in the line of its key. Only the first waiter asks the limiter. If it is
//! denied, it sleeps for the `retry_after` of the denial, or until a permit is given back, and asks
//! again; when it is admitted, it leaves the line and wakes the second one. The others sleep until
//! they are woken. Each of them
//! has a timer for one purpose: if the timer ends and the first waiter has not acted since it was
//! set, the first waiter is out of the line until it is polled.
//!
//! The lines are in 64 shards, each behind a mutex, so waiters of different keys seldom contend. A
//! mutex is held for steps over one line and never while the limiter is asked or a waiter is woken.
//! While nobody waits at all, no mutex is taken: a wait is a check. A permit that is given back
//! takes the mutex of its shard.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `tokio`: queues sleep by tokio's timer, unless they are given another sleeper.
//! - `stream`: streams and sinks at the pace of a limit.
//! - `http`: what the responses of servers say of their limits, and a limiter that keeps to it.
//! - `tower`: a layer for HTTP clients, by which requests wait for their turn and keep to what
//!   servers say. It includes `http`.

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
