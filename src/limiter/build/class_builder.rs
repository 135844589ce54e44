//! The builder of a limiter with several classes.

use super::builder::{Builder, Chosen, ClassSettings};
use crate::algorithm::Algorithm;
use crate::error::{ConfigError, LoadError, Refused};
use crate::limiter::keyed::classes::ClassLimiter;
use crate::limiter::keyed::limiter::Limiter;
use crate::limiter::store::interface::Store;
use crate::quota::Quota;

/// The maximum length of a class name in bytes. The same maximum applies to the names of shared
/// limits.
const MAX_NAME: usize = 128;

impl<K: ?Sized, S: Store> Builder<Limiter<K, S>> {
    /// Adds a class of callers with a separate quota. The class name consists of 1 to 128 bytes.
    /// The builder's quota is the quota of the default class.
    ///
    /// All other settings apply to every class, except for [`max_keys`](Self::max_keys), which is
    /// the total for all classes. [`ClassLimiter`] describes classes and how they share the keys.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::<String>::builder(Quota::per_minute(10))
    ///     .exact_keys()
    ///     .class("paid", Quota::per_minute(1_000))
    ///     .class("partner", Quota::per_second(100))
    ///     .max_keys(100_000)
    ///     .build()?;
    /// let partner = limiter.class("partner").unwrap();
    /// assert_eq!(partner.check("alice").remaining(), 99);
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn class(
        self,
        name: impl Into<String>,
        settings: impl Into<ClassSettings>,
    ) -> Builder<ClassLimiter<K, S>> {
        self.building::<ClassLimiter<K, S>>().class(name, settings)
    }
}

impl<K: ?Sized, S: Store> Builder<ClassLimiter<K, S>> {
    /// Adds another class.
    pub fn class(mut self, name: impl Into<String>, settings: impl Into<ClassSettings>) -> Self {
        self.chosen.classes.push((name.into(), settings.into()));
        self
    }

    /// Sets the name of the default class, to which the builder's quota applies. The default name
    /// is `default`.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let limiter = Limiter::<String>::builder(Quota::per_hour(1))
    ///     .class("paid", Quota::per_hour(50))
    ///     .default_class("free")
    ///     .build()?;
    /// assert_eq!(limiter.class("free").unwrap().quota(), Quota::per_hour(1));
    /// # Ok::<(), tollgate::ConfigError>(())
    /// ```
    pub fn default_class(mut self, name: impl Into<String>) -> Self {
        self.chosen.default_class = name.into();
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the value, the allowed range and the fix. If the
    /// setting belongs to a class, the error also names the class.
    ///
    /// ```
    /// # use tollgate::{Limiter, Quota};
    /// let builder = Limiter::<String>::builder(Quota::per_second(10));
    /// let refused = builder.class("paid", Quota::per_second(0)).build().unwrap_err().to_string();
    /// assert!(refused.starts_with("class \"paid\": 0 tokens would deny every request"));
    /// ```
    pub fn build(self) -> Result<ClassLimiter<K, S>, ConfigError> {
        let Self { chosen, hash } = self;
        let clock = chosen.clock();
        let limiters = chosen.planned_classes()?.into_iter().map(|class| {
            let method = chosen.method_of(class.algorithm, &clock);
            let limiter = chosen.limiter(method, &clock, class.quota, class.max_keys, S::another(&hash));
            Ok((class.name.to_owned(), limiter.map_err(|error| class.refused(error))?))
        });
        Ok(ClassLimiter::new(limiters.collect::<Result<Vec<_>, Refused>>()?.into_iter()))
    }
}

/// The settings of one class, which may be the default class.
pub(crate) struct PlannedClass<'c> {
    pub(crate) name: &'c str,
    pub(crate) quota: Quota,
    pub(crate) algorithm: Algorithm,
    pub(crate) max_keys: usize,
    is_default: bool,
}

impl PlannedClass<'_> {
    /// Adds the name of the class to an error, unless the class is the default class.
    pub(crate) fn refused(&self, error: Refused) -> Refused {
        match self.is_default {
            true => error,
            false => Refused::Class { class: self.name.to_owned(), error: Box::new(error) },
        }
    }

    /// Adds the name of the class to the error of a load.
    pub(crate) fn not_loaded(&self, error: LoadError) -> LoadError {
        error.of_class(self.name, |refused| self.refused(refused))
    }
}

impl Chosen {
    /// Returns the settings of all classes, the default class first.
    pub(crate) fn planned_classes(&self) -> Result<Vec<PlannedClass<'_>>, Refused> {
        let classes = &self.classes;
        let names: Vec<&String> =
            std::iter::once(&self.default_class).chain(classes.iter().map(|(name, _)| name)).collect();
        for (place, &name) in names.iter().enumerate() {
            if name.is_empty() || name.len() > MAX_NAME {
                return Err(Refused::ClassName { class: name.clone(), most: MAX_NAME });
            }
            if names[..place].contains(&name) {
                return Err(Refused::TwoQuotas { class: name.clone() });
            }
        }
        // An alignment is meaningful if at least one class has windows.
        let algorithms = classes.iter().filter_map(|(_, settings)| settings.algorithm);
        if !algorithms.into_iter().any(Algorithm::has_windows) {
            self.check_align()?;
        }
        let default = ClassSettings::from(self.quota);
        let settings = std::iter::once(&default).chain(classes.iter().map(|(_, settings)| settings));
        let planned = names.into_iter().zip(settings).zip(shares(self.max_keys, classes)?);
        let planned = planned.enumerate().map(|(place, ((name, settings), max_keys))| PlannedClass {
            name,
            quota: settings.quota,
            algorithm: settings.algorithm.unwrap_or(self.algorithm),
            max_keys,
            is_default: place == 0,
        });
        Ok(planned.collect())
    }
}

/// Divides the keys among the classes. The first share is for the default class, and the other
/// shares are for the other classes in order. The shares add up to `max_keys`. The default class
/// receives the remainder of the division.
fn shares(max_keys: usize, classes: &[(String, ClassSettings)]) -> Result<Vec<usize>, Refused> {
    let given = classes.iter().filter_map(|(_, settings)| settings.max_keys);
    let given = given.fold(0, usize::saturating_add);
    let equal = 1 + classes.iter().filter(|(_, settings)| settings.max_keys.is_none()).count();
    let least = given.saturating_add(equal);
    if max_keys < least {
        return Err(Refused::ClassKeys { max_keys, classes: 1 + classes.len(), least });
    }
    let left = max_keys - given;
    let share = left / equal;
    let named = classes.iter().map(|(_, settings)| settings.max_keys.unwrap_or(share));
    Ok([share + left % equal].into_iter().chain(named).collect())
}
