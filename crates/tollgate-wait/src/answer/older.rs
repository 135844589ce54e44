//! Parses the fields that are older than `RateLimit`, each of which has a single value. Most
//! servers send these fields.
//!
//! Some servers add a window to the numbers, as in `RateLimit-Remaining: 76;w=21600`. A field that
//! has a window but no number, such as `;w=21600`, contains no limit.

use super::structured::{self, field};
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
const FAMILIES: [Family; 9] = [
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
        "anthropic-ratelimit-tokens-limit",
        "anthropic-ratelimit-tokens-remaining",
        ["anthropic-ratelimit-tokens-reset", ""],
        Some("tokens"),
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

/// The end of the names of fields that contain the used and the total amount, such as
/// `X-Shopify-Shop-Api-Call-Limit: 39/40`.
const USED_OF_TOTAL: &str = "-api-call-limit";

/// Returns the limits described by the older fields, and the additional quotas in their lists.
pub(super) fn limits(headers: &HeaderMap, now: SystemTime) -> Vec<ServerLimit> {
    let mut limits = Vec::new();
    for family in &FAMILIES {
        let text = field(headers, family.limit);
        let mut quotas: Vec<_> = structured::quotas(&text).collect();
        let tokens = quotas.first().and_then(|first| first.tokens).or_else(|| whole(&text));
        let left = field(headers, family.remaining);
        let remaining = whole(&left);
        if tokens.is_none() && remaining.is_none() {
            continue;
        }
        // The list repeats the active quota, together with its window.
        let in_force = quotas.iter().position(|quota| quota.tokens == tokens && quota.window.is_some());
        let window = in_force.and_then(|at| quotas.remove(at).window);
        let window = window.or_else(|| structured::quotas(&left).find_map(|left| left.window));
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
    let names = headers.keys().filter(|name| name.as_str().ends_with(USED_OF_TOTAL));
    limits.extend(names.filter_map(|name| {
        let (used, total) = used_of_total(&field(headers, name.as_str()))?;
        Some(ServerLimit {
            name: name.to_string(),
            tokens: Some(total),
            remaining: Some(total.saturating_sub(used)),
            ..ServerLimit::default()
        })
    }));
    limits
}

/// Parses `39/40`.
fn used_of_total(text: &str) -> Option<(u64, u64)> {
    let (used, total) = text.split_once('/')?;
    Some((used.trim().parse().ok()?, total.trim().parse().ok()?))
}

/// Parses a number, and drops its fraction and its parameters. In a list, the smallest number
/// counts. A negative number is treated as zero.
fn whole(text: &str) -> Option<u64> {
    let one = |text: &str| {
        let whole = text.trim().split(['.', ';']).next().unwrap_or_default();
        whole.parse::<i64>().ok().map(|number| u64::try_from(number).unwrap_or(0))
    };
    text.split(',').filter_map(one).min()
}
