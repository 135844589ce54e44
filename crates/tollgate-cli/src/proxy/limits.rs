//! The limits of the proxy: their limiters, and the layer that enforces them.

use tollgate::Stats;
use tollgate_http::program::{self, LocalLimiter, key_text, local};
use tollgate_http::settings::{Allowance, LayerSettings, LimitPart};
use tollgate_http::{Backend, BuildWarning, LayerError, RateLimitBuilder, RateLimitLayer};

use super::refusals::Refusals;
use super::shared::{SharedLimit, Store};
use crate::failure::Failure;
use crate::layer_error::refused;
use crate::printable::printable;

/// The limiter of a limit.
#[derive(Clone)]
pub enum AnyLimiter {
    Local(LocalLimiter),
    Shared(SharedLimit),
}

impl AnyLimiter {
    fn backend(self, limit: &LimitPart) -> Backend {
        match self {
            Self::Local(limiter) => limiter.into(),
            Self::Shared(SharedLimit::Rate(limiter)) => program::with_uncounted(limiter, limit),
            Self::Shared(SharedLimit::InFlight(shared)) => program::with_uncounted(shared, limit),
        }
    }
}

/// Limits in force: the settings that they were built from, the layer, and their limiters.
#[derive(Default)]
pub struct Limits {
    pub settings: LayerSettings,
    /// The layer; `None` if there are no limits.
    pub layer: Option<RateLimitLayer>,
    /// Warnings about limits that probably do not do what they were meant to do.
    pub warnings: Vec<BuildWarning>,
    /// The limits that the layer enforces, with their limiters. A limit of the settings has a part
    /// for each of its rates.
    pub parts: Vec<(LimitPart, AnyLimiter)>,
    pub refusals: Refusals,
}

impl AnyLimiter {
    /// Returns the limiter of each class of a limit, if the limit is of this process, with the name
    /// and the allowance that the class has in the settings.
    fn local<'l>(
        &self,
        limit: &'l LimitPart,
    ) -> impl Iterator<Item = (Option<&'l str>, LocalLimiter, Allowance)> + use<'l, '_> {
        allowances(limit).filter_map(move |(class, allowance)| match self {
            Self::Local(limiter) => Some((class, of_class(limiter, class)?, allowance)),
            Self::Shared(_) => None,
        })
    }

    /// Returns the statistics of each class that has keys, if the limit is of this process.
    pub(crate) fn stats<'l>(
        &self,
        limit: &'l LimitPart,
    ) -> impl Iterator<Item = (Option<&'l str>, Stats)> + use<'l, '_> {
        self.local(limit).filter_map(|(class, limiter, _)| Some((class, limiter.stats()?)))
    }
}

/// The name of the default class of a limit with classes.
pub(crate) const DEFAULT_CLASS: &str = "default";

/// Returns the name and the allowance of each class of a limit, the default class first. A limit
/// without classes has one class, without a name.
pub(crate) fn allowances(limit: &LimitPart) -> impl Iterator<Item = (Option<&str>, Allowance)> {
    let default = (!limit.classes.is_empty()).then_some(DEFAULT_CLASS);
    let others = limit.classes.iter().map(|(name, allowance)| (Some(name.as_str()), *allowance));
    [(default, limit.allowance)].into_iter().chain(others)
}

/// Returns whether a limit is in shadow mode, in which it refuses nothing.
pub(crate) fn is_shadow(settings: &LayerSettings, limit: &LimitPart) -> bool {
    settings.shadows.contains(&limit.text_name)
}

/// Returns the limiter of a class, or without a name the limiter of the limit itself.
pub(crate) fn of_class(limiter: &LocalLimiter, class: Option<&str>) -> Option<LocalLimiter> {
    class.map_or_else(|| Some(limiter.clone()), |class| limiter.class(class))
}

impl Limits {
    /// Returns the limits with their limiters.
    pub fn iter(&self) -> impl Iterator<Item = (&LimitPart, &AnyLimiter)> {
        self.parts.iter().map(|(limit, limiter)| (limit, limiter))
    }

    /// Returns the limiter that `limit` can take over from these limits: the limiter of a limit
    /// with the same name, key, algorithm, maximum of keys and policy for new keys. Its classes
    /// keep their states. A shared limiter is taken over only if its quotas are the same, because
    /// its state is in the store in any case.
    fn kept(&self, settings: &LayerSettings, limit: &LimitPart) -> Option<&AnyLimiter> {
        let how = |settings: &LayerSettings| (settings.algorithm, settings.max_keys, settings.when_full);
        let same = |earlier: &LimitPart| {
            earlier.name == limit.name
                && key_text(earlier) == key_text(limit)
                && how(&self.settings) == how(settings)
        };
        let (earlier, limiter) = self.iter().find(|(earlier, _)| same(earlier))?;
        match limiter {
            AnyLimiter::Shared(_) => allowances(earlier).eq(allowances(limit)).then_some(limiter),
            AnyLimiter::Local(_) => Some(limiter),
        }
    }

    /// Sets the allowance of each limiter to the allowance of its limit.
    ///
    /// # Errors
    ///
    /// A limiter that has no memory for the change. In that case, all limiters keep their earlier
    /// allowances.
    pub fn set_allowances(&self) -> Result<(), Failure> {
        let mut changed: Vec<(LocalLimiter, Allowance)> = Vec::new();
        let all = self.iter().flat_map(|(limit, limiter)| limiter.local(limit).map(move |it| (limit, it)));
        for (limit, (_, limiter, allowance)) in all {
            let earlier = limiter.allowance();
            if earlier == allowance {
                continue;
            }
            if let Err(error) = limiter.set(allowance) {
                for (limiter, earlier) in changed {
                    // The limiter accepts this quota, which it had a moment ago.
                    let _ = limiter.set(earlier);
                }
                return Err(Failure::refused(format!(
                    "--limit '{}': {error}",
                    printable(limit.name.as_bytes())
                )));
            }
            changed.push((limiter, earlier));
        }
        Ok(())
    }
}

/// Builds the limits. Shared limits count in `store`, and `equip` adds to the layer's settings. If
/// `running` already has the limiter of a limit, that limiter stays in use, and it keeps its quota
/// until [`Limits::set_allowances`].
///
/// # Errors
///
/// A limit that no limiter or that the store cannot enforce, an unknown name in `--shadow`, or a
/// `--trust` that holds every address.
pub fn build(
    settings: &LayerSettings,
    store: Option<&Store>,
    running: Option<&Limits>,
    equip: impl FnOnce(RateLimitBuilder, &[(LimitPart, AnyLimiter)]) -> RateLimitBuilder,
) -> Result<Limits, Failure> {
    let mut parts = Vec::new();
    let builder = settings.builder_with(|part| {
        let kept = running.and_then(|running| running.kept(settings, part));
        let shared = match store {
            Some(store) => store.limiter(part, settings.algorithm, settings.max_keys)?,
            None => None,
        };
        let limiter = match (shared, kept) {
            (Some(_), Some(kept @ AnyLimiter::Shared(_))) => kept.clone(),
            (Some(shared), _) => AnyLimiter::Shared(shared),
            (None, kept) => {
                // A limiter is built even if an earlier one stays in use, to find out whether the
                // quota can be enforced.
                let made = local(settings, part, None)?;
                AnyLimiter::Local(match kept {
                    Some(AnyLimiter::Local(kept)) => made.continuing(kept),
                    _ => made,
                })
            }
        };
        parts.push((part.clone(), limiter.clone()));
        Ok::<_, Refused>(limiter.backend(part))
    });
    let builder = builder.map_err(|Refused(failure)| failure)?;
    let warnings = builder.warnings();
    let layer = match settings.limits.is_empty() {
        true => None,
        false => Some(equip(builder, &parts).build().map_err(|error| refused(&error))?),
    };
    Ok(Limits { settings: settings.clone(), layer, warnings, parts, refusals: Refusals::default() })
}

/// A failure while limits are built, caused by the settings or by the store.
struct Refused(Failure);

impl From<LayerError> for Refused {
    fn from(error: LayerError) -> Self {
        Self(refused(&error))
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}
