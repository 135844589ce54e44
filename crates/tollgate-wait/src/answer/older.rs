//! Parses the fields that are older than `RateLimit`, each of which has a single value. Most
//! servers send these fields.

use super::structured::{field, quotas};
use super::{ServerLimit, moment};
use http::HeaderMap;
use std::time::SystemTime;

/// A family of fields: the names of its fields, and the unit of its limit.
struct Family {
    limit: &'static str,
    remaining: &'static str,
    reset: [&'static str; 2],
    unit: Option<&'static str>,
}

const fn family(
    limit: &'static str,
    remaining: &'static str,
    reset: [&'static str; 2],
    unit: Option<&'static str>,
) -> Family {
    Family { limit, remaining, reset, unit }
}

/// The families that large services send. If a family has two reset fields, the first one is more
/// precise.
const FAMILIES: [Family; 8] = [
    family("ratelimit-limit", "ratelimit-remaining", ["ratelimit-reset", ""], None),
    family(
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        ["x-ratelimit-reset-after", "x-ratelimit-reset"],
        None,
    ),
    family("x-rate-limit-limit", "x-rate-limit-remaining", ["x-rate-limit-reset", ""], None),
    family(
        "x-ratelimit-limit-requests",
        "x-ratelimit-remaining-requests",
        ["x-ratelimit-reset-requests", ""],
        None,
    ),
    family(
        "x-ratelimit-limit-tokens",
        "x-ratelimit-remaining-tokens",
        ["x-ratelimit-reset-tokens", ""],
        Some("tokens"),
    ),
    family(
        "anthropic-ratelimit-requests-limit",
        "anthropic-ratelimit-requests-remaining",
        ["anthropic-ratelimit-requests-reset", ""],
        None,
    ),
    family(
        "anthropic-ratelimit-input-tokens-limit",
        "anthropic-ratelimit-input-tokens-remaining",
        ["anthropic-ratelimit-input-tokens-reset", ""],
        Some("tokens"),
    ),
    family(
        "anthropic-ratelimit-output-tokens-limit",
        "anthropic-ratelimit-output-tokens-remaining",
        ["anthropic-ratelimit-output-tokens-reset", ""],
        Some("tokens"),
    ),
];

/// Returns the limits described by the older fields, and the additional quotas in their lists.
pub(super) fn limits(headers: &HeaderMap, now: SystemTime) -> Vec<ServerLimit> {
    let mut limits = Vec::new();
    for family in &FAMILIES {
        let text = field(headers, family.limit);
        let mut quotas: Vec<_> = quotas(&text).collect();
        let tokens = quotas.first().and_then(|first| first.tokens).or_else(|| whole(&text));
        let remaining = whole(&field(headers, family.remaining));
        if tokens.is_none() && remaining.is_none() {
            continue;
        }
        // The list repeats the active quota, together with its window.
        let in_force = quotas.iter().position(|quota| quota.tokens == tokens && quota.window.is_some());
        let window = in_force.and_then(|at| quotas.remove(at).window);
        let resets = family.reset.iter().filter(|name| !name.is_empty());
        let reset = resets.filter_map(|name| moment::latest(&field(headers, name), now)).next();
        limits.push(ServerLimit {
            name: family.limit.to_owned(),
            tokens,
            window,
            remaining,
            reset,
            unit: family.unit.map(str::to_owned),
        });
        limits.extend(quotas.into_iter().filter(|quota| quota.window.is_some()));
    }
    limits
}

/// Parses a number and drops its fraction. In a list, the smallest number counts. A negative number
/// is treated as zero.
fn whole(text: &str) -> Option<u64> {
    let one = |text: &str| {
        let whole = text.trim().split('.').next().unwrap_or_default();
        whole.parse::<i64>().ok().map(|number| u64::try_from(number).unwrap_or(0))
    };
    text.split(',').filter_map(one).min()
}
