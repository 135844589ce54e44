//! The proxy's limits, their limiters, and the layer that enforces the limits.

use tollgate_http::program::{self, LocalLimiter, classes, key_text};
use tollgate_http::settings::{LayerSettings, LimitPart, SavedLimits};
use tollgate_http::{Backend, BuildWarning, RateLimitBuilder, RateLimitLayer};
use tollgate_redis::program::{SettingNames, SharedLimit, Store};

use super::refusals::Refusals;
use crate::failure::Failure;

/// The names of the options for shared limits.
pub const NAMES: SettingNames = SettingNames { prefix: "--", limit: |name| format!("--limit '{name}'") };

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
            Self::Shared(shared) => shared.backend(limit),
        }
    }

    /// Returns the limiter if it is local to this process.
    pub(crate) fn local(&self) -> Option<&LocalLimiter> {
        match self {
            Self::Local(limiter) => Some(limiter),
            Self::Shared(_) => None,
        }
    }
}

/// The limits in force, with their settings, their layer and their limiters.
#[derive(Default)]
pub struct Limits {
    pub settings: LayerSettings,
    /// The layer, or `None` if there are no limits.
    pub layer: Option<RateLimitLayer>,
    /// Warnings about limits that probably do not have their intended effect.
    pub warnings: Vec<BuildWarning>,
    /// The enforced limits, with their limiters. A limit in the settings has a separate part for
    /// each of its rates.
    pub parts: Vec<(LimitPart, AnyLimiter)>,
    pub refusals: Refusals,
}

/// Returns whether a limit is in shadow mode, which refuses no request.
pub(crate) fn is_shadow(settings: &LayerSettings, limit: &LimitPart) -> bool {
    settings.shadows.contains(&limit.text_name)
}

impl Limits {
    /// Returns the limits with their limiters.
    pub fn iter(&self) -> impl Iterator<Item = (&LimitPart, &AnyLimiter)> {
        self.parts.iter().map(|(limit, limiter)| (limit, limiter))
    }

    /// Returns the limits that are local to this process, with their limiters.
    pub(crate) fn local(&self) -> impl Iterator<Item = (&LimitPart, &LocalLimiter)> {
        self.iter().filter_map(|(limit, limiter)| Some((limit, limiter.local()?)))
    }

    /// Returns the existing limiter that `limit` can take over. That limiter's limit must have the
    /// same name, key, algorithm, maximum number of keys and policy for new keys. The states of its
    /// classes are kept.
    ///
    /// A shared limiter is taken over only if its quotas and its penalty are also equal. If they
    /// differ, a new limiter loses nothing, because the store keeps the state.
    fn kept(&self, settings: &LayerSettings, limit: &LimitPart) -> Option<&AnyLimiter> {
        let how = |settings: &LayerSettings| (settings.algorithm, settings.max_keys, settings.when_full);
        let same = |earlier: &LimitPart| {
            earlier.name == limit.name
                && key_text(earlier) == key_text(limit)
                && how(&self.settings) == how(settings)
        };
        let (earlier, limiter) = self.iter().find(|(earlier, _)| same(earlier))?;
        match limiter {
            AnyLimiter::Shared(_) => {
                let is_equal = classes(earlier).eq(classes(limit)) && earlier.penalty == limit.penalty;
                is_equal.then_some(limiter)
            }
            AnyLimiter::Local(_) => Some(limiter),
        }
    }

    /// Sets each limiter's allowance to the allowance of its limit.
    ///
    /// # Errors
    ///
    /// Returns an error if a limiter cannot allocate memory for the change. In that case, all
    /// limiters keep their previous allowances.
    pub fn set_allowances(&self) -> Result<(), Failure> {
        program::set_allowances(self.local())
            .map_err(|(limit, error)| Failure::refused(format!("--limit '{limit}': {error}")))
    }
}

/// Builds the limits. Shared limits count in `store`, and `equip` extends the layer's settings. If
/// `running` already contains a suitable limiter for a limit, that limiter remains in use, and
/// keeps its quota until [`Limits::set_allowances`] is called. A new local limiter continues with
/// its counts in `saved`.
///
/// # Errors
///
/// Returns an error if no limiter can enforce a limit, or if the store cannot enforce a limit. Also
/// returns an error if `--shadow` contains an unknown name, or if `--trust` contains every address.
pub fn build(
    settings: &LayerSettings,
    store: Option<&Store>,
    running: Option<&Limits>,
    mut saved: SavedLimits,
    equip: impl FnOnce(RateLimitBuilder, &[(LimitPart, AnyLimiter)]) -> RateLimitBuilder,
) -> Result<Limits, Failure> {
    let mut parts = Vec::new();
    let builder = settings.builder_with(|part| {
        let kept = running.and_then(|running| running.kept(settings, part));
        let shared = match store {
            Some(store) => {
                store.limiter(part, settings.algorithm, settings.max_keys).map_err(Failure::refused)?
            }
            None => None,
        };
        let limiter = match (shared, kept) {
            (Some(_), Some(kept @ AnyLimiter::Shared(_))) => kept.clone(),
            (Some(shared), _) => AnyLimiter::Shared(shared),
            (None, kept) => {
                // Building a limiter shows whether the quota can be enforced. A new limiter is
                // therefore built even if an earlier limiter remains in use.
                let made = program::local_from(settings, part, &mut saved)?;
                AnyLimiter::Local(match kept {
                    Some(AnyLimiter::Local(kept)) => made.continuing(kept),
                    _ => made,
                })
            }
        };
        parts.push((part.clone(), limiter.clone()));
        Ok::<_, Failure>(limiter.backend(part))
    });
    let builder = builder?;
    if let Some(store) = store {
        store.check_limits(parts.iter().map(|(limit, _)| limit)).map_err(Failure::refused)?;
    }
    let mut warnings = builder.warnings();
    warnings.extend(program::not_continued(saved));
    let layer = match settings.limits.is_empty() {
        true => None,
        false => Some(equip(builder, &parts).build()?),
    };
    Ok(Limits { settings: settings.clone(), layer, warnings, parts, refusals: Refusals::default() })
}
