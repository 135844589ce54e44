//! The parts of this crate that `tollgate-cli`, its fuzz targets and tests need besides the public
//! interface. They may change with any version.

use crate::client::forwarded::TrustedProxies;
use crate::error::LayerError;
use crate::key::by::KeyBy;
use crate::metrics::Metrics;
use crate::settings::layer_settings::LayerSettings;
use crate::text::limit::LimitText;
use std::net::IpAddr;
use tollgate::Quota;

pub use crate::error::Fault;
pub use crate::metrics::Family;
pub use crate::path::canonical::canonical_path;
pub use crate::path::template::PathTemplates;
pub use crate::settings::local::LocalLimiter;
pub use crate::text::classes::ClassByText;
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

/// Returns the limit of these parts.
pub fn limit_text(
    name: String,
    quota: Quota,
    key: Option<KeyText>,
    classes: Vec<(String, Quota)>,
    class_by: Option<ClassByText>,
) -> LimitText {
    LimitText { name, quota, classes, key, class_by }
}

/// Returns the key of a limit; `None` if all requests are counted together.
pub fn key_text(limit: &LimitText) -> Option<&KeyText> {
    limit.key.as_ref()
}

/// Returns how the class of a request is found.
pub fn class_by_text(limit: &LimitText) -> Option<&ClassByText> {
    limit.class_by.as_ref()
}

/// Makes the limiter of a limit, of this process.
///
/// # Errors
///
/// A quota, or a number of keys, that the algorithm cannot enforce.
pub fn local(settings: &LayerSettings, limit: &LimitText) -> Result<LocalLimiter, LayerError> {
    settings.local(limit)
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
