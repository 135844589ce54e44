//! The field `RateLimit-Policy`, with the current quotas.

use super::fields::{self, FieldText};
use super::seconds::MAX_INTEGER;
use crate::limit::applicable::ApplicableLimits;
use crate::limit::compiled::CompiledLimit;
use arc_swap::ArcSwapOption;
use http::header::HeaderValue;
use smallvec::SmallVec;
use std::sync::Arc;
use tollgate::Quota;

/// A period with a fraction of a second is multiplied until it is a whole number of seconds, but to
/// at most this many seconds.
const MAX_SCALED: u64 = 3600;
const SECOND: u128 = 1_000_000_000;

/// The quotas of all limits in a layer, as seen by one caller. If a limit with classes does not
/// apply to the request, its entry is `None`, because the caller's class is unknown.
type Quotas = SmallVec<[Option<Quota>; 4]>;

/// The field's last value for each class. Because quotas rarely change, these values are reused.
pub(crate) struct Policy {
    written: Box<[ArcSwapOption<Written>]>,
}

struct Written {
    quotas: Quotas,
    value: Option<HeaderValue>,
}

impl Policy {
    pub(crate) fn new(limits: &[CompiledLimit]) -> Self {
        let classes = limits.iter().map(CompiledLimit::named).filter(|named| !named.is_empty());
        let places = 1 + classes.map(|named| named.len() + 1).sum::<usize>();
        Self { written: (0..places).map(|_| ArcSwapOption::empty()).collect() }
    }

    /// Returns the field for a request. The field lists all limits that are not in shadow mode. The
    /// quota of a limit is the key's own quota or, if there is none, the quota of the caller's
    /// class. Limits without classes are included even if they do not apply to this request.
    pub(crate) fn value(
        &self,
        limits: &[CompiledLimit],
        applicable: &ApplicableLimits<'_>,
    ) -> Option<HeaderValue> {
        let without_classes = |limit: &CompiledLimit| match limit.named() {
            [] => limit.class(0).backend.quota(),
            _ => None,
        };
        let mut quotas: Quotas = limits.iter().map(without_classes).collect();
        let mut own = false;
        // If only one of the layer's limits has classes, each class has its own place. With more
        // such limits, several classes may share a place and overwrite each other's value.
        let mut place = 0;
        for bound in applicable.local.iter().filter(|bound| !limits[bound.limit].shadow) {
            if quotas[bound.limit].is_none() {
                quotas[bound.limit] = Some(bound.limiter.quota());
                place += bound.class + 1;
            }
            if let Some(quota) = bound.limiter.quota_of(&bound.key) {
                quotas[bound.limit] = Some(quota);
                own = true;
            }
        }
        for bound in applicable.shared.iter().filter(|bound| !limits[bound.limit].shadow) {
            if quotas[bound.limit].is_none() {
                quotas[bound.limit] = limits[bound.limit].class(bound.class).backend.quota();
                place += bound.class + 1;
            }
        }
        let place = &self.written[place];
        let written = place.load();
        if let Some(written) = written.as_ref().filter(|written| written.quotas == quotas) {
            return written.value.clone();
        }
        let value = write(limits, &quotas);
        if !own {
            place.store(Some(Arc::new(Written { quotas, value: value.clone() })));
        }
        value
    }
}

/// Writes the field. A quota with a period of 0 belongs to a limit on requests in flight.
fn write(limits: &[CompiledLimit], quotas: &[Option<Quota>]) -> Option<HeaderValue> {
    let mut text = FieldText::new();
    for (limit, &quota) in limits.iter().zip(quotas).filter(|(limit, _)| !limit.shadow) {
        let Some(quota) = quota else { continue };
        if !text.is_empty() {
            text.extend_from_slice(b", ");
        }
        put_item(&mut text, &limit.quoted, quota);
    }
    fields::value(&text)
}

/// Appends the item of a limit with this quoted name.
pub(super) fn put_item(text: &mut FieldText, quoted: &str, quota: Quota) {
    text.extend_from_slice(quoted.as_bytes());
    if quota.period().is_zero() {
        fields::put(text, ";q=", quota.tokens());
        text.extend_from_slice(b";qu=\"concurrent-requests\"");
        return;
    }
    let (tokens, window) = scaled(quota);
    fields::put(text, ";q=", tokens);
    if let Some(window) = window {
        fields::put(text, ";w=", window);
    }
}

/// Returns the number of tokens, and the whole seconds in which they become available. If the
/// period is not a whole number of seconds, both are multiplied until it is. If the multiplied
/// period would exceed an hour, or the multiplied tokens would exceed [`MAX_INTEGER`], returns the
/// original tokens without a window.
fn scaled(quota: Quota) -> (u64, Option<u64>) {
    let period = quota.period().as_nanos();
    let times = SECOND / gcd(period, SECOND);
    let seconds = u64::try_from(period * times / SECOND).ok();
    let tokens = u64::try_from(times).ok().and_then(|times| quota.tokens().checked_mul(times));
    match (tokens, seconds) {
        (Some(tokens), Some(seconds)) if times == 1 || (seconds <= MAX_SCALED && tokens <= MAX_INTEGER) => {
            (tokens, Some(seconds))
        }
        _ => (quota.tokens(), None),
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_period_that_is_no_whole_number_of_seconds_is_taken_several_times() {
        let of = |limit, nanos| scaled(Quota::new(limit, Duration::from_nanos(nanos)));
        assert_eq!(of(100, 1_000_000_000), (100, Some(1)));
        assert_eq!(of(100, 86_400_000_000_000), (100, Some(86_400)));
        assert_eq!(of(5, 500_000_000), (10, Some(1)));
        assert_eq!(of(1, 1_500_000_000), (2, Some(3)));
        assert_eq!(of(7, 1), (7_000_000_000, Some(1)));
        // A period of a second and a nanosecond must be multiplied to 31 years to be a whole number
        // of seconds.
        assert_eq!(of(7, 1_000_000_001), (7, None));
        assert_eq!(of(7, 3_600_500_000_000), (7, None));
        assert_eq!(of(1_000_000, 1), (1_000_000, None));
    }
}
