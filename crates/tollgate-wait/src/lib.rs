//! Waiting for a rate limit: callers of one key go one after the other, each as soon as its tokens
//! are there.
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
//! # What is promised
//!
//! - *Order.* Waiters of one key go in the order in which they came, whatever they cost: a costly
//!   one does not starve behind cheap ones.
//! - *Leaving costs nothing.* A waiter is charged when it goes. One that is dropped earlier has
//!   charged nothing, and its turn is the next one's. (A shared limit may have charged what it was
//!   asked just when the future was dropped.)
//! - *Deadlines.* A wait that cannot end in time is refused at once, without a charge, with how
//!   long it would take ([`WaitError::TooLong`]); a cost above the capacity is refused as
//!   [`WaitError::Never`]. The time is exact for buckets. It is an estimate for windows and logs,
//!   and while a local limiter with a share of the quota stands in for the store of a shared limit.
//! - *One charge.* The [`Turn`] that a wait gives is the decision of its charge. Do not check
//!   again.
//! - *A forgotten waiter blocks nobody for long.* One that does not act when its turn has come (its
//!   task is not run, its future was leaked) delays those behind it by no more than
//!   [`patience`](WaitQueue::patience) after the sleep that it had begun. If it is polled later,
//!   it has its place again.
//! - *Bounded memory.* A key has a queue only while somebody waits for it.
//!   [`max_waiters`](WaitQueue::max_waiters) bounds all of them together, and
//!   [`max_waiters_per_key`](WaitQueue::max_waiters_per_key) one queue.
//! - *One wake-up for each grant.* A waiter that goes wakes the next one. Others sleep on; only one
//!   whose own turn is overdue looks at the first every [`patience`](WaitQueue::patience).
//!
//! # What is not
//!
//! - *Checks do not queue.* Who calls [`Limiter::check`](tollgate::Limiter::check) may take a token
//!   before a waiter. [`until_n_within`](WaitQueue::until_n_within) with a wait of zero respects
//!   the queue: it is admitted at once, or refused.
//! - *Tokens that come back wake nobody.* The first sleeps for the time that it was told. A refund,
//!   a reset or a larger quota counts when it asks again.
//! - *A leaky queue does not wait.* [`LeakyQueue`](tollgate::Algorithm::LeakyQueue) admits requests
//!   before they may start. Take a token bucket or a leaky bucket here.
//! - *A queue is of one process.* Waiters for a shared limit are in order on each machine; the
//!   store decides between machines.
//! - *A timer is not exact.* With a burst of 1, each grant starts the time to the next one, so the
//!   resolution of the sleeper (a millisecond for tokio's) is lost with each. A burst of two or
//!   more makes up for it.
//!
//! # Sleeping
//!
//! The crate names no runtime. The async methods of a queue that [`WaitQueue::new`] makes sleep by
//! tokio's timer, with the feature `tokio`; [`WaitQueue::with_sleep`] takes any other sleeper, for
//! example a function that makes an `async_io::Timer`. Threads wait by
//! [`block_until_ready`](WaitQueue::block_until_ready), which needs no sleeper.
//!
//! # How it works
//!
//! A waiter has a place in the line of its key. Only the first one asks the limiter. It is denied,
//! sleeps for the `retry_after` of the denial and asks again; when it is admitted it leaves the
//! line and wakes the second. The others sleep until they are woken, with a timer for one purpose:
//! if it goes off and the first has not acted since it was set, the first is out of the line until
//! it is polled.
//!
//! The lines are behind one mutex, which is held for steps over one line and never while the
//! limiter is asked or a waiter is woken. While nobody waits at all, it is not taken: a wait is a
//! check.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `tokio`: queues sleep by tokio's timer, if they are given no other sleeper.
//! - `stream`: streams and sinks at the pace of a limit.
//! - `tower`: a layer whose service waits before it calls the service inside.

mod driver;
mod error;
mod limiter;
mod line;
mod lines;
mod queue;
mod settings;
mod sleep;
#[cfg(feature = "stream")]
mod stream;
mod thread;
#[cfg(feature = "tower")]
mod tower;
mod turn;

pub use error::WaitError;
pub use limiter::Waitable;
pub use queue::WaitQueue;
pub use sleep::{Sleep, TokioSleep};
#[cfg(feature = "tower")]
pub use tower::{WaitLayer, WaitService, WaitServiceError};
pub use turn::Turn;

/// The examples of the README.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../README.md")]
struct Readme;
