//! A lock-free rate limiter, with a separate limit for each key.
//!
//! ```
//! use tollgate::{Limiter, Quota};
//!
//! // A hundred requests a second for each user, in bursts of up to twenty.
//! let limiter: Limiter<String> = Limiter::builder(Quota::per_second(100).burst(20)).build()?;
//!
//! let decision = limiter.check("alice");
//! if decision.is_allowed() {
//!     // Serve the request; `decision.remaining()` more may follow at once.
//! } else {
//!     // A retry passes after `decision.retry_after()`.
//! }
//! # Ok::<(), tollgate::ConfigError>(())
//! ```
//!
//! The state of each key is one packed 64-bit word in a table of atomics. A check is one lookup and
//! one compare-and-swap, and by default a denied check writes nothing. There is no background
//! thread. Checking a known key does not allocate, unless the check starts to shrink a table that
//! has long been far too large. The memory of a limiter is bounded by
//! [`max_keys`](Builder::max_keys). No operation takes a lock, except for inserting and forgetting
//! [exact keys](store::ExactKeys).
//!
//! # Where to look
//!
//! - [`Limiter`]: a limiter for many keys; [`SingleLimiter`]: a limiter for one resource;
//!   [`Builder`]: the settings of both.
//! - [`Quota`]: the number of tokens, their period and the burst. A string such as `100/s burst 20`
//!   parses as a quota, and `10/s, 1000/d` as a list of quotas.
//! - [`Decision`]: the answer to a check, with the remaining tokens and the retry and reset times.
//! - [`Algorithm`]: token bucket, leaky bucket (meter and queue), fixed window, sliding window,
//!   sliding log.
//! - [`Clock`]: the time source; [`ManualClock`]: a clock for tests that do not sleep; [`At`]: a
//!   limiter at a time that the caller provides.
//! - [`ClassLimiter`]: quotas for classes of callers, such as free and paid plans.
//! - [`check_all`]: checks one request against several limits, and charges all of them or none.
//! - [`Reservation`]: a cost that is known only after the work is done.
//! - [`InFlight`]: a limit on how many of a key's requests run at the same time. Each running
//!   request owns a [`Permit`].
//! - [`store`]: the two stores for keys. With [`exact_keys`](Builder::exact_keys), no two keys ever
//!   share a state, and the keys can be [listed](Limiter::keys).
//!   [`Fingerprints`](store::Fingerprints) describes what an attacker who chooses keys could gain.
//! - [`Stats`]: a limiter's figures, for a dashboard.
//! - [`design`]: the guarantees, the tests that check them, and the reasons why they hold.
//!
//! # Which algorithm
//!
//! | algorithm | most in any interval of one period | good for |
//! |---|---|---|
//! | token bucket (default) | burst + limit | nearly everything; bursts, then a steady rate |
//! | leaky bucket | burst + limit | as the token bucket, seen as a meter |
//! | leaky queue | burst + limit admitted, limit + 1 started | shaping: the decision states when the request may start |
//! | fixed window | 2 × limit, at a boundary | daily allowances that end at midnight |
//! | sliding window | 2 × limit at worst, about limit in practice; [less for a small limit](Algorithm::SlidingWindow) | "no more than n in any minute", cheaply |
//! | sliding log | the limit, exactly; with exact keys or for one resource, 8 to 24 bytes an admission | a contract that says "never more than n in any hour" |
//!
//! # Platforms
//!
//! The crate supports every std target that has 64-bit atomics (`target_has_atomic = "64"`).
//! Without these atomics, compilation fails with a message that explains why. On
//! `wasm32-unknown-unknown`, where std has no clock, a limiter needs a [`ManualClock`]; without
//! one, `build` panics.
//!
//! On Linux 4.14 and later, a check executes no fence. Instead, a thread that frees memory requests
//! a fence on all processors with `membarrier(2)`. On other systems, and in processes whose first
//! `membarrier` call is refused (as in some sandboxes), a check takes a few nanoseconds longer. A
//! sandbox should either always allow this call or refuse it from the start, with an error. If the
//! sandbox starts to refuse the call later, memory retired from then on is not freed.
//!
//! The default clock also depends on the platform: see [`Clock`](Clock#platforms).
//!
//! # Progress
//!
//! No call waits for another thread, with two exceptions: calls with [exact
//! keys](store::ExactKeys#progress) may wait for a lock, and a refused change of a quota first
//! sleeps for up to a tenth of a second. Methods that end in `_n` or `_owned`, and the methods of
//! [`At`], have the progress of the method that they extend.
//!
//! | method | progress | allocates |
//! |---|---|---|
//! | `check`, `check_many`, `check_many_n`, `force`, `reserve`, `acquire` | lock-free; a denial by a [`SingleLimiter`] is wait-free ¹ | for a known key, no ¹; a new key may start a turnover, which allocates the next part of the table, and so may a known key if the table has long been far too large; the two for many keys extend the caller's list |
//! | `peek`, `quota`, `key_quota`, [`InFlight::in_flight`]; `is_idle` and `bytes` of a [`SingleLimiter`] | lock-free; wait-free for a [`SingleLimiter`] ¹ | no |
//! | `refund`, `reset`; the end of a [`Permit`] | lock-free | no ² |
//! | [`check_all`], [`reserve_all`], [`Charge::refund`], [`ReservationSet`] | as the checks, peeks and refunds of the limits | as these calls; [`reserve_all`] and later records allocate lists, and the first call of a thread may register the thread as a reader once or twice more |
//! | [`Reservation::record`] | wait-free if the reserved tokens suffice, else as the limit's check | as that check |
//! | [`Reservation::commit`], [`Reservation::release`] | lock-free, as the limit's refund or check | as that call |
//! | [`Reservation::from_charge`], [`ClassLimiter::class`], [`ClassLimiter::default_class`], `algorithm` | wait-free | no |
//! | [`Limiter::pause`] | as the check of a new key | as that check |
//! | [`Limiter::set_quota`], `set_key_quota`, `set_key_quotas`, [`InFlight::set_limit`] | lock-free, but for the sleep and the lock above; visits every key | the next table, or a part of each state; `set_key_quotas` also a list |
//! | [`SingleLimiter::set_quota`] | lock-free | the next state, about 400 bytes |
//! | `stats`, `len`, `is_empty` | lock-free; with [sliding logs](Algorithm::SlidingLog), `stats` visits every key | no |
//! | [`Limiter::keys`] | each step is lock-free, and takes as long as there are vacant slots before the next key | no |
//! | [`Limiter::most_denied`] | lock-free; visits every key | the returned list |
//! | `sweep`, `clear` | lock-free; `clear` visits the whole table | perhaps the next part of the table |
//!
//! ¹ A [sliding log](Algorithm::SlidingLog) allocates its next part once every 8 to 16,384
//! admissions; its denials and peeks are lock-free. With [`Builder::core_leases`], a denial, a
//! `peek` that would be denied, and `is_idle` are lock-free, because they return leases.
//!
//! ² With a sliding log, `reset` allocates, and so does the first refund in each part of the log.
//!
//! # Inside allocators, panic hooks and log sinks
//!
//! - *A global allocator* may check a limiter if a flag skips nested checks. A check may allocate
//!   when it registers its thread as a reader, usually the thread's first check, and in the cases
//!   of the table above. Without the flag, the allocator then calls itself until the stack
//!   overflows:
//!
//!   ```
//!   # use std::cell::Cell;
//!   # use tollgate::SingleLimiter;
//!   fn is_sampled(limiter: &SingleLimiter) -> bool {
//!       thread_local!(static IS_NESTED: Cell<bool> = const { Cell::new(false) });
//!       if IS_NESTED.replace(true) {
//!           return false;
//!       }
//!       let is_sampled = limiter.check().is_allowed();
//!       IS_NESTED.set(false);
//!       is_sampled
//!   }
//!   # let limiter = SingleLimiter::builder(tollgate::Quota::per_second(1)).build().unwrap();
//!   # assert!(is_sampled(&limiter) && !is_sampled(&limiter));
//!   ```
//!
//!   Build the limiter before the allocator uses it. If the limiter has [exact
//!   keys](store::ExactKeys), only the allocator may use it: a call from elsewhere may allocate
//!   while it holds a lock, and the allocator's check would then wait for that lock forever.
//! - *A panic hook* may check a limiter, even if a call of the same limiter panicked in the code of
//!   a key. With exact keys, it must not do so after a panic in [`Eq`, `Equivalent` or `Drop` of a
//!   key](store::ExactKeys#the-code-of-a-key), because the call that panicked may hold a lock.
//! - *A log sink* may check a limiter. This crate writes no log, so a check does not call the sink.
//! - *Destructors of thread-local variables* may check a limiter; with exact keys, [they start
//!   threads](store::ExactKeys#the-end-of-a-thread).
//!
//! # Other crates
//!
//! This crate contains only the limiter. Other crates build on it:
//!
//! - [`tollgate-http`](https://docs.rs/tollgate-http): a tower layer for axum, hyper, tonic and
//!   other HTTP servers.
//! - [`tollgate-wait`](https://docs.rs/tollgate-wait): queues of callers that wait for their turn,
//!   in order and with deadlines.
//! - [`tollgate-redis`](https://docs.rs/tollgate-redis): limits that machines share through Redis
//!   or Valkey.
//! - [`tollgate-cli`](https://docs.rs/tollgate-cli): the program `tollgate`, which replays access
//!   logs through a limit and puts limits in front of a server.
//!
//! # Features
//!
//! - `serde`: [`Quota`], [`Algorithm`], [`WhenFull`] and [`WindowAlign`] are serialized as strings,
//!   which can be parsed again. Limiters with exact keys can be saved.

#[cfg(not(target_has_atomic = "64"))]
compile_error!(
    "tollgate keeps the state of a key in one atomic of 64 bits, and this target has none; build for a target with \
     `target_has_atomic = \"64\"` (`rustc --print cfg --target TARGET` lists what a target has)"
);

mod algorithm;
#[cfg(feature = "serde")]
mod by_text;
mod clock;
mod decision;
pub mod design;
mod error;
mod exact;
mod forgetting;
mod grain;
mod growth;
mod limiter;
mod log;
mod quota;
mod reclaim;
#[cfg(not(feature = "unstable-rule"))]
mod rule;
#[cfg(feature = "unstable-rule")]
pub mod rule;
mod settings;
mod state;
#[cfg(not(tollgate_loom))]
mod state_file;
mod stats;
#[cfg(not(tollgate_loom))]
mod sync;
#[cfg(tollgate_loom)]
pub mod sync;
mod table;
mod time;

pub use algorithm::Algorithm;
pub use clock::{Clock, ClockKind, ManualClock};
pub use decision::{Decision, DecisionParts, DecisionSource, Denied, Outcome};
pub use error::{ConfigError, LoadError, ParseError, PauseError, QuotaError};
#[cfg(not(tollgate_loom))]
pub use limiter::Sweeper;
pub use limiter::kind;
pub use limiter::{
    At, Builder, Charge, Chargeable, ClassLimiter, ClassSettings, InFlight, KeyState, Limiter, LoadOptions,
    Look, Permit, Reservation, ReservationSet, Settlement, SingleLimiter, check_all, reserve_all,
};
pub use quota::Quota;
/// Only the models use this.
#[cfg(tollgate_loom)]
pub use reclaim::toss;
pub use settings::{WhenFull, WindowAlign};
#[cfg(tollgate_loom)]
pub use state::ModelLog;
#[cfg(not(tollgate_loom))]
pub use state_file::StateFile;
pub use stats::Stats;
pub use time::Tick;

/// The two stores for a limiter's keys, the hash functions, and the traits that keys implement.
pub mod store {
    pub use crate::limiter::{
        Accepts, ExactKeys, Fingerprints, FoldHash, KeyOf, Persist, SipHash, Store, ToKey,
    };
    pub use equivalent::Equivalent;
}
