//! The answer to a check, as one small value that contains all figures.

mod figures;
mod outcome;
mod parts;
mod rounded;

pub(crate) use figures::{Figures, LeaseId, Stamp};
pub use outcome::{DecisionSource, Outcome};
pub use parts::DecisionParts;
use rounded::Rounded;

use crate::grain::Grain;
use crate::time::Tick;
use std::error::Error;
use std::fmt;
use std::mem::MaybeUninit;
use std::time::Duration;

/// The number of nanoseconds that means "never".
pub(crate) const NEVER: u64 = u64::MAX;

/// The answer to a request: whether the request may go ahead, how many tokens remain, and how long
/// to wait.
///
/// A denial is a value, not an `Err`. [`Decision::ok`] turns it into an error for use with `?`.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Outcome, Quota, SingleLimiter};
///
/// let limiter = SingleLimiter::builder(Quota::per_second(10).burst(2))
///     .clock(ManualClock::new())
///     .build()?;
///
/// let first = limiter.check();
/// assert!(first.is_allowed());
/// assert_eq!((first.capacity(), first.remaining()), (2, 1));
/// assert_eq!(first.reset_after(), Duration::from_millis(100));
///
/// limiter.check();
/// let third = limiter.check();
/// assert_eq!(third.outcome(), Outcome::Denied);
/// assert_eq!(third.retry_after(), Some(Duration::from_millis(100)));
///
/// // More than the bucket holds: no wait helps, so there is no retry time.
/// assert_eq!(limiter.check_n(3).retry_after(), None);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a rate limiter only limits if its answer is obeyed"]
pub struct Decision {
    pub(crate) cost: u64,
    pub(crate) limit: u64,
    pub(crate) at: Tick,
    pub(crate) figures: Figures,
    pub(crate) outcome: Outcome,
    pub(crate) source: DecisionSource,
    pub(crate) stamp: Stamp,
}

// Every check copies a `Decision`.
const _: () = assert!(size_of::<Decision>() <= 64);

/// A decision made on a slow path. This type is larger than a [`Decision`], so the compiler cannot
/// let both paths write into the caller's return slot. With a shared slot, the fast path would
/// write the whole decision to memory, although most callers read only one byte of it.
#[derive(Debug)]
pub(crate) struct SlowDecision(pub(crate) Decision, #[allow(dead_code)] MaybeUninit<u64>);

// If both types had the same size, `SlowDecision` would have no effect.
const _: () = assert!(size_of::<SlowDecision>() > size_of::<Decision>());

impl From<Decision> for SlowDecision {
    #[inline(always)]
    fn from(decision: Decision) -> Self {
        Self(decision, MaybeUninit::uninit())
    }
}

impl From<DecisionParts> for Decision {
    fn from(parts: DecisionParts) -> Self {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(NEVER);
        let figures = Figures::Told {
            remaining: parts.remaining,
            wait: parts.wait.map_or(NEVER, nanos),
            reset: nanos(parts.reset_after),
            refill: parts.refill_after.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(u32::MAX),
        };
        let DecisionParts { outcome, cost, capacity: limit, at, source, .. } = parts;
        Self { cost, limit, at, figures, outcome, source, stamp: Stamp::NONE }
    }
}

impl Decision {
    /// Creates a rule's answer to a request for a key. The limiter stamps the answer later.
    #[inline(always)]
    pub(crate) const fn of_key(outcome: Outcome, cost: u64, limit: u64, at: Tick, figures: Figures) -> Self {
        Self { cost, limit, at, figures, outcome, source: DecisionSource::Key, stamp: Stamp::NONE }
    }

    /// Adds to the decision's stamp.
    #[inline(always)]
    pub(crate) const fn stamped(self, stamp: Stamp) -> Self {
        Self { stamp: self.stamp.plus(stamp), ..self }
    }

    /// Returns true if the request may go ahead.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(limiter.check().is_allowed());
    /// assert!(!limiter.check().is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allowed)
    }

    /// Returns the outcome, which distinguishes "not now" from "never".
    ///
    /// ```
    /// # use tollgate::{Outcome, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.check_n(6).outcome(), Outcome::TooCostly);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Returns the source of the answer: the state of the key, or a substitute if the table is
    /// full.
    ///
    /// ```
    /// # use tollgate::{DecisionSource, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.check().source(), DecisionSource::Key);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub const fn source(&self) -> DecisionSource {
        self.source
    }

    /// Returns the number of tokens taken by this request: its cost if it was allowed, otherwise 0.
    ///
    /// The result is also 0 for a peek, and for a request that a policy allowed without tracking
    /// its key.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.check_n(3).charged(), 3);
    /// assert_eq!(limiter.check_n(3).charged(), 0);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub const fn charged(&self) -> u64 {
        match (self.outcome, self.source) {
            (Outcome::Allowed, source) if !matches!(source, DecisionSource::Policy) => self.cost,
            _ => 0,
        }
    }

    /// Returns the maximum number of tokens that can be taken at once:
    /// [`Quota::capacity`](crate::Quota::capacity).
    ///
    /// This is the burst of a bucket, or the tokens of one period if the quota has no burst.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5).burst(8)).build()?;
    /// assert_eq!(limiter.peek().capacity(), 8);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub const fn capacity(&self) -> u64 {
        self.limit
    }

    /// Returns the number of tokens that remain after this decision, from 0 to
    /// [`capacity`](Self::capacity), or 0 if a policy answered. If the tokens were spent from a
    /// lease ([`Builder::core_leases`](crate::Builder::core_leases)), these are the tokens that are
    /// left of the lease.
    ///
    /// ```
    /// # use tollgate::{Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.check().remaining(), 4);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn remaining(&self) -> u64 {
        match self.figures {
            Figures::Known { remaining, .. }
            | Figures::Held { remaining, .. }
            | Figures::Leased { remaining, .. }
            | Figures::Told { remaining, .. } => remaining,
            Figures::LateHeld { .. } | Figures::LateBucket { .. } => self.limit - self.charged(),
            Figures::Permits { out, .. } => self.limit.saturating_sub(out),
            Figures::Bucket { full, grain, .. } => {
                let empty = grain.at(self.at) + grain.of_tokens(self.limit);
                grain.tokens_in(empty.saturating_sub(full))
            }
        }
    }

    /// Returns how many permits of the key are in use after this decision, for a limit on requests
    /// [in flight](crate::InFlight). Returns `None` for rates, and if a policy answered.
    ///
    /// ```
    /// # use tollgate::InFlight;
    /// let downloads: InFlight<String> = InFlight::builder(1).build()?;
    /// let _held = downloads.acquire("alice").unwrap();
    /// let refusal = downloads.acquire("alice").unwrap_err();
    /// assert_eq!(refusal.decision().in_flight(), Some(1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub const fn in_flight(&self) -> Option<u64> {
        self.figures.permits_out()
    }

    /// Returns how long to wait until the same request is allowed, if no other request is admitted
    /// in the meantime.
    ///
    /// - `Some(Duration::ZERO)` if the request was allowed.
    /// - `Some(wait)` if the request was denied. A retry exactly this long after the time of this
    ///   check is allowed, and a retry one nanosecond earlier is denied.
    /// - `None` if no wait can be promised. This is the case if the cost is above the capacity, if
    ///   a permit [in flight](crate::InFlight) must be returned first, if the table is full and
    ///   [`WhenFull::Deny`](crate::WhenFull::Deny) answered, or if the wait would end after
    ///   [`Tick::MAX`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_minute(1))
    ///     .clock(ManualClock::new())
    ///     .build()?;
    /// assert_eq!(limiter.check().retry_after(), Some(Duration::ZERO));
    /// assert_eq!(limiter.check().retry_after(), Some(Duration::from_secs(60)));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.outcome {
            Outcome::Allowed => Some(Duration::ZERO),
            Outcome::Denied => match self.wait() {
                NEVER => None,
                wait => Some(Duration::from_nanos(wait)),
            },
            Outcome::TooCostly => None,
        }
    }

    /// Returns how long it takes until the full [`capacity`](Self::capacity) is available, if the
    /// key is not charged in the meantime.
    ///
    /// The result is exact: one nanosecond earlier, fewer tokens are available. The result is zero
    /// if a policy answered. It is [`Duration::MAX`] while permits are [in
    /// flight](crate::InFlight), or if the full capacity is available only after [`Tick::MAX`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(2))
    ///     .clock(ManualClock::new())
    ///     .build()?;
    /// assert_eq!(limiter.check_n(2).reset_after(), Duration::from_secs(1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    // Always inlined, because a call would force the whole decision into memory. That would take
    // longer than computing the result.
    #[inline(always)]
    pub fn reset_after(&self) -> Duration {
        let reset = match self.figures {
            Figures::Known { reset, .. } | Figures::Told { reset, .. } | Figures::Leased { reset, .. } => {
                reset
            }
            Figures::Held { until, .. } | Figures::LateHeld { until, .. } if until > Tick::MAX.as_nanos() => {
                NEVER
            }
            Figures::Held { until, .. } => until - self.at.as_nanos(),
            Figures::LateHeld { until, .. } => until - self.asked().as_nanos(),
            Figures::Permits { out: 0, .. } => 0,
            Figures::Permits { .. } => NEVER,
            Figures::Bucket { full, grain, .. } => grain.nanos_until(full, self.at).unwrap_or(NEVER),
            Figures::LateBucket { .. } if self.charged() == 0 => 0,
            Figures::LateBucket { grain, .. } => {
                grain.nanos_until(self.late_full(grain), self.asked()).unwrap_or(NEVER)
            }
        };
        if reset == NEVER { Duration::MAX } else { Duration::from_nanos(reset) }
    }

    /// Returns how long it takes until the number of remaining tokens exceeds
    /// [`remaining`](Self::remaining), if the key is not charged in the meantime.
    ///
    /// For buckets, the result is exact to the nanosecond. For windows and logs, more tokens may
    /// become available up to one period earlier, because a decision does not record charges made
    /// by other requests. For a sliding window, they may become available up to two periods
    /// earlier, because the charges of the last window lose weight gradually. The result is zero if
    /// the full [`capacity`](Self::capacity) is available, or if a policy answered. The result is
    /// [`Duration::MAX`] if the refill happens after [`Tick::MAX`]. For a
    /// [paused](crate::Limiter::pause) key, the result is the same as for
    /// [`reset_after`](Self::reset_after), and tokens may become available as soon as the pause
    /// ends.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let limiter = SingleLimiter::builder(Quota::per_second(10))
    ///     .clock(ManualClock::new())
    ///     .build()?;
    /// let charge = limiter.check_n(10);
    /// assert_eq!(charge.refill_after(), Duration::from_millis(100));
    /// assert_eq!(charge.reset_after(), Duration::from_secs(1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn refill_after(&self) -> Duration {
        match self.figures {
            Figures::Bucket { full, grain, .. } => self.refill_of(full, grain),
            Figures::LateBucket { grain, .. } => self.refill_of(self.late_full(grain), grain),
            Figures::Told { refill, .. } if refill < u32::MAX => Duration::from_millis(refill.into()),
            Figures::Known { .. }
            | Figures::Held { .. }
            | Figures::LateHeld { .. }
            | Figures::Leased { .. }
            | Figures::Permits { .. }
            | Figures::Told { .. } => self.reset_after(),
        }
    }

    fn refill_of(&self, full: u64, grain: Grain) -> Duration {
        let remaining = self.remaining();
        if remaining == self.limit {
            return Duration::ZERO;
        }
        let then = full + grain.of_tokens(remaining + 1) - grain.of_tokens(self.limit);
        grain.nanos_until(then, self.asked()).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// Returns the grain at which the bucket of a fresh key will be full after this decision.
    fn late_full(&self, grain: Grain) -> u64 {
        grain.at(self.at) + grain.of_tokens(self.charged())
    }

    /// Returns how long an allowed request must wait before it starts, for
    /// [`Algorithm::LeakyQueue`](crate::Algorithm::LeakyQueue).
    ///
    /// The result is zero for every other algorithm and for a denial. It is [`Duration::MAX`] if
    /// the turn of the request is after [`Tick::MAX`].
    ///
    /// The turn is already charged, so a caller that gives up before its turn leaves a gap in which
    /// no request starts. See [`Algorithm::LeakyQueue`](crate::Algorithm::LeakyQueue) for an
    /// alternative.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Algorithm, ManualClock, Quota, SingleLimiter};
    /// let queue = SingleLimiter::builder(Quota::per_second(10))
    ///     .algorithm(Algorithm::LeakyQueue)
    ///     .clock(ManualClock::new())
    ///     .build()?;
    /// assert_eq!(queue.check().start_after(), Duration::ZERO);
    /// assert_eq!(queue.check().start_after(), Duration::from_millis(100));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub fn start_after(&self) -> Duration {
        if self.outcome != Outcome::Allowed {
            return Duration::ZERO;
        }
        let wait = self.wait();
        if wait == NEVER { Duration::MAX } else { Duration::from_nanos(wait) }
    }

    /// Returns the nanoseconds until a retry succeeds, or until an allowed request may start.
    #[inline]
    fn wait(&self) -> u64 {
        let (full, grain, queue) = match self.figures {
            Figures::Known { wait, .. } | Figures::Told { wait, .. } => return wait,
            Figures::Held { .. } | Figures::LateHeld { .. } | Figures::Leased { .. } => return 0,
            Figures::Permits { .. } => return if self.is_allowed() { 0 } else { NEVER },
            Figures::Bucket { full, grain, queue } => (full, grain, queue),
            Figures::LateBucket { grain, queue, .. } => (self.late_full(grain), grain, queue),
        };
        let then = match self.outcome {
            // At this grain, the bucket has leaked enough to fit the cost.
            Outcome::Denied => full + grain.of_tokens(self.cost) - grain.of_tokens(self.limit),
            // At this grain, the bucket has leaked everything that it contained before this
            // request.
            Outcome::Allowed if queue => full - grain.of_tokens(self.cost),
            Outcome::Allowed => return 0,
            Outcome::TooCostly => return NEVER,
        };
        grain.nanos_until(then, self.asked()).unwrap_or(NEVER)
    }

    /// Returns the time at which the request was decided and at which its charge is counted.
    /// Usually this is the `now` of the check.
    ///
    /// For a key that the limiter does not contain, the result may be later than `now`. The limiter
    /// remembers a time at which all forgotten keys are idle. If `now` is earlier, the request is
    /// decided at the remembered time. (This can happen if the thread was stopped or the clock was
    /// set back.) The durations of this decision always count from the `now` of the check.
    ///
    /// If the tokens were spent from a lease
    /// ([`Builder::core_leases`](crate::Builder::core_leases)), the result is the time at which the
    /// lease was taken. The durations also count from that time.
    ///
    /// If `now` is before the key's window, or before the last admission in its log, the charge is
    /// counted at the start of this window, or at this admission. The result is still `now`.
    ///
    /// ```
    /// # use tollgate::{Chargeable, Quota, SingleLimiter, Tick};
    /// let limiter = SingleLimiter::builder(Quota::per_hour(5)).build()?;
    /// assert_eq!(limiter.at(Tick::from_nanos(77)).check().at(), Tick::from_nanos(77));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub const fn at(&self) -> Tick {
        self.at
    }

    /// Returns the `now` of the check, from which the durations count.
    #[inline]
    pub(crate) fn asked(&self) -> Tick {
        match self.figures {
            Figures::LateHeld { late, .. } | Figures::LateBucket { late, .. } => {
                Tick::from_nanos(self.at.as_nanos() - late)
            }
            _ => self.at,
        }
    }

    /// Creates the answer to a peek of `cost` tokens for a key without a state. `fresh` returns the
    /// decision after charging the given number of tokens to a fresh key.
    pub(crate) fn before_charge(cost: u64, fresh: impl Fn(u64) -> Self) -> Self {
        let answer = fresh(cost);
        // A charge of 0 tokens leaves the key fresh.
        if answer.is_allowed() { fresh(0) } else { answer }
    }

    /// Adjusts this decision, made for a fresh key, to the time of the request, which was `late`
    /// nanoseconds before `at`.
    pub(crate) fn late_by(self, late: u64) -> Self {
        let figures = match self.figures {
            figures if late == 0 => figures,
            Figures::Held { until, period, .. } => Figures::LateHeld { late, until, period },
            Figures::Bucket { grain, queue, .. } => Figures::LateBucket { late, grain, queue },
            // The request neither takes tokens nor waits.
            figures => figures,
        };
        Self { figures, ..self }
    }

    /// Returns `Ok` if the request may go ahead, for use with `?`.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`], which contains this decision, if the request was denied.
    ///
    /// ```
    /// # use tollgate::{Denied, Limiter, Quota};
    /// fn serve(limiter: &Limiter<String>, user: &str) -> Result<&'static str, Denied> {
    ///     limiter.check(user).ok()?;
    ///     Ok("hello")
    /// }
    ///
    /// let limiter = Limiter::builder(Quota::per_hour(1)).build()?;
    /// assert!(serve(&limiter, "alice").is_ok());
    /// assert!(serve(&limiter, "alice").is_err());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    #[inline]
    pub const fn ok(self) -> Result<(), Denied> {
        if self.is_allowed() { Ok(()) } else { Err(Denied::one(self)) }
    }
}

impl fmt::Debug for Decision {
    /// Writes the same figures that the methods return.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("outcome", &self.outcome)
            .field("source", &self.source)
            .field("at", &self.at)
            .field("cost", &self.cost)
            .field("capacity", &self.limit)
            .field("remaining", &self.remaining())
            .field("retry_after", &self.retry_after())
            .field("reset_after", &self.reset_after())
            .field("start_after", &self.start_after())
            .finish()
    }
}

/// A denied request as an error. [`Decision::ok`] returns this error for one limit, and
/// [`check_all`](crate::check_all) for several limits.
///
/// ```
/// use tollgate::{Charge, Denied, ManualClock, Quota, SingleLimiter, check_all};
///
/// let clock = ManualClock::new();
/// let second = SingleLimiter::builder(Quota::per_second(10)).clock(&clock).build()?;
/// let day = SingleLimiter::builder(Quota::per_day(1)).clock(&clock).build()?;
/// let ask = || check_all(&mut [Charge::new(&second, 1), Charge::new(&day, 1)]);
///
/// assert!(ask().is_ok());
/// let denied: Denied = ask().unwrap_err();
/// assert_eq!((denied.index(), denied.decision().capacity()), (Some(1), 1));
/// assert_eq!(denied.to_string(), "rate limit at index 1 exceeded; try again in 1 d");
///
/// let denied: Denied = day.check().ok().unwrap_err();
/// assert_eq!(denied.index(), None);
/// assert_eq!(denied.to_string(), "rate limit exceeded; try again in 1 d");
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Denied {
    decision: Decision,
    /// The position of the binding limit if there are several limits, counted from 1; 0 if there is
    /// only one limit.
    nth: usize,
}

impl Denied {
    /// Creates the error of a single limit.
    #[inline]
    const fn one(decision: Decision) -> Self {
        Self { decision, nth: 0 }
    }

    /// Returns the binding denial among the decisions of several limits, or `None` if all limits
    /// allow the request. Each decision is paired with the index of its limit.
    ///
    /// This function applies the same rule as [`check_all`](crate::check_all) to limits that were
    /// checked in another way, for example one after the other over a network.
    ///
    /// ```
    /// use tollgate::{Denied, ManualClock, Quota, SingleLimiter};
    ///
    /// let clock = ManualClock::new();
    /// let limiter = |quota| SingleLimiter::builder(quota).clock(&clock).build();
    /// let limiters = [limiter(Quota::per_second(1))?, limiter(Quota::per_day(1))?];
    /// let ask = || Denied::among(limiters.iter().map(|limiter| limiter.check()).enumerate());
    ///
    /// assert_eq!(ask(), None);
    /// assert_eq!(ask().and_then(|denied| denied.index()), Some(1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn among(decisions: impl IntoIterator<Item = (usize, Decision)>) -> Option<Self> {
        let decisions = decisions.into_iter().filter(|(_, decision)| !decision.is_allowed());
        let denials = decisions.map(|(index, decision)| Self { decision, nth: index.saturating_add(1) });
        let wait = |denied: &Self| denied.decision.retry_after().unwrap_or(Duration::MAX);
        // A denial replaces an earlier denial only if its wait is longer. Among equal waits, the
        // first denial therefore binds.
        denials.reduce(|longest, next| if wait(&next) > wait(&longest) { next } else { longest })
    }

    /// Returns the decision that denied the request. A retry before the decision's `retry_after`
    /// has passed is also denied.
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns the index of the binding limit if several limits were checked, or `None` if only one
    /// limit was checked.
    ///
    /// The binding limit is the denying limit with the longest
    /// [`retry_after`](Decision::retry_after). If several limits have the same longest wait, the
    /// first of them is binding.
    pub const fn index(&self) -> Option<usize> {
        self.nth.checked_sub(1)
    }
}

impl fmt::Display for Denied {
    /// Writes a sentence for a person. Waits are rounded up, so a retry after the written wait
    /// passes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.index().map_or(String::new(), |index| format!(" at index {index}"));
        let Decision { cost, limit, outcome, source, figures, .. } = self.decision;
        match (outcome, self.decision.retry_after()) {
            (Outcome::TooCostly, _) => {
                write!(f, "the request costs {cost} tokens, and the limit{at} never has more than {limit}")
            }
            (_, Some(Duration::ZERO)) => write!(f, "rate limit{at} exceeded; try again now"),
            (_, Some(wait)) => write!(f, "rate limit{at} exceeded; try again in {}", Rounded(wait)),
            (_, None) if source == DecisionSource::Policy => {
                write!(f, "the limiter{at} has no room for a new key, or its store did not answer")
            }
            (_, None) => match figures.permits_out() {
                Some(out) => write!(
                    f,
                    "too many in flight{at}: {out} of {limit} permits are held; try again after one is returned"
                ),
                None => write!(f, "limit{at} exceeded; it is unknown when a retry passes"),
            },
        }
    }
}

impl Error for Denied {}
