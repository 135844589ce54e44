//! A lock-free, keyed rate limiter: may this key do this now?
//!
//! ```
//! use tollgate::{Limiter, Quota};
//!
//! // A hundred requests a second for each user, at most twenty at once.
//! let limiter: Limiter<String> = Limiter::builder(Quota::per_second(100).burst(20)).build()?;
//!
//! let decision = limiter.check("alice");
//! if decision.is_allowed() {
//!     // Serve the request; `decision.remaining()` more may follow at once.
//! } else {
//!     // `decision.retry_after()` says when it is worth coming back.
//! }
//! # Ok::<(), tollgate::ConfigError>(())
//! ```
//!
//! Each key's state is one packed 64-bit word in a table of atomics. A check is one lookup and one
//! compare-and-swap; a denied check writes nothing. There is no background thread. A check of a
//! known key does not allocate, and a limiter takes no more memory than
//! [`max_keys`](Builder::max_keys) allows. Nothing takes a lock, except inserting and forgetting
//! [exact keys](store::ExactKeys).
//!
//! # Where to look
//!
//! - [`Limiter`]: the limiter of many keys; [`SingleLimiter`]: of one resource; [`Builder`]: their
//!   settings.
//! - [`Quota`]: how many tokens, per what period, with what burst. Parses from text, one quota
//!   (`100/s burst 20`) or several (`10/s, 1000/d`).
//! - [`Decision`]: the answer of a check, with remaining tokens, retry and reset times.
//! - [`Algorithm`]: token bucket, leaky bucket (meter and queue), fixed window, sliding window,
//!   sliding log.
//! - [`At`]: a limiter at a time of the caller's own; [`ManualClock`]: for tests that do not sleep;
//!   [`Clock`]: the source of the time.
//! - [`ClassLimiter`]: quotas for classes of callers, such as free and paid plans.
//! - [`check_all`]: several limits for one request, which charges all of them or none.
//! - [`Reservation`]: a cost that is known when the work is done.
//! - [`InFlight`]: at most so many requests of a key at once, each with a [`Permit`].
//! - [`store`]: the two stores of keys. With exact keys, chosen by
//!   [`exact_keys`](Builder::exact_keys), no two keys ever share a state and the keys can be
//!   [listed](Limiter::keys). [`Fingerprints`](store::Fingerprints) tells what an attacker who
//!   picks keys could gain.
//! - [`Stats`]: what a limiter holds and has done, for a dashboard.
//! - [`design`]: what is promised, which tests check it, why it holds, and what was not verified.
//!
//! # Which algorithm
//!
//! | algorithm | most in any interval of one period | good for |
//! |---|---|---|
//! | token bucket (default) | burst + limit | nearly everything; bursts, then a steady rate |
//! | leaky bucket | burst + limit | as the token bucket, seen as a meter |
//! | leaky queue | burst + limit admitted, limit + 1 started | shaping: each request is told when to start |
//! | fixed window | 2 × limit, at a boundary | daily allowances that end at midnight |
//! | sliding window | 2 × limit at worst, about limit in practice | "no more than n in any minute", cheaply |
//! | sliding log | the limit, exactly; with exact keys or for one resource, 8 to 24 bytes an admission | a contract that says "never more than n in any hour" |
//!
//! # Platforms
//!
//! Every target of std that has 64-bit atomics (`target_has_atomic = "64"`). For other targets the
//! crate fails to compile, with a message that says so.
//!
//! On Linux 4.14 and later, a check runs no fence. Instead, a thread that frees memory asks the
//! system to run a fence on all processors, by `membarrier(2)`. Where the first such call of a
//! process is refused, as in some sandboxes, and on other systems, a check takes some nanoseconds
//! more. A sandbox should refuse the call from the beginning, with an error, or never: if the call
//! is refused later, memory that is retired from then on is not freed.
//!
//! The default clock depends on the platform too: see [`Clock`](Clock#platforms).
//!
//! # Other crates
//!
//! This crate is the limiter alone. Other crates build on it:
//!
//! - [`tollgate-http`](https://docs.rs/tollgate-http): a tower layer for axum, hyper, tonic and
//!   other HTTP servers.
//! - [`tollgate-wait`](https://docs.rs/tollgate-wait): callers that wait for their turn, in order,
//!   with deadlines.
//! - [`tollgate-redis`](https://docs.rs/tollgate-redis): limits that machines share through Redis
//!   or Valkey.
//! - [`tollgate-cli`](https://docs.rs/tollgate-cli): the program `tollgate`, which replays access
//!   logs through a limit and puts limits in front of a server.
//!
//! # Features
//!
//! - `serde`: [`Quota`], [`Algorithm`], [`WhenFull`] and [`WindowAlign`] as the texts that they are
//!   parsed from.

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
pub use error::{ConfigError, ParseError, PauseError, QuotaError};
#[cfg(not(tollgate_loom))]
pub use limiter::Sweeper;
pub use limiter::kind;
pub use limiter::{
    At, Builder, Charge, Chargeable, ClassLimiter, ClassSettings, InFlight, KeyState, Limiter, Permit,
    Reservation, ReservationSet, Settlement, SingleLimiter, check_all, reserve_all,
};
pub use quota::Quota;
/// A part of the models, and of nothing else.
#[cfg(tollgate_loom)]
pub use reclaim::toss;
pub use settings::{WhenFull, WindowAlign};
#[cfg(tollgate_loom)]
pub use state::ModelLog;
pub use stats::Stats;
pub use time::Tick;

/// What our other crates need and nobody else.
#[doc(hidden)]
pub mod __private {
    pub use crate::limiter::Look;
}

/// Where a limiter keeps its keys: the two stores, their hashes, and what a key must be.
pub mod store {
    pub use crate::limiter::{Accepts, ExactKeys, Fingerprints, FoldHash, SipHash, Store, ToKey};
    pub use equivalent::Equivalent;
}
