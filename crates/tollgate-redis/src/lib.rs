//! Limits that machines share, in Redis or Valkey.
//!
//! ```no_run
//! use tollgate_redis::{Client, WhenUnavailable, SharedLimiter};
//! use tollgate::{Algorithm, Quota};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::open("redis://10.0.0.5:6379")?;
//! client.connect().await?; // if the program is not to start without it
//!
//! let limiter: SharedLimiter<str> = SharedLimiter::builder(&client, "api", Quota::per_minute(600))
//!     .algorithm(Algorithm::SlidingWindow)
//!     .when_unavailable(WhenUnavailable::Local { share: 0.25 }) // four machines
//!     .build()?;
//!
//! if !limiter.check("alice").await.is_allowed() {
//!     // Refuse.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Three ways to share
//!
//! | | a check costs | all machines together admit | made for |
//! |---|---|---|---|
//! | exact (the default) | a round trip | the limit | most |
//! | [`lease`](SharedBuilder::lease)`(B)` | nothing, but for one round trip in up to B checks | never more than the limit; what is leased and not spent is missing, up to 2 x B for each machine | keys that are busy on each machine |
//! | [`max_unsynced`](SharedBuilder::max_unsynced)`(U)` | nothing | up to the limit + (N - 1) x U in a window, for N machines, also while the store is away | latency above all; windows only |
//!
//! Machines that share a limit agree on its name and algorithm. Exact limits and leases go by one state and may be mixed;
//! `max_unsynced` has counts of its own, so all use it or none. Why the bounds hold stands in the modules' own pages, in the
//! source: `lease.rs`, `unsynced.rs`.
//!
//! # The algorithms in the store
//!
//! Each is a script with integer arithmetic in microseconds, by the server's clock. It decides as the in-process
//! rule does, request by request: both are run over the same requests and compared, with all figures. A bucket counts in
//! fractions of a token that are whole (a rate is never rounded); windows begin at multiples of the period since the Unix
//! epoch; a sliding log is a sorted set, with a limit of 100,000 at the most. If the quota changes, what was taken
//! stays taken. If the server's clock steps back, buckets and logs go on from there, and a window is judged at its beginning.
//!
//! A key's state is one entry, `tollgate:<name>:<kind>:<hash>`: no raw key ([unless asked for](SharedBuilder::readable_keys)),
//! no hash tag, and always with a time to live, a second longer than it counts. A check is one `EVALSHA` on one key, so
//! clusters need no care.
//!
//! # When the store does not answer
//!
//! A check ends by its [deadline](SharedBuilder::deadline), 50 ms unless it is set; then [`WhenUnavailable`] decides, and
//! [`Decision::source`](tollgate::Decision::source) tells: [`Source::Remote`](tollgate::Source::Remote) for the store,
//! [`Source::Prepaid`](tollgate::Source::Prepaid) for a lease or counts, [`Source::Key`](tollgate::Source::Key) for the local
//! limiter, [`Source::Policy`](tollgate::Source::Policy) for open and closed. Three late answers in a row, or a lost
//! connection, open a breaker: then checks end at once, while one task probes until the server answers. A request whose
//! answer is late or lost may have been counted; it is never sent again. [`SharedLimiter::stats`] and [`Client::stats`]
//! count all that.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `http`: a `SharedLimiter<tollgate_http::Key>` is what `tollgate_http::Limit::shared` takes. The link is here
//!   and not in `tollgate-http`, so that a service whose limits are its own never compiles a client of Redis; one of
//!   the two crates must have it, since only they may implement their traits for their types.
//! - `tls`: addresses with `rediss://`, by rustls. Without it no TLS is compiled, and such an address is refused.
//!
//! # Runtime
//!
//! Everything runs inside tokio (with its timer and I/O enabled). Nothing is connected or started before the first check.

mod builder;
mod client;
mod connection;
mod core;
mod error;
mod failure;
#[cfg(feature = "http")]
mod layer;
mod lease;
mod limiter;
mod name;
mod scripts;
mod stats;
mod unsynced;
#[allow(unreachable_pub)] // Public where the models of `loom-tests` compile it as a crate.
mod words;

pub use builder::SharedBuilder;
pub use client::{Client, ClientBuilder, ConnectError};
pub use error::BuildError;
pub use failure::WhenUnavailable;
pub use limiter::{ResetError, SharedLimiter};
pub use name::StoreKey;
pub use stats::{ClientStats, SharedStats};

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
