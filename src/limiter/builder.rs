//! The configuration of a limiter, checked when it is built.

use super::method::Method;
use crate::algorithm::Algorithm;
use crate::clock::Clock;
use crate::error::ConfigError;
use crate::quota::Quota;
use crate::settings::{WhenFull, WindowAlign};
use std::marker::PhantomData;
use std::time::Duration;

/// The configuration of a limiter of type `L`.
///
/// Made by [`Limiter::builder`](crate::Limiter::builder) and
/// [`SingleLimiter::builder`](crate::SingleLimiter::builder). Each limiter's `build` checks the
/// settings.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Algorithm, Builder, Clock, Limiter, Quota};
///
/// let builder: Builder<Limiter<str>> = Limiter::builder(Quota::new(5, Duration::from_secs(10)));
/// let limiter = builder.algorithm(Algorithm::LeakyBucket).max_keys(1_000).build()?;
/// assert!(limiter.check("alice").is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<L> {
    pub(super) chosen: Chosen,
    builds: PhantomData<fn() -> L>,
}

/// The settings of a builder.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) quota: Quota,
    pub(super) algorithm: Algorithm,
    align: Option<WindowAlign>,
    max_debt: u64,
    pub(super) clock: Clock,
    pub(super) max_keys: usize,
    pub(super) when_full: WhenFull,
    pub(super) grace: Duration,
    pub(super) count_denials: bool,
}

impl<L> Builder<L> {
    pub(super) fn new(quota: Quota) -> Self {
        let chosen = Chosen {
            quota,
            algorithm: Algorithm::default(),
            align: None,
            max_debt: 0,
            clock: Clock::default(),
            max_keys: 1_000_000,
            when_full: WhenFull::default(),
            grace: Duration::from_secs(1),
            count_denials: false,
        };
        Self { chosen, builds: PhantomData }
    }

    /// The algorithm that enforces the quota; the default is [`Algorithm::TokenBucket`].
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

    /// Where windows begin; the default is [`WindowAlign::UnixEpoch`], for a manual clock
    /// [`WindowAlign::TickZero`].
    ///
    /// For an algorithm without windows, `build` returns an error.
    ///
    /// ```
    /// # use tollgate::{WindowAlign, Quota, SingleLimiter};
    /// let bucket = SingleLimiter::builder(Quota::per_day(3)).align(WindowAlign::TickZero);
    /// assert!(bucket.build().unwrap_err().to_string().starts_with("align has no meaning"));
    /// ```
    pub fn align(mut self, align: WindowAlign) -> Self {
        self.chosen.align = Some(align);
        self
    }

    /// The clock that the limiter reads.
    ///
    /// The default is the fastest clock that keeps the system's time: see
    /// [`Clock`](Clock#platforms).
    ///
    /// ```
    /// # use tollgate::{Clock, Quota, SingleLimiter};
    /// let clock = Clock::manual();
    /// let limiter = SingleLimiter::builder(Quota::per_day(3)).clock(&clock).build()?;
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.chosen.clock = clock.into();
        self
    }

    /// How many tokens beyond its capacity a key may owe; the default is 0.
    ///
    /// Only [`Limiter::force_n`](crate::Limiter::force_n) and
    /// [`Reservation::commit`](crate::Reservation::commit) make debts: they charge what is spent
    /// already. A check never does. [`AnyRule::max_debt`](crate::rule::AnyRule::max_debt) says how
    /// a debt ends, for each algorithm. It is the same for all quotas of the limiter, also later
    /// ones.
    ///
    /// `build` returns an error for a debt that does not fit into the word of a key, and for any
    /// debt of a sliding log.
    ///
    /// ```
    /// # use tollgate::{Algorithm, Clock, Quota, SingleLimiter};
    /// let builder = SingleLimiter::builder(Quota::per_hour(10)).clock(Clock::manual());
    /// let limiter = builder.max_debt(3).build()?;
    /// assert_eq!(limiter.force_n(20), 13);
    ///
    /// let log = SingleLimiter::builder(Quota::per_hour(10)).algorithm(Algorithm::SlidingLog);
    /// assert!(log.max_debt(3).build().unwrap_err().to_string().starts_with("max_debt 3"));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn max_debt(mut self, tokens: u64) -> Self {
        self.chosen.max_debt = tokens;
        self
    }

    /// Keeps the settings, for a limiter of another type.
    pub(super) fn building<M>(self) -> Builder<M> {
        Builder { chosen: self.chosen, builds: PhantomData }
    }
}

impl Chosen {
    /// The algorithm and the phase of its windows, if the settings agree.
    pub(super) fn method(&self) -> Result<Method, ConfigError> {
        self.check_align()?;
        Ok(self.method_of(self.algorithm))
    }

    /// Refuses an alignment if the algorithm has no windows.
    pub(super) fn check_align(&self) -> Result<(), ConfigError> {
        if self.align.is_some() && !self.algorithm.has_windows() {
            return Err(ConfigError::AlignUnsupported { algorithm: self.algorithm });
        }
        Ok(())
    }

    /// An algorithm, with the phase of its windows.
    pub(super) fn method_of(&self, algorithm: Algorithm) -> Method {
        let default = if self.clock.is_real() { WindowAlign::UnixEpoch } else { WindowAlign::TickZero };
        let phase = match self.align.unwrap_or(default) {
            WindowAlign::UnixEpoch => self.clock.origin_since_epoch(),
            WindowAlign::TickZero => Duration::ZERO,
        };
        Method::Rate { algorithm, phase, debt: self.max_debt }
    }
}
