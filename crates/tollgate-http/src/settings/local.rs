//! The limiters of this process that settings make.

use crate::key::parts::Key;
use crate::limit::any_limiter::{AnyLimiter, Local};
use crate::limit::backend::Backend;
use crate::text::limit::LimitText;
use std::sync::Arc;
use tollgate::store::{ExactKeys, Store};
use tollgate::{Algorithm, Builder, ClassLimiter, ConfigError, Limiter, SingleLimiter, WhenFull};
#[cfg(feature = "unstable-program")]
use tollgate::{Decision, Quota, QuotaError, Stats};

/// The limiter of a limit that was made from settings: to read its statistics, to change
/// its quota, or to check its keys beside the layer.
#[derive(Clone, Debug)]
pub struct LocalLimiter {
    /// The only limiter, or that of the default class.
    default: One,
    /// All classes, the default class first; empty without classes.
    classes: Vec<(String, One)>,
}

/// The limiter of all requests, or of one class of callers.
#[derive(Clone, Debug)]
enum One {
    /// All requests have one state.
    Single(Arc<SingleLimiter>),
    /// Each key has a state, found by the key's fingerprint.
    Keyed(Arc<Limiter<Key>>),
    /// Each key has a state, found by the key itself: of algorithms whose state does not fit a
    /// word.
    Exact(Arc<Limiter<Key, ExactKeys<Key>>>),
}

impl LocalLimiter {
    /// # Errors
    ///
    /// A quota, or a number of keys, that the algorithm cannot enforce.
    pub(super) fn new(
        limit: &LimitText,
        algorithm: Algorithm,
        max_keys: usize,
        when_full: WhenFull,
    ) -> Result<Self, ConfigError> {
        if limit.key.is_none() {
            let single = SingleLimiter::builder(limit.quota).algorithm(algorithm).build()?;
            return Ok(One::Single(Arc::new(single)).into());
        }
        let builder =
            Limiter::<Key>::builder(limit.quota).algorithm(algorithm).max_keys(max_keys).when_full(when_full);
        // An algorithm whose state does not fit a word needs exact keys.
        let is_exact = algorithm == Algorithm::SlidingLog;
        Ok(match (is_exact, limit.classes.split_first()) {
            (false, None) => One::Keyed(Arc::new(builder.build()?)).into(),
            (true, None) => One::Exact(Arc::new(builder.exact_keys().build()?)).into(),
            (false, Some(classes)) => Self::of_classes(with_classes(builder, classes)?, One::Keyed),
            (true, Some(classes)) => {
                Self::of_classes(with_classes(builder.exact_keys(), classes)?, One::Exact)
            }
        })
    }

    fn of_classes<S: Store>(
        limiter: ClassLimiter<Key, S>,
        one: impl Fn(Arc<Limiter<Key, S>>) -> One,
    ) -> Self {
        let classes = limiter.classes().map(|(name, class)| (name.to_owned(), one(Arc::clone(class))));
        Self { classes: classes.collect(), default: one(Arc::clone(limiter.default_class())) }
    }
}

/// Builds a limiter with classes: the first, and the others.
fn with_classes<S: Store>(
    builder: Builder<Limiter<Key, S>>,
    ((name, quota), others): (&(String, tollgate::Quota), &[(String, tollgate::Quota)]),
) -> Result<ClassLimiter<Key, S>, ConfigError> {
    let first = builder.class(name, *quota);
    others.iter().fold(first, |builder, (name, quota)| builder.class(name, *quota)).build()
}

impl From<One> for LocalLimiter {
    fn from(default: One) -> Self {
        Self { default, classes: Vec::new() }
    }
}

impl From<One> for AnyLimiter {
    fn from(limiter: One) -> Self {
        Self::Local(match limiter {
            One::Single(limiter) => Local::Single(limiter),
            One::Keyed(limiter) => Local::Keyed(limiter),
            One::Exact(limiter) => Local::Keyed(limiter),
        })
    }
}

#[doc(hidden)]
impl From<LocalLimiter> for Backend {
    fn from(limiter: LocalLimiter) -> Self {
        let LocalLimiter { default, classes } = limiter;
        let classes = classes.into_iter().map(|(name, class)| (name, class.into()));
        Self::of_classes(classes).unwrap_or_else(|| Self::new(default.into()))
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
        let (_, class) = self.classes.iter().find(|(other, _)| other == name)?;
        Some(class.clone().into())
    }

    /// Returns the statistics; `None` without keys.
    pub fn stats(&self) -> Option<Stats> {
        match &self.default {
            One::Single(_) => None,
            One::Keyed(limiter) => Some(limiter.stats()),
            One::Exact(limiter) => Some(limiter.stats()),
        }
    }

    /// Returns the quota.
    pub fn quota(&self) -> Quota {
        match &self.default {
            One::Single(limiter) => limiter.quota(),
            One::Keyed(limiter) => limiter.quota(),
            One::Exact(limiter) => limiter.quota(),
        }
    }

    /// Returns what a request of this key would get now, without charging it. Without keys, the
    /// one state is looked at.
    pub fn peek(&self, key: &Key) -> Decision {
        match &self.default {
            One::Single(limiter) => limiter.peek(),
            One::Keyed(limiter) => limiter.peek(key),
            One::Exact(limiter) => limiter.peek(key),
        }
    }

    /// Makes a key as if it had never been charged. Without keys, the one state is reset.
    pub fn reset(&self, key: &Key) {
        match &self.default {
            One::Single(limiter) => limiter.reset(),
            One::Keyed(limiter) => limiter.reset(key),
            One::Exact(limiter) => limiter.reset(key),
        }
    }

    /// Changes the quota while the limiter is in use; see
    /// [`Limiter::set_quota`](tollgate::Limiter::set_quota) for what becomes of the keys.
    ///
    /// # Errors
    ///
    /// A quota that the algorithm cannot enforce. The old one stays.
    pub fn set_quota(&self, quota: Quota) -> Result<(), QuotaError> {
        match &self.default {
            One::Single(limiter) => limiter.set_quota(quota),
            One::Keyed(limiter) => limiter.set_quota(quota),
            One::Exact(limiter) => limiter.set_quota(quota),
        }
    }
}
