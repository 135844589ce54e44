//! The parts of this crate that `tollgate-cli`, its fuzz targets and tests need besides the public
//! interface. They may change with any version.

use crate::client::forwarded::TrustedProxies;
use crate::error::LayerError;
use crate::key::by::KeyBy;
use crate::limit::any_limiter::AnyLimiter;
use crate::limit::backend::Backend;
use crate::metrics::Metrics;
use crate::settings::layer_settings::LayerSettings;
use crate::text::allowance::Allowance;
use crate::text::classes::DEFAULT;
use crate::text::limit::LimitPart;
use std::net::IpAddr;
use tollgate::Clock;

pub use crate::error::Fault;
pub use crate::metrics::Family;
pub use crate::path::canonical::canonical_path;
pub use crate::path::template::PathTemplates;
pub use crate::settings::local::LocalLimiter;
pub use crate::text::limit::{KeyText, PartText};
pub use crate::text::printable::printable;
pub use crate::text::quota::parse_quota;

/// Returns the fault behind an error.
pub fn fault(error: &LayerError) -> &Fault {
    error.fault()
}

/// Returns all metrics, each with its samples.
pub fn families(metrics: &Metrics) -> Vec<Family> {
    metrics.families()
}

/// The largest number of trusted hops.
pub const MAX_HOPS: usize = TrustedProxies::MAX_HOPS;

/// Returns whether a forwarded address is believed if `peer` connects to the service.
pub fn trusts(proxies: &TrustedProxies, peer: IpAddr) -> bool {
    proxies.trusts(peer)
}

/// Checks trusted proxies as a layer does when it is built.
///
/// # Errors
///
/// A network that cannot be parsed, networks that hold every address, no network at all, or a
/// number of hops out of range.
pub fn check(proxies: &TrustedProxies) -> Result<(), LayerError> {
    Ok(proxies.check()?)
}

/// Returns the key of a limit; `None` if all requests are counted together.
pub fn key_text(limit: &LimitPart) -> Option<&KeyText> {
    limit.key.as_ref()
}

/// Makes the limiter of a limit, of this process, with the time of a clock of one's own if one is
/// given.
///
/// # Errors
///
/// A quota, or a number of keys, that the algorithm cannot enforce.
pub fn local(
    settings: &LayerSettings,
    limit: &LimitPart,
    clock: Option<&Clock>,
) -> Result<LocalLimiter, LayerError> {
    settings.local(limit, clock)
}

/// Returns a backend with more classes: those of a limit that are blocked or unlimited, whatever
/// counts the others.
pub fn with_uncounted(backend: impl Into<Backend>, limit: &LimitPart) -> Backend {
    let mut backend = backend.into();
    let uncounted = limit.classes.iter().filter_map(|(name, allowance)| match allowance {
        Allowance::Unlimited => Some((name.clone(), AnyLimiter::Unlimited)),
        Allowance::Blocked => Some((name.clone(), AnyLimiter::Blocked)),
        Allowance::Rate(_) | Allowance::AtOnce(_) => None,
    });
    backend.classes.extend(uncounted);
    if !backend.classes.is_empty() && backend.default_name.is_none() {
        backend.default_name = Some(DEFAULT.to_owned());
    }
    backend
}

/// Returns the key `path`: the path, or its template if there are any.
pub fn path(settings: &LayerSettings) -> KeyBy {
    settings.path()
}

/// Returns the key `ip` with all bits of an address that count by default.
pub fn client(settings: &LayerSettings) -> KeyBy {
    settings.client()
}

/// Returns the proxies in front of this process, if there are any.
pub fn proxies(settings: &LayerSettings) -> Option<TrustedProxies> {
    settings.proxies()
}
