//! The limits of the proxy: limiters, and the layer that enforces them.

use std::sync::Arc;

use tollgate::{Quota, Stats};
use tollgate_http::program::{Fault, LocalLimiter, fault, key_text, local};
use tollgate_http::settings::{LayerSettings, LimitText};
use tollgate_http::{Backend, BuildWarning, Key, LayerError, RateLimitBuilder, RateLimitLayer};
use tollgate_redis::SharedLimiter;

use super::refusals::Refusals;
use super::shared::Store;
use crate::failure::Failure;
use crate::printable::{listed, printable};

/// The limiter of a limit.
#[derive(Clone)]
pub enum AnyLimiter {
    Local(LocalLimiter),
    Shared(Arc<SharedLimiter<Key>>),
}

impl From<AnyLimiter> for Backend {
    fn from(limiter: AnyLimiter) -> Self {
        match limiter {
            AnyLimiter::Local(limiter) => limiter.into(),
            AnyLimiter::Shared(limiter) => limiter.into(),
        }
    }
}

/// Limits in force: what they were built from, the layer, and their limiters.
#[derive(Default)]
pub struct Limits {
    pub settings: LayerSettings,
    /// The layer, if there is any limit.
    pub layer: Option<RateLimitLayer>,
    /// What these limits may not be meant to be.
    pub warnings: Vec<BuildWarning>,
    /// One for each limit, in their order.
    pub limiters: Vec<AnyLimiter>,
    pub refusals: Refusals,
}

impl AnyLimiter {
    /// Returns the limiters of this process of all classes of a limit, with the name of each and
    /// its quota in the settings.
    fn local<'l>(
        &self,
        limit: &'l LimitText,
    ) -> impl Iterator<Item = (Option<&'l str>, LocalLimiter, Quota)> + use<'l, '_> {
        quotas(limit).filter_map(move |(class, quota)| match self {
            Self::Local(limiter) => Some((class, of_class(limiter, class)?, quota)),
            Self::Shared(_) => None,
        })
    }

    /// Returns the statistics of each class of a limit of this process that has keys.
    pub(crate) fn stats<'l>(
        &self,
        limit: &'l LimitText,
    ) -> impl Iterator<Item = (Option<&'l str>, Stats)> + use<'l, '_> {
        self.local(limit).filter_map(|(class, limiter, _)| Some((class, limiter.stats()?)))
    }
}

/// The name of the default class of a limit with classes.
pub(crate) const DEFAULT_CLASS: &str = "default";

/// Returns the name and the quota of each class of a limit, the default class first. A limit
/// without classes has one quota without a name.
pub(crate) fn quotas(limit: &LimitText) -> impl Iterator<Item = (Option<&str>, Quota)> {
    let default = (!limit.classes.is_empty()).then_some(DEFAULT_CLASS);
    let others = limit.classes.iter().map(|(name, quota)| (Some(name.as_str()), *quota));
    [(default, limit.quota)].into_iter().chain(others)
}

/// Returns the limiter of a class: that of the limit itself without a name.
pub(crate) fn of_class(limiter: &LocalLimiter, class: Option<&str>) -> Option<LocalLimiter> {
    class.map_or_else(|| Some(limiter.clone()), |class| limiter.class(class))
}

impl Limits {
    /// Returns the limits with their limiters.
    pub fn iter(&self) -> impl Iterator<Item = (&LimitText, &AnyLimiter)> {
        self.settings.limits.iter().zip(&self.limiters)
    }

    /// Returns the limiter whose keys keep their state under new settings: that of a limit of the
    /// same name, key, classes and algorithm, with as much room for keys. A shared limiter holds no
    /// state of its own: it stays only if it has the same quota, and else the store has the state.
    fn kept(&self, settings: &LayerSettings, limit: &LimitText) -> Option<&AnyLimiter> {
        let how = |settings: &LayerSettings| (settings.algorithm, settings.max_keys, settings.when_full);
        let classes = |limit: &LimitText| -> Vec<Option<String>> {
            quotas(limit).map(|(class, _)| class.map(str::to_owned)).collect()
        };
        let same = |earlier: &LimitText| {
            earlier.name == limit.name
                && key_text(earlier) == key_text(limit)
                && classes(earlier) == classes(limit)
                && how(&self.settings) == how(settings)
        };
        let (earlier, limiter) = self.iter().find(|(earlier, _)| same(earlier))?;
        match limiter {
            AnyLimiter::Shared(_) => quotas(earlier).eq(quotas(limit)).then_some(limiter),
            AnyLimiter::Local(_) => Some(limiter),
        }
    }

    /// Gives the limiters the quotas of their limits.
    ///
    /// # Errors
    ///
    /// A limiter that has no memory for the change. All have their earlier quotas then.
    pub fn set_quotas(&self) -> Result<(), Failure> {
        let mut changed: Vec<(LocalLimiter, Quota)> = Vec::new();
        let all = self.iter().flat_map(|(limit, limiter)| limiter.local(limit).map(move |it| (limit, it)));
        for (limit, (_, limiter, quota)) in all {
            let earlier = limiter.quota();
            if earlier == quota {
                continue;
            }
            if let Err(error) = limiter.set_quota(quota) {
                for (limiter, earlier) in changed {
                    // It has just had this quota.
                    let _ = limiter.set_quota(earlier);
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

/// Builds the limits, in `store` if they are shared; `equip` adds to the layer's settings. Limiters of
/// limits that `running` has already are taken from there, and keep their quotas until
/// [`Limits::set_quotas`].
///
/// # Errors
///
/// A limit that no limiter, or the store, can enforce, an unknown name in `--shadow`, a trust in
/// every address.
pub fn build(
    settings: &LayerSettings,
    store: Option<&Store>,
    running: Option<&Limits>,
    equip: impl FnOnce(RateLimitBuilder) -> RateLimitBuilder,
) -> Result<Limits, Failure> {
    let mut limiters = Vec::new();
    let builder = settings.builder_with(|text| {
        let kept = running.and_then(|running| running.kept(settings, text));
        let limiter = match (store, kept) {
            (Some(_), Some(AnyLimiter::Shared(limiter))) => AnyLimiter::Shared(Arc::clone(limiter)),
            (Some(store), _) => {
                AnyLimiter::Shared(Arc::new(store.limiter(text, settings.algorithm, settings.max_keys)?))
            }
            (None, kept) => {
                // Made also if another stays in use: it shows whether the quota can be enforced.
                let made = AnyLimiter::Local(local(settings, text)?);
                kept.filter(|kept| matches!(kept, AnyLimiter::Local(_))).cloned().unwrap_or(made)
            }
        };
        limiters.push(limiter.clone());
        Ok::<_, Refused>(limiter)
    });
    let builder = builder.map_err(|Refused(failure)| failure)?;
    let warnings = builder.warnings();
    let layer = match settings.limits.is_empty() {
        true => None,
        false => Some(equip(builder).build().map_err(|error| refused(&error))?),
    };
    Ok(Limits { settings: settings.clone(), layer, warnings, limiters, refusals: Refusals::default() })
}

/// A failure while limits are made: of the settings, or of the store.
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

/// Returns the library's own message, except where it names the library's methods and fields.
fn refused(error: &LayerError) -> Failure {
    Failure::refused(match fault(error) {
        Fault::Limiter { limit, error } => {
            format!("--limit '{}': {error}", printable(limit.as_bytes()))
        }
        Fault::Key { limit, error } => {
            format!("--limit '{}': {error}", printable(limit.as_bytes()))
        }
        Fault::ClassHeader { limit, header } => format!(
            "--limit '{}': any client can write the header `{}`, which names the class of the caller: expected \
             trusted proxies; name their networks in --trust or their number in --trust-hops, or list the \
             classes of keys with `class by header NAME in FILE`",
            printable(limit.as_bytes()),
            printable(header.as_bytes())
        ),
        Fault::UnknownClass { limit, class, classes } => format!(
            "--limit '{}': the file has the class `{}`, which the limit does not have: expected {}; correct the \
             file, or add `class {} QUOTA` to the limit",
            printable(limit.as_bytes()),
            printable(class.as_bytes()),
            listed(classes.iter().map(String::as_bytes)),
            printable(class.as_bytes())
        ),
        Fault::PathTemplate { why } => format!("--path-template: {why}"),
        Fault::Shadow { name, limits } => {
            let known = listed(limits.iter().map(String::as_bytes));
            let known = if known.is_empty() { "there is none".to_owned() } else { known };
            format!(
                "invalid --shadow `{}`: expected the name of a --limit ({known})",
                printable(name.as_bytes())
            )
        }
        Fault::NotANetwork { text } => format!(
            "invalid --trust `{}`: expected an address, or a network such as 10.0.0.0/8 or 2001:db8::/32",
            printable(text.as_bytes())
        ),
        Fault::TrustsEverybody { family } => format!(
            "--trust holds every {family} address, so each client could choose its address: expected \
             the networks of your proxies only, or their number in --trust-hops"
        ),
        Fault::Hops { hops, most } => {
            format!(
                "invalid --trust-hops {hops}: expected 1 to {most}, the number of proxies in front of this one"
            )
        }
        _ => format!("--limit: {error}"),
    })
}
