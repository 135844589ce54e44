//! Rate limits that several machines share, in Redis or Valkey.
//!
//! ```no_run
//! use tollgate_redis::{Client, WhenUnavailable, SharedLimiter};
//! use tollgate::{Algorithm, Quota};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::open("redis://10.0.0.5:6379")?;
//! let limiter: SharedLimiter<str> = SharedLimiter::builder(&client, "api", Quota::per_minute(600))
//!     .algorithm(Algorithm::SlidingWindow)
//!     .when_unavailable(WhenUnavailable::Local { share: 0.25 }) // four machines
//!     .build()?;
//!
//! client.connect().await?; // if the program is not to start without it
//! for warning in client.stats().problems {
//!     eprintln!("{warning}");
//! }
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
//! Machines that share a limit use the same name and algorithm. Exact limits and leases keep the
//! same state in the store and may be mixed. `max_unsynced` keeps separate counts, so either all
//! machines use it or none. The module pages in the source prove the bounds: `lease.rs`,
//! `unsynced.rs`.
//!
//! # The algorithms in the store
//!
//! Each algorithm is a script with integer arithmetic in microseconds, by the server's clock. It
//! decides as the in-process rule does, request by request: tests run both over the same requests
//! and compare all figures. A bucket counts in whole fractions of a token (a rate is never
//! rounded); windows begin at multiples of the period since the Unix epoch; a sliding log is a
//! sorted set, with a limit of at most 100,000. If the quota changes, what was taken stays taken.
//! If the server's clock steps back, buckets and logs continue from the later time, and a window is
//! judged at its beginning.
//!
//! The state of a key is one entry, `tollgate:<name>:<kind>:<hash>`. The name holds no raw key
//! ([unless asked for](SharedBuilder::readable_keys)) and no hash tag. The entry always has a time
//! to live, one second longer than its state counts. A check is one `EVALSHA` on one key, so
//! clusters need no special care.
//!
//! # Classes of callers
//!
//! A limit may have a quota for each [class](SharedLimiter#classes-of-callers) of callers, such as
//! a free and a paid plan: [`SharedBuilder::class`], [`SharedLimiter::class`]. The script is told
//! the quota of the class with each check, so no key is enumerated. A key that changes its class
//! begins anew there. [`ClassLimiter`](tollgate::ClassLimiter) does the same in memory.
//!
//! # Costs that are known later
//!
//! [`SharedLimiter::reserve`] charges an estimate, or nothing. What it returns is spent in this
//! process by `record`, which says when to stop, and settled by `commit`: the rest goes back, and
//! what is missing is charged, into debt up to [`max_debt`](SharedBuilder::max_debt).
//! [`SharedReservationSet`] does so for several limits, all or none. The store keeps no list: what
//! a dead process has reserved is spent, and comes back as the bucket refills or the window ends.
//! [`SharedReservation`] says what each algorithm and mode gives back.
//!
//! # Requests in flight
//!
//! [`SharedInFlight`] holds at most so many requests of a key at once, on all machines. Each permit
//! has a lifetime in the store and is renewed in the background while it lives, so that the permits
//! of a process that has died come back.
//!
//! # When the store does not answer
//!
//! A check ends by its [deadline](SharedBuilder::deadline), 50 ms by default. After that
//! [`WhenUnavailable`] decides. [`Decision::source`](tollgate::Decision::source) tells which it
//! was: [`DecisionSource::Store`](tollgate::DecisionSource::Store) for the store,
//! [`DecisionSource::Lease`](tollgate::DecisionSource::Lease) for a lease or unsynchronized counts,
//! [`DecisionSource::Key`](tollgate::DecisionSource::Key) for the local limiter,
//! [`DecisionSource::Policy`](tollgate::DecisionSource::Policy) for a fixed answer. A request whose
//! answer is late or lost may have been counted; it is never sent again. [`SharedLimiter::stats`]
//! and [`Client::stats`] count all of these.
//!
//! A connection that ends while it is idle is no failure: a server with a `timeout`, or a balancer,
//! closes it. The next request waits for a new connection within its deadline, and the store
//! answers it.
//!
//! Three late answers in a row, or a connection that is lost under a request, open a circuit
//! breaker: checks then end immediately, while one task probes until the server answers. The pauses
//! between its probes are random and grow to a second and a half. So the store decides again
//!
//! - at once, if the server has only stood still and the connection is intact: the task also
//!   listens there;
//! - within about two seconds, if the server was restarted or the network was cut: a pause of up to
//!   1.5 s, and an attempt to connect, which takes up to two [connection
//!   timeouts](ClientBuilder::connection_timeout) and 200 ms. In a cluster the task first asks the
//!   other nodes, for as long again, whether the node has a successor.
//!
//! # What the servers must allow
//!
//! [`Client::connect`] tries it, and [`Client::health`] again: each limit runs its script on a key
//! of its own names. A [`StoreProblem`] names the command, the keys or the setting, and how to mend
//! it. A server that can't be reached is not a mistake in the settings: the client connects and
//! tries the limits when the server is there. A limit that is built after `connect` is tried when
//! it is built.
//!
//! - A user with access rules needs its keys and these commands:
//!
//!   ```text
//!   ACL SETUSER limiter on >password ~tollgate:* +ping +eval +evalsha +time +get +set +del
//!     +pexpire +pttl +zadd +zrem +zmscore +zcount +zrange +zrangebyscore +zremrangebyscore
//!     +hmget +hkeys +hset +hdel
//!   ```
//!
//!   A cluster also needs `+cluster|slots +asking`. With `+info` or `+config|get`, the eviction
//!   policy can be read.
//! - The server must be a primary.
//! - `maxmemory-policy noeviction`, the default of Redis. Under any other policy a server whose
//!   memory is full deletes states, all of which have a time to live, and a throttled key is then
//!   admitted as a new one. With `noeviction` it refuses writes instead: throttled keys stay denied
//!   by the store, and [`WhenUnavailable`] decides what the store would admit.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `http`: `tollgate_http::Limit::new` takes a `SharedLimiter<tollgate_http::Key>`, with its
//!   classes of callers, also where the response settles the cost, and a
//!   `SharedInFlight<tollgate_http::Key>`. The implementations are here and not in `tollgate-http`,
//!   so that a service with local limits never compiles a Redis client. They must be in one of the
//!   two crates, because of the orphan rule.
//! - `wait`: callers can wait for a shared limit or permit, by `tollgate_wait::WaitQueue`.
//! - `tls`: addresses with `rediss://`, by rustls. Without it no TLS is compiled, and such an
//!   address is refused.
//!
//! # Runtime
//!
//! Everything runs inside tokio, with its timer and I/O enabled. Nothing is connected or started
//! before the first check.

#[cfg(any(feature = "http", feature = "wait"))]
mod adapters;
mod builder;
mod client;
mod connection;
mod core;
mod error;
mod fallback;
mod health;
mod in_flight;
mod lease;
mod limiter;
mod name;
mod reservation;
mod scripts;
mod stats;
mod unsynced;
#[allow(unreachable_pub)] // Public where the models of `loom-tests` compile it as a crate.
mod words;

pub use builder::SharedBuilder;
pub use client::{Client, ClientBuilder};
pub use error::SharedError;
pub use fallback::WhenUnavailable;
pub use health::StoreProblem;
pub use in_flight::{SharedInFlight, SharedPermit};
pub use limiter::SharedLimiter;
pub use name::StoreKey;
pub use reservation::{SharedReservation, SharedReservationSet};
pub use stats::{ClientStats, SharedStats};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
