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
//! | exact (the default) | a round trip | the limit | most services |
//! | [`lease`](SharedBuilder::lease)`(B)` | nothing, except one round trip in up to B checks | never more than the limit; tokens that a machine has leased and not spent are unavailable to all others, up to 2 x B for each machine | keys that are busy on each machine |
//! | [`max_unsynced`](SharedBuilder::max_unsynced)`(U)` | nothing | up to the limit + (N - 1) x U in a window, for N machines, also while the store is unreachable | the lowest latency; windows only |
//!
//! Machines that share a limit use the same name and algorithm. Exact limits and leases keep the
//! same state in the store and may be mixed. `max_unsynced` keeps separate counts, so either all
//! machines use it or none. The module pages in the source prove the bounds: `lease.rs`,
//! `unsynced.rs`.
//!
//! # The algorithms in the store
//!
//! Each algorithm is a script that computes with integers, in microseconds of the server's clock.
//! The script makes the same decision for every request as the in-process rule: tests run both over
//! the same requests and compare all figures. A bucket counts in whole fractions of a token, so a
//! rate is never rounded. Windows begin at multiples of the period since the Unix epoch. A sliding
//! log is a sorted set, with a limit of at most 100,000. After a change of the quota, charged
//! tokens stay charged. If the server's clock steps back, buckets and logs continue from the later
//! time, and a window is judged at its beginning.
//!
//! The state of a key is one entry, `tollgate:<name>:<kind>:<hash>`. The name contains no hash tag,
//! and the raw key only [on request](SharedBuilder::readable_keys). Every entry has a time to live,
//! which ends one second after the state stops counting. A check is one `EVALSHA` on one key, so
//! clusters need no special care.
//!
//! # Classes of callers
//!
//! A limit may have a quota for each [class](SharedLimiter#classes-of-callers) of callers, such as
//! a free and a paid plan: [`SharedBuilder::class`], [`SharedLimiter::class`]. Each check sends the
//! quota of its class to the script, so keys need not be registered. A key that changes its class
//! starts with a fresh state in the new class. [`ClassLimiter`](tollgate::ClassLimiter) does the
//! same in memory.
//!
//! # Costs that are known later
//!
//! [`SharedLimiter::reserve`] charges an estimate, or is denied and charges nothing. The
//! reservation is spent in this process by `record`, which reports when to stop, and settled by
//! `commit`: unspent tokens are refunded, and missing tokens are charged, into debt up to
//! [`max_debt`](SharedBuilder::max_debt). [`SharedReservationSet`] does the same for several
//! limits, all or none. The store keeps no list of reservations: the tokens that a dead process had
//! reserved count as spent, and return as the bucket refills or the window ends.
//! [`SharedReservation`] lists what each algorithm and mode gives back.
//!
//! # Requests in flight
//!
//! [`SharedInFlight`] limits how many requests of a key are in flight at once, on all machines.
//! Each permit has a lifetime in the store and is renewed in the background while its guard lives,
//! so the permits of a process that has died become free again.
//!
//! # When the store does not answer
//!
//! A check ends by its [deadline](SharedBuilder::deadline), 50 ms by default. If the store has not
//! answered by then, [`WhenUnavailable`] decides. [`Decision::source`](tollgate::Decision::source)
//! reports which one decided: [`DecisionSource::Store`](tollgate::DecisionSource::Store) for the
//! store, [`DecisionSource::Lease`](tollgate::DecisionSource::Lease) for a lease or unsynchronized
//! counts, [`DecisionSource::Key`](tollgate::DecisionSource::Key) for the local limiter,
//! [`DecisionSource::Policy`](tollgate::DecisionSource::Policy) for a fixed answer. A request whose
//! answer is late or lost may have been counted; it is never sent again. [`SharedLimiter::stats`]
//! and [`Client::stats`] count all of these.
//!
//! A connection that ends while it is idle is no failure: a server with a `timeout`, or a load
//! balancer, closes idle connections. The next request waits for a new connection within its
//! deadline, and the store answers it.
//!
//! Three late answers in a row, or a connection that is lost during a request, open a circuit
//! breaker: checks then end immediately, while one task probes until the server answers. The pauses
//! between its probes are random and grow to a second and a half. The store therefore decides
//! again:
//!
//! - at once, if the server had only stopped responding and the connection is intact, because the
//!   task also listens on the old connection;
//! - within about two seconds, if the server was restarted or the network was cut: a pause of up to
//!   1.5 s, and an attempt to connect, which takes up to two [connection
//!   timeouts](ClientBuilder::connection_timeout) and 200 ms. In a cluster the task first asks the
//!   other nodes, for as long again, whether the node has a successor.
//!
//! # What the servers must allow
//!
//! [`Client::connect`] tests whether checks will work, and [`Client::health`] repeats the test:
//! each limit runs its script on a key with the limit's own prefix. A [`StoreProblem`] names the
//! command, the keys or the setting, and the fix. An unreachable server is not a mistake in the
//! settings: the client connects and tries the limits when the server is there. A limit that is
//! built after `connect` is tried when it is built.
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
//! - `maxmemory-policy` must be `noeviction`, the default of Redis. All states have a time to live,
//!   so under any other policy a server whose memory is full deletes them, and a throttled key is
//!   then admitted as a new one. With `noeviction` the server refuses writes instead: the store
//!   still denies throttled keys, and [`WhenUnavailable`] decides the requests that the store would
//!   admit.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! - `http`: `tollgate_http::Limit::new` accepts a `SharedLimiter<tollgate_http::Key>`, with its
//!   classes of callers and with costs that the response settles, and a
//!   `SharedInFlight<tollgate_http::Key>`. The orphan rule requires the implementations in one of
//!   the two crates. They are in this one, so that a service with local limits never compiles a
//!   Redis client.
//! - `wait`: callers can wait for a shared limit or permit, with `tollgate_wait::WaitQueue`.
//! - `tls`: addresses with `rediss://`, over rustls. Without this feature no TLS is compiled, and
//!   such an address is refused.
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
