//! Process-local limiters created from settings.

use crate::key::parts::Key;
use crate::limit::any_limiter::AnyLimiter;
use crate::limit::backend::Backend;
use crate::limit::saved::{Savable, SavedLimits, StateName, WriteState};
use crate::text::allowance::Allowance;
use crate::text::classes::DEFAULT;
use crate::text::limit::{KeyText, LimitPart};
use std::sync::Arc;
use std::time::Duration;
use tollgate::kind::Kind;
use tollgate::store::ExactKeys;
use tollgate::{
    Algorithm, Builder, Clock, ConfigError, InFlight, Limiter, LoadOptions, SingleLimiter, WhenFull,
};
#[cfg(feature = "unstable-program")]
use tollgate::{Chargeable, Decision, QuotaError, Stats};

/// The limiter behind a limit created from settings. Use this type to read statistics, change the
/// quota, or check keys outside of the layer.
#[derive(Clone, Debug)]
pub struct LocalLimiter {
    /// What the keys consist of.
    key: Arc<str>,
    /// The only limiter, or the limiter of the default class.
    default: One,
    /// All classes, the default class first; empty without classes.
    classes: Vec<(String, One)>,
}

#[cfg(not(feature = "serde"))]
const WITHOUT_SERDE: &str =
    "it is the state of exact keys, which only the feature `serde` of tollgate-http can read";

/// The limiter for all requests, or for one class of callers.
#[derive(Clone, Debug)]
enum One {
    /// All requests have one state.
    Single(Arc<SingleLimiter>),
    /// Each key has a state, which is looked up by the key's fingerprint.
    Keyed(Arc<Limiter<Key>>),
    /// Each key has a state, which is looked up by the key itself. This variant is for algorithms
    /// whose state does not fit into a word.
    Exact(Arc<Limiter<Key, ExactKeys<Key>>>),
    /// Each key has a number of permits.
    InFlight(InFlight<Key>),
    Unlimited,
    Blocked,
}

impl LocalLimiter {
    /// # Errors
    ///
    /// Returns an error if the algorithm does not support a quota or the number of keys. The error
    /// includes the name of the class whose quota is at fault, or `None` for the default class.
    pub(super) fn new(
        part: &LimitPart,
        (algorithm, max_keys, when_full): (Algorithm, usize, WhenFull),
        clock: Option<&Clock>,
        saved: &mut SavedLimits,
    ) -> Result<Self, (Option<String>, ConfigError)> {
        let (max_keys, penalty) = (max_keys_of_each_class(part, max_keys), part.penalty);
        let settings = LimiterSettings { algorithm, max_keys, when_full, clock, penalty };
        let key = part.key.as_ref().map_or("nothing".to_owned(), KeyText::values);
        let mut one = |class: Option<&String>, allowance| {
            let name = StateName { limit: part.name.clone(), class: class.cloned(), key: key.clone() };
            One::new(allowance, part.key.is_some(), &settings, name, saved)
                .map_err(|error| (class.cloned(), error))
        };
        let default = one(None, part.allowance)?;
        let mut classes = Vec::new();
        if !part.classes.is_empty() {
            classes.push((DEFAULT.to_owned(), default.clone()));
        }
        for (name, allowance) in &part.classes {
            classes.push((name.clone(), one(Some(name), *allowance)?));
        }
        Ok(Self { key: key.into(), default, classes })
    }

    /// Returns the limiters that a layer saves.
    fn savable(&self) -> Vec<Savable> {
        let named = self.classes.iter().filter(|(name, _)| name != DEFAULT);
        let all = std::iter::once((None, &self.default)).chain(named.map(|(name, one)| (Some(name), one)));
        let savable = all.filter_map(|(class, one)| {
            Some(Savable { class: class.cloned(), key: Arc::clone(&self.key), write: one.write_state()? })
        });
        savable.collect()
    }
}

/// Returns the maximum number of keys of each class. `max_keys` is divided equally among the
/// classes named in the text. Each class from a file receives the same share, so that a new line in
/// the file does not change existing classes.
pub(crate) fn max_keys_of_each_class(part: &LimitPart, max_keys: usize) -> usize {
    let named = 1 + part.classes.len() - part.from_file;
    (max_keys / named).max(max_keys.min(1))
}

/// The settings shared by the limiters of all classes.
struct LimiterSettings<'c> {
    algorithm: Algorithm,
    max_keys: usize,
    when_full: WhenFull,
    clock: Option<&'c Clock>,
    penalty: Option<Duration>,
}

impl LimiterSettings<'_> {
    /// Sets a builder's clock, unless the limits use the default clock.
    fn timed<L: Kind>(&self, builder: Builder<L>) -> Builder<L> {
        match self.clock {
            Some(clock) => builder.clock(clock.clone()),
            None => builder,
        }
    }
}

impl One {
    fn new(
        allowance: Allowance,
        has_key: bool,
        settings: &LimiterSettings<'_>,
        name: StateName,
        saved: &mut SavedLimits,
    ) -> Result<Self, ConfigError> {
        let quota = match allowance {
            Allowance::Unlimited => return Ok(Self::Unlimited),
            Allowance::Blocked => return Ok(Self::Blocked),
            Allowance::AtOnce(most) => {
                // A limit without a key counts all requests under one key.
                let max_keys = if has_key { settings.max_keys } else { 1 };
                let builder = settings.timed(InFlight::<Key>::builder(most)).max_keys(max_keys);
                return Ok(Self::InFlight(builder.when_full(settings.when_full).build()?));
            }
            Allowance::Rate(quota) => quota,
        };
        if !has_key {
            let builder = || settings.timed(SingleLimiter::builder(quota)).algorithm(settings.algorithm);
            let limiter = saved.limiter(name, |state| builder().load(state), || builder().build())?;
            return Ok(Self::Single(Arc::new(limiter)));
        }
        let builder = || {
            let builder = settings.timed(Limiter::<Key>::builder(quota)).algorithm(settings.algorithm);
            let builder = builder.max_keys(settings.max_keys).when_full(settings.when_full);
            match settings.penalty {
                Some(penalty) => builder.penalty(penalty),
                None => builder,
            }
        };
        let options = LoadOptions::new().drop_excess_keys();
        // An algorithm whose state does not fit into a word requires exact keys.
        Ok(if !Algorithm::PACKED.contains(&settings.algorithm) {
            let builder = || builder().exact_keys();
            #[cfg(feature = "serde")]
            let load = |state: &[u8]| builder().load_with(options, state);
            #[cfg(not(feature = "serde"))]
            let load = |_: &[u8]| Err(tollgate::LoadError::Unusable(WITHOUT_SERDE.to_owned()));
            Self::Exact(Arc::new(saved.limiter(name, load, || builder().build())?))
        } else {
            let load = |state: &[u8]| builder().load_with(options, state);
            Self::Keyed(Arc::new(saved.limiter(name, load, || builder().build())?))
        })
    }

    /// Returns a function that writes the state; `None` if there is no state to save.
    fn write_state(&self) -> Option<Box<WriteState>> {
        Some(match self.clone() {
            Self::Single(limiter) => Box::new(move |to| limiter.save(to)),
            Self::Keyed(limiter) => Box::new(move |to| limiter.save(to)),
            #[cfg(feature = "serde")]
            Self::Exact(limiter) => Box::new(move |to| limiter.save(to)),
            #[cfg(not(feature = "serde"))]
            Self::Exact(_) => return None,
            Self::InFlight(_) | Self::Unlimited | Self::Blocked => return None,
        })
    }
}

impl From<One> for AnyLimiter {
    fn from(limiter: One) -> Self {
        Self::Local(match limiter {
            One::Single(limiter) => limiter,
            One::Keyed(limiter) => limiter,
            One::Exact(limiter) => limiter,
            One::InFlight(limit) => Arc::new(limit),
            One::Unlimited => return Self::Unlimited,
            One::Blocked => return Self::Blocked,
        })
    }
}

#[doc(hidden)]
impl From<LocalLimiter> for Backend {
    fn from(limiter: LocalLimiter) -> Self {
        let savable = limiter.savable();
        let LocalLimiter { default, classes, .. } = limiter;
        let classes = classes.into_iter().map(|(name, class)| (name, class.into()));
        let backend = Self::of_classes(classes).unwrap_or_else(|| Self::new(default.into()));
        Self { savable, ..backend }
    }
}

#[cfg(feature = "unstable-program")]
impl LocalLimiter {
    /// Returns the limiter of the class with this name, or `None` if there is no such class.
    /// Without a name, returns this limiter. All other methods apply to a single class, which is
    /// the default class if the limiter was created from settings.
    pub fn class(&self, name: Option<&str>) -> Option<Self> {
        let Some(name) = name else { return Some(self.clone()) };
        let (_, class) = self.classes.iter().find(|(other, _)| other == name)?;
        Some(Self { key: Arc::clone(&self.key), default: class.clone(), classes: Vec::new() })
    }

    /// Returns this limiter, whose classes continue with their states from `earlier`. A class keeps
    /// its states only if it has the same name, the same kind of allowance, the same maximum number
    /// of keys and the same penalty in both limiters.
    #[must_use]
    pub fn continuing(self, earlier: &Self) -> Self {
        let kept = |made: One, earlier: Option<&One>| match earlier {
            Some(earlier) if earlier.is_like(&made) => earlier.clone(),
            _ => made,
        };
        let default = kept(self.default, Some(&earlier.default));
        let classes = self.classes.into_iter().map(|(name, made)| {
            let class = earlier.classes.iter().find(|(other, _)| *other == name).map(|(_, class)| class);
            let class = if name == DEFAULT { default.clone() } else { kept(made, class) };
            (name, class)
        });
        Self { key: self.key, classes: classes.collect(), default }
    }

    /// Returns the classes that count requests in `earlier` and would not
    /// [continue](Self::continuing) with their states. The default class has the name `default`.
    pub fn renewed<'l>(&self, earlier: &'l Self) -> Vec<&'l str> {
        let class = |name: &str| self.classes.iter().find(|(other, _)| other == name);
        let named = earlier.classes.iter().filter(|(name, _)| name != DEFAULT);
        let pairs = named.filter_map(|(name, before)| Some((&**name, before, &class(name)?.1)));
        std::iter::once((DEFAULT, &earlier.default, &self.default))
            .chain(pairs)
            .filter(|(_, before, _)| !matches!(before, One::Unlimited | One::Blocked))
            .filter_map(|(name, before, now)| (!before.is_like(now)).then_some(name))
            .collect()
    }

    /// Returns the statistics; `None` for a limiter without keys.
    pub fn stats(&self) -> Option<Stats> {
        self.default.stats()
    }

    /// Returns what each key may do.
    pub fn allowance(&self) -> Allowance {
        match &self.default {
            One::Single(limiter) => Allowance::Rate(limiter.quota()),
            One::Keyed(limiter) => Allowance::Rate(limiter.quota()),
            One::Exact(limiter) => Allowance::Rate(limiter.quota()),
            One::InFlight(limit) => Allowance::AtOnce(limit.limit()),
            One::Unlimited => Allowance::Unlimited,
            One::Blocked => Allowance::Blocked,
        }
    }

    /// Returns the decision that a request with this key would receive now, without charging the
    /// key. A limiter without keys ignores the key and uses its only state. Returns `None` if
    /// nothing is counted.
    pub fn peek(&self, key: &Key) -> Option<Decision> {
        match &self.default {
            One::Single(limiter) => Some(limiter.peek()),
            One::Keyed(limiter) => Some(limiter.peek(key)),
            One::Exact(limiter) => Some(limiter.peek(key)),
            One::InFlight(limit) => Some(limit.empty_permit(key).peek()),
            One::Unlimited | One::Blocked => None,
        }
    }

    /// Resets a key as if it had never been charged. A limiter without keys resets its only state.
    pub fn reset(&self, key: &Key) {
        match &self.default {
            One::Single(limiter) => limiter.reset(),
            One::Keyed(limiter) => limiter.reset(key),
            One::Exact(limiter) => limiter.reset(key),
            One::InFlight(limit) => limit.reset(key),
            One::Unlimited | One::Blocked => {}
        }
    }

    /// Changes what each key may do while the limiter is in use; see
    /// [`Limiter::set_quota`](tollgate::Limiter::set_quota) for the effect on existing keys. An
    /// allowance of a different kind has no effect, because it requires [another
    /// limiter](Self::continuing).
    ///
    /// # Errors
    ///
    /// Returns an error if the algorithm cannot enforce the quota. The old quota then remains in
    /// effect.
    pub fn set(&self, allowance: Allowance) -> Result<(), QuotaError> {
        match (&self.default, allowance) {
            (One::Single(limiter), Allowance::Rate(quota)) => limiter.set_quota(quota),
            (One::Keyed(limiter), Allowance::Rate(quota)) => limiter.set_quota(quota),
            (One::Exact(limiter), Allowance::Rate(quota)) => limiter.set_quota(quota),
            (One::InFlight(limit), Allowance::AtOnce(most)) => limit.set_limit(most),
            _ => Ok(()),
        }
    }
}

#[cfg(feature = "unstable-program")]
impl One {
    fn stats(&self) -> Option<Stats> {
        match self {
            Self::Keyed(limiter) => Some(limiter.stats()),
            Self::Exact(limiter) => Some(limiter.stats()),
            Self::InFlight(limit) => Some(limit.stats()),
            Self::Single(_) | Self::Unlimited | Self::Blocked => None,
        }
    }

    fn penalty(&self) -> Option<Duration> {
        match self {
            Self::Keyed(limiter) => limiter.penalty(),
            Self::Exact(limiter) => limiter.penalty(),
            Self::InFlight(_) | Self::Single(_) | Self::Unlimited | Self::Blocked => None,
        }
    }

    /// Returns whether both limiters have the same kind of allowance, the same maximum number of
    /// keys and the same penalty.
    fn is_like(&self, other: &Self) -> bool {
        let max_keys = |one: &Self| one.stats().map(|stats| stats.max_keys);
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && max_keys(self) == max_keys(other)
            && self.penalty() == other.penalty()
    }
}
