//! The limits of the proxy: limiters, and the layer that enforces them.

use std::sync::Arc;

use tollgate::{Algorithm, ConfigError, Limiter, SingleLimiter, Stats, WhenFull};
use tollgate_http::text::{KeyText, LimitText, PathText};
use tollgate_http::{
    BuildError, Event, ForwardedField, Key, KeyBy, Limit, RateLimitLayer, SharedRateLimitLayer,
    TrustedProxies,
};
use tollgate_redis::SharedLimiter;

use super::shared::Store;
use crate::failure::Failure;
use crate::printable::{listed, printable};

/// The settings of the limits.
pub struct LimitSettings {
    pub limits: Vec<LimitText>,
    pub algorithm: Algorithm,
    pub max_keys: usize,
    pub full: WhenFull,
    pub shadows: Vec<String>,
    pub status: http::StatusCode,
    pub skipped_paths: Vec<PathText>,
    pub ipv6_prefix: u8,
    pub proxies: Option<(ForwardedField, TrustedProxies)>,
}

/// The statistics of a limit's limiter.
pub enum Holdings {
    Own(Box<dyn Fn() -> Stats + Send + Sync>),
    Shared(Arc<SharedLimiter<Key>>),
}

/// A limit that has keys or is shared, with its statistics.
pub struct Observed {
    pub name: String,
    pub holdings: Holdings,
}

/// The layer, if there is any limit; the limits to observe; and the shared limiters to flush at the
/// end.
#[derive(Default)]
pub struct Built {
    pub layer: Option<SharedRateLimitLayer>,
    pub observed: Vec<Observed>,
    pub shared: Vec<Arc<SharedLimiter<Key>>>,
}

impl LimitSettings {
    /// Builds the limits, in `store` if they are shared; `hook` receives each decision.
    ///
    /// # Errors
    ///
    /// A limit that no limiter, or the store, can enforce, an unknown name in `--shadow`, a trust
    /// in every address.
    pub fn build(
        &self,
        store: Option<&Store>,
        hook: impl Fn(&Event<'_>) + Send + Sync + 'static,
    ) -> Result<Built, Failure> {
        let is_limit = |name: &String| self.limits.iter().any(|limit| limit.name == *name);
        if let Some(name) = self.shadows.iter().find(|&name| !is_limit(name)) {
            let name = printable(name.as_bytes());
            let known = listed(self.limits.iter().map(|limit| limit.name.as_bytes()));
            let known = if known.is_empty() { "there is none".to_owned() } else { known };
            return Err(Failure::refused(format!(
                "invalid --shadow `{name}`: expected the name of a --limit ({known})"
            )));
        }
        // Invalid trusted networks are reported even if no limit uses them.
        if let Some((_, proxies)) = &self.proxies {
            proxies.check().map_err(refused)?;
        }
        if self.limits.is_empty() {
            return Ok(Built::default());
        }
        let (mut observed, mut shared) = (Vec::new(), Vec::new());
        let mut layer = RateLimitLayer::builder().status(self.status).on_decision(hook);
        for limit in &self.limits {
            let name = &limit.name;
            let built = match (store, &limit.key) {
                (Some(store), key) => {
                    let (limit, limiter) = self.shared(store, limit, key.as_ref())?;
                    shared.push(Arc::clone(&limiter));
                    observed.push(Observed { name: name.clone(), holdings: Holdings::Shared(limiter) });
                    limit
                }
                (None, None) => self.global(limit).map_err(|error| of_limit(name, &error))?,
                (None, Some(key)) => {
                    let (limit, holdings) = self.keyed(limit, key).map_err(|error| of_limit(name, &error))?;
                    observed.push(Observed { name: name.clone(), holdings });
                    limit
                }
            };
            layer = layer.limit(if self.shadows.contains(name) { built.shadow() } else { built });
        }
        let paths = self.skipped_paths.clone();
        let layer = layer.skip(move |head| paths.iter().any(|path| path.as_str() == head.uri().path()));
        Ok(Built { layer: Some(layer.build_shared().map_err(refused)?), observed, shared })
    }

    /// Returns the key `ip`: the client's address.
    pub(crate) fn client(&self) -> KeyBy {
        match self.proxies.clone() {
            Some((field, proxies)) => KeyBy::forwarded(field, proxies),
            None => KeyBy::peer(),
        }
    }

    fn global(&self, limit: &LimitText) -> Result<Limit, ConfigError> {
        let limiter = SingleLimiter::builder(limit.quota).algorithm(self.algorithm).build()?;
        Ok(Limit::global(&limit.name, limiter))
    }

    fn shared(
        &self,
        store: &Store,
        limit: &LimitText,
        key: Option<&KeyText>,
    ) -> Result<(Limit, Arc<SharedLimiter<Key>>), Failure> {
        let by = key.map(|key| self.by(key));
        let (built, limiter) = store.limit(limit, self.algorithm, self.max_keys, by)?;
        let built = match key {
            Some(key) => built.when_no_key(key.no_key),
            None => built,
        };
        Ok((built, limiter))
    }

    fn keyed(&self, limit: &LimitText, key: &KeyText) -> Result<(Limit, Holdings), ConfigError> {
        let builder = Limiter::<Key>::builder(limit.quota)
            .algorithm(self.algorithm)
            .max_keys(self.max_keys)
            .when_full(self.full);
        let by = self.by(key);
        // An algorithm whose state does not fit a word needs exact keys.
        let (built, holdings): (_, Box<dyn Fn() -> Stats + Send + Sync>) =
            if Algorithm::PACKED.contains(&self.algorithm) {
                let limiter = Arc::new(builder.build()?);
                (Limit::new(&limit.name, Arc::clone(&limiter), by), Box::new(move || limiter.stats()))
            } else {
                let limiter = Arc::new(builder.exact_keys().build()?);
                (Limit::new(&limit.name, Arc::clone(&limiter), by), Box::new(move || limiter.stats()))
            };
        Ok((built.when_no_key(key.no_key), Holdings::Own(holdings)))
    }

    fn by(&self, key: &KeyText) -> KeyBy {
        key.key_by(|| self.client().ipv6_prefix(self.ipv6_prefix))
    }
}

fn of_limit(name: &str, error: &ConfigError) -> Failure {
    Failure::refused(format!("--limit '{}': {error}", printable(name.as_bytes())))
}

/// Returns the layer's own message, except where it names the layer's methods.
fn refused(error: BuildError) -> Failure {
    Failure::refused(match error {
        BuildError::NotANetwork { text } => format!(
            "invalid --trust `{}`: expected an address, or a network such as 10.0.0.0/8 or 2001:db8::/32",
            printable(text.as_bytes())
        ),
        BuildError::TrustsEverybody { family } => format!(
            "--trust holds every {family} address, so each client could choose its address: expected \
             the networks of your proxies only, or their number in --trust-hops"
        ),
        BuildError::Hops { hops, most } => {
            format!(
                "invalid --trust-hops {hops}: expected 1 to {most}, the number of proxies in front of this one"
            )
        }
        error => format!("--limit: {error}"),
    })
}
