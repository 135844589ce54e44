//! The settings of a limiter. Building the limiter checks them.

use super::kind::{Kind, Sweepable};
use super::method::Method;
use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::error::Refused;
use crate::quota::Quota;
use crate::rule::leased::{LEAST, SHARE};
use crate::settings::{WhenFull, WindowAlign};
use crate::state::Leases;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// If the phases of a saved limiter and of the loaded limiter differ by less, the phases count as
/// equal.
const SAME_PHASE: Duration = Duration::from_secs(1);

/// The settings of a limiter of type `L`.
///
/// Created by the `builder` functions of [`Limiter`](crate::Limiter),
/// [`SingleLimiter`](crate::SingleLimiter) and [`InFlight`](crate::InFlight), and by
/// [`class`](Self::class) for a [`ClassLimiter`](crate::ClassLimiter). The methods may be called in
/// any order. `build` checks all settings.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Algorithm, Builder, Limiter, Quota};
///
/// let builder: Builder<Limiter<String>> = Limiter::builder(Quota::new(5, Duration::from_secs(10)));
/// let limiter = builder.algorithm(Algorithm::LeakyBucket).max_keys(1_000).build()?;
/// assert!(limiter.check("alice").is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<L: Kind> {
    pub(crate) chosen: Chosen,
    pub(crate) hash: L::Hash,
}

/// The settings of a builder.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) quota: Quota,
    pub(crate) algorithm: Algorithm,
    align: Option<WindowAlign>,
    max_debt: u64,
    /// `None` for the default clock. That clock is created when a limiter is built, because
    /// creating it panics where std has no clock.
    clock: Option<Clock>,
    pub(crate) max_keys: usize,
    pub(crate) when_full: WhenFull,
    pub(crate) grace: Duration,
    /// How long a denial pauses its key; `None` if denials pause no key.
    pub(crate) penalty: Option<Duration>,
    pub(crate) count_denials: bool,
    /// Whether cores take tokens in advance.
    pub(crate) core_leases: bool,
    /// The classes other than the default class, each with its name.
    pub(crate) classes: Vec<(String, ClassSettings)>,
    pub(crate) default_class: String,
}

impl<L: Kind> Builder<L> {
    pub(crate) fn new(quota: Quota) -> Self
    where
        L::Hash: Default,
    {
        let chosen = Chosen {
            quota,
            algorithm: Algorithm::default(),
            align: None,
            max_debt: 0,
            clock: None,
            max_keys: 1_000_000,
            when_full: WhenFull::default(),
            grace: Duration::from_secs(1),
            penalty: None,
            count_denials: false,
            core_leases: false,
            classes: Vec::new(),
            default_class: "default".to_owned(),
        };
        Self { chosen, hash: L::Hash::default() }
    }

    /// Sets the clock that the limiter reads.
    ///
    /// The default is the fastest clock that agrees with the system's time; see
    /// [`Clock`](Clock#platforms).
    ///
    /// ```
    /// # use tollgate::{ManualClock, Quota, SingleLimiter};
    /// let clock = ManualClock::new();
    /// let limiter = SingleLimiter::builder(Quota::per_day(3)).clock(&clock).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.chosen.clock = Some(clock.into());
        self
    }

    /// Converts this builder to a builder for another kind of limiter, with the same settings.
    pub(crate) fn building<M: Kind<Hash = L::Hash>>(self) -> Builder<M> {
        Builder { chosen: self.chosen, hash: self.hash }
    }

    /// Converts this builder to a builder with a new key hash. All other settings are kept.
    pub(crate) fn hashing_by<M: Kind>(self, hash: M::Hash) -> Builder<M> {
        Builder { chosen: self.chosen, hash }
    }
}

impl<L: Kind<Limit = Quota>> Builder<L> {
    /// Sets the algorithm that enforces the quota. The default is [`Algorithm::TokenBucket`].
    ///
    /// ```
    /// # use tollgate::{Algorithm, Quota, SingleLimiter};
    /// let builder = SingleLimiter::builder(Quota::per_day(3)).algorithm(Algorithm::FixedWindow);
    /// assert!(builder.build().is_ok());
    /// ```
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.chosen.algorithm = algorithm;
        self
    }

    /// Sets where windows start. The default is [`WindowAlign::ClockStart`] for a manual clock, and
    /// [`WindowAlign::UnixEpoch`] for other clocks.
    ///
    /// `build` returns an error if the algorithm has no windows.
    ///
    /// ```
    /// # use tollgate::{WindowAlign, Quota, SingleLimiter};
    /// let bucket = SingleLimiter::builder(Quota::per_day(3)).align(WindowAlign::ClockStart);
    /// assert!(bucket.build().unwrap_err().to_string().starts_with("align has no meaning"));
    /// ```
    pub fn align(mut self, align: WindowAlign) -> Self {
        self.chosen.align = Some(align);
        self
    }

    /// Sets how many tokens beyond its capacity a key may owe. The default is 0.
    ///
    /// Only [`Limiter::force`](crate::Limiter::force) and
    /// [`Reservation::commit`](crate::Reservation::commit) put a key into debt, because they charge
    /// tokens that are already spent. A check never puts a key into debt. The same maximum applies
    /// to all quotas of the limiter, including quotas that are set later.
    ///
    /// | algorithm | effect of a debt |
    /// |---|---|
    /// | token bucket, leaky bucket, leaky queue | refills like all missing tokens, before the others |
    /// | fixed window | ends with its window: the next window begins with the full limit |
    /// | sliding window | weighs less and less until the end of the next window |
    /// | sliding log | not supported: a debt above 0 is refused |
    ///
    /// With debts, the tokens charged in an interval may exceed the algorithm's bound. For a
    /// bucket, the excess is at most the maximum debt. For algorithms with windows, it is at most
    /// the maximum debt for each window that the interval touches. A larger quota does not shorten
    /// the debt of a bucket, but [`reset`](crate::Limiter::reset) ends it.
    ///
    /// `build` returns an error if the debt does not fit into the word of a key, or if a debt is
    /// set for a sliding log.
    ///
    /// ```
    /// # use tollgate::{Algorithm, ManualClock, Quota, SingleLimiter};
    /// let builder = SingleLimiter::builder(Quota::per_hour(10)).clock(ManualClock::new());
    /// let limiter = builder.max_debt(3).build()?;
    /// assert_eq!(limiter.force(20), 13);
    ///
    /// let log = SingleLimiter::builder(Quota::per_hour(10)).algorithm(Algorithm::SlidingLog);
    /// assert!(log.max_debt(3).build().unwrap_err().to_string().starts_with("max_debt 3"));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn max_debt(mut self, tokens: u64) -> Self {
        self.chosen.max_debt = tokens;
        self
    }
}

impl<L: Kind + Sweepable> Builder<L> {
    /// Sets the maximum number of keys that the limiter tracks at the same time. This is also a
    /// hard cap on the limiter's memory (see [Memory](crate::Limiter#memory)).
    ///
    /// The range is 1 to 4,294,967,295, or 1 to 4,294,967,294 with exact keys. The default is
    /// 1,000,000. The maximum applies to the keys of all classes together; see
    /// [`ClassLimiter`](crate::ClassLimiter#memory).
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let builder = Limiter::<String>::builder(Quota::per_day(3)).max_keys(0);
    /// assert!(builder.build().unwrap_err().to_string().starts_with("max_keys 0 is out of range"));
    /// ```
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.chosen.max_keys = max_keys;
        self
    }

    /// Sets the answer for new keys when `max_keys` is reached. The default is [`WhenFull::Deny`].
    ///
    /// ```
    /// # use tollgate::{WhenFull, Limiter, Quota};
    /// let limiter: Limiter<u8> =
    ///     Limiter::builder(Quota::per_day(3)).max_keys(1).when_full(WhenFull::Allow).build()?;
    /// assert!(limiter.check(&1).is_allowed());
    /// assert!(limiter.check(&2).is_allowed());
    /// assert_eq!(limiter.len(), 1);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.chosen.when_full = when_full;
        self
    }

    /// Sets how long a key must have been idle before the limiter forgets it. The default is one
    /// second.
    ///
    /// The grace is a tuning parameter. It affects only decisions at times that lag behind the
    /// latest times by more than the grace. In such a decision, a new key may be charged at a later
    /// time (see [Time](crate::Limiter#time)), and a [pause](crate::Limiter::pause) that has ended
    /// in the meantime may be gone. Choose a grace larger than the skew between the times that
    /// callers pass. The table turns over at most once per grace, unless the table must grow or is
    /// full and refuses keys.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{Limiter, Quota};
    /// let limiter: Limiter<u8> =
    ///     Limiter::builder(Quota::per_day(3)).grace(Duration::from_secs(60)).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn grace(mut self, grace: Duration) -> Self {
        self.chosen.grace = grace;
        self
    }
}

impl<L: Kind<Limit = Quota> + Sweepable> Builder<L> {
    /// Sets a penalty: a denial [pauses](crate::Limiter::pause) its key for `time`. By default, a
    /// denied key is allowed again as soon as its quota has refilled.
    ///
    /// The pause starts at the denial, whose [`retry_after`](crate::Decision::retry_after) is the
    /// time until the pause ends. Requests during the pause are denied
    /// ([`DecisionSource::Pause`](crate::DecisionSource::Pause)), but they do not extend the pause.
    /// Tokens refill meanwhile: after a pause as long as the key's
    /// [`reset_after`](crate::Decision::reset_after), the key has its full burst again.
    ///
    /// A key is paused if its own state denies a request: in a check, in a reservation, or in a
    /// [`check_all`](crate::check_all) in which this limiter denies. A peek reports the penalty
    /// without applying it. These denials pause no key:
    ///
    /// - The request costs more than the capacity, so that it could never be allowed.
    /// - The key has found the table full; see [`WhenFull`].
    /// - As many keys as [`max_keys`](Self::max_keys) allows are paused already.
    ///
    /// In `check_all`, a request may be denied because a concurrent request holds tokens that it is
    /// about to return. Such a denial also pauses the key.
    ///
    /// A limiter with a penalty does not suit callers that wait for their turn, such as those of a
    /// queue of `tollgate-wait`. A caller that must wait has been denied, so each turn would take a
    /// whole penalty.
    ///
    /// Each check of a limiter with a penalty reads the clock before it prefetches, and looks the
    /// key up among the paused keys while any key is paused. Paused keys require
    /// [memory](crate::Limiter::pause). `build` returns an error if the penalty is 0.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{DecisionSource, Limiter, ManualClock, Quota};
    /// let clock = ManualClock::new();
    /// let logins: Limiter<String> = Limiter::builder(Quota::per_minute(1))
    ///     .penalty(Duration::from_secs(600))
    ///     .clock(&clock)
    ///     .build()?;
    /// assert!(logins.check("alice").is_allowed());
    /// assert_eq!(logins.check("alice").retry_after(), Some(Duration::from_secs(600)));
    ///
    /// clock.advance(Duration::from_secs(599));
    /// let denied = logins.check("alice");
    /// assert_eq!(denied.source(), DecisionSource::Pause);
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
    ///
    /// clock.advance(Duration::from_secs(1));
    /// assert!(logins.check("alice").is_allowed());
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn penalty(mut self, time: Duration) -> Self {
        self.chosen.penalty = Some(time);
        self
    }
}

impl<L: Kind> fmt::Debug for Builder<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("chosen", &self.chosen).finish_non_exhaustive()
    }
}

impl Chosen {
    /// Returns the clock for a limiter. Each call creates another default clock.
    pub(crate) fn clock(&self) -> Clock {
        self.clock.clone().unwrap_or_default()
    }

    /// Returns the algorithm and the phase of its windows, or an error if the settings contradict
    /// each other.
    pub(crate) fn method(&self, clock: &Clock) -> Result<Method, Refused> {
        self.check_align()?;
        Ok(self.method_of(self.algorithm, clock))
    }

    /// Returns the leases of a limiter for one resource, if they are set, or an error if the
    /// limiter cannot grant any.
    pub(crate) fn leases(&self, clock: &Clock) -> Result<Option<Arc<Leases>>, Refused> {
        if !self.core_leases {
            return Ok(None);
        }
        if !matches!(self.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) {
            return Err(Refused::LeasesUnsupported { algorithm: self.algorithm });
        }
        let (lines, burst) = (Leases::lines(), self.quota.capacity());
        let least = LEAST * SHARE * lines;
        if burst < least {
            return Err(Refused::BurstTooSmallToLease { burst, cores: lines, least });
        }
        Ok(Some(Arc::new(Leases::new(lines, clock.clone()))))
    }

    /// Returns an error if an alignment is set but the algorithm has no windows.
    pub(crate) fn check_align(&self) -> Result<(), Refused> {
        if self.align.is_some() && !self.algorithm.has_windows() {
            return Err(Refused::AlignUnsupported { algorithm: self.algorithm });
        }
        Ok(())
    }

    /// Returns the method for an algorithm, with the phase of its windows.
    pub(crate) fn method_of(&self, algorithm: Algorithm, clock: &Clock) -> Method {
        let default = if clock.is_real() { WindowAlign::UnixEpoch } else { WindowAlign::ClockStart };
        let phase = match self.align.unwrap_or(default) {
            WindowAlign::UnixEpoch => clock.origin_since_epoch(),
            WindowAlign::ClockStart => Duration::ZERO,
        };
        Method::Rate { algorithm, phase, debt: self.max_debt }
    }

    /// Returns the method of a loaded limiter. `before` is the phase of the saved limiter's
    /// windows. If the two phases differ only by the errors of two readings of the time of day, the
    /// loaded limiter keeps the saved limiter's windows.
    pub(crate) fn method_after(&self, algorithm: Algorithm, clock: &Clock, before: Duration) -> Method {
        match self.method_of(algorithm, clock) {
            Method::Rate { phase, debt, .. } if phase.abs_diff(before) < SAME_PHASE => {
                Method::Rate { algorithm, phase: before, debt }
            }
            method => method,
        }
    }
}

/// The settings of a class: its quota, its algorithm and its share of the keys.
///
/// A plain [`Quota`] converts to settings with the builder's algorithm and an equal share of the
/// keys.
///
/// ```
/// use tollgate::{Algorithm, ClassSettings, Limiter, Quota};
///
/// let trial = ClassSettings::from(Quota::per_day(50)).algorithm(Algorithm::FixedWindow);
/// let limiter = Limiter::<String>::builder(Quota::per_minute(10))
///     .max_keys(1_000_000)
///     .class("trial", trial)
///     .class("partner", ClassSettings::from(Quota::per_second(100)).max_keys(1_000))
///     .build()?;
/// let shares: Vec<usize> =
///     limiter.classes().map(|(_, class)| class.stats().max_keys).collect();
/// assert_eq!(shares, [499_500, 499_500, 1_000]);
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "settings do nothing until they are given to a builder"]
pub struct ClassSettings {
    pub(crate) quota: Quota,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) max_keys: Option<usize>,
}

impl ClassSettings {
    /// Sets the algorithm that enforces the quota. The default is the builder's algorithm.
    pub const fn algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm: Some(algorithm), ..self }
    }

    /// Sets the class's share of the builder's [`max_keys`](crate::Builder::max_keys). The share is
    /// at least 1. Classes without this setting divide the remaining keys equally.
    pub const fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys: Some(max_keys), ..self }
    }
}

impl From<Quota> for ClassSettings {
    fn from(quota: Quota) -> Self {
        Self { quota, algorithm: None, max_keys: None }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use crate::clock::{ClockKind, ManualClock};
    use crate::limiter::single::SingleLimiter;
    use crate::quota::Quota;

    /// The default clock panics where std has no clock.
    #[test]
    fn a_builder_that_receives_a_clock_creates_no_other() {
        let builder = SingleLimiter::builder(Quota::per_second(1));
        assert!(builder.chosen.clock.is_none());
        let limiter = builder.clock(ManualClock::new()).build().unwrap();
        assert_eq!(limiter.clock().kind(), ClockKind::Manual);
    }
}
