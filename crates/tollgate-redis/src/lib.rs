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
//! client.connect().await?; // optional: fails at the start if the store cannot answer checks
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
//! | [`lease`](SharedBuilder::lease)`(B)` | nothing, except one round trip in up to B checks | never more than the limit; no other machine can use the tokens that a machine has leased but not spent, up to 2 x B for each machine and 3 x B more for each lost answer, and in a bucket at most half of its capacity for all machines | keys that are busy on each machine |
//! | [`max_unsynced`](SharedBuilder::max_unsynced)`(U)` | nothing | up to the limit + (N - 1) x U in a window, for N machines, even while the store is unreachable | the lowest latency; windows only |
//!
//! Machines that share a limit must use the same name and algorithm. Exact limits and leases store
//! the same state, so machines may mix them. `max_unsynced` stores separate counts, so either all
//! machines must use this mode, or none. `docs/design.md` proves the bound of leases, and the
//! comments in `unsynced.rs` that of unsynchronized counts.
//!
//! # The algorithms in the store
//!
//! Each algorithm is a script that computes with integers, and measures time by the server's clock
//! in microseconds. The script makes the same decisions as the in-process rule. Tests send the same
//! requests to both and compare all figures.
//!
//! A bucket counts in units of a fraction of a token, so its rate is never rounded. Windows start
//! at multiples of the period since the Unix epoch. A sliding log is a sorted set, and its limit is
//! at most 100,000. Charged tokens remain charged when the quota changes.
//!
//! If the server's clock steps back, charged tokens stay charged. Buckets and logs continue from
//! the new time. A window judges requests as if they arrived at the start of the key's window. If
//! the new time is before the preceding window, the counts move to the current window.
//!
//! After such a step, a pause may last longer, by up to the time since the key's state last
//! changed. In windows, the pause may last up to two periods longer than that. With `max_unsynced`,
//! a pause may last longer by the whole step. In this mode, a pause that a machine sets before the
//! store's first answer may last longer on this machine, by the time that the machine's clock is
//! ahead of the server's.
//!
//! [`at`](SharedLimiter::at) and [`client_clock`](SharedBuilder::client_clock) specify the time of
//! a request. If that time is before the key's time, buckets and logs use the key's time, and
//! windows use the start of the key's window. With `max_unsynced`, a request counts in the window
//! of the specified time.
//!
//! The state of a key is one entry, `tollgate:<name>:<kind>:<hash>`. The entry's name contains no
//! hash tag, and contains the raw key only [on request](SharedBuilder::readable_keys). Every entry
//! expires one second after its state stops counting; the entry of a fixed window expires a period
//! later, because machines with sliding windows still count it. A check is one `EVALSHA` on one
//! key, so clusters need no special care. The scripts use no modules and no `FUNCTION`, which
//! managed servers may lack.
//!
//! The states of buckets and windows start with their kind and the version of their format. A check
//! of a key whose state has another version is answered with an error, which
//! [`SharedStats::store_errors`] counts, and [`WhenUnavailable`] decides the request. A
//! [`reset`](SharedLimiter::reset) deletes such a state.
//!
//! # Classes of callers
//!
//! A limit may have a quota for each [class](SharedLimiter#classes-of-callers) of callers, such as
//! a free and a paid plan. [`SharedBuilder::class`] adds a class, and [`SharedLimiter::class`]
//! selects one. Each check sends its class's quota to the script, so keys need not be registered. A
//! key that changes its class starts with a fresh state in the new class.
//! [`ClassLimiter`](tollgate::ClassLimiter) provides classes for limits in memory.
//!
//! # Costs that are known later
//!
//! [`SharedLimiter::reserve`] charges an estimate, or is denied and charges nothing. `record`
//! spends the reserved tokens in this process, and reports when to stop. `commit` settles the
//! reservation: it refunds unspent tokens, or charges missing tokens, which may create a debt of up
//! to [`max_debt`](SharedBuilder::max_debt). [`SharedReservationSet`] reserves from several limits,
//! either from all or from none.
//!
//! The store keeps no list of reservations. If a process dies, its reserved tokens therefore count
//! as spent, and become available again as the bucket refills or when the window ends.
//! [`SharedReservation`] lists how many tokens each algorithm and mode gives back.
//!
//! # Requests in flight
//!
//! [`SharedInFlight`] limits how many requests of a key are in flight at once on all machines. Each
//! permit has a lifetime in the store and is renewed in the background while its guard lives. A
//! dead process's permits therefore become free again.
//!
//! # When the store does not answer
//!
//! A check completes by its [deadline](SharedBuilder::deadline), 50 ms by default. If the store has
//! not answered by then, [`WhenUnavailable`] decides.
//! [`Decision::source`](tollgate::Decision::source) reports the source of the decision:
//! [`DecisionSource::Store`](tollgate::DecisionSource::Store) for the store,
//! [`DecisionSource::Lease`](tollgate::DecisionSource::Lease) for a lease or unsynchronized counts,
//! [`DecisionSource::Key`](tollgate::DecisionSource::Key) for the local limiter, and
//! [`DecisionSource::Policy`](tollgate::DecisionSource::Policy) for a fixed answer.
//!
//! If the answer is late or lost, the store may have counted the request; the client never sends it
//! again. [`SharedLimiter::stats`] and [`Client::stats`] count all of these cases.
//!
//! The end of an idle connection is not a failure, because servers with a `timeout` and load
//! balancers close idle connections. The next request waits for a new connection within its
//! deadline, and the store answers that request.
//!
//! A circuit breaker opens after three late answers in a row, or after a connection is lost during
//! a request. Checks then end immediately, while one task probes the server until it answers. The
//! pauses between its probes are random, and grow to at most a second and a half. The store decides
//! again:
//!
//! - immediately, if the server had merely stalled and the connection is intact, because the task
//!   also listens on the old connection, even while it opens a new one;
//! - within about two seconds, if the server was restarted or the network was cut. This time
//!   consists of a pause of up to 1.5 s and an attempt to connect, which takes up to two
//!   [connection timeouts](ClientBuilder::connection_timeout) and 200 ms. In a cluster, the task
//!   first asks the other nodes whether the node has a successor, which may take the same time
//!   again.
//!
//! # What the servers must allow
//!
//! [`Client::connect`] tests whether the store will answer checks, and [`Client::health`] repeats
//! the test: each limit runs its script on a key with the limit's own prefix. A [`StoreProblem`]
//! names the command, the keys or the setting at fault, and the fix. An unreachable server is not a
//! mistake in the settings: the client tries the limits once it has connected. A limit built after
//! `connect` is tried immediately.
//!
//! - If the server restricts its users, the client's user needs access to the keys and to these
//!   commands:
//!
//!   ```text
//!   ACL SETUSER limiter on >password ~tollgate:* +ping +eval +evalsha +time +get +set +del
//!     +pexpire +pttl +zadd +zrem +zmscore +zcount +zrange +zrangebyscore +zremrangebyscore
//!     +hmget +hkeys +hset +hdel
//!   ```
//!
//!   A cluster also requires `+cluster|slots +asking`, and a URL with a database requires
//!   `+select`. With `+info` or `+config|get`, the client can read the eviction policy.
//! - The server must run Redis 6.2 or later, or Valkey, and be a primary.
//! - `maxmemory-policy` must be `noeviction`, the default of Redis. All states have a time to live.
//!   Under any other policy, a server whose memory is full therefore deletes states, and admits
//!   throttled keys as if they were new. With `noeviction`, the server refuses writes instead. The
//!   store then still denies throttled keys, and [`WhenUnavailable`] decides the requests that the
//!   store would admit.
//!
//! An answer with an error starts the same test while the limits are in use. The test is repeated a
//! few times a second until the store answers checks, and [`ClientStats::problems`] has its result.
//!
//! # Features
//!
//! No feature is on by default.
//!
//! - `http`: `tollgate_http::Limit::new` accepts a `SharedLimiter<tollgate_http::Key>` or a
//!   `SharedInFlight<tollgate_http::Key>`. The limiter may have classes of callers, and costs that
//!   the response settles. The orphan rule requires the implementations in one of the two crates.
//!   They are in this crate, so that a service with local limits never compiles a Redis client.
//! - `wait`: callers can wait for a shared limit or permit, with `tollgate_wait::WaitQueue`.
//! - `tls`: addresses with `rediss://` use TLS, through rustls. Without this feature, no TLS is
//!   compiled, and such an address is refused.
//!
//! # Runtime
//!
//! By default, the methods of a client and its limits run inside a tokio runtime that has its timer
//! and I/O enabled, and their tasks run in the runtime of the caller. Before the first check, the
//! client connects to nothing and starts no task.
//!
//! A client may also have a runtime of its own: a thread that it starts
//! ([`ClientBuilder::runtime_thread`]), or a runtime that the program already has
//! ([`ClientBuilder::runtime`]). All its tasks and connections are then in this runtime, whichever
//! runtime or thread calls. With a thread, the `async` methods work under any executor.
//!
//! Without a thread, an `async` method that is polled outside of a tokio runtime has no timer, so
//! it asks no store: [`WhenUnavailable`] decides, and operations on the store fail. A given runtime
//! nevertheless completes checks and acquires permits. [`ClientStats::problems`] names the remedy.
//!
//! # Threads without a runtime
//!
//! The worker of a proxy, a packet loop and a synchronous program check without `await`:
//!
//! - [`SharedLimiter::try_check`] decides at once if this machine can: it has leased tokens,
//!   remembers a denial, or may leave the request unsynchronized. Otherwise, the client's runtime
//!   asks the store, and the caller gets a [`PendingCheck`]. This is a future for any executor;
//!   [`PendingCheck::wait`] blocks a thread instead.
//! - [`SharedLimiter::check_blocking`] does both. It returns by the limit's deadline.
//!
//! With a lease, asking is rare: the comments in `lease.rs` count the calls of a load.
//!
//! ```no_run
//! use tollgate::Quota;
//! use tollgate_redis::{Client, SharedLimiter};
//!
//! let client = Client::builder("redis://10.0.0.5:6379").runtime_thread().build()?;
//! let limiter: SharedLimiter<str> =
//!     SharedLimiter::builder(&client, "packets", Quota::per_second(100).burst(1_000))
//!         .lease(100)
//!         .build()?;
//!
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| {
//!             if !limiter.check_blocking("10.0.0.9").is_allowed() {
//!                 // Refuse.
//!             }
//!         });
//!     }
//! });
//! # Ok::<(), tollgate_redis::SharedError>(())
//! ```

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
#[cfg(feature = "unstable-program")]
#[doc(hidden)]
pub mod program;
mod reservation;
mod runtime;
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
pub use limiter::{PendingCheck, SharedLimiter};
pub use name::StoreKey;
pub use reservation::{SharedReservation, SharedReservationSet};
pub use stats::{ClientStats, SharedStats};

/// Compiles and runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
