//! The limits of the proxy: limiters, and the layer that enforces them.

use std::sync::Arc;

use tollgate_http::settings::{LimitSettings, LocalLimiter, SettingsError};
use tollgate_http::{BuildError, Event, Key, SharedRateLimitLayer};
use tollgate_redis::SharedLimiter;

use super::shared::Store;
use crate::failure::Failure;
use crate::printable::{listed, printable};

/// A limiter, which has statistics.
pub enum Holdings {
    Own(LocalLimiter),
    Shared(Arc<SharedLimiter<Key>>),
}

/// A limit and its limiter.
pub struct Observed {
    pub name: String,
    pub holdings: Holdings,
}

/// The layer, if there is any limit; the limiters to observe; and the shared limiters to flush at
/// the end.
#[derive(Default)]
pub struct Built {
    pub layer: Option<SharedRateLimitLayer>,
    pub observed: Vec<Observed>,
    pub shared: Vec<Arc<SharedLimiter<Key>>>,
}

/// Builds the limits, in `store` if they are shared; `hook` receives each decision.
///
/// # Errors
///
/// A limit that no limiter, or the store, can enforce, an unknown name in `--shadow`, a trust in
/// every address.
pub fn build(
    settings: &LimitSettings,
    store: Option<&Store>,
    hook: impl Fn(&Event<'_>) + Send + Sync + 'static,
) -> Result<Built, Failure> {
    let (mut observed, mut shared) = (Vec::new(), Vec::new());
    let builder = settings.builder_with(|text| {
        let (limit, holdings) = match store {
            Some(store) => {
                let by = settings.key_by(text);
                let (limit, limiter) = store.limit(text, settings.algorithm, settings.max_keys, by)?;
                shared.push(Arc::clone(&limiter));
                (limit, Holdings::Shared(limiter))
            }
            None => {
                let (limit, limiter) = settings.local(text).map_err(refused)?;
                (limit, Holdings::Own(limiter))
            }
        };
        observed.push(Observed { name: text.name.clone(), holdings });
        Ok::<_, Refused>(limit)
    });
    let builder = builder.map_err(|Refused(failure)| failure)?;
    if settings.limits.is_empty() {
        return Ok(Built::default());
    }
    let layer = builder.on_decision(hook).build_shared().map_err(|error| refused(error.into()))?;
    Ok(Built { layer: Some(layer), observed, shared })
}

/// A failure while limits are made: of the settings, or of the store.
struct Refused(Failure);

impl From<SettingsError> for Refused {
    fn from(error: SettingsError) -> Self {
        Self(refused(error))
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self(failure)
    }
}

/// Returns the library's own message, except where it names the library's methods and fields.
fn refused(error: SettingsError) -> Failure {
    Failure::refused(match error {
        SettingsError::Limiter { limit, error } => {
            format!("--limit '{}': {error}", printable(limit.as_bytes()))
        }
        SettingsError::Shadow { name, limits } => {
            let known = listed(limits.iter().map(String::as_bytes));
            let known = if known.is_empty() { "there is none".to_owned() } else { known };
            format!(
                "invalid --shadow `{}`: expected the name of a --limit ({known})",
                printable(name.as_bytes())
            )
        }
        SettingsError::Layer(BuildError::NotANetwork { text }) => format!(
            "invalid --trust `{}`: expected an address, or a network such as 10.0.0.0/8 or 2001:db8::/32",
            printable(text.as_bytes())
        ),
        SettingsError::Layer(BuildError::TrustsEverybody { family }) => format!(
            "--trust holds every {family} address, so each client could choose its address: expected \
             the networks of your proxies only, or their number in --trust-hops"
        ),
        SettingsError::Layer(BuildError::Hops { hops, most }) => {
            format!(
                "invalid --trust-hops {hops}: expected 1 to {most}, the number of proxies in front of this one"
            )
        }
        error => format!("--limit: {error}"),
    })
}
