//! The limiter of one resource.

use super::builder::Builder;
use super::resets::Resets;
use crate::clock::Clock;
use crate::decision::Decision;
use crate::error::ConfigError;
use crate::exact::ExactRule;
use crate::log::{Log, SlidingLog};
use crate::quota::{Enforced, Quota};
use crate::reclaim::{Bag, pin};
use crate::rule::{AnyRule, Gcra, Rule, Word, load, update};
use crate::state::{Charge, State};
use crate::sync::Atomic;
use crate::time::Tick;

/// A rate limiter for a single resource: one state, no keys, no table.
///
/// All methods take `&self`; share it by reference or `Arc`. Nothing locks or waits; nothing allocates but an
/// [`Algorithm::SlidingLog`](crate::Algorithm::SlidingLog), which does so as its log grows.
///
/// ```
/// use tollgate::{Quota, SingleLimiter};
///
/// let uploads = SingleLimiter::builder(Quota::per_minute(30).burst(1)).build()?;
/// assert!(uploads.check().allowed());
/// assert!(!uploads.check().allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct SingleLimiter {
    inner: Inner,
    resets: Resets,
    quota: Quota,
    clock: Clock,
}

/// The one state, and its rule.
#[derive(Debug)]
enum Inner {
    /// The rule, once more as a GCRA if it is one, and the word.
    Packed(AnyRule, Option<Gcra>, Apart),
    /// A log, and what it has retired.
    Log(SlidingLog, Log, Bag),
}

/// A word on cache lines of its own: what is beside it is read by each check, and would go from core to core with it. (Two threads
/// took 1.35 times as long.)
#[derive(Debug)]
#[repr(align(128))]
struct Apart(Atomic<Word>);

/// What the log of a single limiter answers: nobody seals it.
#[inline]
fn unsealed<T>(answer: Option<T>) -> T {
    answer.expect("a log is sealed to be evicted or replaced, and this one never is")
}

/// As [`State::charge`]. Not inlined either, so that the check of a bucket can be, wherever it stands.
#[inline(never)]
fn charge_log(rule: &SlidingLog, log: &Log, retired: &Bag, now: Tick, cost: u64) -> Option<(Decision, bool)> {
    let decision = unsealed(log.check(rule, now, cost, &pin(), retired));
    retired.tidy();
    Some((decision, decision.charged() > 0))
}

impl SingleLimiter {
    /// Starts the configuration of a limiter that enforces `quota`.
    ///
    /// ```
    /// # use tollgate::{Algorithm, Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(100))
    ///     .algorithm(Algorithm::SlidingWindow)
    ///     .build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn builder(quota: Quota) -> Builder<Self> {
        Builder::new(quota)
    }

    /// The quota that it enforces.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(100)).build()?;
    /// assert_eq!(gate.quota().limit(), 100);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// May this be done now? Charges one token if so.
    ///
    /// # Progress
    ///
    /// Lock-free; a denial is wait-free. No allocation, but for a sliding log, which allocates its next part
    /// once in a while (8 to 16,384 admissions), and whose denial is only lock-free.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(gate.check().allowed());
    /// assert!(!gate.check().allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check(&self) -> Decision {
        self.check_at(1, self.clock.now())
    }

    /// May something that costs `cost` tokens be done now? Charges all of them or none. A cost of 0 is
    /// always allowed; one above [`Decision::limit`] is refused for good.
    ///
    /// # Progress
    ///
    /// As [`check`](Self::check).
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(gate.check_n(3).remaining(), 2);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_n(&self, cost: u64) -> Decision {
        self.check_at(cost, self.clock.now())
    }

    /// [`check_n`](Self::check_n) at the caller's time, which counts from an origin of the caller's
    /// choice. Don't mix it with the limiter's own clock unless `now` is read from that clock. For
    /// algorithms with windows choose [`Align::Start`](crate::Align::Start).
    ///
    /// # Progress
    ///
    /// As [`check`](Self::check).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Quota, SingleLimiter, Tick};
    /// let gate = SingleLimiter::builder(Quota::per_second(1)).build()?;
    /// assert!(gate.check_at(1, Tick::ZERO).allowed());
    /// assert!(gate.check_at(1, Tick::ZERO + Duration::from_secs(1)).allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn check_at(&self, cost: u64, now: Tick) -> Decision {
        let stamp = self.resets.stamp();
        let charged = match &self.inner {
            Inner::Packed(rule, gcra, Apart(word)) => {
                if let &Some(gcra) = gcra
                    && let Some(charge) = Charge::make(gcra, word, now, cost)
                {
                    // Returned here and not below with the others, so that a caller who inlines the
                    // check computes only what it looks at.
                    return charge.answer(now, cost, stamp);
                }
                State { rule, word }.charge(now, cost)
            }
            Inner::Log(rule, log, retired) => charge_log(rule, log, retired, now, cost),
        };
        Decision { stamp, ..charged.expect("a word is frozen by a table, and this one is in none").0 }
    }

    /// What [`check`](Self::check) would answer now, without charging. The figures are those before a
    /// charge.
    ///
    /// # Progress
    ///
    /// Wait-free, for a sliding log lock-free. No allocation.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(gate.peek().remaining(), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek(&self) -> Decision {
        self.peek_at(1, self.clock.now())
    }

    /// What [`check_at`](Self::check_at) would answer, without charging.
    ///
    /// # Progress
    ///
    /// As [`peek`](Self::peek).
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter, Tick};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert!(gate.peek_at(5, Tick::ZERO).allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn peek_at(&self, cost: u64, now: Tick) -> Decision {
        match &self.inner {
            Inner::Packed(rule, _, Apart(word)) => rule.peek(load(word), now, cost),
            Inner::Log(rule, log, _) => unsealed(log.peek(rule, now, cost, &pin())),
        }
    }

    /// Gives back what `charge` took; see [`Limiter::refund`](crate::Limiter::refund).
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation, but for a sliding log, which allocates once for each part of it.
    ///
    /// ```
    /// # use tollgate::{Clock, Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).clock(Clock::manual()).build()?;
    /// let charge = gate.check_n(5);
    /// gate.refund(&charge);
    /// assert_eq!(gate.peek().remaining(), 5);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund(&self, charge: &Decision) {
        self.refund_at(charge, u64::MAX, self.clock.now());
    }

    /// Gives back at most `tokens` of what `charge` took, at the caller's time; see
    /// [`Limiter::refund_at`](crate::Limiter::refund_at).
    ///
    /// # Progress
    ///
    /// As [`refund`](Self::refund).
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter, Tick};
    /// let gate = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// let charge = gate.check_at(5, Tick::ZERO);
    /// gate.refund_at(&charge, 2, Tick::ZERO);
    /// assert_eq!(gate.peek_at(1, Tick::ZERO).remaining(), 2);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refund_at(&self, charge: &Decision, tokens: u64, now: Tick) {
        let is_current = || self.resets.are_before(charge);
        match &self.inner {
            Inner::Packed(rule, _, Apart(word)) => {
                let refunded = State { rule, word }.refund(now, charge, tokens, is_current);
                refunded.expect("a word is frozen by a table, and this one is in none");
            }
            Inner::Log(_, log, _) => unsealed(log.refund_if(charge, tokens, is_current, &pin())),
        }
    }

    /// Makes the limiter as good as new. What it charged before is not given back by a later [`refund`](Self::refund).
    ///
    /// # Progress
    ///
    /// Lock-free. No allocation, but for a sliding log.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// let _ = gate.check();
    /// gate.reset();
    /// assert!(gate.check().allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn reset(&self) {
        self.resets.note(|| match &self.inner {
            Inner::Packed(rule, _, Apart(word)) => {
                update(word, |word| rule.reset(word));
            }
            Inner::Log(rule, log, retired) => {
                unsealed(log.reset(rule, &pin(), retired));
                retired.tidy();
            }
        });
    }

    /// Would a new limiter in its place decide the same from now on? Then it may be dropped.
    ///
    /// # Progress
    ///
    /// As [`peek`](Self::peek).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Clock, Quota, SingleLimiter, Tick};
    /// let clock = Clock::manual();
    /// let gate = SingleLimiter::builder(Quota::per_minute(1)).clock(&clock).build()?;
    /// let _ = gate.check();
    /// assert!(!gate.is_idle());
    /// clock.set(Tick::ZERO + Duration::from_secs(60));
    /// assert!(gate.is_idle());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn is_idle(&self) -> bool {
        let now = self.clock.now();
        match &self.inner {
            Inner::Packed(rule, _, Apart(word)) => rule.is_idle(load(word), now),
            Inner::Log(rule, log, _) => log.is_idle(rule, now, &pin()),
        }
    }

    /// The bytes of memory it holds. Constant, but for a sliding log, which holds more the more it admits in a
    /// period.
    ///
    /// # Progress
    ///
    /// As [`peek`](Self::peek).
    ///
    /// ```
    /// # use tollgate::{Algorithm, Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(100_000))
    ///     .algorithm(Algorithm::SlidingLog)
    ///     .build()?;
    /// let _ = gate.check();
    /// assert!(gate.bytes() < 1_000);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn bytes(&self) -> usize {
        let apart = match &self.inner {
            Inner::Packed(..) => 0,
            Inner::Log(_, log, retired) => log.bytes(&pin()) + retired.bytes(),
        };
        size_of::<Self>() + apart
    }

    /// The clock that [`check`](Self::check) reads.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(gate.check().at() <= gate.clock().now());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

impl Builder<SingleLimiter> {
    /// The limiter.
    ///
    /// # Errors
    ///
    /// A [`ConfigError`] that names the value, the range and the fix.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let gate = SingleLimiter::builder(Quota::per_second(10)).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn build(self) -> Result<SingleLimiter, ConfigError> {
        let Enforced { rule, quota } = self.method()?.any(self.quota)?;
        let inner = match rule {
            ExactRule::Log(rule) => Inner::Log(rule, Log::new(), Bag::new()),
            ExactRule::Packed(rule) => Inner::Packed(rule, rule.as_gcra(), Apart(Atomic::new(rule.idle()))),
        };
        Ok(SingleLimiter { inner, resets: Resets::none_yet(), quota, clock: self.clock })
    }
}
