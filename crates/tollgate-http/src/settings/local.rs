//! The limiters of this process that settings make.

use super::layer_settings::LayerSettings;
use crate::key::parts::Key;
use crate::limit::backend::Backend;
use crate::text::limit::LimitText;
use std::sync::Arc;
use tollgate::{
    Algorithm, Builder, Class, ClassBuilder, ClassLimiter, ConfigError, ExactKeys, Limiter, Quota,
    SingleLimiter, Store,
};
#[cfg(feature = "unstable-program")]
use tollgate::{Decision, Stats};

/// The limiter of a limit that was made from [`LayerSettings`]: to
/// read its statistics, to change its quota, or to check its keys beside the layer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LocalLimiter {
    /// All requests have one state.
    Single(Arc<SingleLimiter>),
    /// Each key has a state, found by the key's fingerprint.
    Keyed(Arc<Limiter<Key>>),
    /// Each key has a state, found by the key itself: of algorithms whose state does not fit a
    /// word.
    Exact(Arc<Limiter<Key, ExactKeys<Key>>>),
    /// Each class of callers has keys of its own, found by their fingerprints. This stands for one
    /// of the classes: see [`class`](Self::class).
    KeyedClass(Arc<ClassLimiter<Key>>, Class),
    /// Each class of callers has keys of its own, found by the keys themselves. This stands for one
    /// of the classes.
    ExactClass(Arc<ClassLimiter<Key, ExactKeys<Key>>>, Class),
}

impl LocalLimiter {
    /// # Errors
    ///
    /// A quota, or a number of keys, that the algorithm cannot enforce.
    pub(super) fn new(settings: &LayerSettings, limit: &LimitText) -> Result<Self, ConfigError> {
        let algorithm = settings.algorithm;
        if limit.key.is_none() {
            let single = SingleLimiter::builder(limit.quota).algorithm(algorithm).build()?;
            return Ok(Self::Single(Arc::new(single)));
        }
        let builder = Limiter::<Key>::builder(limit.quota)
            .algorithm(algorithm)
            .max_keys(settings.max_keys)
            .when_full(settings.when_full);
        // An algorithm whose state does not fit a word needs exact keys.
        let is_exact = algorithm == Algorithm::SlidingLog;
        Ok(match (is_exact, limit.classes.split_first()) {
            (false, None) => Self::Keyed(Arc::new(builder.build()?)),
            (true, None) => Self::Exact(Arc::new(builder.exact_keys().build()?)),
            (false, Some(classes)) => {
                let limiter = with_classes(builder, classes).build()?;
                Self::KeyedClass(Arc::new(limiter), Class::default())
            }
            (true, Some(classes)) => {
                let limiter = with_classes(builder.exact_keys(), classes).build()?;
                Self::ExactClass(Arc::new(limiter), Class::default())
            }
        })
    }
}

/// Adds classes to the builder of a limiter: the first, and the others.
fn with_classes<S: Store>(
    builder: Builder<Limiter<Key, S>>,
    ((name, quota), others): (&(String, Quota), &[(String, Quota)]),
) -> ClassBuilder<Key, S> {
    let first = builder.class(name, *quota);
    others.iter().fold(first, |builder, (name, quota)| builder.class(name, *quota))
}

impl From<LocalLimiter> for Backend {
    fn from(limiter: LocalLimiter) -> Self {
        match limiter {
            LocalLimiter::Single(limiter) => limiter.into(),
            LocalLimiter::Keyed(limiter) => limiter.into(),
            LocalLimiter::Exact(limiter) => limiter.into(),
            LocalLimiter::KeyedClass(limiter, _) => limiter.into(),
            LocalLimiter::ExactClass(limiter, _) => limiter.into(),
        }
    }
}

#[cfg(feature = "unstable-program")]
impl LocalLimiter {
    /// Returns the limiter of the class with this name; `None` if there is none. The other methods
    /// are about one class: of the limiter that the settings made, the default class.
    ///
    /// ```
    /// # use tollgate_http::program;
    /// # use tollgate_http::settings::LayerSettings;
    /// let text = "a=10/min class paid 1000/min by ip class by header x-class".parse()?;
    /// let limiter = program::local(&LayerSettings::default(), &text)?;
    /// let paid = limiter.class("paid").unwrap();
    /// paid.set_quota("2000/min".parse()?)?;
    /// assert_eq!((limiter.quota().tokens(), paid.quota().tokens()), (10, 2000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn class(&self, name: &str) -> Option<Self> {
        match self {
            Self::Single(_) | Self::Keyed(_) | Self::Exact(_) => None,
            Self::KeyedClass(limiter, _) => Some(Self::KeyedClass(Arc::clone(limiter), limiter.class(name)?)),
            Self::ExactClass(limiter, _) => Some(Self::ExactClass(Arc::clone(limiter), limiter.class(name)?)),
        }
    }

    /// Returns the statistics; `None` without keys.
    pub fn stats(&self) -> Option<Stats> {
        match self {
            Self::Single(_) => None,
            Self::Keyed(limiter) => Some(limiter.stats()),
            Self::Exact(limiter) => Some(limiter.stats()),
            Self::KeyedClass(limiter, class) => Some(limiter.of(*class).stats()),
            Self::ExactClass(limiter, class) => Some(limiter.of(*class).stats()),
        }
    }

    /// Returns the quota.
    pub fn quota(&self) -> Quota {
        match self {
            Self::Single(limiter) => limiter.quota(),
            Self::Keyed(limiter) => limiter.quota(),
            Self::Exact(limiter) => limiter.quota(),
            Self::KeyedClass(limiter, class) => limiter.of(*class).quota(),
            Self::ExactClass(limiter, class) => limiter.of(*class).quota(),
        }
    }

    /// Returns what a request of this key would get now, without charging it. Without keys, the
    /// one state is looked at.
    pub fn peek(&self, key: &Key) -> Decision {
        match self {
            Self::Single(limiter) => limiter.peek(),
            Self::Keyed(limiter) => limiter.peek(key),
            Self::Exact(limiter) => limiter.peek(key),
            Self::KeyedClass(limiter, class) => limiter.of(*class).peek(key),
            Self::ExactClass(limiter, class) => limiter.of(*class).peek(key),
        }
    }

    /// Makes a key as if it had never been charged. Without keys, the one state is reset.
    pub fn reset(&self, key: &Key) {
        match self {
            Self::Single(limiter) => limiter.reset(),
            Self::Keyed(limiter) => limiter.reset(key),
            Self::Exact(limiter) => limiter.reset(key),
            Self::KeyedClass(limiter, class) => limiter.of(*class).reset(key),
            Self::ExactClass(limiter, class) => limiter.of(*class).reset(key),
        }
    }

    /// Changes the quota while the limiter is in use; see
    /// [`Limiter::set_quota`](tollgate::Limiter::set_quota) for what becomes of the keys.
    ///
    /// # Errors
    ///
    /// A quota that the algorithm cannot enforce. The old one stays.
    pub fn set_quota(&self, quota: Quota) -> Result<(), ConfigError> {
        match self {
            Self::Single(limiter) => limiter.set_quota(quota),
            Self::Keyed(limiter) => limiter.set_quota(quota),
            Self::Exact(limiter) => limiter.set_quota(quota),
            Self::KeyedClass(limiter, class) => limiter.of(*class).set_quota(quota),
            Self::ExactClass(limiter, class) => limiter.of(*class).set_quota(quota),
        }
    }
}
