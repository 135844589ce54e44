//! The settings whose values have names, and the parser for these names.

use crate::algorithm::Algorithm;
use crate::error::{ParseError, Refused};
use std::fmt;
use std::str::FromStr;

/// How a limiter answers a *new* key when the table is full. Known keys are never affected.
///
/// As text: `deny`, `allow`, `share`.
///
/// ```
/// use tollgate::{DecisionSource, Limiter, Outcome, Quota, WhenFull};
///
/// let limiter: Limiter<String> =
///     Limiter::builder(Quota::per_hour(10)).max_keys(1).when_full(WhenFull::Deny).build()?;
/// assert!(limiter.check("first").is_allowed());
/// let second = limiter.check("second");
/// assert_eq!((second.outcome(), second.source()), (Outcome::Denied, DecisionSource::Policy));
/// assert!(limiter.check("first").is_allowed());
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WhenFull {
    /// The key is denied, without a retry time.
    #[default]
    Deny,
    /// The key is admitted but not tracked, so the limit does not hold for this key.
    Allow,
    /// While the table is full, all new keys are charged to one shared state, under the limiter's
    /// quota.
    ///
    /// A key that later receives a slot starts with the state of a new key. The key may take tokens
    /// from the shared state and then from its own state. It therefore receives at most twice the
    /// algorithm's bound in any interval, and at most twice the burst at one instant. These bounds
    /// hold however often the key loses its slot and receives another. All keys without a slot
    /// together stay within the bound of one key.
    Share,
}

/// How windows are aligned. This applies to the algorithms with windows.
///
/// As text: `unix-epoch`, `clock-start`.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Algorithm, WindowAlign, Limiter, Quota};
///
/// // At most 1000 a day, starting again at midnight UTC: the default.
/// let daily: Limiter<u64> = Limiter::builder(Quota::per_day(1000))
///     .algorithm(Algorithm::FixedWindow)
///     .align(WindowAlign::UnixEpoch)
///     .build()?;
/// assert!(daily.peek(&1).reset_after() <= Duration::from_secs(24 * 3600));
/// # Ok::<(), tollgate::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WindowAlign {
    /// Windows start at multiples of the period since the Unix epoch, so several nodes have the
    /// same windows. The time of day is read once, when the limiter is built. This is the default,
    /// except for a manual clock.
    UnixEpoch,
    /// Windows start at multiples of the period since tick 0 of the clock. This is the default for
    /// a manual clock.
    ClockStart,
}

impl WhenFull {
    const ALL: [(&'static str, Self); 3] =
        [("deny", Self::Deny), ("allow", Self::Allow), ("share", Self::Share)];
}

impl WindowAlign {
    const ALL: [(&'static str, Self); 2] =
        [("unix-epoch", Self::UnixEpoch), ("clock-start", Self::ClockStart)];
}

impl fmt::Display for WhenFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(name_of(&Self::ALL, self))
    }
}

impl fmt::Display for WindowAlign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(name_of(&Self::ALL, self))
    }
}

impl FromStr for WhenFull {
    type Err = ParseError;

    fn from_str(name: &str) -> Result<Self, ParseError> {
        value_of("policy for a full table", Self::ALL, name)
    }
}

impl FromStr for WindowAlign {
    type Err = ParseError;

    fn from_str(name: &str) -> Result<Self, ParseError> {
        value_of("alignment of windows", Self::ALL, name)
    }
}

impl FromStr for Algorithm {
    type Err = ParseError;

    fn from_str(name: &str) -> Result<Self, ParseError> {
        if name == "gcra" {
            return Ok(Self::TokenBucket);
        }
        value_of("algorithm", Self::ALL.map(|algorithm| (algorithm.name(), algorithm)), name)
    }
}

fn name_of<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> &'static str {
    all.iter().find(|(_, one)| one == value).map_or("", |(name, _)| name)
}

fn value_of<T, const N: usize>(
    setting: &'static str,
    all: [(&'static str, T); N],
    name: &str,
) -> Result<T, ParseError> {
    let allowed = all.each_ref().map(|(name, _)| *name).join(", ");
    let found = all.into_iter().find(|(one, _)| *one == name);
    let refused = || Refused::UnknownName { setting, name: name.to_owned(), allowed };
    Ok(found.map(|(_, value)| value).ok_or_else(refused)?)
}
