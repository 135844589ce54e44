//! The settings of a class.

use crate::algorithm::Algorithm;
use crate::quota::Quota;

/// The settings of a class: its quota, and what it does not share with the other classes.
///
/// A [`Quota`] alone means the builder's algorithm and an equal share of the keys.
///
/// ```
/// use tollgate::{Algorithm, ClassSettings, Limiter, Quota};
///
/// let trial = ClassSettings::from(Quota::per_day(50)).algorithm(Algorithm::FixedWindow);
/// let limiter = Limiter::<str>::builder(Quota::per_minute(10))
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
    pub(super) quota: Quota,
    pub(super) algorithm: Option<Algorithm>,
    pub(super) max_keys: Option<usize>,
}

impl ClassSettings {
    /// The algorithm that enforces the quota; the default is that of the builder.
    pub const fn algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm: Some(algorithm), ..self }
    }

    /// The class's share of the builder's [`max_keys`](crate::Builder::max_keys), from 1. The
    /// default is an equal part of what the shares that are given leave.
    pub const fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys: Some(max_keys), ..self }
    }
}

impl From<Quota> for ClassSettings {
    fn from(quota: Quota) -> Self {
        Self { quota, algorithm: None, max_keys: None }
    }
}
